package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/replica"
)

// FollowRuler tells which node's controller rules, as far as the store knows, first as it is, then as it changes;
// replica.NoNode: the rule is vacant. By the time it is asked it may rule no more, and says so. It ends as FollowNodes does.
func FollowRuler(ctx context.Context, s replica.Store) iter.Seq2[replica.NodeID, error] {
	return func(yield func(replica.NodeID, error) bool) {
		var last replica.Versioned
		for v, err := range s.Watch(ctx, ClaimKey) {
			if err != nil {
				yield(replica.NoNode, err)
				return
			}
			if v.Key != ClaimKey || last.Key != "" && v.Created == last.Created && v.Version == last.Version {
				continue
			}
			last = v
			node := replica.NoNode
			if v.Value != nil {
				var claim claimValue
				if err = json.Unmarshal(v.Value, &claim); err != nil {
					err = fmt.Errorf("%s: %w", ClaimKey, err)
				} else {
					node = claim.Node
				}
			}
			if !yield(node, err) {
				return
			}
		}
	}
}

// LastRegistration is the broker epoch of the last registration of a node that a controller has noticed, and with it judged
// whether the node had lost anything; -1: none.
func LastRegistration(ctx context.Context, s replica.Store, node replica.NodeID) (brokerEpoch int64, err error) {
	name := key{kind: registrationKey, node: node}.String()
	v, err := s.Get(ctx, name)
	if err != nil || v.Value == nil {
		return -1, err
	}
	var r registrationValue
	if err := json.Unmarshal(v.Value, &r); err != nil {
		return -1, nil // as the controller takes it: it stopped uncleanly
	}
	return r.BrokerEpoch, nil
}

// Lookup reads what the store says of one partition. Deleted: there is none.
func Lookup(ctx context.Context, s replica.Store, tp log.TopicPartition) (News, error) {
	name := key{kind: stateKey, topic: tp.Topic, partition: tp.Partition}.String()
	v, err := s.Get(ctx, name)
	if err != nil {
		return News{}, err
	}
	if v.Value == nil {
		return News{Partition: tp, Deleted: true}, nil
	}
	id, p, err := decodeState(v.Value)
	if err != nil {
		return News{}, fmt.Errorf("%s: %w", name, err)
	}
	return News{Partition: tp, TopicID: id, State: p}, nil
}

// LookupAll reads what the store says of all partitions. Those that cannot be read are left out.
func LookupAll(ctx context.Context, s replica.Store) ([]News, error) {
	all, err := s.List(ctx, TopicsPrefix)
	if err != nil {
		return nil, err
	}
	var list []News
	for _, v := range all {
		if k, ok := parseKey(v.Key); !ok || k.kind != stateKey {
			continue
		}
		if n, ok, err := decodeNews(v); ok && err == nil {
			list = append(list, n)
		}
	}
	return list, nil
}

// LookupTopic reads what the store says of the partitions of a topic. Those that cannot be read are left out; there is no such
// topic if the list is empty.
func LookupTopic(ctx context.Context, s replica.Store, topic string) ([]News, error) {
	all, err := s.List(ctx, TopicsPrefix+topic+"/")
	if err != nil {
		return nil, err
	}
	var list []News
	for _, v := range all {
		if n, ok, err := decodeNews(v); ok && err == nil {
			list = append(list, n)
		}
	}
	return list, nil
}

// Present is a node that is registered, or was until now.
type Present struct {
	Node        replica.NodeID
	BrokerEpoch int64 // 0: it is not registered any more
	Host        string
	Port        int
	Rack        string
	Fenced      bool
}

// FollowNodes tells which nodes are registered and where they are, first as it is, then as it changes, until ctx ends or the
// caller stops. What cannot be read comes as an error, and FollowNodes goes on; it ends only with an error of the store.
func FollowNodes(ctx context.Context, s replica.Store) iter.Seq2[Present, error] {
	return func(yield func(Present, error) bool) {
		for v, err := range s.Watch(ctx, IDsPrefix) {
			if err != nil {
				yield(Present{}, err)
				return
			}
			id, ok := parseNode(v.Key, IDsPrefix)
			if !ok {
				continue
			}
			if !yield(decodePresent(id, v)) {
				return
			}
		}
	}
}

func decodePresent(id replica.NodeID, v replica.Versioned) (Present, error) {
	p := Present{Node: id}
	if v.Value == nil {
		return p, nil
	}
	var r registration
	if err := json.Unmarshal(v.Value, &r); err != nil {
		return p, fmt.Errorf("%s: %w", v.Key, err)
	}
	return Present{id, r.epoch(v.Created), r.Host, r.Port, r.rack(), r.Fenced}, nil
}

// LookupNode reads whether a node is registered, and where it is.
func LookupNode(ctx context.Context, s replica.Store, node replica.NodeID) (Present, error) {
	v, err := s.Get(ctx, IDsPrefix+strconv.Itoa(int(node)))
	if err != nil {
		return Present{}, err
	}
	return decodePresent(node, v)
}

// Settings are a topic's own settings, as the store has them.
type Settings struct {
	Topic   string
	Config  map[string]string // nil: it has none
	Version int64
	Current bool // nothing else in it: all that was in the store has been told
}

// MinISR is min.insync.replicas; 0: the topic does not say.
func (s Settings) MinISR() int {
	n, err := strconv.Atoi(s.Config[minISRKey])
	if err != nil || n < 1 {
		return 0
	}
	return n
}

// LookupSettings reads the settings of one topic.
func LookupSettings(ctx context.Context, s replica.Store, topic string) (Settings, error) {
	v, err := s.Get(ctx, ConfigPrefix+topic)
	if err != nil {
		return Settings{}, err
	}
	v.Key = ConfigPrefix + topic
	return decodeSettings(v)
}

// FollowSettings tells the settings of all topics as they are, then, when they change, as they then are, as FollowNodes does.
func FollowSettings(ctx context.Context, s replica.Store) iter.Seq2[Settings, error] {
	return func(yield func(Settings, error) bool) {
		for v, err := range s.Watch(ctx, ConfigPrefix) {
			if err != nil {
				yield(Settings{}, err)
				return
			}
			if v.Key == "" {
				if !yield(Settings{Current: true}, nil) {
					return
				}
				continue
			}
			if set, err := decodeSettings(v); !yield(set, err) {
				return
			}
		}
	}
}

func decodeSettings(v replica.Versioned) (Settings, error) {
	set := Settings{Topic: strings.TrimPrefix(v.Key, ConfigPrefix), Version: v.Version}
	if v.Value == nil {
		return set, nil
	}
	var c configValue
	if err := json.Unmarshal(v.Value, &c); err != nil {
		return set, fmt.Errorf("%s: %w", v.Key, err)
	}
	set.Config = c.Config
	return set, nil
}
