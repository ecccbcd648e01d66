package log

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"path/filepath"
	"sync"
	"time"

	"github.com/partlog/partlog/index"
	"github.com/partlog/partlog/internal/producerstate"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/vfs"
)

// ReaderOptions of OpenReader; the zero value is right for most.
type ReaderOptions struct {
	FS   vfs.FS        // the log root that holds the partition folder; nil: the operating system's
	Stop func() int64  // upper bound of what is shown, published by the writer; nil: the last valid batch. It must not call the Reader
	Map  index.MapMode // index.Never: read indexes without mapping them
	// Limits of unpacking, unless a read says otherwise (WithLimits, FetchOptions.Limits): a batch that needs more is
	// ErrTooLarge. The zero value is record's defaults, which appends keep to.
	Limits record.Limits
}

// Reader reads one partition folder without a lock and without writing a byte, also beside a live writer or a live
// broker. It shows what a recovery would keep: everything up to the last whole batch with a right CRC; damage below the
// recovery point is a *CorruptError when reading gets there, and what lies behind it in later segments can be read by
// asking for a later offset. It sees what was written, synced or not, and has no high watermark of its own:
// ReadUncommitted and LogEnd read to the end, ReadCommitted up to the first transaction that is open there. It looks for
// more each time a call or an iteration begins or waits; a truncation that the writer made up for with other records between
// two looks is seen only by those who had read what was cut. All methods are safe for concurrent use.
type Reader struct {
	view
	opts  segment.Options
	stop  func() int64
	owned io.Closer // the file system, if OpenReader made it

	// mu guards all below and the search for more, I/O included; marks.mu comes after it.
	mu       sync.Mutex
	known    tail
	epoch    int32 // leader epoch of the last batch; -1 none
	growing  int64 // base of the segment that may still be appended to; -1 none
	bad      int64 // base of the last segment if it is damaged below trusted; -1 not
	vouched  bool  // the root carries the marker of a clean stop
	trusted  int64 // recovery point: bad bytes below it are damage, not the end
	logStart int64 // as the checkpoint has it
	points   map[string]point
	state    *producerstate.State // of all below known.offset
	blind    bool                 // nothing told of what was below the first segment, and nobody looked further
	orphans  orphans
	shut     bool

	// aborted are the transactions that were found in what was walked, in the order of their markers, but for those of
	// segments whose indexes have them: held says how many entries these had at the least. What readers were given is not
	// changed.
	aborted []segment.AbortedTxn
	held    map[*segment.Segment]int64
}

// OpenReader opens a partition folder for reading. Its checkpoints are read from the folder above it; malformed or
// missing ones count as absent. It costs a list of the folder and a scan from the recovery point on.
//
// ErrNotLog: the path is a file, or a folder that holds no segment, and partitions instead or a name that is no partition's.
// fs.ErrNotExist, ErrReadOnly for a folder that may not be read, *ConfigError for a Map that is no constant. Damage is no error
// here: reading meets it.
func OpenReader(partitionDir string, o ReaderOptions) (*Reader, error) {
	name := filepath.Base(filepath.Clean(partitionDir))
	r := &Reader{stop: o.Stop, growing: -1, bad: -1, points: map[string]point{}}
	if partitionDir == "" {
		return nil, errNoPath
	}
	if o.Map > index.Never {
		return nil, &ConfigError{Field: "ReaderOptions.Map", Value: fmt.Sprint(o.Map), Reason: "not one of the constants"}
	}
	if o.FS == nil {
		abs, err := filepath.Abs(partitionDir)
		if err != nil {
			return nil, err
		}
		var root string
		root, name = filepath.Split(abs)
		if o.FS, err = vfs.OSReadOnly(root); err != nil {
			return nil, openError(root, err)
		}
		r.owned, _ = o.FS.(io.Closer)
	}
	r.fs, r.name = o.FS, filepath.ToSlash(name)
	r.opts = segment.Options{FS: o.FS, ReadOnly: true, Map: o.Map, Limits: o.Limits}
	r.limits = o.Limits
	r.view.refresh, r.view.recent, r.view.intact = r.look, r.recentlyAborted, r.stillThere
	if err := r.open(partitionDir); err != nil {
		return nil, errors.Join(err, r.letGo())
	}
	return r, nil
}

