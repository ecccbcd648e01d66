package log

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// looker opens what a crash left of a roots world.
type looker struct {
	fs   *vfstest.Crash
	now  time.Time
	dirs map[string]*Dir
}

// openRoots opens both roots as a host does that was hit by a crash: moves are settled first.
func openRoots(disk *vfstest.Crash, now time.Time) (*looker, error) {
	k := &looker{fs: disk, now: now, dirs: map[string]*Dir{}}
	var all []*Dir
	for _, name := range rootNames {
		d, err := OpenDir(name, DirConfig{FS: below{disk, name}, Manual: true, InitialDelay: Immediately, Now: func() time.Time { return k.now }})
		if err != nil {
			return nil, fmt.Errorf("open %s after a crash: %w", name, err)
		}
		for file, err := range d.points.lost {
			return nil, fmt.Errorf("%s of %s: %w", file, name, err)
		}
		k.dirs[name] = d
		all = append(all, d)
	}
	return k, SettleMoves(ctx, all...)
}

// lives opens and reads all partitions.
func (k *looker) lives() (lives, error) {
	found := lives{}
	for _, name := range rootNames {
		d := k.dirs[name]
		tps, foreign, err := d.Folders()
		if err != nil || len(foreign) > 0 {
			return nil, fmt.Errorf("%s holds %v: %w", name, foreign, err)
		}
		for _, tp := range tps {
			if found[tp] != nil {
				return nil, fmt.Errorf("%v is in both roots", tp)
			}
			l, err := d.Open(ctx, tp, rootsConfig(tp, true))
			if err != nil {
				return nil, fmt.Errorf("open %v: %w", tp, err)
			}
			if found[tp], err = lifeOf(name, l); err != nil {
				return nil, fmt.Errorf("read %v: %w", tp, err)
			}
			if err := marksAgree(l); err != nil {
				return nil, fmt.Errorf("%v: %w", tp, err)
			}
		}
	}
	return found, nil
}

// marksAgree compares what the root remembers of a log with the log.
func marksAgree(l *Log) error {
	o := l.Offsets()
	if o.LogStart > o.LastStable || o.LastStable > o.HighWatermark || o.HighWatermark > o.LogEnd || o.RecoveryPoint > o.LogEnd {
		return fmt.Errorf("marks do not agree: %+v", o)
	}
	for _, name := range []string{checkpoint.RecoveryPoints, checkpoint.CleanerOffsets, checkpoint.LogStarts} {
		if at, ok, _ := l.dir.points.get(name, l.tp); ok && at > o.LogEnd {
			return fmt.Errorf("%s says %d of a log that ends at %d", name, at, o.LogEnd)
		}
	}
	for _, f := range l.Recovery().Findings {
		// A buffered log may have lost what was deleted from it.
		if f.Kind != FindingTail && !(f.Kind == FindingShort && o.LogStart == o.LogEnd) {
			return fmt.Errorf("finding %+v", f)
		}
	}
	switch e := l.Epochs(); {
	case len(e) > 1, len(e) == 1 && (e[0].Epoch != 0 || e[0].Start < o.LogStart || e[0].Start > o.LogEnd), len(e) == 0 && l.Stats().Bytes > 0 && o.LogStart < o.LogEnd:
		return fmt.Errorf("epochs %v of %+v", e, o)
	}
	return nil
}

// admits compares what was found with what a crash at m may leave.
func (m *moment) admits(found lives) error {
	is := m.is
	was := m.was
	if m.over {
		was = is
	}
	for tp, f := range found {
		if was[tp] == nil && is[tp] == nil {
			return fmt.Errorf("%v is back", tp)
		}
		if err := m.admit(tp, was[tp], is[tp], f); err != nil {
			return fmt.Errorf("%v: %w\nfound %v", tp, err, f)
		}
	}
	for tp := range was {
		if is[tp] != nil && found[tp] == nil {
			return fmt.Errorf("%v is gone", tp)
		}
	}
	if m.over && len(found) < len(is) {
		return fmt.Errorf("a new partition is gone: %d found, want %d", len(found), len(is))
	}
	return nil
}

// admit: a partition that moves, comes or goes is in one of its places, whole.
func (m *moment) admit(tp TopicPartition, was, is, found *life) error {
	switch {
	case was != nil && is != nil && was.root == is.root && was.root == found.root:
		return between(was, is, m.settled[tp], found)
	case was != nil && was.root == found.root:
		return between(was, was, 0, found)
	case is != nil && is.root == found.root:
		return between(is, is, 0, found)
	}
	return fmt.Errorf("it is in %s", found.root)
}

