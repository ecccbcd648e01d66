package main

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/partlog/partlog/internal/golden"
	"github.com/partlog/partlog/record"
)

// ways to spoil a file.
var ways = []struct {
	name string
	do   func(r *rand.Rand, b []byte) []byte // nil: remove it
}{
	{"a bit flips", func(r *rand.Rand, b []byte) []byte {
		if len(b) > 0 {
			b[r.IntN(len(b))] ^= 1 << r.IntN(8)
		}
		return b
	}},
	{"cut", func(r *rand.Rand, b []byte) []byte { return b[:r.IntN(len(b)+1)] }},
	{"half", func(_ *rand.Rand, b []byte) []byte { return b[:len(b)/2] }},
	{"zeroed", func(_ *rand.Rand, b []byte) []byte { return make([]byte, len(b)) }},
	{"a page is zeroed", func(r *rand.Rand, b []byte) []byte {
		at := r.IntN(len(b) + 1)
		clear(b[at:min(len(b), at+512)])
		return b
	}},
	{"garbage behind", func(r *rand.Rand, b []byte) []byte {
		for range 100 {
			b = append(b, byte(r.Uint32()))
		}
		return b
	}},
	{"gone", nil},
}

// filesBelow are the files of a tree, slash-separated.
func filesBelow(t *testing.T, root string) (names []string) {
	t.Helper()
	for p, what := range treeOf(t, root) {
		if rel, err := filepath.Rel(root, p); err == nil && what != "directory" {
			names = append(names, filepath.ToSlash(rel))
		}
	}
	slices.Sort(names)
	return names
}

