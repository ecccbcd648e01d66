package log

import (
	"context"
	"errors"
	"iter"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
)

// Scenario: U005, U006, L011, B178. Nothing panics anywhere; the bound excludes a batch as a whole.
func TestIsolationDecidesHowFarAReaderSees(t *testing.T) {
	b := newBed(t, Config{Visibility: External})
	b.add("0", "1", "2")
	b.add("3", "4")
	for _, hw := range []int64{0, 3, 5} {
		got, err := b.SetHighWatermark(hw)
		require.NoError(t, err)
		require.Equal(t, hw, got)
		for o := int64(-2); o <= 7; o++ {
			f, err := b.Fetch(ctx, o, FetchOptions{})
			all, err2 := b.Fetch(ctx, o, FetchOptions{Isolation: LogEnd})
			seen, err3 := offsetsOf(b.Records(ctx, o))
			every, err4 := offsetsOf(b.Records(ctx, o, WithIsolation(LogEnd)))
			if o < 0 || o > 5 {
				for _, err := range []error{err, err2, err3, err4} {
					var r *OffsetRangeError
					require.ErrorAs(t, err, &r)
					require.Equal(t, OffsetRangeError{Offset: o, LogStart: 0, LogEnd: 5}, *r)
					require.ErrorIs(t, err, ErrOffsetOutOfRange)
					require.False(t, errors.Is(err, ErrCorrupt))
				}
				continue
			}
			require.NoError(t, errors.Join(err, err2, err3, err4))
			require.Equal(t, offsetsIn(o, max(o, hw)), append([]int64(nil), seen...))
			require.Equal(t, offsetsIn(o, 5), every)
			require.Equal(t, o < hw, f.Len() > 0)
			require.Equal(t, o < 5, all.Len() > 0)
			require.NoError(t, errors.Join(f.Close(), all.Close()))
		}
	}
	// A high watermark inside a batch hides all of it (Kafka rounds the bound itself down, 5.4).
	for hw, want := range map[int64][]int64{1: nil, 2: nil, 4: {0, 1, 2}} {
		_, err := b.SetHighWatermark(hw)
		require.NoError(t, err)
		require.Equal(t, want, b.readAll(0))
		f, err := b.Fetch(ctx, 0, FetchOptions{})
		require.NoError(t, err)
		got, err := offsetsOf(f.Records())
		require.NoError(t, err)
		require.Equal(t, want, got)
		next, err := f.NextOffset()
		require.NoError(t, err)
		require.Equal(t, int64(len(want)), next)
		require.NoError(t, f.Close())
	}
	require.Zero(t, b.Stats().Pinned)
}

// Scenario: U013, U014.
func TestReadsBeginWithTheBatchThatHoldsTheOffset(t *testing.T) {
	b := newBed(t, Config{CompressionType: "gzip"})
	require.NoError(t, b.ResetTo(ctx, 1024))
	b.add("a", "b")
	b.add("c", "d")
	for o, base := range map[int64]int64{1024: 1024, 1025: 1024, 1026: 1026, 1027: 1026} {
		for got, err := range b.Batches(ctx, o) {
			require.NoError(t, err)
			require.Equal(t, base, got.BaseOffset())
			break
		}
		require.Equal(t, offsetsIn(o, 1028), b.readAll(o))
	}
	require.Empty(t, b.readAll(1028))
	for _, o := range []int64{0, 1023, 1029} {
		_, err := offsetsOf(b.Records(ctx, o))
		require.ErrorIs(t, err, ErrOffsetOutOfRange)
	}
}

// Scenario: U012.
func TestAGapBetweenSegmentsIsPassedOver(t *testing.T) {
	b := newBed(t, Config{})
	_, err := b.follow(batchOf(0, 0, record.None, "a"))
	require.NoError(t, err)
	require.NoError(t, b.Roll(ctx))
	_, err = b.follow(batchOf(1<<32, 0, record.None, "b")) // B172: work does not depend on the hole's size
	require.NoError(t, err)
	require.Equal(t, []int64{1 << 32}, b.readAll(1))
	require.Equal(t, []int64{0, 1 << 32}, b.readAll(0))
	_, err = offsetsOf(b.Records(ctx, 5, WithMaxOffset(100)))
	require.NoError(t, err)
}

func TestAMaximumOffsetCutsRecordsExactlyAndBatchesWhole(t *testing.T) {
	b := newBed(t, Config{SegmentBytes: 250})
	for range 6 {
		b.add("a", "b", "c", "d")
	}
	for end := int64(0); end <= 26; end++ {
		for from := int64(0); from <= 24; from += 3 {
			require.Equal(t, offsetsIn(from, max(from, min(end, 24))), append([]int64(nil), b.readAll(from, WithMaxOffset(end))...), "[%d, %d)", from, end)
			for got, err := range b.Batches(ctx, from, WithMaxOffset(end)) {
				require.NoError(t, err)
				require.Less(t, got.LastOffset(), end)
			}
		}
	}
	got, err := offsetsOf(b.Follow(ctx, 2, WithMaxOffset(10)))
	require.NoError(t, err)
	require.Equal(t, offsetsIn(2, 10), got, "a follower stops there too, inside a batch")
}

