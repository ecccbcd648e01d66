package epoch

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

type list = []Entry

// disk is a Store that remembers what it was given.
type disk struct {
	entries list
	writes  int
	fail    error
}

func (d *disk) store(entries []Entry) error {
	if d.fail != nil {
		return d.fail
	}
	d.entries, d.writes = slices.Clone(entries), d.writes+1
	return nil
}

func cacheOf(t require.TestingT, entries list) (*Cache, *disk) {
	d := &disk{entries: slices.Clone(entries)}
	c, err := New(entries, d.store)
	require.NoError(t, err)
	require.False(t, c.Dirty())
	return c, d
}

func requireEntries(t require.TestingT, want list, c *Cache) {
	got := c.Entries()
	require.True(t, slices.Equal(want, got), "want %v, got %v", want, got)
}

func TestAssignReplacesWhatItContradicts(t *testing.T) {
	for name, row := range map[string]struct {
		before, after list
		epoch         int32
		start         int64
	}{
		"first entry":                 {nil, list{{0, 0}}, 0, 0},
		"next epoch, same start":      {list{{2, 9}}, list{{3, 9}}, 3, 9},
		"older epoch drops newer":     {list{{1, 5}, {2, 6}}, list{{1, 7}}, 1, 7},
		"next epoch, earlier start":   {list{{2, 6}}, list{{3, 5}}, 3, 5},
		"latest epoch, earlier start": {list{{5, 11}, {6, 12}, {7, 13}}, list{{5, 11}, {7, 12}}, 7, 12},
		"latest epoch, later start":   {list{{2, 6}}, list{{2, 6}}, 2, 10},
		"latest epoch, same start":    {list{{2, 6}}, list{{2, 6}}, 2, 6},
		"simple growth":               {list{{2, 6}}, list{{2, 6}, {4, 11}}, 4, 11},
		"drops all":                   {list{{2, 6}, {3, 8}}, list{{1, 1}}, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			c, d := cacheOf(t, row.before)
			changed, err := c.Assign(row.epoch, row.start)
			require.NoError(t, err)
			require.Equal(t, !slices.Equal(row.before, row.after), changed)
			requireEntries(t, row.after, c)
			require.True(t, slices.Equal(row.after, d.entries), "on disk before Assign returns")
			if !changed {
				require.Zero(t, d.writes)
			}
		})
	}
}

func TestNegativeEpochsAndOffsetsAreRefused(t *testing.T) {
	c, d := cacheOf(t, list{{1, 5}})
	for _, e := range (list{{-1, 5}, {2, -1}}) {
		_, err := c.Assign(e.Epoch, e.StartOffset)
		require.ErrorIs(t, err, ErrInvalid)
		_, err = New(list{e}, nil)
		require.ErrorIs(t, err, ErrInvalid)
	}
	requireEntries(t, list{{1, 5}}, c)
	require.Zero(t, d.writes)
}

func TestEndOffset(t *testing.T) {
	type answer struct {
		epoch int32
		end   int64
	}
	gaps, dense := list{{0, 10}, {2, 13}, {4, 17}}, list{{5, 11}, {6, 12}, {7, 13}}
	for name, row := range map[string]struct {
		entries list
		epoch   int32
		logEnd  int64
		want    answer
	}{
		// Scenario: E002 undefined epoch → (−1,−1), empty or not; unknown higher epoch → (−1,−1); empty cache → (−1,−1)
		"undefined, empty":     {nil, -1, 0, answer{-1, -1}},
		"undefined, not empty": {list{{2, 11}}, -1, 20, answer{-1, -1}},
		"unknown higher":       {list{{2, 11}}, 3, 20, answer{-1, -1}},
		"empty":                {nil, 3, 20, answer{-1, -1}},
		// Scenario: E004 {5@11,6@12,7@13}: end of 4 → (4,11)
		"older than all": {dense, 4, 20, answer{4, 11}},
		// Scenario: E006 {0@10,2@13,4@17}: 1 → (0,13); 2 → (2,17); 3 → (2,17)
		"between":       {gaps, 1, 20, answer{0, 13}},
		"exact":         {gaps, 2, 20, answer{2, 17}},
		"between later": {gaps, 3, 20, answer{2, 17}},
		// Scenario: E007 {2@6}, LEO 7: end of 2 → (2,7)
		"latest": {list{{2, 6}}, 2, 7, answer{2, 7}},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := cacheOf(t, row.entries)
			epoch, end := c.EndOffset(row.epoch, row.logEnd)
			require.Equal(t, row.want, answer{epoch, end})
		})
	}
}

