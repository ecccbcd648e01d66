// Package txnindex keeps the aborted transactions whose end lies in one segment: what a read-committed reader skips.
//
//	N.txnindex   one entry of 34 bytes per aborted transaction, in order of lastOffset; no header, no checksum
//
//	 0        2            10            18           26                 34
//	+--------+------------+-------------+------------+------------------+
//	| 0 (16) | producerId | firstOffset | lastOffset | lastStableOffset |   big-endian
//	+--------+------------+-------------+------------+------------------+
//
// lastOffset is the offset of the abort marker, which lies in this segment; firstOffset is the transaction's first
// record, perhaps in an earlier segment; lastStableOffset is the log's last stable offset right after the abort. The
// file comes into being with the first entry. A partial entry at the end, left by a crash, is ignored and overwritten.
//
// The file is derived: what a reader must know is in the log itself, and recovery of the segment writes it anew.
package txnindex

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"sync"

	"github.com/partlog/partlog/vfs"
)

// EntrySize is the length of an entry in the file, in bytes.
const EntrySize = 34

// Entry is one aborted transaction.
type Entry struct {
	ProducerID       int64
	FirstOffset      int64 // the transaction's first record, or an earlier offset
	LastOffset       int64 // its abort marker
	LastStableOffset int64 // of the log, right after the abort; see Covers
}

// Covers says that no transaction that ends later begins below upTo, by the last stable offset. That cannot have been behind the
// marker, but a Kafka follower, which knows all that comes with one fetch when it notes the first abort in it, leaves the
// producer's own next transactions out of account and may note an offset behind them.
func (e Entry) Covers(upTo int64) bool { return min(e.LastStableOffset, e.LastOffset+1) >= upTo }

// Put encodes the entry into b, which must hold EntrySize bytes.
func (e Entry) Put(b []byte) {
	_ = b[EntrySize-1]
	binary.BigEndian.PutUint16(b, 0)
	binary.BigEndian.PutUint64(b[2:], uint64(e.ProducerID))
	binary.BigEndian.PutUint64(b[10:], uint64(e.FirstOffset))
	binary.BigEndian.PutUint64(b[18:], uint64(e.LastOffset))
	binary.BigEndian.PutUint64(b[26:], uint64(e.LastStableOffset))
}

// Decode reads the entry at the start of b, which must hold EntrySize bytes, and the version in front of it; only 0 is
// known.
func Decode(b []byte) (e Entry, version int16) {
	_ = b[EntrySize-1]
	return Entry{
		ProducerID:       int64(binary.BigEndian.Uint64(b[2:])),
		FirstOffset:      int64(binary.BigEndian.Uint64(b[10:])),
		LastOffset:       int64(binary.BigEndian.Uint64(b[18:])),
		LastStableOffset: int64(binary.BigEndian.Uint64(b[26:])),
	}, int16(binary.BigEndian.Uint16(b))
}

var (
	// ErrCorrupt is what every *CorruptError is: the segment's index must be built anew.
	ErrCorrupt = errors.New("txnindex: corrupt index")
	// ErrOrder is returned by Append for an entry whose marker is not behind the last one.
	ErrOrder = errors.New("txnindex: entry out of order")
)

// CorruptError says which entry cannot be right.
type CorruptError struct {
	File     string // path below the root
	Position int64  // byte where the entry starts
	Reason   string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s: aborted transaction at byte %d: %s", e.File, e.Position, e.Reason)
}

