package log

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// stormy is how many partitions something happens to; manyMore are there for the checkpoints to wait.
const stormy, manyMore = 6, 60

// manyLogsStorm is a root of many partitions.
type manyLogsStorm struct {
	t     *testing.T
	r     *rand.Rand
	fault *vfstest.Fault
	dir   *Dir
	known map[TopicPartition]*promised
	next  int
}

// promised is what a partition was said to be: values by offset from start on; of a call that failed either may be.
type promised struct {
	start  int64
	begun  int64 // a deletion of records up to there was tried
	values []string
	maybe  bool // being there or not: a deletion failed
	unsure int  // of values, from the end: an append that failed, or a truncation
}

func (s *manyLogsStorm) open(disk vfs.FS) {
	s.fault = vfstest.NewFault(disk)
	d, err := OpenDir("root", DirConfig{FS: s.fault, Manual: true, SyncParallelism: 1, Now: crashClock})
	require.NoError(s.t, err)
	s.dir = d
}

// step does one call and says whether it failed.
func (s *manyLogsStorm) step() (what string, err error) {
	tp := TopicPartition{"t", int32(s.r.IntN(stormy))}
	p := s.known[tp]
	if p == nil {
		p = &promised{}
		s.known[tp] = p
	}
	if s.r.IntN(8) == 0 {
		delete(s.known, tp)
		err := s.dir.Delete(ctx, tp)
		if errors.Is(err, ErrNoPartition) {
			err = nil
		} else if err != nil {
			p.maybe = true
			s.known[tp] = p
		}
		return "delete", err
	}
	l, err := s.dir.Open(ctx, tp, Config{SegmentBytes: 1000, RetentionTime: Forever})
	if err != nil {
		return "open", err
	}
	switch s.r.IntN(20) {
	case 0, 1, 2, 3, 4:
		s.next++
		value := fmt.Sprintf("%v value %d", tp, s.next)
		_, err = l.Append(ctx, record.Record{Value: []byte(value)})
		p.values = append(p.values, value)
		if err != nil {
			p.unsure = 1
		}
		return "append", err
	case 5, 6, 7:
		if at := l.Offsets().LogStart + int64(s.r.IntN(3)); at <= l.Offsets().HighWatermark {
			p.begun = max(p.begun, at)
			if err = l.DeleteRecords(ctx, at); err == nil {
				p.start = max(p.start, at)
			}
		}
		return "delete records", err
	case 8, 9:
		o := l.Offsets()
		if at := max(o.LogEnd-1, o.LogStart); at < o.LogEnd {
			if _, err = l.Truncate(ctx, at); err == nil {
				p.values = p.values[:at]
			} else {
				p.unsure = 1
			}
		}
		return "truncate", err
	case 10:
		return "background", s.dir.RunOnce(ctx, time.UnixMilli(crashTime))
	default:
		return "close", l.Close()
	}
}

// holds opens the disk and compares each partition with what was promised of it.
func (s *manyLogsStorm) holds(disk vfs.FS, why string) {
	d, err := OpenDir("root", DirConfig{FS: disk, Manual: true, Now: crashClock})
	require.NoError(s.t, err, why)
	tps, _, err := d.Folders()
	require.NoError(s.t, err)
	found := map[TopicPartition]bool{}
	for _, tp := range tps {
		found[tp] = true
	}
	for i := range int32(stormy) {
		tp := TopicPartition{"t", i}
		p := s.known[tp]
		if p == nil {
			require.False(s.t, found[tp], "%v is back: %s", tp, why)
			p = &promised{}
		}
		if len(p.values) > p.unsure && !p.maybe {
			require.True(s.t, found[tp], "%v is gone: %s", tp, why)
		}
		if !found[tp] && p.maybe {
			p = &promised{}
		}
		l, err := d.Open(ctx, tp, Config{SegmentBytes: 1000, RetentionTime: Forever}) // whoever is gone is made anew
		require.NoError(s.t, err, why)
		o := l.Offsets()
		require.GreaterOrEqual(s.t, o.LogStart, p.start, "%v: deleted records are back: %s", tp, why)
		require.LessOrEqual(s.t, o.LogStart, p.begun, "%v: records are gone: %s", tp, why)
		require.GreaterOrEqual(s.t, o.LogEnd, int64(len(p.values)-p.unsure), "%v: %s", tp, why)
		require.LessOrEqual(s.t, o.LogEnd, int64(len(p.values)), "%v: %s", tp, why)
		require.Equal(s.t, fmt.Sprint(p.values[o.LogStart:o.LogEnd]), fmt.Sprint(valuesOf(s.t, l)), "%v: %s", tp, why)
		if p.unsure == 0 { // else a tail may be there to be cut
			require.Empty(s.t, l.Recovery().Findings, "%v: %s", tp, why)
		}
	}
	require.NoError(s.t, d.Close(), why)
}

// Whatever call of the storm finds no room, or a device that fails, and wherever the process is killed behind it: what was
// promised of each partition holds, and no partition has anything of an earlier one of its name.
func TestCheckpointsOfManyLogsInAStormOfFaults(t *testing.T) {
	faults, crashes := 0, 0
	for seed := range uint64(200 / crashShare()) {
		disk := vfstest.NewCrash(vfstest.CrashOptions{Now: crashClock})
		s := &manyLogsStorm{t: t, r: rand.New(rand.NewPCG(seed, 9)), known: map[TopicPartition]*promised{}}
		s.open(disk)
		for i := range int32(stormy + manyMore) {
			l, err := s.dir.Open(ctx, TopicPartition{"t", i}, Config{SegmentBytes: 1000, RetentionTime: Forever})
			require.NoError(t, err)
			add(t, l, "first")
			s.known[TopicPartition{"t", i}] = &promised{values: []string{"first"}}
		}
		rule := []vfstest.Rule{
			{Err: syscall.ENOSPC}, {Err: syscall.EIO}, {Err: syscall.EIO, Done: true}, {Err: syscall.ENOSPC, Short: true, Keep: 9}, {Err: syscall.ENOSPC, Times: 5},
		}[seed%5]
		rule.Ops = []vfstest.Kind{vfstest.OpWrite, vfstest.OpCreate, vfstest.OpRename, vfstest.OpSync, vfstest.OpSyncDir, vfstest.OpTruncate}
		if seed%2 == 0 {
			rule.Name = "*checkpoint.tmp"
		}
		rule.Nth = 1 + s.r.IntN(1500)
		if rule.Name != "" {
			rule.Nth = 1 + s.r.IntN(150)
		}
		hits, _ := s.fault.Add(rule)
		log := fmt.Sprintf("seed %d, %v at %d:", seed, rule.Err, rule.Nth)
		for range 30 + s.r.IntN(300) {
			what, err := s.step()
			log += " " + what
			if err != nil {
				log += fmt.Sprintf(" (%v)", err)
				break
			}
			if s.r.IntN(10) == 0 {
				crashes++
				s.holds(disk.Kill(), log+" killed")
			}
		}
		faults += hits()
		if s.r.IntN(4) == 0 {
			if err := s.dir.Close(); err != nil {
				log += fmt.Sprintf(" stop (%v)", err)
			}
		}
		s.holds(disk.Kill(), log+" killed")
		for i := range uint64(3) {
			crashes++
			s.holds(disk.PowerLoss(seed*10+i), log+" power lost")
		}
	}
	t.Logf("%d faults, %d crashes", faults, crashes)
}
