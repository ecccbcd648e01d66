package segment

import (
	"context"
	"errors"
	"io"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
)

// ScanOptions of Scan and Recover.
type ScanOptions struct {
	// Durable judges bad bytes: if the first offset that cannot be read is below it they are damage, else a torn tail.
	// A log that simply ends below it is no finding of this package.
	Durable int64
	// Each sees every good batch in order, before anything is cut; the batch is valid during the call. No lock of
	// the segment is held. An error ends the scan with that error and nothing is changed.
	Each func(record.Batch) error
	// Progress is called now and then with bytes looked at.
	Progress func(done, total int64)
	// Evict drops the file's clean cached pages first, so that the device is read and not what a failed sync left in
	// the cache.
	Evict bool
	// BeforeCut is called by Recover when it is going to cut s.CutBytes behind s.ValidBytes, before anything is
	// changed; tail reads the .log by position. An error ends the recovery with that error and nothing is changed.
	BeforeCut func(s Scan, tail io.ReaderAt) error
}

// Verdict of a scan.
type Verdict uint8

const (
	Clean         Verdict = iota // the file is whole batches to its end
	Torn                         // unreadable bytes, nothing valid behind them
	TornWithValid                // unreadable bytes at or above Durable with valid batches behind them: holes of lost writeback
	Damaged                      // unreadable bytes below Durable
)

func (v Verdict) String() string {
	return [...]string{"clean", "torn", "torn with valid batches behind", "damaged"}[min(v, Damaged)]
}

// Scan is what Scan and Recover found.
type Scan struct {
	Verdict        Verdict
	ValidBytes     int64 // whole good batches from the start
	NextOffset     int64 // behind them; the base if there are none
	CutBytes       int64 // bytes behind ValidBytes: cut by Recover, unless Damaged
	FirstBad       *CorruptError
	ValidBehind    int   // batches that parse, pass their CRC and chain behind the bad place
	ZeroTail       bool  // all bytes behind ValidBytes are zero: space allocated ahead, or a size that reached the disk before its data
	Batches        int   // good batches
	FirstOffset    int64 // base offset of the first batch, -1 if none
	FirstEpoch     int32 // leader epoch of the first batch that has one, -1 if none
	LastEpoch      int32 // of the last batch that has one, -1 if none
	LowestEpoch    int32 // smallest leader epoch of a batch, -1 if none has one
	MaxTimestamp   int64 // -1 if none
	IndexesRebuilt bool  // by Recover
	IndexesKept    bool  // by Recover, in memory: the device has no room for them
}

// Scan reads the whole file and verifies every batch: sizes, header rules, CRC, ascending offsets. It writes nothing. A
// bad file is not an error but a Verdict; errors are I/O errors, the context's, Each's, *OverflowError for a batch whose
// last offset is not representable, and ErrChanged if the segment is truncated meanwhile.
func (s *Segment) Scan(ctx context.Context, o ScanOptions) (Scan, error) {
	scan, _, err := s.scan(ctx, o)
	return scan, err
}

// scan is the part that Scan and Recover share; the builder holds the index entries that belong to what it found.
func (s *Segment) scan(ctx context.Context, o ScanOptions) (Scan, *builder, error) {
	if !s.Retain() {
		return Scan{}, nil, ErrClosed
	}
	defer s.Release()
	h, err := s.acquire()
	if err != nil {
		return Scan{}, nil, err
	}
	defer h.release()
	m := s.pub.load()
	end := m.size
	if s.o.ReadOnly {
		if end, err = h.Size(); err != nil {
			return Scan{}, nil, err
		}
	}
	if o.Evict {
		if err := h.Evict(0, end); err != nil && !errors.Is(err, vfs.ErrUnsupported) {
			return Scan{}, nil, err
		}
	}
	c := scanner{s: s, ctx: ctx, o: o, f: h, end: end, b: s.newBuilder(),
		out: Scan{NextOffset: s.base, FirstOffset: -1, FirstEpoch: -1, LastEpoch: -1, LowestEpoch: -1, MaxTimestamp: -1}}
	err = c.run()
	if s.pub.cuts.Load() != m.cuts {
		err = ErrChanged
	}
	return c.out, c.b, err
}

// scanner walks one file once.
type scanner struct {
	s   *Segment
	ctx context.Context
	o   ScanOptions
	f   vfs.File
	end int64
	b   *builder
	out Scan
	at  int64 // bytes behind which progress was last told
}

const tick = 4 << 20 // bytes between looks at the context and calls of Progress

func (c *scanner) run() error {
	bad, err := c.good()
	if err != nil || bad == nil {
		c.progress(c.end, true)
		return err
	}
	bad.offset = c.out.NextOffset
	c.out.FirstBad = c.s.corrupt(bad)
	c.out.CutBytes = c.end - c.out.ValidBytes
	return c.judge()
}

// good reads good batches up to the end or to the first bad one.
func (c *scanner) good() (*badBatch, error) {
	r := newReader(c.f, 0, c.end)
	defer r.close()
	o := order{base: c.s.base, end: unknown, next: c.s.base}
	for {
		if err := c.ctx.Err(); err != nil {
			return nil, err
		}
		b, at, err := r.next()
		if err == io.EOF {
			return nil, nil
		}
		if err != nil {
			if bad, ok := errors.AsType[*badBatch](err); ok {
				return bad, nil
			}
			return nil, err
		}
		if err := r.inOrder(&o, b, at); err != nil {
			bad, ok := errors.AsType[*badBatch](err)
			if !ok {
				return nil, err
			}
			return bad, nil
		}
		if last := b.LastOffset(); last-c.s.base > maxRelative {
			return nil, &OverflowError{File: c.s.File(), Base: c.s.base, Offset: last}
		}
		if c.o.Each != nil {
			if err := c.o.Each(b); err != nil {
				return nil, err
			}
		}
		c.take(b)
		c.progress(r.pos, false)
	}
}

func (c *scanner) take(b record.Batch) {
	o := &c.out
	h := headerOf(b)
	c.b.add(h)
	if o.Batches == 0 {
		o.FirstOffset = h.base
	}
	if h.epoch >= 0 {
		if o.FirstEpoch < 0 {
			o.FirstEpoch, o.LowestEpoch = h.epoch, h.epoch
		}
		o.LastEpoch, o.LowestEpoch = h.epoch, min(o.LowestEpoch, h.epoch)
	}
	o.Batches++
	o.MaxTimestamp = max(o.MaxTimestamp, h.maxTs)
	o.ValidBytes += h.size
	o.NextOffset = h.last + 1
}

func (c *scanner) progress(done int64, last bool) {
	if c.o.Progress != nil && (last || done-c.at >= tick) {
		c.at = done
		c.o.Progress(done, c.end)
	}
}

// judge gives the verdict on bad bytes: what is behind them, and whether they may be a torn tail.
func (c *scanner) judge() error {
	p, err := c.probe()
	if err != nil {
		return err
	}
	o := &c.out
	o.ZeroTail, o.ValidBehind = p.zero, p.found
	if p.found > 0 {
		o.FirstBad.Behind = [2]int64{p.first, p.next}
	}
	switch {
	case o.NextOffset < c.o.Durable:
		o.Verdict = Damaged
	case p.found > 0 || p.tired:
		o.Verdict = TornWithValid
	default:
		o.Verdict = Torn
	}
	c.progress(c.end, true)
	return nil
}