// Scenario: E004 {5@11,6@12,7@13}: assign (7,12) → end of 5 and 6 → (5,12)
func TestEndOffsetAfterAnEpochMovedBack(t *testing.T) {
	c, _ := cacheOf(t, list{{5, 11}, {6, 12}, {7, 13}})
	_, err := c.Assign(7, 12)
	require.NoError(t, err)
	for _, asked := range []int32{5, 6} {
		epoch, end := c.EndOffset(asked, 20)
		require.Equal(t, int32(5), epoch)
		require.Equal(t, int64(12), end)
	}
}

// Scenario: E009 leader changing 0,1,2 with growing LEO → ends (0,0),(1,5),(2,10)
func TestALeaderThatMovesOnKnowsTheEndOfEachEpoch(t *testing.T) {
	c, _ := cacheOf(t, nil)
	end := func(e int32, logEnd int64) int64 {
		got, end := c.EndOffset(e, logEnd)
		require.Equal(t, e, got)
		return end
	}
	for i, start := range []int64{0, 0, 5} {
		_, err := c.Assign(int32(i), start)
		require.NoError(t, err)
		require.Equal(t, start+5*int64(i), end(int32(i), start+5*int64(i)))
	}
	// the entry of epoch 0 was replaced by epoch 1 at the same start: nothing was written in it
	requireEntries(t, list{{1, 0}, {2, 5}}, c)
	require.Equal(t, int64(0), end(0, 10))
	require.Equal(t, int64(5), end(1, 10))
	require.Equal(t, int64(10), end(2, 10))
}

// Scenario: E010 follower receiving epochs 0,1,2 over 9 offsets → ends (0,3),(1,6),(2,9)
func TestAFollowerLearnsEpochsFromBatches(t *testing.T) {
	c, _ := cacheOf(t, nil)
	for offset := range int64(9) {
		_, err := c.Assign(int32(offset/3), offset)
		require.NoError(t, err)
	}
	for e := range int32(3) {
		got, end := c.EndOffset(e, 9)
		require.Equal(t, e, got)
		require.Equal(t, int64(3*e+3), end)
	}
}

// Scenario: E011 {2@6,3@8,4@11} truncateFromEnd 8 → {2@6}; 9 → {2@6,3@8}; −1 → unchanged
func TestTruncateFromEnd(t *testing.T) {
	before := list{{2, 6}, {3, 8}, {4, 11}}
	for offset, after := range map[int64]list{8: before[:1], 9: before[:2], -1: before, 11: before[:2], 12: before, 6: nil, 0: nil} {
		c, d := cacheOf(t, before)
		require.Equal(t, !slices.Equal(before, after), c.TruncateFromEnd(offset), "%d", offset)
		requireEntries(t, after, c)
		require.Equal(t, before, d.entries, "the disk is told later")
	}
}

// Scenario: E012 same, truncateFromStart 8 → {3@8,4@11}; 9 → {3@9,4@11}; 1 or 6 → unchanged; 11 → {4@11}; 15 → {4@15}; −1 → unchanged
// Scenario: E013 {0@0,1@7,2@10} truncateFromStart 5 → {0@5,1@7,2@10}
func TestTruncateFromStart(t *testing.T) {
	before := list{{2, 6}, {3, 8}, {4, 11}}
	for offset, after := range map[int64]list{8: before[1:], 9: {{3, 9}, {4, 11}}, 1: before, 6: before, 11: before[2:], 15: {{4, 15}}, -1: before} {
		c, _ := cacheOf(t, before)
		require.Equal(t, !slices.Equal(before, after), c.TruncateFromStart(offset), "%d", offset)
		requireEntries(t, after, c)
	}
	c, _ := cacheOf(t, list{{0, 0}, {1, 7}, {2, 10}})
	require.True(t, c.TruncateFromStart(5))
	requireEntries(t, list{{0, 5}, {1, 7}, {2, 10}}, c)
}

