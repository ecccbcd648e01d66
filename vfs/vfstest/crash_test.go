package vfstest

import (
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/partlog/partlog/vfs"
)

// The tests below speak about a tree as a map of names to contents; directories end with a slash.

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func create(t testing.TB, fsys vfs.FS, name string) vfs.File {
	t.Helper()
	f, err := fsys.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	check(t, err)
	return f
}

func write(t testing.TB, f vfs.File, off int64, s string) {
	t.Helper()
	n, err := f.WriteAt([]byte(s), off)
	if err != nil || n != len(s) {
		t.Fatalf("wrote %d of %d: %v", n, len(s), err)
	}
}

func contents(fsys vfs.FS) map[string]string {
	all := map[string]string{}
	var walk func(dir string)
	walk = func(dir string) {
		for _, e := range must(fsys.ReadDir(dir)) {
			name := path.Join(dir, e.Name())
			if e.IsDir() {
				all[name+"/"] = ""
				walk(name)
				continue
			}
			all[name] = string(must(vfs.ReadFile(fsys, name, 1<<30)))
		}
	}
	walk(".")
	return all
}

// show is a tree in one line; long runs of one byte are counted.
func show(tree map[string]string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(tree)) {
		part := name
		if !strings.HasSuffix(name, "/") {
			part += "=" + runs(tree[name])
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, " ")
}

func runs(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		j := i
		for j < len(s) && s[j] == s[i] {
			j++
		}
		c := s[i : i+1]
		if s[i] == 0 {
			c = "0"
		}
		if j-i > 3 {
			fmt.Fprintf(&b, "%s*%d", c, j-i)
		} else {
			b.WriteString(strings.Repeat(c, j-i))
		}
		i = j
	}
	return b.String()
}

// all is every disk left at the end of the record (at >= 0: at that point), as lines.
func all(t testing.TB, c *Crash, opt DiskOptions) []string {
	t.Helper()
	if opt.From == 0 {
		opt.From = c.Len()
	}
	seen := map[string]*Disk{}
	for d := range c.Disks(opt) {
		line := show(contents(d.FS()))
		if o := seen[line]; o != nil && !opt.Kill {
			t.Errorf("the disk %q came twice:\n%s%s", line, o.Describe(), d.Describe())
		}
		seen[line] = d
	}
	return slices.Sorted(maps.Keys(seen))
}

