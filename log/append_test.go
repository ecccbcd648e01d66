package log

import (
	"bytes"
	"context"
	"errors"
	"math"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// Scenario: L006, U020, U021.
func TestAppendedRecordsReadBackByteForByte(t *testing.T) {
	b := newBed(t, Config{})
	want := []record.Record{
		{Timestamp: 5, Key: []byte("k"), Value: []byte("v"), Headers: []record.Header{{Key: "h", Value: []byte("x")}, {Key: "h"}, {Key: ""}}},
		{Timestamp: record.NoTimestamp, Key: []byte{}, Value: nil},
		{Timestamp: 0, Key: nil, Value: []byte{}},
		{},
	}
	base, err := b.Append(ctx, want...)
	require.NoError(t, err)
	require.Zero(t, base)
	i := 0
	for r, err := range b.Records(ctx, 0) {
		require.NoError(t, err)
		w := want[i]
		if w.Timestamp == 0 {
			w.Timestamp = epoch2023 // the zero Timestamp means now
		}
		require.Equal(t, int64(i), r.Offset)
		require.Equal(t, w.Timestamp, r.Timestamp)
		require.Equal(t, w.Key, r.Key)
		require.Equal(t, w.Value, r.Value)
		require.Equal(t, len(w.Headers), len(r.Headers))
		for h := range w.Headers {
			require.Equal(t, w.Headers[h], r.Headers[h])
		}
		i++
	}
	require.Equal(t, 4, i)
	require.Equal(t, int64(4), b.Offsets().LogEnd)
}

// Invariant O1. Scenario: U034 for the empty set.
func TestNothingToAppendIsNoError(t *testing.T) {
	b := newBed(t, Config{SegmentAge: time.Second})
	b.add("a", "b")
	b.clock.advance(time.Hour)
	base, err := b.Append(ctx)
	require.NoError(t, err)
	require.Equal(t, int64(2), base)
	for _, role := range []Role{Leader, Follower} {
		for name, raw := range map[string][]byte{"nil": nil, "partial": batchOf(2, 0, record.None, "x")[:40]} {
			res, err := b.AppendBatches(ctx, raw, AppendOptions{As: role})
			require.NoError(t, err, name)
			require.Equal(t, Appended{Base: 2, Last: 1, AppendTime: -1}, res, name)
		}
	}
	require.Len(t, b.bases(), 1, "an empty set rolls nothing")
	require.Equal(t, int64(2), b.Offsets().LogEnd)
}

// Scenario: U016, U017, U018. Nothing is written by what is refused.
func TestSizeLimitsRefuseAndWriteNothing(t *testing.T) {
	small := Config{MaxMessageBytes: 200, SegmentBytes: 1000}
	b := newBed(t, small)
	_, err := b.Append(ctx, values(1, 200)...)
	require.ErrorIs(t, err, ErrTooLarge)
	_, err = b.AppendBatches(ctx, batchOf(0, -1, record.None, strings.Repeat("x", 200)), AppendOptions{})
	require.ErrorIs(t, err, ErrTooLarge)
	exact := batchOf(0, -1, record.None, strings.Repeat("x", 200-record.HeaderSize-8-1))
	for len(exact) < 200 {
		exact = batchOf(0, -1, record.None, strings.Repeat("x", 200-record.HeaderSize-8))
	}
	require.Len(t, exact, 200)
	_, err = b.AppendBatches(ctx, exact, AppendOptions{})
	require.NoError(t, err, "exactly max.message.bytes")
	_, err = b.follow(batchOf(1, 0, record.None, strings.Repeat("x", 500)))
	require.NoError(t, err, "a follower takes what its leader took")
	_, err = b.AppendBatches(ctx, batchOf(0, -1, record.None, strings.Repeat("x", 1000)), AppendOptions{})
	require.ErrorIs(t, err, ErrTooLarge)
	_, err = b.follow(append(batchOf(2, 0, record.None, strings.Repeat("x", 500)), batchOf(3, 0, record.None, strings.Repeat("x", 500))...))
	require.ErrorIs(t, err, ErrTooLarge, "a segment could hold each of them")
	require.Equal(t, offsetsIn(0, 2), b.readAll(0))

	compressed := newBed(t, Config{MaxMessageBytes: 200, CompressionType: "zstd"})
	_, err = compressed.Append(ctx, values(1, 100_000)...)
	require.NoError(t, err, "what counts is the compressed size")
	none := newBed(t, Config{MaxMessageBytes: NoMessages})
	_, err = none.Append(ctx, record.Record{})
	require.ErrorIs(t, err, ErrTooLarge)
	_, err = none.AppendBatches(ctx, batchOf(0, 0, record.None, "x"), AppendOptions{})
	require.ErrorIs(t, err, ErrTooLarge)
}

// Scenario: U019.
func TestACompactedLogWantsKeys(t *testing.T) {
	b := newBed(t, Config{Cleanup: Compact})
	keyed, bare := record.Record{Key: []byte("k")}, record.Record{Value: []byte("v")}
	_, err := b.Append(ctx, bare, keyed)
	require.ErrorIs(t, err, ErrInvalidRecord)
	require.ErrorContains(t, err, "record 0")
	_, err = b.Append(ctx, keyed, bare)
	require.ErrorContains(t, err, "record 1")
	_, err = b.AppendBatches(ctx, batchOf(0, -1, record.Gzip, "unkeyed"), AppendOptions{})
	require.ErrorIs(t, err, ErrInvalidRecord)
	_, err = b.Append(ctx, keyed, keyed)
	require.NoError(t, err)
	require.Equal(t, int64(2), b.Offsets().LogEnd)
}

// Scenario: U010. A follower's log has gaps, and a read in one begins behind it.
func TestFollowersLeaveGapsThatReadsPassOver(t *testing.T) {
	for name, segmentBytes := range map[string]int64{"one segment": 1 << 20, "many": 300} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, Config{SegmentBytes: segmentBytes})
			var have []int64
			for o := range int64(50) {
				have = append(have, o)
			}
			for o := int64(50); o < 200; o += 7 {
				have = append(have, o)
			}
			for _, o := range have {
				_, err := b.follow(batchOf(o, 0, record.None, "v"))
				require.NoError(t, err)
			}
			for i := range int64(have[len(have)-1] + 1) {
				var want []int64
				for _, o := range have {
					if o >= i {
						want = append(want, o)
					}
				}
				require.Equal(t, want, b.readAll(i), "from %d", i)
				for _, size := range []int64{1, 100, 100_000} {
					f, err := b.Fetch(ctx, i, FetchOptions{MaxBytes: size})
					require.NoError(t, err)
					got, err := offsetsOf(f.Records())
					require.NoError(t, err)
					require.NotEmpty(t, got, "from %d with %d bytes", i, size)
					require.Equal(t, want[0], got[0])
					require.NoError(t, f.Close())
				}
			}
		})
	}
}

