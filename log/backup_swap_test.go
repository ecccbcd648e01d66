package log

import (
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// A compaction begins to swap while a backup copies the indexes of a segment, and takes that back: the index of aborted
// transactions, which had another name for a moment, is in the backup all the same.
func TestABackupBesideASwapThatIsTakenBackHasTheIndexOfAbortedTransactions(t *testing.T) {
	disk := vfstest.NewFault(vfs.Mem())
	b := newBedOn(t, disk, swapConfig)
	fillForSwap(b)
	require.NotEmpty(t, b.committed())
	var backs, swapping bool // guarded by mu
	var mu sync.Mutex
	renamed, ended := make(chan struct{}), make(chan error, 1)
	release := make(chan struct{})
	disk.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpRename, vfstest.OpSyncDir}, Times: vfstest.Always, Hook: func(op vfstest.Op) error {
		mu.Lock()
		here := op.Kind == vfstest.OpSyncDir && op.Name == "t-0" && swapping
		swapping = !here && (swapping || strings.Contains(op.To, ".txnindex") && strings.HasSuffix(op.To, ".deleted"))
		mu.Unlock()
		if !here {
			return nil
		}
		close(renamed)
		<-release
		return syscall.EIO
	}})
	disk.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpOpen}, Name: segment.FileName(2, ".index"), Times: vfstest.Always, Hook: func(op vfstest.Op) error {
		mu.Lock()
		first := backs && op.Flag&(os.O_RDWR|os.O_WRONLY) == 0
		backs = false
		mu.Unlock()
		if first {
			go func() { ended <- errOf(b.Log.Compact(ctx, CompactOptions{Force: true})) }()
			select {
			case <-renamed:
			case <-time.After(200 * time.Millisecond): // it waits for the copying
			}
		}
		return nil
	}})
	goOn := sync.OnceFunc(func() {
		close(release)
		require.ErrorIs(t, within(t, ended), syscall.EIO)
	})
	to := vfs.Mem()
	backs = true
	_, err := b.Log.Backup(ctx, "backup", BackupOptions{FS: to, Copy: true, Progress: func(p CopyProgress) {
		if p.Phase == "copy" && strings.Contains(p.File, segment.FileName(2, ".log")) {
			goOn()
		}
	}})
	require.NoError(t, err)
	require.NoError(t, b.Err())
	sub, err := vfs.Sub(to, "backup")
	require.NoError(t, err)
	require.Contains(t, folderOf(sub, "t-0"), segment.FileName(2, ".txnindex"))
	copied := &bed{t: t, fs: sub, cfg: b.cfg, clock: b.clock}
	copied.open()
	copied.silent()
	copied.silentAtRest()
}
