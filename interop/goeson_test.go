package interop

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
)

// goesOn lets ours and Kafka go on with a copy each of the folder that both can open: append and stop, or retain, or clean. What ours
// leaves Kafka opens as stopped cleanly, and reads what it reads where it went on itself.
func (f *kafkaFolder) goesOn(root string) {
	ourRoot, theirRoot := copyRoot(f.t, root), copyRoot(f.t, root)
	compacted := strings.Contains(f.config["cleanup.policy"], "compact")
	work := f.appendsOn
	if n := f.r.IntN(4); n == 0 && compacted && !strings.Contains(f.damaged, "log") && f.config["preallocate"] == "" {
		work = f.cleansOn
	} else if n == 1 {
		work = f.retainsOn
	}
	if work(ourRoot, theirRoot) && !f.t.Failed() {
		f.samely(ourRoot, theirRoot)
	}
}

// at is the folder in another root.
func (f *kafkaFolder) at(root string) *kafkaFolder {
	g := *f
	g.root = root
	return &g
}

func (f *kafkaFolder) appendsOn(ourRoot, theirRoot string) bool {
	t, ctx := f.t, context.Background()
	f.note("both append")
	o := record.BuilderOptions{Codec: codecs[f.r.IntN(len(codecs))]}
	if f.r.IntN(2) == 0 {
		o.Producer = &record.Producer{ID: 1 << 50, Epoch: 3, BaseSequence: 7}
	}
	b := record.NewBuilder(o)
	for i := range 1 + f.r.IntN(4) {
		require.NoError(t, b.Add(record.Record{Timestamp: f.now, Key: fmt.Appendf(nil, "later %d", i), Value: []byte("v")}))
	}
	batch, err := b.Finish()
	require.NoError(t, err)
	raw := batch.Bytes()

	l, err := f.openAt(theirRoot)
	require.NoError(t, err)
	epoch := f.epoch + 2
	if n := len(l.Opened.LeaderEpochs); n > 0 {
		epoch = max(epoch, l.Opened.LeaderEpochs[n-1].Epoch+1)
	}
	if epoch < 0 { // the last one there is was written into the file
		require.NoError(t, l.Close())
		return false
	}
	require.NoError(t, l.AssignEpoch(epoch, l.Opened.LogEndOffset))
	want, refusal := l.AppendAsLeader(append([]byte{}, raw...), epoch, "")
	require.NoError(t, l.Close())

	c, err := log.ParseConfig(f.config)
	require.NoError(t, err)
	d, err := log.OpenDir(ourRoot, log.DirConfig{Now: func() time.Time { return time.UnixMilli(f.now) }, Manual: true})
	require.NoError(t, err)
	ours, err := d.Open(ctx, log.TopicPartition{Topic: f.topic, Partition: f.part}, c)
	require.NoError(t, err)
	require.NoError(t, ours.AssignEpoch(epoch))
	got, err := ours.AppendBatches(ctx, raw, log.AppendOptions{})
	require.NoError(t, d.Close())
	if refusal != nil {
		require.Error(t, err, "Kafka: %v", refusal)
		return true
	}
	require.NoError(t, err)
	require.Equal(t, [2]int64{want.FirstOffset, want.LastOffset}, [2]int64{got.Base, got.Last}, "offsets of what was appended")
	return true
}

func (f *kafkaFolder) retainsOn(ourRoot, theirRoot string) bool {
	t := f.t
	f.note("both retain")
	l, err := f.openAt(theirRoot)
	require.NoError(t, err)
	_, err = l.DeleteOldSegments()
	require.NoError(t, err)
	require.NoError(t, l.Close())
	do(t, append(append([]string{"retain", f.at(ourRoot).dir()}, f.configFlags()...), f.nowFlag()...)...)
	require.Equal(t, names(f.at(theirRoot), ".log"), names(f.at(ourRoot), ".log"), "segments left")
	return true
}

