package log

import (
	"errors"
	"io/fs"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// Wrong orders of the files that several partitions and roots share, and of a compaction's swap. Each row is found out by a
// disk that shows it.
func TestWrongOrdersOnRootsAreFoundOut(t *testing.T) {
	start := prepareRoots(t)
	for _, m := range []struct {
		name string
		work []string
		says string
		wrap func(vfs.FS) vfs.FS
		end  bool // only behind the last operation: what came before takes long
	}{
		{"new segments that were not synced", []string{"compact"}, "",
			func(f vfs.FS) vfs.FS { return &liar{FS: f, skipSync: hasSuffix(".log.cleaned")} }, false},
		{"a swap that leaves its renames to chance", []string{"compact"}, "",
			noSyncDir("a/c-0"), false},
		{"the old segments before the new ones are complete", []string{"compact"}, "",
			deleteBeforeRename, false},
		{"new names before the old ones are aside for good", []string{"compact"}, "",
			noSyncAfter(".log", ".log.deleted"), false},
		{"a partition deleted without a sync", []string{"delete the partition"}, "is back",
			noSyncDir("a"), false},
		{"a partition made without a sync", []string{"a new partition"}, "is gone",
			noSyncDir("a"), false},
		{"a move that does not sync its copy", []string{"move"}, "",
			func(f vfs.FS) vfs.FS {
				return &liar{FS: f, skipSync: func(name string) bool { return strings.Contains(name, "-future/") }}
			}, true},
		{"a move whose copy has no lasting name", []string{"move"}, "is gone",
			noSyncDir("b"), false},
		{"a move that leaves the old one to chance", []string{"move"}, "is in both roots",
			noSyncDir("a"), false},
		{"a log start that was not synced", []string{"delete records"}, "",
			func(f vfs.FS) vfs.FS { return &liar{FS: f, skipSync: hasSuffix("checkpoint.tmp")} }, false},
		{"a cleaner checkpoint that was not synced", []string{"compact"}, "checkpoint",
			func(f vfs.FS) vfs.FS { return &liar{FS: f, skipSync: hasSuffix(path.Base(cleanerTmp))} }, false},
		{"a cleaner checkpoint that falls behind a truncation", []string{"compact", "truncate", "append tombstones and roll"}, "a compaction made",
			lateCleanerCheckpoint, false},
		{"dropped segments that come back", []string{"drop the oldest"}, "",
			noSyncDir("a/d-0"), false},
		{"a clean stop without its data", []string{"append buffered", "stop and start"}, "",
			func(f vfs.FS) vfs.FS { return &liar{FS: f, skipSync: hasSuffix(".log")} }, false},
		{"a backup that was not synced", []string{"back up by copies"}, "backup0",
			func(f vfs.FS) vfs.FS {
				return &liar{FS: f, skipSync: func(name string) bool { return strings.HasPrefix(name, "backup0.partial/c-0/") }}
			}, true},
		{"a backup whose names were not synced", []string{"back up"}, "backup0",
			func(f vfs.FS) vfs.FS {
				return &liar{FS: f, skipSyncDir: func(dir string) bool { return strings.HasPrefix(dir, "backup0.partial/c-0") }}
			}, true},
	} {
		t.Run(m.name, func(t *testing.T) {
			w, last, err := runDeeds(start, deedsNamed(t, m.work...), m.wrap)
			require.NoError(t, err)
			total := &rootsTally{}
			if m.end {
				last = w.fs.Len()
			}
			err = total.enumerate(w, start.rest(), vfstest.DiskOptions{From: last, Limit: 8, Samples: 8, Cuts: 1}, 1)
			require.Error(t, err, "nothing found: %+v", *total)
			require.ErrorContains(t, err, m.says)
			first, _, _ := strings.Cut(err.Error(), "\n")
			t.Logf("disk %d: %s", total.disks, first)
		})
	}
}

const cleanerTmp = "a/cleaner-offset-checkpoint.tmp"

func deedsNamed(t *testing.T, names ...string) (work []deed) {
	t.Helper()
	for _, name := range names {
		for _, v := range deeds {
			if v.name == name {
				work = append(work, v)
			}
		}
	}
	require.Len(t, work, len(names))
	return work
}

// noSyncAfter leaves out the sync of a directory behind renames from one suffix to another.
func noSyncAfter(from, to string) func(vfs.FS) vfs.FS {
	return func(f vfs.FS) vfs.FS {
		skip := false
		l := &liar{FS: f}
		l.rename = func(old, new string) (bool, error) {
			skip = strings.HasSuffix(old, from) && strings.HasSuffix(new, to) || skip && !strings.HasSuffix(new, ".log.swap")
			return false, nil
		}
		l.skipSyncDir = func(string) bool {
			s := skip
			skip = false
			return s
		}
		return l
	}
}

// deleteBeforeRename takes an old segment aside before the new one that stands for it is complete.
func deleteBeforeRename(f vfs.FS) vfs.FS {
	l := &liar{FS: f}
	l.rename = func(old, new string) (bool, error) {
		if live, ok := strings.CutSuffix(old, ".cleaned"); ok && strings.HasSuffix(live, ".log") {
			return false, errors.Join(f.Rename(live, live+".deleted"), f.SyncDir(path.Dir(live)))
		}
		if strings.HasSuffix(new, ".log.deleted") {
			err := f.Rename(old, new)
			if errors.Is(err, fs.ErrNotExist) {
				err = nil // it is aside already
			}
			return true, err
		}
		return false, nil
	}
	return l
}

// lateCleanerCheckpoint leaves the second writing of the cleaner's checkpoint to the third.
func lateCleanerCheckpoint(f vfs.FS) vfs.FS {
	l, n := &liar{FS: f}, 0
	l.rename = func(old, new string) (bool, error) {
		if old == cleanerTmp {
			n++
		}
		return old == cleanerTmp && n == 2, nil
	}
	return l
}
