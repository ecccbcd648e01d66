package log

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/internal/producerstate"
	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/vfs"
)

// Kinds of findings of Verify, beside those an open reports.
const (
	FindingBatch      = "batch"      // bytes of a .log that are no valid batch: CRC, length, header; or a torn end of a segment that is not the last
	FindingRecords    = "records"    // a batch whose CRC is right but whose records do not parse, or contradict its header
	FindingOrder      = "order"      // offsets or leader epochs that go back, segments that overlap
	FindingIndex      = "index"      // an offset index that does not fit the log
	FindingTimeIndex  = "timeindex"  // a time index that does not fit the log
	FindingTxnIndex   = "txnindex"   // an index of aborted transactions that is malformed or does not fit the log
	FindingSnapshot   = "snapshot"   // a producer snapshot that cannot be used
	FindingMarker     = "marker"     // the clean-shutdown marker says what the files do not
	FindingLeftover   = "leftover"   // a file that interrupted work left behind
	FindingForeign    = "foreign"    // a name that is no partition's or no segment's: a broker does not start beside it
	FindingUnreadable = "unreadable" // a file of the log that is a directory or too long to be one
)

// VerifyOptions of Verify; the zero value looks at everything.
type VerifyOptions struct {
	// Partitions to verify; nil: all of the root, and what else lies in it.
	Partitions []TopicPartition
	// IndexInterval is index.interval.bytes where it is known, to judge whether an index lacks entries; 0:
	// 4096, or less if the entries there are say so.
	IndexInterval int64
	// ProducerExpiry is producer.id.expiration.ms where it is known: producers that were forgotten since their last record are
	// missed by nobody. 0: a day; Forever: none is ever forgotten.
	ProducerExpiry time.Duration
	// Now is the present, which decides the same; nil: time.Now.
	Now func() time.Time
	// Progress is called now and then from the calling goroutine.
	Progress func(VerifyProgress)
}

// VerifyProgress says how far a Verify is.
type VerifyProgress struct {
	File        string // .log under work, below the root
	Done, Total int64  // bytes of it
}

// Verify reads every byte of the partitions of a log root that means anything and reports what is not as it should be:
// every batch with its CRC, header and records, the order of offsets, epochs and segments, every entry of every index
// against the log, every producer snapshot and index of aborted transactions against what the batches say up to there, the
// epoch file, the root's checkpoints and marker, leftovers and foreign names. It writes nothing, takes no lock, and never
// panics whatever the files hold. Damage is a Finding, also several for one file; an error is what could not be looked at,
// and the iteration goes on behind it, but for ctx's. The log is read once; memory is bounded by its largest batch and by its
// producers, of which it follows up to half a million at a time.
//
// What is legal is not reported: gaps between offsets and segments, compacted batches, zero padding of indexes that
// recovery would rebuild, epochs nobody wrote in, index entries of releases before 4.0 that name a later batch of the same
// append (Kafka's dump tool does complain about those), producers that are not known any more because they are old, deleted
// or compacted away. The files should be at rest; beside a live writer the tail of the last segment may be caught in the
// middle of an append.
func Verify(ctx context.Context, fsys vfs.FS, o VerifyOptions) iter.Seq2[Finding, error] {
	return func(yield func(Finding, error) bool) {
		v := &verifier{ctx: ctx, fs: fsys, o: o, yield: yield}
		v.root()
	}
}

// Verify is the package's Verify for this log as it is now, beside running appends: the active index may lack its last
// entries, and the root's checkpoints and marker, which speak of the last stop, are only checked for their format. What the
// log works with is compared too: the producers it knows, and the last stable offset. A truncation meanwhile ends it with
// ErrTruncated. A compaction under way waits with what it has rewritten until the iteration ends.
func (l *Log) Verify(ctx context.Context) iter.Seq2[Finding, error] {
	return func(yield func(Finding, error) bool) {
		if l.closed.Load() {
			yield(Finding{}, ErrClosed)
			return
		}
		live, err := l.liveBounds(ctx)
		if err != nil {
			yield(Finding{}, err)
			return
		}
		defer live.release()
		v := &verifier{ctx: ctx, fs: l.fs, yield: yield, o: VerifyOptions{IndexInterval: int64(l.cfg().IndexIntervalBytes), ProducerExpiry: l.cfg().ProducerExpiry, Now: l.now}}
		v.partition(l.tp, l.name, v.readMarks(), live)
		if live.changed() && v.going() {
			v.fail(fmt.Errorf("verify %s: %w", l.name, ErrTruncated))
		}
	}
}

