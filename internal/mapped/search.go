package mapped

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math"
	"sync"

	"github.com/partlog/partlog/vfs"
)

// Key is one column of an entry, by which the entries are ordered.
type Key func(entry []byte) int64

// Floor is the last entry whose key is at most target, and its slot; slot -1 if there is none. It allocates nothing.
func (t *Table) Floor(key Key, target int64) (e Raw, slot int, err error) {
	q := queries.Get().(*query)
	q.want, q.key, q.target = floor, key, target
	err = t.answer(q)
	e, slot = q.found, q.slot
	queries.Put(q)
	return e, slot, err
}

// Near is Floor and up to len(behind) of the entries that follow, as many as lie in the same chunk. If there is no floor
// there are none of them.
func (t *Table) Near(key Key, target int64, behind []Raw) (e Raw, slot, n int, err error) {
	q := queries.Get().(*query)
	q.want, q.key, q.target = floor, key, target
	q.behind = q.room[:min(len(behind), len(q.room))]
	err = t.answer(q)
	if e, slot = q.found, q.slot; err == nil && slot >= 0 {
		n = copy(behind, q.behind[:q.near])
	}
	q.behind = nil
	queries.Put(q)
	return e, slot, n, err
}

// Ceil is the first entry whose key is at least target, and its slot; slot -1 if there is none. It allocates nothing.
func (t *Table) Ceil(key Key, target int64) (e Raw, slot int, err error) {
	q := queries.Get().(*query)
	q.want, q.key, q.target = ceil, key, max(target, math.MinInt64+1)-1
	err = t.answer(q)
	e, slot = q.found, q.slot
	queries.Put(q)
	return e, slot, err
}

// At is the entry in a slot; false if the table has no such slot.
func (t *Table) At(slot int) (Raw, bool, error) {
	if slot < 0 {
		return Raw{}, false, nil
	}
	q := queries.Get().(*query)
	q.want, q.slot = chunk, slot/t.chunk()
	err := t.answer(q)
	var e Raw
	i := slot % t.chunk() * t.size
	ok := err == nil && i < len(q.out)
	if ok {
		copy(e[:], q.out[i:i+t.size])
	}
	queries.Put(q)
	return e, ok, err
}

// Chunks calls f with the table's entries as they are now, chunk by chunk and in order, until f is false. The bytes
// are f's until it returns. Entries that are truncated away meanwhile may be missing; nothing is held while f runs.
func (t *Table) Chunks(f func(first int, entries []byte) bool) error {
	q := queries.Get().(*query)
	defer queries.Put(q)
	if err := t.Load(); err != nil {
		return err
	}
	n, c := t.Len(), t.chunk()
	for i := 0; i*c < n; i++ {
		q.want, q.slot = chunk, i
		if err := t.answer(q); err != nil {
			return err
		}
		e := q.out[:min(len(q.out), (n-i*c)*t.size)]
		if len(e) == 0 || !f(i*c, e) {
			return nil
		}
	}
	return nil
}

// Entries iterates what Chunks gives as values of the caller's. A failure comes once and last, as the caller words it.
func Entries[E any](t *Table, decode func(b []byte) E, worded func(error) error) iter.Seq2[E, error] {
	return func(yield func(E, error) bool) {
		err := t.Chunks(func(_ int, b []byte) bool {
			for ; len(b) > 0; b = b[t.size:] {
				if !yield(decode(b), nil) {
					return false
				}
			}
			return true
		})
		if err != nil {
			var none E
			yield(none, worded(err))
		}
	}
}

type want uint8

const (
	floor want = iota
	ceil
	chunk
)

// query is one question and the scratch memory to answer it.
type query struct {
	want   want
	key    Key
	target int64 // floor: last key <= target; ceil: first key > target
	found  Raw
	slot   int    // in: the chunk wanted; out: where found is, -1 if nowhere
	out    []byte // chunk: its entries, in buf
	behind []Raw  // floor: wanted entries that follow, in room,
	near   int    // and how many there are

	size, per int // bytes of an entry, entries of a chunk
	tail      []byte
	n         int      // entries before the tail,
	b         []byte   // in memory,
	f         vfs.File // or in a file,
	fence     []byte   // with the first entry of each chunk
	err       error

	inMapping func(b []byte)
	buf       [pageSize]byte
	room      [2]Raw
}