// Is makes errors.Is(err, ErrCorrupt) true.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// Index is one .txnindex file. Nothing is opened before it is needed, so an Index of a segment without aborted
// transactions costs no descriptor. All methods are safe for concurrent use; readers run beside one append. The length
// is looked up when the file is opened: to see what another process appended, Release first.
type Index struct {
	fsys vfs.FS
	base int64

	// mu guards the fields below. It is held while the file is opened, written or cut; readers hold it shared while they
	// read. Nothing else is locked under it.
	mu     sync.RWMutex
	name   string
	file   vfs.File // nil: not open
	write  bool     // file may be written
	known  bool     // size and last are
	size   int64    // whole entries, in bytes
	last   int64    // LastOffset of the last entry; -1 none
	sound  int64    // of size, what is known to hold entries that can be right, in order
	opens  uint64   // changes when what is known of the file is forgotten, or it is cut
	closed bool

	unsynced bool  // the file was changed since the last Sync, perhaps by whoever had it before it was opened for writing
	syncErr  error // the first failure of a Sync, or of a Release of unsynced bytes; until Reset writes them anew
}

// New makes the index of the segment that begins at base; name is the path of its file, which need not exist.
func New(fsys vfs.FS, name string, base int64) *Index {
	return &Index{fsys: fsys, name: name, base: base, last: -1}
}

// Append writes an entry behind the last one, creating the file for the first. LastOffset must grow, and lie in the
// segment: else ErrOrder. After an error nothing was added. The entry is durable after Sync; a file that did not
// exist also needs its directory synced.
func (x *Index) Append(e Entry) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.open(true); err != nil {
		return err
	}
	if e.LastOffset <= x.last || e.LastOffset < x.base || e.FirstOffset > e.LastOffset {
		return fmt.Errorf("%s: %w: offsets %d to %d behind a marker at %d", x.name, ErrOrder, e.FirstOffset, e.LastOffset, x.last)
	}
	var b [EntrySize]byte
	e.Put(b[:])
	x.unsynced = true
	n, err := x.file.WriteAt(b[:], x.size)
	if err == nil && n < EntrySize {
		err = io.ErrShortWrite
	}
	if err != nil {
		return &fs.PathError{Op: "write", Path: x.name, Err: err} // what was written is a partial entry at most
	}
	if x.sound == x.size {
		x.sound += EntrySize
	}
	x.size, x.last = x.size+EntrySize, e.LastOffset
	return nil
}

// Len is the number of entries; 0 without a file.
func (x *Index) Len() (int64, error) {
	var n int64
	err := x.shared(func() error { n = x.size / EntrySize; return nil })
	return n, err
}

// Collect appends to dst the transactions that a read of [from, upper) must know, oldest first: those that end at or
// behind from and begin below upper. complete says that no later segment can hold another one; otherwise go on with the
// next segment's index. An unreadable entry is a *CorruptError.
func (x *Index) Collect(dst []Entry, from, upper int64) (_ []Entry, complete bool, err error) {
	err = x.scan(func(e Entry, _ int64) (bool, error) {
		if e.LastOffset >= from && e.FirstOffset < upper {
			dst = append(dst, e)
		}
		complete = e.Covers(upper)
		return !complete, nil
	})
	return dst, complete, err
}

// All iterates the entries, oldest first. It reads ahead in small blocks and holds no lock while the loop body runs;
// what is appended meanwhile may or may not come. The iterator ends with an error if there is one.
func (x *Index) All() iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		var block []Entry
		for pos := int64(0); ; pos += int64(len(block)) * EntrySize {
			block = block[:0]
			err := x.read(pos, func(e Entry, _ int64) (bool, error) {
				block = append(block, e)
				return true, nil
			})
			for _, e := range block {
				if !yield(e, nil) {
					return
				}
			}
			if err != nil {
				yield(Entry{}, err)
				return
			}
			if len(block) == 0 {
				return
			}
		}
	}
}

// From hands the entries from the n-th on to f, oldest first, until it says stop or there are no more, and says how many
// these were. They are checked as Check does: what cannot be right is a *CorruptError, behind the good ones before it.
func (x *Index) From(n int64, f func(e Entry) (more bool)) (seen int64, err error) {
	last, first := int64(-1), max(0, n-1) // the one before tells what must follow
	err = x.scanFrom(first*EntrySize, func(e Entry, pos int64) (bool, error) {
		if err := x.right(e, pos, last); err != nil {
			return false, err
		}
		last = e.LastOffset
		if pos/EntrySize < n {
			return true, nil
		}
		seen++
		return f(e), nil
	})
	return seen, err
}

