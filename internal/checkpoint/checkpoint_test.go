package checkpoint

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/partlog/partlog/internal/epoch"
	"github.com/partlog/partlog/internal/golden"
	"github.com/partlog/partlog/vfs"
)

func openOS(t *testing.T, root string) vfs.FS {
	t.Helper()
	fsys, err := vfs.OS(root)
	require.NoError(t, err)
	return fsys
}

func put(t *testing.T, fsys vfs.FS, name, content string) {
	t.Helper()
	require.NoError(t, WriteFile(fsys, name, []byte(content)))
}

// Scenario: H001 offset checkpoint: write, overwrite, reload; many lines.
func TestOffsetsAreReadBackAsWritten(t *testing.T) {
	fsys := vfs.Mem()
	first := map[Partition]int64{{"a", 0}: 7, {"a", 10}: 1 << 40, {"b.c-d_e", 2}: 0}
	require.NoError(t, WriteOffsets(fsys, RecoveryPoints, first))
	got, err := ReadOffsets(fsys, RecoveryPoints)
	require.NoError(t, err)
	require.Equal(t, first, got)

	second := map[Partition]int64{}
	for i := range int32(2000) {
		second[Partition{"many", i}] = int64(i) * 3
	}
	require.NoError(t, WriteOffsets(fsys, RecoveryPoints, second))
	got, err = ReadOffsets(fsys, RecoveryPoints)
	require.NoError(t, err)
	require.Equal(t, second, got)
}

// Scenario: H001 empty file → empty map; wrong version → error.
func TestEveryDeviationFromTheOffsetFormatIsNamed(t *testing.T) {
	some := map[Partition]int64{{"t", 1}: 5}
	none := map[Partition]int64{}
	for name, row := range map[string]struct {
		text string
		want map[Partition]int64
		line int
	}{
		"empty file":              {"", none, 0},
		"version only":            {"0\n", none, 0},
		"version without newline": {"0", none, 0},
		"no entries":              {"0\n0\n", none, 0},
		"one entry":               {"0\n1\nt 1 5\n", some, 0},
		"last line without end":   {"0\n1\nt 1 5", some, 0},
		"runs of white space":     {"0\n1\nt \t 1   5  \n", some, 0},
		"carriage returns":        {"0\r\n1\r\nt 1 5\r\n", some, 0},
		"later line wins":         {"0\n2\nt 1 4\nt 1 5\n", some, 0},
		"version 1":               {"1\n0\n", nil, 1},
		"version not a number":    {"zero\n0\n", nil, 1},
		"blank version":           {"\n0\n", nil, 1},
		"zero bytes":              {"\x00\x00\x00\x00", nil, 1},
		"count not a number":      {"0\nx\n", nil, 2},
		"count too large":         {"0\n99999999999\n", nil, 2},
		"fewer than announced":    {"0\n2\nt 1 5\n", nil, 2},
		"more than announced":     {"0\n1\nt 1 5\nt 2 5\n", nil, 2},
		"negative count":          {"0\n-1\n", nil, 2},
		"huge count":              {"0\n2147483647\nt 1 5\n", nil, 2},
		"blank line":              {"0\n1\n\nt 1 5\n", nil, 3},
		"blank line at the end":   {"0\n1\nt 1 5\n\n", nil, 4},
		"two fields":              {"0\n1\nt 1\n", nil, 3},
		"four fields":             {"0\n1\nt 1 5 6\n", nil, 3},
		"leading blank":           {"0\n1\n t 1 5\n", nil, 3},
		"partition not a number":  {"0\n1\nt x 5\n", nil, 3},
		"partition above 32 bits": {"0\n1\nt 2147483648 5\n", nil, 3},
		"offset not a number":     {"0\n1\nt 1 5x\n", nil, 3},
		"offset above 64 bits":    {"0\n1\nt 1 9223372036854775808\n", nil, 3},
		"blank topic":             {"0\n1\n 1 5\n", nil, 3},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseOffsets("root/f", []byte(row.text))
			if row.want != nil {
				require.NoError(t, err)
				require.Equal(t, row.want, got)
				return
			}
			var format *FormatError
			require.ErrorAs(t, err, &format)
			require.ErrorIs(t, err, ErrFormat)
			require.Equal(t, "root/f", format.File)
			require.Equal(t, row.line, format.Line)
			require.Contains(t, err.Error(), "root/f line")
		})
	}
}

