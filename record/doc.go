// Package record is the bytes of Kafka's record batches: cutting, checking, iterating, building and patching them. It does no
// I/O and knows nothing of files.
//
// A batch of magic 2, the only format that is written (integers are big-endian):
//
//	 0  +------------------+------------------+------------------+-----+
//	    | baseOffset   i64 | batchLength  i32 | leaderEpoch  i32 | mag | not in the CRC: the leader patches
//	17  +------------------+------------------+------------------+-----+ offset and epoch in place
//	    | crc u32          | CRC-32C of everything that follows
//	21  +------------------+---------------------+--------------------+
//	    | attributes   i16 | lastOffsetDelta i32 | baseTimestamp  i64 | or the delete horizon (bit 6)
//	35  +------------------+-+-------------------+--------------------+
//	    | maxTimestamp   i64 | producerId     i64 | producerEpoch i16 |
//	53  +--------------------+-----+--------------+-------------------+
//	    | baseSequence   i32 | recordCount i32    | batchLength counts the bytes from 12 on
//	61  +--------------------+--------------------+-------------------+
//	    | records, or what they compress to                           |
//	    +-------------------------------------------------------------+
//
//	attributes   15 ... 7 | 6 horizon | 5 control | 4 transactional | 3 LogAppendTime | 2 1 0 codec
//
// One record, all lengths and deltas zig-zag varints, length -1 = null:
//
//	+--------+---+---------+-----------+-----------+-------------+---------+------------------------------+
//	| length | 0 | time Δ  | offset Δ  | len | key | len | value | headers | (len | key | len | value) ... |
//	+--------+---+---------+-----------+-----------+-------------+---------+------------------------------+
//
// Legacy entries (magic 0 and 1) are read, never written:
//
//	+------------+----------+---------+-------+----------------+-------------------+-----------+-------------+
//	| offset i64 | size i32 | crc u32 | magic | attributes i8  | timestamp i64, v1 | len | key | len | value |
//	+------------+----------+---------+-------+----------------+-------------------+-----------+-------------+
//	0            8          12        16      17               18
//
// # Ways in
//
// [Next] cuts batches off a region and [Batch.Records] iterates them. [Split] checks everything about bytes from elsewhere;
// [Check] and [Decoder.Validate] are what a leader does to a set before it appends it. [Builder] and [Marker] make batches.
//
// Nothing here panics, hangs or allocates beyond its limits on any input.
package record
