package log

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs/vfstest"
)

func (s *site) truncate(offset int64) {
	s.t.Helper()
	end, err := s.log.Truncate(context.Background(), offset)
	require.NoError(s.t, err)
	require.Equal(s.t, end, s.log.Offsets().LogEnd)
}

func (s *site) reset(offset int64) {
	s.t.Helper()
	require.NoError(s.t, s.log.ResetTo(context.Background(), offset))
}

// Scenario: U052, U054
func TestTruncationsOfTenRecords(t *testing.T) {
	s := newSite(t, nineRecords(Durable))
	s.add(10)
	size := s.log.Stats().Bytes
	for _, offset := range []int64{10, 11, 1 << 40} {
		s.truncate(offset)
		s.holds(0, 10)
	}
	s.truncate(5)
	s.holds(0, 5)
	s.truncate(0)
	s.holds(0, 0)
	require.Zero(t, s.log.Stats().Bytes)
	s.add(10)
	require.Equal(t, size, s.log.Stats().Bytes)
	s.reset(0)
	s.holds(0, 0)
	s.add(10)
	require.Equal(t, size, s.log.Stats().Bytes)
	s.holds(0, 10)
	s.goesOn()
}

// Scenario: U055
func TestTruncateBelowTheFirstSegmentEmptiesTheLogThere(t *testing.T) {
	s := newSite(t, nineRecords(Durable))
	s.reset(1)
	s.add(10)
	s.holds(1, 11)
	s.truncate(0)
	s.holds(0, 0)
	require.Zero(t, s.log.Stats().Bytes)
	s.goesOn()
}

// Scenario: U056
func TestTruncateAtTheEndDropsABareEpoch(t *testing.T) {
	for _, epoch := range []int32{20, 24} {
		for _, offset := range []int64{29, 30} {
			s := newSite(t, nineRecords(Durable))
			s.reset(27)
			require.NoError(t, s.log.AssignEpoch(19))
			s.add(2)
			require.NoError(t, s.log.AssignEpoch(epoch))
			require.Equal(t, []EpochEntry{{19, 27}, {epoch, 29}}, s.log.Epochs())
			s.truncate(offset)
			require.Equal(t, []EpochEntry{{19, 27}}, s.log.Epochs())
			require.Equal(t, int32(19), s.log.Offsets().LeaderEpoch)
			s.kill()
			s.open()
			require.Equal(t, []EpochEntry{{19, 27}}, s.log.Epochs())
		}
	}
}

// Scenario: U057
func TestTruncateCutsEpochs(t *testing.T) {
	s := newSite(t, nineRecords(Durable))
	for _, e := range []EpochEntry{{0, 0}, {1, 10}, {2, 16}} {
		require.NoError(t, s.log.AssignEpoch(e.Epoch))
		s.add(map[int32]int{0: 10, 1: 6, 2: 4}[e.Epoch])
	}
	for _, row := range []struct{ offset, entries int64 }{{20, 3}, {11, 2}, {10, 1}, {0, 0}} {
		s.truncate(row.offset)
		require.Len(t, s.log.Epochs(), int(row.entries), "truncated to %d", row.offset)
		s.kill()
		s.open()
		require.Len(t, s.log.Epochs(), int(row.entries), "truncated to %d, reopened", row.offset)
	}
}

func TestTruncateKeepsTheStartOffsetOfALogWithManySegments(t *testing.T) {
	s := newNine(t, Durable)
	require.NoError(t, s.log.DeleteRecords(context.Background(), 4))
	s.truncate(8)
	s.kill()
	s.open()
	s.holds(4, 8)
	s.truncate(3)
	s.holds(3, 3)
	s.kill()
	s.open()
	s.holds(3, 3)
	s.goesOn()
}

func TestTruncateCutsAWholeBatchAndSaysSo(t *testing.T) {
	s := newSite(t, nineRecords(Durable))
	s.add(1)
	_, err := s.log.Append(context.Background(), siteRecord(1), siteRecord(2), siteRecord(3))
	require.NoError(t, err)
	end, err := s.log.Truncate(context.Background(), 3)
	require.NoError(t, err)
	require.Equal(t, int64(1), end)
	s.holds(0, 1)
	s.goesOn()
}

func TestRefusedTruncationsChangeNothing(t *testing.T) {
	s := newNine(t, Durable)
	var out *OffsetRangeError
	_, err := s.log.Truncate(context.Background(), -1)
	require.ErrorAs(t, err, &out)
	require.ErrorAs(t, s.log.ResetTo(context.Background(), -1), &out)
	require.ErrorAs(t, s.log.DeleteRecords(context.Background(), 10), &out)
	require.ErrorAs(t, s.log.DeleteRecords(context.Background(), -2), &out)
	require.NoError(t, s.log.DeleteRecords(context.Background(), 0))
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = s.log.Truncate(ended, 3)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, s.log.ResetTo(ended, 3), context.Canceled)
	require.NoError(t, s.log.Err())
	s.holds(0, 9)
	s.stop()
	_, err = s.log.Truncate(context.Background(), 3)
	require.ErrorIs(t, err, ErrClosed)
}

