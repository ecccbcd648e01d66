package log

import (
	"errors"
	"io/fs"
	"math"
	"slices"
	"time"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/internal/producerstate"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/segment"
)

// tail is how far a Reader has looked: everything before is whole batches.
type tail struct {
	base     int64 // of the segment
	position int64
	offset   int64 // next offset
	last     seen
}

// seen is the last batch of a tail. As long as it is there unchanged nothing before it was truncated either.
type seen struct {
	size   int64 // 0: the tail is at a segment's start
	offset int64
	sum    uint32
	epoch  int32
}

func start(seg *segment.Segment) tail { return tail{base: seg.Base(), offset: seg.Base()} }

// stamp tells versions of a checkpoint file apart.
type stamp struct {
	size int64
	time time.Time
}

// begin finds the segments, or all of them anew after they were rewritten, and where their valid batches end. Below the
// recovery point, or everywhere but in the last segment if the root was stopped cleanly, files are believed here: reading
// checks every CRC anyway. The caller holds mu.
func (r *Reader) begin() error {
	r.readMarks()
	r.bad = -1
	r.state = producerstate.New(producerstate.Config{ExpireAfter: -1}, 0)
	r.aborted, r.held = nil, map[*segment.Segment]int64{}
	r.blind, r.orphans = false, nil
	segs, err := r.openAll(nil, nil)
	if err != nil {
		return err
	}
	r.replace(segs)
	if len(segs) == 0 {
		r.known, r.epoch = tail{offset: r.logStart}, record.NoEpoch
		r.publish(r.known.offset)
		return errNoSegments
	}
	from := max(0, segs.floor(r.trusted))
	if r.vouched {
		from = len(segs) - 1
	}
	r.known = start(segs[from])
	if err := r.beginProducers(segs, from); err != nil {
		return err
	}
	return r.advance(segs)
}

// search sees what the writer did since: new segments, more batches, a truncation, segments deleted. doubt says that a
// reader met something it cannot explain: files whose size is not the known one are opened anew. The caller holds mu.
func (r *Reader) search(doubt bool) error {
	if r.over() {
		return ErrClosed
	}
	old := *r.list.Load()
	if len(old) == 0 {
		return ignoreEmpty(r.begin())
	}
	r.readMarks()
	there, err := r.anchored(old)
	if err != nil {
		return err
	}
	if !there {
		return r.rewritten()
	}
	keep := func(*segment.Segment) bool { return true }
	if doubt {
		keep = r.asKnown
	}
	segs, err := r.openAll(old, keep)
	if err != nil {
		return err
	}
	r.replace(segs)
	i := segs.floor(r.known.base)
	if i < 0 || segs[i].Base() != r.known.base {
		return r.rewritten()
	}
	if segs[i].Base() == r.growing {
		if _, err := segs[i].Refresh(); err != nil && !passing(err) {
			return segs.explain(err)
		}
	}
	return r.advance(segs)
}

// anchored says whether the last batch of the tail is still where it was. Its error is one of the device.
func (r *Reader) anchored(segs segments) (bool, error) {
	i := segs.floor(r.known.base)
	if i < 0 || segs[i].Base() != r.known.base {
		return false, nil
	}
	if _, err := r.fs.Stat(segs[i].File()); err != nil {
		return false, ignoreAbsent(err)
	}
	last := r.known.last
	if last.size == 0 {
		return true, nil
	}
	for b, err := range segs[i].Batches(r.known.position - last.size) {
		if err != nil && !passing(err) {
			return false, err
		}
		return err == nil && int64(b.Size()) == last.size && b.NextOffset() == r.known.offset && b.Checksum() == last.sum, nil
	}
	return false, nil
}

func ignoreAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func ignoreEmpty(err error) error {
	if err == errNoSegments {
		return nil
	}
	return err
}

// rewritten starts over: what was seen last is gone, so the log was truncated, reset or replaced.
func (r *Reader) rewritten() error {
	gone := r.known.offset
	if r.known.last.size > 0 {
		gone = r.known.last.offset
	}
	r.marks.cut(gone, func(o *Offsets) {
		o.LogEnd = max(min(gone, o.LogEnd), o.LogStart)
		o.clampToEnd()
	})
	return ignoreEmpty(r.begin())
}

// asKnown says whether a segment's file still has the size it was opened with.
func (r *Reader) asKnown(seg *segment.Segment) bool {
	info, err := r.fs.Stat(seg.File())
	return err == nil && (seg.Base() == r.growing || info.Size() == seg.Size())
}

