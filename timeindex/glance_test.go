package timeindex

import (
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/index"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

func TestAGlanceReadsTheLastEntryAndNothingElse(t *testing.T) {
	trace := vfstest.NewTrace(vfs.Mem())
	o := index.Options{FS: trace}
	x, err := Create("x", 7, o)
	require.NoError(t, err)
	for i := range int64(1000) {
		require.NoError(t, x.AppendLast(Entry{Timestamp: 10 + i, Offset: 7 + i}))
		if i == 0 || i == 63 || i == 64 || i == 999 {
			require.NoError(t, x.Flush())
			trace.Reset()
			e, err := Glance("x", 7, o)
			require.NoError(t, err)
			require.Equal(t, Entry{Timestamp: 10 + i, Offset: 7 + i}, e)
			require.Equal(t, 1, trace.Count(vfstest.OpRead))
			require.Equal(t, 4, trace.Count(), trace.String())
		}
	}
	require.NoError(t, x.Close())
	_, err = Glance("y", 7, o)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestAGlanceTrustsNothingThatLooksOdd(t *testing.T) {
	entries := func(all ...Entry) (b []byte) {
		for _, e := range all {
			raw := encode(0, e)
			b = append(b, raw[:]...)
		}
		return b
	}
	for name, b := range map[string][]byte{
		"nothing":               nil,
		"a partial entry":       entries(Entry{1, 1})[:7],
		"a partial one behind":  append(entries(Entry{1, 1}), 0),
		"padding":               append(entries(Entry{1, 1}), make([]byte, 24)...),
		"a timestamp that fell": entries(Entry{5, 1}, Entry{4, 2}),
		"one that stayed":       entries(Entry{5, 1}, Entry{5, 2}),
		"an offset that fell":   entries(Entry{5, 2}, Entry{6, 1}),
		"one below the base":    entries(Entry{5, -2}),
	} {
		fsys := vfs.Mem()
		put(t, index.Options{FS: fsys}, b)
		_, err := Glance(file, 0, index.Options{FS: fsys})
		require.ErrorIs(t, err, index.ErrDamaged, name)
	}
}
