package log

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
)

// modelRecord is a record as the naive model keeps it.
type modelRecord struct {
	offset, time int64
	epoch        int32
	value        string
	batch        [2]int64 // base and last offset of its batch
}

// model is the whole log as a slice.
type model struct {
	recs       []modelRecord
	start, end int64
	epochs     []EpochEntry
	values     int
}

// machine drives a log and its model.
type machine struct {
	bed *bed
	m   model
}

func (x *machine) draw(t *rapid.T) []string {
	out := make([]string, rapid.IntRange(1, 4).Draw(t, "records"))
	for i := range out {
		x.m.values++
		out[i] = fmt.Sprint(x.m.values, string(bytes.Repeat([]byte{'v'}, rapid.IntRange(0, 60).Draw(t, "size"))))
	}
	return out
}

func (x *machine) times(t *rapid.T, n int) []int64 {
	out := make([]int64, n)
	for i := range out {
		out[i] = epoch2023 + rapid.Int64Range(0, 40).Draw(t, "time")*1000
	}
	return out
}

func (x *machine) batch(base int64, epoch int32, codec record.Codec, values []string, times []int64) []byte {
	b := record.NewBuilder(record.BuilderOptions{Codec: codec})
	for i, v := range values {
		if err := b.Add(record.Record{Timestamp: times[i], Value: []byte(v)}); err != nil {
			panic(err)
		}
	}
	batch, err := b.Finish()
	if err != nil {
		panic(err)
	}
	batch.SetBaseOffset(base)
	batch.SetLeaderEpoch(epoch)
	return bytes.Clone(batch.Bytes())
}

func (x *machine) note(base int64, epoch int32, values []string, times []int64) {
	for i, v := range values {
		x.m.recs = append(x.m.recs, modelRecord{base + int64(i), times[i], epoch, v, [2]int64{base, base + int64(len(values)) - 1}})
	}
	x.m.end = base + int64(len(values))
	x.assign(epoch, base)
}

func (x *machine) assign(epoch int32, start int64) {
	n := len(x.m.epochs)
	if n > 0 && x.m.epochs[n-1].Epoch >= epoch {
		return
	}
	for n > 0 && x.m.epochs[n-1].Start >= start {
		n-- // nothing was written in it
	}
	x.m.epochs = append(x.m.epochs[:n:n], EpochEntry{epoch, start})
}

func (x *machine) epoch() int32 {
	if n := len(x.m.epochs); n > 0 {
		return x.m.epochs[n-1].Epoch
	}
	return max(0, x.bed.newest)
}

func (x *machine) appendRecords(t *rapid.T) {
	values := x.draw(t)
	times := x.times(t, len(values))
	recs := values2records(values)
	for i := range recs {
		recs[i].Timestamp = times[i]
	}
	base, err := x.bed.Append(ctx, recs...)
	require.NoError(t, err)
	require.Equal(t, x.m.end, base)
	x.note(base, x.epoch(), values, times)
}

func (x *machine) lead(t *rapid.T) {
	values := x.draw(t)
	times := x.times(t, len(values))
	codec := record.Codec(rapid.IntRange(0, 4).Draw(t, "codec"))
	o := AppendOptions{}
	wrong := rapid.IntRange(0, 3).Draw(t, "expectation") == 0
	expected := x.m.end
	if wrong {
		expected += rapid.SampledFrom([]int64{-1, 1}).Draw(t, "off by")
	}
	if rapid.Bool().Draw(t, "expect") || wrong {
		o.ExpectedOffset = &expected
	}
	res, err := x.bed.AppendBatches(ctx, x.batch(0, -1, codec, values, times), o)
	if wrong {
		require.ErrorIs(t, err, ErrUnexpectedOffset)
		return
	}
	require.NoError(t, err)
	require.Equal(t, Appended{Base: x.m.end, Last: x.m.end + int64(len(values)) - 1, AppendTime: -1, LogStart: x.m.start}, res)
	x.note(res.Base, x.epoch(), values, times)
}