// Scenario: E014 clear → empty; truncations on empty → no error
func TestClearAndTruncationsOfNothing(t *testing.T) {
	c, d := cacheOf(t, list{{2, 6}, {3, 8}})
	require.NoError(t, c.Clear())
	requireEntries(t, nil, c)
	require.Empty(t, d.entries)
	require.False(t, c.TruncateFromStart(7))
	require.False(t, c.TruncateFromEnd(7))
	_, ok := c.Latest()
	require.False(t, ok)
	_, ok = c.Earliest()
	require.False(t, ok)
}

// Scenario: E016 next epoch of {0,1,2}: −1→0, 0→1, 1→2, 2→none, 100→none
func TestNeighboursOfAnEpoch(t *testing.T) {
	c, _ := cacheOf(t, list{{0, 10}, {1, 20}, {2, 30}})
	for asked, want := range map[int32]int32{-1: 0, 0: 1, 1: 2, 2: None, 100: None} {
		e, ok := c.Next(asked)
		require.Equal(t, want != None, ok)
		if ok {
			require.Equal(t, want, e.Epoch)
		}
	}
	for asked, want := range map[int32]int32{-1: None, 0: None, 1: 0, 2: 1, 100: 2} {
		e, ok := c.Previous(asked)
		require.Equal(t, want != None, ok)
		if ok {
			require.Equal(t, want, e.Epoch)
		}
	}
	first, _ := c.Earliest()
	last, _ := c.Latest()
	require.Equal(t, list{{0, 10}, {2, 30}}, list{first, last})
}

// Scenario: E017 {0@10,1@20,5@30} epoch for offset 25→1, 20→1, 30→5, 50→5, 5→none
func TestEpochForOffset(t *testing.T) {
	c, _ := cacheOf(t, list{{0, 10}, {1, 20}, {5, 30}})
	for offset, want := range map[int64]int32{25: 1, 20: 1, 30: 5, 50: 5, 5: None} {
		got, ok := c.EpochFor(offset)
		require.Equal(t, want, got)
		require.Equal(t, want != None, ok)
	}
}

// Scenario: E018 truncation from both ends reaches the file (asynchronously): {3@8}
func TestTruncationsReachTheDiskByFlush(t *testing.T) {
	c, d := cacheOf(t, list{{2, 6}, {3, 8}, {4, 11}})
	c.TruncateFromEnd(11)
	c.TruncateFromStart(8)
	require.True(t, c.Dirty())
	require.Zero(t, d.writes)
	require.NoError(t, c.Flush(t.Context()))
	require.Equal(t, list{{3, 8}}, d.entries)
	require.False(t, c.Dirty())
	require.NoError(t, c.Flush(t.Context()))
	require.Equal(t, 1, d.writes, "nothing left to flush")
}

func TestALaterLineOfTheFileWins(t *testing.T) {
	d := &disk{}
	c, err := New(list{{5, 11}, {6, 12}, {7, 13}, {7, 12}, {3, 20}}, d.store)
	require.NoError(t, err)
	requireEntries(t, list{{3, 20}}, c)
	require.True(t, c.Dirty(), "the file should be rewritten")
}

func TestAFailedStoreLeavesTheCacheAsItWas(t *testing.T) {
	c, d := cacheOf(t, list{{1, 5}})
	d.fail = errors.New("disk")
	_, err := c.Assign(2, 9)
	require.ErrorIs(t, err, d.fail)
	require.ErrorIs(t, c.Clear(), d.fail)
	requireEntries(t, list{{1, 5}}, c)
	require.True(t, c.Dirty(), "what the disk holds is not known")
	d.fail = nil
	require.NoError(t, c.Flush(t.Context()))
	require.Equal(t, list{{1, 5}}, d.entries)
}