// Verify is the package's Verify for this partition.
func (r *Reader) Verify(ctx context.Context) iter.Seq2[Finding, error] {
	return func(yield func(Finding, error) bool) {
		if r.closed.Load() {
			yield(Finding{}, ErrClosed)
			return
		}
		v := &verifier{ctx: ctx, fs: r.fs, yield: yield}
		v.partition(r.tp, r.name, v.readMarks(), nil)
	}
}

// liveBounds are what a running writer has published, at one moment: nothing behind it is looked at.
type liveBounds struct {
	offsets   Offsets
	producers []producerstate.Entry
	active    int64           // base of the active segment
	sizes     map[int64]int64 // bytes by segment base
	changed   func() bool     // bytes were taken away since
	release   func()          // compaction may go on
}

// liveBounds is what the log holds and knows now.
func (l *Log) liveBounds(ctx context.Context) (*liveBounds, error) {
	if l.closed.Load() || l.producers == nil {
		return nil, ErrClosed
	}
	if err := l.lockNames(ctx); err != nil {
		return nil, err
	}
	defer l.unlockNames()
	offsets, cuts := l.loadCuts()
	live := &liveBounds{release: l.cleaner.watch(), offsets: offsets, producers: l.producers.state.Producers(), sizes: map[int64]int64{}, changed: func() bool {
		_, now := l.loadCuts()
		return now != cuts || l.closed.Load()
	}}
	for _, seg := range *l.list.Load() {
		live.sizes[seg.Base()] = seg.Size()
		live.active = seg.Base()
	}
	return live, nil
}

// verifier is one run.
type verifier struct {
	ctx   context.Context
	fs    vfs.FS
	o     VerifyOptions
	yield func(Finding, error) bool
	ended bool // the caller wants no more, or ctx ended
	most  int  // producers to follow; 0: mostProducers
}

func (v *verifier) now() time.Time {
	if v.o.Now != nil {
		return v.o.Now()
	}
	return time.Now()
}

// going says whether to go on.
func (v *verifier) going() bool {
	if !v.ended && v.ctx.Err() != nil {
		v.fail(v.ctx.Err())
		v.ended = true
	}
	return !v.ended
}

func (v *verifier) find(kind, file string, position, offset int64, format string, args ...any) {
	if !v.ended {
		v.ended = !v.yield(Finding{File: file, Position: position, Offset: offset, Kind: kind, Detail: fmt.Sprintf(format, args...)}, nil)
	}
}

func (v *verifier) fail(err error) {
	if !v.ended && err != nil {
		ended := !v.yield(Finding{}, err)
		v.ended = ended || v.ctx.Err() != nil
	}
}

// root checks what lies in the root, then the partitions.
func (v *verifier) root() {
	entries, err := v.fs.ReadDir(".")
	if err != nil {
		v.fail(err)
		return
	}
	whole := v.o.Partitions == nil
	m := v.readMarks()
	for _, e := range entries {
		if whole && v.going() {
			v.rootEntry(e)
		}
	}
	names := map[TopicPartition][]string{}
	var order []TopicPartition
	for _, e := range entries {
		tp, state, err := parseFolder(e.Name())
		if !e.IsDir() || err != nil || state != liveFolder || whole && ignoredFolder(e.Name()) {
			continue
		}
		if len(names[tp]) == 0 {
			order = append(order, tp)
		}
		names[tp] = append(names[tp], e.Name())
	}
	if !whole {
		order = v.o.Partitions
	}
	for _, tp := range order {
		if !v.going() {
			return
		}
		if len(names[tp]) > 1 {
			v.find(FindingForeign, names[tp][1], -1, -1, "%d folders belong to partition %s (%s): a broker does not start", len(names[tp]), tp, strings.Join(names[tp], ", "))
		}
		for _, name := range names[tp] {
			if name != tp.String() && len(names[tp]) == 1 {
				v.find(FindingForeign, name, -1, -1, "the folder of %s by another name, under which a broker finds it and nobody opens it here", tp)
			}
			v.partition(tp, name, m, nil)
		}
		if len(names[tp]) == 0 {
			v.fail(&fs.PathError{Op: "verify", Path: tp.String(), Err: fs.ErrNotExist})
		}
	}
}

