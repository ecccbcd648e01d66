package compaction

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/vfs"
)

func TestBasic(t *testing.T) {
	w := newWorld(t, vfs.Mem())
	w.add(plain(0, "a=1", "b=1"), plain(2, "a=2", "c=1"))
	w.add(plain(4, "a=3", "d=1"), plain(6, "b"))
	w.add(plain(7, "z=9"))
	out := w.mustClean()
	t.Logf("%+v", out)
	require.Equal(t, []string{"3:c=1", "4:a=3", "5:d=1", "6:b", "7:z=9"}, w.kvs())
	t.Log(w.lines(), w.files())
	out = w.mustClean(func(in *Input) { in.Bounds.FirstDirty = 0 })
	t.Logf("%+v", out)
	t.Log(w.lines())
}
