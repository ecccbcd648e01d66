package interop

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/golden"
)

// TestFoldersOpenAsKafkaOpensThem lets Kafka's UnifiedLog write random folders. What the command says of each without changing it
// is what Kafka says after it has opened a copy, the records are those that Kafka reads, verify finds nothing where Kafka
// stopped cleanly, and dump prints what Kafka's tool prints.
func TestFoldersOpenAsKafkaOpensThem(t *testing.T) {
	_, d := kafka(t)
	seed := uint64(rounds(t, "PARTLOG_INTEROP_SEED", 5))
	refused := map[string]int{}
	for i := range rounds(t, "PARTLOG_INTEROP_OPENED", 12) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			f := newKafkaFolder(t, d, rand.New(rand.NewPCG(seed, uint64(i))))
			defer func() {
				for k, n := range f.refused {
					refused[k] += n
				}
				if t.Failed() {
					t.Logf("what happened:\n%s", strings.Join(f.story, "\n"))
				}
			}()
			f.make(1 + f.r.IntN(60))
			f.compare(f.root)
			if t.Failed() || f.r.IntN(2) == 0 {
				return
			}
			for range 3 {
				root := copyRoot(t, f.root)
				g := *f
				g.root = root
				g.damage()
				f.story = g.story
				if g.damaged == "" {
					continue
				}
				g.compare(root)
				f.story = g.story
				if t.Failed() {
					return
				}
			}
		})
	}
	for _, what := range slices.Sorted(maps.Keys(refused)) {
		t.Logf("%s: %d", what, refused[what])
	}
}

// opinion is what info says.
type opinion struct {
	golden.Opened
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Recovery  struct {
		Rebuilt  []string
		Findings []struct{ Kind, Detail, File string }
	} `json:"recovery"`
}