// Whoever waits for a sync of what a truncation took must not be told that it is durable because other records stand
// there now.
func TestAnAppendThatIsTruncatedWhileItWaitsIsNotAcknowledged(t *testing.T) {
	s := newSite(t, nineRecords(Durable))
	s.stop()
	slow := vfstest.NewFault(s.disk)
	d, err := OpenDir("root", DirConfig{Manual: true, FS: slow, Now: crashClock})
	require.NoError(t, err)
	l, err := d.Open(context.Background(), crashTP, s.cfg)
	require.NoError(t, err)
	s.dir, s.log = d, l

	// A round of some other append runs and stands still in its sync. Our append joins the next one.
	block := make(chan struct{})
	inSync := make(chan struct{})
	slow.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpSyncData}, Name: "*.log", Block: block, Hook: func(vfstest.Op) error {
		close(inSync)
		return nil
	}})
	var wg sync.WaitGroup
	errs := make([]error, 3)
	wg.Go(func() { _, errs[0] = l.Append(context.Background(), siteRecord(0)) })
	<-inSync
	wg.Go(func() { _, errs[1] = l.Append(context.Background(), siteRecord(1)) })
	for l.Offsets().LogEnd < 2 {
		time.Sleep(time.Millisecond)
	}
	// Now a truncation and a new append of the same offset, both behind the round.
	truncated := make(chan error, 1)
	go func() {
		_, err := l.Truncate(context.Background(), 1)
		truncated <- err
	}()
	time.Sleep(5 * time.Millisecond)
	close(block)
	err = <-truncated
	require.NoError(t, err)
	wg.Wait()
	require.NoError(t, errs[0])
	if errs[1] != nil { // it may have been synced before the truncation came to its turn
		require.ErrorIs(t, errs[1], ErrTruncated)
	}
	s.holds(0, 1)
}

func TestRecordsInThePlaceOfTruncatedOnesConfirmNothing(t *testing.T) {
	s := newSite(t, nineRecords(Buffered))
	s.add(2)
	_, cuts := s.log.loadCuts()
	s.truncate(1)
	s.add(2)
	require.NoError(t, s.log.commit(context.Background(), 1, cuts))
	require.Equal(t, ErrTruncated, s.log.commit(context.Background(), 2, cuts))
	require.NoError(t, s.log.Sync(context.Background()))
	require.Equal(t, ErrTruncated, s.log.commit(context.Background(), 2, cuts), "durable, but not what was appended")
}

func TestMarksRememberHowDeepTruncationsWent(t *testing.T) {
	var m marks
	cut := func(end int64) { m.cut(end, func(o *Offsets) { o.LogEnd = end }) }
	lost := func(cuts uint64, end int64) bool {
		_, lost := m.lost(cuts, end)
		return lost
	}
	require.False(t, lost(0, 100))
	cut(50)
	require.True(t, lost(0, 100))
	require.True(t, lost(0, 51))
	require.False(t, lost(0, 50))
	require.False(t, lost(1, 100))
	cut(70)
	require.True(t, lost(0, 60), "the deeper one counts")
	require.False(t, lost(1, 70))
	require.True(t, lost(1, 71))
	cut(20)
	require.True(t, lost(1, 21))
	require.True(t, lost(2, 21))
	for i := range int64(10 * maxDepths) {
		cut(100 + i)
	}
	require.LessOrEqual(t, len(m.depths), maxDepths)
	require.True(t, lost(0, 1), "forgotten counts as lost")
	require.False(t, lost(m.cuts, 1<<40))
	require.False(t, lost(m.cuts-1, 100+10*maxDepths-1))
	require.True(t, lost(m.cuts-1, 100+10*maxDepths))
}

func TestAWaitForATruncatedOffsetEnds(t *testing.T) {
	s := newSite(t, nineRecords(Buffered))
	s.add(5)
	for _, mark := range []Mark{MarkEnd, MarkDurable, MarkHighWatermark} {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		require.NoError(t, s.log.Wait(ctx, mark, 5), mark)
		cancel()
	}
	s.add(1)
	done := make(chan error, 1)
	external := &site{t: t, disk: s.disk.Kill(), cfg: nineRecords(Buffered)}
	external.cfg.Visibility = External
	external.open()
	go func() { done <- external.log.Wait(context.Background(), MarkHighWatermark, 6) }()
	time.Sleep(5 * time.Millisecond)
	external.truncate(3)
	require.ErrorIs(t, <-done, ErrTruncated)
}

