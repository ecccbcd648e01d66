package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
)

// TestRootsOpenAsKafkasManagerOpensThem makes roots of several random folders, with what a root holds beside live partitions, and
// damages some of their small files. Where Kafka's LogManager starts, info finds the same partitions with the same offsets, and what
// ours leaves after opening all of them the manager takes for a clean stop of the same partitions.
func TestRootsOpenAsKafkasManagerOpensThem(t *testing.T) {
	_, d := kafka(t)
	seed := uint64(rounds(t, "PARTLOG_INTEROP_SEED", 5))
	sum := map[string]int{}
	for i := range rounds(t, "PARTLOG_INTEROP_ROOTS", 5) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			m := &managed{t: t, d: d, r: rand.New(rand.NewPCG(seed, uint64(i))), root: t.TempDir(), sum: sum}
			defer func() {
				if t.Failed() {
					t.Logf("what happened:\n%s", strings.Join(m.story, "\n"))
				}
			}()
			m.make()
			m.compare()
			for range 4 {
				if t.Failed() {
					return
				}
				m.root = copyRoot(t, m.made)
				m.damaged = nil
				for range 1 + m.r.IntN(2) {
					m.damage()
				}
				if len(m.damaged) > 0 {
					m.compare()
				}
			}
		})
	}
	for _, what := range slices.Sorted(maps.Keys(sum)) {
		t.Logf("%s: %d", what, sum[what])
	}
}

// managed is a root of several partitions.
type managed struct {
	t       *testing.T
	d       *Driver
	r       *rand.Rand
	root    string
	made    string // what it was before it was damaged
	now     int64
	config  map[string]string
	folders []*kafkaFolder
	clean   bool
	damaged []string
	story   []string
	sum     map[string]int
}

func (m *managed) note(format string, a ...any) { m.story = append(m.story, fmt.Sprintf(format, a...)) }

func (m *managed) make() {
	m.config = map[string]string{"internal.segment.bytes": "4000", "segment.index.bytes": "1200", "index.interval.bytes": "100", "retention.ms": "-1", "max.message.bytes": "4000000"}
	taken := map[string]bool{}
	m.clean = m.r.IntN(3) > 0
	for n := 1 + m.r.IntN(5); n > 0 || len(m.folders) == 0; n-- {
		f := newKafkaFolder(m.t, m.d, m.r)
		f.root, f.config = m.root, m.config
		if taken[f.topic+fmt.Sprint(f.part)] || f.topic == "__cluster_metadata" || len(f.topic) > 210 {
			continue
		}
		taken[f.topic+fmt.Sprint(f.part)] = true
		m.note("partition %s-%d", f.topic, f.part)
		f.make(1 + m.r.IntN(12))
		m.folders, m.now = append(m.folders, f), max(m.now, f.now)
		m.clean = m.clean && f.clean
	}
	require.NoError(m.t, SetCleanMarker(m.root, m.clean))
	m.made = m.root
}

func (m *managed) some() *kafkaFolder {
	f := *m.folders[m.r.IntN(len(m.folders))]
	f.root, f.story, f.clean = m.root, nil, m.clean
	return &f
}

