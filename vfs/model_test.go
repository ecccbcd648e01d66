package vfs_test

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/partlog/partlog/vfs"
)

// pair runs every operation on a tree of the operating system and on one in memory; their answers must be the same.
type pair struct {
	trees [2]vfs.FS
	files [][2]vfs.File
	locks [][2]io.Closer
}

// kind reduces an error to what callers decide by.
func kind(err error) string {
	for name, target := range map[string]error{
		"not exist": fs.ErrNotExist, "closed": fs.ErrClosed, "locked": vfs.ErrLocked, "invalid name": fs.ErrInvalid,
		"directory": syscall.EISDIR, "not empty": syscall.ENOTEMPTY,
	} {
		if errors.Is(err, target) {
			return name
		}
	}
	switch {
	case err == nil:
		return "ok"
	case err == io.EOF:
		return "EOF"
	case errors.Is(err, fs.ErrExist):
		return "exist"
	}
	return "refused"
}

// both runs do on each tree and fails if the answers differ.
func (p *pair) both(t *rapid.T, what string, do func(i int) string) {
	a, b := do(0), do(1)
	if a != b {
		t.Fatalf("%s: the operating system says %q, memory says %q", what, a, b)
	}
}

var anyName = rapid.Custom(func(t *rapid.T) string {
	parts := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c"}), 1, 3).Draw(t, "name")
	return strings.Join(parts, "/")
})

// anyOffset prefers what lies around page borders and small numbers.
var anyOffset = rapid.Custom(func(t *rapid.T) int64 {
	edge := rapid.SampledFrom([]int64{0, 0, 10, 64 << 10, 128 << 10}).Draw(t, "edge")
	return max(0, edge+rapid.Int64Range(-20, 20).Draw(t, "delta"))
})

func (p *pair) file(t *rapid.T) (int, [2]vfs.File) {
	if len(p.files) == 0 {
		t.Skip("no open files")
	}
	i := rapid.IntRange(0, len(p.files)-1).Draw(t, "file")
	return i, p.files[i]
}

func (p *pair) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"open": func(t *rapid.T) {
			name := anyName.Draw(t, "name")
			flag := rapid.SampledFrom([]int{os.O_RDONLY, os.O_RDWR, os.O_WRONLY}).Draw(t, "access")
			for _, f := range []int{os.O_CREATE, os.O_EXCL, os.O_TRUNC} {
				if rapid.Bool().Draw(t, "flag") {
					flag |= f
				}
			}
			if flag&os.O_CREATE == 0 {
				flag &^= os.O_EXCL // without a meaning
			}
			var opened [2]vfs.File
			p.both(t, fmt.Sprintf("open %s %x", name, flag), func(i int) string {
				f, err := p.trees[i].OpenFile(name, flag, 0o644)
				opened[i] = f
				return kind(err)
			})
			if opened[0] != nil {
				p.files = append(p.files, opened)
			}
		},
		"close": func(t *rapid.T) {
			n, f := p.file(t)
			p.both(t, "close", func(i int) string { return kind(f[i].Close()) })
			if rapid.Bool().Draw(t, "forget") {
				p.files = append(p.files[:n], p.files[n+1:]...)
			}
		},
		"write": func(t *rapid.T) {
			_, f := p.file(t)
			off := anyOffset.Draw(t, "offset")
			b := []byte(strings.Repeat(rapid.StringN(1, 3, 3).Draw(t, "bytes"), rapid.SampledFrom([]int{0, 1, 5, 30_000}).Draw(t, "times")))
			p.both(t, "write", func(i int) string {
				n, err := f[i].WriteAt(b, off)
				return fmt.Sprint(n, kind(err))
			})
		},
		"read": func(t *rapid.T) {
			_, f := p.file(t)
			off, size := anyOffset.Draw(t, "offset"), rapid.SampledFrom([]int{0, 1, 7, 100_000}).Draw(t, "size")
			p.both(t, "read", func(i int) string {
				b := make([]byte, size)
				n, err := f[i].ReadAt(b, off)
				return fmt.Sprint(n, kind(err), string(b[:n]))
			})
		},
		"truncate": func(t *rapid.T) {
			_, f := p.file(t)
			n := anyOffset.Draw(t, "length")
			p.both(t, "truncate", func(i int) string { return kind(f[i].Truncate(n)) })
		},
		"size": func(t *rapid.T) {
			_, f := p.file(t)
			p.both(t, "size", func(i int) string {
				n, err := f[i].Size()
				return fmt.Sprint(n, kind(err))
			})
		},
		"rename": func(t *rapid.T) {
			old, new := anyName.Draw(t, "old"), anyName.Draw(t, "new")
			p.both(t, "rename "+old+" "+new, func(i int) string { return kind(p.trees[i].Rename(old, new)) })
		},
		"link": func(t *rapid.T) {
			old, new := anyName.Draw(t, "old"), anyName.Draw(t, "new")
			p.both(t, "link "+old+" "+new, func(i int) string { return kind(p.trees[i].Link(old, new)) })
		},
		"remove": func(t *rapid.T) {
			name := anyName.Draw(t, "name")
			p.both(t, "remove "+name, func(i int) string { return kind(p.trees[i].Remove(name)) })
		},
		"mkdir": func(t *rapid.T) {
			name := anyName.Draw(t, "name")
			p.both(t, "mkdir "+name, func(i int) string { return kind(p.trees[i].MkdirAll(name, 0o755)) })
		},
		"chtimes": func(t *rapid.T) {
			name, at := anyName.Draw(t, "name"), time.Unix(rapid.Int64Range(1, 1<<31-1).Draw(t, "time"), 0)
			p.both(t, "chtimes "+name, func(i int) string {
				if err := p.trees[i].Chtimes(name, at); err != nil {
					return kind(err)
				}
				fi, err := p.trees[i].Stat(name)
				if err != nil {
					return kind(err)
				}
				return fi.ModTime().UTC().String()
			})
		},
		"stat": func(t *rapid.T) {
			name := anyName.Draw(t, "name")
			p.both(t, "stat "+name, func(i int) string {
				fi, err := p.trees[i].Stat(name)
				if err != nil {
					return kind(err)
				}
				return describe(fi)
			})
		},
		"sync": func(t *rapid.T) {
			name := anyName.Draw(t, "name")
			p.both(t, "sync "+name, func(i int) string { return kind(p.trees[i].SyncDir(name)) })
		},
		"lock": func(t *rapid.T) {
			name := anyName.Draw(t, "name")
			var locks [2]io.Closer
			p.both(t, "lock "+name, func(i int) string {
				l, err := p.trees[i].Lock(name)
				locks[i] = l
				return kind(err)
			})
			if locks[0] != nil {
				p.locks = append(p.locks, locks)
			}
		},
		"unlock": func(t *rapid.T) {
			if len(p.locks) == 0 {
				t.Skip("no locks")
			}
			i := rapid.IntRange(0, len(p.locks)-1).Draw(t, "lock")
			l := p.locks[i]
			p.both(t, "unlock", func(i int) string { return kind(l[i].Close()) })
			p.locks = append(p.locks[:i], p.locks[i+1:]...)
		},
		"": func(t *rapid.T) {
			p.both(t, "the whole tree", func(i int) string { return dump(p.trees[i], ".") })
		},
	}
}