// Scenario: U022, U023, U024.
func TestAFollowerNeverGoesBack(t *testing.T) {
	b := newBed(t, Config{})
	raw := func(o int64) []byte { return batchOf(o, 0, record.None, "v") }
	_, err := b.follow(raw(0), raw(1), raw(3), raw(2), raw(4))
	require.ErrorIs(t, err, ErrOffsetsOutOfOrder)
	require.Zero(t, b.Offsets().LogEnd)
	b.add("a", "b")
	at7 := newBed(t, Config{})
	require.NoError(t, at7.ResetTo(ctx, 7))
	for name, at := range map[string]func(base int64) []byte{
		"v0": func(o int64) []byte {
			return bytes.Join([][]byte{legacy(0, o, "a"), legacy(0, o+1, "b"), legacy(0, o+2, "c")}, nil)
		},
		"v1": func(o int64) []byte {
			return bytes.Join([][]byte{legacy(1, o, "a"), legacy(1, o+1, "b"), legacy(1, o+2, "c")}, nil)
		},
		"v2":      func(o int64) []byte { return batchOf(o, 0, record.None, "a", "b", "c") },
		"v2 lz4":  func(o int64) []byte { return batchOf(o, 0, record.LZ4, "a", "b", "c") },
		"v0 gzip": func(o int64) []byte { return legacyGzip(0, o, "a", "b", "c")[:] },
		"v1 gzip": func(o int64) []byte { return legacyGzip(1, o, "a", "b", "c")[:] },
	} {
		if !strings.HasSuffix(name, "gzip") { // a wrapper at 0 ends at 2, which is the log's end
			_, err := b.follow(at(0))
			require.ErrorIs(t, err, ErrUnexpectedOffset, name)
		}
		_, err = at7.follow(at(4))
		require.ErrorIs(t, err, ErrUnexpectedOffset, name)
	}
	require.Equal(t, int64(2), b.Offsets().LogEnd)
	require.Equal(t, int64(7), at7.Offsets().LogEnd)
}

