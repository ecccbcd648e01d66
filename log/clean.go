package log

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/partlog/partlog/compaction"
	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/segment"
)

// ErrCleaningAborted: a truncation, or the deletion of segments, came between: what was cleaned until then stays, the
// rest is for the next call.
var ErrCleaningAborted = errors.New("log: compaction aborted, the log changed under it")

// cleaner is a log's own part of compaction; its zero value is ready.
type cleaner struct {
	// running admits one run at a time. It is held for the whole run and taken before Log.names.
	running gate
	beats   atomic.Int64 // changes as long as a run moves

	// mu guards all below, for an instant.
	mu      sync.Mutex
	pins    map[*removalPin]struct{}
	cancel  context.CancelCauseFunc // ends the present run; nil if there is none
	stopped bool                    // the log is closed, or about to be
	stats   CleanerStats
	inRow   int64     // failures since the last run that went well
	tried   *segments // of the last run, as they were behind it
	calm    calm
	// watchers are those who look at the files by name; unwatched is closed when the last one is done, nil if there is none.
	watchers  int
	unwatched chan struct{}
}

// calm remembers a look at the log that found nothing to do, for as long as the answer cannot change.
type calm struct {
	list       *segments
	lastStable int64
	tuned      *tuning
	valid      bool
}

type removalPin struct {
	name   string
	offset int64
}

// CleanerStats are what compaction did to a log since it was opened.
type CleanerStats struct {
	Runs      int64               // that finished, with or without anything to do
	Failures  int64               // runs that ended in an error other than an abort
	Last      time.Time           // when the last run ended, by DirConfig.Now; zero: there was none
	LastError error               // of the last run; nil if it went well
	Dropped   int64               // records removed
	Freed     int64               // bytes: of old segments less those of new ones
	Result    compaction.Result   // of the last run
	Running   bool                // one is under way
	Progress  compaction.Progress // of the present run
}

// PinRemoval keeps tombstones and transaction markers at or above offset in the log, however old, until release: for
// whoever reads the log from there and must see every deletion, a slow replica say. name is for people. Release may be
// called more than once.
func (l *Log) PinRemoval(name string, offset int64) (release func()) {
	pin := &removalPin{name, offset}
	c := &l.cleaner
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pins == nil {
		c.pins = map[*removalPin]struct{}{}
	}
	c.pins[pin] = struct{}{}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.pins, pin)
	}
}

// removal is the lowest pin; nil if there is none.
func (c *cleaner) removal() *int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	var lowest *int64
	for pin := range c.pins {
		if lowest == nil || pin.offset < *lowest {
			lowest = &pin.offset
		}
	}
	return lowest
}

// CompactOptions of one call.
type CompactOptions struct {
	// Force cleans whether it is due or not, and whatever cleanup.policy says.
	Force bool
	// DryRun reads and counts as if, and changes nothing.
	DryRun bool
	// MapBytes bounds the memory for keys in this run; 0: Config.Compaction.MapBytes.
	MapBytes int64
	// BytesPerSecond limits reading and writing of this run; 0: Config.Compaction.BytesPerSecond.
	BytesPerSecond int64
	// Progress is called now and then, from this call's goroutine; it must not call the log's writing methods.
	Progress func(compaction.Progress)
}

// PlanCompaction says what a compaction at that time would take on, and whether it is due. It reads at most the ends of
// segments and changes nothing.
func (l *Log) PlanCompaction(now time.Time) (compaction.Plan, error) {
	if err := l.ended(); err != nil {
		return compaction.Plan{}, err
	}
	segs, release := l.holdAll()
	if segs == nil {
		return compaction.Plan{}, ErrClosed
	}
	defer release()
	return l.planCompaction(segs, now)
}

func (l *Log) planCompaction(segs segments, now time.Time) (compaction.Plan, error) {
	facts, err := l.cfg().Compaction.Measure(segs, true)
	if err != nil {
		return compaction.Plan{}, segs.explain(err)
	}
	o := l.load()
	state := compaction.State{LogStart: o.LogStart, LogEnd: o.LogEnd, LastStable: o.LastStable, Removal: l.cleaner.removal(), Segments: facts}
	if at, ok, _ := l.dir.points.get(checkpoint.CleanerOffsets, l.tp); ok {
		state.Checkpoint = &at
	}
	limits := compaction.GroupLimits{SegmentBytes: l.cfg().SegmentBytes, IndexBytes: l.cfg().IndexBytes}
	return l.cfg().Compaction.Plan(state, limits, now), nil
}

