package controller

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/replica"
)

// All epochs are above those from before, the rule that goes on is over, and a controller that is quicker than the one who
// restores writes nothing that is lost.
func TestAfterRestoreEveryEpochIsNew(t *testing.T) {
	ctx := t.Context()
	w := newWorld(t, Config{}, 1, 2)
	w.create("t", nil, ids{1, 2}, ids{2, 1})
	before, err := LookupAll(ctx, w.store)
	require.NoError(t, err)
	rule, err := w.store.Get(ctx, EpochKey)
	require.NoError(t, err)

	quick := &interposed{Store: w.store, key: "/brokers/topics/t/partitions/0/state"}
	require.NoError(t, AfterRestore(ctx, quick))
	require.True(t, quick.done)
	after, err := LookupAll(ctx, w.store)
	require.NoError(t, err)
	require.Len(t, after, 2)
	for i := range after {
		require.Equal(t, before[i].State.LeaderEpoch+epochStep, after[i].State.LeaderEpoch)
		require.GreaterOrEqual(t, after[i].State.PartitionEpoch, before[i].State.PartitionEpoch+epochStep)
		require.Equal(t, before[i].State.Leader, after[i].State.Leader)
		require.Equal(t, before[i].TopicID, after[i].TopicID)
	}
	require.EqualValues(t, 7, after[0].State.PartitionEpoch-epochStep, "what was written meanwhile is kept")
	now, err := w.store.Get(ctx, EpochKey)
	require.NoError(t, err)
	require.Greater(t, now.Version, rule.Version)

	session, err := w.store.Session(ctx, 0)
	require.NoError(t, err)
	n, err := Register(ctx, w.store, session, Registration{Node: 9, Host: "h", Port: 1})
	require.NoError(t, err)
	require.Greater(t, n.Epoch(), int64(brokerEpochStep))
	p, err := LookupNode(ctx, w.store, 9)
	require.NoError(t, err)
	require.Equal(t, n.Epoch(), p.BrokerEpoch)
	require.NoError(t, n.Ready(ctx))

	require.NoError(t, AfterRestore(ctx, w.store), "once more does no harm")
	times, err := Restored(ctx, w.store)
	require.NoError(t, err)
	require.EqualValues(t, 2, times)
}

func TestAfterRestoreSaysWhatItCannotRead(t *testing.T) {
	ctx := context.Background()
	for key, value := range map[string]string{
		RestoredKey: "?", EpochKey: "many", "/brokers/topics/t/partitions/0/state": "{}",
	} {
		s := replica.NewMemStore()
		_, err := replica.Put(ctx, s, key, []byte(value), 0)
		require.NoError(t, err)
		require.ErrorContains(t, AfterRestore(ctx, s), key)
	}
	s := replica.NewMemStore()
	p := Partition{Leader: 1, LeaderEpoch: 1<<31 - 2, Replicas: ids{1}, ISR: ids{1}}
	_, err := replica.Put(ctx, s, "/brokers/topics/t/partitions/0/state", encodeState(1, [16]byte{1}, p), 0)
	require.NoError(t, err)
	require.ErrorContains(t, AfterRestore(ctx, s), "no epochs are left")
	_, err = Lookup(ctx, s, log.TopicPartition{Topic: "t"})
	require.NoError(t, err)
}

// interposed lets somebody else write a partition's state just before it is written.
type interposed struct {
	replica.Store
	key  string
	done bool
}

func (s *interposed) Commit(ctx context.Context, tx replica.Transaction) ([]int64, error) {
	if !s.done && tx.Writes[0].Key == s.key {
		s.done = true
		v, err := s.Get(ctx, s.key)
		if err != nil {
			return nil, err
		}
		id, p, err := decodeState(v.Value)
		p.PartitionEpoch = 7
		_, err2 := replica.Put(ctx, s.Store, s.key, encodeState(1, id, p), v.Version)
		if err := errors.Join(err, err2); err != nil {
			return nil, err
		}
	}
	return s.Store.Commit(ctx, tx)
}
