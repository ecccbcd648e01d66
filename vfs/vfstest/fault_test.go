package vfstest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/partlog/partlog/vfs"
)

var errMine = errors.New("mine")

func TestARuleDisturbsTheCallsItCounts(t *testing.T) {
	for _, row := range []struct {
		nth, times int
		want       string // one letter a call: F failed, . went through
	}{
		{0, 0, "F....."}, {1, 1, "F....."}, {3, 0, "..F..."}, {2, 3, ".FFF.."}, {4, Always, "...FFF"}, {0, Always, "FFFFFF"},
		{7, 1, "......"},
	} {
		f := NewFault(vfs.Mem())
		hits, remove := f.Add(Rule{Ops: []Kind{OpMkdir}, Name: "d*", Nth: row.nth, Times: row.times, Err: errMine})
		got := ""
		for i := range 6 {
			check(t, f.MkdirAll("other", 0o755)) // does not count
			err := f.MkdirAll(fmt.Sprint("d", i), 0o755)
			switch {
			case err == nil:
				got += "."
			case errors.Is(err, errMine):
				got += "F"
				if _, err := f.Stat(fmt.Sprint("d", i)); !errors.Is(err, fs.ErrNotExist) {
					t.Error("a failed call was carried out")
				}
			default:
				t.Fatal(err)
			}
		}
		if got != row.want || hits() != strings.Count(row.want, "F") {
			t.Errorf("nth %d, times %d: %s with %d hits, want %s", row.nth, row.times, got, hits(), row.want)
		}
		remove()
		check(t, f.MkdirAll("d9", 0o755))
	}
}

// TestEveryKindOfCallCanFail goes through the whole interface, so that a new call cannot be forgotten.
func TestEveryKindOfCallCanFail(t *testing.T) {
	calls := map[Kind]func(fsys vfs.FS, f vfs.File, m vfs.Mapping, l io.Closer) error{
		OpOpen: func(s vfs.FS, _ vfs.File, _ vfs.Mapping, _ io.Closer) error {
			return err2(s.OpenFile("f", os.O_RDONLY, 0))
		},
		OpCreate: func(s vfs.FS, _ vfs.File, _ vfs.Mapping, _ io.Closer) error {
			return err2(s.OpenFile("n", os.O_RDWR|os.O_CREATE, 0))
		},
		OpClose: func(_ vfs.FS, f vfs.File, _ vfs.Mapping, _ io.Closer) error { return f.Close() },
		OpRead: func(_ vfs.FS, f vfs.File, _ vfs.Mapping, _ io.Closer) error {
			return err2(f.ReadAt(make([]byte, 1), 0))
		},
		OpWrite:    func(_ vfs.FS, f vfs.File, _ vfs.Mapping, _ io.Closer) error { return err2(f.WriteAt([]byte("x"), 0)) },
		OpSize:     func(_ vfs.FS, f vfs.File, _ vfs.Mapping, _ io.Closer) error { return err2(f.Size()) },
		OpTruncate: func(_ vfs.FS, f vfs.File, _ vfs.Mapping, _ io.Closer) error { return f.Truncate(4) },
		OpSync:     func(_ vfs.FS, f vfs.File, _ vfs.Mapping, _ io.Closer) error { return f.Sync() },
		OpSyncData: func(_ vfs.FS, f vfs.File, _ vfs.Mapping, _ io.Closer) error { return f.SyncData() },
		OpAllocate: func(_ vfs.FS, f vfs.File, _ vfs.Mapping, _ io.Closer) error { return f.Allocate(0, 9) },
		OpEvict:    func(_ vfs.FS, f vfs.File, _ vfs.Mapping, _ io.Closer) error { return f.Evict(0, 9) },
		OpMap:      func(_ vfs.FS, f vfs.File, _ vfs.Mapping, _ io.Closer) error { return err2(f.Map(1)) },
		OpMapRead:  func(_ vfs.FS, _ vfs.File, m vfs.Mapping, _ io.Closer) error { return m.Read(func([]byte) {}) },
		OpConn:     func(_ vfs.FS, f vfs.File, _ vfs.Mapping, _ io.Closer) error { return err2(f.SyscallConn()) },
		OpStat:     func(s vfs.FS, _ vfs.File, _ vfs.Mapping, _ io.Closer) error { return err2(s.Stat("f")) },
		OpRename:   func(s vfs.FS, _ vfs.File, _ vfs.Mapping, _ io.Closer) error { return s.Rename("f", "g") },
		OpLink:     func(s vfs.FS, _ vfs.File, _ vfs.Mapping, _ io.Closer) error { return s.Link("f", "g") },
		OpRemove:   func(s vfs.FS, _ vfs.File, _ vfs.Mapping, _ io.Closer) error { return s.Remove("f") },
		OpMkdir:    func(s vfs.FS, _ vfs.File, _ vfs.Mapping, _ io.Closer) error { return s.MkdirAll("d", 0o755) },
		OpReadDir:  func(s vfs.FS, _ vfs.File, _ vfs.Mapping, _ io.Closer) error { return err2(s.ReadDir(".")) },
		OpSyncDir:  func(s vfs.FS, _ vfs.File, _ vfs.Mapping, _ io.Closer) error { return s.SyncDir(".") },
		OpLock:     func(s vfs.FS, _ vfs.File, _ vfs.Mapping, _ io.Closer) error { return err2(s.Lock(".lock2")) },
		OpUnlock:   func(_ vfs.FS, _ vfs.File, _ vfs.Mapping, l io.Closer) error { return l.Close() },
		OpChtimes:  func(s vfs.FS, _ vfs.File, _ vfs.Mapping, _ io.Closer) error { return s.Chtimes("f", time.Unix(1, 0)) },
		OpFree:     func(s vfs.FS, _ vfs.File, _ vfs.Mapping, _ io.Closer) error { return err2(s.Free(".")) },
	}
	for kind := Kind(1); kind < lastKind; kind++ {
		if kind == OpNote {
			continue
		}
		call := calls[kind]
		if call == nil {
			t.Errorf("no row for %v", kind)
			continue
		}
		for _, done := range []bool{false, true} {
			fault := NewFault(NewCrash(CrashOptions{}))
			trace := NewTrace(fault)
			f := create(t, trace, "f")
			write(t, f, 0, "0123456789")
			m := must(f.Map(4))
			l := must(trace.Lock(".lock"))
			trace.Reset()
			fault.Add(Rule{Ops: []Kind{kind}, Err: errMine, Done: done})
			err := call(trace, f, m, l)
			if kind == OpConn && done { // Crash has none, and its own error comes first
				err = errors.Join(err, errMine)
			}
			if !errors.Is(err, errMine) {
				t.Errorf("%v (done %v): %v", kind, done, err)
			}
			if trace.Count(kind) != 1 || trace.Count() != 1 || fault.Count(kind) == 0 {
				t.Errorf("%v was counted as %v", kind, trace.Ops())
			}
			check(t, m.Close())
		}
	}
}

