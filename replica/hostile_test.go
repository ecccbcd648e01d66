package replica

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/vfs"
)

// hostile draws what somebody who lies would say.
type hostile struct{ *rand.Rand }

func newHostile(seed int) hostile { return hostile{rand.New(rand.NewPCG(uint64(seed), 7))} }

func (h hostile) one(in int) bool { return h.IntN(in) == 0 }

// offset is near one, or nowhere near any.
func (h hostile) offset(near int64) int64 {
	switch h.IntN(8) {
	case 0:
		return -1
	case 1:
		return math.MaxInt64 - h.Int64N(3)
	case 2:
		return math.MinInt64
	case 3:
		return h.Int64N(1 << 40)
	default:
		return max(near+h.Int64N(21)-10, 0)
	}
}

func (h hostile) epoch() int32 {
	switch h.IntN(8) {
	case 0:
		return math.MaxInt32
	case 1:
		return math.MinInt32
	default:
		return int32(h.IntN(5) - 2)
	}
}

// answer is one to a fetch, under leader epoch 3, of which anything may be wrong.
func (h hostile) answer(t *testing.T, end int64) Result {
	r := refusal(None)
	r.HighWatermark, r.LogStart, r.LogEnd, r.Leader, r.LeaderEpoch, r.Removal = end, 0, end+1, 1, 3, h.offset(end)
	switch h.IntN(9) {
	case 0:
		r.HighWatermark = h.offset(end)
	case 1:
		r.LogStart = h.offset(end)
	case 2:
		r.LogEnd = h.offset(end)
	case 3:
		r.Diverged, r.EpochEnd = true, log.EpochEnd{Epoch: int32(h.IntN(7) - 2), End: h.offset(end)}
		return r
	case 4:
		r.Err, r.LogStart, r.LogEnd = OffsetOutOfRange, h.offset(end), h.offset(end)
	case 5:
		if r.Err = ErrorCode(h.IntN(110) - 1); r.Err == FencedLeaderEpoch { // after that it would ask no more
			r.Err = None
		}
	}
	if h.one(3) {
		return r
	}
	base, epoch := end, int32(3)
	if h.one(4) {
		base = max(h.offset(end), 0)
	}
	if h.one(4) {
		epoch = int32(h.IntN(6))
	}
	r.Raw = placed(t, base, epoch, "a", "b")
	for h.one(2) {
		if base += 2; h.one(5) {
			base = max(base-h.Int64N(3), 0)
		}
		r.Raw = append(r.Raw, placed(t, base, epoch, "c", "d")...)
	}
	switch h.IntN(6) {
	case 0:
		r.Raw[h.IntN(len(r.Raw))] ^= 1 << h.IntN(8)
	case 1:
		r.Raw = r.Raw[:h.IntN(len(r.Raw))]
	case 2:
		for range h.IntN(200) {
			r.Raw = append(r.Raw, byte(h.Uint32()))
		}
	}
	r.Bytes = int64(len(r.Raw))
	return r
}

// request is anything a node that is none of ours could send.
func (h hostile) request() Message {
	from := NodeID(NoNode)
	if h.one(2) {
		from = NodeID(h.epoch())
	}
	tag := uint64(h.offset(5))
	switch h.IntN(7) {
	case 0:
		return EpochRequest{From: from, Tag: tag, LeaderEpoch: h.epoch(), Epoch: h.epoch()}
	case 1:
		return EndTxn{From: from, Tag: tag, ProducerID: h.offset(5), ProducerEpoch: int16(h.epoch()), Commit: h.one(2), CoordinatorEpoch: h.epoch(),
			TransactionVersion: int8(h.IntN(5) - 1), LeaderEpoch: h.epoch(), BrokerEpoch: h.offset(5), Timeout: time.Duration(h.offset(5))}
	case 2:
		return Answer{Tag: tag, Result: refusal(ErrorCode(h.epoch()))}
	case 3:
		return FetchResponse{From: 3, Tag: tag, Result: Result{Raw: []byte("xyz"), LogEnd: h.offset(5)}}
	case 4:
		return ControlRequest{Tag: tag, BrokerEpoch: h.offset(5)}
	default:
		return FetchRequest{From: from, Tag: tag, Offset: h.offset(5), LogStart: h.offset(5), LeaderEpoch: h.epoch(), LastFetchedEpoch: h.epoch(),
			BrokerEpoch: h.offset(5), Isolation: log.Isolation(h.IntN(6)), MaxBytes: h.offset(5), MinBytes: h.offset(5),
			MaxWait: time.Duration(h.offset(5)), UncleanStop: h.one(5)}
	}
}

func seedsOf(n int) int {
	if testing.Short() {
		return n / 4
	}
	return n
}

// Whatever a leader answers, its follower goes on, its log stays one that can be opened, and the next leader it has what that has.
func TestAFollowerOutlivesALeaderThatLies(t *testing.T) {
	for seed := range seedsOf(80) {
		synctest.Test(t, func(t *testing.T) { outlive(t, newHostile(seed), seed) })
	}
}