// rootDamage is what a root may hold beside live partitions, and what happens to its own files.
var rootDamage = []struct {
	name string
	do   func(*managed) bool
}{
	{"a marked folder", func(m *managed) bool {
		f := m.some()
		name := fmt.Sprintf("%s-%d.%032x%s", f.topic, f.part, m.r.Uint64(), []string{"-delete", "-stray"}[m.r.IntN(2)])
		if m.r.IntN(2) == 0 {
			name = fmt.Sprintf("gone.%d-7.%032x%s", m.r.IntN(9), m.r.Uint64(), []string{"-delete", "-stray", "-future"}[m.r.IntN(3)])
		}
		m.note("%s", name)
		require.NoError(m.t, os.CopyFS(filepath.Join(m.root, name), os.DirFS(f.dir())))
		return true
	}},
	{"a copy beside its twin", func(m *managed) bool {
		f := m.some()
		return os.CopyFS(filepath.Join(m.root, fmt.Sprintf("%s-%d.%032x-future", f.topic, f.part, m.r.Uint64())), os.DirFS(f.dir())) == nil
	}},
	{"a foreign folder", func(m *managed) bool {
		name := []string{"foo", "foo-bar", ".x", "lost+found", "t-", "-0", "a-0-stray", "a-0.-delete", "remote-log-index-cache", "__cluster_metadata-0", "t-99999999999"}[m.r.IntN(11)]
		m.note("%s", name)
		return os.Mkdir(filepath.Join(m.root, name), 0o755) == nil
	}},
	{"an empty partition", func(m *managed) bool {
		name := []string{"new-0", "new-00", "ne.w-1"}[m.r.IntN(3)]
		return os.Mkdir(filepath.Join(m.root, name), 0o755) == nil
	}},
	{"a partition twice", func(m *managed) bool {
		f := m.some()
		return os.CopyFS(filepath.Join(m.root, fmt.Sprintf("%s-0%d", f.topic, f.part)), os.DirFS(f.dir())) == nil
	}},
	{"foreign files", func(m *managed) bool {
		for _, name := range []string{"bootstrap.checkpoint", "README", "x-0", "meta.properties.tmp", "recovery-point-offset-checkpoint.tmp", ".lock"} {
			require.NoError(m.t, os.WriteFile(filepath.Join(m.root, name), []byte("x"), 0o644))
		}
		return true
	}},
	{"properties", func(m *managed) bool {
		text := []string{"#\n#Mon\nnode.id=1\ndirectory.id=XreDC5vKRYqh8Nifn3SBJQ\nversion=1\ncluster.id=abc\n", "version=0\nbroker.id=3\n", "", "\x00\x01", "version=1\n",
			"version=1\ncluster.id=abc\nnode.id=x\n", "version=2\ncluster.id=abc\nnode.id=1\n", "version=1\r\ncluster.id=abc\r\nnode.id=1\r\n",
			"version=1\ncluster.id=abc\nnode.id=1\ndirectory.id=short\n", "version=1\ncluster.id=abc\nnode.id=1\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAA\n", "version : 1\ncluster.id \\\n abc\nnode.id=1\n"}[m.r.IntN(11)]
		m.note("%q", text)
		return os.WriteFile(filepath.Join(m.root, "meta.properties"), []byte(text), 0o644) == nil
	}},
	{"checkpoint gone", func(m *managed) bool {
		return os.Remove(filepath.Join(m.root, []string{recoveryPointFile, logStartFile, highWatermarkFile, cleanerFile}[m.r.IntN(4)])) == nil
	}},
	{"cleaner checkpoint", func(m *managed) bool {
		f := m.some()
		text := []string{"0\n1\n" + fmt.Sprintf("%s %d 1000000\n", f.topic, f.part), "0\n1\n" + fmt.Sprintf("%s %d -5\n", f.topic, f.part), "garbage", "", "1\n0\n", "0\n2\nx 0 0\n"}[m.r.IntN(6)]
		m.note("%q", text)
		return os.WriteFile(filepath.Join(m.root, cleanerFile), []byte(text), 0o644) == nil
	}},
	{"another marker", func(m *managed) bool {
		m.clean = !m.clean
		return SetCleanMarker(m.root, m.clean) == nil
	}},
	{"a folder's file", func(m *managed) bool {
		f := m.some()
		all := slices.Concat(textDamage, fileDamage)
		d := all[m.r.IntN(len(all))]
		did := d.do(f)
		m.story, m.clean = append(append(m.story, d.name), f.story...), f.clean
		return did
	}},
}

func (m *managed) damage() {
	d := rootDamage[m.r.IntN(len(rootDamage))]
	m.note("damage: %s", d.name)
	if d.do(m) {
		m.damaged = append(m.damaged, d.name)
	}
}

func (m *managed) openAt(root string) (*ManagedRoot, error) {
	return m.d.OpenRoot(OpenOptions{Root: root, Config: m.config, NowMs: m.now})
}

func (m *managed) flags() []string {
	f := &kafkaFolder{config: m.config, now: m.now}
	return append(f.configFlags(), f.nowFlag()...)
}