func (f *kafkaFolder) cleansOn(ourRoot, theirRoot string) bool {
	t := f.t
	f.note("both clean")
	before := facts(t, f.dir())
	l, err := f.openAt(theirRoot)
	require.NoError(t, err)
	cleaned, err := l.Clean(CleanOptions{Force: true})
	require.NoError(t, err)
	require.NoError(t, l.Close())
	do(t, append(append([]string{"clean", f.at(ourRoot).dir()}, f.configFlags()...), f.nowFlag()...)...)
	if mistakesCommitted(before, cleaned) || strings.Contains(f.damaged, "txnindex") {
		return false
	}
	want, got := facts(t, f.at(theirRoot).dir()), facts(t, f.at(ourRoot).dir())
	if cleaned.NextDirty == 0 { // there was nothing to clean: Kafka has fitted it to the start
		want.Checkpoint = got.Checkpoint
	}
	if f.kind == "old formats" || f.kind == "everything" || f.damaged != "" { // of an old compressed set Kafka leaves a new batch; and knows less of producers
		for _, rs := range [][]Record{want.Records, got.Records} {
			for i := range rs {
				rs[i].TimestampType = ""
			}
		}
		sameRecords(t, want.Records, got.Records)
		if f.damaged == "" {
			require.Equal(t, want.Bases, got.Bases, "segments")
		}
		return false
	}
	sameFacts(t, want, got)
	return true
}

// names are the files of a kind.
func names(f *kafkaFolder, ext string) (out []string) {
	for _, name := range partitionFiles(f.t, f.dir(), ext) {
		out = append(out, filepath.Base(name))
	}
	return out
}

// samely opens both with Kafka.
func (f *kafkaFolder) samely(ourRoot, theirRoot string) {
	t := f.t
	out, stderr, code := partlog(t, append([]string{"verify", f.at(ourRoot).dir()}, f.configFlags()...)...)
	if f.damaged == "" {
		require.Zero(t, code, "verify of what ours left: %s%s", out, stderr)
		s := &swap{t: t, d: f.d, last: "ours"}
		s.m.clean = 1
		s.dumpIsSilent(f.at(ourRoot).dir())
	} else if code != 0 {
		f.refused["verify after ours: "+f.damaged]++
		f.note("verify after ours: %s%s", out, stderr)
	}
	theirs, err := f.openAt(theirRoot)
	if f.damaged != "" && err != nil { // Kafka falls over what it left itself
		f.note("Kafka does not open what it left: %v", err)
		f.refused["Kafka's own: "+f.damaged]++
	} else {
		require.NoError(t, err)
	}
	ours, failure := f.openAt(ourRoot)
	require.NoError(t, failure, "Kafka opens what ours left")
	if f.damaged == "" {
		require.Empty(t, rebuilding(ours.Log))
	}
	require.True(t, ours.Opened.OpenedClean)
	got, unreadable := ours.Records(digestOver)
	if err == nil {
		want, theirsUnreadable := theirs.Records(digestOver)
		require.NoError(t, theirs.Abandon())
		if theirsUnreadable == nil && !strings.Contains(f.damaged, "behind the log") && !strings.Contains(f.damaged, "torn log") { // what Kafka appends behind those
			require.NoError(t, unreadable, "records of what ours left")
			sameRecords(t, want, got)
			k, o := theirs.Opened, ours.Opened
			require.Equal(t, [3]int64{k.LogStartOffset, k.LogEndOffset, k.RecoveryPoint}, [3]int64{o.LogStartOffset, o.LogEndOffset, o.RecoveryPoint}, "start, end, recovery point")
			require.Equal(t, k.TopicID, o.TopicID)
		}
	}
	require.NoError(t, ours.Abandon())
	for _, file := range []string{recoveryPointFile, logStartFile, highWatermarkFile} {
		_, err := os.Stat(filepath.Join(ourRoot, file))
		require.NoError(t, err)
	}
}