func TestARenamedFolderGetsItsOwnFile(t *testing.T) {
	c, before := cacheOf(t, list{{1, 5}})
	var after disk
	c.Rebind(after.store)
	require.True(t, c.Dirty())
	require.NoError(t, c.Flush(t.Context()))
	require.Equal(t, list{{1, 5}}, after.entries)
	require.Zero(t, before.writes)
	c.Rebind(nil)
	c.TruncateFromEnd(0)
	require.False(t, c.Dirty())
	require.NoError(t, c.Flush(t.Context()))
}

func TestEntriesAreACopy(t *testing.T) {
	c, _ := cacheOf(t, list{{1, 5}, {2, 7}})
	c.Entries()[0] = Entry{9, 9}
	requireEntries(t, list{{1, 5}, {2, 7}}, c)
}

func TestLooksBesideChangesSeeOneConsistentList(t *testing.T) {
	c, _ := cacheOf(t, nil)
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range int64(500) {
			_, err := c.Assign(int32(i), i*10)
			require.NoError(t, err)
			if i%20 == 19 {
				c.TruncateFromStart(i * 9)
				c.TruncateFromEnd(i*10 - 20)
			}
		}
	})
	for range 2 {
		wg.Go(func() {
			for range 500 {
				entries := c.Entries()
				for i := 1; i < len(entries); i++ {
					require.Less(t, entries[i-1].Epoch, entries[i].Epoch)
					require.Less(t, entries[i-1].StartOffset, entries[i].StartOffset)
				}
				if last, ok := c.Latest(); ok {
					c.EndOffset(last.Epoch-1, last.StartOffset)
					c.EpochFor(last.StartOffset)
				}
			}
		})
	}
	wg.Wait()
}

func TestLookingAllocatesNothing(t *testing.T) {
	c, _ := cacheOf(t, list{{1, 5}, {2, 7}, {4, 9}})
	require.Zero(t, testing.AllocsPerRun(100, func() {
		c.Latest()
		c.EndOffset(2, 20)
		c.EpochFor(8)
		_, _ = c.Assign(4, 12) // every append of the running epoch asks
	}))
}

// model keeps for each offset the epoch it was written in, and what the cache should say follows by counting.
type model map[int32]int64

func (m model) sorted() list {
	out := list{}
	for e, s := range m {
		out = append(out, Entry{e, s})
	}
	slices.SortFunc(out, func(a, b Entry) int { return int(a.Epoch) - int(b.Epoch) })
	return out
}

func TestAgainstANaiveModel(t *testing.T) {
	epochs, offsets := rapid.Int32Range(0, 12), rapid.Int64Range(0, 40)
	rapid.Check(t, func(t *rapid.T) {
		c, d := cacheOf(t, nil)
		m := model{}
		t.Repeat(map[string]func(*rapid.T){
			"assign": func(t *rapid.T) {
				e, s := epochs.Draw(t, "epoch"), offsets.Draw(t, "start")
				latest := int32(-1)
				for known := range m {
					latest = max(latest, known)
				}
				if len(m) == 0 || e != latest || s < m[latest] {
					for known, start := range m {
						if known >= e || start >= s {
							delete(m, known)
						}
					}
					m[e] = s
				}
				_, err := c.Assign(e, s)
				require.NoError(t, err)
				if !c.Dirty() {
					require.True(t, slices.Equal(m.sorted(), d.entries))
				}
			},
			"truncate end": func(t *rapid.T) {
				o := offsets.Draw(t, "offset")
				for e, s := range m {
					if s >= o {
						delete(m, e)
					}
				}
				c.TruncateFromEnd(o)
			},
			"truncate start": func(t *rapid.T) {
				o := offsets.Draw(t, "offset")
				last := int32(-1)
				for e, s := range m {
					if s <= o {
						last = max(last, e)
						delete(m, e)
					}
				}
				if last >= 0 {
					m[last] = o
				}
				c.TruncateFromStart(o)
			},
			"flush and reopen": func(t *rapid.T) {
				require.NoError(t, c.Flush(t.Context()))
				require.True(t, slices.Equal(m.sorted(), d.entries))
				var err error
				c, err = New(d.entries, d.store)
				require.NoError(t, err)
				require.False(t, c.Dirty())
			},
			"clear": func(t *rapid.T) {
				clear(m)
				require.NoError(t, c.Clear())
			},
			"": func(t *rapid.T) {
				requireEntries(t, m.sorted(), c)
				asked, logEnd := rapid.Int32Range(-1, 14).Draw(t, "asked"), int64(100)
				floor, next, latest := int32(-1), int32(-1), int32(-1)
				for e := range m {
					if e <= asked {
						floor = max(floor, e)
					} else if next < 0 || e < next {
						next = e
					}
					latest = max(latest, e)
				}
				epoch, end := c.EndOffset(asked, logEnd)
				switch {
				case asked >= 0 && asked == latest:
					require.Equal(t, Entry{asked, logEnd}, Entry{epoch, end})
				case asked < 0 || next < 0:
					require.Equal(t, Entry{-1, -1}, Entry{epoch, end})
				case floor < 0:
					require.Equal(t, Entry{asked, m[next]}, Entry{epoch, end})
				default:
					require.Equal(t, Entry{floor, m[next]}, Entry{epoch, end})
				}
				o := offsets.Draw(t, "lookup")
				want := None
				for e, s := range m {
					if s <= o {
						want = max(want, e)
					}
				}
				got, _ := c.EpochFor(o)
				require.Equal(t, want, got)
			},
		})
	})
}

