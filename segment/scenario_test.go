package segment

import (
	"math"
	"testing"
	"time"

	"github.com/partlog/partlog/record"

	"github.com/stretchr/testify/require"
)

// Scenario: S002 read on empty segment
func TestAnEmptySegmentHoldsNoOffset(t *testing.T) {
	s := create(t, 40, Options{})
	_, err := s.Find(40)
	require.ErrorIs(t, err, ErrNotFound)
	_, err = s.Region(40, 300, math.MaxInt64, true)
	require.ErrorIs(t, err, ErrNotFound)
	require.Empty(t, mustOffsets(t, s))
	next, err := s.NextOffset()
	require.NoError(t, err)
	require.EqualValues(t, 40, next)
}

// Scenario: S003 base 40, records 50..53, read 41 gives all from 50
func TestAReadBeforeTheFirstBatchStartsAtIt(t *testing.T) {
	s := create(t, 40, Options{})
	add(t, s, batchOf(t, 50, 4, 1, "v"))
	p, err := s.Find(41)
	require.NoError(t, err)
	require.Equal(t, [4]int64{50, 53, 0, s.Info().Bytes}, [4]int64{p.Base, p.LastOffset, p.Pos, p.Size})
	r, err := s.Region(41, 300, math.MaxInt64, true)
	require.NoError(t, err)
	defer r.Close()
	require.Equal(t, s.Info().Bytes, r.Len())
}

// Scenario: S004 read after the last offset
func TestAReadBehindTheLastOffsetFindsNothing(t *testing.T) {
	s := create(t, 40, Options{})
	add(t, s, batchOf(t, 50, 2, 1, "v"))
	_, err := s.Find(52)
	require.ErrorIs(t, err, ErrNotFound)
}

// Scenario: S005 batches 50-51 and 60-61, read 55 gives from 60
func TestAReadInsideAGapStartsBehindIt(t *testing.T) {
	s := create(t, 40, Options{})
	add(t, s, batchOf(t, 50, 2, 1, "v"), batchOf(t, 60, 2, 1, "v"))
	p, err := s.Find(55)
	require.NoError(t, err)
	require.EqualValues(t, 60, p.Base)
}

// Scenario: S006 a bound at which nothing may be read gives an empty region that names the batch
func TestABoundBelowTheBatchGivesAnEmptyRegion(t *testing.T) {
	s := create(t, 40, Options{})
	first, second := one(t, 50), one(t, 51)
	add(t, s, first, second)
	for _, atLeastOne := range []bool{true, false} {
		for offset, want := range map[int64][2]int64{48: {50, 0}, 50: {50, 0}, 51: {51, int64(len(first))}} {
			r, err := s.Region(offset, 1, 40, atLeastOne)
			require.NoError(t, err)
			require.EqualValues(t, 0, r.Len())
			require.Equal(t, want, [2]int64{r.First().Base, r.First().Pos})
			require.NoError(t, r.Close())
		}
		for _, offset := range []int64{52, 53} {
			_, err := s.Region(offset, 1, 40, atLeastOne)
			require.ErrorIs(t, err, ErrNotFound)
		}
	}
}

// Scenario: S007 append two batches, truncate the second, 30 rounds
func TestTruncatingTheSecondBatchKeepsTheFirstReadable(t *testing.T) {
	s := create(t, 40, Options{})
	next := int64(40)
	for range 30 {
		add(t, s, batchOf(t, next, 1, 1, "first"), batchOf(t, next+1, 1, 1, "second"))
		before := s.Info().Bytes
		cut, err := s.Truncate(next + 1)
		require.NoError(t, err)
		require.Equal(t, before-s.Info().Bytes, cut)
		p, err := s.Find(next)
		require.NoError(t, err)
		require.Equal(t, next, p.Base)
		_, err = s.Find(next + 1)
		require.ErrorIs(t, err, ErrNotFound)
		next++
	}
}

