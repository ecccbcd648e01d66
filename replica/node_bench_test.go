package replica

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/vfs"
)

var benchConf = log.Config{Durability: log.Buffered, SegmentBytes: 64 << 20, RetentionTime: log.Forever}

// ready waits until a group commits.
func (g *group) ready() *Handle {
	g.produce("first")
	g.caughtUp(g.ids[0], g.ids[1:]...)
	return g.handle(g.ids[0])
}

// diskGroup is a group over the operating system's files.
func diskGroup(b testing.TB, ids ...NodeID) *group {
	g := &group{t: b, network: NewNetwork(), ids: ids, nodes: map[NodeID]*member{}}
	g.state = Assign{TopicID: [16]byte{1}, Leader: ids[0], Replicas: ids, ISR: slices.Clone(ids)}
	for _, id := range ids {
		fs, err := vfs.OS(b.TempDir())
		require.NoError(b, err)
		g.nodes[id] = &member{fs: fs}
		g.start(id, benchConf)
	}
	b.Cleanup(func() {
		for _, m := range g.nodes {
			require.NoError(b, m.Close())
			require.NoError(b, m.dir.Close())
		}
	})
	g.assign(g.state)
	return g
}

// BenchmarkThreeLocalAppends is what BenchmarkCommit is measured by: the same bytes into three logs.
func BenchmarkThreeLocalAppends(b *testing.B) {
	var logs []*log.Log
	for range 3 {
		d, err := log.OpenDir(b.TempDir(), log.DirConfig{Defaults: benchConf})
		require.NoError(b, err)
		defer d.Close()
		l, err := d.Open(b.Context(), ordersZero, log.Config{})
		require.NoError(b, err)
		logs = append(logs, l)
	}
	raw := rawBatch(b, string(bytes.Repeat([]byte("x"), 10<<10)))
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		for _, l := range logs {
			if _, err := l.AppendBatches(b.Context(), raw, log.AppendOptions{}); err != nil {
				b.Fatal(err)
			}
			clear(raw[:8])
		}
	}
}

// BenchmarkCommit commits 10 KiB batches on three replicas of this process, by one producer that waits for each (its p50 is
// append to committed), and by as many as keep the replicas busy.
func BenchmarkCommit(b *testing.B) {
	for _, producers := range []int{1, 16, 64} {
		b.Run(fmt.Sprint(producers, "-producers"), func(b *testing.B) {
			h := diskGroup(b, 1, 2, 3).ready()
			value := string(bytes.Repeat([]byte("x"), 10<<10))
			raws := make([][]byte, producers)
			for i := range raws {
				raws[i] = rawBatch(b, value)
			}
			b.SetBytes(int64(len(raws[0])))
			b.ReportAllocs()
			var mu sync.Mutex
			var times []time.Duration
			work := make(chan struct{}, producers)
			var all sync.WaitGroup
			for _, raw := range raws {
				all.Go(func() {
					var own []time.Duration
					for range work {
						begun := time.Now()
						if _, err := h.Append(b.Context(), raw, -1); err != nil {
							b.Error(err)
						}
						own = append(own, time.Since(begun))
						clear(raw[:8])
					}
					mu.Lock()
					times = append(times, own...)
					mu.Unlock()
				})
			}
			for b.Loop() {
				work <- struct{}{}
			}
			close(work)
			all.Wait()
			b.StopTimer()
			slices.Sort(times)
			b.ReportMetric(float64(times[len(times)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(times[len(times)*99/100].Microseconds()), "p99-µs")
		})
	}
}