// A file of the largest size that is read has more than a million lines: taking them in must not be quadratic.
func TestAMillionEpochsAreTakenInAtOnce(t *testing.T) {
	lines := make([]Entry, 1<<20)
	for i := range lines {
		lines[i] = Entry{Epoch: int32(i), StartOffset: int64(i)}
	}
	began := time.Now()
	c, err := New(lines, nil)
	require.NoError(t, err)
	require.Equal(t, len(lines), c.Len())
	require.False(t, c.Dirty())
	require.Less(t, time.Since(began), 10*time.Second)
}

// Whoever stores may hang: truncations and looks go on, and what they changed is not taken for stored.
func TestTruncationsGoOnWhileEntriesAreStored(t *testing.T) {
	var disk []Entry
	hang, began := make(chan struct{}), make(chan struct{}, 1)
	c, err := New([]Entry{{1, 0}, {2, 5}, {3, 9}}, func(list []Entry) error {
		began <- struct{}{}
		<-hang
		disk = slices.Clone(list)
		return nil
	})
	require.NoError(t, err)
	require.True(t, c.TruncateFromStart(2))

	flushed := make(chan error)
	go func() { flushed <- c.Flush(t.Context()) }()
	<-began
	require.True(t, c.TruncateFromStart(6))
	require.Equal(t, []Entry{{2, 6}, {3, 9}}, c.Entries())
	require.True(t, c.Dirty())
	close(hang)
	require.NoError(t, <-flushed)
	require.Equal(t, []Entry{{1, 2}, {2, 5}, {3, 9}}, disk)
	require.True(t, c.Dirty(), "what was cut meanwhile is not on the disk")
	require.NoError(t, c.Flush(t.Context()))
	<-began
	require.Equal(t, c.Entries(), disk)
	require.False(t, c.Dirty())
}

func TestAnEpochIsAssignedToWhatATruncationLeftMeanwhile(t *testing.T) {
	hang, began := make(chan struct{}), make(chan struct{}, 1)
	c, err := New([]Entry{{1, 0}, {2, 5}}, func([]Entry) error {
		began <- struct{}{}
		<-hang
		return nil
	})
	require.NoError(t, err)
	assigned := make(chan error)
	go func() {
		_, err := c.Assign(4, 9)
		assigned <- err
	}()
	<-began
	require.True(t, c.TruncateFromStart(6))
	close(hang)
	require.NoError(t, <-assigned)
	require.Equal(t, []Entry{{2, 6}, {4, 9}}, c.Entries())
	require.True(t, c.Dirty())
}