// holdAll retains every segment of the present list; nil if the log is closed.
func (v *view) holdAll() (segs segments, release func()) {
	for {
		list := v.list.Load()
		if v.over() {
			return nil, nil
		}
		held := 0
		for _, seg := range *list {
			if !seg.Retain() {
				break
			}
			held++
		}
		release = func() {
			for _, seg := range (*list)[:held] {
				seg.Release()
			}
		}
		if held == len(*list) {
			return *list, release
		}
		release()
		if v.list.Load() == list {
			return nil, nil // not replaced but closed
		}
	}
}

// Compact cleans the log once, Kafka's compaction: of all records with one key below the active segment the last stays. It
// does nothing if cleaning is not due (see PlanCompaction) and not forced. It blocks until done; appends, rolls and readers go
// on meanwhile. Truncation, retention, Verify and a backup wait for the few renames and syncs of the directory that swap a
// group of segments; so does an append to a full log (Config.WhenFull is DropOldest) that finds no room without dropping some.
//
// Errors are ErrPolicy (cleanup.policy lacks compact), *CorruptError (unreadable data: what lies in front of that segment was
// cleaned), compaction.ErrMapTooSmall, ErrCleaningAborted, ErrNoSpace (nothing is lost, the old segments stay), ctx's, and
// ErrClosed, also when the log is closed meanwhile.
func (l *Log) Compact(ctx context.Context, o CompactOptions) (compaction.Result, error) {
	if err := l.ended(); err != nil {
		return compaction.Result{}, err
	}
	if !o.Force && !l.cfg().Cleanup.Has(Compact) {
		return compaction.Result{}, fmt.Errorf("%w: cleanup.policy of %s does not compact", ErrPolicy, l.name)
	}
	ctx, end, err := l.beginCleaning(ctx)
	if err != nil {
		return compaction.Result{}, err
	}
	res, err := l.compact(ctx, o)
	if err != nil && (errors.Is(context.Cause(ctx), ErrClosed) || errors.Is(l.ended(), ErrClosed)) {
		err = ErrClosed
	}
	end(l.now(), res, err)
	if res.Groups > 0 && !o.DryRun {
		l.tell(func(e *Events) {
			if e.Cleaned != nil {
				e.Cleaned(l.tp, res)
			}
		})
	}
	l.deliver()
	return res, err
}

// beginCleaning takes the log for a run.
func (l *Log) beginCleaning(ctx context.Context) (_ context.Context, end func(time.Time, compaction.Result, error), err error) {
	c := &l.cleaner
	if err := c.running.lock(ctx); err != nil {
		return nil, nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		c.running.unlock()
		return nil, nil, ErrClosed
	}
	ctx, c.cancel = context.WithCancelCause(ctx)
	c.stats.Running, c.stats.Progress = true, compaction.Progress{}
	return ctx, func(now time.Time, res compaction.Result, err error) {
		c.mu.Lock()
		c.cancel(nil)
		c.cancel = nil
		c.stats.add(now, res, err)
		if c.tried = l.list.Load(); err == nil {
			c.inRow = 0
		} else {
			c.inRow++
		}
		c.mu.Unlock()
		c.running.unlock()
	}, nil
}

func (s *CleanerStats) add(now time.Time, res compaction.Result, err error) {
	s.Running, s.Last, s.LastError, s.Result = false, now, err, res
	s.Dropped += res.Superseded + res.Tombstones + res.Unkeyed + res.Aborted + res.Markers
	s.Freed += res.Before - res.After
	switch {
	case err == nil:
		s.Runs++
	case !errors.Is(err, ErrCleaningAborted) && !errors.Is(err, ErrClosed) && !isContext(err):
		s.Failures++
	}
}

// stop ends the present run and admits no further one; it returns when the run is over.
func (c *cleaner) stop() {
	c.mu.Lock()
	c.stopped = true
	if c.cancel != nil {
		c.cancel(ErrClosed)
	}
	c.mu.Unlock()
	_ = c.running.lock(context.Background()) // never released: no run begins any more
}

