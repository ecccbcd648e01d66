package log

import (
	"math"
	"strings"
)

// otherKey is a key of Kafka's that is known and has no field in Config.
type otherKey struct {
	topic, removed bool
	text           string
	client         string                             // whose it is, if not a broker's or a topic's: then ParseConfig refuses it
	check          func(value string) (reason string) // as Kafka checks it; nil: any text
}

func removedKey(text string) otherKey {
	return otherKey{removed: true, text: "removed from Kafka: " + text}
}
func removedTopic(text string) otherKey {
	return otherKey{removed: true, topic: true, text: "removed from Kafka: " + text}
}

// words, whole, decimal, yesNo and replicas make a setting by the kind of its values.
func words(text string) otherKey { return otherKey{text: text} }

func whole(text string, least, most int64) otherKey {
	return otherKey{text: text, check: func(v string) string { _, reason := parseInt(v, least, most); return reason }}
}

func atLeast(least int64, text string) otherKey  { return whole(text, least, maxInt) }
func longFrom(least int64, text string) otherKey { return whole(text, least, math.MaxInt64) }
func anyInt(text string) otherKey                { return whole(text, math.MinInt32, maxInt) }

func decimal(text string) otherKey {
	return otherKey{text: text, check: func(v string) string { _, reason := parseFloat(v); return reason }}
}

func yesNo(text string) otherKey {
	return otherKey{text: text, check: func(v string) string {
		if !strings.EqualFold(v, "true") && !strings.EqualFold(v, "false") {
			return "neither true nor false"
		}
		return ""
	}}
}

// replicas is a list of partition:broker, or * for all of them, or nothing.
func replicas(text string) otherKey {
	return otherKey{topic: true, text: text, check: func(v string) string {
		if v == "" || v == "*" {
			return ""
		}
		for pair := range strings.SplitSeq(v, ",") {
			partition, broker, ok := strings.Cut(strings.TrimSpace(pair), ":")
			_, bad1 := parseInt(partition, 0, maxInt)
			_, bad2 := parseInt(broker, 0, maxInt)
			if !ok || bad1 != "" || bad2 != "" {
				return "neither * nor a list of partition:broker"
			}
		}
		return ""
	}}
}

// tiered is a setting of tiered storage; a topic's if it has no broker's prefix.
func tiered(o otherKey, topic bool) otherKey {
	o.topic, o.text = topic, "tiered storage is not used"
	return o
}

const (
	network     = "a setting of the broker's network"
	groups      = "a setting of the group coordinator"
	transaction = "a setting of the transaction coordinator"
	quorum      = "a setting of the broker's own controllers; here they share a replica.Store"
)

