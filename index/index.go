// Package index is Kafka's sparse offset index, N.index beside N.log: from an offset to a byte position at or before
// the batch that holds it.
//
//	 0               4               8               12              16
//	+---------------+---------------+---------------+---------------+-- ...
//	| relativeOffset|   position    | relativeOffset|   position    |
//	|     int32     |    int32      |     int32     |    int32      |        big-endian, no header, no checksum
//	+---------------+---------------+---------------+---------------+-- ...
//	|<-- slot 0, 8 bytes ---------->|<-- slot 1 ------------------->|
//
// relativeOffset counts from the segment's base offset and is the last offset of the batch that starts at position.
// Both columns grow strictly.
//
// An active index gathers entries in one page of memory and writes it when it is full; its file is never longer than
// its entries, so a full disk is an error of Append or Flush and never a signal. A sealed index is mapped read-only on
// its first use where the file system can be trusted, and read with ReadAt elsewhere; both give the same answers. The
// index is derived from the log: whatever is wrong with it, it can be rebuilt.
package index

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"

	"github.com/partlog/partlog/internal/mapped"
)

// EntrySize is the length of one entry in bytes: relativeOffset int32 | position int32, big-endian.
const EntrySize = 8

// Entry is one point of the index.
type Entry struct {
	Offset   int64 // absolute; the last offset of the batch that starts at Position
	Position int64 // byte of the log file, 0 to 2^31-1
}

// Index maps offsets to byte positions sparsely. One goroutine may change it (Append, Truncate, Flush, Sync, Seal,
// Rename, Close) while any number look things up; they take no lock and see whole, published entries only. Look-ups
// allocate nothing.
type Index struct {
	t    *mapped.Table
	base int64
	max  int // entries
}

// Create makes an empty active index in a new file, which must not exist (fs.ErrExist). The file grows with its entries
// and is never pre-sized. The directory entry is the caller's to sync.
func Create(name string, base int64, o Options) (*Index, error) {
	return open(name, base, o, mapped.Create)
}

// Open opens an existing file (fs.ErrNotExist) as an active index. A file that a broker pre-sized, one of odd length
// and one with a partial entry all open: zero slots and loose bytes at the end are no entries, and are cut off by the
// next Flush, Sync, Seal or Close. Check finds them. The order of entries is not looked at (see Check).
func Open(name string, base int64, o Options) (*Index, error) {
	return open(name, base, o, mapped.Open)
}

// OpenSealed returns a sealed index over a file that is not touched before its first use: a missing or unreadable file
// is reported then, as fs.ErrNotExist, by whatever is called first; Load does that first use. It holds less than a
// kilobyte until then. Zero slots and loose bytes at the end are ignored as by Open.
func OpenSealed(name string, base int64, o Options) (*Index, error) {
	return open(name, base, o, func(o mapped.Options) (*mapped.Table, error) { return mapped.OpenSealed(o), nil })
}

func open(name string, base int64, o Options, how func(mapped.Options) (*mapped.Table, error)) (*Index, error) {
	m, max, err := o.table(name)
	if err != nil {
		return nil, err
	}
	t, err := how(m)
	if err != nil {
		return nil, readOnly(name, damage(name, err))
	}
	return &Index{t: t, base: base, max: max}, nil
}

