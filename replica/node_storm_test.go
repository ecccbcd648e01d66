package replica

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/vfs"
)

// storm is three nodes with a few partitions each, in the time of a synctest bubble, and a controller that knows them all.
type storm struct {
	t       *testing.T
	rng     *rand.Rand
	network *Network
	ids     []NodeID

	mu    sync.Mutex // guards the rest
	nodes map[NodeID]*member
	deaf  map[NodeID]bool // news do not get there
	parts []*stormPart
	epoch int64
}

// stormPart is a partition: the controller's word, what was confirmed, and what consumers saw.
type stormPart struct {
	tp    log.TopicPartition
	state Assign
	acked []string
	seen  map[int64]string
}

func newStorm(t *testing.T, seed uint64, partitions int) *storm {
	s := &storm{t: t, rng: rand.New(rand.NewPCG(seed, 9)), network: NewNetwork(), ids: []NodeID{1, 2, 3},
		nodes: map[NodeID]*member{}, deaf: map[NodeID]bool{}}
	for i := range partitions {
		replicas := []NodeID{s.ids[i%3], s.ids[(i+1)%3], s.ids[(i+2)%3]}
		s.parts = append(s.parts, &stormPart{tp: log.TopicPartition{Topic: "t", Partition: int32(i)}, seen: map[int64]string{},
			state: Assign{TopicID: [16]byte{1}, Leader: replicas[0], Replicas: replicas, ISR: slices.Clone(replicas)}})
	}
	for _, id := range s.ids {
		s.nodes[id] = &member{fs: vfs.Mem()}
		s.start(id)
	}
	return s
}

// start begins a life of a node, which leads where nobody else may.
func (s *storm) start(id NodeID) {
	m := s.nodes[id]
	d, err := log.OpenDir("mem", log.DirConfig{FS: m.fs, Defaults: log.Config{Durability: log.Buffered, SegmentBytes: 4 << 10}})
	require.NoError(s.t, err)
	s.mu.Lock()
	s.epoch++
	c := quick
	c.Self, c.BrokerEpoch, c.MinISR = id, s.epoch, 2
	s.mu.Unlock()
	n, err := NewNode(NodeConfig{Config: c, Dir: d, Transport: s.network.Transport(id), Propose: s.propose, ProposeTimeout: time.Second})
	require.NoError(s.t, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	m.Node, m.dir, m.alive = n, d, true
	for _, other := range s.ids {
		if o := s.nodes[other]; o != nil && o.alive {
			p := Peer{Node: id, BrokerEpoch: c.BrokerEpoch, Alive: true}
			o.Peer(p)
			n.Peer(Peer{Node: other, BrokerEpoch: o.conf.BrokerEpoch, Alive: true})
		}
	}
	for _, p := range s.parts {
		if p.state.Leader == NoNode && slices.Contains(p.state.ISR, id) {
			s.decide(p, id, p.state.ISR)
		} else {
			s.tell(p, id)
		}
	}
}

// kill ends a node at once, and takes it out of service.
func (s *storm) kill(id NodeID) {
	s.mu.Lock()
	m := s.nodes[id]
	m.alive = false
	s.mu.Unlock()
	require.NoError(s.t, m.Close())
	crashed := vfs.Mem()
	copyTree(s.t, m.fs, crashed, ".")
	_ = m.dir.Close()
	m.fs = crashed
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.parts {
		if isr := slices.DeleteFunc(slices.Clone(p.state.ISR), func(o NodeID) bool { return o == id }); len(isr) == 0 {
			s.decide(p, NoNode, p.state.ISR) // the last one stays a member
		} else if p.state.Leader == id {
			s.decide(p, s.first(p, isr), isr)
		} else if len(isr) < len(p.state.ISR) {
			s.decide(p, p.state.Leader, isr)
		}
	}
}

// first is the first of the assignment that lives and is in sync.
func (s *storm) first(p *stormPart, isr []NodeID) NodeID {
	for _, id := range p.state.Replicas {
		if s.nodes[id].alive && slices.Contains(isr, id) {
			return id
		}
	}
	return NoNode
}

// decide changes a partition, and tells all who hear. With s.mu.
func (s *storm) decide(p *stormPart, leader NodeID, isr []NodeID) {
	if leader != p.state.Leader {
		p.state.LeaderEpoch++
	}
	p.state.Leader, p.state.ISR = leader, isr
	p.state.PartitionEpoch++
	for _, id := range s.ids {
		s.tell(p, id)
	}
}

func (s *storm) tell(p *stormPart, id NodeID) {
	if m := s.nodes[id]; m.alive && !s.deaf[id] {
		a := p.state
		a.BrokerEpoch = m.conf.BrokerEpoch
		_ = m.Assign(p.tp, a)
	}
}

func (s *storm) propose(_ context.Context, tp log.TopicPartition, _ [16]byte, prop Proposal) ISRAnswer {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.parts[tp.Partition]
	switch {
	case prop.LeaderEpoch != p.state.LeaderEpoch:
		return ISRAnswer{Err: FencedLeaderEpoch}
	case prop.PartitionEpoch != p.state.PartitionEpoch:
		return ISRAnswer{Err: InvalidUpdateVersion}
	}
	for i, id := range prop.ISR {
		if m := s.nodes[id]; !m.alive || prop.BrokerEpochs[i] >= 0 && prop.BrokerEpochs[i] != m.conf.BrokerEpoch {
			return ISRAnswer{Err: IneligibleReplica}
		}
	}
	s.decide(p, p.state.Leader, slices.Clone(prop.ISR))
	return ISRAnswer{ISR: slices.Clone(prop.ISR), LeaderEpoch: prop.LeaderEpoch, PartitionEpoch: p.state.PartitionEpoch}
}

// handle is the replica of a node that lives.
func (s *storm) handle(p *stormPart, id NodeID) *Handle {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.nodes[id]; m != nil && m.alive {
		if h, err := m.Partition(p.tp); err == nil {
			return h
		}
	}
	return nil
}

func (s *storm) leader(p *stormPart) NodeID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return p.state.Leader
}

