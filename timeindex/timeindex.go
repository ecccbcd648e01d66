// Package timeindex is Kafka's sparse time index, N.timeindex beside N.log: from a timestamp to an offset at or before
// the first record that is younger.
//
//	 0                               8               12
//	+-------------------------------+---------------+-------------------------------+-- ...
//	|           timestamp           | relativeOffset|           timestamp           |
//	|             int64             |     int32     |             int64             |    big-endian, no header
//	+-------------------------------+---------------+-------------------------------+-- ...
//	|<-- slot 0, 12 bytes ------------------------->|<-- slot 1 -----------------------
//
// An entry says: every record with a timestamp above this one lies behind this offset. timestamp (Unix milliseconds) is
// the largest batch timestamp of the segment so far, relativeOffset counts from the segment's base offset and is the
// last offset of the earliest batch that has it. Timestamps grow strictly, offsets do not fall.
//
// Files, mappings, concurrency, options and errors are those of package index.
package timeindex

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"math"

	"github.com/partlog/partlog/index"
	"github.com/partlog/partlog/internal/mapped"
)

// EntrySize is the length of one entry in bytes: timestamp int64 | relativeOffset int32, big-endian.
const EntrySize = 12

// NoTimestamp is the timestamp of the answer where there is no entry.
const NoTimestamp int64 = -1

// Entry is one point of the index.
type Entry struct {
	Timestamp int64 // largest batch timestamp so far, Unix milliseconds
	Offset    int64 // absolute; last offset of the earliest batch that has it
}

// Index maps timestamps to offsets sparsely. One goroutine may change it (Append, AppendLast, Truncate, Flush, Sync,
// Seal, Rename, Close) while any number look things up; they take no lock and see whole, published entries only.
// Look-ups allocate nothing.
type Index struct {
	t    *mapped.Table
	base int64
	max  int // entries, the one kept for AppendLast included
}

// Create makes an empty active index in a new file; see index.Create.
func Create(name string, base int64, o index.Options) (*Index, error) {
	return open(name, base, o, mapped.Create)
}

// Open opens an existing file as an active index; see index.Open.
func Open(name string, base int64, o index.Options) (*Index, error) {
	return open(name, base, o, mapped.Open)
}

// OpenSealed returns a sealed index over a file that is not touched before its first use; see index.OpenSealed.
func OpenSealed(name string, base int64, o index.Options) (*Index, error) {
	return open(name, base, o, func(o mapped.Options) (*mapped.Table, error) { return mapped.OpenSealed(o), nil })
}

func open(name string, base int64, o index.Options, how func(mapped.Options) (*mapped.Table, error)) (*Index, error) {
	m, room, err := table(name, o)
	if err != nil {
		return nil, err
	}
	t, err := how(m)
	if err != nil {
		return nil, readOnly(name, damage(name, err))
	}
	return &Index{t: t, base: base, max: room}, nil
}

// table is what package mapped needs to know, and the number of entries MaxBytes has room for.
func table(name string, o index.Options) (mapped.Options, int, error) {
	limit := o.MaxBytes
	if limit == 0 {
		limit = index.DefaultMaxBytes
	}
	switch {
	case o.FS == nil:
		return mapped.Options{}, 0, fmt.Errorf("%s: Options.FS is required: %w", name, fs.ErrInvalid)
	case limit < EntrySize:
		return mapped.Options{}, 0, fmt.Errorf("%s: %w: %d bytes", name, index.ErrTooSmall, limit)
	}
	return mapped.Options{
		FS: o.FS, Name: name, EntrySize: EntrySize, Blank: blank,
		NeverMap: o.Map == index.Never, ReadOnly: o.ReadOnly, Budget: o.Budget,
	}, int(min(limit, math.MaxInt32) / EntrySize), nil
}

// Rebuild replaces the file by one with the entries of src, as index.Rebuild does. They are taken as by Append,
// index.ErrOrder for a timestamp that falls included. Entries beyond MaxBytes are left out but for the last one, which
// takes the slot kept for it: the largest timestamp is always right.
func Rebuild(name string, base int64, o index.Options, src iter.Seq2[Entry, error]) (*Index, error) {
	m, room, err := table(name, o)
	if err != nil {
		return nil, err
	}
	x := &Index{base: base, max: room}
	_, err = mapped.Replace(m, func(t *mapped.Table) error {
		x.t = t
		return x.fill(src)
	})
	if err != nil {
		return nil, readOnly(name, err)
	}
	return x, nil
}