func TestAnExpectedOffsetIsComparedWithTheLogEnd(t *testing.T) {
	b := newBed(t, Config{})
	b.add("a", "b")
	for _, role := range []Role{Leader, Follower} {
		raw := func() []byte {
			return batchOf(map[Role]int64{Leader: 0, Follower: b.Offsets().LogEnd}[role], 0, record.None, "c")
		}
		end := b.Offsets().LogEnd
		for _, wrong := range []int64{end - 1, end + 1, -1} {
			_, err := b.AppendBatches(ctx, raw(), AppendOptions{As: role, ExpectedOffset: &wrong})
			require.ErrorIs(t, err, ErrUnexpectedOffset)
		}
		res, err := b.AppendBatches(ctx, raw(), AppendOptions{As: role, ExpectedOffset: &end})
		require.NoError(t, err)
		require.Equal(t, end, res.Base)
	}
}

func TestTimestampsAreBoundedPerRecord(t *testing.T) {
	b := newBed(t, Config{TimestampBefore: time.Minute, TimestampAfter: Immediately})
	now := int64(epoch2023)
	for ts, ok := range map[int64]bool{
		0: true, record.NoTimestamp: true, now: true, now - 60_000: true, now - 60_001: false, now + 1: false, -2: false, math.MinInt64: false,
		math.MaxInt64: false,
	} {
		end := b.Offsets().LogEnd
		_, err := b.Append(ctx, record.Record{}, record.Record{Timestamp: ts})
		if ok {
			require.NoError(t, err, "%d", ts)
			continue
		}
		require.ErrorIs(t, err, ErrInvalidTimestamp, "%d", ts)
		require.Equal(t, end, b.Offsets().LogEnd)
		if ts >= 0 {
			_, err = b.AppendBatches(ctx, timed(now, ts), AppendOptions{})
			require.ErrorIs(t, err, ErrInvalidTimestamp, "%d", ts)
		}
	}
	free := newBed(t, Config{TimestampAfter: Forever})
	_, err := free.Append(ctx, record.Record{Timestamp: now * 2})
	require.NoError(t, err)
}

func TestLogAppendTimeStampsEveryAppend(t *testing.T) {
	b := newBed(t, Config{TimestampType: record.LogAppendTime, TimestampAfter: Immediately})
	_, err := b.Append(ctx, record.Record{Timestamp: 5}, record.Record{Timestamp: epoch2023 * 3}, record.Record{Timestamp: -1})
	require.NoError(t, err)
	b.clock.advance(time.Second)
	res, err := b.AppendBatches(ctx, timed(7, 8), AppendOptions{})
	require.NoError(t, err)
	require.Equal(t, int64(epoch2023+1000), res.AppendTime)
	var got []int64
	for r, err := range b.Records(ctx, 0) {
		require.NoError(t, err)
		got = append(got, r.Timestamp-epoch2023)
	}
	require.Equal(t, []int64{0, 0, 0, 1000, 1000}, got)
	flagged := timed(7)
	v, err := record.View(flagged)
	require.NoError(t, err)
	v.SetAppendTime(9)
	_, err = b.AppendBatches(ctx, flagged, AppendOptions{})
	require.Error(t, err, "a client may not bring the flag itself")
}