func err2[T any](_ T, err error) error { return err }

func TestAShortWriteReallyReachesTheFile(t *testing.T) {
	mem := vfs.Mem()
	f := create(t, NewFault(mem,
		Rule{Ops: []Kind{OpWrite}, Err: syscall.ENOSPC, Short: true, Keep: 3},
		Rule{Ops: []Kind{OpWrite}, Nth: 2, Short: true, Keep: 1},
		Rule{Ops: []Kind{OpWrite}, Nth: 3, Short: true, Keep: 100},
	), "f")
	n, err := f.WriteAt([]byte("abcdef"), 0)
	if n != 3 || !errors.Is(err, syscall.ENOSPC) || show(contents(mem)) != "f=abc" {
		t.Fatal(n, err, show(contents(mem)))
	}
	n, err = f.WriteAt([]byte("xyz"), 3)
	if n != 1 || err != io.ErrShortWrite || show(contents(mem)) != "f=abcx" {
		t.Fatal(n, err, show(contents(mem)))
	}
	write(t, f, 4, "whole")
}

func TestAShortReadGivesWhatItKept(t *testing.T) {
	mem := vfs.Mem()
	write(t, create(t, mem, "f"), 0, "abcdef")
	f := create(t, NewFault(mem,
		Rule{Ops: []Kind{OpRead}, Short: true, Keep: 2},
		Rule{Ops: []Kind{OpRead}, Nth: 2, Short: true, Keep: 1, Err: syscall.EIO},
		Rule{Ops: []Kind{OpRead}, Nth: 3, Err: syscall.EIO},
	), "f")
	b := make([]byte, 4)
	if n, err := f.ReadAt(b, 0); n != 2 || err != io.EOF || string(b[:n]) != "ab" {
		t.Fatal(n, err)
	}
	if n, err := f.ReadAt(b, 0); n != 1 || err != syscall.EIO {
		t.Fatal(n, err)
	}
	if n, err := f.ReadAt(b, 0); n != 0 || err != syscall.EIO {
		t.Fatal(n, err)
	}
	if n, err := f.ReadAt(b, 0); n != 4 || err != nil {
		t.Fatal(n, err)
	}
}

