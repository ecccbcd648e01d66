// Package partlog is the map of a library: Apache Kafka's storage layer for Go programs. A program imports package
// [github.com/partlog/partlog/log] and owns partitioned, append-only logs whose directories a Kafka 4.x broker can open,
// and opens a broker's. There is no server and no JVM; a log starts no goroutine and no timer, and a directory of logs a few.
//
// # Where things are
//
//	examples         programs to start from
//	cmd/partlog      the command: cat, append, dump, info, verify, repair, …
//	replica          Kafka's replication: a state machine, and nodes that run it; replica/member makes a process a member of a cluster,
//	                 replica/controller decides who leads, replica/placement who replicates, replica/replicatest plays clusters
//	log              Log, Dir, Reader: append, read, follow, fetch, truncate, recover, clean
//	compaction       the last record of each key: the map of keys, the rewrite, the swap
//	retention        which segments may go, as a pure decision
//	segment          one .log file with its indexes
//	index timeindex  the sparse index files, usable on their own
//	record           batches: encode, decode, validate, iterate; codecs; old message sets
//	vfs              the one door to the disk; vfs/vfstest injects faults and power cuts
//
// Imports between them go one way: from this list's top to its bottom. Two more modules stand beside it: bench, the speed
// of each operation beside its physical floor, and interop, which hands folders to Kafka and back.
//
// # Words
//
// They mean what they mean in Kafka. Offsets are int64 and count records.
//
//   - Log start offset: the first offset a reader may ask for. Retention and DeleteRecords raise it.
//   - Log end offset (LEO): the offset the next record will get; last offset + 1. Some texts call the last offset itself
//     by this name; here it is always the one behind it.
//   - High watermark (HW): readers see everything below. On a replicated partition it is the smallest log end offset of
//     the in-sync replicas (not of all replicas, as some texts say). In a log of its own it follows what is on the
//     device, see Durable.
//   - In-sync replicas (ISR): those that have, or had not long ago, all that the leader has; with the others (out of sync,
//     OSR) they are the assigned replicas (AR).
//   - Last stable offset: read-committed readers see everything below. Never abbreviated, since the same three letters
//     are also used for the log start offset.
//   - Durable: everything below is on the device, so that an append may be acknowledged. Kafka has no such mark; its
//     acknowledgements rest on replicas.
//   - Recovery point: everything below is on the device, indexes included; recovery after a crash begins there.
//   - Leader epoch: a number that grows with every change of leader. Each batch carries the epoch it was written in; the
//     epoch's start offset tells replicas where histories part.
//   - Segment: one .log file with its indexes, named by its base offset. The last one is active and is appended to; the
//     others are sealed.
//   - Batch: the unit that is written, compressed and checksummed. Records live in batches.
//   - Tombstone: a record with a null value; compaction removes its key.
//   - Log root (Kafka's "log dir"): the directory that holds partition folders, four checkpoint files, the lock and the
//     clean-shutdown marker. Its owner writes all of them.
package partlog