// compare compares what both make of a root.
func (f *kafkaFolder) compare(root string) {
	t := f.t
	g := *f
	g.root = root
	before := treeOf(t, root)

	theirs := copyRoot(t, root)
	l, err := g.openAt(theirs)
	f.note("compared")
	out, stderr, code := partlog(t, append(append([]string{"info", "--json", g.dir()}, g.configFlags()...), g.nowFlag()...)...)
	if err != nil {
		require.Less(t, code, 3)
		require.NotContains(t, stderr, "panic")
		f.note("Kafka: %v; ours: %d %s", err, code, stderr)
		sameTree(t, before, treeOf(t, root))
		return
	}
	if code == 1 && f.damaged != "" {
		f.note("ours refuses: %s", stderr)
		require.NoError(t, l.Abandon())
		f.refused["refused: "+f.damaged]++
		sameTree(t, before, treeOf(t, root))
		return
	}
	require.Zero(t, code, stderr)
	var o opinion
	require.NoError(t, json.Unmarshal([]byte(out), &o))
	require.Equal(t, [2]any{f.topic, f.part}, [2]any{o.Topic, o.Partition})
	if strings.Contains(f.damaged, "index") && l.Opened.LogEndOffset < o.LogEndOffset { // Kafka looks for the end where the index says
		require.NoError(t, l.Abandon())
		f.refused["Kafka finds no end: "+f.damaged]++
		return
	}
	kafkas, unreadable := l.Records(digestOver)
	var committed []int64
	behind := strings.Contains(f.damaged, "behind the log") && l.Opened.OpenedClean // Kafka serves it
	if unreadable == nil && !behind {
		committed = consume(t, l, l.Opened, 1<<20)
	}
	require.NoError(t, l.Abandon())
	between := func(r Record) bool { return o.LastStableOffset <= r.Offset && r.Offset < l.Opened.LastStableOffset }
	if lso := l.Opened.LastStableOffset; o.LastStableOffset == o.LogStartOffset && lso > o.LogStartOffset && !slices.ContainsFunc(kafkas, between) {
		l.Opened.LastStableOffset = o.LogStartOffset // which is in a gap, and Kafka's the first batch behind
	}
	g.sameOpinion(l.Opened.Opened, o)

	got, whole := g.cat("--digest-over", "4096")
	if strings.Contains(f.damaged, "overflowed") { // what is not split Kafka looks up by an index of another base
		sameTree(t, before, treeOf(t, root))
		return
	}
	if unreadable != nil {
		require.False(t, whole, unreadable)
		sameTree(t, before, treeOf(t, root))
		return
	}
	if !whole { // Kafka's reader looks at no checksum
		require.LessOrEqual(t, len(got), len(kafkas))
		sameRecords(t, kafkas[:len(got)], got)
		sameTree(t, before, treeOf(t, root))
		g.sameDump()
		return
	}
	sameRecords(t, kafkas, got)
	offsets := []int64{}
	got, _ = g.cat("--isolation", "read_committed")
	for _, r := range got {
		offsets = append(offsets, r.Offset)
	}
	misleads := slices.ContainsFunc(o.AbortedTransactions, func(a golden.AbortedTransaction) bool { return a.LastStableOffset > a.LastOffset+1 })
	if misleads { // Kafka stops where a follower's index says, and shows records of aborted transactions
		committed = slices.DeleteFunc(committed, func(at int64) bool { return !slices.Contains(offsets, at) })
	}
	if !strings.Contains(f.damaged, "txnindex") && !behind && o.LastStableOffset >= l.Opened.LastStableOffset {
		require.Equal(t, append([]int64{}, committed...), offsets, "what read-committed readers see")
	}
	out, stderr, code = partlog(t, append([]string{"verify", g.dir()}, g.configFlags()...)...)
	if misleads && f.damaged == "" && code == 1 && !f.cleaned && !g.frontless {
		for line := range strings.Lines(strings.TrimSpace(out)) {
			require.Contains(t, line, "readers may stop looking")
		}
		code = 0
	}
	zeros := !f.clean && f.config["preallocate"] == "true"
	switch {
	case f.damaged == "" && !zeros && (g.frontless || f.cleaned) && code == 1: // or a cleaning ended half-way, and the stop was clean
		for line := range strings.Lines(strings.TrimSpace(out)) {
			require.True(t, strings.Contains(line, epochsFile) || strings.Contains(line, ".cleaned: leftover"), line)
		}
	case f.damaged == "" && !zeros:
		require.Zero(t, code, "verify: %s%s", out, stderr)
	case f.damaged != "":
		require.Less(t, code, 2, stderr)
		f.refused[fmt.Sprintf("verify %d: %s", code, f.damaged)]++
	}
	sameTree(t, before, treeOf(t, root))
	if !t.Failed() {
		g.goesOn(root)
		f.story = g.story
	}
	g.sameDump() // the tool makes an index that is missing
}

// cat is what the command reads; whole says that it met no damage.
func (f *kafkaFolder) cat(flags ...string) (rs []Record, whole bool) {
	out, stderr, code := partlog(f.t, append([]string{"cat", f.dir()}, flags...)...)
	if !strings.Contains(f.damaged, "log") {
		require.Zero(f.t, code, stderr)
	}
	dec := json.NewDecoder(bytes.NewReader([]byte(out)))
	for dec.More() {
		var r Record
		require.NoError(f.t, dec.Decode(&r))
		rs = append(rs, r)
	}
	return rs, code == 0
}

