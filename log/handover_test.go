package log

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/vfs"
)

var foreignID = [16]byte{9, 9, 9}

// handed makes a root at rest with the log of backedUp, of which 9 to 11 lie above the high watermark, and a transaction
// that is open since offset 8 if asked.
func handed(t testing.TB, mem vfs.FS, open bool) (before map[string]string) {
	t.Helper()
	b := newBedOn(t, subtree(t, mem, "root"), Config{Visibility: External})
	require.NoError(t, b.SetTopicID([16]byte{1, 2, 3}))
	for i := range 4 {
		require.NoError(t, b.AssignEpoch(int32(10+i)))
		b.add("a", "b")
		if i < 3 {
			require.NoError(t, b.Roll(context.Background()))
		}
	}
	if open {
		p := b.Producer(7, 1)
		require.NoError(t, p.Begin())
		_, err := p.Append(context.Background(), values2records([]string{"t"})...)
		require.NoError(t, err)
	} else {
		b.add("t")
	}
	b.add("x", "y", "z")
	_, err := b.SetHighWatermark(9)
	require.NoError(t, err)
	require.NoError(t, b.dir.Close())
	return treeOf(t, b.fs)
}

func TestHandedOverPartitionsSayWhatTheOtherClusterSays(t *testing.T) {
	mem := vfs.Mem()
	before := handed(t, mem, true)
	o := HandoverOptions{From: mem, FS: mem, Topics: map[string][16]byte{"t": foreignID}, Abort: true}
	plan, err := PlanHandover(context.Background(), "root", "to", o)
	require.NoError(t, err)
	require.True(t, plan.New)
	require.Empty(t, plan.Problems)
	require.Equal(t, int64(9), plan.Partitions[0].Cut)
	require.Equal(t, int64(12), plan.Partitions[0].LogEnd)
	require.Len(t, plan.Partitions[0].Open, 1)
	_, err = mem.Stat("to")
	require.Error(t, err)

	r, err := Handover(context.Background(), "root", "to", o)
	require.NoError(t, err)
	require.Equal(t, before, treeOf(t, subtree(t, mem, "root")))
	require.Equal(t, int64(10), r.Partitions[0].LogEnd) // the marker
	to := subtree(t, mem, "to")
	sound(t, to)
	checkHanded(t, to)
}

// checkHanded looks at a handed over t-0.
func checkHanded(t testing.TB, to vfs.FS) {
	t.Helper()
	files := treeOf(t, to)
	require.NotContains(t, files, checkpoint.CleanMarker)
	require.Equal(t, "0\n1\n0 0\n", files["t-0/leader-epoch-checkpoint"])
	id, found, err := checkpoint.ReadTopicID(to, "t-0/partition.metadata")
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, checkpoint.ID(foreignID), id)
	points, err := checkpoint.ReadOffsets(to, checkpoint.RecoveryPoints)
	require.NoError(t, err)
	require.NotContains(t, points, checkpoint.Partition{Topic: "t"})

	d, err := OpenDir("to", DirConfig{FS: vfs.Overlay(to), Manual: true})
	require.NoError(t, err)
	l, err := d.Open(context.Background(), TopicPartition{"t", 0}, Config{})
	require.NoError(t, err)
	require.Empty(t, l.Recovery().Findings)
	require.Zero(t, l.Recovery().Cut)
	require.Positive(t, l.Recovery().Scanned)
	require.Empty(t, l.OpenTransactions())
	require.Equal(t, int64(10), l.Offsets().LogEnd)
	require.Equal(t, int64(10), l.Offsets().LastStable)
	got, err := offsetsOf(l.Records(context.Background(), 0, WithIsolation(ReadCommitted)))
	require.NoError(t, err)
	require.Equal(t, offsetsIn(0, 8), got)
	for b, err := range l.Batches(context.Background(), 0, WithIsolation(LogEnd)) {
		require.NoError(t, err)
		require.Zero(t, b.LeaderEpoch())
	}
	require.NoError(t, d.Close())
}