// Invariant B1.
func TestBatchesKeepTheirBytesButForOffsetAndEpoch(t *testing.T) {
	b := newBed(t, Config{})
	require.NoError(t, b.AssignEpoch(9))
	for _, codec := range []record.Codec{record.None, record.Gzip, record.Snappy, record.LZ4, record.Zstd} {
		raw := batchOf(0, -1, codec, "a", "b", "c")
		want := bytes.Clone(raw)
		res, err := b.AppendBatches(ctx, raw, AppendOptions{})
		require.NoError(t, err)
		for got, err := range b.Batches(ctx, res.Base) {
			require.NoError(t, err)
			require.Equal(t, res.Base, got.BaseOffset())
			require.Equal(t, int32(9), got.LeaderEpoch())
			require.NoError(t, got.Verify())
			require.Equal(t, want[16:], got.Bytes()[16:], codec)
			require.Equal(t, want[8:12], got.Bytes()[8:12], codec)
		}
	}
}

func TestCompressionTypeDecidesWhatIsStored(t *testing.T) {
	for name, row := range map[string]struct{ appended, batch record.Codec }{
		"producer":     {record.None, record.LZ4},
		"uncompressed": {record.None, record.None},
		"zstd":         {record.Zstd, record.Zstd},
		"gzip":         {record.Gzip, record.Gzip},
	} {
		b := newBed(t, Config{CompressionType: name})
		b.add("aaaa", "bbbb")
		raw := batchOf(0, -1, record.LZ4, "a", "b", "c")
		_, err := b.AppendBatches(ctx, raw, AppendOptions{})
		require.NoError(t, err)
		var codecs []record.Codec
		for got, err := range b.Batches(ctx, 0) {
			require.NoError(t, err)
			codecs = append(codecs, got.Codec())
		}
		require.Equal(t, []record.Codec{row.appended, row.batch}, codecs, name)
		require.Equal(t, offsetsIn(0, 5), b.readAll(0))
	}
}

func TestGarbageIsRefusedWithNothingWritten(t *testing.T) {
	b := newBed(t, Config{})
	good := batchOf(0, 0, record.None, "abc")
	bad := bytes.Clone(good)
	bad[len(bad)-1] ^= 1
	short := bytes.Clone(good)
	short[11] = 3
	two := append(bytes.Clone(good), batchOf(0, 0, record.None, "x")...)
	for name, raw := range map[string][]byte{"crc": bad, "length": short, "zeros": make([]byte, 100), "two": two} {
		_, err := b.AppendBatches(ctx, bytes.Clone(raw), AppendOptions{})
		require.ErrorIs(t, err, ErrInvalidRecord, name)
		if name != "two" {
			_, err = b.AppendBatches(ctx, bytes.Clone(raw), AppendOptions{As: Follower})
			require.ErrorIs(t, err, ErrInvalidRecord, name)
		}
	}
	_, err := b.AppendBatches(ctx, batchOf(5, 0, record.None, "x"), AppendOptions{})
	require.ErrorIs(t, err, ErrInvalidRecord, "a client's batch starts at 0")
	require.Zero(t, b.Offsets().LogEnd)
	require.Zero(t, b.Stats().Bytes)
}

func TestAppendsRefuseEarlyWhatCannotSucceed(t *testing.T) {
	b := newBed(t, Config{})
	over, cancel := context.WithCancel(ctx)
	cancel()
	_, err := b.Append(over, record.Record{})
	require.ErrorIs(t, err, context.Canceled)
	require.False(t, errors.As(err, new(*UnconfirmedError)))
	require.Zero(t, b.Offsets().LogEnd)
	require.NoError(t, b.Close())
	_, err = b.Append(ctx, record.Record{})
	require.ErrorIs(t, err, ErrClosed)
	_, err = b.AppendBatches(ctx, batchOf(0, 0, record.None, "x"), AppendOptions{As: Follower})
	require.ErrorIs(t, err, ErrClosed)
}

