package log

import (
	"maps"
	"slices"
	"strings"
)

// ConfigNote says of a key that ParseConfig accepted why it changed nothing.
type ConfigNote struct {
	Key      string
	Obsolete bool // Kafka removed the key
	Text     string
}

// ConfigNotes names the keys that have no effect on a Config, or whose field has none on a log: those Kafka removed, those that
// belong to another part of a broker, those that replication looks at and no log does, and compression levels of a codec
// that is not the compression type. In the order of the keys; unknown ones are left to ParseConfig, which refuses them.
func ConfigNotes(kafka map[string]string) []ConfigNote {
	var notes []ConfigNote
	c, _ := ParseConfig(kafka)
	c = c.withDefaults()
	for _, key := range slices.Sorted(maps.Keys(kafka)) {
		if o, ok := otherKeys[key]; ok {
			notes = append(notes, ConfigNote{Key: key, Obsolete: o.removed, Text: o.text})
			continue
		}
		if text := unheededText(key); text != "" {
			notes = append(notes, ConfigNote{Key: key, Text: text})
			continue
		}
		codec, isLevel := strings.CutSuffix(strings.TrimPrefix(key, "compression."), ".level")
		if isLevel && codec != c.CompressionType && slices.Contains(compressionTypes, codec) {
			notes = append(notes, ConfigNote{Key: key, Text: "compression.type is " + c.CompressionType})
		}
	}
	return notes
}

// forReplication are the settings whose fields a log keeps and does not look at.
var forReplication = map[string]string{
	"min.insync.replicas":            "replica.Config.MinISR",
	"unclean.leader.election.enable": "package replica/controller",
}

// unheededText is the note on a key, or a broker's synonym of it, whose field no log looks at.
func unheededText(key string) string {
	for i := range settings {
		s := &settings[i]
		mine := s.key == key || slices.ContainsFunc(s.broker, func(b synonym) bool { return b.key == key })
		if who := forReplication[s.key]; mine && who != "" {
			return "a log does not look at it; it is for replication (" + who + ")"
		}
	}
	return ""
}

// otherKey is a key of Kafka's that is known and has no field in Config.
type otherKey struct {
	topic, removed bool
	text           string
}

func dirKey(text string) otherKey { return otherKey{text: text} }
func removedKey(text string) otherKey {
	return otherKey{removed: true, text: "removed from Kafka: " + text}
}
func removedTopic(text string) otherKey {
	return otherKey{removed: true, topic: true, text: "removed from Kafka: " + text}
}
func tieredKey(topic bool) otherKey {
	return otherKey{topic: topic, text: "tiered storage is not used"}
}

