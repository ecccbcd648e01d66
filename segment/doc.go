// Package segment keeps one segment of a partition: the file of batches and the indexes that belong to it.
//
//	00000000000000001000.log         batches, one behind the other; the only truth
//	00000000000000001000.index       last offset of a batch -> its first byte, about one entry every 4 KiB
//	00000000000000001000.timeindex   largest timestamp so far -> last offset of the batch that has it
//	00000000000000001000.txnindex    aborted transactions whose marker lies here; only if there are any
//
//	.log   | batch 1000..1004 | batch 1005..1005 | batch 1009..1012 |        offsets grow, gaps are legal
//	       0                  210                299                440      file positions
//	                                             ^
//	.index                          (1012, 299) -+    a lookup of 1010 finds no entry <= 1010 and walks from position 0
//
// Every batch, of whatever version, begins the same way:
//
//	 0        8      12          16      17
//	+--------+------+-----------+-------+----- - -
//	| offset | size | epoch/crc | magic |             size counts the bytes behind itself
//	+--------+------+-----------+-------+----- - -
//
// # Who may do what
//
// One goroutine appends, truncates, seals and recovers at a time (the package serialises them); any number of
// goroutines read without a lock. A reader sees the segment as it was published last: next offset, size and largest
// timestamp change together, after the bytes are in the file. A reader holds a reference ([Segment.Retain], or a
// [Region], or a running iterator), and the files are closed when the last reference goes.
//
// Reading while another goroutine truncates is normal and ends with [ErrChanged]: resolve the offset again. Bytes that
// do not parse without such a cut are a [*CorruptError] that names file and position; they are never skipped.
//
// # Laziness
//
// [Open] looks at the file's length and nothing else. The log file and the indexes are opened on first use, sealed
// indexes are mapped under a budget, and [Segment.Park] gives everything back. Indexes are checked when they are
// first used; one that is missing or damaged is rebuilt from the log.
package segment
