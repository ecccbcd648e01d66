package compaction

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
)

// Offsets near the largest that there is, gaps that no index can span, keys of no byte and of a MiB, logs of tombstones alone.
func TestExtremesAreCleaned(t *testing.T) {
	big := strings.Repeat("k", 1<<20)
	t.Run("keys", func(t *testing.T) {
		for _, exact := range []bool{false, true} {
			w := newWorld(t, vfs.Mem())
			w.c.ExactKeys = exact
			empty := func(base int64, v string) []byte {
				b := record.NewBuilder(record.BuilderOptions{})
				b.SetBaseOffset(base)
				must(0, b.AddAt(record.Record{Offset: base, Key: []byte{}, Value: []byte(v)}))
				return bytes.Clone(must(b.Finish()).Bytes())
			}
			w.add(empty(0, "1"), plain(1, big+"=1", big+"x=1"))
			w.add(empty(3, "2"), plain(4, big+"=2"))
			w.add(plain(5, "x=1"))
			w.mustClean()
			got := w.kvs()
			require.Len(t, got, 4)
			require.Equal(t, []string{"3:=2", "4:" + big + "=2", "5:x=1"}, got[1:])
		}
	})
	t.Run("offsets", func(t *testing.T) {
		const end = math.MaxInt64 - 10
		far := func(base int64, kvs ...string) []byte {
			raw := plain(0, kvs...)
			b := must(record.View(raw))
			b.SetBaseOffset(base)
			return raw
		}
		w := newWorld(t, vfs.Mem())
		w.add(far(0, "a=0", "b=0"))
		w.add(far(math.MaxInt32-1, "a=1"))
		w.add(far(1<<40, "a=2", "c=2"))
		w.add(far(end, "a=3", "d"))
		w.add(far(end+4, "x=1"))
		w.mustClean()
		require.Equal(t, []string{"1:b=0", fmt.Sprint(int64(1<<40+1), ":c=2"), fmt.Sprint(int64(end), ":a=3"), fmt.Sprint(int64(end+1), ":d"), fmt.Sprint(int64(end+4), ":x=1")}, w.kvs())
		before := w.lines()
		w.dirty = 0
		w.mustClean()
		require.Equal(t, before, w.lines())
	})
	t.Run("tombstones", func(t *testing.T) {
		w := newWorld(t, vfs.Mem())
		w.c.DeleteRetention = Immediately
		for i := range int64(20) {
			w.add(plain(3*i, "a", "b", fmt.Sprint("k", i)))
		}
		w.add(plain(60, "x=1"))
		w.mustClean()
		w.dirty = 0
		w.mustClean()
		require.Equal(t, []string{"60:x=1"}, w.kvs())
		require.Equal(t, int64(60), must(w.segs[0].NextOffset()), "the end of the range stays")
	})
	t.Run("many segments", func(t *testing.T) {
		w := newWorld(t, vfs.Mem())
		for i := range int64(2000) {
			w.add(plain(i, fmt.Sprint("k", i%7, "=", i)))
		}
		out := w.mustClean()
		require.Equal(t, 1, out.Groups)
		require.Len(t, w.segs, 2)
		require.Len(t, w.kvs(), 8)
	})
	t.Run("bounds that make no sense", func(t *testing.T) {
		for _, b := range []Bounds{{}, {FirstDirty: -5, Uncleanable: -1}, {FirstDirty: math.MinInt64, Uncleanable: math.MaxInt64},
			{FirstDirty: math.MaxInt64, Uncleanable: math.MaxInt64}, {FirstDirty: 3, Uncleanable: 1}, {FirstDirty: 2, Uncleanable: 3}} {
			w := newWorld(t, vfs.Mem())
			w.add(plain(0, "a=0", "b=0"))
			w.add(plain(2, "a=1", "b=1"))
			w.add(plain(4, "x=1"))
			_, err := w.clean(func(in *Input) { in.Bounds = b })
			require.NoError(t, err, "%+v", b)
			got := map[string]string{}
			for _, r := range w.view().records {
				k, v, _ := strings.Cut(r.kv, "=")
				got[k] = v
			}
			require.Equal(t, map[string]string{"a": "1", "b": "1", "x": "1"}, got, "%+v", b)
		}
	})
}
