package record

import (
	"bytes"
	"cmp"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// agree holds the quick ways to the full parser on the bytes of a batch that claims to hold count records.
func agree(t require.TestingT, p []byte, count int) {
	agreeTogether(t, p, count, 3)
	d := &Decoder{}
	full, quick := reader{d: d, p: p, base: 7, baseTime: 1000, left: count}, reader{}
	least, most, keys := int64(math.MaxInt64), int64(math.MinInt64), true
	sound := true
	for ; full.left > 0; full.left-- {
		quick = full
		var want, got Record
		var first [1]Record
		accepted := quick.quick(first[:]) == 1
		got = first[0]
		reason := full.parse(&want)
		if accepted {
			if reason != "" || !alike(want, got) || len(full.p) != len(quick.p) {
				require.Equal(t, want, got, "the parser says %q, and goes on at %d against %d", reason, len(full.p), len(quick.p))
				require.Empty(t, reason)
				require.Equal(t, len(full.p), len(quick.p))
			}
		}
		if sound = sound && reason == ""; !sound {
			break
		}
		least, most, keys = min(least, want.Timestamp-1000), max(most, want.Timestamp-1000), keys && want.Key != nil
	}
	gotLeast, gotMost, gotKeys, ok := skim(p, count)
	if ok && count > 0 {
		if !sound || least != gotLeast || most != gotMost || keys != gotKeys {
			require.True(t, sound, "skimming took what the parser refuses")
			require.Equal(t, []any{least, most, keys}, []any{gotLeast, gotMost, gotKeys})
		}
	}
}

// agreeTogether is agree for records that are parsed room at a time, where those that look like the one before are taken
// for sound as it was.
func agreeTogether(t require.TestingT, p []byte, count, room int) {
	full := reader{d: &Decoder{}, p: p, base: 7, baseTime: 1000, left: count}
	quick := full
	out := make([]Record, room)
	for {
		clear(out)
		n := quick.quick(out)
		for i, got := range out[:n] {
			var want Record
			if reason := full.parse(&want); reason != "" || !alike(want, got) {
				require.Equal(t, want, got, "record %d of %d, the parser says %q", i, n, reason)
				require.Empty(t, reason)
			}
			full.left--
			full.index++
		}
		if len(full.p) != len(quick.p) || full.left != quick.left || full.index != quick.index {
			require.Equal(t, []int{len(full.p), full.left, full.index}, []int{len(quick.p), quick.left, quick.index})
		}
		if n == 0 {
			return
		}
	}
}

func alike(a, b Record) bool {
	return a.Offset == b.Offset && a.Timestamp == b.Timestamp && len(a.Headers) == len(b.Headers) &&
		bytes.Equal(a.Key, b.Key) && (a.Key == nil) == (b.Key == nil) && bytes.Equal(a.Value, b.Value) && (a.Value == nil) == (b.Value == nil)
}

// edges are lengths around which an encoded number gets another byte.
var edges = []int{0, 1, 2, 5, 6, 7, 62, 63, 64, 65, 100, 8189, 8190, 8191, 8192, 8193}

func drawBytes(t *rapid.T, name string) []byte {
	n := rapid.SampledFrom(append([]int{-1}, edges...)).Draw(t, name)
	if n < 0 {
		return nil
	}
	return make([]byte, n)
}

func TestQuickWaysAgreeWithTheFullOnes(t *testing.T) {
	deltas := []int64{0, 1, -1, 63, 64, -64, -65, 8191, 8192, -8192, -8193, 1 << 20, 1<<34 - 1, 1 << 34, -1 << 34, 1 << 40, math.MaxInt64, math.MinInt64}
	offsets := []int64{0, 1, 63, 64, 8191, 8192, 1 << 20, math.MaxInt32}
	rapid.Check(t, func(t *rapid.T) {
		count := rapid.IntRange(1, 4).Draw(t, "records")
		var p []byte
		for range count {
			r := Record{Key: drawBytes(t, "key"), Value: drawBytes(t, "value")}
			if rapid.IntRange(0, 9).Draw(t, "headers") == 0 {
				r.Headers = []Header{{Key: "h", Value: drawBytes(t, "header")}}
			}
			time, offset := rapid.SampledFrom(deltas).Draw(t, "time"), rapid.SampledFrom(offsets).Draw(t, "offset")
			want := r.appendTo(p[:len(p):len(p)], r.bodySize(time, offset), time, offset)
			if got, ok := r.appendQuick(p[:len(p):len(p)], time, offset); ok {
				require.Equal(t, want, got)
			}
			p = want
		}
		agree(t, p, count)
		for range rapid.IntRange(0, 3).Draw(t, "damages") {
			at := rapid.IntRange(0, len(p)-1).Draw(t, "at")
			p[at] = rapid.SampledFrom([]byte{0, 1, 2, 3, 0x7e, 0x7f, 0x80, 0x81, 0xff}).Draw(t, "byte")
		}
		agree(t, p, count)
		agree(t, p, count+1)
		agree(t, append(p, rapid.SliceOfN(rapid.Byte(), 1, 20).Draw(t, "behind")...), count)
		agree(t, p[:len(p)-min(len(p)-1, rapid.IntRange(1, 3).Draw(t, "cut"))], count)
	})
}

// Every byte of two ordinary records in turn is given every value, and the bytes behind them are cut or go on.
func TestQuickWaysAgreeOnEveryChangeOfOneByte(t *testing.T) {
	for _, r := range []Record{
		{Key: []byte("a key"), Value: []byte("a value")},
		{Key: make([]byte, 70), Value: make([]byte, 70)},
		{Value: []byte("a longer value")},
		{Key: []byte("a longer key")},
	} {
		for _, time := range []int64{0, 300, 1 << 30} {
			var p []byte
			for range 2 {
				p = r.appendTo(p, r.bodySize(time, 100), time, 100)
			}
			for at := range p {
				was := p[at]
				for change := range 256 {
					p[at] = byte(change)
					agree(t, p, 2)
				}
				p[at] = was
			}
			for cut := range p {
				agree(t, p[:cut], 2)
				agree(t, p[:cut], 1)
			}
			agree(t, append(p, make([]byte, 20)...), 2)
		}
	}
}

// The same for records that look alike, which skimming then expects of the next one.
func TestQuickWaysAgreeOnEveryChangeOfOneAmongAlike(t *testing.T) {
	for _, r := range []Record{
		{Key: []byte("a key"), Value: []byte("a value")},
		{Key: make([]byte, 70), Value: make([]byte, 70)},
		{Key: []byte("a longer key")},
		{Key: []byte("a longer key"), Value: []byte{}},
		{Value: []byte("a longer value")},
	} {
		for _, first := range []int64{0, 62, 100} { // their offsets begin to take two bytes at 64
			var p []byte
			starts := make([]int, 5)
			for i := range starts {
				starts[i] = len(p)
				offset := first + int64(i)
				p = r.appendTo(p, r.bodySize(int64(i), offset), int64(i), offset)
			}
			for n := 1; n <= 6; n++ { // up to all, and one more
				agree(t, p, n)
			}
			agree(t, append(p[:len(p):len(p)], 0), 5)
			for at := starts[2]; at < len(p); at++ {
				was := p[at]
				for change := range 256 {
					p[at] = byte(change)
					agree(t, p, 5)
				}
				p[at] = was
				agree(t, p[:at], 5)
				agree(t, p[:at], 4)
			}
		}
	}
}

// A number that takes a third byte, all else being in its place, is none for the quick ways.
func TestQuickWaysLeaveLongNumbersToTheParser(t *testing.T) {
	body := func(numbers ...[]byte) []byte {
		b := []byte{0}
		for _, n := range numbers {
			b = append(b, n...)
		}
		return append([]byte{byte(2 * len(b))}, b...)
	}
	zero, three := []byte{0}, []byte{0x80, 0x80, 0}
	padding := append([]byte{20}, make([]byte, 10)...)
	for i, p := range [][]byte{
		body(three, zero, padding, padding, zero),
		body(zero, three, padding, padding, zero),
		body(zero, zero, append(three[:2:2], 0), padding, zero),
		body(zero, zero, padding, three, zero),
		body(zero, zero, padding, padding, three),
		body([]byte{0x80, 0x80, 0x80, 0x80, 0x80, 0}, zero, padding, padding, zero),
		append([]byte{0xac, 0x80, 0}, make([]byte, 22)...),
	} {
		agree(t, p, 1)
		in := reader{p: p, left: 1}
		require.Equal(t, i == 0, in.quick(make([]Record, 2)) == 1, "row %d", i) // times may take five
	}
}

// The records that most logs are made of do take the quick ways: without this the tests above could pass idly.
func TestOrdinaryRecordsTakeTheQuickWays(t *testing.T) {
	r := Record{Key: make([]byte, 16), Value: make([]byte, 100)}
	p, ok := r.appendQuick(nil, 70, 90)
	require.True(t, ok)
	var got [3]Record
	in := reader{p: append(p, p...), left: 2}
	require.Equal(t, 2, in.quick(got[:]))
	require.Equal(t, Record{Offset: 90, Timestamp: 70, Key: r.Key, Value: r.Value}, got[0])
	require.Equal(t, got[0], got[1])
	require.Zero(t, got[2])
	require.Empty(t, in.p)

	// Those alike stay on it from one call to the next, and those without keys do, too.
	for _, r := range []Record{r, {Value: r.Value}} {
		p, _ := r.appendQuick(nil, 1, 2)
		in := reader{p: bytes.Repeat(p, 9), left: 9}
		require.Equal(t, 3, in.quick(got[:]))
		was := in.like
		require.Equal(t, len(p), was.size)
		in.like.key = was.value // a shape of no keys
		require.Equal(t, 3, in.quick(got[:]))
		require.Nil(t, got[0].Key, "the shape was not kept")
		in.like.same++ // none is like this
		require.Equal(t, 3, in.quick(got[:]))
		require.Equal(t, r.Key, got[2].Key)
	}
	least, most, keys, ok := skim(append(p, p...), 2)
	require.Equal(t, []any{int64(70), int64(70), true, true}, []any{least, most, keys, ok})

	b := buildAll(t, BuilderOptions{}, 0, keyedLong(now, now+5)...)
	o := topic()
	v := validation{o: o}
	require.True(t, v.skim(b))
	require.Equal(t, now+5, v.max)
}

func keyedLong(times ...int64) (all []Record) {
	for i, ms := range times {
		all = append(all, Record{Offset: int64(i), Timestamp: ms, Key: []byte("a key"), Value: []byte("a value")})
	}
	return all
}

// What skimming lets pass the slow walk lets pass with the same result, at the edges of the time bounds and beyond.
func TestSkimmingKeepsTheRulesOfTheTopic(t *testing.T) {
	for _, c := range []struct {
		name   string
		times  []int64
		change func(o *ValidateOptions)
	}{
		{"within", []int64{now, now + 1}, func(*ValidateOptions) {}},
		{"at the bounds", []int64{now - 10, now + 10}, func(o *ValidateOptions) { o.TimestampBefore, o.TimestampAfter = 10, 10 }},
		{"too old", []int64{now, now - 11}, func(o *ValidateOptions) { o.TimestampBefore, o.TimestampAfter = 10, 10 }},
		{"too new", []int64{now, now + 11}, func(o *ValidateOptions) { o.TimestampBefore, o.TimestampAfter = 10, 10 }},
		{"no time", []int64{NoTimestamp, now}, func(*ValidateOptions) {}},
		{"1970", []int64{0, 1}, func(o *ValidateOptions) { o.TimestampBefore = math.MaxInt64 }},
		{"the end of time", []int64{math.MaxInt64 - 1}, func(*ValidateOptions) {}},
		{"LogAppendTime", []int64{5, 6}, func(o *ValidateOptions) { o.TimestampType = LogAppendTime }},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := topic()
			o.Now, o.TimestampBefore, o.TimestampAfter = now, -1, -1
			c.change(&o)
			b := buildAll(t, BuilderOptions{}, 0, keyedLong(c.times...)...)
			skimmed := validation{o: o, max: NoTimestamp}
			walked := validation{o: o, max: NoTimestamp}
			ok := skimmed.skim(b)
			for i, r := range collect(t, b) {
				walked.check(i, &r, "")
			}
			require.True(t, !ok || walked.errs == nil, "skimmed over a record that is refused")
			if ok {
				require.Equal(t, walked.max, skimmed.max)
			}
		})
	}
	t.Run("a null key in a compacted topic", func(t *testing.T) {
		o := topic()
		o.Compacted = true
		v := validation{o: o}
		require.False(t, v.skim(buildAll(t, BuilderOptions{}, 0, Record{Timestamp: now, Value: []byte("a long value")})))
	})
}

