package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/vfs"
)

// Calls, events and buffers are used again, by many producers at once whose time is up at every moment, while a follower's replicas
// are stopped and assigned again and nodes hear some messages twice, late or not at all. No answer is somebody else's: what was confirmed
// or is unconfirmed is where the answer says, what was refused is nowhere, and all replicas are the same to the byte.
func TestNoAnswerIsSomebodyElses(t *testing.T) {
	for _, way := range []string{"network", "TCP"} {
		for _, durability := range []log.Durability{log.Buffered, log.Durable} {
			t.Run(fmt.Sprintf("%s/%v", way, durability), func(t *testing.T) { reuse(t, way == "TCP", durability) })
		}
	}
}

func reuse(t *testing.T, tcp bool, durability log.Durability) {
	const partitions = 12
	ids := []NodeID{1, 2, 3}
	network := NewNetwork()
	nodes, dirs := map[NodeID]*Node{}, map[NodeID]*log.Dir{}
	wires := map[NodeID]Transport{}
	var closers []*TCP
	for _, id := range ids {
		if wires[id] = network.Transport(id); tcp {
			w, err := ListenTCP("127.0.0.1:0", TCPConfig{Self: id, Backoff: time.Millisecond})
			require.NoError(t, err)
			wires[id], closers = w, append(closers, w)
		}
	}
	for i, a := range closers {
		for j, b := range closers {
			if i != j {
				a.SetPeer(ids[j], b.Addr().String())
			}
		}
	}
	for _, id := range ids {
		d, err := log.OpenDir("mem", log.DirConfig{FS: vfs.Mem(), Defaults: log.Config{Durability: durability, SegmentBytes: 256 << 10}})
		require.NoError(t, err)
		c := Config{Self: id, LagTimeMax: time.Minute, FetchWait: 20 * time.Millisecond, FetchLimit: 100 * time.Millisecond, Backoff: time.Millisecond}
		n, err := NewNode(NodeConfig{Config: c, Dir: d, Transport: wires[id], InFlight: 8, Workers: 2 + int(id)})
		require.NoError(t, err)
		nodes[id], dirs[id] = n, d
	}
	tp := func(i int) log.TopicPartition { return log.TopicPartition{Topic: "t", Partition: int32(i)} }
	assign := func(i int, to ...NodeID) {
		for _, id := range to {
			require.NoError(t, nodes[id].Assign(tp(i), Assign{TopicID: [16]byte{1}, Leader: ids[i%3], Replicas: ids, ISR: ids}))
		}
	}
	leader := func(i int) *Handle {
		h, err := nodes[ids[i%3]].Partition(tp(i))
		require.NoError(t, err)
		return h
	}
	for i := range partitions {
		assign(i, ids...)
	}
	for i := range partitions {
		require.Eventually(t, func() bool { return leader(i).Status().Role == Leader }, 5*time.Second, time.Millisecond)
	}
	type placed struct {
		at    int64
		value string
	}
	type fate struct {
		placed  []placed
		refused []string
	}
	fates := make([]fate, partitions)
	var mu sync.Mutex
	const enoughConfirmed, enoughRefused = 100, 10 // so that something was looked at, however slow the machine is
	confirmed, refused := 0, 0                     // guarded by mu
	began := time.Now()
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	var all sync.WaitGroup
	for w := range 24 {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 3))
			for n := 0; ctx.Err() == nil; n++ {
				i := rng.IntN(partitions)
				value := fmt.Sprintf("%d/%d:", w, n) + strings.Repeat(string(rune('a'+w)), rng.IntN(1<<rng.IntN(13)))
				limited, cancel := context.WithTimeout(t.Context(), time.Duration(rng.IntN(1<<rng.IntN(24))))
				raw := rawBatch(t, value)
				got, err := leader(i).Append(limited, raw, []int8{-1, 1, 1}[rng.IntN(3)])
				cancel()
				for k := range raw { // it is the producer's again
					raw[k] = 0xEE
				}
				unsure := (*log.UnconfirmedError)(nil)
				mu.Lock()
				switch {
				case err == nil || errors.As(err, &unsure):
					fates[i].placed = append(fates[i].placed, placed{got.Base, value})
					confirmed++
				default:
					fates[i].refused = append(fates[i].refused, value)
					refused++
				}
				if confirmed > enoughConfirmed && refused > enoughRefused && time.Since(began) > 300*time.Millisecond {
					stop()
				}
				mu.Unlock()
			}
		})
	}
	all.Go(func() {
		rng := rand.New(rand.NewPCG(1, 4))
		for ctx.Err() == nil {
			i := rng.IntN(partitions)
			follower := ids[(i+1+rng.IntN(2))%3]
			switch rng.IntN(4) {
			case 0:
				_ = nodes[follower].Stop(tp(i), Stop{LeaderEpoch: -1, Delete: rng.IntN(2) == 0})
				time.Sleep(time.Duration(rng.IntN(3)) * time.Millisecond)
				assign(i, follower)
			default:
				network.Fault(ids[i%3], follower, Faults{Loss: 0.1 * rng.Float64(), Duplicate: 0.3 * rng.Float64(), Delay: time.Duration(rng.IntN(2)) * time.Millisecond})
				network.Fault(follower, ids[i%3], Faults{Duplicate: 0.3 * rng.Float64()})
				time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
				network.Fault(ids[i%3], follower, Faults{})
				network.Fault(follower, ids[i%3], Faults{})
			}
		}
	})
	all.Wait()
	for i := range partitions {
		assign(i, ids...)
		l := leader(i).Log()
		require.Eventually(t, func() bool { o := l.Offsets(); return o.HighWatermark == o.LogEnd }, 20*time.Second, time.Millisecond, "%v", tp(i))
		has := map[int64]string{}
		there := map[string]bool{}
		for r, err := range l.Records(t.Context(), 0) {
			require.NoError(t, err)
			has[r.Offset] = string(r.Value)
			require.False(t, there[string(r.Value)], "twice")
			there[string(r.Value)] = true
		}
		for _, p := range fates[i].placed {
			require.Equal(t, p.value, has[p.at], "%v at %d", tp(i), p.at)
		}
		for _, v := range fates[i].refused {
			require.False(t, there[v], "%s was refused and is there", v)
		}
		require.Len(t, has, len(fates[i].placed))
		want := allBytesOf(t, l)
		for _, id := range ids {
			h, err := nodes[id].Partition(tp(i))
			require.NoError(t, err)
			require.Eventually(t, func() bool {
				f := h.Log()
				return f != nil && f.Offsets().LogEnd == l.Offsets().LogEnd
			}, 10*time.Second, time.Millisecond, "%v at %d: %+v", tp(i), id, h.Status())
			require.True(t, bytes.Equal(want, allBytesOf(t, h.Log())), "%v at %d", tp(i), id)
			require.NotErrorIs(t, h.Status().LastError, log.ErrInvalidRecord)
		}
	}
	require.Greater(t, confirmed, enoughConfirmed)
	require.Greater(t, refused, enoughRefused)
	for _, id := range slices.Backward(ids) {
		require.NoError(t, nodes[id].Close())
		require.NoError(t, dirs[id].Close())
	}
	for _, w := range closers {
		require.NoError(t, w.Close())
	}
}

// allBytesOf is the whole log, segment by segment.
func allBytesOf(t *testing.T, l *log.Log) (raw []byte) {
	for at := int64(0); at < l.Offsets().LogEnd; {
		f, err := l.Fetch(t.Context(), at, log.FetchOptions{Isolation: log.LogEnd, MaxBytes: 1 << 20, WholeBatches: true})
		require.NoError(t, err)
		b := make([]byte, f.Len())
		_, err = f.ReadAt(b, 0)
		require.NoError(t, err)
		at, err = f.NextOffset()
		require.NoError(t, err)
		f.Close()
		raw = append(raw, b...)
	}
	return raw
}