func TestHandedOverPartitionsReplaceTheEmptyOnesOfALogDirectory(t *testing.T) {
	mem := vfs.Mem()
	handed(t, mem, true)
	target := func() vfs.FS {
		to := subtree(t, mem, "to")
		d, err := OpenDir("to", DirConfig{FS: to, Manual: true})
		require.NoError(t, err)
		for _, tp := range []TopicPartition{{"t", 0}, {"u", 1}} {
			l, err := d.Open(context.Background(), tp, Config{})
			require.NoError(t, err)
			id := foreignID
			if tp.Topic == "u" {
				id[0]++
			}
			require.NoError(t, l.SetTopicID(id))
			if tp.Topic == "u" {
				_, err = l.Append(context.Background(), values(1, 1)...)
				require.NoError(t, err)
			}
		}
		require.NoError(t, d.Close())
		return to
	}
	to := target()
	o := HandoverOptions{From: mem, FS: mem, Abort: true}
	plan, err := PlanHandover(context.Background(), "root", "to", o)
	require.NoError(t, err)
	require.False(t, plan.New)
	require.True(t, plan.Partitions[0].Replaces)
	require.Equal(t, foreignID, plan.Partitions[0].TopicID)
	_, err = Handover(context.Background(), "root", "to", o)
	require.NoError(t, err)
	checkHanded(t, to)

	plan, err = PlanHandover(context.Background(), "root", "to", o)
	require.NoError(t, err)
	require.Equal(t, HandoverExists, plan.Problems[0].Kind)
	before := treeOf(t, mem)
	_, err = Handover(context.Background(), "root", "to", o)
	require.ErrorIs(t, err, ErrHandover)
	require.Equal(t, before, treeOf(t, mem))
}

func TestWhatWouldGoWrongAtTheTargetIsRefusedBeforeAnythingIsCopied(t *testing.T) {
	given := map[string][16]byte{"t": foreignID}
	cases := map[string]struct {
		o    HandoverOptions
		hurt func(root vfs.FS)
		kind string
	}{
		"no topic id":         {HandoverOptions{Abort: true}, nil, HandoverTopicID},
		"a topic id of zeros": {HandoverOptions{Abort: true, Topics: map[string][16]byte{"t": {}}}, nil, HandoverTopicID},
		"an open transaction": {HandoverOptions{Topics: given}, nil, HandoverTransactions},
		"no high watermark": {HandoverOptions{Abort: true, Topics: given}, func(root vfs.FS) {
			require.NoError(t, root.Remove(checkpoint.HighWatermarks))
		}, HandoverHighWatermark},
		"a high watermark that cannot be read": {HandoverOptions{Abort: true, Topics: given}, func(root vfs.FS) {
			require.NoError(t, checkpoint.WriteFile(root, checkpoint.HighWatermarks, []byte("?")))
		}, HandoverHighWatermark},
		"damage": {HandoverOptions{Abort: true, Topics: given}, func(root vfs.FS) {
			require.NoError(t, root.Remove(checkpoint.CleanMarker))
			require.NoError(t, checkpoint.WriteFile(root, checkpoint.RecoveryPoints, []byte("0\n1\nt 0 5\n")))
			turnBit(t, root, "t-0/00000000000000000004.log", 70)
		}, HandoverDamaged},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			mem := vfs.Mem()
			handed(t, mem, true)
			if c.hurt != nil {
				c.hurt(subtree(t, mem, "root"))
			}
			before := treeOf(t, mem)
			c.o.From, c.o.FS = mem, mem
			_, err := Handover(context.Background(), "root", "to", c.o)
			refused, ok := errors.AsType[*HandoverError](err)
			require.True(t, ok, "%v", err)
			require.Equal(t, c.kind, refused.Problems[0].Kind, "%v", err)
			require.Equal(t, before, treeOf(t, mem))
		})
	}
}

