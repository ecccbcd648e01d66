package log

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// A simulation has to play the same twice: with one log at a time the files of many are touched in the order of their names,
// by the same goroutine, whatever a map makes of it.
func TestAManualDirWithOneLogAtATimeWorksInOrder(t *testing.T) {
	fault := vfstest.NewFault(vfs.Mem())
	b := newRootBed(t, fault, DirConfig{SyncParallelism: 1, InitialDelay: time.Millisecond})
	var touched []string
	note := func(op vfstest.Op) error {
		folder, _, found := strings.Cut(op.Name, "/")
		if n := len(touched); found && (n == 0 || touched[n-1] != folder) {
			touched = append(touched, folder)
		}
		return nil
	}
	names := []string{"t-0", "t-1", "t-2", "t-3", "t-4", "t-5", "t-6", "t-7", "t-8", "t-9", "u-0"}
	for i := range names {
		topic, partition := "t", int32(i)
		if i == 10 {
			topic, partition = "u", 0
		}
		l := b.log(topic, partition, Config{RetentionBytes: 1, SegmentBytes: 200})
		for range 4 {
			add(t, l, "some bytes", "and more")
		}
	}
	fault.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpSync, vfstest.OpSyncData, vfstest.OpWrite, vfstest.OpRename}, Times: vfstest.Always, Hook: note})
	b.clock.advance(10 * time.Minute)
	require.NoError(t, b.RunOnce(ctx, b.clock.now()))
	require.Subset(t, touched, names)
	for i := range touched { // each kind of work begins with the first again
		require.True(t, i == 0 || touched[i-1] < touched[i] || touched[i] == "t-0", "%v", touched)
	}
	touched = nil
	require.NoError(t, b.Dir.Close())
	require.Equal(t, names, touched)
}