// Rebuild replaces the file by one with the entries of src and returns it as an active index. The new file is written
// beside the old one (name + ".tmp"), synced and renamed, so that a crash leaves either; the directory entry is the
// caller's to sync. An older Index of this name should be closed before. Entries beyond MaxBytes are left out, which
// only makes look-ups coarser at the end. An error of src or of the file system leaves the old file as it was.
func Rebuild(name string, base int64, o Options, src iter.Seq2[Entry, error]) (*Index, error) {
	m, room, err := o.table(name)
	if err != nil {
		return nil, err
	}
	x := &Index{base: base, max: room}
	_, err = mapped.Replace(m, func(t *mapped.Table) error {
		x.t = t
		for e, err := range src {
			if err != nil {
				return err
			}
			if x.Full() {
				return nil
			}
			if err := x.Append(e); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, readOnly(name, err)
	}
	return x, nil
}

// Build returns a sealed index over the entries of src in memory: it has no file and no limit but memory. For readers
// that may not write. Errors: those of src, ErrOrder, ErrRange.
func Build(base int64, src iter.Seq2[Entry, error]) (*Index, error) {
	var b []byte
	last, any := Entry{}, false
	for e, err := range src {
		if err != nil {
			return nil, err
		}
		if err := accept(base, e, last, any); err != nil {
			return nil, err
		}
		raw := encode(base, e)
		b = append(b, raw[:]...)
		last, any = e, true
	}
	return &Index{t: mapped.InHeap(EntrySize, b), base: base, max: math.MaxInt}, nil
}

// Load does the first use of a sealed index now: it opens, measures and maps the file, or says why that cannot be done.
// After it Len and Last are exact. Nil for any other index.
func (x *Index) Load() error { return x.damage(x.t.Load()) }

// Append adds an entry behind the last one. ErrFull: no room. ErrOrder: offset or position do not grow. ErrRange: the
// offset is below the base or more than 2^31-1 above it, or the position is not a 31-bit number. ErrReadOnly: sealed or
// opened read-only. Any other error is the file system's, of the append that fills a page (one in 512); then, too, the
// index is as it was and the append can be tried again.
func (x *Index) Append(e Entry) error {
	last, any := x.Last()
	if err := accept(x.base, e, last, any); err != nil {
		return x.say(err)
	}
	if !x.t.Sealed() && x.Full() {
		return x.say(ErrFull)
	}
	raw := encode(x.base, e)
	return x.readOnly(x.t.Append(raw[:]))
}

// accept says whether e may follow last.
func accept(base int64, e, last Entry, any bool) error {
	switch {
	case !mapped.Fits(base, e.Offset):
		return fmt.Errorf("%w: offset %d, base %d", ErrRange, e.Offset, base)
	case e.Position < 0 || e.Position > math.MaxInt32:
		return fmt.Errorf("%w: position %d", ErrRange, e.Position)
	case any && (e.Offset <= last.Offset || e.Position <= last.Position):
		return fmt.Errorf("%w: (%d, %d) after (%d, %d)", ErrOrder, e.Offset, e.Position, last.Offset, last.Position)
	}
	return nil
}

// Lookup is the last entry with an Offset of at most offset, or (base, 0) if there is none.
func (x *Index) Lookup(offset int64) (Entry, error) {
	rel, ok := mapped.Relative(x.base, offset)
	if !ok {
		return Entry{Offset: x.base}, nil
	}
	raw, slot, err := x.t.Floor(offsetKey, rel)
	if err != nil {
		return Entry{}, x.damage(err)
	}
	if slot < 0 {
		return Entry{Offset: x.base}, nil
	}
	return x.decode(raw[:]), nil
}

// Near is Lookup in near[0] and, as far as one look at a page of the index finds them, the two entries that follow. n, at
// least 1, counts all three; fewer than that does not mean that there are no more.
func (x *Index) Near(offset int64) (near [3]Entry, n int, err error) {
	near[0].Offset = x.base
	rel, ok := mapped.Relative(x.base, offset)
	if !ok {
		return near, 1, nil
	}
	var behind [2]mapped.Raw
	raw, slot, n, err := x.t.Near(offsetKey, rel, behind[:])
	if err != nil {
		return near, 1, x.damage(err)
	}
	if slot < 0 {
		return near, 1, nil
	}
	near[0] = x.decode(raw[:])
	for i := range n {
		near[1+i] = x.decode(behind[i][:])
	}
	return near, 1 + n, nil
}

// UpperBound is the first entry with a Position of at least position; false if there is none. A fetch of size bytes
// from position p ends before UpperBound(p + size).Offset.
func (x *Index) UpperBound(position int64) (Entry, bool, error) {
	raw, slot, err := x.t.Ceil(positionKey, position)
	if err != nil {
		return Entry{}, false, x.damage(err)
	}
	if slot < 0 {
		return Entry{}, false, nil
	}
	return x.decode(raw[:]), true, nil
}

// At is the entry in a slot, counted from 0; false if there is no such slot.
func (x *Index) At(slot int) (Entry, bool, error) {
	raw, ok, err := x.t.At(slot)
	if err != nil || !ok {
		return Entry{}, false, x.damage(err)
	}
	return x.decode(raw[:]), true, nil
}

// Len is the number of entries; 0 after Close, and of a sealed index that cannot be loaded (see Load).
func (x *Index) Len() int { return x.t.Len() }

// Last is the last entry; false if there is none, or as for Len.
func (x *Index) Last() (Entry, bool) {
	raw, ok := x.t.Last()
	if !ok {
		return Entry{}, false
	}
	return x.decode(raw[:]), true
}

// LastOffset is the last entry's offset, or the base offset of an empty index.
func (x *Index) LastOffset() int64 {
	if e, ok := x.Last(); ok {
		return e.Offset
	}
	return x.base
}

// Full is true when nothing more can be appended: MaxBytes are used, or the index is sealed or closed.
func (x *Index) Full() bool { return x.t.Sealed() || x.t.Len() >= x.max }

// Entries iterates the entries there are at its start, in order. An error comes once and last. Entries that are
// truncated away meanwhile may be missing. The index may be changed and closed by the loop's body.
func (x *Index) Entries() iter.Seq2[Entry, error] {
	return mapped.Entries(x.t, x.decode, x.damage)
}

// Truncate drops the entries with an Offset of at least offset and cuts the file to what is left. It is durable after
// Sync. A sealed index becomes active again, whether or not anything is dropped: its mapping is given up before the
// file is touched. Readers that are in it start over. After an error it can be tried again.
func (x *Index) Truncate(offset int64) error {
	return x.readOnly(x.damage(x.t.TruncateFrom(offsetKey, x.base, offset)))
}

// Flush hands everything to the operating system and cuts padding off: the file is exactly the entries. After an error
// it can be tried again. It does nothing for a sealed or read-only index.
func (x *Index) Flush() error { return x.t.Flush() }

// Sync is Flush and makes the file durable, also after Seal. Once it failed to sync it fails for ever with that error:
// the index must be rebuilt.
func (x *Index) Sync() error { return x.t.Sync() }

// Seal writes everything, leaves the file at its exact length and ends appending; the index is mapped on its next use.
// It does not sync. After an error it can be tried again. It does nothing for a sealed or read-only index.
func (x *Index) Seal() error { return x.t.Seal() }

// Rename renames the file while readers go on. A missing file is no error if the index was never used. On ErrReadOnly
// nothing happened, nor after Close (fs.ErrClosed): the file may have another owner then.
func (x *Index) Rename(name string) error { return x.readOnly(x.t.Rename(name)) }

// Moved tells the index its file's new name after the caller renamed a directory above it.
func (x *Index) Moved(name string) { x.t.Moved(name) }

// Name is the file's present name; "" of an index without a file.
func (x *Index) Name() string { return x.t.Name() }

// Close writes everything, leaves the file at its exact length and gives mapping and descriptors up. Look-ups then
// return fs.ErrClosed. It always closes; its error says that the file may hold fewer entries. A second Close does
// nothing.
func (x *Index) Close() error { return x.t.Close() }

// say puts the file's name before an error.
func (x *Index) say(err error) error { return fmt.Errorf("%s: %w", x.t.Name(), err) }

func (x *Index) damage(err error) error { return damage(x.t.Name(), err) }

func (x *Index) readOnly(err error) error { return readOnly(x.t.Name(), err) }

// readOnly gives a refused change this package's name.
func readOnly(file string, err error) error {
	if errors.Is(err, mapped.ErrReadOnly) {
		return fmt.Errorf("%s: %w", file, ErrReadOnly)
	}
	return err
}

func encode(base int64, e Entry) (raw [EntrySize]byte) {
	binary.BigEndian.PutUint32(raw[0:], uint32(e.Offset-base))
	binary.BigEndian.PutUint32(raw[4:], uint32(e.Position))
	return raw
}

func (x *Index) decode(b []byte) Entry {
	return Entry{Offset: x.base + offsetKey(b), Position: positionKey(b)}
}

func offsetKey(b []byte) int64   { return int64(int32(binary.BigEndian.Uint32(b))) }
func positionKey(b []byte) int64 { return int64(int32(binary.BigEndian.Uint32(b[4:]))) }

// blank is Kafka's rule: an entry of the base offset in a slot above 0 is padding.
func blank(b []byte) bool { return offsetKey(b) == 0 }
