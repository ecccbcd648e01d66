package segment

import (
	"errors"
	"io"

	"github.com/partlog/partlog/record"
)

// order holds the batches of a walk against each other. A batch's base offset is not under its CRC, so a damaged one is
// seen only by what stands around it:
//
//	| 0..73 | 74..99 | 100..141 |     as written
//	| 0..73 | 20..45 | 100..141 |     moved down: below the batch before it
//	| 0..73 | 174..199 | 100..141 |   moved up: leaves a gap that the batch behind it denies
//	| 0..73 | 74..99 | 900..941 |     moved up at the end: reaches past what the segment holds
//
// Gaps alone are legal: compaction leaves them.
type order struct {
	base int64 // of the segment
	end  int64 // next offset of the segment; unknown if negative
	next int64 // offset that must follow; -1 at the start of a walk inside the segment

	before int64 // next, as it was before the last batch
	last   header
	at     int64 // its byte position
}

const belowReason = "its offset is below the one before it"

// take judges a batch at a byte position by what came before. gap says that the batch behind it must be asked, too.
func (o *order) take(h header, pos int64) (bad *badBatch, gap bool) {
	reason := ""
	switch {
	case pos > 0 && h.base < o.next || pos == 0 && h.last < o.next:
		reason = belowReason // the very first batch may begin below the base, as an old follower could leave it
	case h.last < o.base:
		reason = "it ends below the first offset of the segment"
	case o.end >= 0 && h.last >= o.end:
		reason = "its offset is beyond the end of the log"
	}
	if reason == belowReason {
		if bad := o.denied(h); bad != nil {
			return bad, false
		}
	}
	if reason != "" {
		return &badBatch{pos: pos, offset: o.next, reason: reason}, false
	}
	o.before, o.next, o.last, o.at = o.next, h.last+1, h, pos
	return nil, o.gap()
}

// gap says that the last batch left one.
func (o *order) gap() bool { return o.before >= 0 && o.last.base > o.before }

// denied says that the batch behind the last one taken contradicts it, and would fit if that one had left no gap.
func (o *order) denied(behind header) *badBatch {
	if !o.gap() || behind.base >= o.next || behind.base < o.before+o.last.last-o.last.base+1 {
		return nil
	}
	return &badBatch{pos: o.at, offset: o.before, reason: "its offset is above the one behind it"}
}

// inOrder is take for the batch just read, with a look at the next one where that decides. *badBatch, or an I/O error.
func (r *reader) inOrder(o *order, b record.Batch, at int64) error {
	bad, gap := o.take(headerOf(b), at)
	if bad != nil {
		return bad
	}
	if !gap {
		return nil
	}
	behind, ok, err := r.peek()
	if err != nil || !ok {
		return err
	}
	if bad := o.denied(behind); bad != nil {
		return bad
	}
	return nil
}

// peek is the header of the next batch; false if none can begin there.
func (r *reader) peek() (header, bool, error) {
	left := r.end - r.pos
	want := int(min(record.HeaderSize, left))
	if want <= 0 {
		return header{}, false, nil
	}
	b := r.buf[r.r:r.n]
	if len(b) < want { // not through the buffer, which holds the batch that is out
		b = make([]byte, want)
		n, err := readFull(r.f, b, r.pos)
		if err != nil {
			return header{}, false, err
		}
		b = b[:n]
	}
	h, reason := parseHeader(b[:min(len(b), record.HeaderSize)], left)
	return h, reason == "", nil
}

// inOrder is that of a reader.
func (w *walker) inOrder(o *order, h header, at int64, look bool) error {
	bad, gap := o.take(h, at)
	if bad != nil {
		return bad
	}
	if !gap || !look {
		return nil
	}
	pos, near := w.pos, w.near
	behind, err := w.next()
	w.pos, w.near = pos, near
	if _, none := errors.AsType[*badBatch](err); none || err == io.EOF {
		return nil
	}
	if err != nil {
		return err
	}
	if bad := o.denied(behind); bad != nil {
		return bad
	}
	return nil
}

func headerOf(b record.Batch) header {
	return header{base: b.BaseOffset(), last: b.LastOffset(), size: int64(b.Size()), maxTs: b.MaxTimestamp(), epoch: b.LeaderEpoch(), magic: b.Magic()}
}
