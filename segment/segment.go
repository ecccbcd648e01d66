package segment

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/partlog/partlog/index"
	"github.com/partlog/partlog/timeindex"
	"github.com/partlog/partlog/vfs"
)

const (
	logSuffix  = ".log"
	idxSuffix  = ".index"
	timeSuffix = ".timeindex"
	txnSuffix  = ".txnindex"
)

// Segment is N.log with N.index, N.timeindex and N.txnindex. Writing methods serialise among themselves; reading
// methods may run at any time from any goroutine that holds a reference, and take no lock but to open or rebuild an
// index and, for an instant, to read the published marks.
type Segment struct {
	dir  string
	base int64
	o    Options

	// mu serialises whatever changes files or the choice of index objects: append, truncate, seal, the writing part of
	// recovery, rename, opening indexes. It is held across file I/O, never across a data sync or a callback. Under it:
	// txn.mu, then opening; pub.
	mu       sync.Mutex
	state    stage          // changed under mu
	since    int64          // bytesSinceIndex of Kafka; guarded by mu
	rebuilt  atomic.Bool    // indexes were rebuilt on a reader's complaint once
	owned    bool           // the .log is known to have no other name; guarded by mu
	gone     bool           // files were removed: indexes live in memory; guarded by mu
	dirtyIdx [2]atomic.Bool // bytes of the offset, of the time index were written since the last Sync; set behind the writing
	jitter   int64          // milliseconds
	roll     atomic.Pointer[rollLimits]
	created  atomic.Int64 // wall clock at open, or when the segment was emptied; ms
	broken   atomic.Pointer[error]
	ix       atomic.Pointer[indexes]
	txn      txns
	refs     atomic.Int64
	closing  atomic.Bool     // Close was called
	modTime  atomic.Int64    // of the .log at open, ms; replaced by the clock at each append
	entries  [2]atomic.Int64 // of offset and time index when they were last open; -1 = not yet
	opening  sync.Mutex      // guards the suffixes and the opening and parking of file; held across open, close and rename only
	suffix   string          // of all files but the .log
	logAs    string          // suffix of the .log: another one only while Retire runs
	file     atomic.Pointer[handle]
	pub      published
	settled  atomic.Pointer[settled]
}

type state uint8

// stage is the state a segment is in; whoever only tells others of it need not wait for mu.
type stage struct{ now atomic.Uint32 }

func (s *stage) get() state  { return state(s.now.Load()) }
func (s *stage) set(v state) { s.now.Store(uint32(v)) }

const (
	opened state = iota // from disk; the first append makes it active
	active
	sealed
	closed
)

// Create makes an empty segment's files: log and both indexes; an existing one is fs.ErrExist. They have names only
// after the caller has synced the directory. The segment takes appends at once.
func Create(dir string, base int64, o Options) (*Segment, error) {
	if base < 0 {
		return nil, fmt.Errorf("segment: base offset %d is negative", base)
	}
	if o.ReadOnly {
		return nil, ErrReadOnly
	}
	s := newSegment(dir, base, o)
	f, err := s.openNamed(s.name(logSuffix), os.O_RDWR|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return nil, err
	}
	if s.o.Preallocate {
		err = f.Truncate(s.o.MaxBytes)
		if e := f.Allocate(0, s.o.MaxBytes); e != nil && !errors.Is(e, vfs.ErrUnsupported) && err == nil {
			err = e
		}
	}
	h := s.newHandle(f)
	if err == nil {
		h.users.Add(1) // this call
		h.wrote()
		s.budget().Open(&h.slot, h)
		s.file.Store(h)
		s.pub.m = marks{next: base, maxTs: -1, maxTsOffset: base, firstTs: unknown}
		s.mu.Lock()
		_, err = s.createIndexes()
		s.mu.Unlock()
	}
	if err != nil {
		s.discard(f)
		return nil, err
	}
	s.state.set(active)
	s.owned = true
	s.budget().Relieve()
	h.users.Add(-1)
	return s, nil
}

// discard removes what a failed Create left behind.
func (s *Segment) discard(f vfs.File) {
	s.dropIndexes()
	if h := s.file.Load(); h != nil {
		s.budget().Closed(&h.slot)
	}
	f.Close()
	for _, kind := range []string{logSuffix, idxSuffix, timeSuffix} {
		s.o.FS.Remove(s.name(kind))
	}
}