// Scenario: S008 an empty segment is rolled only when the offset does not fit
func TestAnEmptySegmentIsRolledOnlyForItsOffset(t *testing.T) {
	now := time.UnixMilli(1000)
	o := Options{FS: memFS(t), MaxAge: time.Second, Now: func() time.Time { return now }}
	s := create(t, 0, o)
	require.NoError(t, s.Close())
	s = open(t, 0, o)
	_, err := s.Truncate(57)
	require.NoError(t, err)
	now = now.Add(time.Second + time.Millisecond)
	roll, _ := s.NeedsRoll(Incoming{Bytes: 10, LastOffset: 57, MaxTimestamp: now.UnixMilli()}, now)
	require.False(t, roll)
	roll, why := s.NeedsRoll(Incoming{Bytes: 10, LastOffset: math.MaxInt32 + 200, MaxTimestamp: now.UnixMilli()}, now)
	require.True(t, roll)
	require.Equal(t, RollOffset, why)
}

// Scenario: S009 time entries go with a truncation, and the largest timestamp falls back
func TestTruncationReloadsLargestTimestampAndTimeIndex(t *testing.T) {
	size := int64(len(batchOf(t, 0, 1, 1, "msg")))
	s := create(t, 40, Options{IndexIntervalBytes: 2*size - 1})
	for i := range int64(30) {
		add(t, s, batchOf(t, 40+i, 1, 400+i, "msg"))
	}
	x, err := s.readIndexes()
	require.NoError(t, err)
	require.Equal(t, 14, x.time.Len())
	_, err = s.Truncate(41)
	require.NoError(t, err)
	x, err = s.readIndexes()
	require.NoError(t, err)
	require.Equal(t, 0, x.time.Len())
	ts, off, err := s.LargestTimestamp()
	require.NoError(t, err)
	require.Equal(t, [2]int64{400, 40}, [2]int64{ts, off})
	next, err := s.NextOffset()
	require.NoError(t, err)
	require.EqualValues(t, 41, next)
}

// Scenario: S010 truncate everything: the age starts anew, indexes take entries, appends work
func TestTruncatingEverythingStartsTheSegmentAnew(t *testing.T) {
	now := time.UnixMilli(5000)
	s := create(t, 40, Options{Now: func() time.Time { return now }, MaxAge: time.Minute})
	add(t, s, batchOf(t, 40, 2, -1, "hello there"))
	now = now.Add(time.Minute)
	require.EqualValues(t, 60000, s.waited(Incoming{}, now, s.pub.load()))
	_, err := s.Truncate(0)
	require.NoError(t, err)
	require.EqualValues(t, 0, s.waited(Incoming{}, now, s.pub.load()))
	require.False(t, s.indexFull())
	_, err = s.Find(0)
	require.ErrorIs(t, err, ErrNotFound)
	require.EqualValues(t, 0, s.Info().Bytes)
	add(t, s, batchOf(t, 40, 2, -1, "hello there"))
	require.Equal(t, []int64{41}, mustOffsets(t, s))
}

// Scenario: S012 next offset: empty 40; after batch 50..52, 53
func TestNextOffsetIsReadFromTheFile(t *testing.T) {
	o := Options{FS: memFS(t)}
	s := create(t, 40, o)
	next, err := s.NextOffset()
	require.NoError(t, err)
	require.EqualValues(t, 40, next)
	add(t, s, batchOf(t, 50, 3, 1, "v"))
	require.NoError(t, s.Close())
	s = open(t, 40, o)
	require.EqualValues(t, -1, s.Info().NextOffset, "Open reads nothing")
	next, err = s.NextOffset()
	require.NoError(t, err)
	require.EqualValues(t, 53, next)
}

// Scenario: S014 garbage in the offset index, recover: every offset readable
func TestRecoveryRebuildsAGarbledIndex(t *testing.T) {
	o := Options{FS: memFS(t), IndexIntervalBytes: EveryBatch}
	s := create(t, 0, o)
	fill(t, s, 100)
	require.NoError(t, s.Close())
	want := fileBytes(t, o.FS, file(0, ".index"))
	wantTime := fileBytes(t, o.FS, file(0, ".timeindex"))
	garbage := make([]byte, len(want))
	for i := range garbage {
		garbage[i] = byte(i*31 + 7)
	}
	for _, kind := range []string{".index", ".timeindex"} {
		setBytes(t, o.FS, file(0, kind), garbage)
	}
	s = open(t, 0, o)
	require.Equal(t, Clean, recoverAll(t, s).Verdict)
	for i := range int64(100) {
		p, err := s.Find(i)
		require.NoError(t, err)
		require.Equal(t, i, p.Base)
		tp, err := s.FindTime(max(i*10, 1), 0)
		require.NoError(t, err)
		require.Equal(t, i, tp.Offset)
	}
	require.Equal(t, want, fileBytes(t, o.FS, file(0, ".index")))
	require.Equal(t, wantTime, fileBytes(t, o.FS, file(0, ".timeindex")))
}

