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
//	| core   |       | core   |       | core   |               | Core     |    | MemStore |
//	| log    |       | log    |       | log    |               +----------+    +----------+
//	| disk   |       | disk   |       | disk   |
//	+---+----+       +---+----+       +---+----+
//	    +----------------+----------------+-----> the model: what was committed, by whom, and who must have it
//
// There is no goroutine, no clock and no chance but the seed's: the same [Options] play the same run to the last bit. A
// storm, in which the plan's faults strike, is followed by a calm, in which everything is mended and must come right.
//
// # What must hold
//
//	always   the same leader epoch and offset are the same record on every replica, for ever
//	         an epoch has one leader; on it the high watermark never falls
//	         what a leader's high watermark passed, and so all that acks=all confirmed, is on every member of the in-sync
//	         set and on every later leader, unchanged
//	         a follower's high watermark is not above what some leader committed
//	         a record of an idempotent producer is committed once, as long as the log holds it
//	         a consumer sees each committed record once, in order; read_committed nothing of an aborted or open transaction
//	         a killed process finds all its records again, a power loss leaves a prefix with all that was synced
//	in calm  somebody leads, everybody is in sync, replicas are equal, all is committed, nobody waits for an answer
//
// Committed records may be lost when as many replicas as min.insync.replicas have lost unsynced tails at once, or after
// an unclean election. The simulator counts these ([Outcome.Counts]) and asks of committed records nothing until the
// next calm; the other rules hold on.
package replicatest
