package interop

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
)

// kafkaFolder is a root with one partition of random content, written by Kafka's UnifiedLog. Time in it is made up.
type kafkaFolder struct {
	t      *testing.T
	d      *Driver
	r      *rand.Rand
	root   string
	topic  string
	part   int32
	now    int64 // of the clock
	config map[string]string
	l      *UnifiedLog

	kind      string // of what most of it is
	producers [5]folderProducer
	epoch     int32
	fetched   int16  // epoch of the producers of appendFetched
	modern    bool   // there is a batch of format 2: old formats come before
	cleaned   bool   // there was a cleaning
	clean     bool   // the last stop
	frontless bool   // its leader epochs begin behind its start
	damaged   string // what was done to it by hand
	story     []string
	refused   map[string]int
}

var folderKinds = []string{"plain", "idempotent", "transactional", "compacted", "old formats", "follower", "everything"}

func newKafkaFolder(t *testing.T, d *Driver, r *rand.Rand) *kafkaFolder {
	f := &kafkaFolder{t: t, d: d, r: r, root: t.TempDir(), now: 1_750_000_000_000, kind: folderKinds[r.IntN(len(folderKinds))], refused: map[string]int{}}
	f.topic, f.part = someName(r)
	f.config = kafkaFolderConfig(r, f.kind)
	return f
}

func kafkaFolderConfig(r *rand.Rand, kind string) map[string]string {
	pick := func(values ...string) string { return values[r.IntN(len(values))] }
	c := map[string]string{
		"internal.segment.bytes": pick("600", "1500", "4000", "20000", "1048576"),
		"index.interval.bytes":   pick("0", "1", "100", "300", "4096", "1000000000"),
		"segment.index.bytes":    pick("1200", "1200", "10485760"),
		"retention.ms":           "-1",
		"max.message.bytes":      "4000000",
	}
	if interval := c["index.interval.bytes"]; len(interval) > 3 && r.IntN(2) == 0 { // with more entries Kafka does not open its own
		c["segment.index.bytes"] = pick("60", "100")
	}
	if c["internal.segment.bytes"] == "1048576" && c["segment.index.bytes"] == "1200" { // Kafka's recovery fills it and ends
		c["segment.index.bytes"] = "100000"
	}
	if r.IntN(4) == 0 {
		c["message.timestamp.type"] = "LogAppendTime"
	}
	switch r.IntN(6) {
	case 0:
		c["compression.type"] = pick("gzip", "snappy", "lz4", "zstd", "uncompressed")
	case 1:
		c["compression.type"], c["compression.gzip.level"] = "gzip", pick("1", "9")
	case 2:
		c["compression.type"], c["compression.zstd.level"] = "zstd", pick("-5", "12")
	case 3:
		c["compression.type"], c["compression.lz4.level"] = "lz4", pick("1", "17")
	}
	if r.IntN(5) == 0 {
		c["segment.ms"] = pick("1", "1000", "60000")
	}
	if r.IntN(8) == 0 {
		c["preallocate"] = "true"
	}
	if r.IntN(8) == 0 {
		c["flush.messages"] = pick("1", "20")
	}
	if r.IntN(4) == 0 {
		c["retention.bytes"] = pick("0", "3000", "20000")
	}
	if r.IntN(6) == 0 {
		c["retention.ms"] = pick("0", "60000")
	}
	if kind == "compacted" || r.IntN(5) == 0 {
		c["cleanup.policy"] = pick("compact", "compact", "compact,delete")
		c["delete.retention.ms"] = pick("0", "1000", "60000", "3600000", "86400000")
		c["min.cleanable.dirty.ratio"] = pick("0", "0.1")
	}
	return c
}

func (f *kafkaFolder) note(format string, a ...any) {
	f.story = append(f.story, fmt.Sprintf(format, a...))
}

// dir is the partition's folder.
func (f *kafkaFolder) dir() string {
	return filepath.Join(f.root, fmt.Sprintf("%s-%d", f.topic, f.part))
}

func (f *kafkaFolder) openAt(root string) (*UnifiedLog, error) {
	return f.d.Open(OpenOptions{Root: root, Topic: f.topic, Partition: f.part, Config: f.config, NowMs: f.now})
}

func (f *kafkaFolder) open() {
	f.t.Helper()
	var err error
	f.l, err = f.openAt(f.root)
	require.NoError(f.t, err)
	f.epoch += 2 // as a broker's that is alone
	require.NoError(f.t, f.l.AssignEpoch(f.epoch, f.seen().LogEndOffset))
}

// end is the log end offset.
func (f *kafkaFolder) seen() State {
	s, err := f.l.BriefState()
	require.NoError(f.t, err)
	return s
}

// make fills the folder and stops, cleanly or not.
func (f *kafkaFolder) make(steps int) {
	f.note("kind %s, %v", f.kind, f.config)
	o := OpenOptions{Root: f.root, Topic: f.topic, Partition: f.part, Config: f.config, NowMs: f.now}
	if f.r.IntN(2) == 0 {
		o.TopicID = "XreDC5vKRYqh8Nifn3SBJQ"
	}
	var err error
	f.l, err = f.d.Open(o)
	require.NoError(f.t, err)
	if f.r.IntN(3) == 0 {
		base := []int64{1, 1<<31 - 7, 1<<32 - 3, 1 << 40, 1<<62 - 5, 1<<62 + 1<<61, 1<<63 - 1<<24}[f.r.IntN(7)]
		require.NoError(f.t, f.l.TruncateFullyAndStartAt(base))
		f.note("begins at %d", base)
	}
	for range steps {
		f.step()
	}
	f.stop(f.r.IntN(3) > 0)
}