func TestTheDiskIsFullAfterTheQuota(t *testing.T) {
	mem := vfs.Mem()
	fault := NewFault(mem)
	f := create(t, fault, "f")
	fault.SetQuota(10)
	write(t, f, 0, "01234567")
	if n := must(fault.Free(".")); n != 2 {
		t.Fatal(n)
	}
	if err := f.Allocate(0, 3); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	n, err := f.WriteAt([]byte("89ab"), 8)
	if n != 2 || !errors.Is(err, syscall.ENOSPC) || show(contents(mem)) != "f=0123456789" {
		t.Fatal(n, err, show(contents(mem)))
	}
	if n, err := f.WriteAt([]byte("x"), 0); n != 0 || !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(n, err)
	}
	fault.SetQuota(-1)
	write(t, f, 10, "ab")
}

func TestABlockedCallWaitsAloneUntilReleased(t *testing.T) {
	release := make(chan struct{})
	fault := NewFault(vfs.Mem(), Rule{Ops: []Kind{OpSync}, Name: "slow", Block: release})
	slow, quick := create(t, fault, "slow"), create(t, fault, "quick")
	done := make(chan error)
	go func() { done <- slow.Sync() }()
	check(t, quick.Sync())
	check(t, fault.MkdirAll("d", 0o755))
	select {
	case <-done:
		t.Fatal("it did not wait")
	case <-time.After(5 * time.Millisecond):
	}
	close(release)
	check(t, <-done)
}

func TestAHookRunsBeforeTheCallAndMayUseTheFileSystem(t *testing.T) {
	mem := vfs.Mem()
	var fault *Fault
	fault = NewFault(mem, Rule{Ops: []Kind{OpRename}, Name: "a", Hook: func(o Op) error {
		if o.Kind != OpRename || o.Name != "a" || o.To != "b" {
			t.Error(o)
		}
		return fault.Remove("a")
	}}, Rule{Ops: []Kind{OpSyncDir}, Hook: func(Op) error { return errMine }})
	create(t, fault, "a")
	if err := fault.Rename("a", "b"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if err := fault.SyncDir("."); err != errMine {
		t.Fatal(err)
	}
}

func TestAFailedCloseClosesAllTheSame(t *testing.T) {
	fault := NewFault(vfs.Mem(), Rule{Ops: []Kind{OpClose}, Err: syscall.EIO})
	f := create(t, fault, "f")
	if err := f.Close(); err != syscall.EIO {
		t.Fatal(err)
	}
	if err := f.Close(); !errors.Is(err, fs.ErrClosed) {
		t.Fatal(err)
	}
}

func TestALostAnswerLeavesTheWorkDone(t *testing.T) {
	mem := vfs.Mem()
	fault := NewFault(mem, Rule{Ops: []Kind{OpRename, OpCreate}, Times: 2, Err: syscall.EIO, Done: true})
	if _, err := fault.OpenFile("a", os.O_RDWR|os.O_CREATE, 0o644); err != syscall.EIO {
		t.Fatal(err)
	}
	if err := fault.Rename("a", "b"); err != syscall.EIO || show(contents(mem)) != "b=" {
		t.Fatal(err, show(contents(mem)))
	}
}

func TestLosePagesOverAnythingElseIsAFailedSync(t *testing.T) {
	f := create(t, NewFault(vfs.Mem(), Rule{Ops: []Kind{OpSync}, LosePages: true}), "f")
	if err := f.Sync(); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	check(t, f.Sync())
}

func TestTraceShowsTheOrderOfCalls(t *testing.T) {
	tr := NewTrace(vfs.Mem())
	check(t, tr.MkdirAll("d", 0o755))
	f := create(t, tr, "d/f")
	write(t, f, 0, "abc")
	if _, err := f.ReadAt(make([]byte, 9), 1); err != io.EOF {
		t.Fatal(err)
	}
	check(t, f.SyncData())
	check(t, tr.SyncDir("d"))
	tr.Note("ack 0")
	if err := tr.Remove("x"); err == nil {
		t.Fatal("removed nothing")
	}
	is := func(pattern string, kinds ...Kind) func(Op) bool {
		return func(o Op) bool { return o.Match(pattern, kinds...) }
	}
	ack := func(o Op) bool { return o.Note == "ack 0" }
	check(t, tr.InOrder(is("f", OpWrite), is("d", OpSyncDir), ack))
	for _, steps := range [][]func(Op) bool{
		{ack, is("d", OpSyncDir)}, {is("x", OpRemove)}, {is("f", OpWrite), is("f", OpWrite)},
	} {
		if tr.InOrder(steps...) == nil {
			t.Error("an order that did not happen was found")
		}
	}
	want := `   0  mkdir d
   1  create d/f
   2  write d/f [0,3)
   3  read d/f [1,10) did 2 = EOF
   4  syncdata d/f
   5  syncdir d
   6  note ack 0
   7  remove x = remove x: ` + syscall.ENOENT.Error() + "\n"
	if got := tr.String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if n := len(tr.Filter("d/*", OpWrite, OpSyncData)); n != 2 {
		t.Error(n)
	}
	if tr.Count() != 7 || tr.Count(OpNote) != 1 || tr.Count(OpSyncDir, OpMkdir) != 2 {
		t.Error(tr.Count(), tr.Count(OpNote))
	}
	tr.Reset()
	if tr.Count() != 0 || len(tr.Ops()) != 0 {
		t.Error("not empty")
	}
}

// TestEverythingAtOnce is for the race detector.
func TestEverythingAtOnce(t *testing.T) {
	c := NewCrash(CrashOptions{})
	check(t, c.MkdirAll("d", 0o755))
	c.Mark()
	tr := NewTrace(NewFault(c, Rule{Ops: []Kind{OpSync}, Nth: 3, LosePages: true, Times: Always}))
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			name := fmt.Sprint("d/", i)
			f := create(t, tr, name)
			for j := range 6 {
				write(t, f, int64(j)*5000, strings.Repeat("x", 5000))
				m := must(f.Map(5000))
				_ = m.Read(func(b []byte) { _ = b[len(b)-1] })
				check(t, m.Close())
				_ = f.Sync()
				_ = f.Evict(0, 1<<20)
				check(t, tr.Rename(name, name+"x"))
				check(t, tr.Rename(name+"x", name))
				must(tr.ReadDir("d"))
				c.Note(j)
			}
		})
	}
	disks := make(chan *Disk)
	for range 2 {
		wg.Go(func() {
			for d := range disks {
				contents(d.FS())
				_ = d.Describe()
			}
		})
	}
	wg.Go(func() {
		defer close(disks)
		for range 5 {
			c.PowerLoss(7)
			contents(c.Kill())
			n := 0
			for d := range c.Disks(DiskOptions{Limit: 10, Samples: 3}) {
				disks <- d
				if n++; n > 60 {
					break
				}
			}
		}
	})
	wg.Wait()
}

