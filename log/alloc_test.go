package log

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
)

// diskBed is a buffered log on a real disk, where a write allocates nothing.
func diskBed(t testing.TB) *bed {
	fsys, err := vfs.OS(t.TempDir())
	require.NoError(t, err)
	return newBedOn(t, fsys, Config{Durability: Buffered})
}

func TestHotPathsAllocateNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	b := diskBed(t)
	recs := values(100, 100)
	for range 4 {
		b.mustAppend(recs)
	}
	gate := func(name string, most float64, f func()) {
		t.Helper()
		require.LessOrEqual(t, testing.AllocsPerRun(200, f), most, name)
	}
	gate("Append of 100 records", 0, func() { b.mustAppend(recs) })
	ready := batchOf(0, -1, record.None, make([]string, 100)...)
	raw := bytes.Clone(ready)
	gate("AppendBatches as leader", 0, func() {
		copy(raw, ready)
		if _, err := b.AppendBatches(ctx, raw, AppendOptions{Durability: Buffered}); err != nil {
			t.Fatal(err)
		}
	})
	gate("AppendBatches as follower", 0, func() {
		copy(raw, ready)
		v, _ := record.View(raw)
		v.SetBaseOffset(b.Offsets().LogEnd)
		v.SetLeaderEpoch(0)
		if _, err := b.AppendBatches(ctx, raw, AppendOptions{As: Follower}); err != nil {
			t.Fatal(err)
		}
	})
	p := b.Producer(5, 0)
	idempotent := func() {
		if _, err := p.Append(ctx, recs...); err != nil {
			t.Fatal(err)
		}
	}
	for range 8 {
		idempotent()
	}
	gate("Producer.Append of 100 records", 0, idempotent)
	own := record.NewBuilder(record.BuilderOptions{})
	sequence := int32(0)
	gate("AppendBatches of an idempotent producer", 0, func() {
		own.Reset()
		own.SetProducer(&record.Producer{ID: 6, BaseSequence: sequence})
		for i := range recs {
			if err := own.AddRef(&recs[i], recs[i].Timestamp); err != nil {
				t.Fatal(err)
			}
		}
		batch, err := own.Finish()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.AppendBatches(ctx, batch.Bytes(), AppendOptions{}); err != nil {
			t.Fatal(err)
		}
		sequence += int32(len(recs))
	})
	gate("Offsets", 0, func() { _ = b.Offsets() })
	end := b.Offsets().LogEnd
	once := func(from int64) func() {
		return func() {
			for r, err := range b.Records(ctx, from) {
				if err != nil || r.Offset < from {
					t.Fatal(err)
				}
			}
		}
	}
	few, many := testing.AllocsPerRun(50, once(end-100)), testing.AllocsPerRun(50, once(end-10_000))
	require.LessOrEqual(t, few, 12.0, "an iteration")
	require.LessOrEqual(t, many-few, 2.0, "its 9,900 further records")
	gate("one record out of a batch", 0, func() {
		found := int64(-1)
		for r, err := range b.Records(ctx, end-50) {
			if err != nil {
				t.Fatal(err)
			}
			found = r.Offset
			break
		}
		if found != end-50 {
			t.Fatal(found)
		}
	})
	gate("Fetch", 8, func() {
		f, err := b.Fetch(ctx, end-100, FetchOptions{})
		if err != nil || f.Len() == 0 {
			t.Fatal(err)
		}
		f.Close()
	})
	from := b.Offsets().LogEnd
	gate("a record followed", 3, func() { // of a batch: the wake-up and the append that comes between
		b.mustAppend(recs[:1])
		from++
	})
}

func (b *bed) mustAppend(recs []record.Record) {
	if _, err := b.Append(ctx, recs...); err != nil {
		b.t.Fatal(err)
	}
}

func BenchmarkAppendBuffered100x100(b *testing.B) {
	l := diskBed(b)
	recs := values(100, 100)
	b.ReportAllocs()
	b.SetBytes(11_600)
	for b.Loop() {
		l.mustAppend(recs)
	}
}

func BenchmarkAppendBatchesBuffered(b *testing.B) {
	l := diskBed(b)
	ready := batchOf(0, -1, record.None, make([]string, 100)...)
	raw := bytes.Clone(ready)
	b.ReportAllocs()
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		copy(raw, ready)
		if _, err := l.AppendBatches(ctx, raw, AppendOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}