func TestAResetPolicyBringsAReaderBack(t *testing.T) {
	b := newBed(t, Config{})
	for range 5 {
		b.add("a", "b")
	}
	require.NoError(t, b.DeleteRecords(ctx, 3)) // inside a batch
	require.Equal(t, offsetsIn(3, 10), b.readAll(0, WithReset(Earliest)), "never what was deleted, though its batch is there")
	require.Equal(t, offsetsIn(3, 10), b.readAll(99, WithReset(Earliest)))
	require.Empty(t, b.readAll(0, WithReset(Latest)))
	go func() {
		for b.Stats().Followers == 0 {
			time.Sleep(time.Millisecond)
		}
		_, _ = b.Append(ctx, record.Record{})
	}()
	next, stop := pull(b.Follow(ctx, 99, WithReset(Latest)))
	defer stop()
	require.Equal(t, int64(10), next())
}

// D8: nothing is held while the loop's body runs.
func TestALoopsBodyMayDoAnything(t *testing.T) {
	fill := func(t *testing.T) *bed {
		b := newBed(t, Config{SegmentBytes: 300})
		for range 10 {
			b.add("x", "y")
		}
		return b
	}
	t.Run("close", func(t *testing.T) {
		b := fill(t)
		var got []int64
		var last error
		for r, err := range b.Follow(ctx, 0) {
			if last = err; err != nil {
				break
			}
			got = append(got, r.Offset)
			if r.Offset == 4 {
				require.NoError(t, b.Close())
				require.Equal(t, "x", string(r.Value), "the record at hand stays")
			}
		}
		require.ErrorIs(t, last, ErrClosed)
		require.Equal(t, offsetsIn(0, 5), got)
		_, err := offsetsOf(b.Records(ctx, 0))
		require.ErrorIs(t, err, ErrClosed)
	})
	t.Run("append", func(t *testing.T) {
		b := fill(t)
		n := 0
		for _, err := range b.Records(ctx, 0) {
			require.NoError(t, err)
			b.add("more")
			n++
		}
		require.Equal(t, 20, n, "the bound is that of the beginning")
		n = 0
		for _, err := range b.Follow(ctx, 0) {
			require.NoError(t, err)
			if n++; n < 100 {
				b.add("more")
			} else {
				break
			}
		}
	})
	t.Run("truncate", func(t *testing.T) {
		for _, end := range []int64{0, 4, 8, 14, 18} {
			b := fill(t)
			var got []int64
			var last error
			for r, err := range b.Records(ctx, 0) {
				if last = err; err != nil {
					break
				}
				got = append(got, r.Offset)
				if r.Offset == 8 {
					_, err := b.Truncate(ctx, end)
					require.NoError(t, err)
				}
			}
			if end < 10 {
				require.ErrorIs(t, last, ErrOffsetOutOfRange, "%d", end)
				require.Equal(t, offsetsIn(0, 10), got, "the batch at hand is finished")
				continue
			}
			require.NoError(t, last)
			require.Equal(t, offsetsIn(0, end), got)
		}
	})
	t.Run("truncate and append again", func(t *testing.T) {
		b := fill(t)
		var last error
		for r, err := range b.Follow(ctx, 0) {
			if last = err; err != nil {
				break
			}
			if r.Offset == 15 {
				_, err := b.Truncate(ctx, 4)
				require.NoError(t, err)
				for range 20 {
					b.add("other", "history")
				}
			}
			require.LessOrEqual(t, r.Offset, int64(15), "it must not go on in another history as if nothing had been")
		}
		require.ErrorIs(t, last, ErrOffsetOutOfRange)
	})
	t.Run("truncate with reset", func(t *testing.T) {
		b := fill(t)
		var got []int64
		for r, err := range b.Follow(ctx, 12, WithReset(Earliest)) {
			require.NoError(t, err)
			got = append(got, r.Offset)
			if len(got) == 3 {
				_, err := b.Truncate(ctx, 6)
				require.NoError(t, err)
			}
			if len(got) == 10 {
				break
			}
		}
		require.Equal(t, []int64{12, 13, 14, 15, 0, 1, 2, 3, 4, 5}, got)
	})
	t.Run("delete records", func(t *testing.T) {
		b := fill(t)
		var got []int64
		var last error
		for r, err := range b.Records(ctx, 0) {
			if last = err; err != nil {
				break
			}
			got = append(got, r.Offset)
			if r.Offset == 5 {
				require.NoError(t, b.DeleteRecords(ctx, 11))
			}
		}
		require.ErrorIs(t, last, ErrOffsetOutOfRange)
		require.Equal(t, offsetsIn(0, 6), got)
	})
	t.Run("panic and return", func(t *testing.T) {
		b := fill(t)
		func() {
			defer func() { require.Equal(t, "mine", recover()) }()
			for range b.Records(ctx, 3) {
				require.Equal(t, 1, b.Stats().Pinned)
				panic("mine")
			}
		}()
		func() int64 {
			for r := range b.Follow(ctx, 3) {
				return r.Offset
			}
			return -1
		}()
		require.Zero(t, b.Stats().Pinned)
		for _, s := range b.SegmentInfos() {
			require.Zero(t, s.Pins)
		}
		require.Equal(t, offsetsIn(3, 20), b.readAll(3))
	})
	t.Run("range again", func(t *testing.T) {
		b := fill(t)
		seq := b.Records(ctx, 7)
		for range 2 {
			got, err := offsetsOf(seq)
			require.NoError(t, err)
			require.Equal(t, offsetsIn(7, 20), got)
		}
		for r := range seq {
			inner, err := offsetsOf(seq)
			require.NoError(t, err)
			require.Equal(t, offsetsIn(7, 20), inner)
			require.Less(t, r.Offset, int64(20))
		}
	})
	t.Run("context", func(t *testing.T) {
		b := fill(t)
		c, cancel := context.WithCancel(ctx)
		defer cancel()
		n, last := 0, error(nil)
		for _, err := range b.Records(c, 0) {
			if last = err; err == nil {
				n++
				cancel()
			}
		}
		require.ErrorIs(t, last, context.Canceled)
		require.Equal(t, 2, n, "the batch at hand is finished")
	})
}

