// Package producerstate is idempotence and transactions of one partition: who wrote last, with which epoch and
// sequence, whose transaction is open, and how far read-committed readers may go. It is a state machine that sees every
// batch, and the snapshot files it is loaded from.
//
//	append      State.Check (changes nothing)  ->  write .log  ->  write aborted transactions  ->  State.Commit
//	            ->  log end, high watermark and Unstable.LastStable together
//	follower    the same with record.Replication, which is never refused
//	load        State.Reload (newest usable snapshot)  ->  State.Replay of the batches behind it  ->  State.SetEnd
//	truncate    as load, on the same State
//	roll, close State.Snapshot under the lock, Snapshot.Write outside, State.Taken; the recovery point comes after it
//
//	N.snapshot   state after all offsets below N
//
//	 0            2           6           10
//	+------------+-----------+-----------+------------------------------+
//	| version 1  | crc       | count     | count entries of 46 bytes    |   big-endian
//	+------------+-----------+-----------+------------------------------+
//	               CRC-32C of all behind it
//
//	entry: producerId 8 | epoch 2 | lastSequence 4 | lastOffset 8 | offsetDelta 4 | timestamp 8 | coordinatorEpoch 4 |
//	       currentTxnFirstOffset 8
//
// A snapshot is derived: a missing or corrupt one costs reading the log from an older one.
package producerstate

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math"
	"slices"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/vfs"
)