func FuzzQuickWaysAgree(f *testing.F) {
	for _, sample := range [][]byte{sampleA, sampleB, sampleC, sampleE} {
		f.Add(sample[HeaderSize:], 1)
	}
	long := Record{Key: make([]byte, 16), Value: make([]byte, 100)}
	p, _ := long.appendQuick(nil, 0, 0)
	p, _ = long.appendQuick(p, 300000, 100)
	f.Add(p, 2)
	f.Fuzz(func(t *testing.T, p []byte, count int) {
		if count >= 0 && count < 1000 {
			agree(t, p, count)
		}
	})
}

// Passing over records changes nothing for who wants those from an offset on, whatever the batch looks like inside.
func TestRecordsFromGivesAllFromAnOffset(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := NewBuilder(BuilderOptions{Codec: rapid.SampledFrom([]Codec{None, LZ4}).Draw(t, "codec")})
		base := rapid.SampledFrom([]int64{0, 1000, 1 << 40}).Draw(t, "base")
		b.SetBaseOffset(base)
		next := base
		for range rapid.IntRange(1, 12).Draw(t, "records") {
			next += rapid.SampledFrom([]int64{0, 0, 1, 60, 9000}).Draw(t, "gap")
			r := Record{Offset: next, Timestamp: now + rapid.Int64Range(-1<<36, 1<<36).Draw(t, "time"), Key: drawBytes(t, "key"), Value: drawBytes(t, "value")}
			require.NoError(t, b.AddAt(r))
			next++
		}
		batch, err := b.Finish()
		require.NoError(t, err)
		from := rapid.Int64Range(base-1, next+1).Draw(t, "from")
		var want, got []int64
		for r, err := range batch.Records(nil) {
			require.NoError(t, err)
			if r.Offset >= from {
				want = append(want, r.Offset)
			}
		}
		for r, err := range batch.RecordsFrom(nil, from) {
			require.NoError(t, err)
			if r.Offset >= from {
				got = append(got, r.Offset)
			}
		}
		require.Equal(t, want, got)
	})
}

