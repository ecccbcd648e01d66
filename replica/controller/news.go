package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/replica"
)

// News is what a node needs to know: of a partition, or with Partition.Topic empty of another node.
type News struct {
	Partition log.TopicPartition
	TopicID   [16]byte
	State     Partition
	Deleted   bool // the partition is gone; TopicID and State are empty
	Peer      replica.Peer
	Current   bool // nothing else in it: all that was in the store has been told
}

// Follow tells what the store says of partitions and nodes, first as it is, then as it changes, until ctx ends or the
// caller stops. News of one partition come in the order of their epochs, some may be left out, the last never is. What
// cannot be read comes as an error beside empty News, and Follow goes on; it ends only with an error of the store.
func Follow(ctx context.Context, s replica.Store) iter.Seq2[News, error] {
	return func(yield func(News, error) bool) {
		for v, err := range s.Watch(ctx, "/brokers/") {
			if err != nil {
				yield(News{}, err)
				return
			}
			if v.Key == "" {
				if !yield(News{Current: true}, nil) {
					return
				}
				continue
			}
			news, ok, err := decodeNews(v)
			if err != nil {
				err = fmt.Errorf("%s: %w", v.Key, err)
			}
			if (ok || err != nil) && !yield(news, err) {
				return
			}
		}
	}
}

func decodeNews(v replica.Versioned) (News, bool, error) {
	k, ok := parseKey(v.Key)
	switch {
	case !ok:
	case k.kind == stateKey:
		tp := log.TopicPartition{Topic: k.topic, Partition: k.partition}
		if v.Value == nil {
			return News{Partition: tp, Deleted: true}, true, nil
		}
		id, p, err := decodeState(v.Value)
		if err != nil {
			return News{}, false, err
		}
		return News{Partition: tp, TopicID: id, State: p}, true, nil
	case k.kind == registrationKey && v.Value != nil:
		var r registrationValue
		if err := json.Unmarshal(v.Value, &r); err != nil {
			return News{}, false, err
		}
		return News{Peer: replica.Peer{Node: k.node, BrokerEpoch: r.BrokerEpoch, Alive: !r.Fenced, ShuttingDown: r.ShuttingDown}}, true, nil
	}
	return News{}, false, nil
}
