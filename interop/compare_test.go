package interop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/golden"
	"github.com/partlog/partlog/internal/producerstate"
	"github.com/partlog/partlog/log"
)

func (s *swap) note(format string, a ...any) { s.story = append(s.story, fmt.Sprintf(format, a...)) }

// compare looks at the folder between two owners: our reader on the folder itself, our log and Kafka's each on a copy, and
// Kafka's dump tool. All must tell the model's story, and the copies, once closed, must be equal byte for byte.
func (s *swap) compare() {
	t, ctx := s.t, context.Background()
	folder := s.topic + "-0"
	r, err := log.OpenReader(filepath.Join(s.root, folder), log.ReaderOptions{})
	require.NoError(t, err, "after %s", s.last)
	seen := r.Offsets()
	require.NoError(t, s.m.settle(seen.LogStart, seen.LogEnd), "our reader after %s", s.last)
	all := readAll(ctx, s, r)
	if s.m.cleaning {
		before := len(s.m.records)
		require.NoError(t, s.m.absorb(all), "after %s", s.last)
		s.note("cleaned away: %d of %d records", before-len(s.m.records), before)
		s.cleaned += before - len(s.m.records)
		s.learnClean()
		s.m.cleaning = false
	}
	sameRecords(t, s.m.from(s.m.start), all)
	committed := s.m.committed()
	sameRecords(t, committed, readAll(ctx, s, r, log.WithIsolation(log.ReadCommitted)))
	require.Equal(t, s.m.lastStable(), seen.LastStable, "last stable offset of our reader after %s", s.last)
	require.NoError(t, s.learnBatches(ctx, r))
	require.NoError(t, r.Close())
	if s.clean {
		s.m.settleStart(s.m.start)
		s.dumpIsSilent(filepath.Join(s.root, folder))
	}

	ourRoot, theirRoot := s.copy(), s.copy()
	l, err := s.d.Open(OpenOptions{Root: theirRoot, Topic: s.topic, Config: s.config, NowMs: -1})
	require.NoError(t, err, "Kafka after %s", s.last)
	kafkas, err := l.Records(0)
	require.NoError(t, err)
	sameRecords(t, s.m.from(l.Opened.LogStartOffset), kafkas)
	var offsets []int64
	for _, r := range committed {
		offsets = append(offsets, r.Offset)
	}
	require.Equal(t, offsets, consume(t, l, l.Opened, 1<<20), "what read-committed readers of Kafka see after %s", s.last)

	dir, ours, err := openOurs(ctx, ourOpen{Root: ourRoot, Topic: s.topic, Config: s.config})
	require.NoError(t, err, "after %s", s.last)
	lost := s.epochsLost(ours) || epochsBehind(l.Opened)
	s.sameState(stateOf(ours), l.Opened, lost)
	s.sameAnswers(ctx, ours, l, lost)
	if s.clean {
		require.Empty(t, rebuilding(l.Log), "Kafka after %s", s.last)
		require.True(t, ours.Recovery().Clean)
		require.True(t, lost || len(ours.Recovery().Rebuilt) == 0, ours.Recovery().Rebuilt)
		require.Empty(t, ours.Recovery().Findings)
	}
	require.NoError(t, l.Close())
	require.NoError(t, dir.Close())
	theirFiles, ourFiles := s.contents(theirRoot), s.contents(ourRoot)
	if lost {
		delete(theirFiles, epochsFile)
		delete(ourFiles, epochsFile)
	}
	require.Equal(t, theirFiles, ourFiles, "after %s: what Kafka leaves and what we leave", s.last)
	s.dumpIsSilent(filepath.Join(ourRoot, folder))
	require.NoError(t, os.RemoveAll(ourRoot))
	require.NoError(t, os.RemoveAll(theirRoot))
}

// epochsLost says that Kafka forgot the leader epochs, which it does when the start offset is raised to the end and the log
// opened again: the one entry left begins at the end and is dropped as if it had no records. We learn them from the batches.
func (s *swap) epochsLost(ours *log.Log) bool {
	return slices.Contains(ours.Recovery().Rebuilt, s.topic+"-0/"+epochsFile)
}

// epochsBehind says that Kafka has epochs that begin below the start: of segments that retention deleted, when a kill came before
// the file. It fits them to the checkpoint of the start, ours to the start.
func epochsBehind(k State) bool {
	return len(k.LeaderEpochs) > 0 && k.LeaderEpochs[0].StartOffset < k.LogStartOffset
}

// fitted are epochs from the start on.
func fitted(all []log.EpochEntry, start int64) (out []log.EpochEntry) {
	for _, e := range all {
		e.Start = max(e.Start, start)
		if n := len(out); n > 0 && out[n-1].Start == e.Start {
			out = out[:n-1]
		}
		out = append(out, e)
	}
	return out
}

const epochsFile = "leader-epoch-checkpoint"

func readAll(ctx context.Context, s *swap, r *log.Reader, o ...log.ReadOption) (out []Record) {
	for rec, err := range r.Records(ctx, r.Offsets().LogStart, o...) {
		require.NoError(s.t, err, "our reader after %s", s.last)
		out = append(out, onWire(rec.Clone(), rec.Offset, "CreateTime"))
	}
	return out
}