// produce sends one record after the other to whoever leads, and remembers what was confirmed.
func (s *storm) produce(ctx context.Context, p *stormPart) {
	for i := 0; ctx.Err() == nil; i++ {
		time.Sleep(15 * time.Millisecond)
		h := s.handle(p, s.leader(p))
		if h == nil {
			continue
		}
		value := fmt.Sprintf("%v/%d", p.tp, i)
		limited, cancel := context.WithTimeout(ctx, 400*time.Millisecond)
		_, err := h.Append(limited, rawBatch(s.t, value), -1)
		cancel()
		if err == nil {
			p.acked = append(p.acked, value)
		}
	}
}

// consume reads what is committed at one node after the other, the last records again: at an offset there is always the same
// one.
func (s *storm) consume(ctx context.Context, p *stormPart) {
	for i := 0; ctx.Err() == nil; i++ {
		time.Sleep(30 * time.Millisecond)
		h := s.handle(p, s.ids[i%3])
		if h == nil || h.Log() == nil {
			continue
		}
		for r, err := range h.Log().Records(ctx, max(int64(len(p.seen))-20, 0)) {
			if err != nil {
				break // it ends with its node
			}
			if known, ok := p.seen[r.Offset]; ok && known != string(r.Value) {
				s.t.Errorf("%v at %d was %s, node %d has %s", p.tp, r.Offset, known, s.ids[i%3], r.Value)
				return
			}
			p.seen[r.Offset] = string(r.Value)
		}
	}
}

// strike lets something go wrong for a while.
func (s *storm) strike() {
	id := s.ids[s.rng.IntN(3)]
	long := time.Duration(20+s.rng.IntN(900)) * time.Millisecond
	switch s.rng.IntN(5) {
	case 0:
		s.kill(id)
		time.Sleep(long)
		s.start(id)
	case 1: // nobody hears it, nor it the others, nor the controller
		s.hush(id, true)
		time.Sleep(long)
		s.hush(id, false)
	case 2: // and while it leads, others are elected
		s.hush(id, true)
		s.mu.Lock()
		for _, p := range s.parts {
			others := slices.DeleteFunc(slices.Clone(p.state.ISR), func(o NodeID) bool { return o == id })
			if p.state.Leader == id && len(others) > 0 {
				s.decide(p, s.first(p, others), others)
			}
		}
		s.mu.Unlock()
		time.Sleep(long)
		s.hush(id, false)
	case 3:
		bad := Faults{Loss: 0.2 * s.rng.Float64(), Duplicate: 0.2 * s.rng.Float64(), Delay: time.Duration(1+s.rng.IntN(60)) * time.Millisecond}
		s.network.Fault(id, s.ids[s.rng.IntN(3)], bad)
		time.Sleep(long)
	case 4: // leaderships move
		s.mu.Lock()
		for _, p := range s.parts {
			if to := p.state.ISR[s.rng.IntN(len(p.state.ISR))]; p.state.Leader != NoNode && s.nodes[to].alive {
				s.decide(p, to, p.state.ISR)
			}
		}
		s.mu.Unlock()
		time.Sleep(long / 4)
	}
}

