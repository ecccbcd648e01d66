package log

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// copying is one call that makes a copy: of root or bk, to the name it returns.
type copying struct {
	name    string
	prepare func(t testing.TB, fsys vfs.FS)
	call    func(t testing.TB, fsys vfs.FS) error
	to      string // the copy
	live    string // the partition in it that appears at once; "" the whole
	source  string
	end     int64
}

// restWithBackup makes root (of backedUp, at rest), and bk, a backup of it.
func restWithBackup(t testing.TB, fsys vfs.FS) {
	b := backedUp(t, fsys)
	_, err := b.SetHighWatermark(12)
	require.ErrorIs(t, err, ErrVisibility)
	_, err = b.Backup(context.Background(), "bk", BackupOptions{FS: fsys, Copy: true})
	require.NoError(t, err)
	require.NoError(t, b.dir.Close())
}

func copyings() []copying {
	backup := func(o BackupOptions) func(t testing.TB, fsys vfs.FS) error {
		return func(t testing.TB, fsys vfs.FS) error {
			root, err := vfs.Sub(fsys, "root")
			require.NoError(t, err)
			d, err := OpenDir("root", DirConfig{FS: root, Manual: true, NoEvict: true})
			if err != nil {
				return err
			}
			o := o // of this call: several run at once
			o.FS = fsys
			_, err = d.Backup(context.Background(), "to", o)
			return errors.Join(err, d.Close())
		}
	}
	restore := func(t testing.TB, fsys vfs.FS) error {
		_, err := Restore(context.Background(), "bk", "to", RestoreOptions{From: fsys, FS: fsys})
		return err
	}
	other := func(t testing.TB, fsys vfs.FS) {
		restWithBackup(t, fsys)
		d, err := OpenDir("to", DirConfig{FS: subtree(t, fsys, "to"), Manual: true})
		require.NoError(t, err)
		l, err := d.Open(context.Background(), TopicPartition{"u", 0}, Config{})
		require.NoError(t, err)
		_, err = l.Append(context.Background(), values(2, 4)...)
		require.NoError(t, err)
		require.NoError(t, d.Close())
	}
	handover := func(t testing.TB, fsys vfs.FS) error {
		_, err := Handover(context.Background(), "bk", "to", HandoverOptions{From: fsys, FS: fsys, Topics: map[string][16]byte{"t": foreignID}})
		return err
	}
	return []copying{
		{"a backup by links", restWithBackup, backup(BackupOptions{}), "to", "", "root", 12},
		{"a backup by copies", restWithBackup, backup(BackupOptions{Copy: true}), "to", "", "root", 12},
		{"a restore to a new root", restWithBackup, restore, "to", "", "bk", 12},
		{"a restore into a root", other, restore, "to", "t-0", "bk", 12},
		{"a hand-over to a new directory", restWithBackup, handover, "to", "", "bk", 12},
		{"a hand-over into a root", other, handover, "to", "t-0", "bk", 12},
	}
}

// whole looks whether the copy is there as a whole, or not at all. mustBe: it must be there.
func (c *copying) whole(fsys vfs.FS, mustBe bool) error {
	if !exists(fsys, c.place()) {
		if mustBe {
			return errors.New("the copy is not there")
		}
		return c.others(fsys)
	}
	if err := c.opens(fsys, c.to, 0, c.end); err != nil {
		return fmt.Errorf("the copy: %w", err)
	}
	return c.others(fsys)
}

// place is what appears at once.
func (c *copying) place() string {
	if c.live == "" {
		return c.to
	}
	return c.to + "/" + c.live
}

// others looks after what was there before: the source, and the other partition of an existing root.
func (c *copying) others(fsys vfs.FS) error {
	if c.live != "" {
		if err := c.holds(fsys, c.to, TopicPartition{"u", 0}, 2); err != nil {
			return fmt.Errorf("the other partition: %w", err)
		}
	}
	return c.opens(fsys, c.source, 0, 12)
}

// opens looks whether t-0 of a root holds all offsets.
func (c *copying) opens(fsys vfs.FS, root string, _, end int64) error {
	return c.holds(fsys, root, TopicPartition{"t", 0}, end)
}

func (c *copying) holds(fsys vfs.FS, root string, tp TopicPartition, end int64) error {
	sub, err := vfs.Sub(fsys, root)
	if err != nil {
		return err
	}
	d, err := OpenDir(root, DirConfig{FS: vfs.Overlay(sub), Manual: true, NoEvict: true})
	if err != nil {
		return err
	}
	defer d.Close()
	if _, foreign, err := d.Folders(); err != nil || len(foreign) > 0 {
		return fmt.Errorf("%s holds %v, over which no broker starts (%w)", root, foreign, err)
	}
	l, err := d.Open(context.Background(), tp, Config{})
	if err != nil {
		return err
	}
	if r := l.Recovery(); len(r.Findings) > 0 || r.Cut > 0 {
		return fmt.Errorf("%s: %+v", root, r)
	}
	if o := l.Offsets(); o.LogStart != 0 || o.LogEnd != end {
		return fmt.Errorf("%s holds %d to %d, want 0 to %d", root, o.LogStart, o.LogEnd, end)
	}
	got, err := offsetsOf(l.Records(context.Background(), 0))
	if err == nil && !slices.Equal(got, offsetsIn(0, end)) {
		err = fmt.Errorf("%s has the offsets %v", root, got)
	}
	return err
}