// sameOpinion compares what info says with what Kafka says. The allowances are named in the README.
func (f *kafkaFolder) sameOpinion(k golden.Opened, o opinion) {
	t := f.t
	// Kafka knows nothing of producers and transactions from below the start.
	forgets := k.LogStartOffset > 0 && (!k.OpenedClean || k.LogStartOffset == k.LogEndOffset || f.damaged != "")
	if strings.Contains(f.damaged, "overflowed") { // what is not split begins at the other base
		k.LogStartOffset = max(k.LogStartOffset, o.LogStartOffset)
	}
	// Where the first offset of a transaction lies in a gap, Kafka's last stable offset is the first behind.
	k.LastStableOffset = max(k.LastStableOffset, k.LogStartOffset)
	replays := k.OpenedClean && (strings.Contains(f.damaged, "no index") || strings.Contains(f.damaged, "indexes gone")) // it recovers that segment, and knows whom it had forgotten
	unknowing := k.OpenedClean && strings.Contains(f.damaged, "no snapshot") || replays                                  // without any, after a clean stop, it takes the log for one without
	if (forgets || unknowing || strings.Contains(f.damaged, "no log")) && o.LastStableOffset < k.LastStableOffset {
		k.LastStableOffset = o.LastStableOffset
	}
	ours := func(id int64) bool {
		return slices.ContainsFunc(o.Producers, func(p golden.ProducerFacts) bool { return p.ProducerID == id })
	}
	theirs := func(id int64) bool {
		return slices.ContainsFunc(k.Producers, func(p golden.ProducerFacts) bool { return p.ProducerID == id })
	}
	if forgets || unknowing {
		for _, p := range k.Producers {
			require.True(t, ours(p.ProducerID), "%+v", p)
		}
		k.Producers, o.Producers = nil, nil
		cut := map[int64]bool{} // by their ends: Kafka may let such a one begin at the start
		for _, a := range o.AbortedTransactions {
			cut[a.LastOffset] = a.FirstOffset < k.LogStartOffset
		}
		below := func(a golden.AbortedTransaction) bool { return a.FirstOffset < k.LogStartOffset || cut[a.LastOffset] }
		k.AbortedTransactions, o.AbortedTransactions = slices.DeleteFunc(k.AbortedTransactions, below), slices.DeleteFunc(o.AbortedTransactions, below)
		for i := range min(len(k.AbortedTransactions), len(o.AbortedTransactions)) { // held by a transaction from below the start
			if b := o.AbortedTransactions[i]; b.LastStableOffset < k.LogStartOffset {
				k.AbortedTransactions[i].LastStableOffset = b.LastStableOffset
			}
		}
	}
	o.Producers = slices.DeleteFunc(o.Producers, func(p golden.ProducerFacts) bool { return p.LastTimestamp < 0 && !theirs(p.ProducerID) })
	if !k.OpenedClean || f.damaged != "" {
		for i := range min(len(k.Producers), len(o.Producers)) {
			if o.Producers[i].CachedBatches >= k.Producers[i].CachedBatches {
				o.Producers[i].CachedBatches = k.Producers[i].CachedBatches
			}
		}
	}
	size, err := strconv.Atoi(f.config["segment.index.bytes"])
	require.NoError(t, err)
	for i := range min(len(k.Segments), len(o.Segments)) {
		a, b := &k.Segments[i], &o.Segments[i]
		presized := a.TimeIndexEntries == size/12
		if a.IndexEntries == size/8 { // slots of zeros count
			a.IndexEntries = b.IndexEntries
		}
		if presized {
			a.TimeIndexEntries = b.TimeIndexEntries
		}
		if k.OpenedClean && (strings.Contains(f.damaged, "behind the log") || strings.Contains(f.damaged, "torn log")) { // Kafka keeps those bytes
			a.Size = b.Size
		}
		if strings.Contains(f.damaged, "index") || strings.Contains(f.damaged, "swap") { // Kafka believes what stands there, or is missing
			a.LargestTimestamp, b.LargestTimestamp, a.IndexEntries, a.TimeIndexEntries = 0, 0, b.IndexEntries, b.TimeIndexEntries
		}
		if a.LargestTimestamp == 0 && (strings.Contains(f.damaged, "wrong clean marker") || strings.Contains(f.damaged, "an empty segment behind")) { // zeros of a kill
			b.LargestTimestamp = 0
		}
		if a.LargestTimestamp > 1_790_000_000_000 && (!f.clean || a.Size == 0 || presized) { // the time of the file
			a.LargestTimestamp, b.LargestTimestamp = 0, 0
		}
	}
	differ := func(what string, a, b any) {
		if as, bs := fmt.Sprintf("%+v", a), fmt.Sprintf("%+v", b); as != bs {
			t.Errorf("DIFF %s clean %v\nKafka %s\nours  %s\nrecovery %+v", what, k.OpenedClean, as, bs, o.Recovery)
		}
	}
	differ("clean", k.OpenedClean, o.OpenedClean)
	differ("start", k.LogStartOffset, o.LogStartOffset)
	differ("end", k.LogEndOffset, o.LogEndOffset)
	differ("hw", k.HighWatermark, o.HighWatermark)
	differ("checkpointed hw", k.CheckpointedHighWatermark, o.CheckpointedHighWatermark)
	if !strings.Contains(f.damaged, "index") { // Kafka looks the batch up
		differ("lso", k.LastStableOffset, o.LastStableOffset)
	}
	differ("rp", k.RecoveryPoint, o.RecoveryPoint)
	differ("topic id", k.TopicID, o.TopicID)
	if len(k.LeaderEpochs) == 0 && slices.ContainsFunc(o.Recovery.Rebuilt, func(name string) bool { return strings.HasSuffix(name, epochsFile) }) { // see epochsLost
		o.LeaderEpochs, f.frontless = k.LeaderEpochs, true
	}
	if n := len(k.LeaderEpochs); n > 0 && k.LeaderEpochs[0].StartOffset > k.LogStartOffset { // a raised start went with a kill: ours knows more in front
		f.frontless = true
		o.LeaderEpochs = o.LeaderEpochs[max(0, len(o.LeaderEpochs)-n):]
		if len(o.LeaderEpochs) == n {
			o.LeaderEpochs[0].StartOffset = max(o.LeaderEpochs[0].StartOffset, k.LeaderEpochs[0].StartOffset)
		}
	}
	if !strings.Contains(f.damaged, "epochs") && !strings.Contains(f.damaged, "no log") { // Kafka goes on with what the file says
		differ("epochs", k.LeaderEpochs, o.LeaderEpochs)
	}
	if !strings.Contains(f.damaged, "overflowed") { // Kafka splits only what it recovers
		differ("segments", k.Segments, o.Segments)
	}
	differ("producers", k.Producers, o.Producers)
	if strings.Contains(f.damaged, "txnindex") { // Kafka believes what stands there
		k.AbortedTransactions = o.AbortedTransactions
	}
	differ("aborted", k.AbortedTransactions, o.AbortedTransactions)
}