// Open takes an existing segment. It asks for the length of the .log and opens nothing: what is in the files is seen,
// and judged, on first use. An appendable segment is simply appended to; Truncate and Recover work at once.
func Open(dir string, base int64, o Options) (*Segment, error) {
	s := newSegment(dir, base, o)
	info, err := s.o.FS.Stat(s.name(logSuffix))
	if err != nil {
		return nil, err
	}
	if err := s.found(info); err != nil {
		return nil, err
	}
	return s, nil
}

func newSegment(dir string, base int64, o Options) *Segment {
	s := &Segment{dir: dir, base: base, o: o.withDefaults()}
	s.suffix, s.logAs = o.Suffix, o.Suffix
	s.SetRoll(s.o.MaxBytes, s.o.MaxAge)
	if limit := min(s.o.JitterMax, s.o.MaxAge).Milliseconds(); limit > 0 {
		s.jitter = rand.Int64N(limit)
	}
	now := s.o.Now().UnixMilli()
	s.created.Store(now)
	s.modTime.Store(now)
	s.entries[0].Store(-1)
	s.refs.Store(1)
	return s
}

// Base is the offset in the file names; no offset in the segment is smaller.
func (s *Segment) Base() int64 { return s.base }

// name of one of the segment's files.
func (s *Segment) name(kind string) string {
	s.opening.Lock()
	defer s.opening.Unlock()
	if kind == logSuffix {
		return s.nameWith(kind, s.logAs)
	}
	return s.nameWith(kind, s.suffix)
}

func (s *Segment) nameWith(kind, suffix string) string {
	return fileName(s.dir, s.base, kind, suffix)
}

// Size is the bytes of whole batches, as published: no I/O.
func (s *Segment) Size() int64 { return s.pub.load().size }

// Pins counts the references beside the owner's.
func (s *Segment) Pins() int {
	n := s.refs.Load()
	if !s.closing.Load() {
		n--
	}
	return int(max(n, 0))
}

// IndexFile is the path of the offset index below the root of the file system.
func (s *Segment) IndexFile() string { return s.name(idxSuffix) }

// TimeIndexFile is the path of the time index.
func (s *Segment) TimeIndexFile() string { return s.name(timeSuffix) }

// File is the path of the .log below the root of the file system, as it is called now.
func (s *Segment) File() string { return s.name(logSuffix) }

// stop makes the segment refuse writes and syncs for good.
func (s *Segment) stop(cause error) error {
	err := fmt.Errorf("%s: %w: %w", s.name(logSuffix), ErrBroken, cause)
	s.broken.CompareAndSwap(nil, &err)
	return err
}

func (s *Segment) failure() error {
	if p := s.broken.Load(); p != nil {
		return *p
	}
	return nil
}

// Info is one reading of a segment's facts.
type Info struct {
	Base                int64
	NextOffset          int64 // -1 until something had to know it: NextOffset reads it
	Bytes               int64 // of whole batches, as published
	IndexBytes          int64 // of both index files
	IndexEntries        int   // in the offset index
	TimeIndexEntries    int   // in the time index
	LargestTimestamp    int64 // of the batches; the .log's modification time if none has one (Unix ms)
	FirstBatchTimestamp int64 // MaxInt64 if there is none or nothing had to know it: FirstTimestamp reads it
	ModTime             time.Time
	Sealed              bool // no appends since it was opened, or sealed
	Pins                int  // references beside the owner's
}

// Info reads the facts. It may read the last entry of the time index once; nothing else touches the disk.
func (s *Segment) Info() Info {
	ts, _, err := s.LargestTimestamp()
	mod := time.UnixMilli(s.modTime.Load())
	if err != nil {
		ts = mod.UnixMilli()
	}
	m := s.pub.load()
	i := Info{Base: s.base, NextOffset: max(m.next, -1), Bytes: m.size, LargestTimestamp: ts,
		FirstBatchTimestamp: noFirst(m.firstTs), ModTime: mod, Pins: s.Pins()}
	offsets, times := s.entryCounts()
	i.IndexEntries, i.TimeIndexEntries = int(offsets), int(times)
	i.IndexBytes = offsets*index.EntrySize + times*timeindex.EntrySize
	i.Sealed = s.state.get() != active
	return i
}
