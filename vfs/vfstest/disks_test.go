package vfstest

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/partlog/partlog/vfs"
)

func TestBoundaryCasesComeWhateverTheNumberOfChoices(t *testing.T) {
	c := NewCrash(CrashOptions{})
	var files []vfs.File
	for _, name := range []string{"a", "b", "c", "d"} {
		f := create(t, c, name)
		write(t, f, 0, "ooooo")
		files = append(files, f)
	}
	c.Mark()
	for _, f := range files {
		write(t, f, 4, "nnnn"+strings.Repeat("n", 600)) // over the length, and over a sector
	}
	for _, name := range []string{"e", "f", "g"} {
		create(t, c, name)
	}
	old, cut, size, kept := "ooooo", "oooon", "oooo"+"o"+strings.Repeat("\x00", 603), "oooo"+strings.Repeat("n", 604)
	tree := func(content [4]string, names string) string {
		m := map[string]string{}
		for i, s := range content {
			m[string(rune('a'+i))] = s
		}
		for _, n := range names {
			m[string(n)] = ""
		}
		return show(m)
	}
	all4 := func(s string) [4]string { return [4]string{s, s, s, s} }
	but := func(s string, i int, one string) [4]string { a := all4(s); a[i] = one; return a }
	want := map[string]string{
		"all kept":          tree(all4(kept), "efg"),
		"all lost":          tree(all4(old), ""),
		"names only":        tree(all4(old), "efg"),
		"content only":      tree(all4(kept), ""),
		"history up to c":   tree([4]string{kept, kept, kept, old}, ""),
		"history up to e":   tree(all4(kept), "e"),
		"torn, others kept": tree(but(kept, 3, "oooo"+strings.Repeat("n", 508)+strings.Repeat("\x00", 96)), "efg"),
		"torn, others lost": tree(but(old, 0, "oooo"+strings.Repeat("n", 508)+strings.Repeat("\x00", 96)), "efg"),
		"torn head":         tree(but(kept, 2, "ooooo"+strings.Repeat("\x00", 507)+strings.Repeat("n", 96)), "efg"),
	}
	for i := range 4 {
		want[fmt.Sprint("one file kept ", i)] = tree(but(old, i, kept), "efg")
		want[fmt.Sprint("one file lost ", i)] = tree(but(kept, i, old), "efg")
		want[fmt.Sprint("one length lost ", i)] = tree(but(kept, i, cut), "efg")
		want[fmt.Sprint("one length kept ", i)] = tree(but(old, i, size), "efg")
		want[fmt.Sprint("one page lost ", i)] = tree(but(kept, i, size), "efg")
		want[fmt.Sprint("one page kept ", i)] = tree(but(old, i, cut), "efg")
	}
	for i, n := range "efg" {
		want[fmt.Sprint("one name kept ", i)] = tree(all4(kept), string(n))
		want[fmt.Sprint("one name lost ", i)] = tree(all4(kept), strings.ReplaceAll("efg", string(n), ""))
	}
	got := all(t, c, DiskOptions{From: c.Len(), Limit: 1, Samples: -1})
	for what, disk := range want {
		if !slices.Contains(got, disk) {
			t.Errorf("%s: no disk %s", what, disk)
		}
	}
	if len(got) > 200 {
		t.Errorf("%d disks", len(got))
	}
}

func TestNotesBeforeTheCrashAreToldAndMakeDisksDistinct(t *testing.T) {
	c := NewCrash(CrashOptions{})
	f := create(t, c, "f")
	c.Mark()
	write(t, f, 0, "a") // never synced
	c.Note("acknowledged")
	empty := map[int]bool{}
	for d := range c.Disks(whole) {
		if len(contents(d.FS())["f"]) == 0 {
			empty[len(d.Notes())] = true
		}
		if len(d.Ops()) != d.At() {
			t.Fatal(d.At(), d.Ops())
		}
	}
	if !empty[0] || !empty[1] {
		t.Fatalf("a lost write must be seen before and after the note, got %v", empty)
	}
}

func TestTheSameDisksComeInEveryRunAndHashesTellContentsApart(t *testing.T) {
	run := func(seed uint64) (hashes []uint64) {
		c := NewCrash(CrashOptions{})
		busy(t, c, 6)
		byHash := map[uint64]string{}
		for d := range c.Disks(DiskOptions{Limit: 20, Samples: 10, Seed: seed}) {
			hashes = append(hashes, d.Hash())
			tree := show(contents(d.FS()))
			if old, ok := byHash[d.Hash()]; ok && old != tree {
				t.Fatalf("one hash for %q and %q", old, tree)
			}
			byHash[d.Hash()] = tree
		}
		return hashes
	}
	a, b := run(1), run(1)
	if !slices.Equal(a, b) {
		t.Fatal("two runs differ")
	}
	if slices.Equal(a, run(2)) {
		t.Fatal("the seed changes nothing")
	}
}

// busy does n rounds of what a log does: append to two files, rename a checkpoint, sync some.
func busy(t testing.TB, c vfs.FS, n int) {
	t.Helper()
	a, b := create(t, c, "a.log"), create(t, c, "b.index")
	for i := range n {
		write(t, a, int64(i)*700, strings.Repeat(string(rune('a'+i%26)), 700))
		write(t, b, int64(i)*8, "12345678")
		tmp := create(t, c, "checkpoint.tmp")
		write(t, tmp, 0, fmt.Sprint(i))
		check(t, tmp.Sync())
		check(t, tmp.Close())
		check(t, c.Rename("checkpoint.tmp", "checkpoint"))
		if i%3 == 2 {
			check(t, a.Sync())
			check(t, c.SyncDir("."))
		}
	}
}

