package index

import (
	"errors"
	"fmt"
	"io/fs"
	"math"

	"github.com/partlog/partlog/internal/mapped"
	"github.com/partlog/partlog/vfs"
)

// DefaultMaxBytes is the default of Kafka's segment.index.bytes.
const DefaultMaxBytes = 10 << 20

// Options of an index, shared with package timeindex.
type Options struct {
	// FS holds the file. Required: nil is fs.ErrInvalid.
	FS vfs.FS
	// MaxBytes limits an active index in bytes (segment.index.bytes): floor(MaxBytes / EntrySize) entries. 0 means
	// 10 MiB; less than one entry is ErrTooSmall. An existing file that is longer opens, and is full.
	MaxBytes int64
	// Map says whether a sealed index may be mapped.
	Map MapMode
	// Budget is what mappings and open files are counted against; nil means one for the whole process.
	Budget *Budget
	// ReadOnly opens files for reading only and refuses every change with ErrReadOnly.
	ReadOnly bool
}

// MapMode says whether a sealed index may be mapped.
type MapMode uint8

const (
	// Auto maps a sealed index where the file system is trusted with it (vfs.Traits.Mmap) and the system lets it.
	Auto MapMode = iota
	// Never reads with ReadAt, guided by one entry in 512 in memory.
	Never
)

// Budget bounds the mappings and open files of all indexes that share it: the longest unused is given back first and
// comes back on its next use. Its methods Mappings and Files say what is held now.
type Budget = mapped.Budget

// NewBudget returns a budget of maxMappings mappings and of as many open files, at most 256 of these. 0 means 16382,
// a quarter of what Linux usually allows one process.
func NewBudget(maxMappings int) *Budget { return mapped.NewBudget(maxMappings) }

var (
	// ErrFull is returned by an append to an index that has MaxBytes of entries.
	ErrFull = errors.New("index: full")
	// ErrOrder is returned by an append whose entry does not lie behind the last one.
	ErrOrder = errors.New("index: entry out of order")
	// ErrRange is returned by an append whose offset or position cannot be stored in 32 bits.
	ErrRange = errors.New("index: offset not representable from base")
	// ErrReadOnly is returned by changes of an index that is sealed, in memory or opened read-only.
	ErrReadOnly = errors.New("index: sealed or read only")
	// ErrTooSmall is returned when MaxBytes has no room for a single entry.
	ErrTooSmall = errors.New("index: size limit below one entry")
	// ErrDamaged is what a *DamageError is: rebuild the index from the log.
	ErrDamaged = errors.New("index: damaged")
)

// DamageError says what is wrong with an index file. The index can be rebuilt from the log.
type DamageError struct {
	File   string
	Slot   int    // first bad slot, counted from 0; -1 if it is the file as a whole
	Reason string // "offset 7 after 9", ...
	// Padding: the entries are in order, but zero slots or a partial entry lie behind them, as a broker that was killed
	// leaves them. Entries may be missing, so of a sealed time index the last timestamp cannot be trusted.
	Padding bool
	Err     error // vfs.ErrFault or io.ErrUnexpectedEOF if the file was changed underneath; else nil
}

func (e *DamageError) Error() string {
	if e.Slot < 0 {
		return fmt.Sprintf("%s: damaged index: %s", e.File, e.Reason)
	}
	return fmt.Sprintf("%s: damaged index at slot %d: %s", e.File, e.Slot, e.Reason)
}

// Is makes errors.Is(err, ErrDamaged) true.
func (e *DamageError) Is(target error) bool { return target == ErrDamaged }

func (e *DamageError) Unwrap() error { return e.Err }

// damage turns "the file is not what it was" into a *DamageError.
func damage(file string, err error) error {
	if err == nil || !mapped.Changed(err) || errors.Is(err, ErrDamaged) {
		return err
	}
	return &DamageError{File: file, Slot: -1, Reason: err.Error(), Err: err}
}

// table is what package mapped needs to know, and the number of entries MaxBytes has room for.
func (o Options) table(name string) (mapped.Options, int, error) {
	limit := o.MaxBytes
	if limit == 0 {
		limit = DefaultMaxBytes
	}
	switch {
	case o.FS == nil:
		return mapped.Options{}, 0, fmt.Errorf("%s: Options.FS is required: %w", name, fs.ErrInvalid)
	case limit < EntrySize:
		return mapped.Options{}, 0, fmt.Errorf("%s: %w: %d bytes", name, ErrTooSmall, limit)
	}
	return mapped.Options{
		FS: o.FS, Name: name, EntrySize: EntrySize, Blank: blank,
		NeverMap: o.Map == Never, ReadOnly: o.ReadOnly, Budget: o.Budget,
	}, int(min(limit, math.MaxInt32) / EntrySize), nil
}