var queries = sync.Pool{New: func() any {
	q := new(query)
	q.inMapping = q.searchMapping
	return q
}}

// answer asks the present state, and again if entries were taken away while it looked, or if what it looked into was
// given up because another reader found the file changed.
func (t *Table) answer(q *query) error {
	slot := q.slot
	for again := 0; ; {
		s := t.state.Load()
		q.slot = slot
		err := t.ask(s, q)
		q.tail, q.b, q.f, q.fence = nil, nil, nil, nil
		if t.state.Load().gen != s.gen {
			continue
		}
		if err == nil || s.kind == closed || again == 3 || !errors.Is(err, fs.ErrClosed) {
			return err
		}
		again++
	}
}

// Changed says whether err means that the file is not what it was: the index must be rebuilt.
func Changed(err error) bool {
	return errors.Is(err, vfs.ErrFault) || errors.Is(err, io.ErrUnexpectedEOF)
}

func (t *Table) ask(s *state, q *query) error {
	q.size, q.per, q.n, q.err, q.found, q.out, q.near = t.size, t.chunk(), s.start, nil, Raw{}, nil, 0
	switch s.kind {
	case closed:
		return t.pathError("read", fs.ErrClosed)
	case inHeap:
		q.n, q.b = len(s.heap)/t.size, s.heap
		q.search()
		return q.err
	case active:
		q.tail = s.tail[:int(s.n.Load())*t.size]
		if q.searchTail() {
			return nil
		}
		if q.fence = s.fence; s.start == 0 {
			q.search() // nothing before the tail
			return nil
		}
	}
	l, err := t.acquire(s.src)
	if err != nil {
		return err
	}
	if s.kind == sealed {
		q.n, q.fence = l.n, l.fence
	}
	if l.m != nil {
		if err := l.m.Read(q.inMapping); err != nil {
			q.err = err
		}
	} else {
		q.f = l.f
		q.search()
	}
	l.unpin()
	if q.err == nil {
		return nil
	}
	if s.kind == sealed && Changed(q.err) {
		t.drop(l) // the file was cut underneath: the next use measures it anew
	}
	return t.pathError("read", q.err)
}

func (q *query) searchMapping(b []byte) {
	if len(b) < q.n*q.size {
		q.err = fmt.Errorf("%w: mapping of %d bytes for %d entries", vfs.ErrFault, len(b), q.n)
		return
	}
	q.b = b
	q.search()
	q.b = nil
}

// searchTail answers from the tail alone if it can; false: the answer lies before it.
func (q *query) searchTail() bool {
	if q.want == chunk {
		if q.slot < q.n/q.per {
			return false
		}
		q.out = q.buf[:0]
		if q.slot == q.n/q.per {
			q.out = q.buf[:copy(q.buf[:], q.tail)]
		}
		return true
	}
	q.slot = -1
	if len(q.tail) == 0 || q.key(q.tail[:q.size]) > q.target {
		return false
	}
	k := q.upper(q.tail)
	if q.want == floor {
		q.take(q.n+k-1, q.tail[(k-1)*q.size:])
		q.follow(q.tail[k*q.size:])
	} else if k*q.size < len(q.tail) {
		q.take(q.n+k, q.tail[k*q.size:])
	}
	return true
}