func (r *Reader) open(partitionDir string) error {
	info, err := r.fs.Stat(r.name)
	if err != nil {
		return openError(partitionDir, err)
	}
	if !info.IsDir() {
		return fmt.Errorf("%w: %s is a file", ErrNotLog, partitionDir)
	}
	tp, nameErr := ParseTopicPartition(r.name)
	r.tp = tp
	r.mu.Lock()
	defer r.mu.Unlock()
	switch err := r.begin(); {
	case err == errNoSegments:
		return r.mayBeEmpty(partitionDir, nameErr)
	case err != nil:
		return openError(partitionDir, err)
	}
	return nil
}

// mayBeEmpty refuses a folder without a segment that is no partition's: one with partitions in it, or with another name.
func (r *Reader) mayBeEmpty(dir string, nameErr error) error {
	entries, err := r.fs.ReadDir(r.name)
	if err != nil {
		return openError(dir, err)
	}
	for _, e := range entries {
		if _, err := ParseTopicPartition(e.Name()); err == nil && e.IsDir() {
			return fmt.Errorf("%w: %s is a log root; open a partition folder in it, as %s", ErrNotLog, dir, filepath.Join(dir, e.Name()))
		}
	}
	if nameErr != nil {
		return fmt.Errorf("%w: %s holds no segment: %w", ErrNotLog, dir, nameErr)
	}
	return nil
}

var errNoSegments = errors.New("no segments")

// letGo gives the file system back.
func (r *Reader) letGo() error {
	if r.owned == nil {
		return nil
	}
	return r.owned.Close()
}

// look sees what the writer did since; see search.
func (r *Reader) look(doubt bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.search(doubt)
}

// Polling intervals of a reader that waits for another process.
const (
	pollFirst = 5 * time.Millisecond
	pollMost  = 200 * time.Millisecond
)

// poll waits by looking, ever less often while nothing happens.
func (v *view) poll(ctx context.Context, done func(Offsets) bool) error {
	timer := time.NewTimer(pollFirst)
	defer timer.Stop()
	for pause := pollFirst; ; pause = min(2*pause, pollMost) {
		changed := v.notice()
		if err := v.refresh(false); err != nil {
			return err
		}
		if done(v.load()) {
			return nil
		}
		timer.Reset(pause)
		select {
		case <-timer.C:
		case <-changed: // another reader's look found something, or the end
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// notice is closed at the next change of the marks.
func (m *marks) notice() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.changed == nil {
		m.changed = make(chan struct{})
	}
	return m.changed
}

// TopicPartition names the partition; zero if the folder's name is no partition's.
func (r *Reader) TopicPartition() TopicPartition { return r.tp }

// Offsets is what the last look found. LeaderEpoch is that of the last batch.
func (r *Reader) Offsets() Offsets { return r.load() }

// Refresh looks once whether the writer has gone on; Offsets then says what there is.
func (r *Reader) Refresh() error { return r.look(false) }

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
	return r.batches(ctx, offset, collect(options))
}

// Fetch is Log.Fetch; LastFetchedEpoch is not looked at.
func (r *Reader) Fetch(ctx context.Context, offset int64, o FetchOptions) (*Fetched, error) {
	if err := r.look(false); err != nil {
		return nil, err
	}
	f := fetch{v: &r.view, offset: offset, o: o}
	return f.run(ctx)
}

// OffsetForTime is Log.OffsetForTime.
func (r *Reader) OffsetForTime(ctx context.Context, t time.Time) (At, error) {
	return r.offsetForTime(ctx, t)
}

// OffsetOfMaxTime is Log.OffsetOfMaxTime.
func (r *Reader) OffsetOfMaxTime(ctx context.Context) (At, error) { return r.offsetOfMaxTime(ctx) }

// SegmentInfos lists the segments, oldest first.
func (r *Reader) SegmentInfos() []SegmentInfo { return r.segmentInfos() }

// Close ends the reader; running iterators end with ErrClosed, what Fetch returned stays readable until it is closed. A
// second Close returns ErrClosed.
func (r *Reader) Close() error {
	r.finish(ErrClosed) // before mu: whoever waits for it need not wait for a search
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.shut || r.fs == nil {
		return ErrClosed
	}
	r.shut = true
	var err error
	for _, seg := range r.segments() {
		err = errors.Join(err, seg.Abandon())
	}
	return errors.Join(err, r.letGo())
}
