package controller

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
)

func TestSettingsThatNoMemberCouldHeedAreNotStored(t *testing.T) {
	w := newWorld(t, Config{}, 1)
	w.create("t", map[string]string{"retention.ms": " 1000 "}, ids{1})
	for what, config := range map[string]map[string]string{
		"an unknown key":                   {"retention.hours": "1"},
		"a misspelt one":                   {"retention_ms": "1"},
		"a broker's key":                   {"log.retention.ms": "1"},
		"a broker's key without a topic's": {"producer.id.expiration.ms": "1000"},
		"a key that Kafka removed":         {"message.format.version": "2.0"},
		"a word for a number":              {"retention.ms": "never"},
		"out of range":                     {"max.message.bytes": "-1"},
		"no policy":                        {"cleanup.policy": "shrink"},
		"no type":                          {"message.timestamp.type": "Now"},
		"a codec's level":                  {"compression.gzip.level": "10"},
		"two that do not go together":      {"min.compaction.lag.ms": "1000", "max.compaction.lag.ms": "10"},
		"tiered storage":                   {"remote.storage.enable": "true"},
		"nobody in sync":                   {minISRKey: "0"},
	} {
		before := w.commits
		require.Equal(t, "INVALID_CONFIG", code(w.ask(func(tag uint64) Event { return SetConfig{tag, "t", config} }).Err), what)
		require.Equal(t, "INVALID_CONFIG", code(w.ask(func(tag uint64) Event { return AlterConfig{Tag: tag, Topic: "t", Set: config} }).Err), what)
		require.Equal(t, "INVALID_CONFIG", code(w.ask(func(tag uint64) Event {
			return CreateTopic{Tag: tag, Topic: "u", ID: [16]byte{9}, Assignment: []ids{{1}}, Config: config}
		}).Err), what)
		require.Equal(t, before, w.commits, what)
	}
	for key, value := range (log.Config{}).Kafka() {
		if log.TopicKey(key) {
			require.NoError(t, w.ask(func(tag uint64) Event { return SetConfig{tag, "t", map[string]string{key: value}} }).Err, key)
		}
	}
}

func TestSettingsAreAlteredOneByOne(t *testing.T) {
	w := newWorld(t, Config{MinISR: 2}, 1, 2)
	w.create("t", map[string]string{"retention.ms": "1000", minISRKey: "1"}, ids{1, 2})
	alter := func(e AlterConfig) error {
		return w.ask(func(tag uint64) Event { e.Tag, e.Topic = tag, "t"; return e }).Err
	}
	own := func() map[string]string {
		return w.ask(func(tag uint64) Event { return Describe{tag, []string{"t"}} }).Topics[0].Config
	}
	require.NoError(t, alter(AlterConfig{Set: map[string]string{"segment.bytes": "2000000"}, Delete: []string{minISRKey, "flush.ms"}}))
	require.Equal(t, map[string]string{"retention.ms": "1000", "segment.bytes": "2000000"}, own())

	require.NoError(t, alter(AlterConfig{Append: map[string]string{"cleanup.policy": "compact"}}))
	require.Equal(t, "delete,compact", own()["cleanup.policy"], "to the default")
	require.NoError(t, alter(AlterConfig{Append: map[string]string{"cleanup.policy": "compact"}, Set: map[string]string{"leader.replication.throttled.replicas": "0:1"}}))
	require.NoError(t, alter(AlterConfig{Subtract: map[string]string{"cleanup.policy": "delete"}}))
	require.Equal(t, "compact", own()["cleanup.policy"])

	before := own()
	require.NoError(t, alter(AlterConfig{Set: map[string]string{"retention.ms": "5"}, ValidateOnly: true}))
	require.Equal(t, "INVALID_REQUEST", code(alter(AlterConfig{Set: map[string]string{"retention.ms": "5"}, Delete: []string{"retention.ms"}})))
	require.Equal(t, "INVALID_REQUEST", code(alter(AlterConfig{Delete: []string{"retention.ms", "retention.ms"}})))
	require.Equal(t, "INVALID_CONFIG", code(alter(AlterConfig{Append: map[string]string{"retention.ms": "5"}})))
	require.Equal(t, "INVALID_CONFIG", code(alter(AlterConfig{Set: map[string]string{"retention.ms": "5", "color": "blue"}})), "all or none")
	require.Equal(t, before, own())
	require.Equal(t, "UNKNOWN_TOPIC_OR_PARTITION", code(w.ask(func(tag uint64) Event { return AlterConfig{Tag: tag, Topic: "u"} }).Err))

	settings := func(topics ...string) []TopicSettings {
		r := w.ask(func(tag uint64) Event { return DescribeConfig{tag, topics} })
		require.NoError(t, r.Err)
		return r.Settings
	}
	all := settings()
	require.Equal(t, settings("t"), all)
	seen := map[string]Setting{}
	for _, s := range all[0].Settings {
		seen[s.Key] = s
	}
	for _, want := range []Setting{{"retention.ms", "1000", true}, {minISRKey, "2", false}, {"cleanup.policy", "compact", true}, {"max.message.bytes", "1048588", false},
		{"leader.replication.throttled.replicas", "0:1", true}, {uncleanKey, "false", false}} {
		require.Equal(t, want, seen[want.Key])
	}
	require.NotContains(t, seen, "producer.id.expiration.ms")
	require.Equal(t, "UNKNOWN_TOPIC_OR_PARTITION", code(w.ask(func(tag uint64) Event { return DescribeConfig{tag, []string{"u"}} }).Err))
}

// A leader that goes by an old min.insync.replicas can have nobody left out of the in-sync set: who left would count as one that
// has all that is committed, and the leader could go on alone.
func TestALeaderThatDoesNotKnowTheMinISRChangesNoInSyncSet(t *testing.T) {
	w := newWorld(t, Config{}, 1, 2)
	w.create("t", nil, ids{1, 2})
	old := w.propose("t", 1)
	require.NoError(t, w.ask(func(tag uint64) Event { return SetConfig{tag, "t", map[string]string{minISRKey: "2"}} }).Err)
	require.Equal(t, "INVALID_UPDATE_VERSION", code(w.alter(old).Err))
	p := w.partition("t")
	require.Equal(t, ids{1, 2}, p.ISR)
	require.Equal(t, 2, p.MinISR)
	require.Equal(t, 2, p.Assign([16]byte{}).MinISR)
	require.NoError(t, w.alter(w.propose("t", 1)).Err)
	require.Equal(t, ids{2}, w.partition("t").ELR)

	require.NoError(t, w.ask(func(tag uint64) Event { return AddPartitions{Tag: tag, Topic: "t", Partitions: 2} }).Err)
	require.Equal(t, 2, w.core.topics["t"].partitions[1].MinISR)
	epoch := w.partition("t").PartitionEpoch
	require.NoError(t, w.ask(func(tag uint64) Event { return SetConfig{tag, "t", nil} }).Err)
	require.Equal(t, -1, w.partition("t").MinISR, "the controller's default")
	require.Equal(t, epoch+1, w.partition("t").PartitionEpoch)
	require.NoError(t, w.ask(func(tag uint64) Event { return SetConfig{tag, "t", map[string]string{"retention.ms": "5"}} }).Err)
	require.Equal(t, epoch+1, w.partition("t").PartitionEpoch, "it is the same")
}