// Check reads all entries: versions, offsets within the transaction and the segment, order. The error is a
// *CorruptError, or one of reading.
func (x *Index) Check() error {
	_, err := x.From(0, func(Entry) bool { return true })
	return err
}

// right says whether an entry can be right behind one that ends at last.
func (x *Index) right(e Entry, pos, last int64) error {
	reason := ""
	switch {
	case e.LastOffset < x.base:
		reason = fmt.Sprintf("ends at offset %d, before the segment's %d", e.LastOffset, x.base)
	case e.LastOffset <= last:
		reason = fmt.Sprintf("ends at offset %d, not behind the one before it at %d", e.LastOffset, last)
	case e.FirstOffset < 0 || e.FirstOffset > e.LastOffset:
		reason = fmt.Sprintf("begins at offset %d and ends at %d", e.FirstOffset, e.LastOffset)
	default:
		return nil
	}
	return &CorruptError{File: x.name, Position: pos, Reason: reason}
}

// Truncate drops the transactions whose marker is at or above offset. It is durable after Sync.
func (x *Index) Truncate(offset int64) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.open(false); err != nil || x.file == nil {
		return err
	}
	cut := x.size
	for pos := int64(0); pos < x.size; {
		n, err := x.block(pos, func(e Entry, at int64) (bool, error) {
			if e.LastOffset >= offset {
				cut = at
				return false, nil
			}
			return true, nil
		})
		if err != nil {
			return err
		}
		if pos += n; cut < x.size {
			break
		}
	}
	return x.cut(cut)
}

// Reset drops all entries and keeps an existing file, empty. It works on a corrupt index, and after a failed Sync.
func (x *Index) Reset() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.openFile(false); err != nil {
		return err
	}
	if x.file != nil {
		if err := x.cut(0); err != nil {
			return err
		}
	}
	x.syncErr = nil
	return nil
}

// Sync makes the entries durable, also those written before a Release; nothing happens if there are none. Once it failed
// it fails for ever with that error, because what the device holds is unknown: Reset and append them anew.
func (x *Index) Sync() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.ended(); err != nil || x.syncErr != nil {
		return errors.Join(err, x.syncErr)
	}
	if !x.unsynced {
		return nil
	}
	if err := x.openFile(false); err != nil {
		return err
	}
	if x.file != nil {
		if x.syncErr = x.file.Sync(); x.syncErr != nil {
			return x.syncErr
		}
	}
	x.unsynced = false
	return nil
}

// Rename gives the file another name in the tree, if there is one, and follows it.
func (x *Index) Rename(name string) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.ended(); err != nil {
		return err
	}
	err := x.fsys.Rename(x.name, name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	x.name = name
	return nil
}

// Moved tells the index that its file has another path now: the folder was renamed.
func (x *Index) Moved(name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.name = name
}

// Name is the path of the file below the root.
func (x *Index) Name() string {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.name
}

// Release gives the descriptor back; the next use opens the file again. It does not sync.
func (x *Index) Release() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.release()
}

// Remove releases and deletes the file, if there is one.
func (x *Index) Remove() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.ended(); err != nil {
		return err
	}
	err := x.release()
	x.size, x.last, x.known, x.sound = 0, -1, false, 0
	if e := x.fsys.Remove(x.name); e != nil && !errors.Is(e, fs.ErrNotExist) {
		return errors.Join(err, e)
	}
	x.unsynced, x.syncErr = false, nil
	return err
}

// Close releases the file for good: later calls are fs.ErrClosed. A second Close does nothing.
func (x *Index) Close() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closed = true
	return x.release()
}
