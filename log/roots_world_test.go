package log

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// roots is a world of crashes with two Dirs, a and b, on one disk, and backups beside them. Its partitions are
//
//	c-0   compacted, durable
//	d-0   bounded by retention and MaxBytes, buffered
//	e-0   compacted and bounded, durable; it is deleted, moved and made anew
//	n-0   not there at first
type roots struct {
	fs    *vfstest.Crash
	seen  vfs.FS // what the Dirs are given
	clock *clock
	dirs  map[string]*Dir
	now   lives
	bk    map[string]lives // backups, and roots made of them
	fresh map[TopicPartition][]kept
	// firstSeen is when a compaction that a tombstone survived was done, by partition and offset.
	firstSeen map[TopicPartition]map[int64]int64
	serial    int

	mu sync.Mutex // guards what follows; the disk notes under it
	at *moment
}

var (
	rootNames = []string{"a", "b"}
	tpC       = TopicPartition{"c", 0}
	tpD       = TopicPartition{"d", 0}
	tpE       = TopicPartition{"e", 0}
	tpN       = TopicPartition{"n", 0}
)

// rootsConfig is how a partition is run; calm, how it is looked at: nothing is deleted by itself.
func rootsConfig(tp TopicPartition, calm bool) Config {
	c := Config{ProducerExpiry: 500 * time.Hour, SegmentBytes: crashSegment, IndexIntervalBytes: EveryBatch, Cleanup: Compact | Delete, RetentionTime: 30 * time.Minute,
		Compaction: CompactionConfig{MinDirtyRatio: AnyDirt, DeleteRetention: time.Hour}}
	switch tp {
	case tpC:
		c.Cleanup, c.RetentionTime = Compact, Forever
	case tpD:
		c.Cleanup, c.RetentionTime, c.RetentionBytes, c.MaxBytes, c.WhenFull = Delete, Forever, 500, 1400, DropOldest
		c.Durability, c.FlushInterval = Buffered, time.Minute
	}
	if calm {
		c.RetentionTime, c.RetentionBytes, c.MaxBytes, c.WhenFull = Forever, Unlimited, 0, Reject
	}
	return c
}

func newRoots(disk *vfstest.Crash, wrap func(vfs.FS) vfs.FS) *roots {
	w := &roots{fs: disk.Kill(), clock: &clock{}, dirs: map[string]*Dir{}, now: lives{}, bk: map[string]lives{},
		firstSeen: map[TopicPartition]map[int64]int64{}}
	w.clock.ms.Store(crashTime)
	var below vfs.FS = w.fs
	if wrap != nil {
		below = wrap(below)
	}
	w.seen = &swapWatch{FS: below, w: w, landed: map[string]int64{}}
	return w
}

// prepareRoots makes the disk that workloads start from, everything durable: c-0 has segments that were compacted and some
// that were not, d-0 and e-0 have several. It returns the world that knows it, to be forked.
func prepareRoots(t testing.TB) *roots {
	t.Helper()
	w := newRoots(vfstest.NewCrash(vfstest.CrashOptions{Now: crashClock}), nil)
	must := func(errs ...error) {
		t.Helper()
		require.NoError(t, errors.Join(errs...))
	}
	must(w.fs.MkdirAll("a", 0o755), w.fs.MkdirAll("b", 0o755), w.open())
	for _, tp := range []TopicPartition{tpC, tpD, tpE} {
		must(w.create(tp))
	}
	must(w.put(tpC, "a", "b"), w.put(tpC, "a"), w.put(tpC, "-b"), w.roll(tpC), w.put(tpC, "c", "d"), w.roll(tpC), w.compact(tpC),
		w.abort(tpC, "c"), w.put(tpC, "a", "e"), w.roll(tpC), w.put(tpC, "-d", "a"), w.put(tpC, "c"))
	for i := range 4 {
		must(w.put(tpD, "x"), w.put(tpD, "y"), w.put(tpE, fmt.Sprint("k", i%3)), w.put(tpE, "k1"), w.roll(tpE))
	}
	must(w.close(), w.open())
	w.fs.Mark()
	return w
}

// fork is a new world on a copy of the disk, its Dirs opened anew as after a kill.
func (w *roots) fork(wrap func(vfs.FS) vfs.FS) (*roots, error) {
	n := newRoots(w.fs, wrap)
	n.clock.ms.Store(w.clock.ms.Load())
	n.now, n.bk, n.serial = w.now, maps.Clone(w.bk), w.serial
	for tp, seen := range w.firstSeen {
		n.firstSeen[tp] = maps.Clone(seen)
	}
	return n, n.open()
}

