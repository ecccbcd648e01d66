package log

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/compaction"
	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// firstDirty is what the root's checkpoint says of a partition; -1 if nothing.
func firstDirty(t *testing.T, fsys vfs.FS, tp TopicPartition) int64 {
	t.Helper()
	at, err := checkpoint.ReadOffsets(fsys, checkpoint.CleanerOffsets)
	require.NoError(t, err)
	if offset, ok := at[checkpoint.Partition(tp)]; ok {
		return offset
	}
	return -1
}

// meanwhile calls change once while a compaction rewrites.
func meanwhile(change func()) CompactOptions {
	var once sync.Once
	return CompactOptions{Force: true, Progress: func(p compaction.Progress) {
		if p.Phase == compaction.Rewriting {
			once.Do(func() {
				done := make(chan struct{})
				go func() { change(); close(done) }()
				<-done
			})
		}
	}}
}

// Scenario: C002
// Report: B186
func TestSegmentsThatRetentionTakesWhileTheyAreCompactedDoNotComeBack(t *testing.T) {
	trace := vfstest.NewTrace(vfs.Mem())
	c := compacting
	c.Cleanup, c.RetentionTime = Compact|Delete, Forever
	b := newBedOn(t, trace, c)
	for range 3 {
		b.put("a", "1", "b", "1")
		require.NoError(t, b.Roll(ctx))
	}
	b.put("c", "1")
	trace.Reset()
	_, err := b.Compact(ctx, meanwhile(func() {
		require.NoError(t, b.DeleteRecords(ctx, 4))
		require.Equal(t, 2, b.retain().Dropped)
	}))
	require.ErrorIs(t, err, ErrCleaningAborted)
	require.Equal(t, []int64{4, 6}, b.bases())
	require.Equal(t, []int64{4, 5, 6}, b.offsets())
	for _, name := range []string{"00000000000000000000.log", "00000000000000000002.log"} {
		renamed := 0
		for _, op := range trace.Ops() {
			if op.Kind == vfstest.OpRename && op.Name == "t-0/"+name {
				renamed++
			}
		}
		require.Equal(t, 1, renamed, name)
	}
	b.reopen()
	require.Equal(t, []int64{4, 6}, b.bases())
	for _, name := range b.folder("") {
		require.False(t, strings.HasPrefix(name, "00000000000000000000") || strings.HasPrefix(name, "00000000000000000002"), name)
		require.False(t, strings.HasSuffix(name, ".cleaned") || strings.HasSuffix(name, ".swap"), name)
	}
}

// Scenario: G010
func TestATruncationOrADeletionBesideACompactionLeavesNothingBehind(t *testing.T) {
	fill := func(b *bed) {
		for range 3 {
			b.put("a", "1", "b", "1")
			require.NoError(t, b.Roll(ctx))
		}
		b.put("c", "1")
	}
	clean := func(b *bed) {
		for _, name := range b.folder("") {
			require.False(t, strings.HasSuffix(name, ".cleaned") || strings.HasSuffix(name, ".swap"), name)
		}
	}
	t.Run("truncation", func(t *testing.T) {
		b := newBed(t, compacting)
		fill(b)
		_, err := b.Compact(ctx, meanwhile(func() { b.truncate(4) }))
		require.ErrorIs(t, err, ErrCleaningAborted)
		require.Equal(t, offsetsIn(0, 4), b.offsets())
		clean(b)
		b.put("b", "2")
		require.NoError(t, b.Roll(ctx))
		b.put("c", "1")
		b.compact(CompactOptions{})
		require.Equal(t, []int64{2, 4, 5}, b.offsets())
	})
	t.Run("deletion", func(t *testing.T) {
		b := newBed(t, compacting)
		fill(b)
		gone := make(chan error, 1)
		_, err := b.Compact(ctx, CompactOptions{Force: true, Progress: func(p compaction.Progress) {
			if p.Phase == compaction.Rewriting && len(gone) == 0 {
				go func() { gone <- b.dir.Delete(ctx, b.tp) }()
				time.Sleep(20 * time.Millisecond)
			}
		}})
		require.ErrorIs(t, err, ErrClosed)
		require.NoError(t, <-gone)
		l, err := b.dir.Open(ctx, b.tp, b.cfg)
		require.NoError(t, err)
		b.Log = l
		require.Zero(t, b.Offsets().LogEnd)
		require.Equal(t, int64(-1), firstDirty(t, b.fs, b.tp))
		fill(b)
		b.compact(CompactOptions{})
		require.Equal(t, []int64{4, 5, 6}, b.offsets())
	})
}