// B171, B173 in the form a follower's log can have: gaps inside and behind a batch's records.
func TestPositionsNeverGoBackOverGaps(t *testing.T) {
	b := newBed(t, Config{})
	src := batchOf(10, 0, record.None, "a", "b", "c", "d")
	view, err := record.View(src)
	require.NoError(t, err)
	builder := record.NewBuilder(record.BuilderOptions{})
	require.NoError(t, builder.Rebuild(view, record.NoTimestamp))
	require.NoError(t, builder.AddAt(record.Record{Offset: 11, Timestamp: 1, Value: []byte("b")}))
	sparse, err := builder.Finish()
	require.NoError(t, err)
	_, err = b.follow(sparse.Bytes())
	require.NoError(t, err)
	require.NoError(t, builder.Rebuild(must(record.View(batchOf(20, 0, record.None, "a", "b"))), record.NoTimestamp))
	empty, err := builder.Finish()
	require.NoError(t, err)
	_, err = b.follow(empty.Bytes())
	require.NoError(t, err)
	_, err = b.follow(batchOf(30, 0, record.None, "z"))
	require.NoError(t, err)
	require.Equal(t, []int64{11, 30}, b.readAll(0))
	require.Equal(t, []int64{30}, b.readAll(12))
	f, err := b.Fetch(ctx, 12, FetchOptions{MaxBytes: 1})
	require.NoError(t, err)
	next, err := f.NextOffset()
	require.NoError(t, err)
	require.Equal(t, int64(14), next, "past the batch though none of its records was left")
	require.NoError(t, f.Close())
	f, err = b.Fetch(ctx, 14, FetchOptions{MaxBytes: 1})
	require.NoError(t, err)
	next, err = f.NextOffset()
	require.NoError(t, err)
	require.Equal(t, int64(22), next)
	require.NoError(t, f.Close())
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// B028, B031: damage in a sealed segment.
func TestDamageIsNamedAndNeverSkipped(t *testing.T) {
	root := t.TempDir()
	l, err := Open(root, Config{SegmentBytes: 2000, Durability: Buffered})
	require.NoError(t, err)
	for range 100 {
		_, err := l.Append(ctx, values(1, 40)...)
		require.NoError(t, err)
	}
	infos := l.SegmentInfos()
	require.Greater(t, len(infos), 3)
	require.NoError(t, l.Close())
	// One bit of the value of the record in the middle of the second segment.
	file := root + "/log-0/" + name20(infos[1].Base) + ".log"
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	bad := infos[1].Base + 5
	at := int64(0)
	for rest := raw; ; {
		b, next, err := record.Next(rest)
		require.NoError(t, err)
		if b.BaseOffset() == bad {
			break
		}
		at, rest = at+int64(b.Size()), next
	}
	raw[at+80] ^= 4
	require.NoError(t, os.WriteFile(file, raw, 0o644))

	l, err = Open(root, Config{SegmentBytes: 2000})
	require.NoError(t, err, "a clean stop vouches: what is wrong is seen when it is read")
	defer l.Close()
	r, err := OpenReader(root+"/log-0", ReaderOptions{})
	require.NoError(t, err)
	defer r.Close()
	for name, src := range map[string]source{"log": l, "reader": r} {
		for _, from := range []int64{0, bad} {
			got, err := offsetsOf(src.Records(ctx, from))
			require.Equal(t, offsetsIn(from, bad), append([]int64(nil), got...), name)
			var c *CorruptError
			require.ErrorAs(t, err, &c, name)
			require.ErrorIs(t, err, ErrCorrupt)
			require.False(t, errors.Is(err, ErrOffsetOutOfRange))
			require.Equal(t, "log-0/"+name20(infos[1].Base)+".log", c.File, name)
			require.Equal(t, at, c.Position, name)
			require.Equal(t, bad, c.Offset, name)
			require.Equal(t, [2]int64{bad, bad + 1}, c.Intact, name)
		}
		got, err := offsetsOf(src.Records(ctx, bad+1))
		require.NoError(t, err, name)
		require.Equal(t, offsetsIn(bad+1, 100), got, "what lies behind can be read by asking for it")
		f, err := src.Fetch(ctx, bad-1, FetchOptions{})
		require.NoError(t, err)
		got, err = offsetsOf(f.Records())
		require.ErrorIs(t, err, ErrCorrupt)
		require.Equal(t, []int64{bad - 1}, got)
		_, err = f.NextOffset()
		require.ErrorIs(t, err, ErrCorrupt)
		require.NoError(t, f.Close())
		require.Equal(t, int64(100), src.Offsets().LogEnd)
	}
}

// source is what Log and Reader have in common.
type source interface {
	Offsets() Offsets
	Records(context.Context, int64, ...ReadOption) iter.Seq2[record.Record, error]
	Fetch(context.Context, int64, FetchOptions) (*Fetched, error)
	OffsetForTime(context.Context, time.Time) (At, error)
}

func name20(base int64) string {
	s := []byte("00000000000000000000")
	for i := 19; base > 0; i-- {
		s[i] = byte('0' + base%10)
		base /= 10
	}
	return string(s)
}

// Invariant Z1.
func TestAfterCloseEverythingSaysClosedAndNothingRuns(t *testing.T) {
	before := runtime.NumGoroutine()
	b := newBed(t, Config{})
	b.add("a")
	f, err := b.Fetch(ctx, 0, FetchOptions{})
	require.NoError(t, err)
	require.NoError(t, b.Close())
	require.LessOrEqual(t, runtime.NumGoroutine(), before, "a log is passive")
	for name, call := range map[string]func() error{
		"Append":          func() error { _, err := b.Append(ctx, record.Record{}); return err },
		"AppendNothing":   func() error { _, err := b.Append(ctx); return err },
		"Records":         func() error { _, err := offsetsOf(b.Records(ctx, 0)); return err },
		"Follow":          func() error { _, err := offsetsOf(b.Follow(ctx, 1)); return err },
		"Fetch":           func() error { _, err := b.Fetch(ctx, 0, FetchOptions{}); return err },
		"OffsetForTime":   func() error { _, err := b.OffsetForTime(ctx, time.UnixMilli(0)); return err },
		"OffsetOfMaxTime": func() error { _, err := b.OffsetOfMaxTime(ctx); return err },
		"Sync":            func() error { return b.Sync(ctx) },
		"Roll":            func() error { return b.Roll(ctx) },
		"Truncate":        func() error { _, err := b.Truncate(ctx, 0); return err },
		"ResetTo":         func() error { return b.ResetTo(ctx, 0) },
		"DeleteRecords":   func() error { return b.DeleteRecords(ctx, 0) },
		"AssignEpoch":     func() error { return b.AssignEpoch(1) },
		"Wait":            func() error { return b.Wait(ctx, MarkEnd, 2) },
		"Close":           func() error { return b.Close() },
		"Err":             func() error { return b.Err() },
	} {
		require.ErrorIs(t, call(), ErrClosed, name)
	}
	n := 0
	for got, err := range f.Batches() {
		require.NoError(t, err, "a Fetched holds its segment")
		require.Zero(t, got.BaseOffset())
		n++
	}
	require.Equal(t, 1, n)
	require.Equal(t, 1, b.Stats().Pinned)
	require.NoError(t, f.Close())
	require.NoError(t, f.Close())
	require.Zero(t, b.Stats().Pinned)
}

// pull steps through an iterator of records one by one.
func pull(seq iter.Seq2[record.Record, error]) (next func() int64, stop func()) {
	step, stop := iter.Pull2(seq)
	return func() int64 {
		r, err, ok := step()
		if err != nil {
			panic(err)
		}
		if !ok {
			return -1
		}
		return r.Offset
	}, stop
}