func wantDisks(t testing.TB, c *Crash, opt DiskOptions, want ...string) {
	t.Helper()
	slices.Sort(want)
	if got := all(t, c, opt); !slices.Equal(got, want) {
		t.Errorf("disks:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

var whole = DiskOptions{NoTorn: true}

func TestAnUnsyncedWriteMayBeLostWithOrWithoutItsLength(t *testing.T) {
	c := NewCrash(CrashOptions{})
	f := create(t, c, "f")
	c.Mark()
	write(t, f, 0, "ab")
	wantDisks(t, c, whole, "f=", "f=00", "f=ab")
	check(t, f.Sync())
	wantDisks(t, c, whole, "f=ab")
}

func TestSyncDataMakesTheLengthDurableToo(t *testing.T) {
	c := NewCrash(CrashOptions{})
	f := create(t, c, "f")
	c.Mark()
	write(t, f, 0, "ab")
	check(t, f.SyncData())
	wantDisks(t, c, whole, "f=ab")
}

func TestEachVersionOfAPageMayBeWhatReachedTheDevice(t *testing.T) {
	c := NewCrash(CrashOptions{})
	f := create(t, c, "f")
	write(t, f, 0, "....")
	c.Mark()
	write(t, f, 0, "a")
	write(t, f, 1, "b")
	write(t, f, 0, "c")
	wantDisks(t, c, whole, "f=.*4", "f=a...", "f=ab..", "f=cb..")
}

func TestPagesOfOneWriteAreKeptIndependently(t *testing.T) {
	c := NewCrash(CrashOptions{})
	f := create(t, c, "f")
	write(t, f, 0, strings.Repeat("o", 3*PageSize))
	c.Mark()
	write(t, f, 0, strings.Repeat("n", 3*PageSize))
	var want []string
	for bits := range 8 {
		s := ""
		for i := range 3 {
			s += strings.Repeat(string("on"[bits>>i&1]), PageSize)
		}
		want = append(want, "f="+runs(s))
	}
	wantDisks(t, c, whole, want...)
}

func TestALongAppendMayLeaveALengthBetween(t *testing.T) {
	c := NewCrash(CrashOptions{})
	f := create(t, c, "f")
	c.Mark()
	write(t, f, 0, strings.Repeat("n", 2*PageSize+1))
	got := all(t, c, whole)
	for _, want := range []string{"f=", "f=n*4096", "f=n*8192", "f=n*8193", "f=0*8193", "f=0*4096n*4096", "f=n*40960*4096"} {
		if !slices.Contains(got, want) {
			t.Errorf("no disk %s in %q", want, got)
		}
	}
}

func TestASyncedFileIsUnbornUntilItsDirectoryIsSynced(t *testing.T) {
	c := NewCrash(CrashOptions{})
	check(t, c.MkdirAll("d", 0o755))
	c.Mark()
	f := create(t, c, "d/f")
	write(t, f, 0, "ab")
	check(t, f.Sync())
	wantDisks(t, c, DiskOptions{}, "d/", "d/ d/f=ab")
	check(t, c.SyncDir("."))
	wantDisks(t, c, DiskOptions{}, "d/", "d/ d/f=ab")
	check(t, c.SyncDir("d"))
	wantDisks(t, c, DiskOptions{}, "d/ d/f=ab")
}

func TestADirectoryIsUnbornUntilItsParentIsSyncedWhateverItHolds(t *testing.T) {
	c := NewCrash(CrashOptions{})
	check(t, c.MkdirAll("p/q", 0o755))
	f := create(t, c, "p/q/f")
	write(t, f, 0, "ab")
	check(t, f.Sync())
	check(t, c.SyncDir("p/q"))
	check(t, c.SyncDir("p"))
	wantDisks(t, c, DiskOptions{}, "", "p/ p/q/ p/q/f=ab")
	check(t, c.SyncDir("."))
	wantDisks(t, c, DiskOptions{}, "p/ p/q/ p/q/f=ab")
}

func TestARenameIsWholeAndNotDurableUntilSyncDir(t *testing.T) {
	c := NewCrash(CrashOptions{})
	write(t, create(t, c, "a"), 0, "new")
	write(t, create(t, c, "b"), 0, "old")
	c.Mark()
	check(t, c.Rename("a", "b"))
	wantDisks(t, c, DiskOptions{}, "a=new b=old", "b=new")
	check(t, c.SyncDir("."))
	wantDisks(t, c, DiskOptions{}, "b=new")
}

func TestAMoveBetweenDirectoriesIsDurableWhenBothAreSynced(t *testing.T) {
	for _, order := range [][]string{{"d", "."}, {".", "d"}} {
		c := NewCrash(CrashOptions{})
		check(t, c.MkdirAll("d", 0o755))
		write(t, create(t, c, "a"), 0, "x")
		c.Mark()
		check(t, c.Rename("a", "d/a"))
		check(t, c.SyncDir(order[0]))
		wantDisks(t, c, DiskOptions{}, "a=x d/", "d/ d/a=x")
		check(t, c.SyncDir(order[1]))
		wantDisks(t, c, DiskOptions{}, "d/ d/a=x")
	}
}

func TestAMoveIntoANewDirectoryNeverLosesTheFile(t *testing.T) {
	c := NewCrash(CrashOptions{})
	write(t, create(t, c, "a"), 0, "x")
	c.Mark()
	check(t, c.MkdirAll("d/e", 0o755))
	check(t, c.Rename("a", "d/e/a"))
	wantDisks(t, c, DiskOptions{}, "a=x", "a=x d/", "a=x d/ d/e/", "d/ d/e/ d/e/a=x")
}

func TestDirectoryOperationsOnDifferentNamesAreIndependent(t *testing.T) {
	c := NewCrash(CrashOptions{})
	write(t, create(t, c, "a"), 0, "x")
	write(t, create(t, c, "b"), 0, "y")
	c.Mark()
	check(t, c.Remove("a"))
	check(t, c.Rename("b", "c"))
	create(t, c, "d")
	wantDisks(t, c, DiskOptions{},
		"a=x b=y", "b=y", "a=x c=y", "c=y", "a=x b=y d=", "b=y d=", "a=x c=y d=", "c=y d=")
}

func TestOperationsOnOneNameKeepTheirOrder(t *testing.T) {
	c := NewCrash(CrashOptions{})
	write(t, create(t, c, "a"), 0, "1")
	c.Mark()
	check(t, c.Rename("a", "b"))
	create(t, c, "a")
	check(t, c.Remove("b"))
	wantDisks(t, c, DiskOptions{}, "a=1", "b=1", "a= b=1", "", "a=")
}

func TestADurableOperationMakesThoseItRestsOnDurable(t *testing.T) {
	c := NewCrash(CrashOptions{})
	check(t, c.MkdirAll("d", 0o755))
	write(t, create(t, c, "a"), 0, "x")
	c.Mark()
	check(t, c.Rename("a", "d/a")) // d is never synced
	create(t, c, "a")
	wantDisks(t, c, DiskOptions{}, "a=x d/", "d/ d/a=x", "a= d/ d/a=x")
	check(t, c.SyncDir("."))
	wantDisks(t, c, DiskOptions{}, "a= d/ d/a=x")
}

func TestALinkIsASecondNameWithTheSameContent(t *testing.T) {
	c := NewCrash(CrashOptions{})
	f := create(t, c, "a")
	write(t, f, 0, "1")
	c.Mark()
	check(t, c.Link("a", "b"))
	write(t, f, 0, "2")
	wantDisks(t, c, whole, "a=1", "a=2", "a=1 b=1", "a=2 b=2")
}

func TestACutMayBeLostOrKeptAndWhatItRemovedStaysRemoved(t *testing.T) {
	c := NewCrash(CrashOptions{})
	f := create(t, c, "f")
	write(t, f, 0, strings.Repeat("o", 2*PageSize))
	c.Mark()
	check(t, f.Truncate(PageSize))
	wantDisks(t, c, whole, "f=o*8192", "f=o*4096")
	write(t, f, PageSize, "nn")
	// A new block for the page that was cut off: unless the cut is kept, nothing leads to it.
	wantDisks(t, c, whole, "f=o*8192", "f=o*4096", "f=o*4096nn", "f=o*409600")
	check(t, f.Sync())
	wantDisks(t, c, whole, "f=o*4096nn")
	check(t, f.Truncate(10))
	check(t, f.Sync())
	check(t, f.Truncate(PageSize+2))
	check(t, f.Sync())
	wantDisks(t, c, whole, "f=o*100*4088")
	write(t, f, 0, "n")
	wantDisks(t, c, whole, "f=o*100*4088", "f=no*90*4088")
}

func TestACutInsideAPageMayShowItsZerosBeforeItsLength(t *testing.T) {
	c := NewCrash(CrashOptions{})
	f := create(t, c, "f")
	write(t, f, 0, "oooooo")
	c.Mark()
	check(t, f.Truncate(2))
	wantDisks(t, c, whole, "f=o*6", "f=oo0*4", "f=oo")
	write(t, f, 4, "nn")
	// With the cut kept the old bytes never come back, whichever page reached the device.
	wantDisks(t, c, whole, "f=o*6", "f=oo0*4", "f=oo00nn", "f=oo")
}

func TestASectorIsNeverTornAndAPageIsTornInEveryFlavour(t *testing.T) {
	c := NewCrash(CrashOptions{})
	f := create(t, c, "f")
	write(t, f, 0, strings.Repeat("o", 100))
	c.Mark()
	write(t, f, 100, strings.Repeat("n", 1000))
	var flavours [4]bool // old, head, junk after new, junk alone
	size := 0
	for d := range c.Disks(DiskOptions{}) {
		s := contents(d.FS())["f"]
		if !strings.HasPrefix(s, strings.Repeat("o", 100)) {
			t.Fatalf("durable bytes were harmed: %s\n%s", runs(s), d.Describe())
		}
		if len(s) != 1100 {
			continue
		}
		size++
		for at := 0; at < len(s); at += SectorSize {
			sector := strings.TrimPrefix(s[at:min(at+SectorSize, len(s))], strings.Repeat("o", 100))
			if n := strings.Count(sector, "n"); n != 0 && n != len(sector) && strings.Count(sector, "\x00") > len(sector)/2 {
				t.Fatalf("torn inside sector %d: %s", at/SectorSize, runs(sector))
			}
		}
		first, last := s[100], s[1099]
		flavours[0] = flavours[0] || first == 'n' && last == 0
		flavours[1] = flavours[1] || first == 0 && last == 'n'
		flavours[2] = flavours[2] || first == 'n' && last != 0 && last != 'n'
		flavours[3] = flavours[3] || first != 'n' && first != 0 && last != 0 && last != 'n'
	}
	if flavours != [4]bool{true, true, true, true} {
		t.Errorf("flavours seen: %v in %d disks", flavours, size)
	}
}

func TestOverwrittenDurableBytesAreOldOrNewUnlessAskedOtherwise(t *testing.T) {
	c := NewCrash(CrashOptions{})
	f := create(t, c, "f")
	write(t, f, 0, strings.Repeat("o", PageSize))
	c.Mark()
	write(t, f, 0, strings.Repeat("o", 600)+strings.Repeat("n", 1000))
	foreign := func(opt DiskOptions) (zeros, junk int) {
		for d := range c.Disks(opt) {
			s := contents(d.FS())["f"]
			if s[:600] != strings.Repeat("o", 600) {
				t.Fatalf("bytes written again as they were came out as %s", runs(s[:600]))
			}
			switch rest := strings.Trim(strings.ReplaceAll(s, "o", "n"), "n"); {
			case rest == "":
			case strings.Trim(rest, "\x00") == "":
				zeros++
			default:
				junk++
			}
		}
		return zeros, junk
	}
	if zeros, junk := foreign(DiskOptions{}); zeros+junk != 0 {
		t.Errorf("%d disks with zeros, %d with garbage in overwritten sectors", zeros, junk)
	}
	if zeros, junk := foreign(DiskOptions{Overwrites: true}); zeros == 0 || junk == 0 {
		t.Errorf("%d disks with zeros, %d with garbage, want some of both", zeros, junk)
	}
}

func TestAKillLosesNothingButWhatWasNotDurableStillIsNot(t *testing.T) {
	c := NewCrash(CrashOptions{})
	f := create(t, c, "f")
	c.Mark()
	write(t, f, 0, "ab")
	check(t, c.Rename("f", "g"))
	l := must(c.Lock(".lock"))
	defer l.Close()
	var last *Disk
	for d := range c.Disks(DiskOptions{Kill: true}) {
		last = d
	}
	again := last.FS()
	if got := show(contents(again)); got != ".lock= g=ab" {
		t.Fatal(got)
	}
	must(again.Lock(".lock"))
	wantDisks(t, again, DiskOptions{NoTorn: true, From: again.Len()},
		".lock= f=", ".lock= f=00", ".lock= f=ab", ".lock= g=", ".lock= g=00", ".lock= g=ab")
	check(t, must(again.OpenFile("g", os.O_RDWR, 0)).Sync())
	check(t, again.SyncDir("."))
	wantDisks(t, again, DiskOptions{}, ".lock= g=ab")
	check(t, again.Remove("g"))
	if got := show(contents(last.FS())); got != ".lock= g=ab" {
		t.Fatal("file systems of one disk see each other:", got)
	}
}

func TestAKillInsideALongWriteLeavesWholePagesOfItsHead(t *testing.T) {
	c := NewCrash(CrashOptions{})
	f := create(t, c, "f")
	c.Mark()
	write(t, f, 10, strings.Repeat("n", 2*PageSize))
	var got []string
	for d := range c.Disks(DiskOptions{Kill: true}) {
		got = append(got, show(contents(d.FS())))
	}
	if want := []string{"f=", "f=0*10n*4086", "f=0*10n*8182", "f=0*10n*8192"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAFailedSyncReadsBackAsWrittenUntilEvictedAndNeverReachesTheDevice(t *testing.T) {
	c := NewCrash(CrashOptions{})
	write(t, create(t, c, "f"), 0, "old")
	c.Mark()
	fsys := NewFault(NewTrace(c), Rule{Ops: []Kind{OpSync}, LosePages: true})
	f := create(t, fsys, "f")
	write(t, f, 0, "new and longer")
	if f.Sync() == nil {
		t.Fatal("the sync did not fail")
	}
	check(t, f.Sync()) // says it is fine, and it is not
	want := "f=" + runs("old"+strings.Repeat("\x00", 11))
	if got := show(contents(c)); got != "f=new and longer" {
		t.Fatal(got)
	}
	wantDisks(t, c, DiskOptions{}, want)
	killed := c.Kill()
	if got := show(contents(killed)); got != "f=new and longer" {
		t.Fatal("a reopen in the same boot sees the cache, not", got)
	}
	check(t, f.Evict(0, 1<<40))
	if got := show(contents(c)); got != want {
		t.Fatal(got)
	}
	if got := show(contents(killed)); got != "f=new and longer" {
		t.Fatal("the killed copy changed:", got)
	}
	write(t, f, 0, "N")
	check(t, f.Sync())
	wantDisks(t, c, DiskOptions{}, strings.Replace(want, "old", "Nld", 1))
}

func TestAPageWrittenAgainAfterAFailedSyncIsDirtyAsAWhole(t *testing.T) {
	c := NewCrash(CrashOptions{})
	c.Mark()
	fsys := NewFault(c, Rule{Ops: []Kind{OpSyncData}, LosePages: true, Lost: func(p int64) bool { return p == 0 }})
	f := create(t, fsys, "f")
	write(t, f, 0, strings.Repeat("n", 2*PageSize))
	if f.SyncData() == nil {
		t.Fatal("the sync did not fail")
	}
	check(t, c.SyncDir("."))
	wantDisks(t, c, DiskOptions{}, "f=0*4096n*4096")
	write(t, f, 0, "N")
	check(t, f.SyncData())
	wantDisks(t, c, DiskOptions{}, "f=Nn*8191")
}

func TestEvictKeepsDirtyPagesAndPagesOnlyPartlyInTheRange(t *testing.T) {
	c := NewCrash(CrashOptions{})
	f := create(t, NewFault(c, Rule{Ops: []Kind{OpSync}, LosePages: true}), "f")
	write(t, f, 0, strings.Repeat("n", 3*PageSize))
	_ = f.Sync()
	write(t, f, 0, "d")
	check(t, f.Evict(0, 2*PageSize+PageSize/2))
	if got := show(contents(c)); got != "f=dn*40950*4096n*4096" {
		t.Fatal(got)
	}
}