// search answers from the entries before the tail, knowing that the tail is empty or all above the target.
func (q *query) search() {
	if q.want == chunk {
		q.out = q.buf[:0]
		if e := q.entries(q.slot); len(e) > 0 {
			q.out = q.buf[:copy(q.buf[:], e)] // onto itself if read from a file
		}
		return
	}
	q.slot = -1
	c := q.findChunk()
	next := c + 1 // of the chunk whose first entry is the answer to ceil, unless c has it
	if c >= 0 {
		e := q.entries(c)
		if q.err != nil {
			return
		}
		k := q.upper(e)
		if q.want == floor && k > 0 {
			q.take(c*q.per+k-1, e[(k-1)*q.size:])
			q.follow(e[k*q.size:])
		}
		if q.want == ceil && k*q.size < len(e) {
			q.take(c*q.per+k, e[k*q.size:])
		}
	}
	if q.want != ceil || q.slot >= 0 {
		return
	}
	if next*q.per < q.n {
		q.take(next*q.per, q.first(next))
	} else if len(q.tail) > 0 {
		q.take(q.n, q.tail)
	}
}

// findChunk is the last chunk whose first key is at most the target, -1 if none is. The warm end is looked at first:
// most readers are near the end of the log, and so only two chunks of a file are touched again and again.
func (q *query) findChunk() int {
	lo, hi := -1, (q.n+q.per-1)/q.per // first keys: up to lo at most target, from hi on above it
	warm := 2
	if len(q.tail) > 0 {
		warm-- // it was looked at
	}
	for ; warm > 0 && hi > 0; warm-- {
		if q.key(q.first(hi-1)) <= q.target {
			return hi - 1
		}
		hi--
	}
	for hi-lo > 1 {
		mid := lo + (hi-lo)/2
		if q.key(q.first(mid)) <= q.target {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}

// upper counts the leading entries of e with a key of at most the target.
func (q *query) upper(e []byte) int {
	lo, hi := 0, len(e)/q.size
	if hi > 8 {
		lo, hi = q.guess(e, hi)
	}
	for lo < hi {
		mid := lo + (hi-lo)/2
		if q.keyAt(e, mid) <= q.target {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// guess bounds upper of n entries, two or more. Most indexes grow evenly: then the place can be worked out, and besides the
// ends, which stay warm, only its neighbourhood is touched. Where they do not, steps that double lead to it.
func (q *query) guess(e []byte, n int) (lo, hi int) {
	first, last := q.keyAt(e, 0), q.keyAt(e, n-1)
	switch {
	case q.target < first:
		return 0, 0
	case q.target >= last:
		return n, n
	}
	lo, hi = 1, n-1
	i := min(max(1+int((float64(q.target)-float64(first))/(float64(last)-float64(first))*float64(n-1)), lo), hi)
	if q.keyAt(e, i) > q.target {
		hi = i
		for step := 1; hi-step >= lo; step *= 2 {
			if q.keyAt(e, hi-step) <= q.target {
				return hi - step + 1, hi
			}
			hi -= step
		}
		return lo, hi
	}
	lo = i + 1
	for step := 1; lo+step <= hi; step *= 2 {
		if q.keyAt(e, lo+step-1) > q.target {
			return lo, lo + step - 1
		}
		lo += step
	}
	return lo, hi
}

func (q *query) keyAt(e []byte, i int) int64 { return q.key(e[i*q.size : (i+1)*q.size]) }

// first is the first entry of a chunk before the tail.
func (q *query) first(c int) []byte {
	if q.b != nil {
		c *= q.per
		return q.b[c*q.size : (c+1)*q.size]
	}
	return q.fence[c*q.size : (c+1)*q.size]
}

// entries are all entries of a chunk before the tail, read into buf unless they are in memory.
func (q *query) entries(c int) []byte {
	from, to := c*q.per*q.size, min((c+1)*q.per, q.n)*q.size
	if from >= to {
		return nil
	}
	if q.b != nil {
		return q.b[from:to]
	}
	b := q.buf[:to-from]
	if n, err := q.f.ReadAt(b, int64(from)); n < len(b) {
		if err == nil || err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		q.err = err
		return nil
	}
	return b
}

func (q *query) take(slot int, e []byte) {
	q.slot = slot
	copy(q.found[:q.size], e)
}

// follow takes what else is wanted from the entries behind found.
func (q *query) follow(e []byte) {
	for ; q.near < len(q.behind) && len(e) >= q.size; e = e[q.size:] {
		copy(q.behind[q.near][:q.size], e)
		q.near++
	}
}
