// Package replica is Kafka's replication: leader, followers, in-sync replicas, high watermark, leader epochs. It has two floors.
//
//	clients      Handle, Remote       append, fetch, look up offsets, end transactions, ask where epochs ended; here, or at another node
//	shell        Node, Transport      the replicas of one broker over the logs of a log.Dir: goroutines, time, network
//	core         Partition            one replica as a pure state machine
//
// A program that is no member of the cluster takes a Client, which finds leaders and speaks TCP with them.
//
// Who wants a cluster takes replica/member, which runs a Node as the controller (replica/controller) decides; who has a
// controller of his own takes Node; who has goroutines and a network of his own takes Partition.
//
// # The core
//
// A Partition has no goroutine, clock, socket, file or random source. Whoever owns the log, the network and the time feeds
// events in and carries actions out:
//
//	                    Assign, Peer, Tick, Stop              from the controller and the clock
//	                              |
//	Produce, FetchRequest,   +----v------+   Reply             to producers, consumers, followers
//	EpochRequest, EndTxn --->| Partition |---->
//	FetchResponse       ---->|   Step    |----> SendFetch      to the leader
//	                         +--^-----|--+----> ProposeISR     to the controller
//	  Appended, Read, Truncated,|     | DoAppend, DoRead, DoTruncate, DoReset, DoSkip, DoEpoch, DoSync,
//	  Assigned, Synced          |     v SetHighWatermark, PersistHighWatermark, SetLogStart, SetRemoval
//	                            log.Log
//
// The offsets of a partition, and who moves them:
//
//	log start      high watermark        log end of the slowest in-sync replica, log end of the leader
//	    |                |                              |                             |
//	----+================+==============================+=============================+----> offsets
//	    committed: on every in-sync replica             not yet committed
//
// A leader learns from each fetch what a follower has, and moves the high watermark to the smallest log end among the
// in-sync replicas; the follower learns of it from the next answer. Every change of leader begins a leader epoch; the log
// notes at which offset (package log, AssignEpoch). A follower names the epoch of its last record in each fetch, and is told
// where its history and the leader's part (KIP-101, KIP-279, KIP-320, KIP-595).
//
// # Why all in sync, and not a majority
//
// A record is committed when every member of the in-sync set has it, not when a majority of the replicas has. With n replicas
// n-1 may be lost and what was committed is still there, where a majority bears the loss of less than half: two copies bear one
// loss instead of three, three bear two instead of five. min.insync.replicas says how small the set may become before nothing is
// committed any more. The price: the slowest member sets the pace; one that is gone holds up everybody until it is left out,
// after one and a half times LagTimeMax, or as soon as the controller misses it; and who is in the set must be decided where a
// majority does decide, in the Store. Each replica costs its disk, its share of the leader's network, and, in sync, the wait for it.
//
// A leader that dies when its followers have a record, and before its producer has the answer, leaves the producer in doubt: asked
// again, the next leader has the record twice, unless the producer is idempotent (record.Producer).
//
// # Where it differs from Kafka
//
// A follower says in its fetches whether it may have lost what it had synced, and is not in sync until it has caught up. One that
// is not in sync, and ends where the leader's log starts, begins anew there if the leader cannot tell by its epochs that their
// histories are the same.
//
// A replica whose log fails, or cannot be opened, tries again by itself, first after Config.Backoff and then after pauses that double
// up to a minute; with Kafka the whole log directory stays offline until the broker is restarted, and a partition whose fetcher
// failed waits for news of the controller. The log is closed and opened again, which reads what is on the device and not what the
// page cache says, where the system allows that: after a sync that failed the two may differ, and syncing once more proves nothing.
// A follower then is out of sync until it has caught up. A leader that is alone in sync leads on in its leader epoch if the log has
// all it had; if not it is Failed with a *LostTailError until it gets a new epoch, because others may have fetched what is lost.
// Handle.Status and Node.Stats count the failures, and NodeConfig.Trouble is told. What is damaged (log.ErrCorrupt) is not tried
// again before there are news.
//
// A follower takes a batch that is larger than its segment.bytes into a segment of its own; Kafka's refuses it, and falls out of
// sync until the setting is raised.
//
// # Clocks
//
// Who leads, who is in sync and what is committed depends on no clock that can be set. What does is what each log does by its own:
// retention, compaction by age, and producers that are forgotten (producer.id.expiration.ms, a day). As with Kafka a node whose clock is
// ahead by more than that has forgotten producers that others know: when it leads, a retry of what was committed before is new to it.
// Open transactions are never forgotten.
//
// # Fences
//
// What comes from somebody who does not know the present leader epoch is refused, as Kafka does: FencedLeaderEpoch if the asker's
// is older, UnknownLeaderEpoch if it is newer, for fetches, questions for an epoch's end, appends and ends of transactions. The
// log itself refuses to write under another leader epoch than its own, whatever the core believes. A follower's fetch also names
// the topic's id, and the broker epoch of its node.
package replica
