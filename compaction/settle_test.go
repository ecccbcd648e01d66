package compaction

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/vfs"
)

// Scenario: C038. What a cleaning leaves at each step of its swap, and what becomes of it.
// Report: B011, B201
func TestWhatSettleSays(t *testing.T) {
	// interrupted is a folder with a finished group that is not swapped in: a=1 b=1 | a=2 become b=1 a=2.
	interrupted := func(t *testing.T) *world {
		w := newWorld(t, vfs.Mem())
		w.add(plain(0, "a=1", "b=1"))
		w.add(plain(2, "a=2"))
		w.add(plain(3, "x=1"))
		w.sync()
		in := w.input()
		in.Keep = func(context.Context, Group) error { return ErrUnsettled } // the files stay
		_, err := Run(context.Background(), in)
		require.ErrorIs(t, err, ErrUnsettled)
		w.close()
		return w
	}
	const name = "00000000000000000000"
	old, clean := []string{"0:a=1", "1:b=1", "2:a=2", "3:x=1"}, []string{"1:b=1", "2:a=2", "3:x=1"}
	rename := func(from, to string, kinds ...string) func(w *world) {
		return func(w *world) {
			for _, kind := range kinds {
				require.NoError(w.t, w.fs.Rename(folder+"/"+name+kind+from, folder+"/"+name+kind+to))
			}
		}
	}
	all := []string{".log", ".index", ".timeindex"}
	retire := func(base int64) func(w *world) {
		return func(w *world) {
			for _, kind := range all {
				require.NoError(w.t, w.fs.Rename(fileName(folder, base, kind, ""), fileName(folder, base, kind, deleted)))
			}
		}
	}
	for _, row := range []struct {
		name          string
		do            []func(w *world)
		want          []string
		back, forward int
	}{
		{"all .cleaned", nil, old, 3, 0},
		{"the log already .swap", []func(*world){rename(".cleaned", ".swap", ".log")}, old, 3, 0},
		{"all .swap, old files there", []func(*world){rename(".cleaned", ".swap", all...)}, clean, 0, 3},
		{"all .swap, the first old one .deleted", []func(*world){rename(".cleaned", ".swap", all...), retire(0)}, clean, 0, 3},
		{"all .swap, old files .deleted", []func(*world){rename(".cleaned", ".swap", all...), retire(0), retire(2)}, clean, 0, 3},
		{"one index still .swap", []func(*world){rename(".cleaned", ".swap", all...), retire(0), retire(2), rename(".swap", "", ".log", ".timeindex")}, clean, 0, 1},
		{"only .deleted is left", []func(*world){rename(".cleaned", ".swap", all...), retire(0), retire(2), rename(".swap", "", all...)}, clean, 0, 0},
		{"an index is missing", []func(*world){rename(".cleaned", ".swap", all...), func(w *world) { require.NoError(w.t, w.fs.Remove(folder+"/"+name+".index.swap")) }}, clean, 0, 2},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := interrupted(t)
			for _, f := range row.do {
				f(w)
			}
			out, err := Settle(folder, w.o)
			require.NoError(t, err)
			require.Len(t, out.RolledBack, row.back)
			require.Len(t, out.RolledForward, row.forward)
			for _, name := range out.RolledForward {
				require.True(t, strings.HasPrefix(name, folder+"/"))
				require.NotContains(t, name, swapping)
			}
			w.reopen()
			require.Equal(t, row.want, w.kvs())
			for i := range w.segs {
				p, err := w.segs[i].Find(w.segs[i].Base())
				require.NoError(t, err)
				require.GreaterOrEqual(t, p.Base, w.segs[i].Base())
			}
			again, err := Settle(folder, w.o)
			require.NoError(t, err)
			require.Equal(t, Settled{}, again)
		})
	}
	t.Run("an unreadable .swap", func(t *testing.T) {
		w := interrupted(t)
		rename(".cleaned", ".swap", all...)(w)
		f := must(w.fs.OpenFile(folder+"/"+name+".log.swap", 2, 0))
		must(f.WriteAt([]byte{1}, 30))
		require.NoError(t, f.Close())
		before := w.files()
		_, err := Settle(folder, w.o)
		require.ErrorIs(t, err, segment.ErrCorrupt)
		require.Equal(t, before, w.files())
	})
	t.Run("a .swap that ends within its last batch", func(t *testing.T) {
		for _, less := range []int64{1, 20, int64(len(plain(2, "a=2"))) - 1} {
			w := interrupted(t)
			rename(".cleaned", ".swap", all...)(w)
			f := must(w.fs.OpenFile(folder+"/"+name+".log.swap", 2, 0))
			require.NoError(t, f.Truncate(must(f.Size())-less))
			require.NoError(t, f.Close())
			before := w.files()
			_, err := Settle(folder, w.o)
			require.ErrorIs(t, err, segment.ErrCorrupt, "%d bytes are gone", less)
			require.Equal(t, before, w.files())
		}
	})
	// Everything behind it would have gone.
	t.Run("a .swap whose last batch was moved", func(t *testing.T) {
		for pos, bits := range map[int64]byte{0: 0x01, 7: 0x08, 6: 0x01} {
			for _, do := range [][]func(*world){nil, {retire(0)}, {retire(0), retire(2)}} {
				w := interrupted(t)
				rename(".cleaned", ".swap", all...)(w)
				for _, f := range do {
					f(w)
				}
				at := int64(len(must(vfs.ReadFile(w.fs, folder+"/"+name+".log.swap", 1<<20))) - len(plain(2, "a=2")))
				f := must(w.fs.OpenFile(folder+"/"+name+".log.swap", 2, 0))
				var b [1]byte
				must(f.ReadAt(b[:], at+pos))
				must(f.WriteAt([]byte{b[0] ^ bits}, at+pos))
				require.NoError(t, f.Close())
				before := w.files()
				_, err := Settle(folder, w.o)
				bad, _ := errors.AsType[*segment.CorruptError](err)
				require.NotNil(t, bad, "%v", err)
				require.Equal(t, []any{folder + "/" + name + ".log.swap", at}, []any{bad.File, bad.Position})
				require.Equal(t, before, w.files())
			}
		}
	})
	t.Run("no folder", func(t *testing.T) {
		_, err := Settle("nowhere", segment.Options{FS: vfs.Mem()})
		require.Error(t, err)
	})
}
