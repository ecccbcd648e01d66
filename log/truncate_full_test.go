package log

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// Where there is no room to lower the checkpoints a truncation is refused, and the log goes on as if nothing had been asked. One
// whose checkpoints could not be written for another reason has failed.
func TestATruncationOnAFullDiskIsRefusedAndTheLogGoesOn(t *testing.T) {
	for name, cut := range map[string]func(b *bed) error{
		"a truncation": func(b *bed) error { return errOf(b.Truncate(ctx, 3)) },
		"a reset":      func(b *bed) error { return b.ResetTo(ctx, 100) },
	} {
		for _, file := range []string{checkpoint.RecoveryPoints, checkpoint.HighWatermarks, hintFile} {
			t.Run(name+": "+file, func(t *testing.T) {
				fault := vfstest.NewFault(vfs.Mem())
				b := newBedOn(t, fault, Config{})
				b.inSegments(1, 1, 1)
				require.NoError(t, b.Sync(ctx))
				require.NoError(t, b.dir.RunOnce(ctx, b.clock.now()))
				full := vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpWrite}, Name: file + "*", Times: vfstest.Always, Err: syscall.ENOSPC}
				_, remove := fault.Add(full)
				o := b.Offsets()
				err := cut(b)
				require.ErrorIs(t, err, ErrNoSpace)
				require.NotErrorIs(t, err, ErrFailed)
				require.NoError(t, b.Err())
				now := b.Offsets()
				require.LessOrEqual(t, now.RecoveryPoint, o.RecoveryPoint, "it may have been lowered already")
				now.RecoveryPoint = o.RecoveryPoint
				require.Equal(t, o, now)
				require.Equal(t, offsetsIn(0, 15), b.readAll(0))
				remove()
				require.NoError(t, errOf(b.Append(ctx, record.Record{Value: []byte("goes on")})))
				b.silent()
				crashed := &bed{t: t, fs: vfs.Overlay(fault), cfg: b.cfg, clock: b.clock}
				crashed.open()
				require.Equal(t, offsetsIn(0, 16), crashed.readAll(0))

				full.Err = syscall.EIO
				_, remove = fault.Add(full)
				require.ErrorIs(t, cut(b), ErrFailed)
				remove()
				require.ErrorIs(t, b.dir.Close(), ErrFailed)
				b.open()
				require.NoError(t, cut(b))
			})
		}
	}
}