func (x *Index) fill(src iter.Seq2[Entry, error]) error {
	var over Entry
	full := false
	for e, err := range src {
		if err != nil {
			return err
		}
		if x.Full() {
			if !full || e.Timestamp > over.Timestamp {
				over, full = e, true
			}
		} else if _, err := x.Append(e); err != nil {
			return err
		}
	}
	if last, _ := x.Last(); full && over.Timestamp > last.Timestamp {
		return x.AppendLast(over)
	}
	return nil
}

// Build returns a sealed index over the entries of src in memory, without a file; see index.Build. Only timestamps larger
// than all before are stored.
func Build(base int64, src iter.Seq2[Entry, error]) (*Index, error) {
	var b []byte
	last, any := Entry{Timestamp: NoTimestamp}, false
	for e, err := range src {
		if err != nil {
			return nil, err
		}
		add, err := accept(base, e, last, any, true)
		if err != nil {
			return nil, err
		}
		if !add {
			continue
		}
		raw := encode(base, e)
		b = append(b, raw[:]...)
		last, any = e, true
	}
	return &Index{t: mapped.InHeap(EntrySize, b), base: base, max: math.MaxInt}, nil
}

// Load does the first use of a sealed index now; see index.Index.Load.
func (x *Index) Load() error { return x.damage(x.t.Load()) }

// Append adds an entry behind the last one if its timestamp is larger. An equal one, and one of an empty index that is
// negative, is no entry: nothing happens and added is false. index.ErrFull: only the slot for AppendLast is left.
// index.ErrOrder: the offset, or the timestamp, is below the last entry's. index.ErrRange: the offset is below the base or
// more than 2^31-1 above it. index.ErrReadOnly: sealed or opened read-only. Any other error is the file system's, of the
// append that fills a page (one in 341); then, too, the index is as it was and the append can be tried again.
func (x *Index) Append(e Entry) (added bool, err error) {
	if !x.t.Sealed() && x.Full() {
		return false, x.say(index.ErrFull)
	}
	return x.add(e, false)
}

// AppendLast adds the segment's largest timestamp at roll and at close, if it is not there yet. It may use the slot that
// Append leaves free, and is never ErrFull: an index without its last entry would have a segment deleted too early. A
// smaller timestamp than the last entry's is ignored, as an equal one is. Other errors are Append's.
func (x *Index) AppendLast(e Entry) error {
	_, err := x.add(e, true)
	return err
}

func (x *Index) add(e Entry, lenient bool) (bool, error) {
	last, any := x.Last()
	add, err := accept(x.base, e, last, any, lenient)
	if err != nil {
		return false, x.say(err)
	}
	if !add && !x.t.Sealed() {
		return false, nil
	}
	raw := encode(x.base, e)
	if err := x.t.Append(raw[:]); err != nil {
		return false, x.readOnly(err)
	}
	return true, nil
}

// accept says whether e is to be stored behind last; lenient: a smaller timestamp is no error.
func accept(base int64, e, last Entry, any, lenient bool) (bool, error) {
	if !any {
		last.Timestamp = NoTimestamp
	}
	switch {
	case any && e.Timestamp < last.Timestamp && !lenient:
		return false, fmt.Errorf("%w: timestamp %d after %d", index.ErrOrder, e.Timestamp, last.Timestamp)
	case any && e.Offset < last.Offset && !(lenient && e.Timestamp <= last.Timestamp):
		return false, fmt.Errorf("%w: offset %d after %d", index.ErrOrder, e.Offset, last.Offset)
	case e.Timestamp <= last.Timestamp:
		return false, nil
	case !mapped.Fits(base, e.Offset):
		return false, fmt.Errorf("%w: offset %d, base %d", index.ErrRange, e.Offset, base)
	}
	return true, nil
}

// Lookup is the last entry with a Timestamp of at most timestamp, or (NoTimestamp, base) if there is none.
func (x *Index) Lookup(timestamp int64) (Entry, error) {
	raw, slot, err := x.t.Floor(timestampKey, timestamp)
	if err != nil {
		return Entry{}, x.damage(err)
	}
	if slot < 0 {
		return Entry{Timestamp: NoTimestamp, Offset: x.base}, nil
	}
	return x.decode(raw[:]), nil
}

