package main

import (
	"context"
	"time"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/replica/controller"
)

var orders = log.TopicPartition{Topic: "orders", Partition: 0}

// broker is what the story needs of a node, here or in another process.
type broker interface {
	create(ctx context.Context) error             // the topic; only where the controller rules
	values(ctx context.Context) ([]string, error) // all that is committed, as this node knows
	status(ctx context.Context) (status, error)
	kill() error // without a farewell
}

// status is the part of replica.Status that is shown.
type status struct {
	Role          string
	LeaderEpoch   int32
	HighWatermark int64
	LogEnd        int64
	ISR           []replica.NodeID
	Lag           map[replica.NodeID]int64
}

func (n node) create(ctx context.Context) error {
	_, err := n.Controller().CreateTopic(ctx, controller.CreateTopic{Topic: orders.Topic, Assignment: [][]replica.NodeID{{1, 2, 3}}, Config: map[string]string{"min.insync.replicas": "2"}})
	return err
}

// append waits until all that are in sync have the value: acks=all.
func (n node) append(ctx context.Context, value string) error {
	h, err := n.Node().Partition(orders)
	if err != nil {
		return err
	}
	raw, err := encode(value, nil)
	if err != nil {
		return err
	}
	_, err = h.Append(ctx, raw, -1)
	return err
}

// encode makes a batch of one record.
func encode(value string, p *record.Producer) ([]byte, error) {
	b := record.NewBuilder(record.BuilderOptions{Producer: p})
	if err := b.Add(record.Record{Timestamp: time.Now().UnixMilli(), Value: []byte(value)}); err != nil {
		return nil, err
	}
	batch, err := b.Finish()
	return batch.Bytes(), err
}

func (n node) values(ctx context.Context) (list []string, err error) {
	h, err := n.Node().Partition(orders)
	if err != nil {
		return nil, err
	}
	for next := int64(0); ; {
		got, err := h.Fetch(ctx, next, replica.FetchOptions{})
		if err != nil || got.NextOffset == next {
			return list, err
		}
		next = got.NextOffset
		for r, err := range got.Records() {
			if err != nil {
				return list, err
			}
			list = append(list, string(r.Value))
		}
	}
}

func (n node) status(context.Context) (status, error) {
	h, err := n.Node().Partition(orders)
	if err != nil {
		return status{}, err
	}
	s := h.Status()
	out := status{Role: s.Role.String(), LeaderEpoch: s.LeaderEpoch, HighWatermark: s.HighWatermark, LogEnd: s.Offsets.LogEnd, ISR: s.ISR, Lag: map[replica.NodeID]int64{}}
	if !s.Active {
		out.Role = "inactive " + out.Role
	}
	for _, f := range s.Followers {
		out.Lag[f.Node] = s.Lag(f)
	}
	return out, nil
}