func TestKeptInFullIsWhatAProgramSees(t *testing.T) {
	c := NewCrash(CrashOptions{})
	busy(t, c, 4)
	want := show(contents(c))
	for d := range c.Disks(DiskOptions{From: c.Len(), Limit: 1, Samples: -1}) {
		if got := show(contents(d.FS())); got != want {
			t.Fatalf("the first disk of a point above the limit keeps everything, got\n%s\nwant\n%s", got, want)
		}
		break
	}
}

func TestCrashesInsideRecoveryAreEnumeratedFromADisk(t *testing.T) {
	c := NewCrash(CrashOptions{})
	f := create(t, c, "f")
	c.Mark()
	write(t, f, 0, "ab")
	for d := range c.Disks(whole) {
		before := show(contents(d.FS()))
		again := d.FS()
		g := must(again.OpenFile("f", os.O_RDWR, 0))
		check(t, g.Truncate(0))
		var got []string
		for inner := range again.Disks(whole) {
			got = append(got, show(contents(inner.FS())))
		}
		if !slices.Contains(got, before) || !slices.Contains(got, "f=") {
			t.Fatalf("disk %s, in recovery %q", before, got)
		}
		if show(contents(d.FS())) != before {
			t.Fatal("recovery changed the disk it started from")
		}
	}
}

func TestForgetKeepsWhatIsNotDurableUndecided(t *testing.T) {
	c := NewCrash(CrashOptions{})
	f := create(t, c, "f")
	check(t, c.SyncDir("."))
	write(t, f, 0, "ab")
	c.Forget()
	wantDisks(t, c, DiskOptions{NoTorn: true}, "f=", "f=00", "f=ab")
	c.Mark()
	wantDisks(t, c, DiskOptions{NoTorn: true}, "f=ab")
	check(t, c.Remove("f"))
	check(t, c.SyncDir("."))
	c.Forget()
	b := make([]byte, 2)
	must(f.ReadAt(b, 0)) // the handle keeps it
	check(t, f.Close())
	c.Forget()
	if !bytes.Equal(b, []byte("ab")) {
		t.Fatal(b)
	}
}

func TestPowerLossIsOneOfTheDisksOfThePresent(t *testing.T) {
	c := NewCrash(CrashOptions{})
	f := create(t, c, "f")
	c.Mark()
	write(t, f, 0, "ab")
	seen := map[string]bool{}
	for seed := range uint64(200) {
		seen[show(contents(c.PowerLoss(seed)))] = true
	}
	for _, want := range all(t, c, DiskOptions{NoTorn: true}) {
		if !seen[want] {
			t.Errorf("200 power losses never left %s", want)
		}
	}
}

func TestDescribeNamesWhatWasLostAndTorn(t *testing.T) {
	c := NewCrash(CrashOptions{})
	f := create(t, c, "a.log")
	c.Mark()
	write(t, f, 0, strings.Repeat("n", 2000))
	check(t, c.Rename("a.log", "b.log"))
	var text strings.Builder
	for d := range c.Disks(DiskOptions{From: 2}) {
		text.WriteString(d.Describe())
	}
	for _, want := range []string{
		"power loss after 2 operations", "write a.log [0,2000)", "LOST: 1 rename a.log -> b.log", "kept: 1 rename",
		"b.log: length 2000 of 0 2000", "page 0 (bytes 0-4095): LOST, as on the device", "as behind 0 write a.log [0,2000)",
		"TORN before sector", "the rest garbage", "the head old",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no description says %q", want)
		}
	}
}

func BenchmarkDisks(b *testing.B) {
	for _, rounds := range []int{2, 5, 20} {
		c := NewCrash(CrashOptions{})
		busy(b, c, rounds)
		b.Run(fmt.Sprintf("rounds=%d", rounds), func(b *testing.B) {
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				for d := range c.Disks(DiskOptions{}) {
					d.FS()
					n++
				}
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "disks/s")
			b.ReportMetric(float64(n)/float64(b.N), "disks/op")
		})
	}
}

func TestAThousandUnsyncedAppendsAreSampledInBoundedTimeAndSpace(t *testing.T) {
	c := NewCrash(CrashOptions{})
	f := create(t, c, "log")
	c.Mark()
	const n = 1000
	for i := range n {
		write(t, f, int64(i)*100, strings.Repeat("r", 100))
		c.Note(i)
	}
	disks := 0
	for d := range c.Disks(DiskOptions{From: 2*n - 1, Samples: 20}) {
		if s := contents(d.FS())["log"]; len(s) > n*100 {
			t.Fatal(len(s))
		}
		disks++
	}
	if disks < 100 {
		t.Error(disks)
	}
}

func TestExtremeEvictionsAreHarmless(t *testing.T) {
	c := NewCrash(CrashOptions{})
	f := create(t, NewFault(c, Rule{Ops: []Kind{OpSync}, LosePages: true}), "f")
	write(t, f, 0, "abc")
	_ = f.Sync()
	check(t, f.Evict(1<<62, 1<<61))
	check(t, f.Evict(1<<63-1, 0))
	check(t, f.Evict(1, 1<<62))
	if got := show(contents(c)); got != "f=abc" {
		t.Fatal(got)
	}
	check(t, f.Evict(0, 1<<63-1))
	if got := show(contents(c)); got != "f=000" {
		t.Fatal(got)
	}
}