func describe(fi fs.FileInfo) string {
	if fi.IsDir() {
		return fi.Name() + " directory"
	}
	return fmt.Sprintf("%s %v %d", fi.Name(), fi.Mode().IsRegular(), fi.Size())
}

// dump is every name below dir with what it is and holds.
func dump(fsys vfs.FS, dir string) string {
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return kind(err)
	}
	var all strings.Builder
	for _, e := range entries {
		name := dir + "/" + e.Name()
		name = strings.TrimPrefix(name, "./")
		fi, err := e.Info()
		if err != nil {
			return kind(err)
		}
		fmt.Fprintf(&all, "%s: %s %v\n", name, describe(fi), e.IsDir())
		if e.IsDir() {
			all.WriteString(dump(fsys, name))
			continue
		}
		b, err := vfs.ReadFile(fsys, name, 1<<20)
		fmt.Fprintf(&all, "%d bytes, checksum %x, %s\n", len(b), crc32.ChecksumIEEE(b), kind(err))
	}
	return all.String()
}

func (p *pair) close() {
	for _, f := range p.files {
		f[0].Close()
		f[1].Close()
	}
	for _, l := range p.locks {
		l[0].Close()
		l[1].Close()
	}
}

func freshOS(t *rapid.T, root string) (vfs.FS, string) {
	dir, err := os.MkdirTemp(root, "")
	if err != nil {
		t.Fatal(err)
	}
	fsys, err := vfs.OS(dir)
	if err != nil {
		t.Fatal(err)
	}
	return fsys, dir
}

func TestMemAnswersEveryRandomCallAsTheOperatingSystemDoes(t *testing.T) {
	root := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		fsys, _ := freshOS(t, root)
		p := &pair{trees: [2]vfs.FS{fsys, vfs.Mem()}}
		defer p.close()
		t.Repeat(p.actions())
	})
}

// The tree is populated at random, closed, and goes on as itself and as an overlay of a copy of itself.
func TestOverlayAnswersEveryRandomCallAsItsBaseWould(t *testing.T) {
	root := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		fsys, _ := freshOS(t, root)
		base := vfs.Mem()
		for range rapid.IntRange(0, 8).Draw(t, "files") {
			name := anyName.Draw(t, "name")
			content := strings.Repeat("base", rapid.SampledFrom([]int{0, 1, 16_384, 20_000}).Draw(t, "times"))
			for _, tree := range []vfs.FS{fsys, base} {
				populate(tree, name, content)
			}
		}
		before := dump(base, ".")
		p := &pair{trees: [2]vfs.FS{fsys, vfs.Overlay(base)}}
		defer p.close()
		t.Repeat(p.actions())
		if dump(base, ".") != before {
			t.Fatal("the base was changed")
		}
	})
}

// populate puts a file where that is possible.
func populate(fsys vfs.FS, name, content string) {
	if i := strings.LastIndexByte(name, '/'); i > 0 && fsys.MkdirAll(name[:i], 0o755) != nil {
		return
	}
	f, err := fsys.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return
	}
	defer f.Close()
	_, _ = f.WriteAt([]byte(content), 0)
}
