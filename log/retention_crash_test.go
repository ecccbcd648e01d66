package log

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// shedWorld is a crash world whose log drops its oldest segments. It is run under settings of its own, and every disk is opened
// under those that delete nothing.
type shedWorld struct {
	*world
	start *expect // before the first operation
}

// shedStart makes a disk with a log that begins at 7: n segments of one or two batches and two epochs; of four, the second
// one holds an aborted transaction, and a single one has three batches.
func shedStart(t testing.TB, mode Durability, n int, wrap func(vfs.FS) vfs.FS) *shedWorld {
	t.Helper()
	w := newWorld(vfstest.NewCrash(vfstest.CrashOptions{Now: crashClock}), mode, expect{starts: []int64{0}}, nil)
	require.NoError(t, w.open())
	require.NoError(t, w.resetTo(7))
	for i := range n {
		if i == n/2 {
			require.NoError(t, w.assignEpoch())
		}
		if i > 0 {
			require.NoError(t, w.roll())
		}
		switch {
		case n == 4 && i == 1:
			require.NoError(t, w.produce(7, true, mode))
			require.NoError(t, w.end(7, false))
		case n == 1:
			require.NoError(t, w.append(1, mode))
			require.NoError(t, w.append(1, mode))
			require.NoError(t, w.append(1, mode))
		default:
			require.NoError(t, w.append(1+i%2, mode))
		}
	}
	require.NoError(t, w.sync())
	w.fs.Mark()
	return &shedWorld{newWorld(w.fs, mode, w.e, wrap), w.e.clone()}
}

// mountWith opens the log with other settings.
func (w *shedWorld) mountWith(c Config) (err error) {
	w.note("open")
	if w.dir, err = OpenDir("root", DirConfig{FS: w.seen, Now: func() time.Time { return crashClock().Add(time.Hour) }}); err != nil {
		return err
	}
	w.log, err = w.dir.Open(context.Background(), crashTP, c)
	w.e.sparse++
	return err
}

// shed drops what do drops, and expects any of the segments' bases as the log start meanwhile.
func (w *shedWorld) shed(call string, do func() error) error {
	o := w.log.Offsets()
	for _, base := range w.log.segments().bases() {
		w.e.starts = append(w.e.starts, max(base, o.LogStart))
	}
	w.e.starts = append(w.e.starts, o.LogEnd)
	w.note(call)
	if err := do(); err != nil {
		return err
	}
	o = w.log.Offsets()
	if o.LogEnd != w.e.end() {
		return fmt.Errorf("%s: the log ends at %d, want %d", call, o.LogEnd, w.e.end())
	}
	w.e.starts, w.e.floor = []int64{o.LogStart}, max(w.e.floor, o.Durable)
	w.note(call + " returned")
	return nil
}

func (w *shedWorld) retain() error {
	return w.shed("retain", func() error {
		r, err := w.log.Retain(context.Background())
		if err == nil && r.Dropped == 0 {
			err = fmt.Errorf("nothing was dropped: %+v", r.Plan)
		}
		return err
	})
}

// put1 appends a record, whatever goes for it.
func (w *shedWorld) put1(call string) error {
	recs := w.records(1)
	return w.shed(call, func() error { return w.put(recs, w.mode) })
}

// checkShed is check, and then drops what only the log start hides, as the next run does.
func checkShed(disk vfs.FS, mode Durability, e *expect) error {
	d, l, err := recovered(disk, mode, false)
	if err != nil {
		return fmt.Errorf("open after a crash: %w", err)
	}
	found, err := survivors(l)
	if err != nil {
		return fmt.Errorf("read after a crash: %w", err)
	}
	if err := e.admits(l.Offsets(), found, l.Epochs()); err != nil {
		return err
	}
	if l.segments().first().Base() == l.Offsets().LogStart {
		if err := checkProducersBut(l, 7); err != nil {
			return err
		}
	}
	before := l.Offsets()
	if _, err := l.Retain(context.Background()); err != nil {
		return fmt.Errorf("retain after a crash: %w", err)
	}
	if o := l.Offsets(); o != before {
		return fmt.Errorf("retaining once more made %+v of %+v", o, before)
	}
	segs := l.segments()
	if len(segs) > 1 && segs[1].Base() <= before.LogStart {
		return fmt.Errorf("segments %v are still there below %d", segs.bases(), before.LogStart)
	}
	if err := checkIndexes(disk, l, e.sparse); err != nil {
		return err
	}
	if again, err := survivors(l); err != nil || !slices.Equal(found, again) {
		return fmt.Errorf("%v, then %v (%w)", found, again, err)
	}
	return d.Close()
}

