package log

import (
	"bytes"
	"context"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/partlog/partlog/record"
)

// visible is what a reader from an offset sees below a bound: whole batches below it.
func (x *machine) visible(from, bound int64) (out []modelRecord) {
	for _, r := range x.m.recs {
		if r.offset >= from && r.batch[1] < bound {
			out = append(out, r)
		}
	}
	return out
}

func (x *machine) compare(t *rapid.T, want []modelRecord, got []modelRecord) {
	t.Helper()
	require.Equal(t, len(want), len(got))
	for i := range want {
		w := want[i]
		w.batch, w.epoch = [2]int64{}, 0
		require.Equal(t, w, got[i])
	}
}

func drain(seq func(func(record.Record, error) bool)) (out []modelRecord, err error) {
	for r, e := range seq {
		if e != nil {
			return out, e
		}
		out = append(out, modelRecord{offset: r.Offset, time: r.Timestamp, value: string(r.Value)})
	}
	return out, nil
}

// check holds after every step.
func (x *machine) check(t *rapid.T) {
	o := x.bed.Offsets()
	require.Equal(t, [2]int64{x.m.start, x.m.end}, [2]int64{o.LogStart, o.LogEnd})
	require.True(t, o.LogStart <= o.LastStable && o.LastStable <= o.HighWatermark && o.HighWatermark <= o.LogEnd, "%+v", o)
	require.True(t, o.Durable <= o.LogEnd && o.RecoveryPoint <= o.LogEnd, "%+v", o)
	require.Equal(t, append([]EpochEntry{}, x.m.epochs...), append([]EpochEntry{}, x.bed.Epochs()...))
	infos := x.bed.SegmentInfos()
	for i, s := range infos {
		require.Equal(t, i+1 < len(infos), s.Sealed)
		require.LessOrEqual(t, s.Base, s.Next)
		require.LessOrEqual(t, s.Next-s.Base, int64(1)<<31+int64(1)<<33, "a gap behind it counts, a batch must fit")
		require.LessOrEqual(t, s.Bytes, x.bed.cfg.SegmentBytes)
		require.Zero(t, s.Pins)
	}
	require.Zero(t, x.bed.Stats().Pinned)
}

func (x *machine) read(t *rapid.T) {
	for _, isolation := range []Isolation{ReadUncommitted, LogEnd} {
		o := x.bed.Offsets()
		bound := o.bound(isolation)
		from := x.somewhere(t, "from")
		want := x.visible(from, bound)
		got, err := drain(x.bed.Records(ctx, from, WithIsolation(isolation)))
		require.NoError(t, err)
		x.compare(t, want, got)
		end := x.somewhere(t, "to")
		var part []modelRecord
		for _, r := range want {
			if r.offset < end {
				part = append(part, r)
			}
		}
		got, err = drain(x.bed.Records(ctx, from, WithIsolation(isolation), WithMaxOffset(end)))
		require.NoError(t, err)
		x.compare(t, part, got)
		got, err = drain(x.bed.Follow(expired, from, WithIsolation(isolation)))
		require.ErrorIs(t, err, context.Canceled)
		require.Empty(t, got)
		x.fetchAll(t, from, isolation, want)
		x.batches(t, from, isolation, want)
	}
	for _, out := range []int64{x.m.start - 1, x.m.end + 1} {
		_, err := drain(x.bed.Records(ctx, out))
		var r *OffsetRangeError
		require.ErrorAs(t, err, &r)
		require.Equal(t, OffsetRangeError{out, x.m.start, x.m.end}, *r)
	}
}

var expired = func() context.Context {
	c, cancel := context.WithCancel(context.Background())
	cancel()
	return c
}()

func (x *machine) batches(t *rapid.T, from int64, isolation Isolation, want []modelRecord) {
	var ranges [][2]int64
	for b, err := range x.bed.Batches(ctx, from, WithIsolation(isolation)) {
		require.NoError(t, err)
		require.NoError(t, b.Verify())
		ranges = append(ranges, [2]int64{b.BaseOffset(), b.LastOffset()})
	}
	var expect [][2]int64
	for _, r := range want {
		if n := len(expect); n == 0 || expect[n-1] != r.batch {
			expect = append(expect, r.batch)
		}
	}
	require.Equal(t, expect, ranges)
}