// step does one call and narrows the expectation to what is there then.
func (w *roots) step(call string, do func() error) error {
	c := &change{call: call, was: w.now, backups: maps.Clone(w.bk)}
	w.fresh = map[TopicPartition][]kept{}
	w.note(&moment{change: c})
	if err := do(); err != nil {
		return fmt.Errorf("%s: %w", call, err)
	}
	return w.stand(c)
}

// stand ends a step.
func (w *roots) stand(c *change) error {
	is, err := w.look()
	if err != nil {
		return fmt.Errorf("behind %s: %w", c.call, err)
	}
	for tp, f := range is {
		if err := w.follows(tp, c.was[tp], f); err != nil {
			return fmt.Errorf("%s: %v: %w\n%v\n%v", c.call, tp, err, c.was[tp], f)
		}
	}
	w.mu.Lock()
	c.is, c.made, w.now = is, maps.Clone(w.bk), is
	w.mu.Unlock()
	w.note(&moment{change: c, over: true})
	return nil
}

func (w *roots) note(m *moment) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at = m
	w.fs.Note(m)
}

// look reads every partition of the open roots.
func (w *roots) look() (lives, error) {
	is := lives{}
	for name, d := range w.dirs {
		for tp, l := range d.Logs() {
			if is[tp] != nil {
				return nil, fmt.Errorf("%v is in both roots", tp)
			}
			f, err := lifeOf(name, l)
			if err != nil {
				return nil, err
			}
			if was := w.now[tp]; was != nil {
				f.floor = max(f.floor, min(was.floor, f.end))
				f.ends = append(f.ends, was.ends...)
			}
			is[tp] = f
		}
	}
	for tp, f := range w.now { // of roots that are closed
		if w.dirs[f.root] == nil && is[tp] == nil {
			is[tp] = f
		}
	}
	return is, nil
}

// lifeOf reads a log.
func lifeOf(root string, l *Log) (*life, error) {
	o := l.Offsets()
	f := &life{root: root, start: o.LogStart, end: o.LogEnd, floor: o.Durable, ends: []int64{o.LogStart, o.LogEnd}}
	for _, s := range l.segments() {
		f.ends = append(f.ends, s.Base())
	}
	for b, err := range l.Batches(ctx, o.LogStart, WithIsolation(LogEnd)) {
		if err != nil {
			return nil, err
		}
		f.ends = append(f.ends, b.LastOffset()+1)
	}
	for r, err := range l.Records(ctx, o.LogStart, WithIsolation(LogEnd)) {
		if err != nil {
			return nil, err
		}
		f.recs = append(f.recs, kept{r.Offset, string(r.Key), string(r.Value)})
	}
	for r, err := range l.Records(ctx, o.LogStart, WithIsolation(ReadCommitted)) {
		if err != nil {
			return nil, err
		}
		if strings.HasPrefix(string(r.Value), aborted) {
			return nil, fmt.Errorf("record %d of an aborted transaction is shown", r.Offset)
		}
	}
	return f, nil
}

// follows judges what a call made of a partition, by the rules and not by what the log says: records come at the end, go below
// the start, behind a truncation, or because compaction may take them.
func (w *roots) follows(tp TopicPartition, was, is *life) error {
	l, fresh := w.log(tp), w.fresh[tp]
	if l == nil {
		return nil // its root is closed
	}
	if was == nil {
		was = &life{}
	}
	if is.start < was.start && is.start != is.end {
		return errors.New("the log start fell")
	}
	active := l.segments().active().Base()
	want := slices.Concat(was.within(is.start, is.end), slices.DeleteFunc(slices.Clone(fresh), func(r kept) bool { return r.offset < is.start }))
	last := map[string]int64{}
	for _, r := range want {
		if r.offset < active && !strings.HasPrefix(r.value, aborted) {
			last[r.key] = r.offset
		}
	}
	seen := w.firstSeen[tp]
	left := is.recs
	for _, r := range want {
		if len(left) > 0 && left[0] == r {
			left = left[1:]
			continue
		}
		horizon, stamped := seen[r.offset]
		switch {
		case !l.cfg().Cleanup.Has(Compact) || r.offset >= active:
			return fmt.Errorf("record %v is gone", r)
		case strings.HasPrefix(r.value, aborted), last[r.key] > r.offset:
		case r.value == "" && stamped && w.clock.ms.Load() >= horizon+time.Hour.Milliseconds():
		default:
			return fmt.Errorf("record %v is gone, and it is the last of its key", r)
		}
	}
	if len(left) > 0 {
		return fmt.Errorf("record %v comes from nowhere", left[0])
	}
	return nil
}