// openAll lists the folder, keeping those of old that are still there and that keep lets pass. The last segment may still
// grow: its end is what is whole. The others, and one that is damaged where nothing may be missing, are read as they are.
func (r *Reader) openAll(old segments, keep func(*segment.Segment) bool) (segments, error) {
	bases, err := segment.List(r.fs, r.name)
	if err != nil {
		return nil, err
	}
	segs, growing := make(segments, 0, len(bases)), int64(-1)
	for i, base := range bases {
		opts := r.opts
		opts.Whole = i+1 < len(bases) || base == r.bad
		if !opts.Whole {
			growing = base
		}
		if j := old.floor(base); j >= 0 && old[j].Base() == base && opts.Whole == (base != r.growing) && keep(old[j]) {
			segs = append(segs, old[j])
			continue
		}
		seg, err := segment.Open(r.name, base, opts)
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted between the two looks
		}
		if err != nil {
			return nil, err
		}
		segs = append(segs, seg)
	}
	r.growing = growing
	return segs, nil
}

// replace publishes a list and gives up the segments that are not in it: readers must find the new list first.
func (r *Reader) replace(segs segments) {
	var old segments
	if p := r.list.Load(); p != nil {
		old = *p
		if slices.Equal(old, segs) {
			return
		}
	}
	r.list.Store(&segs)
	for _, seg := range old {
		if !slices.Contains(segs, seg) {
			delete(r.held, seg)
			seg.Abandon() // it only closes files that were read
		}
	}
}

// advance walks from the known tail over whole, valid batches to the end, and publishes it. The caller holds mu.
func (r *Reader) advance(segs segments) error {
	for i := max(0, segs.floor(r.known.base)); i < len(segs); i++ {
		if segs[i].Base() != r.known.base {
			if i > 0 {
				r.entrust(segs[i-1])
			}
			r.known = start(segs[i])
		}
		err := r.walk(segs[i])
		if err != nil && !passing(err) {
			return segs.explain(err)
		}
		if err != nil && r.known.offset >= r.trusted {
			break // a tail that a recovery would cut
		}
	}
	end := r.known.offset
	damaged, err := r.damaged(segs.active())
	if err != nil {
		return err
	}
	if damaged { // readers come to the bad bytes, not to an end that is none
		end = max(end+1, min(r.trusted, maxOffset))
		if err := r.readAsIs(segs); err != nil {
			return err
		}
	}
	sure := int64(math.MaxInt64)
	if r.vouched && r.trusted > 0 && end > r.trusted && segs.jumped(r.trusted) != nil {
		end, sure = r.trusted, r.trusted
	}
	r.sure.Store(sure)
	r.epoch = r.lastEpoch(segs)
	if r.blind {
		if err := r.findOrphans(segs); err != nil {
			return err
		}
		r.blind = false
	}
	r.publish(end)
	return nil
}

// lastEpoch is the leader epoch of the last batch, -1 if there is none.
func (r *Reader) lastEpoch(segs segments) int32 {
	if r.known.last.size > 0 {
		return r.known.last.epoch
	}
	for i := segs.floor(r.known.base) - 1; i >= 0; i-- {
		if segs[i].Size() == 0 {
			continue
		}
		if last, err := segs[i].Last(); err == nil {
			return last.LeaderEpoch
		}
		break
	}
	return record.NoEpoch
}

const maxOffset = 1<<63 - 2

// damaged says whether the log ends with bytes that are no batches although everything there is known to be durable.
func (r *Reader) damaged(last *segment.Segment) (bool, error) {
	if last.Base() != r.known.base || r.known.offset >= r.trusted {
		return false, nil
	}
	info, err := r.fs.Stat(last.File())
	if err != nil {
		return false, ignoreAbsent(err)
	}
	return info.Size() > r.known.position, nil
}

// readAsIs opens the last segment so that bad bytes at its end are an error.
func (r *Reader) readAsIs(segs segments) error {
	last := segs.active()
	if r.bad == last.Base() {
		return nil
	}
	opts := r.opts
	opts.Whole = true
	seg, err := segment.Open(r.name, last.Base(), opts)
	if err != nil {
		return err
	}
	r.bad, r.growing = last.Base(), -1
	r.replace(segs[: len(segs)-1 : len(segs)-1].with(seg))
	return nil
}

// walk moves the tail over the batches of its segment.
func (r *Reader) walk(seg *segment.Segment) error {
	for b, err := range seg.Batches(r.known.position) {
		if err != nil {
			return err
		}
		if r.known.position > 0 && b.BaseOffset() < r.known.offset {
			return segment.ErrCorrupt // it contradicts what came before
		}
		r.known.position += int64(b.Size())
		r.known.offset = b.LastOffset() + 1
		r.aborted = appendAborted(r.aborted, r.state.Replay(b), 0)
		if len(r.orphans) > 0 && b.Control() {
			id, _, _ := b.Producer()
			delete(r.orphans, id)
		}
		r.known.last = seen{size: int64(b.Size()), offset: b.BaseOffset(), sum: b.Checksum(), epoch: b.LeaderEpoch()}
	}
	return nil
}