func (c *cleaner) snapshot() CleanerStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

func (c *cleaner) progress(p compaction.Progress) {
	c.beats.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Progress = p
}

// compact is Compact for who holds cleaner.running.
func (l *Log) compact(ctx context.Context, o CompactOptions) (compaction.Result, error) {
	segs, release := l.holdAll()
	if segs == nil {
		return compaction.Result{}, ErrClosed
	}
	defer release()
	now := l.now()
	_, cuts := l.loadCuts()
	plan, err := l.planCompaction(segs, now)
	if err != nil {
		return compaction.Result{}, err
	}
	if !o.Force && !plan.Due || plan.CleanableBytes == 0 {
		return compaction.Result{FirstDirty: plan.FirstDirty}, nil
	}
	producers, err := l.lastBatches(ctx)
	if err != nil {
		return compaction.Result{}, err
	}
	c := l.cfg().Compaction
	c.MapBytes, c.BytesPerSecond = or(o.MapBytes, c.MapBytes), or(o.BytesPerSecond, c.BytesPerSecond)
	res, err := compaction.Run(ctx, compaction.Input{
		Dir: l.name, Options: l.cfg().segOpts, Segments: segs, Bounds: plan.Bounds, Config: c, Producers: producers, Now: now, DryRun: o.DryRun,
		Progress: func(p compaction.Progress) {
			l.cleaner.progress(p)
			if o.Progress != nil {
				o.Progress(p)
			}
		},
		StandBack: l.dir.rounds.standBack,
		Keep:      func(ctx context.Context, g compaction.Group) error { return l.keep(ctx, g, cuts) },
	})
	if !o.DryRun && (err == nil || errors.Is(err, compaction.ErrUncleanable)) {
		err = errors.Join(err, l.storeFirstDirty(ctx, res.FirstDirty, cuts))
	}
	return res, l.explainCleaning(segs, err, cuts)
}

// lastBatches is what compaction must know of producers.
func (l *Log) lastBatches(ctx context.Context) (map[int64]compaction.LastBatch, error) {
	if err := l.write.lock(ctx); err != nil {
		return nil, err
	}
	defer l.write.unlock()
	s := l.producers.state
	s.ExpireDue(l.now().UnixMilli())
	if s.Len() == 0 {
		return nil, nil
	}
	last := make(map[int64]compaction.LastBatch, s.Len())
	for _, p := range s.Producers() {
		last[p.ProducerID] = compaction.LastBatch{Offset: p.LastOffset, Epoch: p.Epoch}
	}
	return last, nil
}