// checkProducersBut is checkProducers, but for a producer whose deleted records a snapshot may still know: the index of
// aborted transactions must be whole all the same.
func checkProducersBut(l *Log, id int64) error {
	err := checkProducers(l)
	if err == nil {
		return nil
	}
	if p, ok := l.producers.state.Producer(id); ok && p.LastOffset < l.Offsets().LogStart {
		return nil
	}
	return err
}

func (w *shedWorld) everyDisk(t *testing.T, total *tally, o vfstest.DiskOptions) error {
	t.Helper()
	for _, kill := range []bool{false, true} {
		o.Kill = kill
		for d := range w.fs.Disks(o) {
			e := noted(d, w.start)
			if !total.first(d.Hash(), e, w.mode) {
				continue
			}
			disk := d.FS()
			if err := checkShed(disk, w.mode, e); err != nil {
				return fmt.Errorf("%w\n%v\n%s", err, e, d.Describe())
			}
		}
	}
	return nil
}

// The ways of dropping, each on a log of so many segments.
var sheds = []struct {
	name     string
	segments int
	cfg      Config
	do       func(w *shedWorld) error
}{
	{"some, one by one", 4, Config{RetentionBytes: 150, RetentionTime: Forever}, (*shedWorld).retain},
	{"the whole log", 4, Config{RetentionTime: time.Second}, (*shedWorld).retain},
	{"the whole log, and on", 4, Config{RetentionTime: time.Second}, func(w *shedWorld) error {
		if err := w.retain(); err != nil {
			return err
		}
		return w.put1("append behind it")
	}},
	{"many under one start", 9, Config{RetentionBytes: 150, RetentionTime: Forever}, (*shedWorld).retain},
	{"many, and the whole log", 8, Config{RetentionTime: time.Second, FileDeleteDelay: Immediately}, (*shedWorld).retain},
	{"below the start, then others", 4, Config{RetentionBytes: 150, RetentionTime: Forever}, func(w *shedWorld) error {
		if err := w.deleteRecords(w.log.segments()[1].Base()); err != nil {
			return err
		}
		return w.retain()
	}},
	{"the start within a segment", 4, Config{RetentionTime: Forever}, func(w *shedWorld) error {
		if err := w.deleteRecords(w.log.segments()[3].Base() + 1); err != nil {
			return err
		}
		return w.retain()
	}},
	{"the oldest of a full log", 4, Config{RetentionTime: Forever, MaxBytes: 420, WhenFull: DropOldest}, func(w *shedWorld) error {
		return w.put1("append to a full log")
	}},
	{"all of a full log", 1, Config{RetentionTime: Forever, MaxBytes: 250, WhenFull: DropOldest}, func(w *shedWorld) error {
		return w.put1("append to a full log")
	}},
	{"with a clean stop behind it", 4, Config{RetentionTime: time.Second}, func(w *shedWorld) error {
		if err := w.retain(); err != nil {
			return err
		}
		return w.dir.Close()
	}},
}