var otherKeys = map[string]otherKey{
	"log.dir":                                       dirKey("the folder is an argument of OpenDir"),
	"log.dirs":                                      dirKey("the folder is an argument of OpenDir"),
	"log.retention.check.interval.ms":               dirKey("DirConfig.RetentionInterval"),
	"log.initial.task.delay.ms":                     dirKey("DirConfig.InitialDelay"),
	"log.flush.offset.checkpoint.interval.ms":       dirKey("DirConfig.CheckpointInterval"),
	"log.flush.start.offset.checkpoint.interval.ms": dirKey("DirConfig.CheckpointInterval"),
	"log.dir.failure.timeout.ms":                    dirKey("a setting of the broker"),
	"num.recovery.threads.per.data.dir":             dirKey("DirConfig.RecoveryThreads"),
	"log.cleaner.enable":                            dirKey("compaction follows cleanup.policy; DirConfig.CleanerBackoff Forever turns it off"),
	"log.cleaner.threads":                           dirKey("DirConfig.CleanerThreads"),
	"log.cleaner.io.buffer.size":                    dirKey("buffers are pooled"),
	"log.cleaner.io.buffer.load.factor":             dirKey("Config.Compaction.MapLoad"),
	"log.cleaner.backoff.ms":                        dirKey("DirConfig.CleanerBackoff"),
	"producer.id.expiration.check.interval.ms":      dirKey("DirConfig.ProducerInterval"),
	"transaction.partition.verification.enable":     dirKey("AppendOptions.Verify"),
	"transaction.max.timeout.ms":                    dirKey("a setting of the transaction coordinator"),

	"default.replication.factor":                    dirKey("controller.Config.ReplicationFactor, of package replica/controller"),
	"num.partitions":                                dirKey("controller.Config.Partitions, of package replica/controller"),
	"num.replica.fetchers":                          dirKey("replica.NodeConfig.Fetchers"),
	"replica.lag.time.max.ms":                       dirKey("replica.Config.LagTimeMax"),
	"replica.fetch.max.bytes":                       dirKey("replica.Config.FetchBytes"),
	"replica.fetch.response.max.bytes":              dirKey("replica.NodeConfig.ResponseBytes"),
	"replica.fetch.min.bytes":                       dirKey("replica.Config.FetchMin"),
	"replica.fetch.wait.max.ms":                     dirKey("replica.Config.FetchWait"),
	"replica.fetch.backoff.ms":                      dirKey("replica.Config.Backoff"),
	"replica.high.watermark.checkpoint.interval.ms": dirKey("DirConfig.HighWatermarkInterval"),
	"auto.leader.rebalance.enable":                  dirKey("controller.Config.NoBalance, of package replica/controller"),
	"leader.imbalance.check.interval.seconds":       dirKey("controller.Config.ImbalanceInterval, of package replica/controller"),
	"leader.imbalance.per.broker.percentage":        dirKey("controller.Config.ImbalancePercent, of package replica/controller"),
	"leader.replication.throttled.replicas":         {topic: true, text: "replication is not throttled"},
	"follower.replication.throttled.replicas":       {topic: true, text: "replication is not throttled"},

	"remote.storage.enable":        tieredKey(true),
	"remote.log.copy.disable":      tieredKey(true),
	"remote.log.delete.on.disable": tieredKey(true),
	"local.retention.ms":           tieredKey(true),
	"local.retention.bytes":        tieredKey(true),
	"log.local.retention.ms":       tieredKey(false),
	"log.local.retention.bytes":    tieredKey(false),

	"replica.lag.max.messages":                removedKey("a replica is in sync by time (replica.lag.time.max.ms)"),
	"message.format.version":                  removedTopic("records are always written in format 2"),
	"log.message.format.version":              removedKey("records are always written in format 2"),
	"inter.broker.protocol.version":           removedKey("the cluster agrees on features"),
	"message.downconversion.enable":           removedTopic("old formats are no longer served"),
	"log.message.downconversion.enable":       removedKey("old formats are no longer served"),
	"message.timestamp.difference.max.ms":     removedTopic("message.timestamp.before.max.ms and .after.max.ms replace it"),
	"log.message.timestamp.difference.max.ms": removedKey("log.message.timestamp.before.max.ms and .after.max.ms replace it"),
}

// checkOther refuses what would change the meaning of a log and cannot be honoured.
func checkOther(key, value string) string {
	if key == "remote.storage.enable" && !strings.EqualFold(strings.TrimSpace(value), "false") {
		return "tiered storage is not supported"
	}
	return ""
}

// unknownReason suggests the key that differs only in case, dots, dashes, underscores or blanks.
func unknownReason(key string) string {
	const reason = "unknown key"
	if len(key) > 200 {
		return reason
	}
	want := squeeze(key)
	match := func(k string) bool { return squeeze(k) == want }
	for i := range settings {
		if match(settings[i].key) {
			return reason + "; did you mean " + settings[i].key + "?"
		}
		for _, s := range settings[i].broker {
			if match(s.key) {
				return reason + "; did you mean " + s.key + "?"
			}
		}
	}
	for _, k := range slices.Sorted(maps.Keys(otherKeys)) {
		if match(k) {
			return reason + "; did you mean " + k + "?"
		}
	}
	return reason
}

func squeeze(key string) string {
	return strings.Map(func(r rune) rune {
		switch r {
		case '.', '-', '_', ' ', '\t':
			return -1
		}
		return r
	}, strings.ToLower(key))
}