// copies looks at the backups: each is there, whole and as it was made, or, if it is being made, not at all.
func (m *moment) copies(disk vfs.FS) error {
	for name, want := range m.made {
		if !exists(disk, name) {
			if m.over || m.backups[name] != nil {
				return fmt.Errorf("%s is gone", name)
			}
			continue
		}
		if err := sameCopy(disk, name, want); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func sameCopy(disk vfs.FS, name string, want lives) error {
	d, err := OpenDir(name, DirConfig{FS: vfs.Overlay(below{disk, name}), Manual: true, Now: crashClock})
	if err != nil {
		return err
	}
	defer d.Close()
	tps, foreign, err := d.Folders()
	if err != nil || len(foreign) > 0 || len(tps) != len(want) {
		return fmt.Errorf("it holds %v and %v, want %d: %w", tps, foreign, len(want), err)
	}
	for _, tp := range tps {
		l, err := d.Open(ctx, tp, rootsConfig(tp, true))
		if err != nil {
			return err
		}
		f, err := lifeOf(name, l)
		if err != nil {
			return err
		}
		if w := want[tp]; w == nil || !slices.Equal(w.recs, f.recs) || w.start != f.start || w.end != f.end || !l.Recovery().Clean {
			return fmt.Errorf("%v: it holds %v, want %v; %+v", tp, f, w, l.Recovery())
		}
	}
	return nil
}

// rootsTally counts the disks that are looked at.
type rootsTally struct {
	share              uint64 // one in so many; 0 all
	stride             int    // and of the moments of a power loss
	disks, deep, inner int
}

// inspect is everything that is asked of one disk.
func (n *rootsTally) inspect(d *vfstest.Disk, now time.Time, first *moment, depth int) error {
	m := first
	for _, note := range d.Notes() {
		m = note.(*moment)
	}
	if n.share > 1 && d.Hash()>>20%n.share != 0 {
		return nil
	}
	n.disks++
	disk := d.FS()
	found, err := m.look(disk, now)
	// One disk in some is looked at longer.
	if sample := d.Hash() >> 9 % 64; err == nil && sample < 8 {
		n.deep++
		if sample == 0 && depth > 0 {
			err = n.inspectRecovery(disk, now, found)
		} else {
			err = goOn(disk, now, found)
		}
	}
	if err != nil {
		return fmt.Errorf("%w\n%v\n%s", err, m.describe(), d.Describe())
	}
	return nil
}

// look opens a disk and compares it with what may be.
func (m *moment) look(disk *vfstest.Crash, now time.Time) (lives, error) {
	if err := m.copies(disk); err != nil {
		return nil, err
	}
	k, err := openRoots(disk, now)
	if err != nil {
		return nil, err
	}
	found, err := k.lives()
	if err != nil {
		return nil, err
	}
	return found, m.admits(found)
}

// sameLives is what the second of two openings may differ in from the first: nothing.
func sameLives(first, second lives) error {
	for tp, f := range first {
		s := second[tp]
		if s == nil || s.root != f.root || s.start != f.start || s.end != f.end || !slices.Equal(f.recs, s.recs) {
			return fmt.Errorf("%v: the second open finds %v, the first found %v", tp, s, f)
		}
	}
	if len(first) != len(second) {
		return fmt.Errorf("the second open finds %d partitions, the first %d", len(second), len(first))
	}
	return nil
}

// goOn opens the recovered disk once more, as after another kill, does what a day's background work is, compacts, and stops:
// no key has another value then, nothing of what was interrupted is left, and the next start is a clean one.
func goOn(disk *vfstest.Crash, now time.Time, first lives) error {
	k, err := openRoots(disk.Kill(), now)
	if err != nil {
		return fmt.Errorf("second open: %w", err)
	}
	second, err := k.lives()
	if err == nil {
		err = sameLives(first, second)
	}
	if err != nil {
		return err
	}
	tables := map[TopicPartition]map[string]string{}
	for tp, f := range second {
		tables[tp] = tableOf(f.recs)
	}
	for range 2 {
		k.now = k.now.Add(24 * time.Hour)
		for _, d := range k.dirs {
			for _, l := range d.Logs() {
				if l.cfg().Cleanup.Has(Compact) {
					if p, open, _ := l.Producer(77, 0).entry(ctx); open && p.TxnFirstOffset >= 0 { // it would hold compaction up
						if _, err := l.EndTxn(ctx, record.Producer{ID: 77, Epoch: p.Epoch}, false, EndTxnOptions{CoordinatorEpoch: 1 << 30}); err != nil {
							return err
						}
					}
					_, err := l.Append(ctx, record.Record{Timestamp: k.now.UnixMilli(), Key: []byte("new"), Value: []byte("v")})
					if err := errors.Join(err, l.Roll(ctx)); err != nil {
						return err
					}
					tables[l.tp]["new"] = "v"
					if _, err := l.Compact(ctx, CompactOptions{Force: true}); err != nil {
						return err
					}
				}
				for f, err := range l.Verify(ctx) {
					return fmt.Errorf("verify: %+v, %w", f, err)
				}
			}
			if err := d.RunOnce(ctx, k.now); err != nil {
				return err
			}
		}
	}
	for _, name := range rootNames {
		if err := errors.Join(k.dirs[name].Close(), tidy(k.fs, name, second)); err != nil {
			return err
		}
	}
	if k, err = openRoots(k.fs, k.now); err != nil {
		return err
	}
	third, err := k.lives()
	if err != nil {
		return err
	}
	for tp, f := range third {
		if l, _ := k.dirs[f.root].Get(tp); !l.Recovery().Clean || len(l.Recovery().Findings) > 0 {
			return fmt.Errorf("%v: a clean stop was followed by %+v", tp, l.Recovery())
		}
		if got := tableOf(f.recs); !maps.Equal(got, tables[tp]) {
			return fmt.Errorf("%v: a compaction made %v of %v", tp, got, tables[tp])
		}
	}
	return nil
}

// tidy: a root that was stopped holds live partitions, and its checkpoints speak of nothing else.
func tidy(fsys vfs.FS, root string, held lives) error {
	entries, err := fsys.ReadDir(root)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue // the .tmp of a checkpoint is in nobody's way, and taken by its next write
		}
		if strings.Contains(e.Name(), ".") {
			return fmt.Errorf("%s/%s is left", root, e.Name())
		}
		files, err := fsys.ReadDir(root + "/" + e.Name())
		if err != nil {
			return err
		}
		for _, f := range files {
			if isLeftover(f.Name()) {
				return fmt.Errorf("%s/%s/%s is left", root, e.Name(), f.Name())
			}
		}
	}
	for _, name := range pointFiles {
		at, err := checkpoint.ReadOffsets(fsys, root+"/"+name)
		if err != nil {
			return err
		}
		for tp := range at {
			if f := held[TopicPartition(tp)]; f == nil || f.root != root {
				return fmt.Errorf("%s/%s speaks of %v, which is not there", root, name, tp)
			}
		}
	}
	return nil
}