// At is the entry in a slot, counted from 0; false if there is no such slot.
func (x *Index) At(slot int) (Entry, bool, error) {
	raw, ok, err := x.t.At(slot)
	if err != nil || !ok {
		return Entry{}, false, x.damage(err)
	}
	return x.decode(raw[:]), true, nil
}

// Last is the last entry, which has the largest timestamp, or (NoTimestamp, base) and false if there is none; so, too,
// after Close, and of a sealed index that cannot be loaded (see Load). It reads no file once the index is loaded.
func (x *Index) Last() (Entry, bool) {
	raw, ok := x.t.Last()
	if !ok {
		return Entry{Timestamp: NoTimestamp, Offset: x.base}, false
	}
	return x.decode(raw[:]), true
}

// Len is the number of entries; 0 after Close, and of a sealed index that cannot be loaded (see Load).
func (x *Index) Len() int { return x.t.Len() }

// Full is true when Append has no room: but for the slot of AppendLast MaxBytes are used, or the index is sealed or
// closed.
func (x *Index) Full() bool { return x.t.Sealed() || x.t.Len() >= x.max-1 }

// Entries iterates the entries there are at its start, in order; see index.Index.Entries.
func (x *Index) Entries() iter.Seq2[Entry, error] {
	return mapped.Entries(x.t, x.decode, x.damage)
}

// Truncate drops the entries with an Offset of at least offset and cuts the file; see index.Index.Truncate.
func (x *Index) Truncate(offset int64) error {
	return x.readOnly(x.damage(x.t.TruncateFrom(offsetKey, x.base, offset)))
}

// Flush hands everything to the operating system and cuts padding off; see index.Index.Flush.
func (x *Index) Flush() error { return x.t.Flush() }

// Sync is Flush and makes the file durable; see index.Index.Sync.
func (x *Index) Sync() error { return x.t.Sync() }

// Seal writes everything, leaves the file at its exact length and ends appending; see index.Index.Seal. The last entry
// is the caller's to add before, with AppendLast.
func (x *Index) Seal() error { return x.t.Seal() }

// Rename renames the file while readers go on; see index.Index.Rename.
func (x *Index) Rename(name string) error { return x.readOnly(x.t.Rename(name)) }

// Moved tells the index its file's new name after the caller renamed a directory above it.
func (x *Index) Moved(name string) { x.t.Moved(name) }

// Name is the file's present name; "" of an index without a file.
func (x *Index) Name() string { return x.t.Name() }

// Close writes everything, leaves the file at its exact length and gives everything up; see index.Index.Close.
func (x *Index) Close() error { return x.t.Close() }

// say puts the file's name before an error.
func (x *Index) say(err error) error { return fmt.Errorf("%s: %w", x.t.Name(), err) }

func (x *Index) damage(err error) error { return damage(x.t.Name(), err) }

// damage turns "the file is not what it was" into an *index.DamageError.
func damage(file string, err error) error {
	if err == nil || !mapped.Changed(err) {
		return err
	}
	return &index.DamageError{File: file, Slot: -1, Reason: err.Error(), Err: err}
}

func (x *Index) readOnly(err error) error { return readOnly(x.t.Name(), err) }

// readOnly gives a refused change package index's name.
func readOnly(file string, err error) error {
	if errors.Is(err, mapped.ErrReadOnly) {
		return fmt.Errorf("%s: %w", file, index.ErrReadOnly)
	}
	return err
}

func encode(base int64, e Entry) (raw [EntrySize]byte) {
	binary.BigEndian.PutUint64(raw[0:], uint64(e.Timestamp))
	binary.BigEndian.PutUint32(raw[8:], uint32(e.Offset-base))
	return raw
}

func (x *Index) decode(b []byte) Entry {
	return Entry{Timestamp: timestampKey(b), Offset: x.base + offsetKey(b)}
}

func timestampKey(b []byte) int64 { return int64(binary.BigEndian.Uint64(b)) }
func offsetKey(b []byte) int64    { return int64(int32(binary.BigEndian.Uint32(b[8:]))) }

// blank is a slot of zeros: above slot 0 no entry has timestamp zero, as timestamps grow. (The offset alone does not tell:
// a larger timestamp at the base offset may follow.)
func blank(b []byte) bool { return timestampKey(b) == 0 && offsetKey(b) == 0 }