func (f *kafkaFolder) stop(clean bool) {
	f.note("stop, clean %v", clean)
	f.clean = clean
	if clean {
		require.NoError(f.t, f.l.Close())
		return
	}
	if f.r.IntN(2) == 0 {
		require.NoError(f.t, f.l.Flush())
		f.note("flushed before")
	}
	require.NoError(f.t, f.l.Abandon())
}

func (f *kafkaFolder) step() {
	f.now += f.r.Int64N(3000)
	require.NoError(f.t, f.l.SetClock(f.now))
	switch n := f.r.IntN(100); {
	case n < 70:
		f.append()
	case n < 75:
		base, err := f.l.Roll()
		f.noteResult(err, "roll at %d", base)
	case n < 78:
		require.NoError(f.t, f.l.Flush())
		f.note("flush")
	case n < 81:
		f.deleteRecords()
	case n < 84:
		deleted, err := f.l.DeleteOldSegments()
		f.noteResult(err, "retention: %d segments", deleted)
	case n < 89:
		f.cleanOnce()
	case n < 91:
		f.truncate()
	case n < 94:
		f.epoch += int32(1 + f.r.IntN(2))
		end := f.seen().LogEndOffset
		f.noteResult(f.l.AssignEpoch(f.epoch, end), "epoch %d at %d", f.epoch, end)
	case n < 96:
		f.now += []int64{60_000, 3_600_000, 90_000_000}[f.r.IntN(3)]
		require.NoError(f.t, f.l.SetClock(f.now))
		require.NoError(f.t, f.l.ExpireProducers())
		f.note("the clock says %d", f.now)
	default:
		f.stop(f.r.IntN(3) > 0)
		f.open()
	}
}

func (f *kafkaFolder) noteResult(err error, format string, a ...any) {
	text := fmt.Sprintf(format, a...)
	if err != nil {
		what, _, _ := strings.Cut(text, " ")
		f.refused[what]++
		text += ": " + err.Error()
	}
	f.note("%s", text)
}

func (f *kafkaFolder) deleteRecords() {
	s := f.seen()
	if s.LogEndOffset == s.LogStartOffset {
		return
	}
	at := s.LogStartOffset + f.r.Int64N(s.LogEndOffset-s.LogStartOffset) + int64(f.r.IntN(8)/7)
	if f.r.IntN(3) > 0 {
		at = s.LogStartOffset + (at-s.LogStartOffset)/4
	}
	_, err := f.l.DeleteRecords(at)
	f.noteResult(err, "delete records below %d", at)
	if f.r.IntN(2) == 0 {
		n, err := f.l.DeleteOldSegments()
		f.noteResult(err, "retention: %d segments", n)
	}
}

func (f *kafkaFolder) cleanOnce() {
	if !strings.Contains(f.config["cleanup.policy"], "compact") {
		return
	}
	o := CleanOptions{Force: f.r.IntN(3) > 0, Map: 1 << 20, Load: 0.9, Buffer: 1 << 16}
	if f.r.IntN(4) == 0 {
		o.Map = 24 * (3 + f.r.IntN(25))
	}
	if f.r.IntN(6) == 0 {
		after := f.r.IntN(6)
		o.InterruptAfter = &after
	}
	c, err := f.l.Clean(o)
	f.cleaned = true
	f.noteResult(err, "clean %+v: %+v", o, c)
}

// truncate cuts at the start of a batch, as followers do, or anywhere at the end.
func (f *kafkaFolder) truncate() {
	s := f.seen()
	if s.LogEndOffset == s.LogStartOffset || f.cleaned { // the driver lowers no checkpoint of a cleaner
		return
	}
	raw, err := f.l.Read(s.LogStartOffset+f.r.Int64N(s.LogEndOffset-s.LogStartOffset), 200_000)
	require.NoError(f.t, err)
	b, _, err := record.Next(raw)
	if err != nil || b.Magic() < 2 || b.BaseOffset() < s.LogStartOffset {
		return
	}
	_, err = f.l.TruncateTo(b.BaseOffset())
	f.noteResult(err, "truncate to %d of %d", b.BaseOffset(), s.LogEndOffset)
	for range 2 { // a broker checkpoints after it
		f.stop(true)
		f.open()
	}
	for i := range f.producers {
		f.producers[i].epoch++
		f.producers[i].sequence, f.producers[i].open = 0, false
	}
}

// configFlags give our command the folder's settings and clock.
func (f *kafkaFolder) configFlags() (args []string) {
	for k, v := range maps.All(f.config) {
		args = append(args, "--config", k+"="+v)
	}
	return args
}

func (f *kafkaFolder) nowFlag() []string { return []string{"--now", strconv.FormatInt(f.now, 10)} }

// files are all of the partition folder, by name.
func (f *kafkaFolder) files() (names []string) {
	entries, err := os.ReadDir(f.dir())
	require.NoError(f.t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
