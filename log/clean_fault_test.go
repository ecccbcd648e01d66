package log

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// mixed fills a log with what compaction has to do with: plain records, tombstones, idempotent producers, transactions
// committed, aborted and open. The segments are small.
func mixed(b *bed, seed uint64, rounds int) {
	b.t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	producers := make([]*Producer, 4)
	for i := range producers {
		producers[i] = b.Producer(int64(100+i), 0)
	}
	kv := func() record.Record {
		rec := record.Record{Key: fmt.Appendf(nil, "k%d", r.IntN(12)), Value: fmt.Appendf(nil, "%d", r.Int32())}
		if r.IntN(4) == 0 {
			rec.Value = nil
		}
		return rec
	}
	must := func(err error) { require.NoError(b.t, err) }
	for i := range rounds {
		recs := make([]record.Record, 1+r.IntN(4))
		for i := range recs {
			recs[i] = kv()
		}
		switch p := producers[r.IntN(4)]; r.IntN(6) {
		case 0, 1:
			must(errOf(b.Append(ctx, recs...)))
		case 2:
			must(errOf(producers[0].Append(ctx, recs...)))
		default:
			if p == producers[0] {
				continue
			}
			must(p.Begin())
			must(errOf(p.Append(ctx, recs...)))
			must(errOf(b.Append(ctx, kv())))
			if r.IntN(2) == 0 {
				must(p.Commit(ctx))
			} else {
				must(p.Abort(ctx))
			}
		}
		if i%7 == 6 {
			must(b.Roll(ctx))
		}
	}
	must(b.Roll(ctx))
	must(errOf(b.Append(ctx, kv())))
}

// committed is the last committed value of each key; it checks that offsets ascend.
func (b *bed) committed() map[string]string {
	b.t.Helper()
	m, last := map[string]string{}, int64(-1)
	for r, err := range b.Records(ctx, 0, WithReset(Earliest), WithIsolation(ReadCommitted)) {
		require.NoError(b.t, err)
		require.Greater(b.t, r.Offset, last)
		last = r.Offset
		if r.Value == nil {
			delete(m, string(r.Key))
		} else {
			m[string(r.Key)] = string(r.Value)
		}
	}
	return m
}

// memory is what a log knows beside its records.
type memory struct {
	producers []ProducerInfo
	offsets   Offsets
}

func (b *bed) memory() memory {
	all := b.Producers()
	for i := range all {
		all[i].Batches = 0 // snapshots know the last one only
	}
	slices.SortFunc(all, func(x, y ProducerInfo) int { return int(x.ID - y.ID) })
	return memory{all, b.Offsets()}
}

func (b *bed) silent() {
	b.t.Helper()
	for f, err := range b.Log.Verify(ctx) {
		require.NoError(b.t, err)
		b.t.Fatal(fmt.Sprintf("%+v", f))
	}
}

// silentAtRest closes the Dir and verifies what it left.
func (b *bed) silentAtRest() {
	b.t.Helper()
	require.NoError(b.t, b.dir.Close())
	for f, err := range Verify(ctx, b.fs, VerifyOptions{Now: b.clock.now, IndexInterval: int64(b.cfg.IndexIntervalBytes)}) {
		require.NoError(b.t, err)
		b.t.Fatal(fmt.Sprintf("%+v", f))
	}
}

// What compaction leaves is what was there: to readers, to producers, to verify, now and after the log is opened again, also
// without what a clean stop vouches for.
func TestNothingButDeadRecordsGoesWithACompaction(t *testing.T) {
	for seed := range uint64(6) {
		c := compacting
		c.IndexIntervalBytes = EveryBatch
		c.Compaction.DeleteRetention = []time.Duration{time.Hour, Immediately}[seed%2]
		b := newBed(t, c)
		mixed(b, seed, 80)
		want, knows := b.committed(), b.memory()
		for range 3 {
			b.compact(CompactOptions{Force: true})
			require.Equal(t, want, b.committed())
			require.Equal(t, knows, b.memory())
			b.silent()
			b.clock.advance(2 * time.Hour)
		}
		b.silentAtRest()
		b.open()
		require.Equal(t, want, b.committed())
		require.Equal(t, knows.producers, b.memory().producers)
		mixed(b, seed+100, 30)
		want, knows = b.committed(), b.memory()
		b.compact(CompactOptions{Force: true})
		require.NoError(t, b.dir.Close())
		for _, name := range []string{".snapshot", ".index", ".timeindex", ".txnindex"} {
			for _, f := range b.folder(name) {
				if name == ".snapshot" && f == b.folder(".snapshot")[0] && seed%2 == 0 {
					continue
				}
				require.NoError(t, b.fs.Remove("t-0/"+f))
			}
			b.open()
			require.Equal(t, want, b.committed(), name)
			require.Equal(t, knows.offsets.LastStable, b.Offsets().LastStable)
			require.NoError(t, b.dir.Close())
		}
		b.open()
	}
}