// B012: offsets beyond 2^32 and at the very end of their range.
func TestOffsetsReachTheirEndWithoutWrapping(t *testing.T) {
	for _, first := range []int64{1<<31 - 10, 1<<32 - 6, 1 << 62} {
		b := newBed(t, Config{IndexIntervalBytes: EveryBatch})
		require.NoError(t, b.ResetTo(ctx, first))
		for range 20 {
			b.add("x")
		}
		b.reopen()
		require.Equal(t, offsetsIn(first, first+20), b.readAll(first))
		require.Equal(t, []int64{first + 15, first + 16, first + 17, first + 18, first + 19}, b.readAll(first+15))
	}
	b := newBed(t, Config{})
	require.NoError(t, b.ResetTo(ctx, math.MaxInt64-2))
	b.add("last")
	_, err := b.Append(ctx, record.Record{}, record.Record{})
	require.ErrorIs(t, err, ErrInvalidRecord)
	require.Equal(t, int64(math.MaxInt64-1), b.Offsets().LogEnd)
	require.Equal(t, []int64{math.MaxInt64 - 2}, b.readAll(math.MaxInt64-2))
}

func TestManyHeadersAndHugeRecordsAreBoundedBySize(t *testing.T) {
	b := newBed(t, Config{})
	hs := make([]record.Header, 100_000)
	_, err := b.Append(ctx, record.Record{Headers: hs})
	require.NoError(t, err)
	_, err = b.Append(ctx, record.Record{Headers: make([]record.Header, 1_000_000)})
	require.ErrorIs(t, err, ErrTooLarge)
	_, err = b.Append(ctx, record.Record{Value: make([]byte, 2<<20)})
	require.ErrorIs(t, err, ErrTooLarge)
	for r, err := range b.Records(ctx, 0) {
		require.NoError(t, err)
		require.Len(t, r.Headers, 100_000)
	}
}

func TestAFullLogRejects(t *testing.T) {
	b := newBed(t, Config{MaxBytes: 1000, SegmentBytes: 300})
	var err error
	n := int64(0)
	for ; err == nil; n++ {
		_, err = b.Append(ctx, values(1, 50)...)
		require.LessOrEqual(t, b.Stats().Bytes, int64(1000))
	}
	require.ErrorIs(t, err, ErrFull)
	require.Greater(t, n, int64(5))
	require.Equal(t, n-1, b.Offsets().LogEnd, "nothing was appended")
	require.NoError(t, b.ResetTo(ctx, 100))
	b.add("room again")
	b.reopen()
	require.Equal(t, []int64{100}, b.readAll(100))
}