func outlive(t *testing.T, h hostile, seed int) {
	conf := log.Config{Durability: log.Buffered, SegmentBytes: 4 << 10}
	if seed%3 == 0 {
		conf.Durability = log.Durable
	}
	network, fs := NewNetwork(), vfs.Mem()
	node := func(id NodeID, fs vfs.FS) (*Node, *log.Dir) {
		d, err := log.OpenDir("mem", log.DirConfig{FS: fs, Defaults: conf})
		require.NoError(t, err)
		c := Config{Self: id, BrokerEpoch: 1, LagTimeMax: time.Hour, Backoff: time.Millisecond, FetchLimit: 20 * time.Millisecond}
		n, err := NewNode(NodeConfig{Config: c, Dir: d, Transport: network.Transport(id)})
		require.NoError(t, err)
		return n, d
	}
	two, d2 := node(2, fs)
	state := Assign{TopicID: [16]byte{1}, Leader: 1, LeaderEpoch: 3, PartitionEpoch: 1, Replicas: []NodeID{1, 2}, ISR: []NodeID{1, 2}}
	lying, stopLying := context.WithCancel(t.Context())
	wire := network.Transport(1)
	go func() {
		_ = wire.Serve(lying, func(e Envelope) {
			f, ok := e.Message.(FetchRequest)
			if !ok {
				return
			}
			m := FetchResponse{From: 1, Tag: f.Tag, Result: h.answer(t, f.Offset)}
			if h.one(10) {
				m.Tag = h.Uint64()
			}
			go wire.Send(2, ordersZero, m)
		})
	}()
	synctest.Wait()
	require.NoError(t, two.Assign(ordersZero, state))
	time.Sleep(300 * time.Millisecond)
	stopLying()
	time.Sleep(30 * time.Millisecond)
	h2, err := two.Partition(ordersZero)
	require.NoError(t, err)
	o := h2.Log().Offsets()
	require.True(t, o.LogStart <= o.HighWatermark && o.HighWatermark <= o.LogEnd, "%+v", o)
	require.NotEqual(t, Failed, h2.Status().Role, "%d: %v", seed, h2.Status().LastError)

	one, d1 := node(1, vfs.Mem())
	state.LeaderEpoch, state.PartitionEpoch = 4, 2
	require.NoError(t, one.Assign(ordersZero, state))
	h1, err := one.Partition(ordersZero)
	require.NoError(t, err)
	for range 5 {
		_, err = h1.Append(t.Context(), rawBatch(t, "x", "y"), 1)
		require.NoError(t, err)
	}
	require.NoError(t, two.Assign(ordersZero, state))
	time.Sleep(time.Second)
	s := h2.Status()
	require.Equal(t, [2]int64{10, 10}, [2]int64{s.HighWatermark, s.Offsets.LogEnd}, "%d: %+v", seed, s)
	require.NoError(t, one.Close())
	require.NoError(t, d1.Close())
	require.NoError(t, two.Close())
	require.NoError(t, d2.Close())
	d2, err = log.OpenDir("mem", log.DirConfig{FS: fs, Defaults: conf})
	require.NoError(t, err)
	l, err := d2.Open(t.Context(), ordersZero, log.Config{Visibility: log.External})
	require.NoError(t, err)
	require.Equal(t, int64(10), l.Offsets().LogEnd)
	require.NoError(t, d2.Close())
}

// Whatever others ask, the leader goes on, and so do those who follow it.
func TestALeaderOutlivesRequestsThatLie(t *testing.T) {
	for seed := range seedsOf(60) {
		synctest.Test(t, func(t *testing.T) {
			h := newHostile(seed)
			conf := log.Config{Durability: log.Buffered, SegmentBytes: 4 << 10}
			if seed%3 == 0 {
				conf.Durability = log.Durable
			}
			g := newGroup(t, conf, 1, 2)
			g.state.Replicas = []NodeID{1, 2, 3} // 3 is the one that lies
			g.elect(1)
			g.produce("a")
			w := g.network.Transport(3)
			for i := range 400 {
				w.Send(NodeID(1+h.IntN(2)), ordersZero, h.request())
				if i%20 == 0 {
					ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
					_, _ = g.handle(1).Append(ctx, rawBatch(t, fmt.Sprint(i)), -1) // which 3 may hold up, in sync as it says it is
					cancel()
				}
				if h.one(5) {
					time.Sleep(time.Duration(h.IntN(10)) * time.Millisecond)
				}
			}
			time.Sleep(3 * time.Second)
			g.produce("end")
			g.caughtUp(1, 2)
			s := g.handle(1).Status()
			require.Equal(t, Leader, s.Role)
			require.Equal(t, int64(0), s.Offsets.LogStart)
		})
	}
}
