// Package member makes a process a member of a cluster of logs: it holds replicas (replica.Node), is registered with the store
// all members share (replica.Store), does what the controller decides, and may stand for election as the controller
// (controller.Controller). What a broker of Kafka does besides serving clients, in one value:
//
//	dir, err := log.OpenDir("data", log.DirConfig{Defaults: log.Config{Durability: log.Buffered}})
//	wire, err := replica.ListenTCP(":9092", replica.TCPConfig{Self: 1})
//	m, err := member.Start(member.Config{
//		NodeConfig: replica.NodeConfig{Config: replica.Config{Self: 1}, Dir: dir, Transport: wire},
//		Host:       "node-1", Store: store, Controller: &controller.Options{},
//	})
//	…
//	err = errors.Join(m.Shutdown(ctx), wire.Close(), dir.Close())
//
// A program that is no member uses a replica.Client. In a member, clients use m.Node(): Partition for replicas here, Remote for
// those of other members; a refusal names the leader, and controller.Lookup says what the store knows of it. Topics are made,
// grown, moved and deleted at the Controller of the member that rules, see Status.Rules; a process that is not it finds it with
// controller.FollowRuler and passes the request on over a protocol of its own. Config.Host and Port are where the Transport is
// found: where clients find a service built on this is for the service to say, under a key of its own in the store, say.
//
//	                 +----------------------- member ------------------------+
//	                 |  session, registration      keep                      |
//	replica.Store <--+  partitions, nodes      --> board --> Node.Assign …   +--> replica.Transport
//	                 |  claim of the rule          Controller (optional)     |     fetches, and questions to the
//	                 +-------------------------------------------------------+     controller wherever it rules
//
// # What a member sees to
//
//   - It registers under a session with the store, as not in service, and is put in service once it knows its part: when all that
//     the store says has been read, and a controller has noticed this registration.
//   - What an earlier life of the process led it does not lead again in the same leader epoch: it may have lost records of it.
//     Such news are held back until the controller has given the partition away.
//   - A registration whose session is lost is replaced by another, with a new broker epoch, as soon as the store can be reached.
//     Replicas go on meanwhile: who was taken out of leaderships and in-sync sets learns it from the store like everybody.
//     Nothing was lost, and the new registration says so, if the controller noticed the one before.
//   - A watch of the store that ends is begun anew; what was deleted meanwhile is noticed, and looked up once more before any
//     replica is deleted.
//   - A store that came back empty, or is another cluster's, is not believed (ErrOtherCluster): the member does not register with
//     it, and its replicas stay. What the cluster is the Dir's meta.properties say (log.DirConfig.ClusterID), else the store the
//     first time it is asked.
//   - A store that was restored from a backup has lost what was decided since, and would give out epochs a second time. Before a
//     member can reach it controller.AfterRestore must be called, which raises them all: then members take its word again, whether
//     they ran on or not. So what must not be reached yet is restored without its /cluster/id, which comes last. Topics that were
//     made after the backup, and are not there any more, are not taken for deleted: their replicas stop, and their logs stay until
//     the process starts anew (Config.Strays). What sessions own must not come back with the backup.
//   - A topic that is deleted and made anew is another topic: the old replica goes before the new one is made.
//   - A replica that went, because its topic did or it was moved away, does not come back by what was read before: neither here, nor in
//     the Node, which remembers of which version the last word was. A process that begins anew believes what it reads of the store
//     first; what a watch that is behind has told before, and is not in that, is gone.
//   - A leader whose disk fails gives the partition to another in-sync replica, and catches up as a follower when the disk is well
//     again: it looks after growing pauses. One that is alone in sync, or whose disk is full, refuses what it cannot write, and leads
//     on; if its log has failed, once that could be opened again and nothing of it is missing (replica.LostTailError).
//   - Logs and replicas heed their topic's settings in the store (controller.SetConfig, AlterConfig), all that log.ParseConfig
//     knows, over what the process has of its own: when they are made, and whenever the settings change. What does not go
//     with the process's own is told to Config.Trouble and left out. They count soon after they were altered, as with Kafka;
//     AwaitConfig waits until the leaders go by them.
//   - Leaders' proposals of other in-sync sets go to the node whose controller rules, over the Transport. It rules as long as it
//     reaches the store: if others do not reach it meanwhile, in-sync sets change only by what the store says of sessions.
//
// Errors of the store end nothing: they are tried again every Config.Retry, told to Config.Trouble and kept in Status. A store that
// does not answer is as good as one that fails, after Config.ProposeTimeout; for a controller after its SessionTTL, whatever it then
// has under way ends its rule. Watches are begun anew every minute or, of many keys, some: what they have not told is found then.
package member