// Scenario: G007
// Report: B069
func TestRetentionGoesOnWhereCompactionCannot(t *testing.T) {
	fault := vfstest.NewFault(vfs.Mem())
	d := newRootBed(t, fault, DirConfig{InitialDelay: Immediately})
	logs := map[string]*Log{}
	for topic, cleanup := range map[string]Cleanup{"deleted": Delete, "compacted": Compact, "both": Compact | Delete, "bad": Compact | Delete} {
		c := compacting
		c.Cleanup, c.RetentionTime = cleanup, time.Hour
		l := d.log(topic, 0, c)
		for range 2 {
			for _, key := range []string{"a", "b"} {
				_, err := l.Append(ctx, record.Record{Key: []byte(key), Value: []byte("v"), Timestamp: epoch2023})
				require.NoError(t, err)
			}
			require.NoError(t, l.Roll(ctx))
		}
		_, err := l.Append(ctx, record.Record{Key: []byte("young"), Timestamp: epoch2023 + 2*time.Hour.Milliseconds(), Value: []byte("v")})
		require.ErrorIs(t, err, ErrInvalidTimestamp)
		_, err = l.Append(ctx, record.Record{Key: []byte("young"), Timestamp: epoch2023 + 50*time.Minute.Milliseconds(), Value: []byte("v")})
		require.NoError(t, err)
		logs[topic] = l
	}
	held := func(topic string) int { return records(t, logs[topic]) }
	_, mend := fault.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpCreate}, Name: "bad-0/*.cleaned", Times: vfstest.Always, Err: syscall.EIO})
	d.clock.advance(time.Minute)
	require.ErrorIs(t, d.RunOnce(ctx, d.clock.now()), syscall.EIO)
	require.Equal(t, []int{5, 3, 3, 5}, []int{held("deleted"), held("compacted"), held("both"), held("bad")})
	require.Len(t, d.Stats().Failing, 1)
	require.Equal(t, "bad", d.Stats().Failing[0].TopicPartition.Topic)
	require.EqualValues(t, 1, logs["bad"].Stats().Cleaner.Failures)

	d.clock.advance(time.Hour)
	_ = d.RunOnce(ctx, d.clock.now())
	require.Equal(t, []int{1, 3, 1, 1}, []int{held("deleted"), held("compacted"), held("both"), held("bad")}, "age counts wherever the policy says delete")

	mend()
	for range 2 {
		_, err := logs["bad"].Append(ctx, record.Record{Key: []byte("a"), Value: []byte("v")})
		require.NoError(t, err)
		require.NoError(t, logs["bad"].Roll(ctx))
	}
	require.Equal(t, 3, held("bad"))
	d.after(time.Hour)
	require.Empty(t, d.Stats().Failing)
	require.Equal(t, 2, held("bad"), "it is compacted after all")
}

// Scenario: G002
func TestALogThatCannotBeLookedAtIsNamedAndStopsNoOther(t *testing.T) {
	fault := vfstest.NewFault(vfs.Mem())
	d := newRootBed(t, fault, DirConfig{InitialDelay: Immediately})
	c := compacting
	c.Compaction.MinLag = time.Second
	for _, topic := range []string{"bad", "good"} {
		l := d.log(topic, 0, c)
		for range 2 {
			_, err := l.Append(ctx, record.Record{Key: []byte("a"), Value: []byte("v"), Timestamp: epoch2023})
			require.NoError(t, err)
			require.NoError(t, l.Roll(ctx))
		}
	}
	d.reopen()
	bad, good := d.log("bad", 0, c), d.log("good", 0, c)
	_, mend := fault.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpOpen, vfstest.OpRead}, Name: "bad-0/*.timeindex", Times: vfstest.Always, Err: syscall.EIO})
	d.clock.advance(time.Minute)
	require.ErrorIs(t, d.RunOnce(ctx, d.clock.now()), syscall.EIO)
	require.Equal(t, 1, records(t, good))
	require.Equal(t, []TopicPartition{bad.tp}, []TopicPartition{d.Stats().Failing[0].TopicPartition})
	mend()
	require.Equal(t, 2, records(t, bad))
	d.after(2 * time.Hour)
	require.Equal(t, 1, records(t, bad))
	require.Empty(t, d.Stats().Failing)
}