func TestStepsGoThroughTheRecordsAndEndOnce(t *testing.T) {
	batch := buildAll(t, BuilderOptions{Codec: LZ4}, 40,
		Record{Offset: 40, Key: []byte("a"), Value: []byte("b")}, Record{Offset: 41, Value: make([]byte, 300)}, Record{Offset: 42})
	var s Steps
	require.NoError(t, s.Begin(batch, nil, 0))
	for r := range batch.Records(nil) {
		require.True(t, s.Next())
		require.Equal(t, r, *s.Record())
	}
	require.False(t, s.Next())
	require.False(t, s.Next())
	require.NoError(t, s.Err())

	short := buildAll(t, BuilderOptions{}, 0, Record{Value: []byte("x")}, Record{Offset: 1, Value: []byte("y")})
	short.b[len(short.b)-1] = 2 // one header that is not there
	require.NoError(t, s.Begin(short, NewDecoder(Limits{}), 0))
	require.True(t, s.Next())
	require.False(t, s.Next())
	require.ErrorIs(t, s.Err(), ErrCorrupt)
	require.False(t, s.Next())

	old, err := View(appendLegacy(nil, legacyEntry{magic: 1}))
	require.NoError(t, err)
	require.ErrorIs(t, s.Begin(old, nil, 0), ErrCorrupt)
}