// notAPartition says what is wrong with a folder's name, which stands before it.
func notAPartition(err error) string {
	if bad, ok := errors.AsType[*FolderError](err); ok {
		return "no partition's name: " + bad.Reason
	}
	return err.Error()
}

// rootEntry judges a name of the root that is no live partition.
func (v *verifier) rootEntry(e fs.DirEntry) {
	name := e.Name()
	if !e.IsDir() {
		if strings.HasSuffix(name, ".tmp") {
			v.find(FindingLeftover, name, -1, -1, "the replacement of a small file that was never finished; the file it was for still counts")
		}
		return
	}
	if ignoredFolder(name) {
		return
	}
	_, state, err := parseFolder(name)
	switch {
	case err != nil:
		v.find(FindingForeign, name, -1, -1, "%s; a broker does not start beside it", notAPartition(err))
	case state == deletingFolder: // legal, as .deleted files are: who opens the root removes it after a delay
	case state == strayFolder:
		v.find(FindingLeftover, name, -1, -1, "a partition that a broker set aside because it was not, or not any more, its own")
	case state == futureFolder:
		v.find(FindingLeftover, name, -1, -1, "the copy of a partition on its way from another disk")
	}
}

// rootMarks are what the root's small files say.
type rootMarks struct {
	clean  bool
	points map[string]map[checkpoint.Partition]int64 // by file; nil for one that cannot be read
}

// readMarks reads and checks the root's small files.
func (v *verifier) readMarks() rootMarks {
	m := rootMarks{points: map[string]map[checkpoint.Partition]int64{}}
	meaning := map[string]string{
		checkpoint.RecoveryPoints: "logs are scanned from their start",
		checkpoint.LogStarts:      "records that were deleted within a segment are visible again",
		checkpoint.HighWatermarks: "high watermarks start at the log start",
		checkpoint.CleanerOffsets: "compaction starts over",
	}
	for _, name := range pointFiles {
		entries, err := checkpoint.ReadOffsets(v.fs, name)
		if format := (*checkpoint.FormatError)(nil); errors.As(err, &format) {
			v.find(FindingCheckpoint, name, -1, -1, "%s; %s, and a broker takes the whole root offline", lineAnd(format), meaning[name])
			continue
		}
		if err != nil {
			v.fail(err)
			continue
		}
		m.points[name] = entries
	}
	_, clean, err := checkpoint.ReadCleanMarker(v.fs)
	v.fail(err)
	m.clean = clean
	_, _, err = checkpoint.ReadIdentity(v.fs)
	if format := (*checkpoint.FormatError)(nil); errors.As(err, &format) {
		v.find(FindingMetadata, checkpoint.MetaProperties, -1, -1, "%s; a broker does not start with it", lineAnd(format))
	} else {
		v.fail(err)
	}
	return m
}

func lineAnd(e *checkpoint.FormatError) string {
	if e.Line == 0 {
		return e.Reason
	}
	return fmt.Sprintf("line %d: %s", e.Line, e.Reason)
}

// point is a partition's value in a root checkpoint.
func (m rootMarks) point(name string, tp TopicPartition) (int64, bool) {
	offset, ok := m.points[name][checkpoint.Partition(tp)]
	return offset, ok
}