var otherKeys = map[string]otherKey{
	"log.dir":                                       words("the folder is an argument of OpenDir"),
	"log.dirs":                                      words("the folder is an argument of OpenDir"),
	"log.retention.check.interval.ms":               longFrom(1, "DirConfig.RetentionInterval"),
	"log.initial.task.delay.ms":                     longFrom(0, "DirConfig.InitialDelay"),
	"log.flush.offset.checkpoint.interval.ms":       atLeast(0, "DirConfig.CheckpointInterval"),
	"log.flush.start.offset.checkpoint.interval.ms": atLeast(0, "DirConfig.CheckpointInterval"),
	"log.dir.failure.timeout.ms":                    longFrom(1, "a setting of the broker"),
	"num.recovery.threads.per.data.dir":             atLeast(1, "DirConfig.RecoveryThreads"),
	"log.cleaner.enable":                            yesNo("compaction follows cleanup.policy; DirConfig.CleanerBackoff Forever turns it off"),
	"log.cleaner.threads":                           atLeast(0, "DirConfig.CleanerThreads"),
	"log.cleaner.io.buffer.size":                    atLeast(0, "buffers are pooled"),
	"log.cleaner.io.buffer.load.factor":             decimal("Config.Compaction.MapLoad"),
	"log.cleaner.backoff.ms":                        longFrom(0, "DirConfig.CleanerBackoff"),
	"producer.id.expiration.check.interval.ms":      atLeast(1, "DirConfig.ProducerInterval"),
	"transaction.partition.verification.enable":     yesNo("AppendOptions.Verify"),

	"default.replication.factor":                    whole("controller.Config.ReplicationFactor, of package replica/controller", 1, math.MaxInt16),
	"num.partitions":                                atLeast(1, "controller.Config.Partitions, of package replica/controller"),
	"num.replica.fetchers":                          atLeast(1, "replica.NodeConfig.Fetchers"),
	"replica.lag.time.max.ms":                       longFrom(1, "replica.Config.LagTimeMax"),
	"replica.fetch.max.bytes":                       atLeast(0, "replica.Config.FetchBytes"),
	"replica.fetch.response.max.bytes":              atLeast(0, "replica.NodeConfig.ResponseBytes"),
	"replica.fetch.min.bytes":                       anyInt("replica.Config.FetchMin"),
	"replica.fetch.wait.max.ms":                     atLeast(0, "replica.Config.FetchWait"),
	"replica.fetch.backoff.ms":                      atLeast(0, "replica.Config.Backoff"),
	"replica.socket.timeout.ms":                     atLeast(1, "replica.Config.FetchLimit"),
	"replica.high.watermark.checkpoint.interval.ms": longFrom(0, "DirConfig.HighWatermarkInterval"),
	"auto.leader.rebalance.enable":                  yesNo("controller.Config.NoBalance, of package replica/controller"),
	"leader.imbalance.check.interval.seconds":       longFrom(1, "controller.Config.ImbalanceInterval, of package replica/controller"),
	"leader.imbalance.per.broker.percentage":        atLeast(0, "controller.Config.ImbalancePercent, of package replica/controller"),
	"unclean.leader.election.interval.ms":           longFrom(1, "controller.Config.UncleanInterval, of package replica/controller"),
	"leader.replication.throttled.replicas":         replicas("replication is not throttled"),
	"follower.replication.throttled.replicas":       replicas("replication is not throttled"),

	"node.id":                                                     anyInt("replica.Config.Self, and DirConfig.NodeID"),
	"broker.id":                                                   anyInt("replica.Config.Self, and DirConfig.NodeID"),
	"broker.rack":                                                 words("member.Config.Rack, of package replica/member"),
	"broker.session.timeout.ms":                                   anyInt("member.Config.SessionTTL, of package replica/member"),
	"broker.heartbeat.interval.ms":                                anyInt("sessions are kept by replica.Store"),
	"controlled.shutdown.enable":                                  yesNo("Member.Shutdown, of package replica/member"),
	"delete.topic.enable":                                         yesNo("topics can be deleted"),
	"auto.create.topics.enable":                                   yesNo("topics are made by Controller.CreateTopic, of package replica/controller"),
	"controller.quorum.voters":                                    words(quorum),
	"controller.quorum.bootstrap.servers":                         words(quorum),
	"controller.listener.names":                                   words(quorum),
	"process.roles":                                               words(quorum),
	"metadata.log.dir":                                            words(quorum),
	"listeners":                                                   words(network),
	"advertised.listeners":                                        words(network),
	"inter.broker.listener.name":                                  words(network),
	"listener.security.protocol.map":                              words(network),
	"num.network.threads":                                         atLeast(1, network),
	"num.io.threads":                                              atLeast(1, network),
	"background.threads":                                          atLeast(1, network),
	"queued.max.requests":                                         atLeast(1, network),
	"socket.send.buffer.bytes":                                    anyInt(network),
	"socket.receive.buffer.bytes":                                 anyInt(network),
	"socket.request.max.bytes":                                    atLeast(1, network),
	"fetch.max.bytes":                                             atLeast(1024, "FetchOptions.MaxBytes"),
	"group.initial.rebalance.delay.ms":                            anyInt(groups),
	"group.min.session.timeout.ms":                                anyInt(groups),
	"group.max.session.timeout.ms":                                anyInt(groups),
	"offsets.topic.num.partitions":                                atLeast(1, groups),
	"offsets.topic.replication.factor":                            whole(groups, 1, math.MaxInt16),
	"offsets.topic.segment.bytes":                                 atLeast(1, groups),
	"offsets.topic.compression.codec":                             anyInt(groups),
	"offsets.retention.minutes":                                   atLeast(1, groups),
	"offsets.retention.check.interval.ms":                         longFrom(1, groups),
	"transaction.max.timeout.ms":                                  atLeast(1, transaction),
	"transaction.state.log.num.partitions":                        atLeast(1, transaction),
	"transaction.state.log.replication.factor":                    whole(transaction, 1, math.MaxInt16),
	"transaction.state.log.min.isr":                               atLeast(1, transaction),
	"transaction.state.log.segment.bytes":                         atLeast(1, transaction),
	"transactional.id.expiration.ms":                              atLeast(1, transaction),
	"transaction.abort.timed.out.transaction.cleanup.interval.ms": atLeast(1, transaction),
	"transaction.remove.expired.transaction.cleanup.interval.ms":  atLeast(1, transaction),
	"share.coordinator.state.topic.num.partitions":                atLeast(1, groups),
	"share.coordinator.state.topic.replication.factor":            whole(groups, 1, math.MaxInt16),
	"share.coordinator.state.topic.min.isr":                       whole(groups, 1, math.MaxInt16),

	"remote.storage.enable":        tiered(yesNo(""), true),
	"remote.log.copy.disable":      tiered(yesNo(""), true),
	"remote.log.delete.on.disable": tiered(yesNo(""), true),
	"local.retention.ms":           tiered(longFrom(-2, ""), true),
	"local.retention.bytes":        tiered(longFrom(-2, ""), true),
	"log.local.retention.ms":       tiered(longFrom(-2, ""), false),
	"log.local.retention.bytes":    tiered(longFrom(-2, ""), false),

	"replica.lag.max.messages":                removedKey("a replica is in sync by time (replica.lag.time.max.ms)"),
	"zookeeper.connect":                       removedKey("what brokers share is in a replica.Store"),
	"zookeeper.connection.timeout.ms":         removedKey("what brokers share is in a replica.Store"),
	"zookeeper.session.timeout.ms":            removedKey("member.Config.SessionTTL, of package replica/member"),
	"message.format.version":                  removedTopic("records are always written in format 2"),
	"log.message.format.version":              removedKey("records are always written in format 2"),
	"inter.broker.protocol.version":           removedKey("the cluster agrees on features"),
	"message.downconversion.enable":           removedTopic("old formats are no longer served"),
	"log.message.downconversion.enable":       removedKey("old formats are no longer served"),
	"message.timestamp.difference.max.ms":     removedTopic("message.timestamp.before.max.ms and .after.max.ms replace it"),
	"log.message.timestamp.difference.max.ms": removedKey("log.message.timestamp.before.max.ms and .after.max.ms replace it"),

	"acks":                                  client(ofProducers),
	"batch.size":                            client(ofProducers),
	"buffer.memory":                         client(ofProducers),
	"delivery.timeout.ms":                   client(ofProducers),
	"enable.idempotence":                    client(ofProducers),
	"linger.ms":                             client(ofProducers),
	"max.in.flight.requests.per.connection": client(ofProducers),
	"max.request.size":                      client(ofProducers),
	"partitioner.adaptive.partitioning.enable": client(ofProducers),
	"partitioner.availability.timeout.ms":      client(ofProducers),
	"partitioner.class":                        client(ofProducers),
	"partitioner.ignore.keys":                  client(ofProducers),
	"retries":                                  client(ofProducers),
	"transaction.timeout.ms":                   client(ofProducers),
	"transactional.id":                         client(ofProducers),
	"request.timeout.ms":                       client(ofBoth),
	"retry.backoff.ms":                         client(ofBoth),
	"client.id":                                client(ofBoth),
	"bootstrap.servers":                        client(ofBoth),
	"auto.commit.interval.ms":                  client(ofConsumers),
	"auto.offset.reset":                        client(ofConsumers),
	"enable.auto.commit":                       client(ofConsumers),
	"exclude.internal.topics":                  client(ofConsumers),
	"fetch.max.wait.ms":                        client(ofConsumers),
	"fetch.min.bytes":                          client(ofConsumers),
	"group.id":                                 client(ofConsumers),
	"group.instance.id":                        client(ofConsumers),
	"heartbeat.interval.ms":                    client(ofConsumers),
	"isolation.level":                          client(ofConsumers),
	"max.partition.fetch.bytes":                client(ofConsumers),
	"max.poll.interval.ms":                     client(ofConsumers),
	"max.poll.records":                         client(ofConsumers),
	"partition.assignment.strategy":            client(ofConsumers),
	"session.timeout.ms":                       client(ofConsumers),
}

// Whose keys are refused.
const (
	ofProducers = "producers"
	ofConsumers = "consumers"
	ofBoth      = "producers and consumers"
)

func client(who string) otherKey { return otherKey{client: who} }

// checkOther refuses what Kafka would refuse, and what would change the meaning of a log and cannot be honoured.
func checkOther(key, value string) string {
	value = strings.TrimSpace(value)
	o := otherKeys[key]
	switch {
	case o.client != "":
		return unknownReason(key)
	case o.check == nil:
		return ""
	}
	reason := o.check(value)
	if reason == "" && key == "remote.storage.enable" && !strings.EqualFold(value, "false") {
		return "tiered storage is not supported"
	}
	return reason
}
