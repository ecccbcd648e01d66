package compaction

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// finalStates are the states a case goes through when nothing fails.
func finalStates(t *testing.T, cc crashCase) []string {
	w := newWorld(t, vfs.Mem())
	cc.make(w)
	w.sync()
	states := []string{must(allOf(w.fs))}
	require.NoError(t, cc.work(w, &states))
	w.close()
	return states
}

// Every call of every kind fails once, or from then on. The old segments stay, whole and in use, until all the new ones are
// in their place; nothing is left lying about; and what failed once succeeds the next time.
func TestEveryCallOfACleaningMayFail(t *testing.T) {
	for _, cc := range crashCases() {
		t.Run(cc.name, func(t *testing.T) {
			want := finalStates(t, cc)
			for _, cause := range []error{syscall.ENOSPC, syscall.EIO} {
				for nth := 1; oneFault(t, cc, want, vfstest.Rule{Nth: nth, Err: &fs.PathError{Op: "call", Path: "x", Err: cause}}); nth++ {
				}
			}
			for nth := 1; oneFault(t, cc, want, vfstest.Rule{Nth: nth, Times: vfstest.Always, Err: syscall.EIO}); nth++ {
			}
		})
	}
}

// oneFault is false once the rule has nothing to disturb.
func oneFault(t *testing.T, cc crashCase, want []string, rule vfstest.Rule) (hit bool) {
	f := vfstest.NewFault(vfs.Mem())
	w := newWorld(t, f)
	defer w.close()
	cc.make(w)
	w.sync()
	hits, _ := f.Add(rule)
	states := []string{""}
	err := safely(func() error { return cc.work(w, &states) })
	f.Clear()
	if hits() == 0 {
		require.NoError(t, err)
		return false
	}
	got := must(allOf(w.fs))
	if err == nil { // a call that may fail, such as that for free space
		require.Equal(t, want[len(want)-1], got, "call %d", rule.Nth)
		return true
	}
	if !errors.Is(err, errDied) {
		require.True(t, errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EIO), "call %d: %v", rule.Nth, err)
	}
	if once := rule.Times == 0; once && !errors.Is(err, errDied) {
		require.NotErrorIs(t, err, ErrUnsettled)
		require.Contains(t, want, got, "call %d: %v", rule.Nth, err)
		for _, name := range w.files() {
			if cc.run != nil {
				break // a split that fails leaves its own files to the next one
			}
			require.False(t, strings.HasSuffix(name, cleaned) || strings.HasSuffix(name, swapping), "call %d leaves %s: %v", rule.Nth, name, err)
		}
		if got == want[0] {
			v, err := viewOf(w.segs)
			require.NoError(t, err, "what was in use still is, call %d", rule.Nth)
			require.Contains(t, got, strings.Join(v.batches, " "))
		}
	}
	got, settleErr := settled(f)
	require.NoError(t, settleErr, "call %d: %v", rule.Nth, err)
	require.GreaterOrEqual(t, slices.Index(want, got), 0, "call %d: %v\n%s", rule.Nth, err, got)
	if got == want[0] {
		w.reopen()
		require.NoError(t, cc.work(w, &states), "call %d: %v", rule.Nth, err)
		require.Equal(t, want[len(want)-1], must(allOf(w.fs)))
	}
	return true
}

var errDied = errors.New("the check itself met the fault")

// safely turns the panic of a check that ran into the fault into an error.
func safely(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = errDied
		}
	}()
	return f()
}

func TestSwapRefusesWhatDoesNotFit(t *testing.T) {
	w := newWorld(t, vfs.Mem())
	w.add(plain(0, "a=1"))
	for _, bases := range [][]int64{nil, {1}, {0, 5, 3}} {
		_, err := Swap(folder, w.o, w.segs, bases)
		require.Error(t, err)
	}
	before := must(allOf(w.fs))
	_, err := Swap(folder, w.o, w.segs, []int64{0}) // there is nothing to swap in
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NotErrorIs(t, err, ErrUnsettled)
	require.Equal(t, before, must(allOf(w.fs)))
}
