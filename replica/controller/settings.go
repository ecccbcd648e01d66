package controller

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/replica"
)

// Settings of a topic that the controller itself heeds. All others are the members': the controller sees to it that what it
// stores can be read by them.
const (
	minISRKey  = "min.insync.replicas"
	uncleanKey = "unclean.leader.election.enable"
)

// listKeys are the settings whose values are lists.
var listKeys = []string{"cleanup.policy", "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"}

// Setting is one of a topic's settings as it counts.
type Setting struct {
	Key, Value string
	// Own says that the topic itself has it. Else it is the controller's default for min.insync.replicas and
	// unclean.leader.election.enable, and Kafka's for others: members may have another one (log.DirConfig.Defaults).
	Own bool
}

// TopicSettings are all settings of a topic, by key.
type TopicSettings struct {
	Topic    string
	Settings []Setting
}

// checkSettings refuses what members could not heed: keys that are no topic's, or that Kafka removed, and values that are out of
// range or do not go together.
func checkSettings(config map[string]string) *Error {
	for _, key := range slices.Sorted(maps.Keys(config)) {
		if _, err := log.ParseConfig(map[string]string{key: config[key]}); err != nil {
			return refuseSetting(err)
		}
		if !log.TopicKey(key) {
			return refuse(replica.InvalidConfig, "%s is not a setting of a topic", key)
		}
	}
	for _, note := range log.ConfigNotes(config) {
		if note.Obsolete {
			return refuse(replica.InvalidConfig, "%s: %s", note.Key, note.Text)
		}
	}
	if _, err := log.ParseConfig(config); err != nil {
		return refuseSetting(err)
	}
	return nil
}

func refuseSetting(err error) *Error {
	bad := (*log.ConfigError)(nil)
	if errors.As(err, &bad) {
		key := bad.Key
		if key == "" {
			key = bad.Field
		}
		return refuse(replica.InvalidConfig, "%s is %q: %s", key, bad.Value, bad.Reason)
	}
	return refuse(replica.InvalidConfig, "%v", err)
}

// minISR of a topic.
func (c Config) minISR(config map[string]string) int {
	if n, err := strconv.Atoi(strings.TrimSpace(config[minISRKey])); err == nil && n > 0 {
		return n
	}
	return c.MinISR
}

func (c Config) unclean(config map[string]string) bool {
	if v, ok := config[uncleanKey]; ok {
		return strings.EqualFold(strings.TrimSpace(v), "true")
	}
	return c.UncleanElection
}

func (c *Core) setConfig(e SetConfig) Reply {
	t, err := c.find(log.TopicPartition{Topic: e.Topic})
	if err == nil {
		err = checkSettings(e.Config)
	}
	if err != nil {
		return failed(err)
	}
	c.configure(t, maps.Clone(e.Config))
	return Reply{}
}

func (c *Core) alterConfig(e AlterConfig) Reply {
	t, err := c.find(log.TopicPartition{Topic: e.Topic})
	if err != nil {
		return failed(err)
	}
	config, err := e.apply(t.config)
	if err == nil {
		err = checkSettings(config)
	}
	if err != nil {
		return failed(err)
	}
	if !e.ValidateOnly {
		c.configure(t, config)
	}
	return Reply{}
}

// apply makes the settings that come of a change of some.
func (e *AlterConfig) apply(before map[string]string) (map[string]string, *Error) {
	after, named := maps.Clone(before), map[string]bool{}
	if after == nil {
		after = map[string]string{}
	}
	once := func(key string) *Error {
		if named[key] {
			return refuse(replica.InvalidRequest, "%s is to be changed in two ways", key)
		}
		named[key] = true
		return nil
	}
	for _, key := range e.Delete {
		if err := once(key); err != nil {
			return nil, err
		}
		delete(after, key)
	}
	for _, key := range slices.Sorted(maps.Keys(e.Set)) {
		if err := once(key); err != nil {
			return nil, err
		}
		after[key] = e.Set[key]
	}
	for add, change := range map[bool]map[string]string{true: e.Append, false: e.Subtract} {
		for _, key := range slices.Sorted(maps.Keys(change)) {
			if err := once(key); err != nil {
				return nil, err
			}
			if !slices.Contains(listKeys, key) {
				return nil, refuse(replica.InvalidConfig, "%s is no list that something can be added to or taken from", key)
			}
			after[key] = changeList(before, key, change[key], add)
		}
	}
	return after, nil
}

// changeList adds to a list what it has not, or takes from it. A list the topic does not have begins with the default.
func changeList(config map[string]string, key, parts string, add bool) string {
	now, given := config[key]
	if !given {
		now = log.Config{}.Kafka()[key]
	}
	list := split(now)
	for _, part := range split(parts) {
		at := slices.Index(list, part)
		switch {
		case add && at < 0:
			list = append(list, part)
		case !add && at >= 0:
			list = slices.Delete(list, at, at+1)
		}
	}
	return strings.Join(list, ",")
}

func split(list string) (parts []string) {
	for part := range strings.SplitSeq(list, ",") {
		if part = strings.TrimSpace(part); part != "" {
			parts = append(parts, part)
		}
	}
	return parts
}

// configure replaces a topic's settings. Another min.insync.replicas, were it the default said aloud, empties the ELRs and forgets the
// last known leaders: what they were eligible by is not so any more. And it is a new version of each partition, so that a leader that
// goes by the old one can have nobody left out of the in-sync set: the ELR would take who left for one that has all that is
// committed. Where unclean elections are allowed from now on, tick holds those that are needed, as Kafka does.
func (c *Core) configure(t *topic, config map[string]string) {
	if maps.Equal(t.config, config) {
		return
	}
	before, own := c.config.minISR(t.config), hasMinISR(t.config)
	t.config = config
	c.touch(key{kind: configKey, topic: t.name})
	now := c.config.minISR(t.config)
	if now == before && own == hasMinISR(config) {
		return
	}
	if !hasMinISR(config) {
		now = -now
	}
	for n, p := range t.partitions {
		if !p.damaged {
			p.MinISR, p.ELR, p.LastKnownELR = now, nil, nil
			p.PartitionEpoch++
			c.set(t, n, p.Partition)
		}
	}
}

func hasMinISR(config map[string]string) bool {
	_, ok := config[minISRKey]
	return ok
}

func (c *Core) describeConfig(e DescribeConfig) Reply {
	var r Reply
	if len(e.Topics) == 0 {
		for t := range c.staying() {
			r.Settings = append(r.Settings, c.settings(t))
		}
		return r
	}
	for _, name := range e.Topics {
		t := c.topics[name]
		if t == nil || t.leaving != staying || t.damaged {
			return failed(refuse(replica.UnknownTopicOrPartition, "there is no topic %s", name))
		}
		r.Settings = append(r.Settings, c.settings(t))
	}
	return r
}

// settings are a topic's as they count.
func (c *Core) settings(t *topic) TopicSettings {
	all := map[string]string{}
	defaults := log.Config{MinInSyncReplicas: c.config.MinISR, UncleanLeaderElection: c.config.UncleanElection}
	effective, err := defaults.With(t.config)
	if err != nil { // somebody else has put into the store what it would not have been told
		effective = defaults
	}
	for k, v := range effective.Kafka() {
		if log.TopicKey(k) {
			all[k] = v
		}
	}
	maps.Copy(all, t.config)
	s := TopicSettings{Topic: t.name}
	for _, k := range slices.Sorted(maps.Keys(all)) {
		_, own := t.config[k]
		s.Settings = append(s.Settings, Setting{k, all[k], own})
	}
	return s
}
