package index

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

func TestACheckOpensTheFileOnce(t *testing.T) {
	trace := vfstest.NewTrace(vfs.Mem())
	o := Options{FS: trace, Budget: NewBudget(0)}
	x, err := Create("x", 0, o)
	require.NoError(t, err)
	for i := range int64(700) {
		require.NoError(t, x.Append(Entry{Offset: i + 1, Position: i + 1}))
	}
	require.NoError(t, x.Close())
	for name, how := range map[string]func(string, int64, Options) (*Index, error){"sealed": OpenSealed, "active": Open} {
		trace.Reset()
		x, err := how("x", 0, o)
		require.NoError(t, err)
		require.NoError(t, x.Check(1000))
		require.Equal(t, 1, trace.Count(vfstest.OpOpen), name+"\n"+trace.String())
		require.NoError(t, x.Close())
	}
}
