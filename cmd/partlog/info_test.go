package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/partlog/partlog/internal/golden"
	"github.com/partlog/partlog/vfs"
)

// goldenConfig are the flags that give a case's topic settings.
func goldenConfig(t *testing.T, name string) (args []string) {
	t.Helper()
	about := golden.About(t, name)
	for k, v := range about.TopicConfig {
		args = append(args, "--config", k+"="+v)
	}
	return append(args, "--now", fmt.Sprint(about.OpenedAtMs))
}

func TestInfoSaysWhatKafkaSaysOfTheSameFolderAndChangesNoByte(t *testing.T) {
	for _, name := range golden.Cases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root, dir := goldenFolder(t, name)
			before := treeOf(t, root)
			for _, arg := range []string{dir, root} {
				got := call(append([]string{"info", "--json", arg}, goldenConfig(t, name)...)...)
				if got.code != exitOK || got.err != "" {
					t.Fatalf("code %d: %s", got.code, got.err)
				}
				if strings.Count(got.out, "\n") != 1 {
					t.Fatalf("not one object a line:\n%s", got.out)
				}
				compareInfo(t, name, got.out)
			}
			if after := treeOf(t, root); !reflect.DeepEqual(before, after) {
				t.Errorf("the folder changed:\n%v\n%v", before, after)
			}
		})
	}
}

func compareInfo(t *testing.T, name, line string) {
	t.Helper()
	var got struct {
		golden.Opened
		Topic     string `json:"topic"`
		Partition int32  `json:"partition"`
	}
	if err := json.Unmarshal([]byte(line), &got); err != nil {
		t.Fatal(err)
	}
	about := golden.About(t, name)
	want := about.AsOpened
	if got.Topic != about.Topic || got.Partition != about.Partition {
		t.Errorf("%s-%d", got.Topic, got.Partition)
	}
	// The age of a segment without timestamps, which a copy does not keep; how many batches are remembered depends on where
	// a recovery begins; and the order is a hash table's.
	byID := func(a, b golden.ProducerFacts) int { return cmp.Compare(a.ProducerID, b.ProducerID) }
	want.Producers = slices.SortedFunc(slices.Values(want.Producers), byID)
	if !want.OpenedClean {
		for i := range want.Producers {
			want.Producers[i].CachedBatches = 0
		}
		for i := range got.Producers {
			got.Producers[i].CachedBatches = 0
		}
	}
	if len(want.Producers) == 0 && len(got.Producers) == 0 {
		want.Producers = got.Producers
	}
	for i := range want.Segments {
		s := &want.Segments[i]
		if name == "empty" || name == "no-timestamps" && i == 1 {
			s.LargestTimestamp, got.Segments[i].LargestTimestamp = 0, 0
		}
		if got := got.Segments[i].IndexEntries; i+1 == len(want.Segments) && !want.OpenedClean && s.IndexEntries == 1200/8 && got > 0 {
			s.IndexEntries = got // pre-sized slots counted
		}
	}
	if !reflect.DeepEqual(got.Opened, want) {
		t.Errorf("\n got %+v\nwant %+v", got.Opened, want)
	}
}

func TestInfoWorksOnReadOnlyFilesBesideAHeldLockAndLeavesOtherPartitionsAlone(t *testing.T) {
	root, dir := goldenFolder(t, "killed-torn-body")
	other := filepath.Join(root, "other-0")
	if err := os.Mkdir(other, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(other, "00000000000000000000.log"), []byte("garbage, but none of our business"), 0o644); err != nil {
		t.Fatal(err)
	}
	fsys, err := vfs.OS(root)
	if err != nil {
		t.Fatal(err)
	}
	lock, err := fsys.Lock(".lock")
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if err := os.Chmod(f, 0o444); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(dir, 0o755)
	before := treeOf(t, root)
	got := call("info", dir)
	if got.code != exitOK || !strings.Contains(got.out, "0 to 69 (the next is 70)") || !strings.Contains(got.out, "an open would cut 376 bytes") {
		t.Errorf("code %d\n%s%s", got.code, got.out, got.err)
	}
	if !reflect.DeepEqual(before, treeOf(t, root)) {
		t.Error("the folder changed")
	}
}

func TestInfoOfADamagedPartitionExitsWithOneAndShowsTheOthers(t *testing.T) {
	root, dir := goldenFolder(t, "codec-gzip")
	if err := os.CopyFS(filepath.Join(root, "sound-0"), os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(root, ".kafka_cleanshutdown")); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(dir, "00000000000000000223.log")
	b, err := os.ReadFile(log)
	if err == nil {
		b[100] ^= 1
		err = os.WriteFile(log, b, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	got := call("info", root, "--json")
	if got.code != exitFound || !strings.Contains(got.out, `"topic":"sound"`) || strings.Contains(got.out, `"topic":"codec-gzip"`) || !strings.Contains(got.err, "damaged at byte 0") {
		t.Errorf("code %d\n%s%s", got.code, got.out, got.err)
	}
	if got := call("info", dir); got.code != exitFound {
		t.Errorf("code %d: %s", got.code, got.err)
	}
}

func TestInfoOfWhatIsNoLogExitsWithTwo(t *testing.T) {
	for _, arg := range []string{t.TempDir(), filepath.Join(t.TempDir(), "absent-0")} {
		if got := call("info", arg); got.code != exitFailed || got.err == "" {
			t.Errorf("%s: code %d\n%s", arg, got.code, got.err)
		}
	}
}