// The policy is that of the Open. Scenario: G008
func TestAnotherPolicyCountsFromTheNextOpenOn(t *testing.T) {
	c := compacting
	c.Cleanup, c.RetentionTime = Delete, time.Hour
	b := newBed(t, c)
	fill := func() {
		for range 2 {
			b.put("a", "1", "b", "1")
			require.NoError(t, b.Roll(ctx))
		}
	}
	fill()
	_, err := b.Compact(ctx, CompactOptions{})
	require.ErrorIs(t, err, ErrPolicy)
	b.cfg.Cleanup = Compact
	b.reopen()
	b.compact(CompactOptions{})
	require.Equal(t, []int64{2, 3}, b.offsets())
	b.clock.advance(2 * time.Hour)
	require.Zero(t, b.retain().Dropped)
	b.cfg.Cleanup = Delete
	b.reopen()
	require.Positive(t, b.retain().Dropped)
	require.Empty(t, b.offsets())
	fill()
	_, err = b.Compact(ctx, CompactOptions{})
	require.ErrorIs(t, err, ErrPolicy)
}

// Scenario: G009
func TestTheCheckpointOfCompactionFollowsThePartition(t *testing.T) {
	x, y := twoRoots(t, vfs.Mem(), DirConfig{})
	l := x.log("t", 0, compacting)
	put := func(l *Log) {
		for range 2 {
			_, err := l.Append(ctx, record.Record{Key: []byte("k"), Value: []byte("v")}, record.Record{Key: []byte("l"), Value: []byte("v")})
			require.NoError(t, err)
			require.NoError(t, l.Roll(ctx))
		}
	}
	put(l)
	require.Equal(t, int64(-1), firstDirty(t, x.fs, moved))
	_, err := l.Compact(ctx, CompactOptions{})
	require.NoError(t, err)
	require.Equal(t, int64(4), firstDirty(t, x.fs, moved))
	_, err = l.Truncate(ctx, 4)
	require.NoError(t, err)
	require.Equal(t, int64(4), firstDirty(t, x.fs, moved), "nothing below it went")
	end, err := l.Truncate(ctx, 3) // in the only batch that is left
	require.NoError(t, err)
	require.Equal(t, int64(2), end, "where the batch began")
	require.Zero(t, firstDirty(t, x.fs, moved), "where the records end")

	require.NoError(t, x.Move(ctx, moved, y.Dir))
	require.Equal(t, int64(-1), firstDirty(t, x.fs, moved))
	l, _ = y.Get(moved)
	put(l)
	_, err = l.Compact(ctx, CompactOptions{})
	require.NoError(t, err)
	require.Equal(t, int64(6), firstDirty(t, y.fs, moved))
	require.NoError(t, y.Delete(ctx, moved))
	require.Equal(t, int64(-1), firstDirty(t, y.fs, moved))
}

// Scenario: I002
func TestACompactedLogThatDeletesDoesBothInTheBackground(t *testing.T) {
	d := newRootBed(t, vfs.Mem(), DirConfig{InitialDelay: Immediately})
	c := compacting
	c.Cleanup, c.RetentionTime, c.FileDeleteDelay = Compact|Delete, time.Hour, Immediately
	l := d.log("t", 0, c)
	fill := func(n int) {
		for i := range n {
			_, err := l.Append(ctx, record.Record{Key: fmt.Appendf(nil, "k%d", i%5), Value: []byte("v"), Timestamp: d.clock.now().UnixMilli()})
			require.NoError(t, err)
			if i%10 == 9 {
				require.NoError(t, l.Roll(ctx))
			}
		}
	}
	fill(40)
	d.after(time.Minute)
	require.Equal(t, 5, records(t, l))
	first := l.Offsets().LogStart
	d.clock.advance(30 * time.Minute)
	fill(20)
	d.after(time.Minute)
	require.Equal(t, 5, records(t, l), "of each key the last")
	d.after(2 * time.Hour)
	require.Zero(t, records(t, l), "and in the end none")
	require.Greater(t, l.Offsets().LogStart, first)
	require.EqualValues(t, 60, l.Offsets().LogEnd)
	require.EqualValues(t, 60, l.Offsets().LogStart)
}

