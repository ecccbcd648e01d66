// Package log owns partitions: append-only logs of records whose folders an Apache Kafka 4.x broker can open, and that
// open a broker's.
//
//	l, err := log.Open("/var/lib/events", log.Config{})     // a log root with one partition in it; OpenDir for many
//	base, err := l.Append(ctx, record.Record{Value: v})     // on the device when it returns
//	for rec, err := range l.Follow(ctx, 0) { ... }          // every record, then waits for more
//	err = l.Close()
//
// What is on disk:
//
//	root/                                   locked as a whole, by .lock
//	  meta.properties                       which node and cluster it is of, if a broker or DirConfig.ClusterID says so
//	  .kafka_cleanshutdown                  only after a clean stop
//	  recovery-point-offset-checkpoint      "topic partition offset", a line each; likewise for
//	  log-start-offset-checkpoint           the log start offsets,
//	  replication-offset-checkpoint         the high watermarks,
//	  cleaner-offset-checkpoint             and the cleaner
//	  partlog-durable-hints                 while a durable log is open, and after a kill; Kafka ignores it. The next
//	                                        clean stop removes it; it may be deleted while the root is not in use
//	  log-0/                                topic "log", partition 0
//	    00000000000000000000.log            batches; with .index and .timeindex
//	    00000000000000004711.log            the active segment
//	    leader-epoch-checkpoint
//	    partition.metadata                  if a broker gave the topic an id
//	  t-0.<uuid>-delete/                    a deleted partition, until its files go; -stray: one set aside; -future: the
//	                                        copy that Dir.Move makes
//
// The marks of a log, and who moves them:
//
//	log start            last stable   high watermark          log end
//	    |                      |              |                    |
//	----+======================+==============+====================+----> offsets
//	    ^ DeleteRecords        readers see everything below        ^ Append
//	                           the high watermark
//
// # Many partitions
//
// OpenDir owns a root with any number of partitions. OpenAll opens all of them, several at a time, and one that cannot be
// opened stops no other; Delete, Move to another Dir and SetStray are a broker's. A Dir keeps its logs in order by itself:
// it flushes what flush.ms asks, writes the checkpoints, runs retention, removes what was deleted, forgets old producers. The
// goroutines for that do not grow with the logs, one log that fails or hangs stops no other, and what fails is tried again
// and can be seen: Stats, Events, Logger. With DirConfig.Manual it starts none, and RunOnce does the work.
//
// # Producers and transactions
//
// Batches with a producer id are judged as a broker does: a repeated one is answered with its first offset, a gap or a
// stale epoch refused. Log.Producer writes such batches without showing sequence numbers, and transactions:
// WithIsolation(ReadCommitted) shows them whole or not at all, and never anything behind the first one that is open (the
// last stable offset). Snapshots of all that (N.snapshot) stand beside the segments; without them it is read from the log.
//
// # Durability
//
// Append of a Durable log, the default, returns when the records are on the device; concurrent appends share the sync.
// Readers of such a log see only what is on the device, so that nobody acts on a record that a power cut takes back. A
// Buffered log acknowledges and shows what the operating system has, as Kafka does, and syncs as flush.messages and
// flush.ms say. An error from an append means that the records are not in the log, except *UnconfirmedError. After a failed sync
// the log takes nothing more until it is opened again (ErrFailed).
//
// Kafka's acks speak of replicas, of which a log alone has none: its acks=0 and acks=1 are Buffered here (for acks=0 a server
// does not wait for the call), and acks=all, which keeps records through the loss of a machine, is package replica's; the most
// that one log can do is Durable.
//
// # Concurrency
//
// All methods of Dir, Log and Reader are safe for concurrent use. Nothing is locked while the body of a loop over an
// iterator runs: it may append, truncate, close, panic or leave. A log starts no goroutine and no timer; a Dir from OpenDir
// does, unless it is Manual, and its Close ends them.
package log
