package log

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/segment"
)

func ms(t int64) time.Time { return time.UnixMilli(t) }

// Scenario: U047, U049.
func TestTimesOfEmptyAndUntimedLogsAreNotFound(t *testing.T) {
	b := newBed(t, Config{})
	for range 2 {
		_, err := b.OffsetForTime(ctx, ms(0))
		require.ErrorIs(t, err, ErrNotFound)
		_, err = b.OffsetOfMaxTime(ctx)
		require.ErrorIs(t, err, ErrNotFound)
		b.addTimes(record.NoTimestamp, record.NoTimestamp)
	}
	b.addTimes(epoch2023, epoch2023+1, epoch2023)
	b.addTimes(epoch2023 + 1)
	at, err := b.OffsetOfMaxTime(ctx)
	require.NoError(t, err)
	require.Equal(t, At{Offset: 3 + b.SegmentInfos()[0].Base, Timestamp: epoch2023 + 1, LeaderEpoch: 0}, At{at.Offset - 2, at.Timestamp, at.LeaderEpoch})
}

// B139, B142.
func TestTimesAreFoundInsideBatches(t *testing.T) {
	for _, per := range []int{1, 4, 7, 100} {
		b := newBed(t, Config{SegmentBytes: 2000, IndexIntervalBytes: 100, TimestampAfter: Forever})
		for ts := int64(1); ts <= 100; {
			var batch []int64
			for ; len(batch) < per && ts <= 100; ts++ {
				batch = append(batch, ts*10)
			}
			b.addTimes(batch...)
		}
		for range 2 {
			for ts := int64(-5); ts <= 1005; ts++ {
				at, err := b.OffsetForTime(ctx, ms(ts))
				want := (max(ts, 1)+9)/10 - 1
				if want >= 100 {
					require.ErrorIs(t, err, ErrNotFound)
					continue
				}
				require.NoError(t, err)
				require.Equal(t, At{want, want*10 + 10, 0}, at)
			}
			b.reopen()
		}
	}
}

// Kafka's rule, 5.5: the first segment whose largest timestamp is at or after t, and in it the first record.
func (b *bed) timeModel(ts int64, hw int64) (int64, bool) {
	start := b.Offsets().LogStart
	infos := b.SegmentInfos()
	for _, s := range infos {
		largest := int64(-1)
		for got, err := range b.Batches(ctx, max(s.Base, start), WithIsolation(LogEnd)) {
			require.NoError(b.t, err)
			if got.BaseOffset() >= s.Next {
				break
			}
			largest = max(largest, got.MaxTimestamp())
		}
		if largest < ts {
			continue
		}
		for r, err := range b.Records(ctx, max(s.Base, start), WithIsolation(LogEnd), WithMaxOffset(s.Next)) {
			require.NoError(b.t, err)
			if r.Timestamp >= ts {
				return r.Offset, r.Offset < hw
			}
		}
		return -1, false
	}
	return -1, false
}

// B140, B141, invariant X3.
func TestDisorderedTimesFollowKafkasRule(t *testing.T) {
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 7))
		b := newBed(t, Config{SegmentBytes: 1500, IndexIntervalBytes: 200, TimestampAfter: Forever, Durability: Buffered, Visibility: External, SegmentAge: Forever})
		for range 60 {
			times := make([]int64, 1+r.IntN(4))
			for i := range times {
				times[i] = epoch2023 + r.Int64N(50)*1_000_000_000 - 25_000_000_000
				if r.IntN(9) == 0 {
					times[i] = record.NoTimestamp
				}
			}
			b.addTimes(times...)
		}
		end := b.Offsets().LogEnd
		_, err := b.SetHighWatermark(end - 10)
		require.NoError(t, err)
		for range 3 {
			hw := b.Offsets().HighWatermark
			for k := int64(-26); k < 52; k++ {
				ts := epoch2023 + k*1_000_000_000 + 1
				want, ok := b.timeModel(ts, hw)
				at, err := b.OffsetForTime(ctx, ms(ts))
				if !ok {
					require.ErrorIs(t, err, ErrNotFound, "%d", k)
					continue
				}
				require.NoError(t, err)
				require.Equal(t, want, at.Offset, "seed %d, %d", seed, k)
				require.GreaterOrEqual(t, at.Timestamp, ts)
			}
			_, err = b.Truncate(ctx, b.Offsets().LogEnd-7)
			require.NoError(t, err)
			b.reopen()
		}
	}
}