func TestAMissingCheckpointHasNoEntries(t *testing.T) {
	fsys := vfs.Mem()
	offsets, err := ReadOffsets(fsys, LogStarts)
	require.NoError(t, err)
	require.NotNil(t, offsets)
	require.Empty(t, offsets)
	epochs, err := ReadEpochs(fsys, "t-0/"+LeaderEpochs)
	require.NoError(t, err)
	require.Empty(t, epochs)
}

func TestAnOverlongFileIsRefusedUnread(t *testing.T) {
	fsys := vfs.Mem()
	put(t, fsys, HighWatermarks, "0\n0\n")
	f, err := fsys.OpenFile(HighWatermarks, os.O_RDWR, 0)
	require.NoError(t, err)
	require.NoError(t, f.Truncate(maxOffsetsBytes+1))
	require.NoError(t, f.Close())
	_, err = ReadOffsets(fsys, HighWatermarks)
	require.ErrorIs(t, err, ErrFormat)
}

func TestATopicThatTheFormatCannotCarryIsRefused(t *testing.T) {
	for _, topic := range []string{"", "a b", "a\nb", "a\t"} {
		err := WriteOffsets(vfs.Mem(), LogStarts, map[Partition]int64{{topic, 0}: 1})
		require.ErrorIs(t, err, ErrTopic)
	}
}

func TestOffsetsWithoutEntriesAreFourBytes(t *testing.T) {
	b, err := AppendOffsets(nil, nil)
	require.NoError(t, err)
	require.Equal(t, "0\n0\n", string(b))
}

func TestOffsetsSurviveTheText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.MapOf(rapid.Custom(func(t *rapid.T) Partition {
			return Partition{rapid.StringMatching(`[a-zA-Z0-9._-]{1,20}`).Draw(t, "topic"), rapid.Int32().Draw(t, "partition")}
		}), rapid.Int64()).Draw(t, "offsets")
		b, err := AppendOffsets(nil, want)
		require.NoError(t, err)
		got, err := ParseOffsets("f", b)
		require.NoError(t, err)
		require.Equal(t, want, got)
	})
}