func TestAFullLogDropsItsOldest(t *testing.T) {
	for name, c := range map[string]Config{
		"durable":          {MaxBytes: 1000, SegmentBytes: 300, WhenFull: DropOldest},
		"buffered":         {MaxBytes: 1000, SegmentBytes: 300, WhenFull: DropOldest, Durability: Buffered},
		"one large batch":  {MaxBytes: 1000, SegmentBytes: 1 << 20, WhenFull: DropOldest},
		"index every time": {MaxBytes: 1000, SegmentBytes: 300, WhenFull: DropOldest, IndexIntervalBytes: EveryBatch},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, c)
			require.NoError(t, b.AssignEpoch(3))
			for i := range int64(200) {
				base, err := b.Append(ctx, values(1, 50)...)
				require.NoError(t, err)
				require.Equal(t, i, base)
				require.LessOrEqual(t, b.Stats().Bytes, int64(1000))
				o := b.Offsets()
				require.LessOrEqual(t, o.LogStart, o.HighWatermark)
				require.Equal(t, o.LogStart, b.SegmentInfos()[0].Base)
			}
			o := b.Offsets()
			require.Greater(t, o.LogStart, int64(180))
			require.Equal(t, offsetsIn(o.LogStart, 200), b.readAll(o.LogStart))
			_, err := offsetsOf(b.Records(ctx, 0))
			require.ErrorIs(t, err, ErrOffsetOutOfRange)
			if c.SegmentBytes > c.MaxBytes {
				_, err = b.Append(ctx, values(1, 2000)...)
				require.ErrorIs(t, err, ErrFull, "it would not fit into an empty log")
			}
			require.Equal(t, []EpochEntry{{3, o.LogStart}}, b.Epochs())
			b.reopen()
			require.Equal(t, o.LogStart, b.Offsets().LogStart)
			require.Equal(t, offsetsIn(o.LogStart, 200), b.readAll(o.LogStart))
			entries, err := b.fs.ReadDir("t-0")
			require.NoError(t, err)
			for _, e := range entries {
				require.NotContains(t, e.Name(), ".deleted")
			}
		})
	}
	hidden := newBed(t, Config{MaxBytes: 1000, SegmentBytes: 300, WhenFull: DropOldest, Visibility: External})
	var err error
	for err == nil {
		_, err = hidden.Append(ctx, values(1, 50)...)
	}
	require.ErrorIs(t, err, ErrFull, "what no reader was shown is not dropped")
	_, err = hidden.SetHighWatermark(math.MaxInt64)
	require.NoError(t, err)
	hidden.add("goes on")
}

// A failing disk: what was refused is not in the log, and neither is its epoch.
func TestAFullDiskLeavesTheLogAsItWas(t *testing.T) {
	for role, raw := range map[Role][]byte{Leader: batchOf(0, -1, record.None, "new"), Follower: batchOf(1, 8, record.None, "new")} {
		fault := vfstest.NewFault(vfs.Mem())
		b := newBedOn(t, fault, Config{})
		require.NoError(t, b.AssignEpoch(5))
		b.add("old")
		_, remove := fault.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpWrite}, Name: "*.log", Times: vfstest.Always, Err: syscall.ENOSPC, Short: true, Keep: 7})
		before := b.Offsets()
		for range 3 {
			_, err := b.AppendBatches(ctx, bytes.Clone(raw), AppendOptions{As: role})
			require.ErrorIs(t, err, ErrNoSpace)
			require.False(t, errors.As(err, new(*UnconfirmedError)))
			require.Equal(t, before, b.Offsets())
			require.Equal(t, []EpochEntry{{5, 0}}, b.Epochs())
		}
		remove()
		_, err := b.AppendBatches(ctx, bytes.Clone(raw), AppendOptions{As: role})
		require.NoError(t, err)
		b.reopen()
		require.Equal(t, offsetsIn(0, 2), b.readAll(0))
	}
}

func TestAFailedSyncStopsTheLogAndOwnsUp(t *testing.T) {
	fault := vfstest.NewFault(vfs.Mem())
	b := newBedOn(t, fault, Config{})
	b.add("safe")
	fault.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpSyncData}, Name: "*.log", Err: syscall.EIO})
	_, err := b.Append(ctx, record.Record{Value: []byte("?")})
	var u *UnconfirmedError
	require.ErrorAs(t, err, &u)
	require.Equal(t, [2]int64{1, 1}, [2]int64{u.Base, u.Last})
	require.ErrorIs(t, err, ErrFailed)
	require.ErrorIs(t, err, syscall.EIO)
	require.ErrorIs(t, b.Err(), ErrFailed)
	_, err = b.Append(ctx, record.Record{})
	require.ErrorIs(t, err, ErrFailed)
	require.False(t, errors.As(err, &u), "this one was never written")
	require.ErrorIs(t, b.Wait(ctx, MarkDurable, 2), ErrFailed)
	require.ErrorIs(t, b.Stats().LastError, ErrFailed)
	require.Equal(t, []int64{0}, b.readAll(0), "readers never see what is not on the device")
	_, err = offsetsOf(b.Follow(ctx, 1))
	require.ErrorIs(t, err, ErrFailed, "nothing more will come")
}