// Scenario: S017 recovery tells the epochs {0@104, 1@106, 2@110}
func TestRecoveryShowsEveryBatchWithItsEpoch(t *testing.T) {
	o := Options{FS: memFS(t)}
	s := create(t, 100, o)
	for _, e := range []struct {
		base  int64
		n     int
		epoch int32
	}{{104, 2, 0}, {106, 2, 1}, {108, 2, 1}, {110, 2, 2}, {112, 2, 2}} {
		raw := batchOf(t, e.base, e.n, 1, "v")
		b, err := record.View(raw)
		require.NoError(t, err)
		b.SetLeaderEpoch(e.epoch)
		add(t, s, raw)
	}
	require.NoError(t, s.Close())
	s = open(t, 100, o)
	epochs := map[int32]int64{}
	scan, err := s.Recover(ctx, ScanOptions{Each: func(b record.Batch) error {
		if _, ok := epochs[b.LeaderEpoch()]; !ok {
			epochs[b.LeaderEpoch()] = b.BaseOffset()
		}
		return nil
	}})
	require.NoError(t, err)
	require.Equal(t, map[int32]int64{0: 104, 1: 106, 2: 110}, epochs)
	require.Equal(t, [4]int64{0, 2, 0, 104}, [4]int64{int64(scan.FirstEpoch), int64(scan.LastEpoch), int64(scan.LowestEpoch), scan.FirstOffset})
}

// Scenario: S019 random corruption inside batch k of 20: exactly offsets 0..k-1 remain
func TestRecoveryKeepsWhatComesBeforeACorruptBatch(t *testing.T) {
	for round := range 10 {
		o := Options{FS: memFS(t)}
		s := create(t, 0, o)
		fill(t, s, 20)
		k := int64(round*7%20 + 0)
		p, err := s.Find(k)
		require.NoError(t, err)
		require.NoError(t, s.Close())
		b := fileBytes(t, o.FS, file(0, ".log"))
		b[p.Pos+17+int64(round*5)%(p.Size-17)] ^= 0x5a
		setBytes(t, o.FS, file(0, ".log"), b)
		s = open(t, 0, o)
		recoverAll(t, s)
		require.Equal(t, span(0, k), append([]int64(nil), mustOffsets(t, s)...))
	}
}

// Scenario: S020 a preallocated file has its full length while open, its real one afterwards
func TestPreallocatedSpaceGoesAtClose(t *testing.T) {
	o := Options{FS: memFS(t), Preallocate: true, MaxBytes: 1 << 20}
	s := create(t, 40, o)
	length := func() int {
		info, err := o.FS.Stat(file(40, ".log"))
		require.NoError(t, err)
		return int(info.Size())
	}
	require.Equal(t, 1<<20, length())
	first, second := batchOf(t, 50, 2, 1, "hello"), batchOf(t, 60, 2, 1, "there")
	add(t, s, first, second)
	before, err := s.Find(55)
	require.NoError(t, err)
	require.EqualValues(t, len(first)+len(second), s.Info().Bytes)
	require.Equal(t, 1<<20, length())
	require.NoError(t, s.Close())
	require.Equal(t, len(first)+len(second), length())
	s = open(t, 40, o)
	after, err := s.Find(55)
	require.NoError(t, err)
	require.Equal(t, before, after)
	add(t, s, one(t, 70))
}