// Readers that hold what a truncation takes finish or are told; nobody sees damage.
func TestReadersNeverSeeDamageBesideTruncations(t *testing.T) {
	s := newSite(t, nineRecords(Buffered))
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for ctx.Err() == nil {
				for r, err := range s.log.Records(ctx, 0) {
					var out *OffsetRangeError
					if err != nil && !errors.As(err, &out) && ctx.Err() == nil {
						t.Errorf("%v", err)
					}
					if want := siteRecord(r.Offset); err == nil && string(r.Value) != string(want.Value) {
						t.Errorf("offset %d holds %q", r.Offset, r.Value)
					}
				}
			}
		})
	}
	for i := range 150 {
		s.add(5)
		switch i % 4 {
		case 0:
			s.truncate(int64(i % 7))
		case 2:
			s.truncate(max(0, s.log.Offsets().LogEnd-2))
		case 3:
			if i%12 == 3 {
				s.reset(0)
			}
		}
	}
	cancel()
	wg.Wait()
}

// Removed segments are renamed one by one, the highest first, and each is gone for good before the next.
func TestTruncateTakesSegmentsFromTheHighestDown(t *testing.T) {
	s := newNine(t, Durable)
	s.stop()
	trace := vfstest.NewTrace(s.disk)
	d, err := OpenDir("root", DirConfig{Manual: true, FS: trace})
	require.NoError(t, err)
	l, err := d.Open(context.Background(), crashTP, s.cfg)
	require.NoError(t, err)
	trace.Reset()
	_, err = l.Truncate(context.Background(), 1)
	require.NoError(t, err)
	var order []string
	for _, op := range trace.Ops() {
		switch {
		case op.Match("recovery-point*", vfstest.OpRename), op.Match("*.log.deleted", vfstest.OpRename), op.Match("00000000000000000000.log", vfstest.OpTruncate, vfstest.OpSync):
			order = append(order, fmt.Sprintf("%v %s", op.Kind, op.Name))
		case op.Match("", vfstest.OpSyncDir) && op.Name != "." && len(order) > 0 && order[len(order)-1] != "syncdir":
			order = append(order, "syncdir")
		}
	}
	require.Equal(t, []string{
		"rename recovery-point-offset-checkpoint.tmp",
		"rename " + logFile(6), "syncdir", "rename " + logFile(3), "syncdir",
		"truncate " + logFile(0), "sync " + logFile(0), "syncdir",
	}, order)
}

// A gap holds nothing, and yet others may have read what was there: the next append lands behind it. Until that is on the device,
// a recovery point or a durable hint up there would make damage of it.
func TestATruncationIntoAGapEndsTheLogThereAndPromisesNothingAbove(t *testing.T) {
	for _, c := range []struct{ to, end int64 }{{2, 2}, {3, 3}, {5, 5}, {8, 8}, {9, 9}, {10, 10}, {11, 10}, {12, 12}, {14, 14}, {15, 15}} {
		disk := vfstest.NewCrash(vfstest.CrashOptions{})
		b := newBedOn(t, disk, Config{Durability: Buffered})
		for _, base := range []int64{0, 4, 9} {
			_, err := b.follow(batchOf(base, 0, record.None, "x"))
			require.NoError(t, err)
			if base == 4 {
				require.NoError(t, b.Roll(ctx))
			}
		}
		_, err := b.follow(batchOf(10, 0, record.None, "x", "y"), batchOf(16, 0, record.None, "x"))
		require.NoError(t, err)
		require.NoError(t, b.Sync(ctx))
		b.truncate(c.to)
		require.Equal(t, c.end, b.Offsets().LogEnd, "%+v", c)
		require.LessOrEqual(t, b.Offsets().RecoveryPoint, c.end)
		disk.Mark()
		b.add("lost")
		for d := range disk.Disks(vfstest.DiskOptions{}) {
			again := &bed{t: t, fs: d.FS(), cfg: b.cfg, clock: b.clock}
			again.open()
			require.GreaterOrEqual(t, again.Offsets().LogEnd, c.end, "%+v", c)
			for _, f := range again.Recovery().Findings {
				require.NotEqual(t, FindingShort, f.Kind, "%+v", c)
			}
		}
	}
}

// A log start in the gap, and a high watermark, stay where they are.
func TestATruncationBehindAGapLeavesTheMarksInIt(t *testing.T) {
	b := newBed(t, Config{})
	for _, base := range []int64{0, 9} {
		_, err := b.follow(batchOf(base, 0, record.None, "x"))
		require.NoError(t, err)
	}
	require.NoError(t, b.DeleteRecords(ctx, 5))
	b.truncate(9)
	for range 2 {
		o := b.Offsets()
		require.Equal(t, [4]int64{5, 9, 9, 9}, [4]int64{o.LogStart, o.HighWatermark, o.LastStable, o.LogEnd})
		b.reopen()
		require.Empty(t, b.Recovery().Findings)
	}
	b.truncate(7)
	require.Equal(t, [2]int64{5, 7}, [2]int64{b.Offsets().LogStart, b.Offsets().LogEnd})
	b.truncate(3)
	require.Equal(t, [2]int64{3, 3}, [2]int64{b.Offsets().LogStart, b.Offsets().LogEnd})
}