// stamp remembers the tombstones that a compaction has seen.
func (w *roots) stamp(tp TopicPartition) {
	l := w.log(tp)
	if l == nil {
		return
	}
	first, ok, _ := l.dir.points.get(checkpoint.CleanerOffsets, tp)
	if !ok {
		return
	}
	if w.firstSeen[tp] == nil {
		w.firstSeen[tp] = map[int64]int64{}
	}
	for r, err := range l.Records(ctx, l.Offsets().LogStart) {
		if _, had := w.firstSeen[tp][r.Offset]; err == nil && r.Value == nil && !had && r.Offset < first {
			w.firstSeen[tp][r.Offset] = w.clock.ms.Load()
		}
	}
}

// swapWatch notes when a group of a compaction has been swapped for good: its last file has its name, and the directory is
// synced.
type swapWatch struct {
	vfs.FS
	w      *roots
	mu     sync.Mutex
	landed map[string]int64 // by folder: base of the last one
}

func (s *swapWatch) Rename(old, new string) error {
	err := s.FS.Rename(old, new)
	if err == nil && strings.HasSuffix(old, ".log.swap") && strings.HasSuffix(new, ".log") {
		s.mu.Lock()
		defer s.mu.Unlock()
		base, _, _ := strings.Cut(path.Base(new), ".")
		s.landed[path.Dir(new)], _ = strconv.ParseInt(base, 10, 64)
	}
	return err
}

func (s *swapWatch) SyncDir(name string) error {
	if err := s.FS.SyncDir(name); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	landed, ok := s.landed[name]
	if !ok {
		return nil
	}
	entries, err := s.FS.ReadDir(name)
	if err != nil {
		return err
	}
	below := int64(-1)
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".swap") {
			return nil
		}
		if digits, ok := strings.CutSuffix(e.Name(), ".log"); ok && below < 0 {
			if base, _ := strconv.ParseInt(digits, 10, 64); base > landed {
				below = base
			}
		}
	}
	delete(s.landed, name)
	tp, err := parsePartition(path.Base(name))
	if err != nil {
		return nil
	}
	s.w.swapped(tp, below)
	return nil
}

func parsePartition(folder string) (TopicPartition, error) {
	tp, state, err := parseFolder(folder)
	if err == nil && state != liveFolder {
		err = errors.New("not live")
	}
	return tp, err
}

func (w *roots) swapped(tp TopicPartition, below int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.at == nil || w.at.over {
		return
	}
	m := &moment{change: w.at.change, settled: map[TopicPartition]int64{}}
	maps.Copy(m.settled, w.at.settled)
	m.settled[tp] = below
	w.at = m
	w.fs.Note(m)
}

func (w *roots) root(name string) vfs.FS { return below{w.seen, name} }

func (w *roots) log(tp TopicPartition) *Log {
	for _, d := range w.dirs {
		if l, ok := d.Get(tp); ok {
			return l
		}
	}
	return nil
}

// dirOf is the open root that has the partition; nil if none has it.
func (w *roots) dirOf(tp TopicPartition) (name string, d *Dir) {
	if f := w.now[tp]; f != nil {
		return f.root, w.dirs[f.root]
	}
	return "", nil
}

// records makes records of keys; "-k" is a tombstone of k.
func (w *roots) records(keys []string) []record.Record {
	recs := make([]record.Record, len(keys))
	for i, k := range keys {
		w.serial++
		key, dead := strings.CutPrefix(k, "-")
		recs[i] = record.Record{Timestamp: w.clock.ms.Load(), Key: []byte(key), Value: fmt.Appendf(nil, "v%05d..............", w.serial)}
		if dead {
			recs[i].Value = nil
		}
	}
	return recs
}

func (w *roots) wrote(tp TopicPartition, base int64, recs []record.Record) {
	for i, r := range recs {
		w.fresh[tp] = append(w.fresh[tp], kept{base + int64(i), string(r.Key), string(r.Value)})
	}
}