func TestRecordsFromPassesOverOrdinaryRecords(t *testing.T) {
	var records []Record
	for i := range 100 {
		records = append(records, Record{Offset: int64(i), Timestamp: now + int64(i), Key: make([]byte, 16), Value: make([]byte, 100)})
	}
	for r := range buildAll(t, BuilderOptions{}, 0, records...).RecordsFrom(nil, 73) {
		require.Equal(t, int64(73), r.Offset)
		break
	}
}

// Records as long as the one before are passed over in a loop of their own, and not all of them are otherwise like it.
func TestRecordsFromAmongThoseOfOneLengthGivesAllFromAnOffset(t *testing.T) {
	const size = 120
	rapid.Check(t, func(t *rapid.T) {
		b := NewBuilder(BuilderOptions{})
		gaps := rapid.SampledFrom([][]int64{{0}, {0, 0, 0, 1}, {0, 0, 0, 20, 60}, {0, 0, 0, 8130}}).Draw(t, "gaps")
		times := rapid.SampledFrom([][]int64{{1}, {0, 1, 2}, {0, 0, 0, 0, 64, 9000}}).Draw(t, "times")
		var offsets []int64
		for next := int64(0); len(offsets) < 80; next++ {
			next += rapid.SampledFrom(gaps).Draw(t, "gap")
			r := Record{Offset: next}
			delta := rapid.SampledFrom(times).Draw(t, "time")
			if r.Timestamp = now + delta; len(offsets) == 0 {
				r.Timestamp, delta = now, 0
			}
			r.Value = make([]byte, size)
			r.Value = r.Value[:size-int(r.bodySize(delta, next)-size)]
			require.EqualValues(t, size, r.bodySize(delta, next))
			require.NoError(t, b.AddAt(r))
			offsets = append(offsets, next)
		}
		batch, err := b.Finish()
		require.NoError(t, err)
		for i := range offsets {
			at := i
			for got, err := range batch.RecordsFrom(nil, offsets[i]) {
				require.NoError(t, err)
				if got.Offset >= offsets[i] {
					require.Equal(t, offsets[at], got.Offset)
					at++
				}
			}
			require.Equal(t, len(offsets), at)
		}
	})
}