// lockToSwap takes names at a moment when nobody verifies the files: they must not change names under that.
func (l *Log) lockToSwap(ctx context.Context) error {
	for {
		if err := l.names.lock(ctx); err != nil {
			return err
		}
		l.cleaner.mu.Lock()
		unwatched := l.cleaner.unwatched
		l.cleaner.mu.Unlock()
		if unwatched == nil {
			return nil
		}
		l.names.unlock()
		select {
		case <-unwatched:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// holdSwaps keeps groups from being swapped in until release; it waits for a swap that is under way.
func (l *Log) holdSwaps(ctx context.Context) (release func(), err error) {
	if err := l.names.lock(ctx); err != nil {
		return nil, err
	}
	defer l.names.unlock()
	return l.cleaner.watch(), nil
}

// watch keeps groups from being swapped in until release. The caller holds names.
func (c *cleaner) watch() (release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watchers++; c.watchers == 1 {
		c.unwatched = make(chan struct{})
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.watchers--; c.watchers == 0 {
			close(c.unwatched)
			c.unwatched = nil
		}
	}
}

// keep puts a group's new segments in the place of the old ones. The renames and their syncs hold up nobody but those who
// need names: appends and rolls go on, and the list is exchanged behind them in an instant. From the first rename on it is
// not stopped any more; a log that fails or is to be closed meanwhile gets what is in its folder.
func (l *Log) keep(ctx context.Context, g compaction.Group, cuts uint64) error {
	if err := l.lockToSwap(ctx); err != nil {
		return err
	}
	defer l.names.unlock()
	if err := l.ended(); err != nil {
		return err
	}
	segs := *l.list.Load()
	at := segs.floor(g.Old[0].Base())
	if _, now := l.loadCuts(); now != cuts || !segs.hasRun(at, g.Old) || at+len(g.Old) == len(segs) {
		return ErrCleaningAborted
	}
	live, err := compaction.SwapNamed(l.name, l.cfg().segOpts, g.Old, g.New)
	if errors.Is(err, compaction.ErrUnsettled) {
		return l.fail(err)
	}
	if err != nil {
		return err
	}
	l.shelve(l.exchange(at, g, live))
	return nil
}

// exchange puts live segments into the list for those of a group, which begin at place at, and gives these, with the names
// of the snapshots that belong to no segment any more. The list may have grown at its end since that was looked up, no more:
// the caller holds names.
func (l *Log) exchange(at int, g compaction.Group, live []*segment.Segment) (gone []discarded) {
	_ = l.write.lock(context.Background())
	defer l.write.unlock()
	segs := *l.list.Load()
	list := make(segments, 0, len(segs)-len(g.Old)+len(live))
	list = append(append(append(list, segs[:at]...), live...), segs[at+len(g.Old):]...)
	l.list.Store(&list)
	for _, seg := range g.Old {
		w := discarded{seg: seg}
		if base := seg.Base(); !slices.Contains(g.New, base) {
			l.producers.dropAt(base)
			w.file = l.takeSnapshot(base)
		}
		gone = append(gone, w)
	}
	return gone
}

// hasRun says whether old are the segments from place at on.
func (s segments) hasRun(at int, old []*segment.Segment) bool {
	if at < 0 || at+len(old) > len(s) {
		return false
	}
	for i, seg := range old {
		if s[at+i] != seg {
			return false
		}
	}
	return true
}

// storeFirstDirty makes durable how far the log is clean, unless a truncation came between: then it may not be.
func (l *Log) storeFirstDirty(ctx context.Context, offset int64, cuts uint64) error {
	if err := l.write.lock(ctx); err != nil {
		return err
	}
	defer l.write.unlock()
	if err := l.ended(); err != nil {
		return err
	}
	if _, now := l.loadCuts(); now != cuts {
		return ErrCleaningAborted
	}
	return l.dir.points.store(ctx, checkpoint.CleanerOffsets, l.tp, offset)
}

// fitFirstDirty begins anew in a log that ends, when it is opened, below the point up to which it was clean.
func (l *Log) fitFirstDirty(ctx context.Context, start, end int64) error {
	if at, ok, _ := l.dir.points.get(checkpoint.CleanerOffsets, l.tp); !ok || at <= end {
		return nil
	}
	return l.dir.points.store(ctx, checkpoint.CleanerOffsets, l.tp, start)
}

// lowerFirstDirty sees to it, before a truncation, that what will be written from end on counts as dirty: a tombstone that
// no map has seen would go while the value in front of it stays.
func (l *Log) lowerFirstDirty(ctx context.Context, end int64) error {
	if at, ok, _ := l.dir.points.get(checkpoint.CleanerOffsets, l.tp); !ok || at <= end {
		return nil
	}
	return l.dir.points.store(ctx, checkpoint.CleanerOffsets, l.tp, end)
}

// lostSome says whether retention, a reset or a truncation took segments of a run away; whichever is under way ends first.
func (l *Log) lostSome(segs segments, cuts uint64) bool {
	_ = l.write.lock(context.Background())
	defer l.write.unlock()
	now := *l.list.Load()
	_, n := l.loadCuts()
	return n != cuts || !now.hasRun(now.floor(segs[0].Base()), segs[:1])
}

// explainCleaning gives errors of a run this package's names. Damage that a truncation made is none.
func (l *Log) explainCleaning(segs segments, err error, cuts uint64) error {
	if err == nil {
		return nil
	}
	if _, now := l.loadCuts(); now != cuts && !isContext(err) {
		return ErrCleaningAborted
	}
	if errors.Is(err, fs.ErrNotExist) && l.lostSome(segs, cuts) {
		return ErrCleaningAborted
	}
	if bad, ok := errors.AsType[*compaction.UncleanableError](err); ok {
		return segs.blame(bad, err)
	}
	if isNoSpace(err) && !errors.Is(err, ErrNoSpace) {
		return fmt.Errorf("compact %s: %w: %w", l.name, ErrNoSpace, err)
	}
	return err
}