func TestACrashLeavesAWholeCopyOrNoneAndTheRestAsItWas(t *testing.T) {
	for _, c := range copyings() {
		for _, kill := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, kill %v", c.name, kill), func(t *testing.T) {
				t.Parallel()
				crash := vfstest.NewCrash(vfstest.CrashOptions{Now: crashClock})
				c.prepare(t, crash)
				crash.Mark()
				require.NoError(t, c.call(t, crash))
				crash.Note("returned")
				disks, again := 0, 0
				for disk := range crash.Disks(vfstest.DiskOptions{Kill: kill, Limit: 1, Samples: 2, Cuts: 1, NoTorn: true}) {
					disks++
					returned := len(disk.Notes()) > 0
					found := disk.FS()
					err := c.whole(found, returned)
					if err == nil && disks%7 == 0 && !exists(found, c.place()) {
						again++
						if err = c.call(t, found); err == nil {
							err = c.whole(found, true)
						}
						if err == nil && c.live == "" && exists(found, c.to+partialSuffix) {
							err = errors.New("what the crash left is still there")
						}
					}
					if err != nil {
						t.Fatalf("%v\n%s", err, disk.Describe())
					}
				}
				require.Greater(t, disks, 20)
				require.Positive(t, again)
			})
		}
	}
}

func TestACallThatFailsLeavesAWholeCopyOrNoneAndTheRestAsItWas(t *testing.T) {
	for _, c := range copyings() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, cause := range []error{syscall.ENOSPC, syscall.EIO} {
				for n := 1; ; n += 1 + n/60 { // each of the first, some of the later ones
					mem := vfs.Mem()
					c.prepare(t, mem)
					before := treeOf(t, mem)
					fault := vfstest.NewFault(mem)
					hits, _ := fault.Add(vfstest.Rule{Nth: n, Err: cause, Ops: changing(cause)})
					err := c.call(t, fault)
					if hits() == 0 {
						require.NoError(t, err)
						require.Greater(t, n, 40)
						break
					}
					require.NoError(t, c.whole(mem, false), "call %d, %v", n, cause)
					if err != nil && cause == syscall.ENOSPC && c.source == "bk" { // else it may be that of OpenDir
						require.True(t, errors.Is(err, ErrNoSpace), "call %d: %v", n, err)
					}
					if c.source == "bk" {
						require.Equal(t, only(before, "bk/"), only(treeOf(t, mem), "bk/"), "call %d", n)
					}
				}
			}
		})
	}
}

// changing are the calls that a full disk refuses; nil, all calls, for other errors.
func changing(cause error) []vfstest.Kind {
	if cause == syscall.ENOSPC {
		return []vfstest.Kind{vfstest.OpCreate, vfstest.OpWrite, vfstest.OpMkdir, vfstest.OpLink, vfstest.OpAllocate}
	}
	return nil
}

// only is the part of a tree below a directory, without its lock.
func only(tree map[string]string, below string) map[string]string {
	tree = maps.Clone(tree)
	maps.DeleteFunc(tree, func(name, _ string) bool {
		return !strings.HasPrefix(name, below) || name == below+lockFile
	})
	return tree
}

func TestWhatAnInterruptedBackupLeftIsRemovedByTheNext(t *testing.T) {
	mem := vfs.Mem()
	b := backedUp(t, mem)
	part := subtree(t, mem, "to.partial/t-0")
	require.NoError(t, checkpoint.WriteFile(part, "00000000000000000000.log", []byte("half")))
	_, err := b.Backup(context.Background(), "to", BackupOptions{FS: mem})
	require.NoError(t, err)
	sound(t, subtree(t, mem, "to"))
	_, err = mem.Stat("to.partial")
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestABackupThatIsCancelledLeavesNothing(t *testing.T) {
	mem := vfs.Mem()
	b := backedUp(t, mem)
	before := treeOf(t, mem)
	ctx, cancel := context.WithCancel(context.Background())
	_, err := b.Backup(ctx, "to", BackupOptions{FS: mem, Copy: true, Progress: func(CopyProgress) { cancel() }})
	require.ErrorIs(t, err, context.Canceled)
	after := treeOf(t, mem)
	delete(after, "root/"+checkpoint.RecoveryPoints)
	delete(before, "root/"+checkpoint.RecoveryPoints)
	delete(after, "root/"+hintFile)
	delete(before, "root/"+hintFile)
	for name := range before {
		require.Contains(t, after, name)
	}
	require.NotContains(t, strings.Join(slices.Collect(maps.Keys(after)), " "), "to")
}