// readMarks reads the checkpoints again if they have changed. What is missing or malformed counts as absent. The marker of
// a clean stop vouches for every byte, as long as nobody has the root open.
func (r *Reader) readMarks() {
	_, err := r.fs.Stat(checkpoint.CleanMarker)
	r.vouched = err == nil
	trusted, known := r.point(checkpoint.RecoveryPoints)
	if r.vouched && !known {
		trusted = maxOffset
	}
	r.trusted = trusted
	r.logStart, _ = r.point(checkpoint.LogStarts)
}

// point is the partition's entry in a checkpoint.
func (r *Reader) point(file string) (offset int64, known bool) {
	now := stamp{size: -1}
	if info, err := r.fs.Stat(file); err == nil {
		now = stamp{info.Size(), info.ModTime()}
	}
	if p, ok := r.points[file]; ok && p.stamp == now {
		return p.offset, p.known
	}
	entries, err := checkpoint.ReadOffsets(r.fs, file)
	if err == nil {
		offset, known = entries[checkpoint.Partition(r.tp)]
	}
	r.points[file] = point{now, offset, known}
	return offset, known
}

// point is a checkpoint's entry, and the version of the file it was read from.
type point struct {
	stamp  stamp
	offset int64
	known  bool
}

// publish shows everything below end, or below what Stop allows.
func (r *Reader) publish(end int64) {
	if r.stop != nil {
		end = min(end, r.stop())
	}
	start := r.logStart
	if segs := *r.list.Load(); len(segs) > 0 {
		start = max(start, segs[0].Base())
	}
	end = max(end, start)
	stable := r.state.Unstable().LastStable(end, start)
	if len(r.orphans) > 0 {
		stable = start
	}
	if end > r.known.offset { // behind damage nothing is known of transactions
		stable = max(start, min(stable, r.known.offset+1))
	}
	change := func(o *Offsets) {
		o.LogStart, o.LogEnd, o.HighWatermark, o.LastStable = start, end, end, stable
		o.Durable, o.RecoveryPoint, o.LeaderEpoch = min(r.trusted, end), min(r.trusted, end), r.epoch
	}
	switch now := r.load(); {
	case now.LogEnd > end:
		r.marks.cut(end, change)
	case now.LogEnd < end || now.LogStart != start || now.LastStable != stable || now.RecoveryPoint != min(r.trusted, end) || now.LeaderEpoch != r.epoch:
		r.update(change)
	}
}

// beginProducers makes the producer state that of everything below segs[from]: from a snapshot and the batches behind it.
// Batches that cannot be read say nothing here: reading them will.
func (r *Reader) beginProducers(segs segments, from int) error {
	end := segs[from].Base()
	res, err := r.state.Reload(producerstate.Reload{FS: r.fs, Folder: r.name, LogStart: min(segs.startOf(r.logStart), end), End: end, ReadOnly: true})
	if err != nil {
		return err
	}
	r.blind = r.vouched && res.Snapshot < 0 && segs[0].Base() > 0
	for i := max(0, segs.floor(res.From)); i < from; i++ {
		batches := segs[i].Batches(0)
		if res.From > segs[i].Base() {
			batches = segs[i].BatchesFrom(res.From)
		}
		for b, err := range batches {
			if errors.Is(err, segment.ErrNotFound) || err != nil && passing(err) {
				break
			}
			if err != nil {
				return segs.explain(err)
			}
			r.aborted = appendAborted(r.aborted, r.state.Replay(b), 0)
		}
		r.entrust(segs[i])
		if err := segs[i].Park(); err != nil {
			return err
		}
	}
	r.state.SetEnd(end)
	return nil
}

// entrust forgets the aborted transactions of a segment that grows no more, if its index has every one of them: a log has
// as many as it likes, and they would all stay in memory. A writer has them in the index before it begins the next segment.
// Those that are not there, of a log that lost its power, say, are kept. The caller holds mu.
func (r *Reader) entrust(seg *segment.Segment) {
	first := firstBehind(r.aborted, seg.Base())
	own := r.aborted[first:]
	if len(own) == 0 {
		return
	}
	n, _, err := seg.AbortedFrom(0, math.MaxInt64, func(t segment.AbortedTxn) {
		if len(own) > 0 && t.LastOffset == own[0].LastOffset && t.ProducerID == own[0].ProducerID && t.FirstOffset <= own[0].FirstOffset {
			own = own[1:]
		}
	})
	if err != nil || len(own) > 0 || !r.asKnown(seg) {
		return
	}
	r.held[seg] = n
	r.aborted = slices.Clone(r.aborted[:first])
}

// stillThere says whether the writer has neither deleted nor rewritten a segment since it was opened. It renames the .log
// first, so what was read of the other files before is right if this says so. An index of aborted transactions that has
// fewer entries than were seen in it is just being written anew.
func (r *Reader) stillThere(seg *segment.Segment, read int64, more bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return (more || read >= r.held[seg]) && r.asKnown(seg)
}

func (r *Reader) recentlyAborted() []segment.AbortedTxn {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clip(r.aborted)
}