// Scenario: U096
func TestACompactionLeavesOnlyTheSnapshotsOfTheBasesThatAreLeft(t *testing.T) {
	b := newBed(t, compacting)
	for i := range int32(3) {
		_, err := b.AppendBatches(ctx, produced(as(1, 0, i), record.Record{Timestamp: epoch2023, Key: []byte("k"), Value: []byte("v")}), AppendOptions{})
		require.NoError(t, err)
		require.NoError(t, b.Roll(ctx))
	}
	require.NoError(t, b.Sync(ctx))
	require.Equal(t, []int64{1, 2, 3}, b.snapshots())
	b.compact(CompactOptions{})
	require.Equal(t, []int64{0, 3}, b.bases())
	require.Equal(t, []int64{3}, b.snapshots())
	b.clock.advance(time.Hour)
	b.retain()
	require.Empty(t, b.folder(".deleted"))
	b.reopen()
	require.True(t, b.mustSendKeyed(as(1, 0, 2)).Duplicate)
}

func (b *bed) mustSendKeyed(p record.Producer) Appended {
	b.t.Helper()
	res, err := b.AppendBatches(ctx, produced(p, record.Record{Timestamp: epoch2023, Key: []byte("k"), Value: []byte("v")}), AppendOptions{})
	require.NoError(b.t, err)
	return res
}

// Report: B081, B086. Kafka's cleaner once forgot open transactions from one group of segments to the next.
func TestCompactionShowsReadersOfCommittedRecordsNothingElse(t *testing.T) {
	c := compacting
	c.SegmentBytes = 400 // of which a group takes a few
	c.Compaction.DeleteRetention = Immediately
	b := newBed(t, c)
	send := func(id int64, seq int32, key, value string) {
		_, err := b.AppendBatches(ctx, produced(inTxn(as(id, 0, seq)), record.Record{Timestamp: epoch2023, Key: []byte(key), Value: []byte(value)}), AppendOptions{})
		require.NoError(t, err)
	}
	send(1, 0, "k", "committed")
	b.mustEnd(as(1, 0, 0), true, 0)
	send(2, 0, "k", "aborted")
	send(2, 1, "other", "aborted")
	require.NoError(t, b.Roll(ctx))
	for i := range 3 {
		b.put(fmt.Sprint("plain", i), strings.Repeat("v", 100))
		require.NoError(t, b.Roll(ctx))
	}
	b.mustEnd(as(2, 0, 0), false, 0)
	require.NoError(t, b.Roll(ctx))
	b.put("last", "v")
	for i := range int32(4) {
		b.compact(CompactOptions{Force: true})
		shown := map[string]string{}
		for r, err := range b.Records(ctx, 0, WithReset(Earliest), WithIsolation(ReadCommitted)) {
			require.NoError(t, err)
			shown[string(r.Key)] = string(r.Value)
		}
		require.Equal(t, "committed", shown["k"], "round %d", i)
		require.NotContains(t, slices.Collect(maps.Values(shown)), "aborted")
		for from := range b.Offsets().LogEnd {
			f, err := b.Fetch(ctx, from, FetchOptions{Isolation: ReadCommitted})
			require.NoError(t, err)
			for r, err := range f.Records() {
				require.NoError(t, err)
				require.NotEqual(t, "aborted", string(r.Value))
			}
			require.NoError(t, f.Close())
		}
		b.reopen()
		require.Empty(t, b.Recovery().Findings)
		b.put("more", fmt.Sprint(i))
		require.NoError(t, b.Roll(ctx))
		b.put("last", "v")
	}
}