func (x *machine) followLeader(t *rapid.T) {
	at, epoch := x.m.end, x.epoch()
	var raw []byte
	type noted struct {
		base   int64
		epoch  int32
		values []string
		times  []int64
	}
	var all []noted
	for range rapid.IntRange(1, 3).Draw(t, "batches") {
		at += rapid.SampledFrom([]int64{0, 0, 0, 1, 5, 1 << 32}).Draw(t, "gap")
		epoch += rapid.SampledFrom([]int32{0, 0, 1, 3}).Draw(t, "epochs")
		values := x.draw(t)
		times := x.times(t, len(values))
		raw = append(raw, x.batch(at, epoch, record.Codec(rapid.IntRange(0, 4).Draw(t, "codec")), values, times)...)
		all = append(all, noted{at, epoch, values, times})
		at += int64(len(values))
	}
	if span := at - all[0].base; span > math.MaxInt32 {
		// One append goes into one segment: such a set does not fit.
		_, err := x.bed.follow(raw)
		require.Error(t, err)
		return
	}
	res, err := x.bed.follow(raw)
	require.NoError(t, err)
	require.Equal(t, [2]int64{all[0].base, at - 1}, [2]int64{res.Base, res.Last})
	for _, n := range all {
		x.note(n.base, n.epoch, n.values, n.times)
	}
}

func (x *machine) roll(t *rapid.T) { require.NoError(t, x.bed.Roll(ctx)) }

func (x *machine) assignEpoch(t *rapid.T) {
	epoch := x.epoch() + int32(rapid.IntRange(0, 2).Draw(t, "epochs"))
	require.NoError(t, x.bed.AssignEpoch(epoch))
	x.assign(epoch, x.m.end)
}

func (x *machine) somewhere(t *rapid.T, name string) int64 {
	lo, hi := x.m.start, x.m.end
	if n := len(x.m.recs); n > 0 && rapid.Bool().Draw(t, "at a record") {
		return max(lo, x.m.recs[rapid.IntRange(0, n-1).Draw(t, name)].offset)
	}
	return min(hi, lo+rapid.Int64Range(0, 40).Draw(t, name))
}

func (x *machine) truncate(t *rapid.T) {
	at := x.somewhere(t, "truncate to")
	end, err := x.bed.Truncate(ctx, at)
	require.NoError(t, err)
	want := at
	var kept []modelRecord
	for _, r := range x.m.recs {
		if r.batch[1] >= at {
			want = min(want, r.batch[0])
			continue
		}
		kept = append(kept, r)
	}
	require.LessOrEqual(t, end, want)
	if n := len(kept); n > 0 {
		require.GreaterOrEqual(t, end, kept[n-1].offset+1)
	}
	if at < x.m.end {
		x.m.recs, x.m.end = kept, end
	}
	x.m.start = min(x.m.start, x.m.end)
	for n := len(x.m.epochs); n > 0 && x.m.epochs[n-1].Start >= x.m.end; n-- {
		x.m.epochs = x.m.epochs[:n-1]
	}
}

func (x *machine) reset(t *rapid.T) {
	at := rapid.SampledFrom([]int64{0, 7, 1 << 31, 1 << 40}).Draw(t, "reset to")
	require.NoError(t, x.bed.ResetTo(ctx, at))
	x.m.recs, x.m.start, x.m.end, x.m.epochs = nil, at, at, nil
}

func (x *machine) deleteRecords(t *rapid.T) {
	at := x.somewhere(t, "delete below")
	err := x.bed.DeleteRecords(ctx, at)
	if at > x.bed.Offsets().HighWatermark {
		require.ErrorIs(t, err, ErrOffsetOutOfRange)
		return
	}
	require.NoError(t, err)
	if at <= x.m.start {
		return
	}
	x.m.start = at
	var epochs []EpochEntry
	for i, e := range x.m.epochs {
		if i+1 < len(x.m.epochs) && x.m.epochs[i+1].Start <= at {
			continue
		}
		epochs = append(epochs, EpochEntry{e.Epoch, max(e.Start, at)})
	}
	x.m.epochs = epochs
}