// learnBatches notes where batches begin, which a producer decides by itself.
func (s *swap) learnBatches(ctx context.Context, r *log.Reader) error {
	s.m.bases = nil
	for b, err := range r.Batches(ctx, r.Offsets().LogStart) {
		if err != nil {
			return err
		}
		s.m.bases = append(s.m.bases, b.BaseOffset())
		s.learnTimes(b)
	}
	return nil
}

// sameState compares what both say right after opening.
func (s *swap) sameState(o partlogState, k State, epochsLost bool) {
	t := s.t
	require.Equal(t, k.LogStartOffset, o.Offsets.LogStart, "log start offset after %s", s.last)
	require.Equal(t, k.LogEndOffset, o.Offsets.LogEnd, "log end offset after %s", s.last)
	require.Equal(t, k.HighWatermark, o.Offsets.HighWatermark, "high watermark after %s", s.last)
	require.Equal(t, k.RecoveryPoint, max(o.Offsets.RecoveryPoint, o.Offsets.LogStart), "recovery point after %s", s.last)
	var epochs []log.EpochEntry
	for _, e := range k.LeaderEpochs {
		epochs = append(epochs, log.EpochEntry{Epoch: e.Epoch, Start: e.StartOffset})
	}
	if epochsBehind(k) {
		epochs, epochsLost = fitted(epochs, k.LogStartOffset), false
	}
	if !epochsLost {
		require.Equal(t, fmt.Sprint(epochs), fmt.Sprint(o.Epochs), "leader epochs after %s", s.last)
	}
	require.Equal(t, s.m.lastStable(), max(k.LastStableOffset, k.LogStartOffset), "Kafka's last stable offset after %s", s.last)
	require.Equal(t, s.m.lastStable(), o.Offsets.LastStable, "last stable offset after %s", s.last)
	below := func(a golden.AbortedTransaction) bool { return a.LastOffset < s.m.start }
	kafkas, aborted := slices.DeleteFunc(k.AbortedTransactions, below), slices.DeleteFunc(o.Aborted, below)
	if s.forgets() {
		kafkas, aborted = s.fromStart(kafkas), s.fromStart(aborted)
	}
	require.Equal(t, fmt.Sprint(kafkas), fmt.Sprint(aborted), "aborted transactions after %s", s.last)
	// A cleaning takes those away of which nothing is left.
	gone := func(a golden.AbortedTransaction) bool { return a.LastOffset < s.m.clean }
	require.Equal(t, fmt.Sprint(slices.DeleteFunc(s.fromStart(s.m.aborted()), gone)), fmt.Sprint(slices.DeleteFunc(s.fromStart(aborted), gone)),
		"the model's aborted transactions after %s", s.last)
	require.NoError(t, s.m.allows(o.Producers), "after %s", s.last)
	require.NoError(t, s.m.allows(k.Producers), "Kafka after %s", s.last)
	s.bothKnow(k.Producers, o.Producers)
	require.Len(t, o.Segments, len(k.Segments))
	for i, seg := range k.Segments {
		require.Equal(t, seg.BaseOffset, o.Segments[i].Base)
		require.Equal(t, seg.Size, o.Segments[i].Bytes)
		if seg.Size > 0 {
			require.Equal(t, seg.LargestTimestamp, o.Segments[i].LargestTimestamp, "segment %d", seg.BaseOffset)
		}
	}
}

// fromStart leaves out transactions that begin below the start: who reads the log after a kill finds their beginning, or not, by
// where the segment begins that holds the start. The last stable offset of others says nothing if it was that of such a one.
func (s *swap) fromStart(all []golden.AbortedTransaction) (out []golden.AbortedTransaction) {
	_, over := s.m.transactions()
	for _, a := range all {
		if slices.ContainsFunc(over, func(x ended) bool { return x.FirstOffset < s.m.start && x.LastOffset == a.LastOffset }) {
			continue
		}
		if slices.ContainsFunc(over, func(x ended) bool {
			return x.FirstOffset < s.m.start && x.LastOffset > a.LastOffset
		}) {
			a.LastStableOffset = -1
		}
		out = append(out, a)
	}
	return out
}

// forgets says whether Kafka may know less of producers than ours: it does not use what tells of them below the start.
func (s *swap) forgets() bool { return s.m.start > 0 && (!s.clean || s.m.start == s.m.end) }

// bothKnow compares the producers of a folder as Kafka and ours take them from it. What each may know the model has said.
func (s *swap) bothKnow(kafkas, ours []golden.ProducerFacts) {
	if s.forgets() {
		for _, k := range kafkas {
			require.True(s.t, slices.ContainsFunc(ours, func(f golden.ProducerFacts) bool { return f.ProducerID == k.ProducerID }), "%+v", k)
		}
		return
	}
	if !s.clean { // ours may remember more batches of each
		ours = slices.Clone(ours)
		for i := range min(len(ours), len(kafkas)) {
			require.GreaterOrEqual(s.t, ours[i].CachedBatches, kafkas[i].CachedBatches)
			ours[i].CachedBatches = kafkas[i].CachedBatches
		}
	}
	require.Equal(s.t, kafkas, ours, "producers after %s", s.last)
}

