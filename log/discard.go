package log

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"sync"

	"github.com/partlog/partlog/segment"
)

// A segment that goes for good leaves in three steps, so that no reader is hurt and nothing of it comes back:
//
//	.log -> .log.deleted, the directory synced, the other files renamed    no open finds it any more
//	log start and segment list without it                                  no reader finds it any more
//	file.delete.delay.ms later: removed; readers that hold it go on        the space comes back
//
// Whatever a crash leaves of the last step, the next open removes. No step writes to a file.

// discards are the segments whose files wait to be removed.
type discards struct {
	// mu guards waiting, for an instant: never across I/O. A leaf.
	mu      sync.Mutex
	waiting []discarded
}

// discarded is a segment that is out of the log, or a file that an open could not remove.
type discarded struct {
	seg      *segment.Segment // nil: only the file
	file     string           // in the partition's folder; the segment's producer snapshot. "": none. May not be there
	marked   int64            // when, Unix ms
	promptly bool             // wait for nothing but that it can be removed
}

func (d *discards) add(all ...discarded) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waiting = append(d.waiting, all...)
}

// take takes out those that are due.
func (d *discards) take(due func(w *discarded) bool) (taken []discarded) {
	d.mu.Lock()
	defer d.mu.Unlock()
	keep := d.waiting[:0]
	for _, w := range d.waiting {
		if due(&w) {
			taken = append(taken, w)
		} else {
			keep = append(keep, w)
		}
	}
	clear(d.waiting[len(keep):])
	d.waiting = keep
	return taken
}

// waits says whether another segment of that base waits.
func (d *discards) waits(base int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.ContainsFunc(d.waiting, func(w discarded) bool { return w.seg != nil && w.seg.Base() == base })
}

func (d *discards) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.waiting)
}

// discardDue removes the files of dropped segments that have waited for Config.FileDeleteDelay by now (Unix ms), and says
// how many segments wait still. Those that cannot be removed wait for the next call; the error says why. It takes no lock
// that appends or reads wait for.
func (l *Log) discardDue(now int64) (waiting int, err error) {
	if l.discards.count() == 0 {
		return 0, nil
	}
	delay := l.deleteDelay()
	err = l.discard(l.discards.take(func(w *discarded) bool {
		w.marked = min(w.marked, now) // a clock that went back begins the wait anew: it is neither cut short nor lasts for years
		return w.promptly || now-w.marked >= delay
	}))
	return l.discards.count(), err
}

// discardAll is discardDue for those that are not due as well.
func (l *Log) discardAll() error {
	return l.discard(l.discards.take(func(*discarded) bool { return true }))
}