// Scenario: H003 epoch checkpoint: write, overwrite, reopen keeps values.
func TestEpochsAreReadBackAsWritten(t *testing.T) {
	fsys := openOS(t, t.TempDir())
	require.NoError(t, fsys.MkdirAll("t-0", 0o755))
	name := "t-0/" + LeaderEpochs
	for _, want := range [][]epoch.Entry{{{Epoch: 0, StartOffset: 1}}, {{Epoch: 0, StartOffset: 2}, {Epoch: 3, StartOffset: 4}}} {
		require.NoError(t, WriteEpochs(fsys, name, want))
		got, err := ReadEpochs(fsys, name)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

func TestEveryDeviationFromTheEpochFormatIsNamed(t *testing.T) {
	for text, line := range map[string]int{
		"2\n0\n":                 1,
		"0\n1\n":                 2,
		"0\n1\n0 1 2\n":          3,
		"0\n1\n-1 5\n":           3,
		"0\n1\n1 -5\n":           3,
		"0\n1\n2147483648 5":     3,
		"0\n2\n1 5\n2 x\n":       4,
		"0\n1\n\n":               3,
		strings.Repeat("9", 200): 1,
	} {
		_, err := ParseEpochs("e", []byte(text))
		var format *FormatError
		require.ErrorAs(t, err, &format, "%q", text)
		require.Equal(t, line, format.Line, "%q", text)
	}
}

// Every small file of every golden folder is understood, and what is written from it is byte for byte what Kafka wrote.
func TestFilesOfARealBrokerAreWrittenByteForByte(t *testing.T) {
	for _, name := range golden.Cases() {
		t.Run(name, func(t *testing.T) {
			root, about := golden.Copy(t, name), golden.About(t, name)
			fsys := openOS(t, root)
			same := func(file string, ours []byte) {
				t.Helper()
				theirs, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
				require.NoError(t, err)
				if len(theirs) > 0 { // a zero-length file was never written
					require.Equal(t, string(theirs), string(ours), file)
				}
			}
			tp := Partition{about.Topic, about.Partition}
			for _, file := range []string{RecoveryPoints, LogStarts, HighWatermarks, CleanerOffsets} {
				offsets, err := ReadOffsets(fsys, file)
				require.NoError(t, err)
				b, err := AppendOffsets(nil, offsets)
				require.NoError(t, err)
				same(file, b)
				if file == HighWatermarks {
					require.Equal(t, about.AsOpened.CheckpointedHighWatermark, offsets[tp])
				}
			}
			folder := about.Topic + "-0/"
			epochs, err := ReadEpochs(fsys, folder+LeaderEpochs)
			require.NoError(t, err)
			same(folder+LeaderEpochs, AppendEpochs(nil, epochs))

			id, found, err := ReadTopicID(fsys, folder+Metadata)
			require.NoError(t, err)
			require.Equal(t, about.AsOpened.TopicID != "", found)
			if found {
				require.Equal(t, about.AsOpened.TopicID, id.String())
				before, err := os.ReadFile(filepath.Join(root, folder+Metadata))
				require.NoError(t, err)
				require.NoError(t, WriteTopicID(fsys, folder+Metadata, id))
				same(folder+Metadata, before)
			}

			brokerEpoch, clean, err := ReadCleanMarker(fsys)
			require.NoError(t, err)
			require.Equal(t, about.StoppedClean, clean)
			if clean {
				before, err := os.ReadFile(filepath.Join(root, CleanMarker))
				require.NoError(t, err)
				require.NoError(t, WriteCleanMarker(fsys, brokerEpoch))
				same(CleanMarker, before)
			}

			identity, found, err := ReadIdentity(fsys)
			require.NoError(t, err)
			if found {
				b, err := os.ReadFile(filepath.Join(root, MetaProperties))
				require.NoError(t, err)
				stamp, err := time.Parse("#Mon Jan 02 15:04:05 MST 2006", strings.Split(string(b), "\n")[1])
				require.NoError(t, err)
				ours, err := AppendIdentity(nil, identity, stamp)
				require.NoError(t, err)
				same(MetaProperties, ours)
			}
		})
	}
}

// Scenario: H005 clean marker: broker epoch read back; missing file → none; unknown JSON fields tolerated.
func TestOnlyTheExistenceOfTheMarkerDecides(t *testing.T) {
	fsys := vfs.Mem()
	brokerEpoch, clean, err := ReadCleanMarker(fsys)
	require.NoError(t, err)
	require.False(t, clean)
	require.Equal(t, int64(-1), brokerEpoch)
	require.NoError(t, RemoveCleanMarker(fsys), "nothing to remove")

	for text, want := range map[string]int64{
		`{"version":0,"brokerEpoch":307}`:            307,
		`{"version":0,"brokerEpoch":8,"more":[1,2]}`: 8,
		``:                         -1,
		`garbage`:                  -1,
		`{"version":0}`:            -1,
		`{"brokerEpoch":"seven"}`:  -1,
		strings.Repeat("x", 1<<17): -1,
		`{"version":0,"brokerEpoch":9223372036854775808}`: -1,
	} {
		put(t, fsys, CleanMarker, text)
		brokerEpoch, clean, err := ReadCleanMarker(fsys)
		require.NoError(t, err)
		require.True(t, clean)
		require.Equal(t, want, brokerEpoch)
	}
	require.NoError(t, WriteCleanMarker(fsys, 307))
	b, err := vfs.ReadFile(fsys, CleanMarker, 1000)
	require.NoError(t, err)
	require.Equal(t, `{"version":0,"brokerEpoch":307}`, string(b))
	require.NoError(t, RemoveCleanMarker(fsys))
	_, clean, err = ReadCleanMarker(fsys)
	require.NoError(t, err)
	require.False(t, clean)
}

func TestTopicIDsAreReadAsLenientlyAsKafkaReadsThem(t *testing.T) {
	want := ID{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
	const good = "version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
	for _, text := range []string{good, good + "\n", "version: 7\ntopic_id: AAECAwQFBgcICQoLDA0ODw", good + "\nmore: 1",
		"version:   0\r\ntopic_id:\tAAECAwQFBgcICQoLDA0ODw\r\n", good + "=="} {
		got, err := ParseTopicID("m", []byte(text))
		require.NoError(t, err, "%q", text)
		require.Equal(t, want, got)
	}
	for text, line := range map[string]int{
		"":           1,
		"version: 0": 1,
		"version: -1\ntopic_id: AAECAwQFBgcICQoLDA0ODw":  1,
		"version: x\ntopic_id: AAECAwQFBgcICQoLDA0ODw":   1,
		"version:0\ntopic_id: AAECAwQFBgcICQoLDA0ODw":    1,
		"topic_id: AAECAwQFBgcICQoLDA0ODw\nversion: 0":   1,
		"version: 0\ntopic_id: ":                         2,
		"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0OD":    2,
		"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA":   2,
		"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw+/": 2,
		"version: 0\n" + strings.Repeat("z", 1000):       2,
	} {
		_, err := ParseTopicID("m", []byte(text))
		var format *FormatError
		require.ErrorAs(t, err, &format, "%q", text)
		if text != "version: 0" {
			require.Equal(t, line, format.Line, "%q", text)
		}
	}
	require.Error(t, WriteTopicID(vfs.Mem(), Metadata, ID{}))
	_, found, err := ReadTopicID(vfs.Mem(), Metadata)
	require.NoError(t, err)
	require.False(t, found)
}

func TestIdentityIsReadFromAnyPropertiesText(t *testing.T) {
	dir, err := ParseID("M-gB1pIloMXHBFCz9bEiWA")
	require.NoError(t, err)
	v1 := Identity{Version: 1, ClusterID: "c", NodeID: 4, DirectoryID: dir}
	for text, want := range map[string]Identity{
		"version=1\ncluster.id=c\nnode.id=4\ndirectory.id=M-gB1pIloMXHBFCz9bEiWA\n":                       v1,
		"! c\n  version : 1\ncluster.id c\nnode.id\t=\t4\nunknown=1\ndirectory.id:M-gB1pIloMXHBFCz9bEiWA": v1,
		"version=1\nclus\\\n   ter.id=\\u0063\nnode\\.id=4\ndirectory.id=M-gB1pIloMXHBFCz9bEiWA\r\n":      v1,
		"broker.id=9\n":             {Version: 0, NodeID: 9},
		"":                          {Version: 0, NodeID: -1},
		"version=0\ncluster.id=x\\": {Version: 0, NodeID: -1, ClusterID: "x"},
	} {
		got, err := ParseIdentity("p", []byte(text))
		require.NoError(t, err, "%q", text)
		require.Equal(t, want, got, "%q", text)
	}
	for _, text := range []string{"version=2", "version=1\nnode.id=1", "version=1\ncluster.id=a", "broker.id=x",
		"version=1\ncluster.id=a\nnode.id=99999999999", "directory.id=short", "directory.id=AAAAAAAAAAAAAAAAAAAAAA"} {
		_, err := ParseIdentity("p", []byte(text))
		require.ErrorIs(t, err, ErrFormat, "%q", text)
	}
	for _, id := range []Identity{{Version: 2}, {Version: 1, NodeID: 1}, {Version: 1, ClusterID: "a b", NodeID: 1}, {Version: 1, ClusterID: "a", NodeID: -1}} {
		require.ErrorIs(t, WriteIdentity(vfs.Mem(), id, time.Now()), ErrFormat)
	}
	fsys := vfs.Mem()
	require.NoError(t, WriteIdentity(fsys, v1, time.Now()))
	got, found, err := ReadIdentity(fsys)
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, v1, got)
	_, found, err = ReadIdentity(vfs.Mem())
	require.NoError(t, err)
	require.False(t, found)
}

// steps fails one call of a file system and records the order of all.
type steps struct {
	vfs.FS
	fail string
	log  []string
}

var errStep = errors.New("step")

func (s *steps) step(what string) error {
	s.log = append(s.log, what)
	if what == s.fail {
		return errStep
	}
	return nil
}

func (s *steps) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	if flag&os.O_CREATE != 0 {
		if err := s.step("create " + name); err != nil {
			return nil, err
		}
	}
	f, err := s.FS.OpenFile(name, flag, perm)
	return &stepFile{f, s, name}, err
}

func (s *steps) Rename(old, to string) error {
	if err := s.step("rename " + old); err != nil {
		return err
	}
	return s.FS.Rename(old, to)
}

func (s *steps) SyncDir(name string) error {
	if err := s.step("syncdir " + name); err != nil {
		return err
	}
	return s.FS.SyncDir(name)
}

type stepFile struct {
	vfs.File
	s    *steps
	name string
}

func (f *stepFile) WriteAt(b []byte, off int64) (int, error) {
	if err := f.s.step("write " + f.name); err != nil {
		n, _ := f.File.WriteAt(b[:len(b)/2], off)
		return n, err
	}
	return f.File.WriteAt(b, off)
}

func (f *stepFile) Sync() error {
	if err := f.s.step("sync " + f.name); err != nil {
		return err
	}
	return f.File.Sync()
}

// Bug report B112: writing the epoch file in the background risked a damaged file.
func TestAReplacementIsWholeWhateverStepFails(t *testing.T) {
	want := []string{"create t-0/f.tmp", "write t-0/f.tmp", "sync t-0/f.tmp", "rename t-0/f.tmp", "syncdir t-0"}
	for i, fail := range append(want, "") {
		mem := vfs.Mem()
		require.NoError(t, mem.MkdirAll("t-0", 0o755))
		require.NoError(t, WriteFile(mem, "t-0/f", []byte("old")))
		s := &steps{FS: mem, fail: fail}
		err := WriteFile(s, "t-0/f", []byte("newer"))
		b, readErr := vfs.ReadFile(mem, "t-0/f", 100)
		require.NoError(t, readErr)
		switch fail {
		case "":
			require.NoError(t, err)
			require.Equal(t, want, s.log)
			require.Equal(t, "newer", string(b))
		case "syncdir t-0":
			require.ErrorIs(t, err, errStep)
			require.Equal(t, "newer", string(b))
		default:
			require.ErrorIs(t, err, errStep)
			require.Equal(t, want[:i+1], s.log)
			require.Equal(t, "old", string(b))
		}
		_, err = mem.Stat("t-0/f.tmp")
		require.ErrorIs(t, err, fs.ErrNotExist, "a leftover after %q", fail)
	}
}

func TestTopicIDIsReadWhateverStandsBeforeTheColons(t *testing.T) {
	const text = "XreDC5vKRYqh8Nifn3SBJQ"
	want, err := ParseID(text)
	require.NoError(t, err)
	for content, odd := range map[string]bool{
		"version: 0\ntopic_id: " + text:         false,
		"version: 7\ntopic_id:  " + text + "\n": false,
		"versi/n: 0\ntopic_id: " + text:         true,
		"version: 0\ntopic_i\xe4: " + text:      true,
		"ver:sion: 0\n: " + text + "\nand more": true,
	} {
		id, err := ParseTopicID("m", []byte(content))
		require.NoError(t, err, "%q", content)
		require.Equal(t, want, id)
		fsys := vfs.Mem()
		require.NoError(t, WriteFile(fsys, "m", []byte(content)))
		require.Equal(t, odd, CheckTopicID(fsys, "m") != nil, "%q", content)
	}
	for _, content := range []string{"version:0\ntopic_id: " + text, "version: 0: 1\ntopic_id: " + text, "version: 0\ntopic_id:" + text, "version: 0\n" + text} {
		_, err := ParseTopicID("m", []byte(content))
		require.Error(t, err, "%q", content)
	}
}
