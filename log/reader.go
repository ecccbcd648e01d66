package log

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path/filepath"
	"sync"
	"time"

	"github.com/partlog/partlog/index"
	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/vfs"
)

// ReaderOptions of OpenReader; the zero value is right for most.
type ReaderOptions struct {
	FS   vfs.FS        // the log root that holds the partition folder; nil: the operating system's
	Stop func() int64  // upper bound of what is shown, published by the writer; nil: the last valid batch
	Map  index.MapMode // index.Never: read indexes without mapping them
}

// Reader reads one partition folder without a lock and without writing a byte, also beside a live writer or a live
// broker. It shows what a recovery would keep: everything up to the last whole batch with a right CRC; damage below the
// recovery point is a *CorruptError when reading gets there. It sees what was written, synced or not, and has no high
// watermark of its own: both isolations read to the end. It looks for more each time an iteration begins or waits. All
// methods are safe for concurrent use.
type Reader struct {
	view
	opts segment.Options
	stop func() int64

	// mu guards all below and the search for more, I/O included; marks.mu comes after it.
	mu       sync.Mutex
	known    tail
	growing  int64 // base of the last segment, the one that may still be appended to
	trusted  int64 // recovery point: bad bytes below it are damage, not the end
	logStart int64 // as the checkpoint has it
}

// tail is how far a Reader has looked: everything before is whole batches.
type tail struct {
	base     int64 // of the segment
	position int64
	offset   int64 // next offset
}

// OpenReader opens a partition folder for reading. Its checkpoints are read from the folder above it; malformed or
// missing ones count as absent. ErrNotLog: the folder holds no segment and its name is no partition's.
func OpenReader(partitionDir string, o ReaderOptions) (*Reader, error) {
	root, name := filepath.Split(filepath.Clean(partitionDir))
	if o.FS == nil {
		abs, err := filepath.Abs(partitionDir)
		if err != nil {
			return nil, err
		}
		root, name = filepath.Split(abs)
		if o.FS, err = vfs.OSReadOnly(root); err != nil {
			return nil, openError(root, err)
		}
	}
	r := &Reader{stop: o.Stop}
	r.fs, r.name = o.FS, name
	r.opts = segment.Options{FS: o.FS, ReadOnly: true, Map: o.Map}
	r.view.refresh = r.look
	if info, err := r.fs.Stat(name); err != nil {
		return nil, openError(partitionDir, err)
	} else if !info.IsDir() {
		return nil, fmt.Errorf("%w: %s is a file", ErrNotLog, partitionDir)
	}
	tp, nameErr := ParseTopicPartition(name)
	r.tp = tp
	if err := r.begin(); err != nil {
		if errors.Is(err, errNoSegments) && nameErr != nil {
			return nil, fmt.Errorf("%w: %s holds no segment: %w", ErrNotLog, partitionDir, nameErr)
		}
		if !errors.Is(err, errNoSegments) {
			return nil, openError(partitionDir, err)
		}
	}
	return r, nil
}

var errNoSegments = errors.New("no segments")

// begin reads the checkpoints and finds where the valid batches end. Below the recovery point, or everywhere but in the
// last segment if the root was stopped cleanly, files are believed here: reading checks every CRC anyway.
func (r *Reader) begin() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	segs, err := r.openNew(nil)
	if err != nil {
		return err
	}
	clean := false
	if p, err := readPoints(r.fs); err == nil {
		r.trusted, _, _ = p.get(checkpoint.RecoveryPoints, r.tp)
		r.logStart, _, _ = p.get(checkpoint.LogStarts, r.tp)
		_, clean, _ = checkpoint.ReadCleanMarker(r.fs)
	}
	r.list.Store(&segs)
	if len(segs) == 0 {
		r.known.offset = r.logStart
		r.publish(segs)
		return errNoSegments
	}
	from := max(0, segs.floor(r.trusted))
	if clean {
		from = len(segs) - 1
	}
	r.known = start(segs[from])
	return r.advance(segs)
}

func start(seg *segment.Segment) tail { return tail{base: seg.Base(), offset: seg.Base()} }

// look sees what the writer did since: new segments, more batches, a truncation, segments deleted.
func (r *Reader) look() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed.Load() {
		return ErrClosed
	}
	segs, err := r.openNew(*r.list.Load())
	if err != nil {
		return err
	}
	r.list.Store(&segs)
	if len(segs) == 0 {
		return nil
	}
	i := segs.floor(r.known.base)
	if i < 0 || segs[i].Base() != r.known.base {
		i = 0 // the segment is gone: the log was reset
		r.known = start(segs[0])
	}
	if _, err := segs[i].Refresh(); err != nil {
		return segs.explain(err)
	}
	if segs[i].Size() < r.known.position {
		r.known = start(segs[i])
	}
	return r.advance(segs)
}

