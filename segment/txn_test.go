package segment

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/vfs/vfstest"
)

// Whoever holds a deleted segment must learn of every aborted transaction, or that one cannot be told.
func TestAnUnreadableIndexOfADeletedSegmentIsNoEmptyOne(t *testing.T) {
	eio := errors.New("eio")
	disk := vfstest.NewFault(memFS(t))
	s := create(t, 0, Options{FS: disk})
	fill(t, s, 20)
	require.NoError(t, s.AppendAborted(AbortedTxn{1, 3, 5, 6}))
	require.True(t, s.Retain())
	disk.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpRead}, Times: vfstest.Always, Hook: func(op vfstest.Op) error {
		if strings.HasSuffix(op.Name, txnSuffix) {
			return eio
		}
		return nil
	}})
	_ = s.Delete()
	_, _, err := s.Aborted(0, 20)
	require.ErrorIs(t, err, eio)
	s.Release()
	_ = s.Close()
}
