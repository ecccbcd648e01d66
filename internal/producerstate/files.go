package producerstate

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/vfs"
)

const suffix = ".snapshot"

// digits are those of an offset in a file's name.
const digits = 20

// FileName is the name of the snapshot of the state after all offsets below offset.
func FileName(offset int64) string {
	name := []byte("00000000000000000000" + suffix)
	for i := digits - 1; offset > 0; i, offset = i-1, offset/10 {
		name[i] = byte('0' + offset%10)
	}
	return string(name)
}

// Offset reads what FileName wrote; any number of digits will do.
func Offset(name string) (offset int64, ok bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	if !ok || digits == "" || digits[0] == '+' || digits[0] == '-' {
		return 0, false
	}
	offset, err := strconv.ParseInt(digits, 10, 64)
	return offset, err == nil
}

// List returns the offsets of the snapshots in a folder, in order.
func List(fsys vfs.FS, folder string) ([]int64, error) {
	entries, err := fsys.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	return Snapshots(entries), nil
}

// Snapshots is List for a folder that was read already.
func Snapshots(entries []fs.DirEntry) (all []int64) {
	for _, e := range entries {
		if name := e.Name(); len(name) == digits+len(suffix) && !e.IsDir() {
			if offset, ok := Offset(name); ok {
				all = append(all, offset)
			}
		}
	}
	slices.Sort(all)
	return all
}

// Strays are the snapshots, of those listed, that an open removes: all that do not stand at the start of a segment. The
// largest of them stays if no segment begins behind it: a clean stop left it at the end of the log. bases are in order.
func Strays(snapshots, bases []int64) []int64 {
	var strays []int64
	for _, offset := range snapshots {
		if _, ok := slices.BinarySearch(bases, offset); !ok {
			strays = append(strays, offset)
		}
	}
	if len(strays) == 0 {
		return nil
	}
	if greatest := slices.Max(strays); len(bases) == 0 || greatest >= bases[len(bases)-1] {
		strays = slices.DeleteFunc(strays, func(offset int64) bool { return offset == greatest })
	}
	return strays
}

// Points are the offsets at which a rebuild takes snapshots: the starts of the last two segments, and the end.
func Points(bases []int64, end int64) []int64 {
	points := slices.Clone(bases[max(0, len(bases)-2):])
	return slices.Compact(append(points, end))
}

// Remove removes snapshots and makes it durable. After a crash any of them may be there again; each is whole. One that
// does not exist is no error.
func Remove(fsys vfs.FS, folder string, offsets []int64) error {
	if len(offsets) == 0 {
		return nil
	}
	for _, offset := range offsets {
		if err := fsys.Remove(path.Join(folder, FileName(offset))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := fsys.SyncDir(folder); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
}

// Snapshot is a state ready to be written; it no longer depends on it.
type Snapshot struct {
	Offset  int64 // the state after all offsets below
	content []byte
}

// Write writes the file, whole and durable when it returns. Call State.Taken afterwards.
func (s Snapshot) Write(fsys vfs.FS, folder string) error {
	return checkpoint.WriteFile(fsys, path.Join(folder, FileName(s.Offset)), s.content)
}

// Due says whether the state went on since the last snapshot.
func (s *State) Due() bool { return s.end > s.snapshot }

// Snapshot encodes the state at End. It does no I/O, so it may run under a lock that Write must not be called under.
func (s *State) Snapshot() (Snapshot, error) {
	if len(s.producers) > (maxBytes-headerSize)/entrySize || len(s.producers) > math.MaxInt32 {
		return Snapshot{}, fmt.Errorf("%d producers do not fit into a snapshot", len(s.producers))
	}
	b := appendHeader(make([]byte, 0, headerSize+entrySize*len(s.producers)), len(s.producers))
	for _, id := range s.ids() {
		b = appendEntry(b, s.producers[id].entry())
	}
	seal(b)
	return Snapshot{Offset: s.end, content: b}, nil
}

// Taken says that the snapshot at offset is on the device.
func (s *State) Taken(offset int64) { s.snapshot = max(s.snapshot, offset) }

// Take writes a snapshot at End if one is Due: Snapshot, Write and Taken in one.
func (s *State) Take(fsys vfs.FS, folder string) (written bool, err error) {
	if !s.Due() {
		return false, nil
	}
	snap, err := s.Snapshot()
	if err != nil {
		return false, err
	}
	if err := snap.Write(fsys, folder); err != nil {
		return false, err
	}
	s.Taken(snap.Offset)
	return true, nil
}
