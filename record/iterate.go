package record

import (
	"fmt"
	"iter"
	"math"
)

// Records iterates over the records of the batch in order, decompressing them if need be; d may be nil. A record and its
// slices are valid until the next step. The error, if any, comes once and last: a *CorruptError for records that do not
// parse, ErrTooLarge for more decompressed bytes, or headers, than the decoder allows.
//
// The CRC is not checked; see Verify. Bytes left over behind the last record are an error in place of that record.
// Iterating over an uncompressed batch allocates nothing, but for header keys that differ from the record before.
func (b Batch) Records(d *Decoder) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) { b.each(d, math.MinInt64, yield) }
}

// RecordsFrom is Records without most of those below offset, which are passed over by their lengths without a look at what
// they hold: for a reader that wants one record out of many. Some below offset may come all the same.
func (b Batch) RecordsFrom(d *Decoder, offset int64) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) { b.each(d, offset, yield) }
}

func (b Batch) each(d *Decoder, from int64, yield func(Record, error) bool) {
	if d == nil {
		d = takeDecoder(Limits{}.withDefaults())
		defer releaseDecoder(d)
	}
	if b.legacy() {
		d.legacyEach(b, yield)
		return
	}
	var s Steps
	err := s.Begin(b, d, from)
	for err == nil && s.Next() {
		if !yield(*s.Record(), nil) {
			s.used()
			return
		}
	}
	if err == nil {
		err = s.Err()
	}
	if err != nil {
		yield(Record{}, err)
	}
}

// Steps is RecordsFrom for a loop that goes through very many records and must not pay for two calls each:
//
//	var s record.Steps
//	err := s.Begin(b, d, offset)
//	for err == nil && s.Next() {
//		... s.Record()
//	}
//
// with the error, if any, in s.Err behind the loop. Only batches of magic 2 can be walked this way. It must not be copied
// between Begin and the end of the walk.
type Steps struct {
	at, n  int // Record is ahead[at]; those before ahead[n] are parsed
	room   int // how many are parsed next
	r      reader
	behind []byte // what was unread before Record
	err    error
	ahead  [lookAhead]Record
}

// lookAhead is how many records are parsed together. A record that is handed on right after it was stored word by word waits
// for the stores; one of some before it does not.
const lookAhead = 16

// Begin begins to walk the records of b; most of those below offset are passed over. d may be nil. The errors are those of
// Records before the first one, and a *CorruptError for a legacy entry.
func (s *Steps) Begin(b Batch, d *Decoder, offset int64) (err error) {
	s.at, s.n, s.room, s.behind, s.err, s.r = 0, 0, 1, nil, nil, reader{} // often one record is all that is wanted
	if b.legacy() {
		return &CorruptError{Field: "magic", Reason: "the records of a legacy entry are not walked in steps"}
	}
	if d == nil {
		d = NewDecoder(Limits{})
	}
	if s.r, err = d.reader(b); err == nil && offset > s.r.base {
		s.r.skip(offset)
	}
	return err
}

// Record is the record that Next went to, valid until the next call of Next.
func (s *Steps) Record() *Record { return &s.ahead[s.at&(lookAhead-1)] }

// Next goes to the next record; false at the end of the batch, or when one does not parse.
func (s *Steps) Next() bool {
	s.at++
	return s.at < s.n || s.more()
}

// more parses the next records.
func (s *Steps) more() bool {
	s.used()
	s.at, s.n, s.ahead[0].Headers = 0, 0, nil // none of the others ever has any
	if s.r.left <= 0 {
		return false
	}
	room := s.ahead[:s.room]
	if s.room = lookAhead; poisons {
		s.behind, s.room = s.r.p, 1
	}
	if s.n = s.r.quick(room); s.n > 0 {
		return true
	}
	if s.err = s.r.next(&s.ahead[0]); s.err != nil {
		s.r.left = 0
		return false
	}
	s.n = 1
	return true
}

// Err is the *CorruptError or ErrTooLarge that ended the walk, nil at the end of the batch.
func (s *Steps) Err() error { return s.err }

// used makes views of a record that is over with unreadable in tests.
func (s *Steps) used() {
	if poisons && s.r.owned && s.behind != nil {
		poison(s.behind[:len(s.behind)-len(s.r.p)])
	}
}

// reader walks the records of one magic 2 batch.
type reader struct {
	d          *Decoder
	p          []byte // not yet read
	base       int64
	baseTime   int64
	appendTime int64 // of every record, if appended
	appended   bool
	owned      bool  // p is the decoder's, not the batch's
	left       int   // records not yet read
	index      int   // of the next record
	like       shape // of the records before it, if it has a size
}