func (l *Log) discard(taken []discarded) error {
	var errs []error
	for _, w := range taken {
		if err := l.removeDiscarded(w); err != nil {
			errs = append(errs, err)
			w.promptly = true
			l.discards.add(w)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove deleted files of %s: %w", l.name, err)
	}
	return nil
}

func (l *Log) removeDiscarded(w discarded) error {
	if w.seg != nil {
		if err := w.seg.Abandon(); err != nil { // first: without a reader nothing has to be opened to be removed
			return err
		}
		if err := w.seg.Delete(); err != nil {
			return err
		}
	}
	if w.file == "" {
		return nil
	}
	if err := l.fs.Remove(l.path(w.file)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// deleteDelay is file.delete.delay.ms, in milliseconds. There is none where MaxBytes is to bound what is on the device, or
// where the device has no room for another segment.
func (l *Log) deleteDelay() int64 {
	if l.cfg().MaxBytes > 0 {
		return 0
	}
	if free, err := l.fs.Free(l.name); err == nil && free < l.cfg().SegmentBytes {
		return 0
	}
	if delay := boundMillis(l.cfg().FileDeleteDelay); delay >= 0 {
		return delay
	}
	return math.MaxInt64
}

// dropHead takes the first n segments out of the log, oldest first. Each is gone for good before the next goes, so that
// whatever a crash leaves is the log with fewer of its oldest segments, and a reader that was told "gone" never finds the
// records back. That costs a directory sync each, unless they lie below the log start: that is durable already, and hides
// whatever comes back. What went before an error is out of the log. The caller holds names and write; retention holds write
// for the part in memory only.
func (l *Log) dropHead(n int) error {
	segs := *l.list.Load()
	dropped, err := l.retireHead(segs[:n+1])
	l.shelve(l.dropped(dropped))
	return err
}

// retireHead takes the files of all but the last one of segs out of the folder. It says how many went, which are still in the
// list. The caller holds names.
func (l *Log) retireHead(segs segments) (went int, err error) {
	start := l.load().LogStart
	var unsure error
	sync := func() error {
		unsure = l.syncDir()
		return unsure
	}
	for ; went < len(segs)-1; went++ {
		below := segs[went+1].Base() <= start
		if err = l.dropOne(segs[went], below, sync); err != nil {
			break
		}
	}
	switch {
	case unsure != nil:
		return went, l.fail(unsure) // it may come back, and the next sync would not say so
	case err != nil:
		return went, fmt.Errorf("drop the oldest segments of %s: %w", l.name, err)
	}
	return went, nil
}

// dropOne takes a segment out of the folder; below says that nobody would find it if it came back.
func (l *Log) dropOne(seg *segment.Segment, below bool, sync func() error) error {
	if below {
		l.loose = true
		return l.retire(seg, nil)
	}
	if l.loose { // or one of those could come back, and this one, which lies between it and the log, not
		if err := sync(); err != nil {
			return err
		}
		l.loose = false
	}
	return l.retire(seg, sync)
}

// retire marks the files of a segment. A directory that has no room for longer names loses the files at once.
func (l *Log) retire(seg *segment.Segment, gone func() error) error {
	suffix, err := l.unusedMark(seg.Base())
	if err == nil {
		err = seg.Retire(suffix, gone)
	}
	if isNoSpace(err) {
		err = seg.Retire("", gone)
	}
	return err
}

// unusedMark is a suffix for the files of a dropped segment that no file has: what a compaction replaced by the segment may
// still wait for its removal, and those who read it find it by name.
func (l *Log) unusedMark(base int64) (suffix string, err error) {
	suffix = ".deleted"
	for n := 1; l.discards.waits(base); n++ {
		_, err := l.fs.Stat(l.path(segment.FileName(base, ".log") + suffix))
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			return "", err
		}
		suffix = fmt.Sprintf(".%d.deleted", n)
	}
	return suffix, nil
}

// dropped makes the log begin behind the first n segments, which are gone from the folder, and gives these, with the names of
// the snapshots that belong to them. It waits for nothing. The caller holds names and write.
func (l *Log) dropped(n int) (gone []discarded) {
	if n == 0 {
		return nil
	}
	segs := *l.list.Load()
	rest, start := segs[n:], segs[n].Base()
	l.producers.state.OnLogStart(max(start, l.load().LogStart))
	l.producers.drop(start-1, math.MaxInt64) // the one where the log begins now is all that tells of those that went
	l.update(func(o *Offsets) {
		o.LogStart = max(o.LogStart, start)
		o.HighWatermark = max(o.HighWatermark, start)
		l.restable(o)
	})
	l.list.Store(&rest)
	l.epochs.TruncateFromStart(l.load().LogStart) // storeEpochs comes later, or not at all
	for _, seg := range segs[:n] {
		gone = append(gone, discarded{seg: seg, file: l.takeSnapshot(seg.Base())})
	}
	return gone
}

// shelve lets segments that are out of the list wait for their removal. The caller holds names.
func (l *Log) shelve(gone []discarded) {
	now := l.now().UnixMilli()
	for _, w := range gone {
		_ = w.seg.Park() // nothing is lost: it is sealed, and whoever reads it opens it again
		w.marked, w.file = now, l.retireFile(w.file)
		l.discards.add(w)
	}
}

// takeSnapshot takes the producer snapshot that belongs to a dropped segment out of what is known, and gives its name, ""
// if there is none. The caller holds write.
func (l *Log) takeSnapshot(base int64) string {
	if !l.producers.takeStored(base) {
		return ""
	}
	return segment.FileName(base, ".snapshot")
}

// retireFile marks a file that belongs to a dropped segment, and gives the name it has then, "" if there is none. One that
// stays behind belongs to no segment: the next open removes it.
func (l *Log) retireFile(name string) string {
	if name == "" {
		return ""
	}
	switch err := l.fs.Rename(l.path(name), l.path(name+".deleted")); {
	case errors.Is(err, fs.ErrNotExist):
		return ""
	case err != nil:
		return name
	}
	return name + ".deleted"
}
