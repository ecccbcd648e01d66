package mapped

import (
	"fmt"
	"io"
	"io/fs"
	"os"
)

// Behind is what a file holds behind its entries.
type Behind struct {
	First   int   // the slot behind the last entry
	Slots   int64 // whole slots of zeros: padding of a pre-sized file
	Partial int64 // bytes of an incomplete entry at the end
	Garbage bool  // some of it is not zero, so it is not (only) padding
}

// String says it in a few words; "" if there is nothing.
func (b Behind) String() string {
	switch {
	case b.Garbage:
		return "bytes behind zero padding"
	case b.Slots > 0:
		return fmt.Sprintf("%d slots of zero padding", b.Slots)
	case b.Partial > 0:
		return fmt.Sprintf("%d bytes of a partial entry", b.Partial)
	}
	return ""
}

// Behind reads what the file holds behind its entries. Normally there is nothing, and the length that the file had when it
// was opened says so.
func (t *Table) Behind() (Behind, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.state.Load()
	entries := t.written
	switch s.kind {
	case closed:
		return Behind{}, t.pathError("read", fs.ErrClosed)
	case inHeap:
		return Behind{}, nil
	case active:
		if !t.cut {
			return Behind{First: entries}, nil
		}
	case sealed:
		n, _, err := t.sealedCount()
		if err != nil {
			return Behind{}, err
		}
		if entries = n; s.src.exact.Load() {
			return Behind{First: n}, nil
		}
	}
	t.open.Lock()
	f, err := t.openFile(os.O_RDONLY)
	t.open.Unlock()
	if err != nil {
		return Behind{}, err
	}
	defer f.Close()
	length, err := f.Size()
	if err != nil {
		return Behind{}, err
	}
	from := int64(entries) * int64(t.size)
	if length < from {
		return Behind{}, t.pathError("read", fmt.Errorf("%d bytes where %d entries were: %w", length, entries, io.ErrUnexpectedEOF))
	}
	b := Behind{First: entries, Slots: (length - from) / int64(t.size), Partial: length % int64(t.size)}
	q := queries.Get().(*query)
	defer queries.Put(q)
	for end := length - b.Partial; from < end && !b.Garbage; {
		p := q.buf[:min(pageSize, end-from)]
		if err := t.readFull(f, p, from); err != nil {
			return Behind{}, t.pathError("read", err)
		}
		for _, c := range p {
			b.Garbage = b.Garbage || c != 0
		}
		from += int64(len(p))
	}
	return b, nil
}
