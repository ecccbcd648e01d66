// Package replicatest plays whole clusters in one thread, from one number: nodes with real logs (package log) on disks that
// lose power, the replicas of package replica, several controllers of package replica/controller, producers and consumers,
// and between them a network that loses, repeats, delays and reorders.
//
//	  producers   consumers             what goes wrong, and when: the plan, drawn from the seed
//	      |          |                                   |
//	+-----+----------+-----------------------------------v------------------------------------+
//	|  queue of events by simulated time        links: blocked, lossy, slow                   |
//	+---+----------------+----------------+-------------------------+---------------+---------+
//	    v                v                v                         v               v
//	+--------+       +--------+       +--------+               +----------+    +----------+
//	| node 1 |       | node 2 |       | node 3 |               | ruler 1… |    |  store   |
//	| cores  |       | cores  |       | cores  |               | Core     |    | MemStore |
//	| logs   |       | logs   |       | logs   |               +----------+    +----------+
//	| a disk |       | a disk |       | a disk |
//	+---+----+       +---+----+       +---+----+
//	    +----------------+----------------+-----> a model of each partition: what was committed, by whom, who must have it
//
// Each node has a replica of several partitions (a core and a log each, in one root on one disk), and is the preferred leader
// of as many as the next one; what strikes a node, the network, the store or a controller strikes all of them. There are one or
// two topics; in the storm they get more partitions and other settings, are deleted and made anew under the same name. Some are
// compacted: their records have few keys, and are often tombstones.
//
// The store fails, is slow, and does what it is asked without an answer; its watches lose what they should tell, or tell it late
// once more, and are then begun anew. Wall clocks are hours apart and jump. Each node has its own segment and retention sizes for
// a topic for a while, as when settings change.
//
// There is no clock and no chance but the seed's, and one thing happens at a time: the same [Options] play the same run to
// the last bit. A storm, in which the plan's faults strike, is followed by a calm, in which everything is mended and must
// come right.
//
// # What must hold
//
// Of each partition:
//
//	always   the same leader epoch and offset are the same record on every replica, for ever
//	         an epoch has one leader; on it the high watermark never falls
//	         what a leader's high watermark passed, and so all that acks=all confirmed, is on every member of the in-sync
//	         set and on every later leader, unchanged
//	         a follower's high watermark is not above what some leader committed
//	         a record of an idempotent producer is committed once, as long as the log holds it, and none before it is left out
//	         a consumer sees each committed record once, in order; read_committed nothing of an aborted or open transaction
//	         a killed process finds all its records again, a power loss leaves a prefix with all that was synced
//	         compaction removes no tombstone or marker for good that a replica has yet to come upon, and none does without it
//	         a log has the records of one topic id
//	in calm  the preferred leader leads, everybody is in sync, replicas are equal, all is committed and consumed, nobody
//	         waits for an answer; of each key the last record is there, or of a deleted one none; the same transactions
//	         are known as aborted, and the same of every producer; nobody has a folder of what was deleted
//
// Committed records may be lost when as many replicas as min.insync.replicas (the least it ever was) have lost unsynced
// tails at once, or after an unclean election; without eligible leader replicas (NoELR) also when who was in sync last leads again,
// whatever it has lost, as with Kafka before KIP-966. The simulator counts these ([Outcome.Counts]) and asks of committed records
// nothing until the next calm; the other rules hold on. Where nobody leads and another min.insync.replicas has made the controller
// forget who may, as Kafka's does, an unclean election is held by hand in the calm.
package replicatest