// inspectRecovery crashes the opening of a crashed disk, and what is done behind it, at each of its points. What was shown
// once must stay.
func (n *rootsTally) inspectRecovery(disk *vfstest.Crash, now time.Time, found lives) error {
	shown := lives{}
	for tp, f := range found {
		g := *f
		g.floor = g.end
		shown[tp] = &g
	}
	m := &moment{change: &change{call: "recovered", was: shown, is: shown}, over: true}
	disk.Note(m)
	for inner := range disk.Disks(vfstest.DiskOptions{From: disk.Len(), Limit: 8, Samples: 2, Cuts: 1}) {
		n.inner++
		if _, err := m.look(inner.FS(), now); err != nil {
			return fmt.Errorf("crash behind a recovery: %w\n%v\n%s\nwhich came behind", err, m.describe(), inner.Describe())
		}
	}
	return nil
}

// enumerate looks at every disk that a power loss or a kill leaves of the workload.
func (n *rootsTally) enumerate(w *roots, first *moment, o vfstest.DiskOptions, depth int) error {
	all := func(o vfstest.DiskOptions) error {
		for d := range w.fs.Disks(o) {
			if err := n.inspect(d, w.clock.now(), first, depth); err != nil {
				return err
			}
		}
		return nil
	}
	stride := max(1, n.stride)
	for at := max(1, o.From); at < w.fs.Len()+stride; at += stride {
		o.From = min(at, w.fs.Len())
		if o.To = o.From; stride == 1 {
			o.To, at = 0, w.fs.Len()
		}
		if err := all(o); err != nil {
			return err
		}
	}
	o.Kill = true
	return all(o)
}