// Scenario: S020, after a kill: the zero tail is cut
func TestPreallocatedSpaceIsCutByRecovery(t *testing.T) {
	o := Options{FS: memFS(t), Preallocate: true, MaxBytes: 1 << 20}
	s := create(t, 0, o)
	fill(t, s, 3)
	size := s.Info().Bytes
	killed := open(t, 0, o)
	_, err := killed.NextOffset()
	require.ErrorIs(t, err, ErrCorrupt, "zeros are no batches")
	_, err = killed.Append(one(t, 3))
	require.ErrorIs(t, err, ErrCorrupt, "never append behind something unreadable")
	scan := recoverAll(t, killed)
	require.Equal(t, Torn, scan.Verdict)
	require.True(t, scan.ZeroTail)
	require.Equal(t, size, scan.ValidBytes)
	add(t, killed, one(t, 3))
	require.Equal(t, span(0, 4), mustOffsets(t, killed))
}

// Scenario: S021 truncate at an offset inside a gap: only 40 stays
func TestTruncatingInsideAGapCutsWhatIsBehindIt(t *testing.T) {
	s := create(t, 40, Options{})
	add(t, s, one(t, 40), one(t, 43))
	_, err := s.Truncate(41)
	require.NoError(t, err)
	require.Equal(t, []int64{40}, mustOffsets(t, s))
	require.EqualValues(t, 41, s.Info().NextOffset)
}

// Scenario: S022, U044 a segment whose offsets do not fit is split where they stop fitting
func TestSplitStopsBeforeTheFirstOffsetThatDoesNotFit(t *testing.T) {
	fsys := memFS(t)
	o := Options{FS: fsys}
	far := int64(math.MaxInt32)
	batches := [][]byte{
		batchOf(t, 0, 1, 1, "a"), batchOf(t, 500, 1, 2, string(make([]byte, 1<<20+1))),
		batchOf(t, far+4, 1, 3, "c"), batchOf(t, far+10, 2, 4, "d"), batchOf(t, 3*far, 1, 5, "e"),
	}
	var raw []byte
	for _, b := range batches {
		raw = append(raw, b...)
	}
	setBytes(t, fsys, file(0, ".log"), raw)
	stamp := time.UnixMilli(1_600_000_000_000)
	require.NoError(t, fsys.Chtimes(file(0, ".log"), stamp))
	s := open(t, 0, o)
	_, err := s.NextOffset()
	require.ErrorIs(t, err, ErrOverflow)
	_, err = s.Recover(ctx, ScanOptions{})
	require.ErrorIs(t, err, ErrOverflow)
	require.Equal(t, raw, fileBytes(t, fsys, file(0, ".log")))

	parts, err := Split(ctx, s)
	require.NoError(t, err)
	var bases, lasts []int64
	var joined []byte
	for _, p := range parts {
		bases = append(bases, p.Base())
		lasts = append(lasts, mustOffsets(t, p)...)
		joined = append(joined, fileBytes(t, fsys, file(p.Base(), ".log.cleaned"))...)
		require.Equal(t, stamp.UnixMilli(), p.Info().ModTime.UnixMilli())
		require.NoError(t, p.Close())
	}
	require.Equal(t, []int64{0, far + 4, 3 * far}, bases)
	require.Equal(t, []int64{0, 500, far + 4, far + 11, 3 * far}, lasts)
	require.Equal(t, raw, joined)
}

// Scenario: U046 the only batch begins at a fitting offset and ends beyond it: one segment based at that batch
func TestSplitOfOneOverflowingBatchIsBasedAtIt(t *testing.T) {
	fsys := memFS(t)
	raw := batchOf(t, math.MaxInt32-1, 5, 1, "v")
	setBytes(t, fsys, file(0, ".log"), raw)
	parts, err := Split(ctx, open(t, 0, Options{FS: fsys}))
	require.NoError(t, err)
	require.Len(t, parts, 1)
	require.EqualValues(t, math.MaxInt32-1, parts[0].Base())
	require.Equal(t, []int64{math.MaxInt32 + 3}, mustOffsets(t, parts[0]))
	require.NoError(t, parts[0].Close())
	s := open(t, math.MaxInt32-1, Options{FS: fsys, Suffix: ".cleaned"})
	require.NoError(t, s.Rename(".swap"))
	require.NoError(t, s.Rename(""))
	_, err = Split(ctx, s)
	require.ErrorContains(t, err, "nothing to split")
}
