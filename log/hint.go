package log

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"io/fs"
	"iter"
	"os"
	"sync"

	"github.com/partlog/partlog/vfs"
)

// hintFile is a plain file in the root that Kafka never reads. It holds, for each durable log, how far its last
// commit round reached: written without a sync, so that it costs microseconds. Whatever value survives was true when
// it was written; it is a lower bound of what is on the device, exact after a kill, as old as the last writeback after
// a power cut. It only judges bad bytes: below it they are damage, above it a torn tail.
//
//	0        8        16              24     28         32
//	+--------+--------+---------------+------+----------+
//	| offset | base   | recoveryPoint | name | crc32c   |   one slot a partition; the CRC covers the
//	+--------+--------+---------------+------+----------+   partition's name and the first 28 bytes
//
// name is a hash of the partition's name, FNV-1a, by which one reading of the file finds the slots of all partitions.
const (
	hintFile = "partlog-durable-hints"
	hintSlot = 32
	maxHints = 16 << 20 // bytes; a larger file is not ours
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// hint is one slot's content. base is the active segment's, for people who look.
type hint struct{ offset, base, recoveryPoint int64 }

func (h hint) encode(b *[hintSlot]byte, name string) {
	binary.BigEndian.PutUint64(b[0:], uint64(h.offset))
	binary.BigEndian.PutUint64(b[8:], uint64(h.base))
	binary.BigEndian.PutUint64(b[16:], uint64(h.recoveryPoint))
	binary.BigEndian.PutUint32(b[24:], hashName(name))
	binary.BigEndian.PutUint32(b[28:], hintSum(b[:28], name))
}

func hintSum(b []byte, name string) uint32 {
	return crc32.Update(crc32.Checksum([]byte(name), castagnoli), castagnoli, b)
}

// hashName is the 32-bit FNV-1a hash.
func hashName(name string) uint32 {
	h := uint32(2166136261)
	for i := range len(name) {
		h = (h ^ uint32(name[i])) * 16777619
	}
	return h
}

// hints is the open file. A slot belongs to one log and is written by whoever holds that log's round token.
type hints struct {
	fs vfs.FS

	// mu guards all below; it is held for opening the file, never while a slot is written.
	mu    sync.Mutex
	file  vfs.File           // nil until the first note; closing it is the last thing that happens
	old   []byte             // the file as found,
	of    map[uint32][]int32 // and its slots by hash of their partition's name, ascending
	next  int64              // first free slot
	slots map[string]int64
}

// openHints reads what an unclean stop left. A file that makes no sense holds no hints, and after a clean stop there is
// nothing to judge: what another owner left behind then goes before anything is written. The caller syncs the root.
func openHints(fsys vfs.FS, clean bool) (*hints, error) {
	h := &hints{fs: fsys, slots: map[string]int64{}}
	if clean {
		if err := fsys.Remove(hintFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		return h, nil
	}
	old, err := vfs.ReadFile(fsys, hintFile, maxHints)
	if err != nil {
		return h, nil // absent or unreadable: as good as none
	}
	h.old = old[:len(old)/hintSlot*hintSlot]
	h.next = int64(len(h.old)) / hintSlot
	h.of = make(map[uint32][]int32, h.next)
	for i := range int32(h.next) {
		name := binary.BigEndian.Uint32(h.oldSlot(i)[24:])
		h.of[name] = append(h.of[name], i)
	}
	return h, nil
}

func (h *hints) oldSlot(i int32) []byte {
	at := int(i) * hintSlot
	return h.old[at : at+hintSlot]
}

// found ranges over the slots of a partition in the file as it was found, in order. mu is held.
func (h *hints) found(name string) iter.Seq2[int32, []byte] {
	return func(yield func(int32, []byte) bool) {
		for _, i := range h.of[hashName(name)] {
			b := h.oldSlot(i)
			if binary.BigEndian.Uint32(b[28:]) == hintSum(b[:28], name) && !yield(i, b) {
				return
			}
		}
	}
}

// get is the log's hint if it was taken under this recovery point, else 0. A broker that owned the root since moved the
// recovery point, and the hint speaks of another log. Once this process has written to the file it is asked itself: what was
// found in it may be of a log that was truncated since.
func (h *hints) get(tp TopicPartition, recoveryPoint int64) (offset int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	name := tp.String()
	for i, b := range h.found(name) {
		h.slots[name] = int64(i)
		if int64(binary.BigEndian.Uint64(b[16:])) == recoveryPoint {
			offset = int64(binary.BigEndian.Uint64(b[0:]))
		}
	}
	slot, known := h.slots[name]
	if h.file == nil || !known {
		return offset
	}
	var b [hintSlot]byte
	if _, err := h.file.ReadAt(b[:], slot*hintSlot); err != nil && err != io.EOF ||
		binary.BigEndian.Uint32(b[28:]) != hintSum(b[:28], name) || int64(binary.BigEndian.Uint64(b[16:])) != recoveryPoint {
		return 0
	}
	return int64(binary.BigEndian.Uint64(b[0:]))
}

// slot gives the log's place in the file, opening it and adding one as needed.
func (h *hints) slot(name string) (vfs.File, int64, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.file == nil {
		f, err := h.fs.OpenFile(hintFile, os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			return nil, 0, err
		}
		h.file = f
	}
	slot, ok := h.slots[name]
	if !ok {
		slot = h.next
		h.slots[name] = slot
		h.next++
	}
	return h.file, slot * hintSlot, nil
}

// note writes a hint without syncing it. Failing to is harmless: an older hint is a lower bound too.
func (h *hints) note(name string, v hint) (vfs.File, error) {
	f, at, err := h.slot(name)
	if err != nil {
		return nil, err
	}
	var b [hintSlot]byte
	v.encode(&b, name)
	_, err = f.WriteAt(b[:], at)
	return f, err
}

// lower is note for a truncation: the lowered hint is on the device when it returns.
func (h *hints) lower(name string, v hint) error {
	f, err := h.note(name, v)
	if err != nil {
		return err
	}
	if err := f.SyncData(); err != nil {
		return err
	}
	return syncDir(h.fs, ".")
}

// forget takes a partition's hint away, durably: one that is made anew under the name must not be judged by it.
func (h *hints) forget(name string) error {
	if !h.has(name) {
		return nil
	}
	return h.lower(name, hint{recoveryPoint: -1}) // no checkpoint says that
}

// has says whether the file has a slot of that name, and forgets what was found in it.
func (h *hints) has(name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, known := h.slots[name]
	for i, b := range h.found(name) {
		h.slots[name], known = int64(i), true
		clear(b)
	}
	return known
}

// close lets go of the file; with remove it is deleted, as a clean stop does.
func (h *hints) close(remove bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var err error
	if h.file != nil {
		err = h.file.Close()
		h.file = nil
	}
	if !remove {
		return err
	}
	if gone := h.fs.Remove(hintFile); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
		err = errors.Join(err, gone)
	}
	return err
}

// noteDurable leaves a hint after a commit round. The caller holds the round token.
func (l *Log) noteDurable(end int64) {
	_, _ = l.dir.hints.note(l.name, hint{offset: end, base: l.list.Load().active().Base(), recoveryPoint: l.commits.stored()})
}

// copyOut writes a stream to a new file, durably, name included.
func copyOut(fsys vfs.FS, name string, r io.Reader) (err error) {
	f, err := fsys.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	defer func() {
		if closed := f.Close(); err == nil {
			err = closed
		}
	}()
	buf, at := make([]byte, 64<<10), int64(0)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			if _, werr := f.WriteAt(buf[:n], at); werr != nil {
				return werr
			}
			at += int64(n)
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return syncDir(fsys, ".")
}
