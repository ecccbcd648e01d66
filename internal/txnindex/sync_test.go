package txnindex

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

func TestWhatWasWrittenBeforeAReleaseIsSyncedToo(t *testing.T) {
	disk := vfstest.NewFault(vfs.Mem())
	x := New(disk, "x.txnindex", 0)
	require.NoError(t, x.Append(four[0]))
	require.NoError(t, x.Release())
	require.NoError(t, x.Sync())
	require.Equal(t, 1, disk.Count(vfstest.OpSync))
	require.NoError(t, x.Sync())
	require.Equal(t, 1, disk.Count(vfstest.OpSync), "nothing was written since")
	require.NoError(t, x.Close())
}

// After a failed sync the pages count as clean: a second one would succeed and mean nothing.
func TestAFailedSyncIsForgivenOnlyByWritingAnew(t *testing.T) {
	eio := errors.New("eio")
	for name, op := range map[string]vfstest.Kind{"sync": vfstest.OpSync, "close": vfstest.OpClose} {
		t.Run(name, func(t *testing.T) {
			disk := vfstest.NewFault(vfs.Mem())
			x := New(disk, "x.txnindex", 0)
			require.NoError(t, x.Append(four[0]))
			disk.Add(vfstest.Rule{Ops: []vfstest.Kind{op}, Err: eio})
			if op == vfstest.OpSync {
				require.ErrorIs(t, x.Sync(), eio)
			} else {
				require.ErrorIs(t, x.Release(), eio)
			}
			require.ErrorIs(t, x.Sync(), eio)
			require.NoError(t, x.Append(four[1]))
			require.ErrorIs(t, x.Sync(), eio)
			require.NoError(t, x.Reset())
			require.NoError(t, x.Append(four[0]))
			require.NoError(t, x.Sync())
			require.Equal(t, four[:1], all(t, x))
			require.NoError(t, x.Close())
		})
	}
}

// Every call on the disk fails once: a change happens whole or not at all, and works when tried again.
func TestAnyFailingCallLeavesTheEntriesAsTheyWereAndCanBeTriedAgain(t *testing.T) {
	eio := errors.New("eio")
	for _, short := range []bool{false, true} {
		for nth := 1; ; nth++ {
			disk := vfstest.NewFault(vfs.Mem())
			hits, _ := disk.Add(vfstest.Rule{Nth: nth, Err: eio, Short: short, Keep: 11})
			x := New(disk, "x.txnindex", 0)
			again := func(step string, do func() error) {
				err := do()
				if err != nil {
					require.ErrorIs(t, err, eio, step)
					err = do()
				}
				require.NoError(t, err, step)
			}
			for i, e := range four {
				again("append", func() error { return x.Append(e) })
				again("release", x.Release)
				again("read", func() error { return same(x, four[:i+1]) })
			}
			again("truncate", func() error { return x.Truncate(20) })
			again("read", func() error { return same(x, four[:2]) })
			again("append", func() error { return x.Append(four[3]) })
			again("check", x.Check)
			again("reset", x.Reset)
			again("read", func() error { return same(x, nil) })
			again("append", func() error { return x.Append(four[2]) })
			again("read", func() error { return same(x, four[2:3]) })
			again("close", x.Close)
			if hits() == 0 {
				break
			}
		}
	}
}

func same(x *Index, want []Entry) error {
	var got []Entry
	for e, err := range x.All() {
		if err != nil {
			return err
		}
		got = append(got, e)
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("%v instead of %v", got, want)
	}
	return nil
}