const (
	version    = 1
	headerSize = 10
	entrySize  = 46

	// maxBytes bounds what is read into memory: 256 MiB are more than 5.8 million producers.
	maxBytes = 256 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Entry is one producer. Only its last batch is kept: duplicates of older ones are not recognised after a reload.
type Entry struct {
	ProducerID       int64
	Epoch            int16 // -1 none
	LastSequence     int32 // of the last batch; -1 if there is none
	LastOffset       int64 // of the last batch; -1 if there is none
	OffsetDelta      int32 // last minus first offset of the last batch; 0 if there is none
	Timestamp        int64 // of the producer's last record or marker, Unix milliseconds; -1 none
	CoordinatorEpoch int32 // of the last marker; -1 none
	TxnFirstOffset   int64 // first offset of the open transaction; -1 none
}

// ErrCorrupt is what every *CorruptError is: the snapshot is useless, take an older one.
var ErrCorrupt = errors.New("producerstate: corrupt snapshot")

// CorruptError says why a snapshot cannot be used.
type CorruptError struct {
	File     string // path below the root
	Position int64  // byte where it goes wrong
	Reason   string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s: producer snapshot is corrupt at byte %d: %s", e.File, e.Position, e.Reason)
}

// Is makes errors.Is(err, ErrCorrupt) true.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// ReadSnapshot reads a snapshot file, entries in file order. A missing file is fs.ErrNotExist, an unusable one a
// *CorruptError.
func ReadSnapshot(fsys vfs.FS, name string) ([]Entry, error) {
	b, err := vfs.ReadFile(fsys, name, maxBytes)
	if errors.Is(err, vfs.ErrTooLong) {
		return nil, &CorruptError{File: name, Reason: fmt.Sprintf("longer than %d bytes", int64(maxBytes))}
	}
	if err != nil {
		return nil, err
	}
	return Decode(name, b)
}

// WriteSnapshot writes a snapshot file, whole and durable when it returns; an existing one is replaced. Entries are
// written in order of producer id; the slice is not changed.
func WriteSnapshot(fsys vfs.FS, name string, entries []Entry) error {
	if len(entries) > (maxBytes-headerSize)/entrySize {
		return &fs.PathError{Op: "write", Path: name, Err: fmt.Errorf("%d producers do not fit into a snapshot", len(entries))}
	}
	return checkpoint.WriteFile(fsys, name, Append(nil, entries))
}

// Decode reads the content of a snapshot; file is for errors, which are *CorruptError. Bytes behind the entries are
// tolerated when the CRC covers them. The CRC is checked before anything is believed.
func Decode(file string, b []byte) ([]Entry, error) {
	bad := func(pos int, format string, args ...any) ([]Entry, error) {
		return nil, &CorruptError{File: file, Position: int64(pos), Reason: fmt.Sprintf(format, args...)}
	}
	if len(b) < headerSize {
		return bad(len(b), "%d bytes are too short for a header", len(b))
	}
	if v := int16(binary.BigEndian.Uint16(b)); v != version {
		return bad(0, "version %d is not known, only %d", v, version)
	}
	if want, got := binary.BigEndian.Uint32(b[2:]), crc32.Checksum(b[6:], castagnoli); want != got {
		return bad(2, "CRC is %08x, computed %08x", want, got)
	}
	count := int32(binary.BigEndian.Uint32(b[6:]))
	if count < 0 || int64(count) > int64(len(b)-headerSize)/entrySize {
		return bad(6, "%d entries announced, there is room for %d", count, (len(b)-headerSize)/entrySize)
	}
	entries := make([]Entry, count)
	for i := range entries {
		entries[i] = decodeEntry(b[headerSize+i*entrySize:])
	}
	return entries, nil
}

// Append appends the content of a snapshot to dst, entries in order of producer id.
func Append(dst []byte, entries []Entry) []byte {
	start := len(dst)
	dst = slices.Grow(dst, headerSize+len(entries)*entrySize)
	dst = appendHeader(dst, len(entries))
	byID := func(a, b Entry) int { return cmp.Compare(a.ProducerID, b.ProducerID) }
	if !slices.IsSortedFunc(entries, byID) {
		entries = slices.Clone(entries)
		slices.SortStableFunc(entries, byID)
	}
	for _, e := range entries {
		dst = appendEntry(dst, e)
	}
	seal(dst[start:])
	return dst
}

// appendHeader leaves room for the CRC.
func appendHeader(dst []byte, count int) []byte {
	dst = binary.BigEndian.AppendUint16(dst, version)
	dst = binary.BigEndian.AppendUint32(dst, 0)
	return binary.BigEndian.AppendUint32(dst, uint32(min(count, math.MaxInt32)))
}

// seal puts the CRC into a snapshot that is otherwise complete.
func seal(b []byte) { binary.BigEndian.PutUint32(b[2:], crc32.Checksum(b[6:], castagnoli)) }

func appendEntry(dst []byte, e Entry) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(e.ProducerID))
	dst = binary.BigEndian.AppendUint16(dst, uint16(e.Epoch))
	dst = binary.BigEndian.AppendUint32(dst, uint32(e.LastSequence))
	dst = binary.BigEndian.AppendUint64(dst, uint64(e.LastOffset))
	dst = binary.BigEndian.AppendUint32(dst, uint32(e.OffsetDelta))
	dst = binary.BigEndian.AppendUint64(dst, uint64(e.Timestamp))
	dst = binary.BigEndian.AppendUint32(dst, uint32(e.CoordinatorEpoch))
	return binary.BigEndian.AppendUint64(dst, uint64(e.TxnFirstOffset))
}

func decodeEntry(b []byte) Entry {
	_ = b[entrySize-1]
	return Entry{
		ProducerID:       int64(binary.BigEndian.Uint64(b)),
		Epoch:            int16(binary.BigEndian.Uint16(b[8:])),
		LastSequence:     int32(binary.BigEndian.Uint32(b[10:])),
		LastOffset:       int64(binary.BigEndian.Uint64(b[14:])),
		OffsetDelta:      int32(binary.BigEndian.Uint32(b[22:])),
		Timestamp:        int64(binary.BigEndian.Uint64(b[26:])),
		CoordinatorEpoch: int32(binary.BigEndian.Uint32(b[34:])),
		TxnFirstOffset:   int64(binary.BigEndian.Uint64(b[38:])),
	}
}
