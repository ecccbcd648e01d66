// Package controller decides for a cluster of logs who replicates and who leads: Kafka's controller as a pure state machine
// (Core), and a loop that runs it over a replica.Store (Controller). The nodes need no connection to it to learn what it
// decided: they read the store (Follow). They tell it what happens by their registration there (Register) and by a few
// requests, over whatever transport the host has.
//
//	 nodes                                   store                              controllers, any number
//	+---------------------+        +----------------------------+            +---------------------------+
//	| Register            |------->| /brokers/ids/1 (ephemeral) |--- Seen -->| Run: claims, or waits     |
//	| Follow              |<-------| /brokers/topics/t/…/state  |<-- Commit -|   Core.Step               |
//	|                     |        | /controller (ephemeral)    |   guarded  |                           |
//	| AlterPartition,     |        | /controller_epoch          |            |                           |
//	| ControlledShutdown  |------------------- requests ------------------->|                           |
//	+---------------------+        +----------------------------+            +---------------------------+
//
// # What stands in the store
//
// The keys and the JSON in them are those of Kafka's ZooKeeper time, so that a browser of ZooKeeper shows Kafka's own
// picture; what Kafka keeps in KRaft's log only (partition epochs, eligible leader replicas, registrations of nodes that
// are down) is added. Values are read leniently: unknown fields are ignored.
//
//	key                                  owner                value
//	/controller                          ruler's session      {"version":1,"brokerid":1,"timestamp":"…"}: who rules
//	/controller_epoch                    nobody, never gone   "7": how often somebody began to; its version guards all writes below
//	/cluster/id                          nobody, never gone   {"version":"1","id":"…"}: the cluster that the store is of; a member that
//	                                                          finds another, or none where there was one, believes nothing else here
//	/cluster/restored                    nobody               {"version":1,"times":1}: how often the store was restored (AfterRestore);
//	                                                          broker epochs are above those from before
//	/brokers/ids/1                       node's session       Kafka's version 5, and "previous_broker_epoch", "fenced", "token"; created at the
//	                                                          broker epoch
//	/brokers/registrations/1             controller           {"version":1,"broker_epoch":42,"rack":"a","fenced":false,
//	                                                          "in_controlled_shutdown":false}: the last registration of each node
//	/brokers/topics/t                    controller           {"version":3,"topic_id":"…","partitions":{"0":[1,2]},
//	                                                          "adding_replicas":{},"removing_replicas":{}}
//	/brokers/topics/t/partitions/0/state controller           {"version":1,"controller_epoch":7,"leader":1,"leader_epoch":3,"isr":[1,2],
//	                                                          and "topic_id", "partition_epoch", "replicas", "adding_replicas",
//	                                                          "removing_replicas", "eligible_leader_replicas", "last_known_elr", "recovering",
//	                                                          "min_insync_replicas" once it was changed}
//	/config/topics/t                     controller           {"version":1,"config":{"min.insync.replicas":"2"}}
//	/admin/delete_topics/t               controller           empty: the topic is being deleted
//
// A partition's state is one key, so that no change of a partition can be half done; the lists in the topic's key are a copy
// for others to read, and what a partition begins with. A topic is made from the outside in (its key, then the states) and
// deleted from the inside out, behind a mark: a successor that finds a topic without some states makes them, and one that
// finds a mark goes on deleting.
//
// # Why two rulers cannot both write
//
// Whoever claims the rule creates /controller and raises /controller_epoch in one transaction, and makes the version that
// came of it a guard of every transaction from then on. When another has been elected since, no write succeeds, even one
// that was sent before and arrives late; so it does not matter when a controller learns that its session is over. A
// refused or unanswered write ends the rule: the Core forgets everything, and begins anew from the store if it is elected
// again. Nothing is answered or announced before it is in the store.
//
// Nor can a controller that was deposed and does not know refuse what its successor would grant. Before a request is answered
// that changes nothing (a topic that is not there, a proposal for a version that is past) the guard is checked, by a transaction
// without writes. A leader takes such a refusal for final, as Kafka's does, and would wait for news that need not come.
//
// # Elections
//
// Partition.Change is Kafka's rule (KRaft, 4.3.1) for one partition: online, preferred and unclean elections, eligible leader
// replicas (KIP-966), the end of a reassignment (KIP-455), leader and partition epochs. Classic has the four elections of
// 3.9. A Kafka cluster has three different elections: this package's of the controller, this package's of partition leaders,
// and that of a consumer group's leader, which is the group coordinator's.
//
// Three things differ from a KRaft controller on purpose. Another min.insync.replicas is a new version of each partition of the
// topic, which has it: so it reaches a leader no later than what the controller has decided by it. Leaders go home by the
// classic rule, which looks at leader.imbalance.per.broker.percentage (KRaft does not). And a node is alive as long as its
// session with the store is, rather than by heartbeats to the controller.
package controller
