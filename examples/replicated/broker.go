package main

import (
	"context"
	"fmt"
	"time"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/replica"
)

var orders = log.TopicPartition{Topic: "orders", Partition: 0}

// broker is what the story needs of a node, here or in another process.
type broker interface {
	append(ctx context.Context, value string) (offset int64, err error) // acks=all
	values(ctx context.Context) ([]string, error)                       // all that is committed, as this node knows
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

func (m *member) append(ctx context.Context, value string) (int64, error) {
	h, err := m.node.Partition(orders)
	if err != nil {
		return -1, err
	}
	b := record.NewBuilder(record.BuilderOptions{})
	if err := b.Add(record.Record{Timestamp: time.Now().UnixMilli(), Value: []byte(value)}); err != nil {
		return -1, err
	}
	batch, err := b.Finish()
	if err != nil {
		return -1, err
	}
	got, err := h.Append(ctx, batch.Bytes(), -1)
	return got.Base, err
}

func (m *member) values(ctx context.Context) (list []string, err error) {
	h, err := m.node.Partition(orders)
	if err != nil {
		return nil, err
	}
	l := h.Log()
	if l == nil {
		return nil, fmt.Errorf("%s is being opened", orders)
	}
	for r, err := range l.Records(ctx, l.Offsets().LogStart) {
		if err != nil {
			return list, err
		}
		list = append(list, string(r.Value))
	}
	return list, nil
}

func (m *member) status(context.Context) (status, error) {
	h, err := m.node.Partition(orders)
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
