package compaction

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// allOf is everything of a settled folder that anyone can read: batches, records, aborted transactions.
func allOf(fsys vfs.FS) (string, error) {
	o := segment.Options{FS: fsys}
	bases, err := segment.List(fsys, folder)
	if err != nil {
		return "", err
	}
	var segs []*segment.Segment
	defer func() {
		for _, s := range segs {
			s.Abandon()
		}
	}()
	var out strings.Builder
	for _, base := range bases {
		s, err := segment.Open(folder, base, o)
		if err != nil {
			return "", err
		}
		segs = append(segs, s)
		all, _, err := s.Aborted(0, 1<<62)
		if err != nil {
			return "", err
		}
		fmt.Fprintln(&out, base, all)
	}
	v, err := viewOf(segs)
	fmt.Fprintln(&out, v.batches, v.records)
	return out.String(), err
}

func settled(fsys vfs.FS) (string, error) {
	if _, err := Settle(folder, segment.Options{FS: fsys}); err != nil {
		return "", err
	}
	for _, e := range must(fsys.ReadDir(folder)) {
		if strings.HasSuffix(e.Name(), swapping) || strings.HasSuffix(e.Name(), cleaned) {
			return "", fmt.Errorf("%s is left", e.Name())
		}
	}
	return allOf(fsys)
}

// crashCase is a folder and its cleaning.
type crashCase struct {
	name string
	make func(w *world)
	run  func(w *world) error // nil = Run
}

func crashCases() []crashCase {
	return []crashCase{
		{name: "one group, with aborted transactions", make: func(w *world) {
			w.producers = map[int64]LastBatch{1: {Offset: 1}}
			w.add(plain(0, "a=1"), tx(1, 0, 1, "b=1"))
			w.add(plain(2, "a=2"), end(false, 1, 3))
			w.aborted(1, 1, 1, 3, 4)
			w.add(plain(4, "x=1"))
		}},
		{name: "three groups", make: func(w *world) {
			w.o.MaxBytes = 150
			for i := range int64(3) {
				w.add(plain(2*i, "k=1"), plain(2*i+1, fmt.Sprintf("l%d=1", i)))
			}
			w.add(plain(6, "x=1"))
		}},
		{name: "a split", make: func(w *world) {
			w.add(plain(0, "a=1"), tx(1, 0, 1, "z=1"), end(false, 1, 2))
			w.aborted(0, 1, 1, 2, 3)
			w.add(plain(1<<40, "x=1"))
			f := must(w.fs.OpenFile(w.segs[0].File(), 2, 0))
			must(f.WriteAt(plain(1<<32, "b=1"), w.segs[0].Size()))
			require.NoError(w.t, f.Close())
			w.reopen()
		}, run: func(w *world) error {
			parts, err := segment.Split(context.Background(), w.segs[0])
			if err != nil {
				return err
			}
			var bases []int64
			for _, p := range parts {
				bases = append(bases, p.Base())
				if err := p.Close(); err != nil {
					return err
				}
			}
			live, err := Swap(folder, w.o, w.segs[:1], bases)
			for _, s := range live {
				s.Abandon()
			}
			return err
		}},
	}
}

func (c crashCase) work(w *world, states *[]string) error {
	if c.run != nil {
		err := c.run(w)
		*states = append(*states, must(allOf(w.fs)))
		return err
	}
	in := w.input()
	in.Keep = func(_ context.Context, g Group) error {
		live, err := Swap(folder, w.o, g.Old, g.New)
		for _, s := range live {
			s.Abandon()
		}
		for _, s := range g.Old {
			if err == nil {
				err = s.Delete()
			}
		}
		*states = append(*states, must(allOf(w.fs)))
		return err
	}
	_, err := Run(context.Background(), in)
	return err
}

// Hard problem 3, the swap: a power loss at any point of cleaning leaves, once settled, the log before or behind one of the
// groups, never a mix; so does a power loss while it is being settled.
// Scenario: C038
// Report: B201
func TestEveryDiskAfterAPowerLossSettles(t *testing.T) {
	for _, cc := range crashCases() {
		t.Run(cc.name, func(t *testing.T) {
			c := vfstest.NewCrash(vfstest.CrashOptions{})
			w := newWorld(t, c)
			cc.make(w)
			w.sync()
			c.Mark()
			states := []string{must(allOf(c))}
			require.NoError(t, cc.work(w, &states))
			seen := map[string]int{}
			check := func(d *vfstest.Disk) *vfstest.Crash {
				fsys := d.FS()
				got, err := settled(fsys)
				require.NoError(t, err, d.Describe())
				i := slices.Index(states, got)
				require.GreaterOrEqual(t, i, 0, "%s\n%s\nis none of\n%s", d.Describe(), got, strings.Join(states, "\n"))
				seen[states[i]]++
				return fsys
			}
			n, again := 0, 0
			for d := range c.Disks(vfstest.DiskOptions{Limit: 64, Samples: 16, NoTorn: true}) {
				check(d)
				if n++; n%7 == 0 && again < 200 {
					again++
					fsys := d.FS()
					_, err := settled(fsys)
					require.NoError(t, err)
					for d2 := range fsys.Disks(vfstest.DiskOptions{Limit: 16, Samples: 4, NoTorn: true}) {
						check(d2)
					}
				}
			}
			for d := range c.Disks(vfstest.DiskOptions{Kill: true}) {
				check(d)
			}
			t.Log(n, "disks", len(seen), "states")
			require.Len(t, seen, len(states), "every state is met")
		})
	}
}

// The new segment of a group may end below old ones that it stands for, all of which went. Kafka's rule of settling cannot
// know them: they come back, whole. That is a log of which fewer segments are clean; nobody can tell it from one whose
// cleaning ended there.
func TestWhatComesBackInACrashIsNotYetClean(t *testing.T) {
	c := vfstest.NewCrash(vfstest.CrashOptions{})
	w := newWorld(t, c)
	w.add(plain(0, "a=1"))
	w.add(plain(1, "b=1"))
	w.add(plain(2, "a=2"))
	w.add(plain(3, "a=3", "b=2"))
	w.add(plain(5, "x=1"))
	w.sync()
	c.Mark()
	w.mustClean(func(in *Input) { in.Options.MaxBytes = 250 })
	for d := range c.Disks(vfstest.DiskOptions{Limit: 64, Samples: 16, NoTorn: true}) {
		fsys := d.FS()
		_, err := settled(fsys)
		require.NoError(t, err)
		v := &world{t: t, fs: fsys, o: segment.Options{FS: fsys, MaxBytes: 250}, now: at0}
		v.reopen()
		old := v.kvs()
		require.Equal(t, []string{"3:a=3", "4:b=2", "5:x=1"}, old[len(old)-3:])
		require.True(t, slices.IsSorted(old), "%v %s", old, d.Describe())
		v.mustClean()
		require.Equal(t, old[len(old)-3:], v.kvs())
		v.close()
	}
}