// spoil changes one file.
func spoil(t *testing.T, file string, r *rand.Rand, do func(*rand.Rand, []byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err == nil && do == nil {
		err = os.Remove(file)
	} else if err == nil {
		err = os.WriteFile(file, do(r, b), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func seeded(parts ...string) *rand.Rand {
	h := fnv.New64a()
	for _, p := range parts {
		h.Write([]byte(p))
	}
	return rand.New(rand.NewPCG(h.Sum64(), 1))
}

// contentOf is what cat says, line by line.
func contentOf(t *testing.T, root string) []string {
	t.Helper()
	got := call("cat", root)
	if got.code != exitOK {
		t.Fatalf("cat: code %d: %s", got.code, got.err)
	}
	return slices.Collect(strings.Lines(got.out))
}

func TestRepairMendsWhateverVerifyFindsAndInventsNothing(t *testing.T) {
	for _, name := range []string{"txn-commit-abort", "killed", "epochs"} {
		for _, way := range ways {
			t.Run(name+"/"+way.name, func(t *testing.T) {
				t.Parallel()
				for i, file := range filesBelow(t, golden.Copy(t, name)) {
					if !strings.HasSuffix(file, ".log") && i%3 != len(way.name)%3 {
						continue // FuzzRepair is the broad one, in memory
					}
					root, _ := goldenFolder(t, name)
					before := contentOf(t, root)
					spoil(t, filepath.Join(root, file), seeded(name, way.name, file), way.do)
					checkRepair(t, root, file, before, strings.HasSuffix(file, ".log") && way.name == "a bit flips")
				}
			})
		}
	}
}

// checkRepair: a dry run changes nothing, a repair leaves nothing to find, and what is left was there before.
func checkRepair(t *testing.T, root, file string, before []string, oneBatch bool) {
	t.Helper()
	look := call("verify", root)
	if look.code == exitOK {
		return // a change without a meaning
	}
	if look.code != exitFound {
		t.Fatalf("%s: verify: code %d: %s", file, look.code, look.err)
	}
	spoiled := treeOf(t, root)
	dry := call("repair", root)
	if dry.code != exitFound || dry.err != "" {
		t.Fatalf("%s: dry run: code %d\n%s%s", file, dry.code, dry.out, dry.err)
	}
	if !reflect.DeepEqual(spoiled, treeOf(t, root)) {
		t.Fatalf("%s: the dry run changed files", file)
	}
	done := call("repair", root, "--apply")
	if done.code != exitOK || done.err != "" {
		t.Fatalf("%s: repair: code %d\n%s%s", file, done.code, done.out, done.err)
	}
	if again := call("verify", root); again.code != exitOK {
		t.Fatalf("%s: verify after the repair: code %d\n%s%safter\n%s", file, again.code, again.out, again.err, done.out)
	}
	if again := call("repair", root); again.code != exitOK || again.out != "nothing to mend\n" {
		t.Fatalf("%s: a second repair has work: %s", file, again.out)
	}
	after := contentOf(t, root)
	known := map[string]bool{}
	for _, line := range before {
		known[line] = true
	}
	for _, line := range after {
		if !known[line] && file != "log-start-offset-checkpoint" {
			t.Fatalf("%s: a record that was not there before: %s\n%s", file, line, done.out)
		}
	}
	if strings.HasSuffix(file, ".log") {
		if lost := len(before) - len(after); oneBatch && lost > 40 {
			t.Fatalf("%s: one flipped bit cost %d records of %d\n%s", file, lost, len(before), done.out)
		}
	} else if len(after) < len(before) {
		t.Fatalf("%s: a spoiled derived file cost %d records\n%s", file, len(before)-len(after), done.out)
	}
}

func TestRepairKeepsTheBatchesOnBothSidesOfDamageAndPutsTheOldFileAside(t *testing.T) {
	root, dir := goldenFolder(t, "codec-gzip")
	log := filepath.Join(dir, "00000000000000000000.log")
	before := contentOf(t, root)
	original, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	spoiled := slices.Clone(original)
	spoiled[len(spoiled)/2] ^= 1
	if err := os.WriteFile(log, spoiled, 0o644); err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "aside")
	got := call("repair", dir, "--apply", "--quarantine", to)
	if got.code != exitOK || !strings.Contains(got.out, "rewrote codec-gzip-0/00000000000000000000.log from its ") || !strings.Contains(got.out, "lost offsets ") {
		t.Fatalf("code %d\n%s%s", got.code, got.out, got.err)
	}
	kept, err := filepath.Glob(filepath.Join(to, "*", "codec-gzip-0", "00000000000000000000.log"))
	if err != nil || len(kept) != 1 {
		t.Fatalf("quarantine: %v, %v", kept, err)
	}
	if b, err := os.ReadFile(kept[0]); err != nil || !slices.Equal(b, spoiled) {
		t.Error("the damaged file is not in the quarantine as it was")
	}
	after := contentOf(t, root)
	if len(after) >= len(before) || after[0] != before[0] || after[len(after)-1] != before[len(before)-1] {
		t.Errorf("%d records of %d", len(after), len(before))
	}
	if info := call("info", dir, "--json"); info.code != exitOK || !strings.Contains(info.out, `"openedClean":true`) {
		t.Errorf("info: %s%s", info.out, info.err)
	}
}

func TestRepairSetsAsideAStaleSegmentAndMendsOneBatchWithAWrongOffset(t *testing.T) {
	root, dir := goldenFolder(t, "codec-mixed")
	before := contentOf(t, root)
	b, err := os.ReadFile(filepath.Join(dir, "00000000000000000000.log"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "00000000000000000100.log"), b, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := call("repair", root, "--apply"); got.code != exitOK || !strings.Contains(got.out, "moved codec-mixed-0/00000000000000000100.log out") {
		t.Fatalf("code %d\n%s%s", got.code, got.out, got.err)
	}
	if after := contentOf(t, root); !slices.Equal(before, after) {
		t.Errorf("%d records, want %d", len(after), len(before))
	}
	copy(b[3854:], []byte{0, 0, 0, 0, 0x7f, 0, 0, 0}) // the second batch's offset
	if err := os.WriteFile(filepath.Join(dir, "00000000000000000000.log"), b, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := call("repair", root, "--apply"); got.code != exitOK {
		t.Fatalf("code %d\n%s%s", got.code, got.out, got.err)
	}
	if after := contentOf(t, root); !slices.Equal(before, after) {
		t.Errorf("%d records, want %d", len(after), len(before))
	}
	if got := call("verify", root); got.code != exitOK {
		t.Error(got.out)
	}
}

func TestRepairRefusesALockedRootAndAQuarantineInsideIt(t *testing.T) {
	root, dir := goldenFolder(t, "killed-torn-body")
	if got := call("repair", dir, "--apply", "--quarantine", filepath.Join(root, "aside")); got.code != exitFailed {
		t.Errorf("code %d\n%s", got.code, got.err)
	}
	lock := lockRoot(t, root)
	before := treeOf(t, root)
	if got := call("repair", dir, "--apply"); got.code != exitFailed || !strings.Contains(got.err, "is in use by") {
		t.Errorf("code %d\n%s", got.code, got.err)
	}
	if got := call("repair", dir); got.code != exitFound || !strings.Contains(got.out, "would cut 376 bytes off the end of killed-torn-body-0/00000000000000000060.log, from byte 1004 on") ||
		!strings.Contains(got.out, "would lose offsets 70 to 73 of") {
		t.Errorf("code %d\n%s%s", got.code, got.out, got.err)
	}
	if !maps.Equal(before, treeOf(t, root)) {
		t.Error("the folder changed")
	}
	lock.Close()
	if got := call("repair", dir, "--apply"); got.code != exitOK || !strings.Contains(got.out, "cut 376 bytes") {
		t.Errorf("code %d\n%s%s", got.code, got.out, got.err)
	}
	saved, err := filepath.Glob(filepath.Join(root+".quarantine", "*", "*", "*.from-1004"))
	if err != nil || len(saved) != 1 {
		t.Errorf("quarantine: %v %v", saved, err)
	}
}

func TestRepairLeavesForeignFoldersAndSaysSo(t *testing.T) {
	root, _ := goldenFolder(t, "epochs")
	if err := os.Mkdir(filepath.Join(root, "lost+found"), 0o755); err != nil {
		t.Fatal(err)
	}
	got := call("repair", root, "--apply")
	if got.code != exitFound || !strings.Contains(got.out, "left lost+found: foreign: no partition's name: it has no dash; a broker does not start beside it\n") {
		t.Errorf("code %d\n%s%s", got.code, got.out, got.err)
	}
}

func TestRepairCompletesARewriteThatWasCommitted(t *testing.T) {
	for _, suffix := range []string{".cleaned", ".swap"} {
		root, dir := goldenFolder(t, "codec-gzip")
		before := contentOf(t, root)
		log := filepath.Join(dir, "00000000000000000000.log")
		b, err := os.ReadFile(log)
		if err == nil {
			err = os.WriteFile(log+suffix, b, 0o644)
		}
		if err == nil && suffix == ".swap" { // the old one is bad, the new one good
			b = slices.Clone(b)
			b[len(b)/2] ^= 1
			err = os.WriteFile(log, b, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := call("repair", root, "--apply"); got.code != exitOK {
			t.Fatalf("%s: code %d\n%s%s", suffix, got.code, got.out, got.err)
		}
		if after := contentOf(t, root); !slices.Equal(before, after) {
			t.Errorf("%s: %d records, want %d", suffix, len(after), len(before))
		}
		if got := call("verify", root); got.code != exitOK {
			t.Error(got.out)
		}
	}
}

func TestRepairGivesEveryPartitionOfARootItsOwn(t *testing.T) {
	root, dir := goldenFolder(t, "codec-gzip")
	for i := range 3 {
		if err := os.CopyFS(filepath.Join(root, fmt.Sprintf("more-%d", i)), os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
	}
	untouched := treeOf(t, filepath.Join(root, "more-0"))
	for _, folder := range []string{"more-1", "more-2"} {
		spoil(t, filepath.Join(root, folder, "00000000000000000000.index"), seeded(folder), nil)
	}
	if got := call("repair", root, "--apply"); got.code != exitOK {
		t.Fatalf("code %d\n%s%s", got.code, got.out, got.err)
	}
	if !maps.Equal(untouched, treeOf(t, filepath.Join(root, "more-0"))) {
		t.Error("a sound partition was touched")
	}
}

func TestRepairTakesOutABatchWhoseRecordsCannotBeReadThoughItsChecksumIsRight(t *testing.T) {
	root, dir := goldenFolder(t, "idempotent")
	before := contentOf(t, root)
	file := filepath.Join(dir, "00000000000000000000.log")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	first, rest, err := record.Next(b)
	if err != nil {
		t.Fatal(err)
	}
	batch, _, err := record.Next(rest)
	if err != nil {
		t.Fatal(err)
	}
	raw := batch.Bytes()
	raw[record.HeaderSize] = 0x7e // the first record's length
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], castagnoli))
	if err := os.WriteFile(file, b, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := call("verify", root); got.code != exitFound || !strings.Contains(got.out, fmt.Sprintf("byte %d", first.Size())) {
		t.Fatalf("verify: code %d\n%s", got.code, got.out)
	}
	if got := call("repair", root, "--apply"); got.code != exitOK {
		t.Fatalf("code %d\n%s%s", got.code, got.out, got.err)
	}
	if after := contentOf(t, root); len(after) != len(before)-int(batch.NextOffset()-batch.BaseOffset()) {
		t.Errorf("%d records of %d", len(after), len(before))
	}
}