func (x *machine) reopen(t *rapid.T) {
	hw := x.bed.Offsets().HighWatermark
	require.NoError(t, x.bed.dir.Close())
	x.bed.open()
	require.Equal(t, hw, x.bed.Offsets().HighWatermark)
	require.True(t, x.bed.Recovery().Clean)
	require.Empty(t, x.bed.Recovery().Findings)
	for n := len(x.m.epochs); n > 0 && x.m.epochs[n-1].Start >= x.m.end; n-- {
		x.m.epochs = x.m.epochs[:n-1] // an epoch without records is dropped by loading
	}
	if len(x.m.recs) > 0 && x.m.recs[0].offset < x.m.start {
		x.m.epochs = x.bed.Epochs() // batches below the start have a say: what follows must not fall below them
		for _, r := range x.m.recs {
			if r.offset >= x.m.start {
				require.True(t, x.covers(r), "record %d of epoch %d: %v", r.offset, r.epoch, x.m.epochs)
			}
		}
	}
}

// covers says whether the epochs place a record in its own.
func (x *machine) covers(r modelRecord) bool {
	epoch := int32(-1)
	for _, e := range x.m.epochs {
		if e.Start <= r.offset {
			epoch = e.Epoch
		}
	}
	return epoch == r.epoch
}

func (x *machine) show(t *rapid.T) {
	if x.bed.cfg.Visibility != External {
		return
	}
	at := x.somewhere(t, "high watermark")
	got, err := x.bed.SetHighWatermark(at)
	require.NoError(t, err)
	require.Equal(t, min(max(at, x.m.start), x.m.end), got)
}

func TestALogBehavesLikeASlice(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		fsys := vfs.Mem()
		if rapid.IntRange(0, 7).Draw(t, "file system") == 0 {
			root, err := os.MkdirTemp(dir, "model")
			require.NoError(t, err)
			fsys, err = vfs.OS(root)
			require.NoError(t, err)
		}
		c := Config{
			SegmentBytes:       rapid.SampledFrom([]int64{1200, 3000, 1 << 20}).Draw(t, "segment"),
			IndexIntervalBytes: rapid.SampledFrom([]int64{EveryBatch, 150, 4096}).Draw(t, "interval"),
			IndexBytes:         rapid.SampledFrom([]int64{60, 10 << 20}).Draw(t, "index"),
			SegmentAge:         rapid.SampledFrom([]time.Duration{10 * time.Second, week}).Draw(t, "age"),
			Durability:         rapid.SampledFrom([]Durability{Durable, Buffered}).Draw(t, "durability"),
			Visibility:         rapid.SampledFrom([]Visibility{WhenAcknowledged, External}).Draw(t, "visibility"),
		}
		x := &machine{bed: &bed{t: t, fs: fsys, cfg: c, clock: &clock{}}}
		x.bed.clock.ms.Store(epoch2023 + 50_000)
		x.bed.open()
		defer func() {
			if err := x.bed.dir.Close(); err != nil && !errors.Is(err, ErrClosed) {
				t.Fatal(err)
			}
		}()
		t.Repeat(map[string]func(*rapid.T){
			"":              x.check,
			"append":        x.appendRecords,
			"append more":   x.appendRecords,
			"lead":          x.lead,
			"follow":        x.followLeader,
			"roll":          x.roll,
			"assign epoch":  x.assignEpoch,
			"truncate":      x.truncate,
			"reset":         x.reset,
			"deleteRecords": x.deleteRecords,
			"reopen":        x.reopen,
			"show":          x.show,
			"read":          x.read,
			"time":          x.askTime,
			"epoch":         x.askEpoch,
			"outside":       x.outside,
		})
	})
}