// sameDump compares the dumps of all files, or of each where Kafka's tool gives up at one.
func (f *kafkaFolder) sameDump() {
	flags := []string{"--deep-iteration"}
	if f.r.IntN(2) == 0 {
		flags = append(flags, "--print-data-log")
	}
	files := partitionFiles(f.t, f.dir(), ".log", ".index", ".timeindex", ".txnindex", ".snapshot")
	if f.sameDumpOf(files, flags) {
		return
	}
	for _, file := range files {
		f.sameDumpOf([]string{file}, flags)
	}
}

func (f *kafkaFolder) sameDumpOf(files, flags []string) (whole bool) {
	t := f.t
	want, err := f.d.Dump(files, flags...)
	require.NoError(t, err)
	if want.Exit != 0 && len(files) > 1 {
		return false
	}
	out, stderr, code := partlog(t, append(append([]string{"dump"}, flags...), files...)...)
	if want.Exit != 0 {
		if !strings.HasPrefix(out, want.Stdout) && !strings.Contains(f.damaged, "index") { // it may look up another way what is in no order
			require.Equal(t, want.Stdout, out, "Kafka gave up: %s", want.Stderr)
		}
		return false
	}
	stderr, damaged := withoutOurs(stderr)
	require.Equal(t, damaged, code != 0, stderr)
	if want.Stdout != out {
		w, g := strings.Split(want.Stdout, "\n"), strings.Split(out, "\n")
		for i := range min(len(w), len(g)) {
			require.Equal(t, w[i], g[i], "line %d, %v", i+1, flags)
		}
		require.Equal(t, len(w), len(g))
	}
	require.Equal(t, findings(want.Stderr), findings(stderr))
	return true
}

// withoutOurs takes out what the dump says of damage that Kafka's tool passes over: an index that ends within an entry, a snapshot
// with a wrong checksum. Such a file also makes the exit code 1.
func withoutOurs(stderr string) (rest string, damaged bool) {
	var kept strings.Builder
	ours := false
	for line := range strings.Lines(stderr) {
		if !strings.HasPrefix(line, " ") {
			ours = strings.HasPrefix(line, "Unreadable: ")
			damaged = damaged || ours
		}
		if !ours {
			kept.WriteString(line)
		}
	}
	return kept.String(), damaged
}
