package index

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// Each call on the disk fails once, in four ways, anywhere in the life of an index: whatever is asked for then happens
// whole or not at all, and works when it is tried again.
func TestAnyFailingCallLeavesTheIndexAsItWasAndCanBeTriedAgain(t *testing.T) {
	eio := errors.New("eio")
	for name, rule := range map[string]vfstest.Rule{
		"refused": {Err: eio},
		"partial": {Err: eio, Short: true, Keep: 2051},
		"done":    {Err: eio, Done: true},
	} {
		for _, mode := range []MapMode{Auto, Never} {
			t.Run(fmt.Sprintf("%s, mode %d", name, mode), func(t *testing.T) {
				for nth, hit := 1, true; hit; nth++ {
					rule.Nth = nth
					rule.Ops = []vfstest.Kind{vfstest.OpOpen, vfstest.OpRead, vfstest.OpWrite, vfstest.OpTruncate, vfstest.OpSize, vfstest.OpMap}
					mem := vfs.Mem()
					disk := vfstest.NewFault(mem)
					hits, _ := disk.Add(rule)
					es := liveThrough(t, Options{FS: disk, Map: mode, Budget: NewBudget(1)}, eio)
					require.Equal(t, bytesOf(0, es...), contents(t, Options{FS: mem}, file))
					hit = hits() > 0
				}
			})
		}
	}
}

// liveThrough takes an index through its life, trying again what fails, and returns the entries its file must hold.
func liveThrough(t *testing.T, o Options, eio error) []Entry {
	t.Helper()
	es := steps(0, 1300)
	again := func(step string, do func() error) {
		t.Helper()
		err := do()
		if err != nil {
			require.ErrorIs(t, err, eio, step)
			err = do()
		}
		require.NoError(t, err, step)
	}
	var x *Index
	again("create", func() (err error) {
		if x, err = Create(file, 0, o); err != nil {
			_ = o.FS.Remove(file) // one of "done"
		}
		return err
	})
	see := func(want []Entry) {
		t.Helper()
		require.NoError(t, x.Load())
		require.Equal(t, len(want), x.Len())
		again("look-up", func() error {
			for i := 0; i < len(want); i += 97 {
				e, err := x.Lookup(want[i].Offset + 3)
				if err != nil {
					return err
				}
				require.Equal(t, want[i], e)
			}
			return nil
		})
	}
	fill := func(es []Entry) {
		for _, e := range es {
			again("append", func() error { return x.Append(e) })
		}
	}
	fill(es)
	see(es)
	again("flush", x.Flush)
	again("truncate", func() error { return x.Truncate(es[700].Offset) })
	see(es[:700])
	fill(es[700:1100])
	again("seal", x.Seal)
	again("load", x.Load)
	see(es[:1100])
	again("unseal", func() error { return x.Truncate(es[1025].Offset) })
	see(es[:1025])
	fill(es[1025:1200])
	again("flush", x.Flush)
	require.NoError(t, x.Close())
	require.Zero(t, o.Budget.Mappings()+o.Budget.Files())
	return es[:1200]
}
