package replica

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
)

// sequenced is a batch of one record of an idempotent producer, at the true time.
func sequenced(t *testing.T, p record.Producer, txn bool, value string) []byte {
	p.Transactional = txn
	b := record.NewBuilder(record.BuilderOptions{Producer: &p})
	require.NoError(t, b.Add(record.Record{Timestamp: time.Now().UnixMilli(), Value: []byte(value)}))
	batch, err := b.Finish()
	require.NoError(t, err)
	return slices.Clone(batch.Bytes())
}

// Each node forgets producers by its own clock (producer.id.expiration.ms, a day). One whose clock is wrong by less knows, when it leads
// next, a retry of what the leader before had committed; so does one that is right after one that was not. One that is ahead by more has
// forgotten, as Kafka's would have: a retry is new to it. An open transaction is never forgotten: it stays open, and can be ended.
func TestClocksThatAreWrongAndFailOver(t *testing.T) {
	for name, c := range map[string]struct {
		leader, follower time.Duration // by so much their clocks jump
		forgets          bool
	}{
		"the follower's goes ahead":       {follower: 20 * time.Hour},
		"the follower's is a month ahead": {follower: 720 * time.Hour, forgets: true},
		"the follower's goes back":        {follower: -50 * time.Minute},
		"the leader's is a month ahead":   {leader: 720 * time.Hour},
		"both, in different directions":   {leader: -50 * time.Minute, follower: 20 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var clocks [2]atomic.Int64
				g := &group{t: t, network: NewNetwork(), ids: []NodeID{1, 2}, nodes: map[NodeID]*member{}}
				g.state = Assign{TopicID: [16]byte{1}, Leader: 1, Replicas: g.ids, ISR: slices.Clone(g.ids)}
				for i, id := range g.ids {
					m := &member{fs: vfs.Mem(), alive: true}
					var err error
					m.dir, err = log.OpenDir("mem", log.DirConfig{FS: m.fs, Defaults: log.Config{Durability: log.Buffered, RetentionTime: log.Forever},
						Now: func() time.Time { return time.Now().Add(time.Duration(clocks[i].Load())) }})
					require.NoError(t, err)
					c := Config{Self: id, BrokerEpoch: int64(i + 1)}
					m.Node, err = NewNode(NodeConfig{Config: c, Dir: m.dir, Transport: g.network.Transport(id), Propose: g.propose})
					require.NoError(t, err)
					g.nodes[id] = m
				}
				defer func() {
					for _, m := range g.nodes {
						require.NoError(t, m.Close())
						require.NoError(t, m.dir.Close())
					}
				}()
				g.assign(g.state)
				append := func(at NodeID, raw []byte) log.Appended {
					got, err := g.handle(at).Append(t.Context(), slices.Clone(raw), -1)
					require.NoError(t, err)
					return got
				}
				p, q := record.Producer{ID: 1}, record.Producer{ID: 2}
				append(1, sequenced(t, p, false, "a"))
				append(1, sequenced(t, q, true, "open"))
				p.BaseSequence = 1
				last := sequenced(t, p, false, "b")
				append(1, last)
				clocks[0].Store(int64(c.leader))
				clocks[1].Store(int64(c.follower))
				time.Sleep(25 * time.Minute) // whoever is old is forgotten in the background
				g.elect(2)
				require.Equal(t, !c.forgets, append(2, last).Duplicate)
				p.BaseSequence = 2
				append(2, sequenced(t, p, false, "c"))
				require.EqualValues(t, 1, g.handle(2).Log().Offsets().LastStable, "the transaction is open")
				_, err := g.handle(2).EndTxn(t.Context(), q, true, log.EndTxnOptions{})
				require.NoError(t, err)
				o := g.handle(2).Log().Offsets()
				require.Equal(t, o.LogEnd, o.LastStable)
				g.caughtUp(2, 1)
				want := []string{"a", "open", "b", "c"}
				if c.forgets {
					want = []string{"a", "open", "b", "b", "c"}
				}
				for _, id := range g.ids {
					require.Equal(t, want, g.values(id))
				}
			})
		})
	}
}