func (x *machine) fetchAll(t *rapid.T, from int64, isolation Isolation, want []modelRecord) {
	size := rapid.SampledFrom([]int64{1, 100, 300, 1 << 20}).Draw(t, "fetch size")
	var got []modelRecord
	for at := from; ; {
		f, err := x.bed.Fetch(ctx, at, FetchOptions{Isolation: isolation, MaxBytes: size})
		require.NoError(t, err)
		some, err := drain(f.Records())
		require.NoError(t, err)
		got = append(got, some...)
		raw := make([]byte, f.Len())
		if len(raw) > 0 {
			_, err = f.ReadAt(raw, 0)
			require.NoError(t, err)
		}
		var sent bytes.Buffer
		_, err = f.WriteTo(&sent)
		require.NoError(t, err)
		require.Equal(t, raw, append([]byte{}, sent.Bytes()...))
		whole, first := []byte{}, int64(0)
		for b, err := range f.Batches() {
			require.NoError(t, err)
			whole = append(whole, b.Bytes()...)
			if first == 0 {
				first = int64(b.Size())
			}
		}
		require.True(t, bytes.HasPrefix(raw, whole))
		require.LessOrEqual(t, f.Len(), max(size, first))
		next, err := f.NextOffset()
		require.NoError(t, err)
		empty := f.Len() == 0
		require.NoError(t, f.Close())
		if empty {
			break
		}
		require.Greater(t, next, at)
		at = next
	}
	x.compare(t, want, got)
}

// askTime compares with a scan by Kafka's rule over the segments as they are.
func (x *machine) askTime(t *rapid.T) {
	ts := epoch2023 + rapid.Int64Range(-1, 42).Draw(t, "time")*1000 - rapid.Int64Range(0, 1).Draw(t, "less")
	want := int64(-1)
	for i, s := range x.bed.SegmentInfos() {
		var largest, first int64 = -1, -1
		for _, r := range x.m.recs {
			if r.offset < s.Base || r.offset >= s.Next && i+1 < len(x.bed.SegmentInfos()) {
				continue
			}
			largest = max(largest, r.time)
			if first < 0 && r.time >= ts && r.offset >= x.m.start {
				first = r.offset
			}
		}
		if s.Bytes == 0 {
			largest = epoch2023 * 2 // its file is new
		}
		if largest >= ts {
			want = first
			break
		}
	}
	at, err := x.bed.OffsetForTime(ctx, time.UnixMilli(ts))
	if want < 0 || want >= x.bed.Offsets().HighWatermark {
		require.ErrorIs(t, err, ErrNotFound)
		return
	}
	require.NoError(t, err)
	require.Equal(t, want, at.Offset)
}

func (x *machine) askEpoch(t *rapid.T) {
	epoch := int32(rapid.IntRange(-1, 12).Draw(t, "epoch"))
	want := EpochEnd{-1, -1}
	es := x.m.epochs
	for i, e := range es {
		end := x.m.end
		if i+1 < len(es) {
			end = es[i+1].Start
		}
		if e.Epoch <= epoch && (e.Epoch == epoch || i+1 < len(es)) {
			want = EpochEnd{e.Epoch, end}
		}
	}
	if len(es) > 0 && epoch >= 0 && epoch < es[0].Epoch {
		want = EpochEnd{epoch, es[0].Start}
	}
	if len(es) > 0 && epoch > es[len(es)-1].Epoch {
		want = EpochEnd{-1, -1}
	}
	require.Equal(t, want, x.bed.EndOfEpoch(epoch))
}

// outside reads the folder beside the live log.
func (x *machine) outside(t *rapid.T) {
	r, err := OpenReader("t-0", ReaderOptions{FS: x.bed.fs})
	require.NoError(t, err)
	o := r.Offsets()
	require.Equal(t, [2]int64{x.m.start, x.m.end}, [2]int64{o.LogStart, o.LogEnd})
	from := x.somewhere(t, "from")
	got, err := drain(r.Records(ctx, from))
	require.NoError(t, err)
	x.compare(t, x.visible(from, x.m.end), got)
	require.NoError(t, r.Close())
}