// sameAnswers asks both for offsets of times and ends of epochs.
func (s *swap) sameAnswers(ctx context.Context, ours *log.Log, l *UnifiedLog, epochsLost bool) {
	t := s.t
	rs := s.m.from(s.m.start)
	for range min(len(rs), 12) {
		ts := rs[s.r.IntN(len(rs))].Timestamp + int64(s.r.IntN(3)) - 1
		theirs, err := l.OffsetForTime(ts)
		require.NoError(t, err)
		at, err := ours.OffsetForTime(ctx, time.UnixMilli(ts))
		if errors.Is(err, log.ErrNotFound) {
			require.Nil(t, theirs, "time %d", ts)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, TimeOffset{Timestamp: at.Timestamp, Offset: at.Offset, LeaderEpoch: at.LeaderEpoch}, *theirs, "time %d", ts)
	}
	if epochsLost {
		return
	}
	for epoch := int32(-1); epoch <= s.epoch+1; epoch++ {
		theirs, err := l.EndOffsetForEpoch(epoch)
		require.NoError(t, err)
		end := ours.EndOfEpoch(epoch)
		if theirs == nil {
			require.Equal(t, int64(-1), end.End, "epoch %d", epoch)
			continue
		}
		require.Equal(t, EpochEnd{Epoch: end.Epoch, EndOffset: end.End}, *theirs, "epoch %d", epoch)
	}
}

// copy is a copy of the root without what belongs to one owner only.
func (s *swap) copy() string {
	to := s.t.TempDir()
	require.NoError(s.t, os.CopyFS(to, os.DirFS(s.root)))
	_ = os.Remove(filepath.Join(to, ".lock"))
	return to
}

// contents are the files of the partition that both owners must leave alike, and the lines of the checkpoints.
func (s *swap) contents(root string) map[string]string {
	out := map[string]string{}
	dir := filepath.Join(root, s.topic+"-0")
	entries, err := os.ReadDir(dir)
	require.NoError(s.t, err)
	for _, e := range entries {
		switch filepath.Ext(e.Name()) {
		case ".log", ".index", ".timeindex", ".txnindex", "":
			b, err := os.ReadFile(filepath.Join(dir, e.Name()))
			require.NoError(s.t, err)
			if len(b) > 0 || filepath.Ext(e.Name()) != ".txnindex" {
				out[e.Name()] = hash(b) + fmt.Sprintf(" %d bytes", len(b))
			}
		case ".snapshot": // Kafka's entries are in no order
			b, err := os.ReadFile(filepath.Join(dir, e.Name()))
			require.NoError(s.t, err)
			entries, err := producerstate.Decode(e.Name(), b)
			require.NoError(s.t, err)
			slices.SortFunc(entries, func(a, b producerstate.Entry) int { return cmp.Compare(a.ProducerID, b.ProducerID) })
			if offset, _ := producerstate.Offset(e.Name()); len(entries) > 0 && offset > s.m.start && !s.forgets() { // Kafka removes others
				out[e.Name()] = fmt.Sprintf("%+v", entries)
			}
		}
	}
	for _, name := range []string{recoveryPointFile, logStartFile, highWatermarkFile} {
		all, err := checkpoint(filepath.Join(root, name))
		require.NoError(s.t, err)
		out[name] = all[s.topic+" 0"]
	}
	_, err = os.Stat(filepath.Join(root, cleanMarkerFile))
	out[cleanMarkerFile] = fmt.Sprint(err == nil)
	return out
}

// expected findings are none but to the tool: that the first record of a file is not offset 0; and where a log was cleaned
// that offsets are missing, and that a time index names a batch of which only the header is left.
func (s *swap) expected(line string) bool {
	for _, begin := range []string{"Non-consecutive offsets in ", "  -1 is followed by "} {
		if strings.HasPrefix(line, begin) {
			return true
		}
	}
	return s.m.clean > 0 && (strings.Contains(line, " is followed by ") || strings.HasPrefix(line, "Found timestamp mismatch in") || strings.HasSuffix(line, ", log timestamp: -1"))
}

// dumpIsSilent runs Kafka's dump tool over a cleanly stopped partition.
func (s *swap) dumpIsSilent(dir string) {
	t := s.t
	got, err := s.d.Dump(partitionFiles(t, dir, ".log", ".index", ".timeindex", ".txnindex", ".snapshot"), "--deep-iteration")
	require.NoError(t, err)
	require.Zero(t, got.Exit, got.Stderr)
	for _, line := range findings(got.Stderr) {
		if !s.expected(line) {
			t.Errorf("the dump tool says after %s: %s", s.last, got.Stderr)
			return
		}
	}
	require.NotContains(t, got.Stdout, "isvalid: false")
	require.NotContains(t, got.Stdout, "invalid bytes")
}