// reader starts on a magic 2 batch. It is returned by value so that it stays on the caller's stack.
func (d *Decoder) reader(b Batch) (reader, error) {
	r := reader{d: d, base: b.BaseOffset(), baseTime: b.BaseTimestamp(), appendTime: b.MaxTimestamp(),
		appended: b.TimestampType() == LogAppendTime, left: b.Count()}
	if r.left < 0 {
		return r, &CorruptError{Field: "count", Reason: "is negative"}
	}
	if r.left == 0 {
		return r, nil
	}
	r.p = b.b[HeaderSize:]
	if c := b.Codec(); c != None {
		p, err := d.decompress(r.p, c, 2)
		if err != nil {
			return r, err
		}
		r.p, r.owned = p, true
	}
	return r, nil
}

// next parses one record into rec, which then holds views. left must be above 0.
func (r *reader) next(rec *Record) error {
	if reason := r.parse(rec); reason != "" {
		return r.unreadable(reason)
	}
	r.left--
	r.index++
	return nil
}

func (r *reader) unreadable(reason string) error {
	if reason == tooManyHeaders {
		return fmt.Errorf("%w: record %d has %s", ErrTooLarge, r.index, reason)
	}
	return &CorruptError{Field: fmt.Sprintf("record %d", r.index), Reason: reason}
}

// parse answers the reason why there is no record, or "".
func (r *reader) parse(rec *Record) string {
	length, p, ok := cutVarint(r.p)
	switch {
	case !ok:
		return "no length, or one of too many bytes"
	case length < 0 || int64(length) > int64(len(p)):
		return "its length is beyond the end of the batch"
	case r.left == 1 && int64(length) < int64(len(p)):
		return "bytes follow the last record"
	}
	body, rest := p[:length], p[length:]
	if len(body) == 0 {
		return "its length is zero"
	}
	p = body[1:] // attributes, unused
	timeDelta, p, ok := cutVarlong(p)
	if !ok {
		return "its timestamp delta does not parse"
	}
	offsetDelta, p, ok := cutVarint(p)
	if !ok {
		return "its offset delta does not parse"
	}
	if rec.Key, p, ok = cutBytes(p); !ok {
		return "its key is longer than the record"
	}
	if rec.Value, p, ok = cutBytes(p); !ok {
		return "its value is longer than the record"
	}
	headers, p, ok := cutVarint(p)
	switch {
	case !ok:
		return "its header count does not parse"
	case headers < 0:
		return "its header count is negative"
	case int64(headers) > int64(len(p)):
		return "its header count is larger than the bytes that are left"
	case int(headers) > r.d.lim.maxHeaders():
		return tooManyHeaders
	}
	rec.Headers = nil
	if headers > 0 {
		if rec.Headers, p, ok = r.d.cutHeaders(p, int(headers)); !ok {
			return "a header is longer than the record, or its key is null"
		}
	}
	if len(p) > 0 {
		return "bytes follow its last header"
	}
	rec.Offset = r.base + int64(offsetDelta)
	rec.Timestamp = r.baseTime + timeDelta
	if r.appended {
		rec.Timestamp = r.appendTime
	}
	r.p = rest
	return ""
}

const tooManyHeaders = "more headers than the limit has memory for"

// cutHeaders reads n headers into the decoder's slice. A key equal to the one at the same place of the record before is the
// same string.
func (d *Decoder) cutHeaders(p []byte, n int) ([]Header, []byte, bool) {
	for i := range n {
		key, rest, ok := cutBytes(p)
		if !ok || key == nil {
			return nil, p, false
		}
		value, rest, ok := cutBytes(rest)
		if !ok {
			return nil, p, false
		}
		// One by one: a header takes two bytes encoded and forty here, so a count is not worth an allocation until
		// its bytes have been seen.
		if i == len(d.headers) {
			d.headers = append(d.headers, Header{})
		}
		h := &d.headers[i]
		if h.Key != string(key) {
			h.Key = string(key)
		}
		h.Value = value
		p = rest
	}
	return d.headers[:n:n], p, true
}

// keepHeaders is how many headers a lent decoder keeps room for.
const keepHeaders = 64

// takeDecoder lends a decoder with the given limits.
func takeDecoder(lim Limits) *Decoder {
	d := decoders.Get().(*Decoder)
	d.lim = lim
	return d
}

// releaseDecoder takes a lent decoder back.
func releaseDecoder(d *Decoder) {
	clear(d.headers) // they point into the caller's bytes
	if len(d.headers) > keepHeaders {
		d.headers = nil
	}
	decoders.Put(d)
}
