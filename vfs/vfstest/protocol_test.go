package vfstest

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"testing"

	"github.com/partlog/partlog/vfs"
)

// The protocols below are what storage code gets wrong. Each is run with one step left out, which Disks must show to be
// a bug, and complete, which it must not.

// replaceFile is the usual way to replace a small file; steps say which of its syncs are done.
func replaceFile(t testing.TB, fsys vfs.FS, content string, syncFile, syncDir bool) {
	f, err := fsys.OpenFile("conf.tmp", os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	check(t, err)
	write(t, f, 0, content)
	if syncFile {
		check(t, f.Sync())
	}
	check(t, f.Close())
	check(t, fsys.Rename("conf.tmp", "conf"))
	if syncDir {
		check(t, fsys.SyncDir("."))
	}
}

func TestReplacingAFileNeedsBothSyncs(t *testing.T) {
	for _, row := range []struct{ syncFile, syncDir bool }{{true, true}, {false, true}, {true, false}, {false, false}} {
		t.Run(fmt.Sprintf("sync file %v, directory %v", row.syncFile, row.syncDir), func(t *testing.T) {
			c := NewCrash(CrashOptions{})
			replaceFile(t, c, "version 0", true, true)
			c.Mark()
			for i := 1; i <= 2; i++ {
				replaceFile(t, c, fmt.Sprint("version ", i), row.syncFile, row.syncDir)
				c.Note(i)
			}
			bugs, disks := 0, 0
			for d := range c.Disks(DiskOptions{}) {
				disks++
				got, least := contents(d.FS())["conf"], len(d.Notes())
				if got != fmt.Sprint("version ", least) && got != fmt.Sprint("version ", least+1) {
					bugs++
				}
			}
			if good := row.syncFile && row.syncDir; good != (bugs == 0) || disks < 5 {
				t.Errorf("%d of %d disks are wrong", bugs, disks)
			}
		})
	}
}

// rollingLog is a log of records in segment files of three records each. The faults are those of the mutants that the
// library's own crash tests must catch.
type rollingLog struct {
	t     testing.TB
	fsys  vfs.FS
	fault string
	f     vfs.File
	next  int
}

const recordSize = 12

func segmentName(base int) string { return fmt.Sprintf("%08d.log", base) }

func (l *rollingLog) append(c *Crash) {
	rolled := l.next%3 == 0
	if rolled {
		f, err := l.fsys.OpenFile(segmentName(l.next), os.O_RDWR|os.O_CREATE, 0o644)
		check(l.t, err)
		l.f = f
	}
	var b [recordSize]byte
	binary.BigEndian.PutUint64(b[:], uint64(l.next)+1)
	binary.BigEndian.PutUint32(b[8:], crc32.ChecksumIEEE(b[:8]))
	_, err := l.f.WriteAt(b[:], int64(l.next%3)*recordSize)
	check(l.t, err)
	if l.fault == "ack before sync" {
		c.Note(l.next)
	}
	if rolled && l.fault != "no directory sync at roll" {
		check(l.t, l.fsys.SyncDir("."))
	}
	if l.fault != "no sync" {
		check(l.t, l.f.SyncData())
	}
	if l.fault != "ack before sync" {
		c.Note(l.next)
	}
	l.next++
}

// recovered is how many records are there from the first on, and the truncation a recovery would do.
func recovered(t testing.TB, fsys vfs.FS, checkCRC bool) int {
	for n := 0; ; n++ {
		b, err := vfs.ReadFile(fsys, segmentName(n/3*3), 1<<20)
		if err != nil {
			return n
		}
		at := n % 3 * recordSize
		if len(b) < at+recordSize {
			return n
		}
		r := b[at : at+recordSize]
		value := binary.BigEndian.Uint64(r)
		if checkCRC && (value == 0 || binary.BigEndian.Uint32(r[8:]) != crc32.ChecksumIEEE(r[:8])) {
			return n
		}
		if value != uint64(n)+1 {
			return -1
		}
	}
}

func TestARollingLogLosesAcknowledgedRecordsWhenAStepIsMissing(t *testing.T) {
	for _, fault := range []string{"", "no sync", "ack before sync", "no directory sync at roll", "no checksum"} {
		t.Run("fault "+fault, func(t *testing.T) {
			c := NewCrash(CrashOptions{})
			c.Mark()
			l := &rollingLog{t: t, fsys: c, fault: fault}
			for range 7 {
				l.append(c)
			}
			bugs, disks := 0, 0
			var first *Disk
			for d := range c.Disks(DiskOptions{}) {
				disks++
				if n := recovered(t, d.FS(), fault != "no checksum"); n < len(d.Notes()) || n > len(d.Notes())+1 {
					bugs++
					first = d
				}
			}
			switch {
			case fault == "" && bugs > 0:
				t.Errorf("%d of %d disks are wrong:\n%s", bugs, disks, first.Describe())
			case fault != "" && bugs == 0:
				t.Errorf("not found on %d disks", disks)
			}
		})
	}
}

// TestAReopenAfterAFailedSyncLiesUnlessItEvicts: the log keeps one record a page; the sync of record 1 fails, the
// process gives up, and a new one opens the log in the same boot, appends and acknowledges.
func TestAReopenAfterAFailedSyncLiesUnlessItEvicts(t *testing.T) {
	count := func(f vfs.File) int {
		var b [1]byte
		for n := 0; ; n++ {
			if _, err := f.ReadAt(b[:], int64(n)*PageSize); err != nil || b[0] != 'r' {
				return n
			}
		}
	}
	for _, evict := range []bool{true, false} {
		c := NewCrash(CrashOptions{})
		write(t, create(t, c, "log"), 0, "r")
		c.Mark()
		f := create(t, NewFault(c, Rule{Ops: []Kind{OpSyncData}, LosePages: true}), "log")
		write(t, f, PageSize, "r")
		if f.SyncData() == nil {
			t.Fatal("the sync did not fail")
		}
		killed := c.Kill()
		g := create(t, killed, "log")
		if evict {
			check(t, g.Evict(0, 1<<20))
		}
		write(t, g, int64(count(g))*PageSize, "r")
		check(t, g.SyncData())
		acked := count(g)
		for d := range killed.Disks(DiskOptions{From: killed.Len()}) {
			if left := count(create(t, d.FS(), "log")); (left < acked) == evict {
				t.Errorf("evict %v: %d records acknowledged, %d left\n%s", evict, acked, left, d.Describe())
			}
		}
	}
}