func TestNoTwoTopicsGetOneID(t *testing.T) {
	for name, to := range map[string]string{"two of the source": "new", "one of the target": "there"} {
		t.Run(name, func(t *testing.T) {
			mem := vfs.Mem()
			handed(t, mem, false)
			o := HandoverOptions{From: mem, FS: mem, Topics: map[string][16]byte{"t": foreignID, "u": foreignID}}
			owner := "root"
			if to == "there" {
				owner = to
			}
			b := newRootBed(t, subtree(t, mem, owner), DirConfig{})
			l := b.log("u", 0, Config{})
			if to == "there" {
				require.NoError(t, l.SetTopicID(foreignID))
			}
			require.NoError(t, b.Dir.Close())
			_, err := Handover(context.Background(), "root", to, o)
			refused, ok := errors.AsType[*HandoverError](err)
			require.True(t, ok, "%v", err)
			require.Len(t, refused.Problems, 1)
			require.Equal(t, HandoverTopicID, refused.Problems[0].Kind)
		})
	}
}

func TestALogThatWasKilledIsRecoveredBeforeItIsHandedOver(t *testing.T) {
	mem := vfs.Mem()
	handed(t, mem, false)
	root := subtree(t, mem, "root")
	require.NoError(t, root.Remove(checkpoint.CleanMarker))
	require.NoError(t, checkpoint.WriteFile(root, checkpoint.RecoveryPoints, []byte("0\n1\nt 0 6\n")))
	f, err := root.OpenFile("t-0/00000000000000000006.log", 2, 0)
	require.NoError(t, err)
	size, err := f.Size()
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("torn"), size)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	before := treeOf(t, root)
	r, err := Handover(context.Background(), "root", "to", HandoverOptions{From: mem, FS: mem, Topics: map[string][16]byte{"t": foreignID}, Everything: true})
	require.NoError(t, err)
	require.Equal(t, int64(12), r.Partitions[0].LogEnd)
	require.Equal(t, before, treeOf(t, root))
	sound(t, subtree(t, mem, "to"))
}

func TestASourceInUseIsNotHandedOver(t *testing.T) {
	mem := vfs.Mem()
	b := backedUp(t, mem)
	_, err := Handover(context.Background(), "root", "to", HandoverOptions{From: mem, FS: mem, Topics: map[string][16]byte{"t": foreignID}})
	require.ErrorIs(t, err, ErrLocked)
	require.NoError(t, b.dir.Close())
	for _, to := range []string{"root", "root/x", "root/t-0"} {
		_, err = Handover(context.Background(), "root", to, HandoverOptions{From: mem, FS: mem, Topics: map[string][16]byte{"t": foreignID}})
		require.ErrorIs(t, err, ErrDestination, to)
	}
	b.open()
}

// What the copying would find of damage in a source that was stopped cleanly the plan finds as well.
func TestThePlanOfAHandOverSeesDamageInSegmentsAtRest(t *testing.T) {
	for name, garble := range map[string]func(b []byte) []byte{
		"a bit flips":          func(b []byte) []byte { b[len(b)-1] ^= 1; return b },
		"a batch is cut short": func(b []byte) []byte { return b[:len(b)-3] },
	} {
		t.Run(name, func(t *testing.T) {
			mem := vfs.Mem()
			handed(t, mem, false)
			file := "root/t-0/" + segment.FileName(2, ".log")
			content, err := vfs.ReadFile(mem, file, 1<<20)
			require.NoError(t, err)
			garbled := garble(content)
			f, err := mem.OpenFile(file, os.O_RDWR|os.O_TRUNC, 0)
			require.NoError(t, err)
			require.NoError(t, errOf(f.WriteAt(garbled, 0)))
			require.NoError(t, f.Close())
			o := HandoverOptions{From: mem, FS: mem, Topics: map[string][16]byte{"t": foreignID}}
			plan, err := PlanHandover(context.Background(), "root", "to", o)
			require.NoError(t, err)
			require.NotEmpty(t, plan.Problems)
			require.Equal(t, HandoverDamaged, plan.Problems[0].Kind)
			require.Contains(t, plan.Problems[0].Detail, segment.FileName(2, ".log"))
			require.Error(t, errOf(Handover(context.Background(), "root", "to", o)))
		})
	}
}
