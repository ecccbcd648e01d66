package log

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/compaction"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

func TestBackgroundWorkStandsBackUntilASyncEnds(t *testing.T) {
	for name, c := range map[string]struct {
		syncs  []time.Duration // that run, and how long they still take
		ctx    time.Duration
		others bool
		waits  time.Duration
	}{
		"nobody syncs":               {ctx: time.Hour},
		"one sync":                   {syncs: []time.Duration{300 * time.Microsecond}, ctx: time.Hour, others: true, waits: 300 * time.Microsecond},
		"the first of two":           {syncs: []time.Duration{700 * time.Microsecond, 200 * time.Microsecond}, ctx: time.Hour, others: true, waits: 200 * time.Microsecond},
		"a sync that takes long":     {syncs: []time.Duration{time.Minute}, ctx: time.Hour, others: true, waits: mostAside},
		"a context that ends before": {syncs: []time.Duration{time.Minute}, ctx: time.Microsecond, others: true, waits: time.Microsecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var r rounds
				for _, takes := range c.syncs {
					r.begin()
					go func() { time.Sleep(takes); r.end() }()
				}
				ctx, cancel := context.WithTimeout(context.Background(), c.ctx)
				defer cancel()
				for range 2 { // two who stand back
					go func() {
						began := time.Now()
						require.Equal(t, c.others, r.standBack(ctx))
						require.Equal(t, c.waits, time.Since(began))
					}()
				}
				time.Sleep(time.Hour)
				require.False(t, r.standBack(ctx), "all have ended")
			})
		})
	}
}

// A compaction lets the syncs of appends go first, and comes to its end beside one that never does.
func TestACompactionStandsBackAndGoesOnWhileASyncHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfstest.NewFault(vfs.Mem())
		b := newBedOn(t, disk, Config{Cleanup: Compact, Durability: Durable, Compaction: compaction.Config{BytesPerSecond: 1 << 20}})
		for i := range 60 {
			_, err := b.Append(ctx, record.Record{Key: []byte{byte(i)}, Value: make([]byte, 50_000)})
			require.NoError(t, err)
		}
		_, err := b.Append(ctx, record.Record{Key: []byte{0}})
		require.NoError(t, err)
		require.NoError(t, b.Roll(ctx))
		gate := make(chan struct{})
		open := sync.OnceFunc(func() { close(gate) })
		defer open()
		disk.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpSyncData}, Block: gate})
		pieces, _ := disk.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpSyncData}, Name: "*/*.cleaned", Times: vfstest.Always})
		appended := make(chan error, 1)
		go func() { appended <- errOf(b.Append(ctx, record.Record{Key: []byte("e")})) }()
		synctest.Wait()
		require.Empty(t, appended)
		require.NoError(t, errOf(b.Compact(ctx, CompactOptions{Force: true})))
		require.GreaterOrEqual(t, pieces(), 10, "what is written is synced in pieces while somebody waits for the disk")
		require.Empty(t, appended)
		open()
		require.NoError(t, <-appended)
	})
}

// Syncs of appends that follow one another without end, of any length, hold a compaction up, but not for ever; and a Close that
// comes while it stands back ends it.
func TestACompactionEndsBesideSyncsThatNeverDo(t *testing.T) {
	for _, takes := range []time.Duration{0, 50 * time.Microsecond, 900 * time.Microsecond, 5 * time.Millisecond, time.Hour} {
		for _, closed := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, Config{Cleanup: Compact, Compaction: compaction.Config{BytesPerSecond: 1 << 20}})
				for i := range 40 {
					_, err := b.Append(ctx, record.Record{Key: []byte{byte(i % 30)}, Value: make([]byte, 50_000)})
					require.NoError(t, err)
				}
				require.NoError(t, b.Roll(ctx))
				began := time.Now()
				if takes > 0 {
					stop := make(chan struct{})
					defer close(stop)
					b.dir.rounds.begin()
					go func() { // the next one begins before the last one ends
						for {
							select {
							case <-time.After(takes):
								b.dir.rounds.begin()
								b.dir.rounds.end()
							case <-stop:
								return
							}
						}
					}()
				}
				if closed {
					go func() {
						time.Sleep(2 * time.Second)
						require.NoError(t, b.Close())
					}()
					require.ErrorIs(t, errOf(b.Compact(ctx, CompactOptions{Force: true})), ErrClosed)
					require.Less(t, time.Since(began), 2*time.Second+10*mostAside)
					return
				}
				require.NoError(t, errOf(b.Compact(ctx, CompactOptions{Force: true})))
				require.Less(t, time.Since(began), 8*time.Second, "6 MB are read or written, one a second")
			})
		}
	}
}