func TestMappingsOfCrashSeeTheFileAndFaultWhenItIsCut(t *testing.T) {
	c := NewCrash(CrashOptions{})
	f := create(t, c, "f")
	write(t, f, 0, strings.Repeat("a", 5000))
	for _, n := range []int64{0, -1, 5001} {
		if _, err := f.Map(n); !errors.Is(err, fs.ErrInvalid) {
			t.Error(n, err)
		}
	}
	m := must(f.Map(5000))
	sees := func(want string) {
		t.Helper()
		check(t, m.Read(func(b []byte) {
			if runs(string(b)) != want {
				t.Error(runs(string(b)))
			}
		}))
	}
	sees("a*5000")
	write(t, f, 1, "bb")
	sees("abba*4997")
	check(t, f.Close())
	check(t, c.Remove("f"))
	c.Mark()
	sees("abba*4997")
	g := create(t, c, "g")
	write(t, g, 0, strings.Repeat("a", 5000))
	n := must(g.Map(5000))
	check(t, g.Truncate(4000))
	if err := n.Read(func([]byte) { t.Error("read") }); !errors.Is(err, vfs.ErrFault) {
		t.Error(err)
	}
	check(t, m.Close())
	check(t, m.Close())
	if err := m.Read(func([]byte) {}); !errors.Is(err, fs.ErrClosed) {
		t.Error(err)
	}
	no := NewCrash(CrashOptions{NoMmap: true, NoEvict: true})
	h := create(t, no, "h")
	write(t, h, 0, "x")
	if _, err := h.Map(1); !errors.Is(err, vfs.ErrUnsupported) || no.Traits("h").Mmap {
		t.Error(err)
	}
	if err := h.Evict(0, 1); !errors.Is(err, vfs.ErrUnsupported) || no.Traits("h").Evict {
		t.Error(err)
	}
}