// openNew lists the folder again, keeping the segments that are still there.
func (r *Reader) openNew(old segments) (segments, error) {
	bases, err := segment.List(r.fs, r.name)
	if err != nil {
		return nil, err
	}
	kept := map[int64]*segment.Segment{}
	for _, seg := range old {
		kept[seg.Base()] = seg
	}
	segs := make(segments, 0, len(bases))
	for i, base := range bases {
		seg, opts := kept[base], r.opts
		opts.Whole = i+1 < len(bases)
		if seg == nil || opts.Whole && base == r.growing {
			if seg, err = segment.Open(r.name, base, opts); errors.Is(err, fs.ErrNotExist) {
				continue // deleted between the two looks
			}
			if err != nil {
				return nil, err
			}
		}
		if kept[base] == seg {
			delete(kept, base)
		}
		segs = append(segs, seg)
		r.growing = base
	}
	for _, seg := range kept {
		if err := seg.Abandon(); err != nil {
			return nil, err
		}
	}
	return segs, nil
}

// advance walks from the known tail over whole, valid batches to the end, and publishes it. The caller holds mu.
func (r *Reader) advance(segs segments) error {
	for i := segs.floor(r.known.base); i >= 0 && i < len(segs); i++ {
		if i > segs.floor(r.known.base) {
			r.known = start(segs[i])
		}
		if err := r.walk(segs[i]); err != nil {
			if !errors.Is(err, segment.ErrCorrupt) {
				return segs.explain(err)
			}
			if r.known.offset >= r.trusted || i+1 == len(segs) {
				break // the end, or a tail that a recovery would cut
			}
		}
	}
	r.publish(segs)
	return nil
}

func (r *Reader) walk(seg *segment.Segment) error {
	for b, err := range seg.Batches(r.known.position) {
		if err != nil {
			return err
		}
		r.known.position += int64(b.Size())
		r.known.offset = b.LastOffset() + 1
	}
	return nil
}

func (r *Reader) publish(segs segments) {
	end := r.known.offset
	if r.stop != nil {
		end = min(end, r.stop())
	}
	change := func(o *Offsets) {
		o.LogStart = r.logStart
		if len(segs) > 0 {
			o.LogStart = max(r.logStart, segs[0].Base())
		}
		end := max(end, o.LogStart)
		o.LogEnd, o.HighWatermark, o.LastStable = end, end, end
		o.Durable, o.RecoveryPoint, o.LeaderEpoch = min(r.trusted, end), min(r.trusted, end), record.NoEpoch
	}
	if r.load().LogEnd > end {
		r.marks.cut(change)
		return
	}
	r.update(change)
}

// Polling intervals of a reader that waits for another process.
const (
	pollFirst = 5 * time.Millisecond
	pollMost  = 200 * time.Millisecond
)

// poll waits by looking, ever less often while nothing happens.
func (v *view) poll(ctx context.Context, done func(Offsets) bool) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for pause := pollFirst; ; pause = min(2*pause, pollMost) {
		if err := v.refresh(); err != nil {
			return err
		}
		if done(v.load()) {
			return nil
		}
		timer.Reset(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// TopicPartition names the partition; zero if the folder's name is no partition's.
func (r *Reader) TopicPartition() TopicPartition { return r.tp }

// Offsets is what the last look found.
func (r *Reader) Offsets() Offsets { return r.load() }

// Refresh looks once whether the writer has gone on.
func (r *Reader) Refresh() error { return r.look() }

// Records is Log.Records.
func (r *Reader) Records(ctx context.Context, offset int64, options ...ReadOption) iter.Seq2[record.Record, error] {
	return r.records(ctx, offset, collect(options), false)
}

// Follow is Log.Follow; it looks for new records every 5 to 200 ms.
func (r *Reader) Follow(ctx context.Context, offset int64, options ...ReadOption) iter.Seq2[record.Record, error] {
	return r.records(ctx, offset, collect(options), true)
}

// Batches is Log.Batches.
func (r *Reader) Batches(ctx context.Context, offset int64, options ...ReadOption) iter.Seq2[record.Batch, error] {
	return r.batches(ctx, offset, collect(options), false)
}

// Fetch is Log.Fetch; LastFetchedEpoch is not looked at.
func (r *Reader) Fetch(ctx context.Context, offset int64, o FetchOptions) (*Fetched, error) {
	if err := r.look(); err != nil {
		return nil, err
	}
	return r.fetch(ctx, offset, o, r.load())
}

// OffsetForTime is Log.OffsetForTime.
func (r *Reader) OffsetForTime(ctx context.Context, t time.Time) (At, error) {
	return r.offsetForTime(ctx, t)
}

// OffsetOfMaxTime is Log.OffsetOfMaxTime.
func (r *Reader) OffsetOfMaxTime(ctx context.Context) (At, error) { return r.offsetOfMaxTime(ctx) }

// SegmentInfos lists the segments, oldest first.
func (r *Reader) SegmentInfos() []SegmentInfo { return r.segmentInfos() }

// Close ends the reader; running iterators end with ErrClosed. A second Close returns ErrClosed.
func (r *Reader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed.Load() {
		return ErrClosed
	}
	r.finish(ErrClosed)
	var err error
	for _, seg := range *r.list.Load() {
		err = errors.Join(err, seg.Abandon())
	}
	return err
}
