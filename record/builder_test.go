package record

import (
	"bytes"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestAddAssignsOffsetsAndTheTime(t *testing.T) {
	b := NewBuilder(BuilderOptions{Now: func() time.Time { return timeOf(now) }})
	require.NoError(t, b.Add(Record{Offset: 99, Value: []byte("a")}))
	require.NoError(t, b.Add(Record{Offset: 5, Timestamp: NoTimestamp}))
	require.NoError(t, b.Add(Record{Timestamp: 7}))
	require.Equal(t, 3, b.Count())
	batch, err := b.Finish()
	require.NoError(t, err)
	require.Equal(t, b.Len(), batch.Size())
	require.Equal(t, []Record{{Timestamp: now, Value: []byte("a")}, {Offset: 1, Timestamp: -1}, {Offset: 2, Timestamp: 7}}, collect(t, batch))
	require.Equal(t, now, batch.MaxTimestamp())
	require.Equal(t, NoEpoch, batch.LeaderEpoch())

	b.Reset()
	require.NoError(t, b.Add(Record{Timestamp: NoTimestamp}))
	batch, err = b.Finish()
	require.NoError(t, err)
	require.Equal(t, NoTimestamp, batch.MaxTimestamp())
	require.Equal(t, NoTimestamp, batch.BaseTimestamp())
}

func TestLogAppendTimeBuilderStampsTheFinish(t *testing.T) {
	b := NewBuilder(BuilderOptions{TimestampType: LogAppendTime, Now: func() time.Time { return timeOf(now) }})
	require.NoError(t, b.Add(Record{Timestamp: 5}))
	batch, err := b.Finish()
	require.NoError(t, err)
	require.Equal(t, LogAppendTime, batch.TimestampType())
	require.Equal(t, now, batch.MaxTimestamp())
	require.Equal(t, now, collect(t, batch)[0].Timestamp)
	require.Equal(t, int64(5), batch.BaseTimestamp())
}

func TestBuilderRefusesAndStaysAsItWas(t *testing.T) {
	b := NewBuilder(BuilderOptions{})
	b.SetBaseOffset(100)
	require.ErrorIs(t, b.AddAt(Record{Offset: 99}), ErrInvalidRecord)
	require.NoError(t, b.AddAt(Record{Offset: 102, Timestamp: 5}))
	before := b.Len()
	require.ErrorIs(t, b.AddAt(Record{Offset: 102}), ErrInvalidRecord)
	require.ErrorIs(t, b.AddAt(Record{Offset: 101}), ErrInvalidRecord)
	require.ErrorIs(t, b.AddAt(Record{Offset: 100 + math.MaxInt32 + 1}), ErrInvalidRecord)
	require.ErrorIs(t, b.AddAt(Record{Offset: 103, Timestamp: -2}), ErrInvalidTimestamp)
	require.Equal(t, before, b.Len())
	require.NoError(t, b.AddAt(Record{Offset: 100 + math.MaxInt32, Timestamp: 6}))
	batch, err := b.Finish()
	require.NoError(t, err)
	require.Equal(t, []int64{100, 100 + math.MaxInt32, 2, 6}, []int64{batch.BaseOffset(), batch.LastOffset(), int64(batch.Count()), batch.MaxTimestamp()})
	require.NoError(t, batch.Verify())
	require.Error(t, b.Add(Record{}), "finished")
	_, err = b.Finish()
	require.Error(t, err, "finished")

	b.Reset()
	_, err = b.Finish()
	require.ErrorIs(t, err, ErrEmpty)
	b.SetBaseOffset(-1)
	require.ErrorIs(t, b.Add(Record{}), ErrInvalidRecord)
	b.Reset()
	b.SetDeleteHorizon(-1)
	require.ErrorIs(t, b.Add(Record{}), ErrInvalidRecord)
	b.Reset()
	b.SetBaseOffset(math.MaxInt64)
	require.ErrorIs(t, b.Add(Record{}), ErrInvalidRecord)
}

func TestOptionsThatNoBatchMayHave(t *testing.T) {
	for name, o := range map[string]BuilderOptions{
		"transactional without producer": {Producer: &Producer{ID: -1, Transactional: true}},
		"negative producer":              {Producer: &Producer{ID: -5}},
		"negative epoch":                 {Producer: &Producer{Epoch: -1}},
		"negative sequence":              {Producer: &Producer{BaseSequence: -1}},
		"unknown codec":                  {Codec: 5},
		"unknown level":                  {Codec: Gzip, Level: 10},
	} {
		t.Run(name, func(t *testing.T) {
			b := NewBuilder(o)
			err := b.Add(Record{})
			if err == nil {
				_, err = b.Finish()
			}
			require.Error(t, err)
		})
	}
}

func TestSetProducerBetweenBatches(t *testing.T) {
	b := NewBuilder(BuilderOptions{})
	p := &Producer{ID: 4, Epoch: 1}
	b.SetBaseOffset(10)
	b.SetProducer(p)
	require.NoError(t, b.Add(Record{Timestamp: 1}))
	batch, err := b.Finish()
	require.NoError(t, err)
	require.Equal(t, int64(10), batch.BaseOffset())
	require.Equal(t, int32(0), batch.LastSequence())
	p.BaseSequence = 1
	b.Reset()
	b.SetProducer(p)
	require.NoError(t, b.Add(Record{Timestamp: 1}))
	batch, err = b.Finish()
	require.NoError(t, err)
	require.Equal(t, int32(1), batch.LastSequence())
	p.BaseSequence = 9
	b.Reset()
	require.NoError(t, b.Add(Record{Timestamp: 1}))
	b.SetProducer(nil)
	batch, err = b.Finish()
	require.NoError(t, err)
	require.Equal(t, int32(-1), batch.LastSequence())
}

func TestBuilderGivesALargeBufferBackWhenNoLongerNeeded(t *testing.T) {
	b := NewBuilder(BuilderOptions{})
	require.NoError(t, b.Add(Record{Timestamp: 1, Value: make([]byte, 4<<20)}))
	for range keepFor + 2 {
		b.Reset()
		require.NoError(t, b.Add(Record{Timestamp: 1}))
	}
	require.Less(t, cap(b.buf), 1<<20)
}

func TestBuilderAllocatesNothingInSteadyState(t *testing.T) {
	b := NewBuilder(BuilderOptions{})
	r := Record{Key: make([]byte, 16), Value: make([]byte, 100), Headers: []Header{{Key: "h", Value: []byte("x")}}}
	build := func() {
		b.Reset()
		for range 100 {
			if err := b.Add(r); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := b.Finish(); err != nil {
			t.Fatal(err)
		}
	}
	build()
	require.Zero(t, testing.AllocsPerRun(50, build))
}

// Scenario: D015
func TestBuilderGrowsAndLosesNothing(t *testing.T) {
	b := NewBuilder(BuilderOptions{})
	var want []Record
	for i := range 300 {
		r := Record{Offset: int64(i), Timestamp: int64(i + 1), Value: bytes.Repeat([]byte{byte(i)}, i*10)}
		require.NoError(t, b.AddAt(r))
		want = append(want, r)
	}
	batch, err := b.Finish()
	require.NoError(t, err)
	require.Equal(t, want, collect(t, batch))
}

// filter rewrites batches as compaction does, with the given choice of records.
func filter(t testing.TB, raw []byte, keep func(Record) bool, keepEmpty bool) (out []byte, read, kept int) {
	t.Helper()
	builder := NewBuilder(BuilderOptions{})
	for len(raw) > 0 {
		b, rest, err := Next(raw)
		require.NoError(t, err)
		raw = rest
		require.NoError(t, builder.Rebuild(b, NoTimestamp))
		for r, err := range b.Records(nil) {
			require.NoError(t, err)
			read++
			if keep(r) {
				require.NoError(t, builder.AddAt(r))
			}
		}
		kept += builder.Count()
		if builder.Count() == 0 && !keepEmpty {
			continue
		}
		rebuilt, err := builder.Finish()
		require.NoError(t, err)
		require.NoError(t, rebuilt.Verify())
		out = append(out, rebuilt.Bytes()...)
	}
	return out, read, kept
}

func batches(t testing.TB, raw []byte) []Batch {
	t.Helper()
	var all []Batch
	for len(raw) > 0 {
		b, rest, err := Next(raw)
		require.NoError(t, err)
		all, raw = append(all, b), rest
	}
	return all
}

func hasKey(r Record) bool { return r.Key != nil }

// Scenario: D010
// Scenario: D014
func TestFilteredBatchesKeepTheirLastOffset(t *testing.T) {
	for _, c := range allCodecs {
		make := func(base int64, from int64, keys ...string) []byte {
			var records []Record
			for i, k := range keys {
				r := Record{Offset: base + int64(i), Timestamp: from + int64(i), Value: []byte("v")}
				if k != "" {
					r.Key = []byte(k)
				}
				records = append(records, r)
			}
			return bytes.Clone(buildAll(t, BuilderOptions{Codec: c}, base, records...).Bytes())
		}
		raw := bytes.Join([][]byte{make(0, 10, ""), make(1, 11, "1", ""), make(3, 20, "4", "5", "6"), make(6, 16, "7")}, nil)
		// the largest timestamp of (3,5) is that of a kept record, of (1,2) not of the dropped one
		out, read, kept := filter(t, raw, func(r Record) bool { return hasKey(r) && r.Offset != 4 && r.Offset != 5 }, false)
		require.Equal(t, []int{7, 3}, []int{read, kept})
		var got [][3]int64
		for _, b := range batches(t, out) {
			got = append(got, [3]int64{b.BaseOffset(), b.LastOffset(), b.MaxTimestamp()})
			require.Equal(t, c, b.Codec())
		}
		require.Equal(t, [][3]int64{{1, 2, 11}, {3, 5, 20}, {6, 6, 16}}, got)

		again, _, kept := filter(t, out, hasKey, false)
		require.Equal(t, 3, kept)
		require.Equal(t, out, again)
		var offsets []int64
		for _, b := range batches(t, again) {
			for _, r := range collect(t, b) {
				offsets = append(offsets, r.Offset)
			}
		}
		require.Equal(t, []int64{1, 3, 6}, offsets)
	}
}

// Scenario: D011
// Scenario: D012
func TestFilteredBatchesKeepProducerFlagsEpochAndAppendTime(t *testing.T) {
	for _, p := range producers {
		for _, c := range allCodecs {
			for _, kind := range []TimestampType{CreateTime, LogAppendTime} {
				records := keyed(now, now+9, now+3)
				records[1].Key = nil
				for i := range records {
					records[i].Offset += 50
				}
				b := buildAll(t, BuilderOptions{Codec: c, Producer: p}, 50, records...)
				b.SetLeaderEpoch(27)
				if kind == LogAppendTime {
					b.SetAppendTime(now + 100)
				}
				out, _, _ := filter(t, b.Bytes(), hasKey, false)
				got, err := View(out)
				require.NoError(t, err)
				sameProducer(t, b, got)
				require.Equal(t, b.LastSequence(), got.LastSequence())
				require.Equal(t, []int64{50, 52, 27, 2}, []int64{got.BaseOffset(), got.LastOffset(), int64(got.LeaderEpoch()), int64(got.Count())})
				require.Equal(t, kind, got.TimestampType())
				require.Equal(t, c, got.Codec())
				stamps := []int64{now, now + 3}
				if kind == LogAppendTime {
					stamps = []int64{now + 100, now + 100}
				}
				require.Equal(t, stamps[1], got.MaxTimestamp())
				for i, r := range collect(t, got) {
					require.Equal(t, stamps[i], r.Timestamp)
					require.Equal(t, int64(50+2*i), r.Offset, "so the record's sequence is its own too")
				}
			}
		}
	}
}

// Scenario: D013
//
// The choice between the three is compaction's; here is what each leaves.
func TestEmptiedBatchesKeepAHeaderOrNothing(t *testing.T) {
	none := func(Record) bool { return false }
	marker := Marker(true, Producer{ID: 3, Epoch: 2}, 1, timeOf(now))
	marker.SetBaseOffset(9)
	marker.SetLeaderEpoch(4)
	data := buildAll(t, BuilderOptions{Codec: LZ4, Producer: producers[2]}, 7, Record{Offset: 7, Timestamp: now}, Record{Offset: 8, Timestamp: now + 1})
	for _, b := range []Batch{marker, data} {
		out, _, _ := filter(t, b.Bytes(), none, true)
		got, err := View(out)
		require.NoError(t, err)
		require.Equal(t, HeaderSize, got.Size())
		sameProducer(t, b, got)
		require.Equal(t, b.LastSequence(), got.LastSequence())
		require.Equal(t, []int64{b.BaseOffset(), b.LastOffset(), b.MaxTimestamp(), int64(b.LeaderEpoch())},
			[]int64{got.BaseOffset(), got.LastOffset(), got.MaxTimestamp(), int64(got.LeaderEpoch())})
		require.Equal(t, []int64{-1, 0, int64(None)}, []int64{got.BaseTimestamp(), int64(got.Count()), int64(got.Codec())})
		again, _, _ := filter(t, out, none, true)
		require.Equal(t, out, again)
		out, _, _ = filter(t, b.Bytes(), none, false)
		require.Empty(t, out)
	}
}

func TestRebuildKeepsAHorizonAndRefusesWhatDoesNotFit(t *testing.T) {
	b := NewBuilder(BuilderOptions{Codec: Gzip, Level: 3})
	require.NoError(t, b.Rebuild(view(t, sampleE), NoTimestamp))
	require.ErrorIs(t, b.AddAt(Record{Offset: 102}), ErrInvalidRecord, "behind the last offset")
	require.ErrorIs(t, b.AddAt(Record{Offset: 100}), ErrInvalidRecord)
	require.NoError(t, b.AddAt(Record{Offset: 101, Timestamp: 1005, Key: []byte("b")}))
	batch, err := b.Finish()
	require.NoError(t, err)
	require.Equal(t, sampleE, batch.Bytes())

	require.ErrorIs(t, b.Rebuild(view(t, sampleF), NoTimestamp), ErrCorrupt)
	b.Reset()
	require.NoError(t, b.Add(Record{Timestamp: 1}))
	batch, err = b.Finish()
	require.NoError(t, err)
	require.Equal(t, Gzip, batch.Codec(), "Reset goes back to the options")
}

func anyRecord(offset int64) *rapid.Generator[Record] {
	field := rapid.OneOf(rapid.Just([]byte(nil)), rapid.SliceOfN(rapid.Byte(), 0, 300))
	return rapid.Custom(func(t *rapid.T) Record {
		r := Record{
			Offset:    offset,
			Timestamp: rapid.OneOf(rapid.Int64Range(-1, math.MaxInt64), rapid.Int64Range(now, now+1000)).Draw(t, "time"),
			Key:       field.Draw(t, "key"),
			Value:     field.Draw(t, "value"),
		}
		for range rapid.IntRange(0, 3).Draw(t, "headers") {
			r.Headers = append(r.Headers, Header{Key: rapid.String().Draw(t, "name"), Value: field.Draw(t, "header")})
		}
		return r
	})
}

func anyRecords(t *rapid.T, base int64, gaps bool) []Record {
	var records []Record
	offset := base
	for range rapid.IntRange(1, 20).Draw(t, "records") {
		if gaps {
			offset += rapid.Int64Range(0, 1000).Draw(t, "gap")
		}
		records = append(records, anyRecord(offset).Draw(t, "record"))
		offset++
	}
	return records
}

func TestWhatIsBuiltIsWhatIsIterated(t *testing.T) {
	decoder := NewDecoder(Limits{})
	builders := map[Codec]*Builder{}
	for _, c := range allCodecs {
		builders[c] = NewBuilder(BuilderOptions{Codec: c})
	}
	rapid.Check(t, func(t *rapid.T) {
		base := rapid.Int64Range(0, 1<<40).Draw(t, "base")
		records := anyRecords(t, base, true)
		b := builders[rapid.SampledFrom(allCodecs).Draw(t, "codec")]
		b.Reset()
		b.SetBaseOffset(base)
		if rapid.Bool().Draw(t, "horizon") {
			b.SetDeleteHorizon(rapid.Int64Range(0, 1<<50).Draw(t, "ms"))
		}
		size, most := HeaderSize, NoTimestamp
		for _, r := range records {
			before := b.Len()
			require.NoError(t, b.AddAt(r))
			require.GreaterOrEqual(t, b.Len()-before, r.EncodedSize())
			require.LessOrEqual(t, b.Len()-before, r.EncodedSize()+14)
			size, most = b.Len(), max(most, r.Timestamp)
		}
		batch, err := b.Finish()
		require.NoError(t, err)
		require.NoError(t, batch.Verify())
		if batch.Codec() == None {
			require.Equal(t, size, batch.Size())
		}
		require.Equal(t, most, batch.MaxTimestamp())
		require.Equal(t, records[len(records)-1].Offset, batch.LastOffset())
		var got []Record
		for r, err := range batch.Records(decoder) {
			require.NoError(t, err)
			got = append(got, r.Clone())
		}
		require.Equal(t, records, got)
		info, err := Split(batch.Bytes(), Limits{})
		require.NoError(t, err)
		require.Equal(t, len(records), info.Records)
	})
}

func TestWhatIsValidatedVerifiesAndValidatesAgain(t *testing.T) {
	decoder := NewDecoder(Limits{})
	rapid.Check(t, func(t *rapid.T) {
		records := anyRecords(t, 0, false)
		source := rapid.SampledFrom(allCodecs).Draw(t, "source")
		b := NewBuilder(BuilderOptions{Codec: source, Producer: rapid.SampledFrom(producers).Draw(t, "producer")})
		for _, r := range records {
			require.NoError(t, b.AddAt(r))
		}
		batch, err := b.Finish()
		require.NoError(t, err)
		o := ValidateOptions{
			TimestampType: rapid.SampledFrom([]TimestampType{CreateTime, LogAppendTime}).Draw(t, "type"),
			Codec:         rapid.SampledFrom(allCodecs).Draw(t, "target"),
			Now:           now, TimestampBefore: -1, TimestampAfter: -1,
		}
		v, err := decoder.Validate(bytes.Clone(batch.Bytes()), o)
		require.NoError(t, err)
		base := rapid.Int64Range(0, 1<<40).Draw(t, "base")
		v.Place(base, 5)
		require.NoError(t, v.Batch.Verify())
		set, err := Check(v.Batch.Bytes(), CheckOptions{Origin: Replication, LeaderEpoch: 5})
		require.NoError(t, err)
		require.Equal(t, []int64{base, base + int64(len(records)) - 1, v.MaxTimestamp},
			[]int64{set.FirstOffset, set.LastOffset, set.MaxTimestamp})
		stored := bytes.Clone(v.Batch.Bytes())
		i := 0
		for r, err := range (Batch{stored}).Records(nil) {
			require.NoError(t, err)
			want := records[i]
			want.Offset = base + int64(i)
			if o.TimestampType == LogAppendTime {
				want.Timestamp = now
			}
			require.Equal(t, want, r)
			i++
		}
		require.Equal(t, len(records), i)
		if o.TimestampType == CreateTime {
			o.CodecFromProducer = true
			again, err := decoder.Validate(stored, o)
			require.NoError(t, err)
			require.False(t, again.Rebuilt, "what a log holds needs no change")
		}
	})
}
