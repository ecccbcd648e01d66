package producerstate

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/golden"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
)

// recorded is a golden folder: its whole batches below the end that Kafka gave the log.
type recorded struct {
	fsys    vfs.FS
	dir     string
	about   golden.Facts
	batches []record.Batch
	bases   []int64
}

func readGolden(t *testing.T, name string) recorded {
	g := recorded{about: golden.About(t, name)}
	var err error
	g.fsys, err = vfs.OS(golden.Copy(t, name))
	require.NoError(t, err)
	g.dir = g.about.Topic + "-0"
	files, err := g.fsys.ReadDir(g.dir)
	require.NoError(t, err)
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".log") {
			continue
		}
		raw, err := vfs.ReadFile(g.fsys, g.dir+"/"+f.Name(), 64<<20)
		require.NoError(t, err)
		g.bases = append(g.bases, mustOffset(t, f.Name()))
		for len(raw) > 0 {
			b, rest, err := record.Next(raw)
			if err != nil || b.Verify() != nil || b.LastOffset() >= g.about.AsOpened.LogEndOffset {
				break // the torn tails that the broker cut
			}
			g.batches, raw = append(g.batches, b), rest
		}
	}
	return g
}

func mustOffset(t *testing.T, name string) int64 {
	offset, ok := Offset(strings.TrimSuffix(name, ".log") + suffix)
	require.True(t, ok)
	return offset
}

// replay feeds what is not below from, and returns the index entries that come of it.
func (g recorded) replay(t *testing.T, s *State, from int64) (aborted []golden.AbortedTransaction) {
	aborted = []golden.AbortedTransaction{}
	for _, b := range g.batches {
		if b.LastOffset() < from {
			continue
		}
		p := s.Replay(b)
		require.Empty(t, p.Notes())
		for _, c := range p.Completed() {
			if c.Aborted {
				aborted = append(aborted, golden.AbortedTransaction{ProducerID: c.ProducerID, FirstOffset: c.FirstOffset, LastOffset: c.LastOffset, LastStableOffset: c.LastStable})
			}
		}
	}
	s.SetEnd(g.about.AsOpened.LogEndOffset)
	return aborted
}

// facts is the state in about.json's words. cached is left out unless asked for: a full replay remembers more.
func facts(s *State, cached bool) []golden.ProducerFacts {
	all := []golden.ProducerFacts{}
	for _, e := range s.Producers() {
		f := golden.ProducerFacts{ProducerID: e.ProducerID, Epoch: e.Epoch, LastSequence: e.LastSequence, LastOffset: e.LastOffset,
			LastTimestamp: e.Timestamp, CoordinatorEpoch: e.CoordinatorEpoch, TxnFirstOffset: e.TxnFirstOffset}
		if cached {
			f.CachedBatches = s.Batches(e.ProducerID)
		}
		all = append(all, f)
	}
	return all
}

func (g recorded) producers(cached bool) []golden.ProducerFacts {
	all := append([]golden.ProducerFacts{}, g.about.AsOpened.Producers...)
	slices.SortFunc(all, func(a, b golden.ProducerFacts) int { return cmp.Compare(a.ProducerID, b.ProducerID) })
	for i := range all {
		if !cached {
			all[i].CachedBatches = 0
		}
	}
	return all
}

// withData are the aborted transactions that compaction left a batch of: of the others only the entry is left, which
// nobody needs.
func (g recorded) withData() []golden.AbortedTransaction {
	gone := func(a golden.AbortedTransaction) bool {
		return !slices.ContainsFunc(g.batches, func(b record.Batch) bool {
			id, _, _ := b.Producer()
			return id == a.ProducerID && !b.Control() && b.BaseOffset() >= a.FirstOffset && b.LastOffset() < a.LastOffset
		})
	}
	all := append([]golden.AbortedTransaction{}, g.about.AsOpened.AbortedTransactions...)
	if g.about.Case != "compact-txn" {
		return all
	}
	return slices.DeleteFunc(all, gone)
}

func TestReplayingARealLogGivesKafkasState(t *testing.T) {
	for _, name := range golden.Cases() {
		t.Run(name, func(t *testing.T) {
			g := readGolden(t, name)
			o := g.about.AsOpened
			s := New(Config{}, o.LogStartOffset)
			aborted := g.replay(t, s, o.LogStartOffset)
			s.Expire(g.about.OpenedAtMs)
			require.Equal(t, g.producers(false), facts(s, false))
			require.Equal(t, g.withData(), aborted)
			require.Equal(t, o.LastStableOffset, s.Unstable().LastStable(o.HighWatermark, o.LogStartOffset))
		})
	}
}

func TestASnapshotOfARealLogAndTheRestGiveKafkasState(t *testing.T) {
	loaded := 0
	for _, name := range golden.Cases() {
		t.Run(name, func(t *testing.T) {
			g := readGolden(t, name)
			o := g.about.AsOpened
			all, err := List(g.fsys, g.dir)
			require.NoError(t, err)
			// Each snapshot in turn: the one below the newest, and so on.
			for i := len(all); i >= 0; i-- {
				require.NoError(t, Remove(g.fsys, g.dir, all[i:]))
				s := New(Config{}, o.LogStartOffset)
				res, err := s.Reload(Reload{FS: g.fsys, Folder: g.dir, LogStart: o.LogStartOffset, End: o.LogEndOffset, Now: g.about.OpenedAtMs})
				require.NoError(t, err)
				require.Empty(t, res.Damaged)
				if i == 0 {
					require.Equal(t, int64(-1), res.Snapshot)
				} else if res.Snapshot >= 0 {
					loaded++
				}
				aborted := g.replay(t, s, res.From)
				s.Expire(g.about.OpenedAtMs)
				cached := res.Snapshot == o.LogEndOffset
				require.Equal(t, g.producers(cached), facts(s, cached))
				require.Equal(t, o.LastStableOffset, s.Unstable().LastStable(o.HighWatermark, o.LogStartOffset))
				for _, a := range aborted {
					require.Contains(t, o.AbortedTransactions, a)
				}
			}
		})
	}
	require.Greater(t, loaded, 40)
}