// The end of a batch is looked at, too, by who wants nothing that is in it.
func TestRecordsFromBehindTheLastOneSeesBytesLeftOver(t *testing.T) {
	r := Record{Key: make([]byte, 16), Value: make([]byte, 100)}
	for n := 1; n < 10; n++ {
		var records []Record
		for i := range n {
			r.Offset, r.Timestamp = int64(i), now
			records = append(records, r)
		}
		batch := buildAll(t, BuilderOptions{}, 0, records...)
		batch.b = append(batch.b, 0)
		var seen error
		for _, err := range batch.RecordsFrom(nil, 1000) {
			seen = err
		}
		require.ErrorIs(t, seen, ErrCorrupt, "%d records", n)
	}
}

// AddRef makes the batches that Add makes.
func TestAddRefIsAddWithTheTimeOfTheCaller(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind := TimestampType(rapid.IntRange(0, 1).Draw(t, "type"))
		clock := func() time.Time { return time.UnixMilli(now) }
		one, other := NewBuilder(BuilderOptions{TimestampType: kind, Now: clock}), NewBuilder(BuilderOptions{TimestampType: kind, Now: clock})
		base := rapid.SampledFrom([]int64{0, 5, math.MaxInt64 - 3}).Draw(t, "base")
		one.SetBaseOffset(base)
		other.SetBaseOffset(base)
		for range rapid.IntRange(1, 6).Draw(t, "records") {
			r := Record{Key: drawBytes(t, "key"), Value: drawBytes(t, "value"), Offset: 77}
			r.Timestamp = rapid.SampledFrom([]int64{-2, -1, 1, now, now + 100, now - 100, math.MaxInt64}).Draw(t, "time")
			kept := r
			err, otherErr := one.Add(r), other.AddRef(&r, r.Timestamp)
			require.Equal(t, err, otherErr)
			require.Equal(t, kept, r)
			require.Equal(t, []int{one.Len(), one.Count()}, []int{other.Len(), other.Count()})
		}
		want, err := one.Finish()
		got, otherErr := other.Finish()
		require.Equal(t, err, otherErr)
		if err == nil {
			require.Equal(t, want.Bytes(), got.Bytes())
			require.Error(t, other.AddRef(&Record{}, now), "it is finished")
		}
	})
}

func TestAddRefsIsAddRefAgainAndAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind := TimestampType(rapid.IntRange(0, 1).Draw(t, "type"))
		clock := func() time.Time { return time.UnixMilli(now) }
		one, other := NewBuilder(BuilderOptions{TimestampType: kind, Now: clock}), NewBuilder(BuilderOptions{TimestampType: kind, Now: clock})
		base := rapid.SampledFrom([]int64{0, 5, math.MaxInt64 - 3}).Draw(t, "base")
		one.SetBaseOffset(base)
		other.SetBaseOffset(base)
		recs := make([]Record, rapid.IntRange(1, 80).Draw(t, "records"))
		for i := range recs {
			recs[i] = Record{Key: []byte("key"), Value: []byte("value")}
			switch rapid.IntRange(0, 30).Draw(t, "odd") {
			case 0:
				recs[i] = Record{Key: drawBytes(t, "key"), Value: drawBytes(t, "value")}
			case 1:
				recs[i].Headers = []Header{{Key: "h"}}
			}
			recs[i].Timestamp = rapid.SampledFrom([]int64{0, 0, 0, 0, 0, -2, -1, 1, now + 1, now - 100, math.MaxInt64}).Draw(t, "time")
		}
		most := rapid.IntRange(100, 2000).Draw(t, "most")
		require.Zero(t, other.AddRefs(recs, now, most), "the first one makes the header")
		for i := 0; i < len(recs); i++ {
			before := other.Len()
			if n := other.AddRefs(recs[i:], now, most); n > 0 {
				for j := i; j < i+n; j++ {
					require.NoError(t, one.AddRef(&recs[j], cmp.Or(recs[j].Timestamp, now)))
				}
				i += n
				require.LessOrEqual(t, other.Len(), max(before, most))
			}
			if i == len(recs) {
				break
			}
			err := one.AddRef(&recs[i], cmp.Or(recs[i].Timestamp, now))
			require.Equal(t, err, other.AddRef(&recs[i], cmp.Or(recs[i].Timestamp, now)))
			require.Equal(t, []int{one.Len(), one.Count()}, []int{other.Len(), other.Count()})
		}
		want, err := one.Finish()
		got, otherErr := other.Finish()
		require.Equal(t, err, otherErr)
		if err == nil {
			require.Equal(t, want.Bytes(), got.Bytes())
			require.Zero(t, other.AddRefs(recs, now, most), "it is finished")
		}
	})
}