// Each call that cleaning and retention make fails once, in each way: nothing is lost that was there before, and the next
// try succeeds.
func TestEachCallOfACleaningFailsOnce(t *testing.T) {
	base := vfs.Mem()
	c := compacting
	c.Cleanup, c.RetentionTime, c.FileDeleteDelay, c.IndexIntervalBytes = Compact|Delete, Forever, Immediately, EveryBatch
	c.SegmentBytes = 3000
	b := newBedOn(t, base, c)
	mixed(b, 7, 60)
	want, knows := b.committed(), b.memory()
	require.NoError(t, b.dir.Close())
	work := []func(b *bed) error{
		func(b *bed) error { return errOf(b.Compact(ctx, CompactOptions{Force: true})) },
		func(b *bed) error { return errOf(b.Retain(ctx)) },
		func(b *bed) error { return b.DeleteRecords(ctx, b.Offsets().LogStart) },
		func(b *bed) error { return b.Roll(ctx) },
		func(b *bed) error { return errOf(b.Compact(ctx, CompactOptions{Force: true})) },
		func(b *bed) error { return errOf(b.Retain(ctx)) },
	}
	for i, rule := range []vfstest.Rule{{Err: syscall.EIO}, {Err: syscall.ENOSPC}, {Err: syscall.EIO, Done: true}, {Err: syscall.EMFILE}} {
		for n := 1 + i; ; n += 4 {
			rule.Nth = n
			f := vfstest.NewFault(vfs.Overlay(base))
			b := &bed{t: t, fs: f, cfg: c, clock: &clock{}}
			b.clock.ms.Store(epoch2023)
			b.open()
			hits, _ := f.Add(rule)
			failed := []error{}
			for _, do := range work {
				if err := do(b); err != nil {
					failed = append(failed, err)
				}
			}
			name := fmt.Sprintf("call %d, %v: %v", n, rule.Err, failed)
			f.Clear()
			if b.Err() == nil {
				require.Equal(t, want, b.committed(), name)
				b.compact(CompactOptions{Force: true})
				require.Equal(t, want, b.committed(), name)
				require.Equal(t, knows.producers, b.memory().producers, name)
				b.silent()
			} else {
				require.NotEmpty(t, failed, name)
				require.True(t, errors.Is(b.Err(), ErrFailed), name)
			}
			_ = b.dir.Close()
			b.open()
			require.Equal(t, want, b.committed(), name)
			require.Equal(t, knows.producers, b.memory().producers, name)
			require.NoError(t, errOf(b.Append(ctx, record.Record{Key: []byte("new"), Value: []byte("1")})))
			b.compact(CompactOptions{Force: true})
			more := maps.Clone(want)
			more["new"] = "1"
			require.Equal(t, more, b.committed(), name)
			b.silentAtRest()
			if hits() == 0 {
				t.Logf("%v: %d calls", rule.Err, n)
				break
			}
		}
	}
}

// The log start in every place of a log that was compacted, and compaction behind it: what lies below counts for nothing, what
// lies above stays, epochs and producers included, and the log opens as it was.
func TestTheLogStartAnywhereInACompactedLog(t *testing.T) {
	base := vfs.Mem()
	c := compacting
	c.Cleanup, c.RetentionTime, c.IndexIntervalBytes, c.SegmentBytes = Compact|Delete, Forever, EveryBatch, 2000
	b := newBedOn(t, base, c)
	for e := range int32(3) {
		require.NoError(t, b.AssignEpoch(e))
		mixed(b, uint64(e), 15)
	}
	b.compact(CompactOptions{Force: true})
	end := b.Offsets().LogEnd
	require.NoError(t, b.dir.Close())
	for start := int64(0); start <= end; start += 3 {
		b := &bed{t: t, fs: vfs.Overlay(base), cfg: c, clock: &clock{}}
		b.clock.ms.Store(epoch2023)
		b.open()
		require.NoError(t, b.DeleteRecords(ctx, start))
		want, knows, epochs := b.committed(), b.memory(), b.epochs.Entries()
		for _, how := range []string{"compacted", "retained", "opened", "opened and compacted"} {
			name := fmt.Sprintf("start %d, %s", start, how)
			switch how {
			case "retained":
				require.NoError(t, errOf(b.Retain(ctx)))
			case "opened":
				b.silentAtRest()
				b.open()
			default:
				b.compact(CompactOptions{Force: true})
			}
			require.Equal(t, want, b.committed(), name)
			require.Equal(t, knows.offsets.LogStart, b.Offsets().LogStart, name)
			require.Equal(t, knows.offsets.LastStable, b.Offsets().LastStable, name)
			require.Equal(t, knows.producers, b.memory().producers, name)
			require.Equal(t, epochs, b.epochs.Entries(), name)
			b.silent()
		}
		b.silentAtRest()
	}
}
