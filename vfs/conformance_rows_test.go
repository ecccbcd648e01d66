package vfs_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/vfs"
)

// conformance is one behaviour a row: what every implementation does, in one sentence.
var conformance = []struct {
	name string
	run  func(t *testing.T, fsys vfs.FS)
}{
	{"a missing file, or one in a missing directory, is ErrNotExist for every call", func(t *testing.T, fsys vfs.FS) {
		for _, name := range []string{"x", "x/y", "d/x"} {
			_, err := fsys.OpenFile(name, os.O_RDWR, 0)
			require.ErrorIs(t, err, fs.ErrNotExist)
			_, err = fsys.Stat(name)
			require.ErrorIs(t, err, fs.ErrNotExist)
			_, err = fsys.ReadDir(name)
			require.ErrorIs(t, err, fs.ErrNotExist)
			require.ErrorIs(t, fsys.SyncDir(name), fs.ErrNotExist)
			require.ErrorIs(t, fsys.Remove(name), fs.ErrNotExist)
			require.ErrorIs(t, fsys.Rename(name, "n"), fs.ErrNotExist)
			require.ErrorIs(t, fsys.Link(name, "n"), fs.ErrNotExist)
			require.ErrorIs(t, fsys.Chtimes(name, time.Unix(1, 0)), fs.ErrNotExist)
		}
		_, err := fsys.OpenFile("x/y", os.O_RDWR|os.O_CREATE, 0o644)
		require.ErrorIs(t, err, fs.ErrNotExist)
		require.ErrorIs(t, fsys.Rename("d/f", "x/y"), fs.ErrNotExist)
		_, err = fsys.Lock("x/.lock")
		require.ErrorIs(t, err, fs.ErrNotExist)
	}},
	{"errors name the operation and the file", func(t *testing.T, fsys vfs.FS) {
		_, err := fsys.OpenFile("d/x", os.O_RDONLY, 0)
		var p *fs.PathError
		require.ErrorAs(t, err, &p)
		require.Equal(t, "open", p.Op)
		require.True(t, strings.HasSuffix(p.Path, "x"))
		var l *os.LinkError
		require.ErrorAs(t, fsys.Rename("x", "y"), &l)
		require.Equal(t, "rename", l.Op)
	}},
	{"a file used as a directory is refused", func(t *testing.T, fsys vfs.FS) {
		_, err := fsys.OpenFile("d/f/x", os.O_RDWR|os.O_CREATE, 0o644)
		require.Error(t, err)
		_, err = fsys.Stat("d/f/x")
		require.Error(t, err)
		_, err = fsys.ReadDir("d/f")
		require.Error(t, err)
		require.Error(t, fsys.MkdirAll("d/f/x", 0o755))
		require.Error(t, fsys.MkdirAll("d/f", 0o755))
		require.Equal(t, "0123456789", get(t, fsys, "d/f"))
	}},
	{"a directory is not opened as a file", func(t *testing.T, fsys vfs.FS) {
		for _, flag := range []int{os.O_RDONLY, os.O_RDWR, os.O_RDWR | os.O_CREATE} {
			for _, name := range []string{"d", "."} {
				_, err := fsys.OpenFile(name, flag, 0o644)
				require.ErrorIs(t, err, syscall.EISDIR)
			}
		}
	}},
	{"names that could leave the tree are refused", func(t *testing.T, fsys vfs.FS) {
		for _, name := range []string{"..", "../x", "d/../../x", "d/../d/f", "/d/f", "", "d//f", "d/", "./d"} {
			_, err := fsys.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
			require.ErrorIs(t, err, fs.ErrInvalid, name)
			_, err = fsys.Stat(name)
			require.ErrorIs(t, err, fs.ErrInvalid, name)
			_, err = fsys.ReadDir(name)
			require.ErrorIs(t, err, fs.ErrInvalid, name)
			_, err = fsys.Lock(name)
			require.ErrorIs(t, err, fs.ErrInvalid, name)
			_, err = fsys.Free(name)
			require.ErrorIs(t, err, fs.ErrInvalid, name)
			require.ErrorIs(t, fsys.Remove(name), fs.ErrInvalid, name)
			require.ErrorIs(t, fsys.Rename("d/f", name), fs.ErrInvalid, name)
			require.ErrorIs(t, fsys.Rename(name, "n"), fs.ErrInvalid, name)
			require.ErrorIs(t, fsys.Link("d/f", name), fs.ErrInvalid, name)
			require.ErrorIs(t, fsys.MkdirAll(name, 0o755), fs.ErrInvalid, name)
			require.ErrorIs(t, fsys.SyncDir(name), fs.ErrInvalid, name)
			require.ErrorIs(t, fsys.Chtimes(name, time.Now()), fs.ErrInvalid, name)
		}
	}},
	{"flags without a meaning are refused", func(t *testing.T, fsys vfs.FS) {
		_, err := fsys.OpenFile("d/f", os.O_RDWR|os.O_APPEND, 0)
		require.ErrorIs(t, err, fs.ErrInvalid)
		_, err = fsys.OpenFile("d/f", os.O_RDONLY|os.O_TRUNC, 0)
		require.ErrorIs(t, err, fs.ErrInvalid)
		_, err = fsys.OpenFile("d/new", os.O_RDWR|os.O_CREATE, fs.ModeSetuid|0o644)
		require.ErrorIs(t, err, fs.ErrInvalid)
		require.ErrorIs(t, fsys.MkdirAll("m", fs.ModeSticky|0o755), fs.ErrInvalid)
		require.Equal(t, "0123456789", get(t, fsys, "d/f"))
	}},
	{"a name of 255 bytes exists and one of 256 does not", func(t *testing.T, fsys vfs.FS) {
		put(t, fsys, "d/"+strings.Repeat("n", 255), "x")
		for _, name := range []string{strings.Repeat("n", 256), "d/" + strings.Repeat("n", 256)} {
			_, err := fsys.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
			require.Error(t, err)
			require.Error(t, fsys.Rename("d/f", name))
			require.Error(t, fsys.Link("d/f", name))
			require.Error(t, fsys.MkdirAll(name, 0o755))
			require.Error(t, fsys.MkdirAll(name+"/x", 0o755))
		}
	}},
	{"O_EXCL creates once and O_TRUNC empties", func(t *testing.T, fsys vfs.FS) {
		open(t, fsys, "n", os.O_RDWR|os.O_CREATE|os.O_EXCL)
		for _, name := range []string{"n", "d/f", "d"} {
			_, err := fsys.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
			require.ErrorIs(t, err, fs.ErrExist)
		}
		f := open(t, fsys, "d/f", os.O_RDWR|os.O_CREATE|os.O_TRUNC)
		size, err := f.Size()
		require.NoError(t, err)
		require.Zero(t, size)
	}},
	{"a read that meets the end returns what there is and io.EOF", func(t *testing.T, fsys vfs.FS) {
		f := open(t, fsys, "d/f", os.O_RDONLY)
		b := make([]byte, 8)
		n, err := f.ReadAt(b, 6)
		require.Equal(t, "6789", string(b[:n]))
		require.Equal(t, io.EOF, err)
		n, err = f.ReadAt(b, 2)
		require.NoError(t, err)
		require.Equal(t, "23456789", string(b[:n]))
		for _, off := range []int64{10, 11, 1 << 40} {
			n, err = f.ReadAt(b, off)
			require.Zero(t, n)
			require.Equal(t, io.EOF, err)
		}
		n, err = f.ReadAt(nil, 1<<40)
		require.Zero(t, n)
		require.NoError(t, err)
		_, err = f.ReadAt(b, -1)
		require.Error(t, err)
		require.NotEqual(t, io.EOF, err)
	}},
	{"writes past the end and growth leave zeros, and a cut forgets what was there", func(t *testing.T, fsys vfs.FS) {
		f := open(t, fsys, "d/f", os.O_RDWR)
		_, err := f.WriteAt([]byte("X"), 12)
		require.NoError(t, err)
		require.Equal(t, "0123456789\x00\x00X", get(t, fsys, "d/f"))
		require.NoError(t, f.Truncate(3))
		require.Equal(t, "012", get(t, fsys, "d/f"))
		require.NoError(t, f.Truncate(6))
		require.Equal(t, "012\x00\x00\x00", get(t, fsys, "d/f"))
		_, err = f.WriteAt([]byte("Y"), 7)
		require.NoError(t, err)
		require.Equal(t, "012\x00\x00\x00\x00Y", get(t, fsys, "d/f"))
		require.Error(t, f.Truncate(-1))
		_, err = f.WriteAt([]byte("Y"), -1)
		require.Error(t, err)
	}},
	{"a file of several pages is cut, grown and written across page borders", func(t *testing.T, fsys vfs.FS) {
		f := open(t, fsys, "big", os.O_RDWR)
		want := bytes.Clone(bigContent)
		for _, off := range []int{65_530, 131_072, 0, 140_000} {
			patch := bytes.Repeat([]byte{'p'}, 70_000)
			_, err := f.WriteAt(patch, int64(off))
			require.NoError(t, err)
			want = append(want, make([]byte, max(0, off+len(patch)-len(want)))...)
			copy(want[off:], patch)
			require.True(t, string(want) == get(t, fsys, "big"), "write at %d", off)
		}
		for _, n := range []int{200_000, 131_073, 131_072, 131_071, 10, 0, 70_000} {
			require.NoError(t, f.Truncate(int64(n)))
			if n <= len(want) {
				want = want[:n]
			} else {
				want = append(want, make([]byte, n-len(want))...)
			}
			require.True(t, string(want) == get(t, fsys, "big"), "cut to %d", n)
		}
	}},
	{"handles refuse the access they were not opened for", func(t *testing.T, fsys vfs.FS) {
		r, w := open(t, fsys, "d/f", os.O_RDONLY), open(t, fsys, "d/f", os.O_WRONLY)
		_, err := r.WriteAt([]byte("x"), 0)
		require.Error(t, err)
		require.Error(t, r.Truncate(0))
		require.Error(t, errors.Join(r.Allocate(0, 1)))
		_, err = w.ReadAt(make([]byte, 1), 0)
		require.Error(t, err)
		_, err = w.Map(1)
		require.Error(t, err)
		require.Equal(t, "0123456789", get(t, fsys, "d/f"))
	}},
	{"a closed handle is ErrClosed for every call", func(t *testing.T, fsys vfs.FS) {
		f := open(t, fsys, "d/f", os.O_RDWR)
		require.NoError(t, f.Close())
		_, err := f.ReadAt(make([]byte, 1), 0)
		require.ErrorIs(t, err, fs.ErrClosed)
		_, err = f.WriteAt([]byte("x"), 0)
		require.ErrorIs(t, err, fs.ErrClosed)
		_, err = f.Size()
		require.ErrorIs(t, err, fs.ErrClosed)
		_, mapErr := f.Map(1)
		for _, err := range []error{f.Truncate(0), f.Sync(), f.SyncData(), f.Close()} {
			require.ErrorIs(t, err, fs.ErrClosed)
		}
		for _, err := range []error{mapErr, f.Allocate(0, 1), f.Evict(0, 1)} {
			require.True(t, errors.Is(err, fs.ErrClosed) || errors.Is(err, vfs.ErrUnsupported), "%v", err)
		}
	}},
	{"syncs, reservations and evictions change nothing one can read", func(t *testing.T, fsys vfs.FS) {
		f := open(t, fsys, "d/f", os.O_RDWR)
		require.NoError(t, f.Sync())
		require.NoError(t, f.SyncData())
		require.NoError(t, fsys.SyncDir("d"))
		require.NoError(t, fsys.SyncDir("."))
		for _, err := range []error{f.Allocate(0, 1<<20), f.Evict(3, 4), f.Evict(0, 1<<62), f.Allocate(0, 0), f.Evict(0, 0)} {
			require.True(t, err == nil || errors.Is(err, vfs.ErrUnsupported), "%v", err)
		}
		for _, err := range []error{f.Allocate(-1, 1), f.Allocate(0, -1), f.Evict(1<<62, 1<<62), f.Evict(-1, 1)} {
			require.ErrorIs(t, err, fs.ErrInvalid)
		}
		require.Equal(t, "0123456789", get(t, fsys, "d/f"))
	}},
	{"Stat tells size, kind, name and time", func(t *testing.T, fsys vfs.FS) {
		fi, err := fsys.Stat("d/f")
		require.NoError(t, err)
		require.Equal(t, "f", fi.Name())
		require.EqualValues(t, 10, fi.Size())
		require.True(t, fi.Mode().IsRegular())
		require.WithinDuration(t, time.Now(), fi.ModTime(), time.Minute)
		fi, err = fsys.Stat("d")
		require.NoError(t, err)
		require.True(t, fi.IsDir())
		fi, err = fsys.Stat(".")
		require.NoError(t, err)
		require.True(t, fi.IsDir())
	}},
	{"Chtimes sets the time and a write moves it on", func(t *testing.T, fsys vfs.FS) {
		then := time.Unix(1_600_000_000, 0)
		require.NoError(t, fsys.Chtimes("d/f", then))
		fi, err := fsys.Stat("d/f")
		require.NoError(t, err)
		require.True(t, then.Equal(fi.ModTime()), fi.ModTime())
		require.EqualValues(t, 10, fi.Size())
		_, err = open(t, fsys, "d/f", os.O_RDWR).WriteAt([]byte("x"), 0)
		require.NoError(t, err)
		fi, err = fsys.Stat("d/f")
		require.NoError(t, err)
		require.WithinDuration(t, time.Now(), fi.ModTime(), time.Minute)
	}},
	{"ReadDir lists in name order", func(t *testing.T, fsys vfs.FS) {
		put(t, fsys, "a", "")
		put(t, fsys, "z", "")
		entries, err := fsys.ReadDir(".")
		require.NoError(t, err)
		var got []string
		for _, e := range entries {
			fi, err := e.Info()
			require.NoError(t, err)
			require.Equal(t, e.Name(), fi.Name())
			require.Equal(t, e.IsDir(), fi.IsDir())
			require.Equal(t, e.Type(), fi.Mode().Type())
			got = append(got, fmt.Sprintf("%s %t", e.Name(), e.IsDir()))
		}
		require.Equal(t, []string{"a false", "big false", "d true", "e true", "z false"}, got)
		entries, err = fsys.ReadDir("e")
		require.NoError(t, err)
		require.Empty(t, entries)
	}},
	{"rename replaces a file, and open handles keep theirs", func(t *testing.T, fsys vfs.FS) {
		f, g := open(t, fsys, "d/f", os.O_RDWR), open(t, fsys, "d/g", os.O_RDWR)
		require.NoError(t, fsys.Rename("d/f", "d/g"))
		_, err := fsys.Stat("d/f")
		require.ErrorIs(t, err, fs.ErrNotExist)
		b := make([]byte, 5)
		_, err = g.ReadAt(b, 0)
		require.NoError(t, err)
		require.Equal(t, "other", string(b))
		_, err = f.WriteAt([]byte("ABC"), 0)
		require.NoError(t, err)
		require.Equal(t, "ABC3456789", get(t, fsys, "d/g"))
	}},
	{"rename moves a directory with what is in it", func(t *testing.T, fsys vfs.FS) {
		f := open(t, fsys, "d/f", os.O_RDWR)
		require.NoError(t, fsys.Rename("d", "e/n"))
		require.Equal(t, "0123456789", get(t, fsys, "e/n/f"))
		require.NoError(t, f.Truncate(1))
		require.Equal(t, "0", get(t, fsys, "e/n/f"))
		_, err := fsys.Stat("d")
		require.ErrorIs(t, err, fs.ErrNotExist)
		require.NoError(t, fsys.MkdirAll("d", 0o755))
		_, err = fsys.Stat("d/f")
		require.ErrorIs(t, err, fs.ErrNotExist, "a new directory does not inherit what was below the old one")
	}},
	{"rename never replaces a directory, nor moves one onto a file or into itself", func(t *testing.T, fsys vfs.FS) {
		require.ErrorIs(t, fsys.Rename("d/f", "e"), fs.ErrExist)
		require.ErrorIs(t, fsys.Rename("e", "d"), fs.ErrExist)
		require.ErrorIs(t, fsys.Rename("d", "d"), fs.ErrExist)
		require.Error(t, fsys.Rename("d", "big"))
		require.Error(t, fsys.Rename("d", "d/x"))
		require.Error(t, fsys.Rename(".", "x"))
		require.Error(t, fsys.Rename("d/f", "."))
		require.NoError(t, fsys.Rename("d/f", "d/f"))
		require.Equal(t, "0123456789", get(t, fsys, "d/f"))
	}},
	{"remove takes files and empty directories, and open handles keep theirs", func(t *testing.T, fsys vfs.FS) {
		require.ErrorIs(t, fsys.Remove("d"), syscall.ENOTEMPTY)
		require.NoError(t, fsys.Remove("e"))
		f := open(t, fsys, "d/f", os.O_RDWR)
		require.NoError(t, fsys.Remove("d/f"))
		_, err := f.WriteAt([]byte("AB"), 0)
		require.NoError(t, err)
		b := make([]byte, 10)
		_, err = f.ReadAt(b, 0)
		require.NoError(t, err)
		require.Equal(t, "AB23456789", string(b))
		require.NoError(t, fsys.Remove("d/g"))
		require.NoError(t, fsys.Remove("d"))
		require.Error(t, fsys.Remove("."))
		put(t, fsys, "d", "a file now")
		require.Equal(t, "a file now", get(t, fsys, "d"))
	}},
	{"a hard link is a second name of the same file", func(t *testing.T, fsys vfs.FS) {
		require.NoError(t, fsys.Link("d/f", "e/l"))
		require.ErrorIs(t, fsys.Link("d/f", "d/g"), fs.ErrExist)
		require.Error(t, fsys.Link("d", "e/d"))
		f := open(t, fsys, "e/l", os.O_RDWR)
		_, err := f.WriteAt([]byte("AB"), 0)
		require.NoError(t, err)
		require.Equal(t, "AB23456789", get(t, fsys, "d/f"))
		require.NoError(t, fsys.Rename("d/f", "e/l"), "two names of one file")
		require.Equal(t, "AB23456789", get(t, fsys, "d/f"), "POSIX keeps both")
		require.NoError(t, fsys.Remove("d/f"))
		require.Equal(t, "AB23456789", get(t, fsys, "e/l"))
	}},
	{"MkdirAll makes parents and minds no existing directory", func(t *testing.T, fsys vfs.FS) {
		require.NoError(t, fsys.MkdirAll("d/x/y", 0o755))
		require.NoError(t, fsys.MkdirAll("d/x/y", 0o755))
		require.NoError(t, fsys.MkdirAll(".", 0o755))
		put(t, fsys, "d/x/y/f", "deep")
		require.Equal(t, "deep", get(t, fsys, "d/x/y/f"))
	}},
	{"a lock excludes a second opener, and closing it removes the file", func(t *testing.T, fsys vfs.FS) {
		l, err := fsys.Lock("d/.lock")
		require.NoError(t, err)
		_, err = fsys.Stat("d/.lock")
		require.NoError(t, err)
		_, err = fsys.Lock("d/.lock")
		require.ErrorIs(t, err, vfs.ErrLocked)
		var locked *vfs.LockedError
		require.ErrorAs(t, err, &locked)
		require.Equal(t, "this process", locked.Holder)
		require.True(t, strings.HasSuffix(locked.Name, ".lock"))
		other, err := fsys.Lock("e/.lock")
		require.NoError(t, err)
		require.NoError(t, l.Close())
		require.NoError(t, l.Close())
		_, err = fsys.Stat("d/.lock")
		require.ErrorIs(t, err, fs.ErrNotExist)
		l, err = fsys.Lock("d/.lock")
		require.NoError(t, err)
		require.NoError(t, l.Close())
		require.NoError(t, other.Close())
	}},
	{"a lock file left by a kill, or with content, is taken and removed", func(t *testing.T, fsys vfs.FS) {
		l, err := fsys.Lock("d/g")
		require.NoError(t, err)
		require.NoError(t, l.Close())
		_, err = fsys.Stat("d/g")
		require.ErrorIs(t, err, fs.ErrNotExist)
	}},
	{"closing a lock leaves a file alone that took its name", func(t *testing.T, fsys vfs.FS) {
		l, err := fsys.Lock("d/.lock")
		require.NoError(t, err)
		require.NoError(t, fsys.Remove("d/.lock"))
		next, err := fsys.Lock("d/.lock")
		require.NoError(t, err)
		require.NoError(t, l.Close())
		_, err = fsys.Lock("d/.lock")
		require.ErrorIs(t, err, vfs.ErrLocked)
		require.NoError(t, next.Close())
	}},
	{"closing a lock whose directory is gone is no error", func(t *testing.T, fsys vfs.FS) {
		l, err := fsys.Lock("e/.lock")
		require.NoError(t, err)
		require.NoError(t, fsys.Rename("e", "gone"))
		require.NoError(t, l.Close())
		_, err = fsys.Lock("d")
		require.Error(t, err)
	}},
	{"mappings show the file, refuse to reach past it, and end with Close", func(t *testing.T, fsys vfs.FS) {
		if !fsys.Traits(".").Mmap {
			t.Skip("no mappings here")
		}
		f := open(t, fsys, "big", os.O_RDONLY)
		for _, n := range []int64{-1, 0, 150_001, 1 << 62} {
			_, err := f.Map(n)
			require.ErrorIs(t, err, fs.ErrInvalid)
		}
		m, err := f.Map(149_999)
		require.NoError(t, err)
		require.EqualValues(t, 149_999, m.Len())
		require.NoError(t, f.Close(), "a mapping outlives the handle")
		require.NoError(t, fsys.Remove("big"), "and the name")
		require.NoError(t, m.Read(func(b []byte) {
			require.True(t, bytes.Equal(bigContent[:149_999], b))
			require.Equal(t, len(b), cap(b))
			require.NoError(t, m.Read(func([]byte) {}), "a Read inside a Read")
		}))
		require.PanicsWithValue(t, "mine", func() { m.Read(func([]byte) { panic("mine") }) })
		require.Panics(t, func() { m.Read(func(b []byte) { _ = b[len(b)+index(b)] }) })
		require.NoError(t, m.Close(), "a panic leaves no reader behind")
		require.NoError(t, m.Close())
		require.ErrorIs(t, m.Read(func([]byte) { t.Error("read after close") }), fs.ErrClosed)
		require.EqualValues(t, 149_999, m.Len())
	}},
	{"a mapping of a file that is cut underneath is a fault, not a crash", func(t *testing.T, fsys vfs.FS) {
		if !fsys.Traits(".").Mmap {
			t.Skip("no mappings here")
		}
		m, err := open(t, fsys, "big", os.O_RDONLY).Map(150_000)
		require.NoError(t, err)
		defer m.Close()
		f := open(t, fsys, "big", os.O_RDWR)
		require.NoError(t, f.Truncate(0))
		sum := 0
		err = m.Read(func(b []byte) {
			for _, x := range b {
				sum += int(x)
			}
		})
		require.ErrorIs(t, err, vfs.ErrFault)
		require.NoError(t, m.Close())
	}},
	{"ReadFile bounds what it reads", func(t *testing.T, fsys vfs.FS) {
		b, err := vfs.ReadFile(fsys, "d/f", 10)
		require.NoError(t, err)
		require.Equal(t, "0123456789", string(b))
		_, err = vfs.ReadFile(fsys, "d/f", 9)
		require.ErrorIs(t, err, vfs.ErrTooLong)
		require.ErrorContains(t, err, "f: vfs: file longer than allowed: 10 bytes, at most 9")
		_, err = vfs.ReadFile(fsys, "d/f", -1)
		require.ErrorIs(t, err, vfs.ErrTooLong)
		_, err = vfs.ReadFile(fsys, "x", 10)
		require.ErrorIs(t, err, fs.ErrNotExist)
	}},
	{"free space is asked of the nearest directory that exists", func(t *testing.T, fsys vfs.FS) {
		for _, name := range []string{".", "d", "d/f", "d/f/x", "x/y/z"} {
			n, err := fsys.Free(name)
			require.True(t, err == nil && n > 0 || errors.Is(err, vfs.ErrUnsupported), "%s: %d %v", name, n, err)
			require.Equal(t, fsys.Traits("."), fsys.Traits(name), name)
		}
	}},
}

func index([]byte) int { return 0 }