// folderCheck is the work on one partition.
type folderCheck struct {
	*verifier
	tp    TopicPartition
	name  string
	marks rootMarks
	live  *liveBounds // nil: files at rest

	files    map[string]fs.DirEntry
	bases    []int64
	rebuilt  int64 // recovery rebuilds the indexes of segments from this base on; MaxInt64 after a clean stop
	trusted  int64 // recovery point
	logStart int64

	epochs    epochCheck
	producers producerCheck
	end       int64 // offset behind the last valid batch so far
	epoch     int32 // leader epoch of the last batch that had one
	sparse    []sparseIndex
	narrowest int64 // smallest distance between neighbouring index entries; 0 none
	complete  bool  // every batch could be read
	tried     *tryout
}

// counted is a number of things: "1 byte", "2 bytes", "2 batches".
func counted[N int | int64](n N, what string) string {
	switch {
	case n == 1:
		return "1 " + what
	case what == "batch":
		what = "batche"
	case strings.HasSuffix(what, "y"):
		what = strings.TrimSuffix(what, "y") + "ie"
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// partition checks one folder.
func (v *verifier) partition(tp TopicPartition, name string, m rootMarks, live *liveBounds) {
	c := &folderCheck{verifier: v, tp: tp, name: name, marks: m, live: live, complete: true, epoch: -1, files: map[string]fs.DirEntry{}}
	entries, err := v.fs.ReadDir(name)
	if err != nil {
		v.fail(err)
		return
	}
	if v.o.Partitions == nil && live == nil && strangers(entries) {
		v.find(FindingForeign, name, -1, -1, "the name is a partition's, but nothing in it is a log's (%s): a broker would make a log in it", entries[0].Name())
		return
	}
	for _, e := range entries {
		c.files[e.Name()] = e
	}
	if c.bases, err = segment.List(v.fs, name); err != nil {
		v.fail(err)
		return
	}
	c.bases = slices.DeleteFunc(c.bases, func(base int64) bool { // by the number alone, in a name that no segment has
		_, ok := c.files[segment.FileName(base, ".log")]
		return !ok
	})
	c.names(entries)
	c.readTrust()
	c.metadata()
	c.epochs.read(c)
	c.producers.begin(c, entries)
	for i, base := range c.bases {
		if !c.going() {
			return
		}
		if _, ok := c.files[segment.FileName(base, ".log")]; ok {
			c.segment(base, i+1 == len(c.bases))
		}
	}
	if !c.going() {
		return
	}
	c.judgeSparse()
	c.producers.finish(c)
	c.epochs.finish(c)
	if live == nil {
		c.points()
	}
}

// strangers says that a folder holds files, and none of them a log's.
func strangers(entries []fs.DirEntry) bool {
	for _, e := range entries {
		name := e.Name()
		digits, ext, _ := strings.Cut(name, ".")
		ext, _, _ = strings.Cut(ext, ".") // behind it may stand .deleted, .cleaned, .swap
		if _, err := parseOffset(digits); err == nil && isSegmentFile(ext) || name == checkpoint.Metadata || name == checkpoint.LeaderEpochs {
			return false
		}
	}
	return len(entries) > 0
}

func isSegmentFile(ext string) bool {
	return ext == "log" || ext == "index" || ext == "timeindex" || ext == "txnindex" || ext == "snapshot"
}

// readTrust finds out how far the files are vouched for.
func (c *folderCheck) readTrust() {
	c.trusted, _ = c.marks.point(checkpoint.RecoveryPoints, c.tp)
	c.logStart, _ = c.marks.point(checkpoint.LogStarts, c.tp)
	c.rebuilt = noRebuild
	switch {
	case c.live != nil:
		c.rebuilt, c.logStart = c.live.active, c.live.offsets.LogStart
	case !c.marks.clean:
		c.rebuilt = 0
		for _, base := range c.bases {
			if base <= c.trusted {
				c.rebuilt = base
			}
		}
	}
}

func (c *folderCheck) path(file string) string { return c.name + "/" + file }

// has says whether the folder holds a file of the name.
func (c *folderCheck) has(file string) bool {
	e, ok := c.files[file]
	return ok && !e.IsDir()
}