func TestTheLargestTimeIsNeverOfADeletedRecord(t *testing.T) {
	b := newBed(t, Config{SegmentAge: Forever, TimestampAfter: Forever})
	b.addTimes(100, 900, 200)
	b.addTimes(50, 300)
	b.addTimes(300, 10)
	require.NoError(t, b.Roll(ctx))
	b.addTimes(250)
	for start, want := range []At{{1, 900, 0}, {1, 900, 0}, {4, 300, 0}, {4, 300, 0}, {4, 300, 0}, {5, 300, 0}, {7, 250, 0}, {7, 250, 0}} {
		require.NoError(t, b.DeleteRecords(ctx, int64(start)))
		at, err := b.OffsetOfMaxTime(ctx)
		require.NoError(t, err)
		require.Equal(t, want, at, "from %d", start)
	}
}

func TestTimesBeyondTheHighWatermarkAreNotFound(t *testing.T) {
	b := newBed(t, Config{Visibility: External})
	b.addTimes(epoch2023)
	b.addTimes(epoch2023 + 5)
	for hw := range int64(3) {
		_, err := b.SetHighWatermark(hw)
		require.NoError(t, err)
		for o := range int64(2) {
			at, err := b.OffsetForTime(ctx, ms(epoch2023+5*o))
			if o >= hw {
				require.ErrorIs(t, err, ErrNotFound)
				continue
			}
			require.NoError(t, err)
			require.Equal(t, o, at.Offset)
		}
		_, err = b.OffsetOfMaxTime(ctx)
		require.Equal(t, hw < 2, errors.Is(err, ErrNotFound))
	}
}

// Report: B141
func TestTheLargestTimeAfterATruncationIsThatOfWhatStays(t *testing.T) {
	for _, back := range []int64{1000, 1<<31 + 7, 1<<32 + 7} {
		b := newBed(t, Config{TimestampBefore: Forever, TimestampAfter: Forever, Visibility: External})
		const largest = 1 << 40
		b.addTimes(largest)
		b.addTimes(largest-back, largest-back-1)
		b.addTimes(largest + back)
		_, err := b.Truncate(ctx, 3)
		require.NoError(t, err)
		for _, end := range []int64{3, 1} {
			_, err = b.Truncate(ctx, end)
			require.NoError(t, err)
			for range 2 {
				_, err = b.SetHighWatermark(end)
				require.NoError(t, err)
				require.EqualValues(t, largest, b.SegmentInfos()[0].LargestTimestamp, "%d back", back)
				at, err := b.OffsetOfMaxTime(ctx)
				require.NoError(t, err)
				require.Equal(t, [2]int64{0, largest}, [2]int64{at.Offset, at.Timestamp})
				_, err = b.OffsetForTime(ctx, ms(largest+1))
				require.ErrorIs(t, err, ErrNotFound)
				b.reopen()
			}
		}
	}
}

// A broker takes them from clients other than its own, and says -1 in the header where there are no others.
func TestTimesBeforeTheEpochAreKeptAndFoundByNoTime(t *testing.T) {
	b := newBed(t, Config{IndexIntervalBytes: 1})
	const shift = 1 << 41
	for base, stamps := range [][]int64{{-5, -1000}, {-1 << 40, -7}, {-3, 50}, {-9, -2}} {
		raw := timed(stamps[0]+shift, stamps[1]+shift)
		binary.BigEndian.PutUint64(raw[27:], uint64(stamps[0]))
		binary.BigEndian.PutUint64(raw[35:], uint64(max(stamps[0], stamps[1], -1)))
		binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
		batch := must(record.View(raw))
		batch.SetBaseOffset(int64(2 * base))
		_, err := b.follow(raw)
		require.NoError(t, err)
	}
	for range 2 {
		var got []int64
		for r, err := range b.Records(ctx, 0) {
			require.NoError(t, err)
			got = append(got, r.Timestamp)
		}
		require.Equal(t, []int64{-5, -1000, -1 << 40, -7, -3, 50, -9, -2}, got)
		for ts, want := range map[int64]int64{0: 5, 50: 5} {
			at, err := b.OffsetForTime(ctx, ms(ts))
			require.NoError(t, err)
			require.Equal(t, want, at.Offset)
		}
		_, err := b.OffsetForTime(ctx, ms(51))
		require.ErrorIs(t, err, ErrNotFound)
		at, err := b.OffsetOfMaxTime(ctx)
		require.NoError(t, err)
		require.EqualValues(t, 5, at.Offset)
		require.NoError(t, b.dir.Close())
		sound(t, b.fs)
		for _, kind := range []string{".index", ".timeindex"} {
			require.NoError(t, b.fs.Remove(inFolder(segment.FileName(0, kind))))
		}
		require.NoError(t, b.fs.Remove(checkpoint.CleanMarker))
		b.open()
	}
}