// hush cuts a node off, or lets it hear again what it missed.
func (s *storm) hush(id NodeID, cut bool) {
	s.network.Isolate(id, cut, s.ids...)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deaf[id] = cut
	for _, p := range s.parts {
		s.tell(p, id)
	}
}

// well waits until everything is replicated everywhere.
func (s *storm) well() {
	for _, p := range s.parts {
		for range 3000 {
			time.Sleep(10 * time.Millisecond)
			if s.equal(p) {
				break
			}
		}
		lead := s.handle(p, s.leader(p))
		require.NotNil(s.t, lead)
		require.True(s.t, s.equal(p), "%v: %+v", p.tp, lead.Status())
	}
}

func (s *storm) equal(p *stormPart) bool {
	lead := s.handle(p, s.leader(p))
	if lead == nil || len(lead.Status().ISR) != 3 {
		return false
	}
	want := lead.Log().Offsets()
	for _, id := range s.ids {
		h := s.handle(p, id)
		if h == nil || h.Log() == nil {
			return false
		}
		if o := h.Log().Offsets(); o.LogEnd != want.LogEnd || o.HighWatermark != want.LogEnd {
			return false
		}
	}
	return true
}

// values are the records of a partition at a node.
func (s *storm) values(p *stormPart, id NodeID) (list []string) {
	l := s.handle(p, id).Log()
	for r, err := range l.Records(s.t.Context(), l.Offsets().LogStart) {
		require.NoError(s.t, err)
		list = append(list, string(r.Value))
	}
	return list
}

// Nodes as programs run them, with goroutines, timers and a network, through kills, silence, second leaders, loss and delay:
// of each of several partitions all that was confirmed is there once, in order, the same everywhere, and no consumer ever
// saw anything else. The simulator of package replicatest plays the replicas, but not what runs them. Invariants L1, L2, R6.
func TestNodesThroughAStorm(t *testing.T) {
	seeds, strikes := uint64(2), 25
	if testing.Short() {
		seeds, strikes = 1, 10
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStorm(t, seed, 4)
				ctx, cancel := context.WithCancel(t.Context())
				var clients sync.WaitGroup
				for _, p := range s.parts {
					clients.Go(func() { s.produce(ctx, p) })
					clients.Go(func() { s.consume(ctx, p) })
				}
				for range strikes {
					s.strike()
					if s.rng.IntN(3) == 0 {
						for _, from := range s.ids {
							for _, to := range s.ids {
								s.network.Fault(from, to, Faults{})
							}
						}
						time.Sleep(300 * time.Millisecond)
					}
				}
				for _, id := range s.ids {
					s.hush(id, false)
				}
				time.Sleep(time.Second)
				cancel()
				clients.Wait()
				s.well()
				for _, p := range s.parts {
					want := s.values(p, 1)
					require.Equal(t, want, s.values(p, 2))
					require.Equal(t, want, s.values(p, 3))
					require.Greater(t, len(p.acked), 20, p.tp)
					at := 0
					for _, v := range p.acked {
						i := slices.Index(want[at:], v)
						require.GreaterOrEqual(t, i, 0, "%s was confirmed and is not there", v)
						at += i + 1
					}
					require.Len(t, want, len(slices.Compact(slices.Sorted(slices.Values(want)))), "each once")
					for o, v := range p.seen {
						require.Equal(t, want[o], v)
					}
				}
				for _, m := range s.nodes {
					require.NoError(t, m.Close())
					if err := m.dir.Close(); err != nil && !errors.Is(err, log.ErrClosed) {
						t.Error(err)
					}
				}
			})
		})
	}
}