// run does one of them on a fresh copy of a disk.
func runShed(t testing.TB, i int, mode Durability, wrap func(vfs.FS) vfs.FS) *shedWorld {
	t.Helper()
	s := sheds[i]
	w := shedStart(t, mode, s.segments, wrap)
	c := crashConfig(mode)
	c.RetentionBytes, c.RetentionTime, c.FileDeleteDelay = s.cfg.RetentionBytes, s.cfg.RetentionTime, s.cfg.FileDeleteDelay
	c.MaxBytes, c.WhenFull = s.cfg.MaxBytes, s.cfg.WhenFull
	require.NoError(t, w.mountWith(c))
	require.NoError(t, s.do(w))
	return w
}

// A power cut or a kill at every operation leaves the old log, the new one, or one in between with fewer of the oldest
// segments; never a hole, never an offset twice, never what was told to be gone.
func TestDroppingSegmentsSurvivesEveryCrash(t *testing.T) {
	for i, s := range sheds {
		for _, mode := range []Durability{Durable, Buffered} {
			t.Run(fmt.Sprintf("%s, %v", s.name, mode), func(t *testing.T) {
				w := runShed(t, i, mode, nil)
				total := newTally()
				samples := 24 / crashShare()
				if err := w.everyDisk(t, total, vfstest.DiskOptions{Limit: 40, Samples: max(4, samples), Cuts: 1, NoTorn: mode == Buffered}); err != nil {
					t.Fatal(err)
				}
				t.Logf("%d disks", total.disks)
			})
		}
	}
}

// What a crash left of a drop settles to the same log when the opening crashes too.
func TestDroppingSegmentsSurvivesCrashesInsideItsRecovery(t *testing.T) {
	for _, i := range []int{1, 3} {
		w := runShed(t, i, Durable, nil)
		total, n := newTally(), 0
		for d := range w.fs.Disks(vfstest.DiskOptions{Limit: 4, Samples: 2, Cuts: 1, NoTorn: true}) {
			if n++; n%(1+7*i) != 0 {
				continue
			}
			e := noted(d, w.start)
			disk := d.FS()
			_, l, err := recovered(disk, Durable, false)
			require.NoError(t, err)
			shown := e.clone()
			shown.starts, shown.floor = []int64{l.Offsets().LogStart}, l.Offsets().LogEnd
			disk.Note(shown)
			_, err = l.Retain(context.Background())
			require.NoError(t, err)
			for inner := range disk.Disks(vfstest.DiskOptions{Limit: 4, Samples: 1, Cuts: 1, NoTorn: true}) {
				if e := noted(inner, e); total.first(inner.Hash(), e, Durable) {
					if err := checkShed(inner.FS(), Durable, e); err != nil {
						t.Fatalf("%v\n%v\n%s\nwhich was the recovery of\n%s", err, e, inner.Describe(), d.Describe())
					}
				}
			}
		}
		t.Logf("%d disks", total.disks)
	}
}

// Each row is a known wrong order; a disk must show it.
func TestWrongOrdersOfDroppingAreFoundOut(t *testing.T) {
	for name, m := range map[string]struct {
		shed int
		wrap func(vfs.FS) vfs.FS
	}{
		"renames left to chance":                {0, noSyncDir(crashTP.String())},
		"a new segment whose name may be lost":  {1, noSyncDir(crashTP.String())},
		"a log start that comes back":           {3, noSyncDir(".")},
		"a log start that was never synced":     {3, func(f vfs.FS) vfs.FS { return &liar{FS: f, skipSync: hasSuffix("checkpoint.tmp")} }},
		"a full log whose renames are a chance": {8, noSyncDir(crashTP.String())},
	} {
		t.Run(name, func(t *testing.T) {
			w := runShed(t, m.shed, Durable, m.wrap)
			total := newTally()
			err := w.everyDisk(t, total, vfstest.DiskOptions{Limit: 200, Samples: 50})
			require.Error(t, err, "nothing found on %d disks", total.disks)
		})
	}
}

func noSyncDir(dir string) func(vfs.FS) vfs.FS {
	return func(f vfs.FS) vfs.FS { return &liar{FS: f, skipSyncDir: func(d string) bool { return d == dir }} }
}