// compare compares what both make of the root, without and with changing it.
func (m *managed) compare() {
	t := m.t
	before := treeOf(t, m.root)
	theirs := copyRoot(t, m.root)
	k, err := m.openAt(theirs)
	online := err == nil && k.Online
	if err == nil {
		require.NoError(t, map[bool]func() error{true: k.Close, false: k.Abandon}[online]())
	}
	what := strings.Join(m.damaged, ", ")
	out, stderr, code := partlog(t, append([]string{"info", "--json", m.root}, m.flags()...)...)
	require.NotContains(t, stderr, "panic")
	require.Less(t, code, 3)
	verified, verdict, verifyCode := partlog(t, append([]string{"verify", m.root}, m.flags()[:2*len(m.config)]...)...)
	require.Less(t, verifyCode, 3)
	sameTree(t, before, treeOf(t, m.root))
	if !online {
		m.note("Kafka: %v; ours %d %s; verify %d", err, code, stderr, verifyCode)
		m.sum["Kafka does not start: "+what]++
		if !strings.Contains(what, "folder's file") && verifyCode == 0 {
			t.Errorf("DIFF Kafka does not start (%v), verify finds nothing", err)
		}
		return
	}
	m.note("Kafka: %+v; ours %d %s; verify %d %s%s", k.Logs, code, stderr, verifyCode, verified, verdict)
	if len(m.damaged) == 0 {
		require.Zero(t, code, stderr)
		require.Zero(t, verifyCode, "%s%s", verified, verdict)
	}
	if code != 0 {
		m.sum["ours refuses: "+what]++
		if !strings.Contains(what, "folder's file") && !strings.Contains(stderr, "its number is not written as") {
			t.Errorf("DIFF Kafka starts, ours: %s", stderr)
		}
		return
	}
	m.sum[fmt.Sprintf("opened, verify %d: %s", verifyCode, what)]++
	want, got := map[string]ManagedLog{}, map[string]ManagedLog{}
	for _, l := range k.Logs {
		if !strings.HasSuffix(l.Folder, "-stray") && !strings.HasSuffix(l.Folder, "-delete") && !l.Future {
			want[l.Folder] = l
		}
	}
	dec := json.NewDecoder(bytes.NewReader([]byte(out)))
	for dec.More() {
		var o opinion
		require.NoError(t, dec.Decode(&o))
		folder := fmt.Sprintf("%s-%d", o.Topic, o.Partition)
		got[folder] = ManagedLog{Folder: folder, Start: o.LogStartOffset, End: o.LogEndOffset, RecoveryPoint: o.RecoveryPoint, Segments: len(o.Segments)}
	}
	require.Equal(t, want, got, "partitions: Kafka's and ours")
	m.write(theirs, want)
}

// write opens all with ours and stops cleanly; Kafka's manager finds it as it left its own copy.
func (m *managed) write(theirs string, want map[string]ManagedLog) {
	t := m.t
	ours := copyRoot(t, m.root)
	c, err := log.ParseConfig(m.config)
	require.NoError(t, err)
	d, err := log.OpenDir(ours, log.DirConfig{Now: func() time.Time { return time.UnixMilli(m.now) }, Manual: true})
	require.NoError(t, err)
	require.NoError(t, d.OpenAll(context.Background(), log.OpenAllOptions{Config: func(log.TopicPartition) log.Config { return c }}))
	require.NoError(t, d.Close())
	again, err := m.openAt(theirs)
	require.NoError(t, err)
	require.NoError(t, again.Abandon())
	k, err := m.openAt(ours)
	require.NoError(t, err, "Kafka's manager starts on what ours left")
	require.True(t, k.Online)
	require.NoError(t, k.Abandon())
	byFolder := func(a, b ManagedLog) int { return strings.Compare(a.Folder, b.Folder) }
	slices.SortFunc(again.Logs, byFolder)
	slices.SortFunc(k.Logs, byFolder)
	require.Equal(t, again.Logs, k.Logs, "what the manager finds after its own stop and after ours")
	require.Equal(t, again.Deletes, k.Deletes)
	if !strings.Contains(strings.Join(m.damaged, ", "), "folder's file") {
		require.Empty(t, rebuilding(k.Log), "the manager after ours")
	}
	require.Equal(t, namesOf(t, theirs), namesOf(t, ours), "folders of the root")
}

// namesOf are the folders in a root.
func namesOf(t *testing.T, root string) (names []string) {
	entries, err := os.ReadDir(root)
	require.NoError(t, err)
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}
