package replica

import (
	"bytes"
	"io"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
)

// shared is what was read last in this step, or appended: followers that wait for the same bytes, and so are woken in the same step,
// are served from one reading, and mostly from none.
type shared struct {
	ok        bool
	appended  bool // one batch, whatever max is: the first always comes whole
	offset    int64
	max       int64
	isolation log.Isolation
	got       Read
}

func (s *shared) fits(a *Action) bool {
	return s.ok && s.offset == a.Offset && s.isolation == a.Isolation && (s.appended || s.max == a.MaxBytes)
}

// unshare is for when others may write, or the step ends.
func (r *runner) unshare() { r.shared = shared{} }

// lend holds a buffer, which may be nil, until the step ends: what was read into it may not be replied before others are read.
func (r *runner) lend(l *lease) {
	if l != nil {
		r.lent = append(r.lent, l)
	}
}

// leaseOf is the lease of bytes that were read or appended in this step; nil: they are whoever's gets them.
func (r *runner) leaseOf(raw []byte) *lease {
	for _, l := range r.lent {
		if l.of(raw) {
			return l
		}
	}
	return nil
}

// endLending is for when the step ends.
func (r *runner) endLending() {
	for _, l := range r.lent {
		l.free()
	}
	clear(r.lent)
	r.lent = r.lent[:0]
}

// share keeps a copy of the batch that was appended just now, if a follower waits for it. The bytes themselves are the
// producer's again.
func (r *runner) share(got log.Appended, raw []byte) {
	if got.Duplicate || !r.core.awaited(got.Base) {
		return
	}
	b, err := record.View(raw)
	if err != nil || b.Magic() < 2 || b.BaseOffset() != got.Base || b.LastOffset() != got.Last || got.Base == 0 {
		return // the log has it otherwise: converted, or compressed anew. At 0 there is no telling
	}
	lent := newLease(int64(len(raw)))
	if lent != nil {
		copy(lent.raw, raw)
		raw = lent.raw
	} else {
		raw = bytes.Clone(raw)
	}
	r.lend(lent)
	r.shared = shared{ok: true, appended: true, offset: got.Base, isolation: log.LogEnd,
		got: Read{Raw: raw, Bytes: int64(len(raw)), Next: got.Last + 1}}
}

// readLater reads once less is under way to the follower.
func (r *runner) readLater(a Action) {
	life := r.life
	r.node.window.await(a.To, r, a.MaxBytes, func() bool {
		return r.post(mail{settled: func() Event {
			if r.life != life {
				r.node.window.leave(a.To, r)
				return nil
			}
			return r.read(r.log.Load(), &a)
		}})
	})
}

// read answers at once what needs no disk.
func (r *runner) read(l *log.Log, a *Action) Event {
	if a.Offset < r.warm {
		r.readCold(l, *a)
		return nil
	}
	e := r.readWarm(l, a)
	if a.To >= 0 {
		r.node.window.settle(a.To, r, e.Bytes)
	}
	return r.events.read(e)
}

func (r *runner) readCold(l *log.Log, a Action) {
	life := r.life
	r.node.slow.submit(taskFunc(func() {
		e, _ := r.readRaw(l, &a, false)
		if a.To >= 0 {
			r.node.window.settle(a.To, r, e.Bytes)
		}
		r.post(mail{settled: func() Event { e.State = r.state(l); return r.of(life, e) }})
	}))
}

func (r *runner) readWarm(l *log.Log, a *Action) Read {
	s := &r.shared
	if !s.fits(a) {
		r.by.letGo()
		r.unshare()
		s.offset, s.max, s.isolation = a.Offset, a.MaxBytes, a.Isolation
		var lent *lease
		s.got, lent = r.readRaw(l, a, a.To >= 0)
		r.lend(lent)
		s.ok = s.got.Err == nil
	}
	e := s.got
	e.Tag, e.State = a.Tag, r.state(l)
	return e
}

// readRaw is safe to run beside everything else. The bytes are lent if that is asked for and they are not many.
func (r *runner) readRaw(l *log.Log, a *Action, lend bool) (e Read, lent *lease) {
	e = Read{Tag: a.Tag, Next: a.Offset}
	f, err := l.Fetch(r.node.ctx, a.Offset, log.FetchOptions{Isolation: a.Isolation, MaxBytes: a.MaxBytes, WholeBatches: true})
	if err != nil {
		e.Err = err
		return e, nil
	}
	defer f.Close()
	var raw []byte
	if lend {
		lent = newLease(f.Len())
	}
	if lent != nil {
		raw = lent.raw
	} else {
		raw = make([]byte, f.Len())
	}
	if n, err := f.ReadAt(raw, 0); n < len(raw) && err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		e.Err = err
		return e, lent
	}
	if next, ok := behind(raw); ok && len(raw) > 0 {
		e.Next = max(e.Next, next)
	} else if e.Next, e.Err = f.NextOffset(); e.Err != nil { // which says where the damage is, or how far there is nothing
		return e, lent
	}
	e.Raw, e.Bytes, e.Aborted = raw, int64(len(raw)), f.Aborted()
	return e, lent
}

// behind is the offset behind whole batches, -1 if there are none; false if one is damaged.
func behind(raw []byte) (next int64, ok bool) {
	next = -1
	for len(raw) > 0 {
		b, rest, err := record.Next(raw)
		if err != nil || b.Verify() != nil {
			return -1, false
		}
		next, raw = max(next, b.NextOffset()), rest
	}
	return next, true
}
