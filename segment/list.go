package segment

import (
	"cmp"
	"errors"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/partlog/partlog/vfs"
)

// nameDigits is how many digits a file's name has; int64 never needs more.
const nameDigits = 20

// FileName is Kafka's name for the file of the kind (".log", ".index", ".timeindex", ".txnindex", ".snapshot") that
// belongs to an offset: twenty digits and the kind.
func FileName(offset int64, kind string) string { return fileName("", offset, kind, "") }

// fileName is folder, offset, kind and suffix in one string.
func fileName(folder string, offset int64, kind, suffix string) string {
	var room [128]byte
	b := room[:0]
	if folder != "" && folder != "." {
		b = append(append(b, folder...), '/')
	}
	var number [nameDigits]byte
	d := strconv.AppendInt(number[:0], offset, 10)
	b = append(b, "00000000000000000000"[:nameDigits-len(d)]...)
	b = append(append(append(b, d...), kind...), suffix...)
	return string(b)
}

// List names the segments of a directory in ascending order: one base per "N.log". Files with a suffix are not listed.
func List(fsys vfs.FS, dir string) (bases []int64, err error) {
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	return Bases(entries), nil
}

// Bases is List for a directory that was read already.
func Bases(entries []fs.DirEntry) (bases []int64) {
	for _, e := range entries {
		if base, ok := parseName(e.Name()); ok && !e.IsDir() {
			bases = append(bases, base)
		}
	}
	slices.Sort(bases)
	return bases
}

// Named says whether a file has the name of a segment's .log: an offset of twenty digits.
func Named(name string) bool {
	_, ok := parseName(name)
	return ok
}

// parseName takes Kafka's names alone: a file of another one would be looked for under its right name.
func parseName(name string) (int64, bool) {
	digits, ok := strings.CutSuffix(name, logSuffix)
	if !ok || len(digits) != nameDigits || digits[0] < '0' || digits[0] > '9' { // a sign
		return 0, false
	}
	base, err := strconv.ParseInt(digits, 10, 64)
	return base, err == nil
}

// Files are those of one segment as a listing of its folder has them: opening it asks the disk for nothing that the listing
// told.
type Files struct {
	Base    int64
	log     fs.DirEntry // nil: it is no regular file
	aborted bool        // it has a transaction index
}

// FilesOf is Bases with what else a listing tells; entries are in order of names, as vfs.FS.ReadDir gives them.
func FilesOf(entries []fs.DirEntry) []Files {
	logs := 0
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), logSuffix) {
			logs++
		}
	}
	all := make([]Files, 0, logs)
	last := "" // name of the newest .log
	for _, e := range entries {
		name := e.Name()
		if digits, ok := strings.CutSuffix(name, txnSuffix); ok && len(last) > len(digits) && last[:len(digits)] == digits && last[len(digits):] == logSuffix {
			all[len(all)-1].aborted = true
			continue
		}
		base, ok := parseName(name)
		if !ok || e.IsDir() {
			continue
		}
		f := Files{Base: base}
		if last = name; e.Type().IsRegular() {
			f.log = e
		}
		all = append(all, f)
	}
	slices.SortStableFunc(all, func(a, b Files) int { return cmp.Compare(a.Base, b.Base) })
	return all
}

// Open is the package's Open for files that were just listed.
func (f Files) Open(dir string, o Options) (*Segment, error) {
	if f.log == nil {
		return Open(dir, f.Base, o)
	}
	s := newSegment(dir, f.Base, o)
	info, err := f.log.Info()
	if err == nil {
		err = s.found(info)
	}
	if err != nil {
		return nil, err
	}
	s.txn.none = !f.aborted && !o.ReadOnly // beside a live writer one may come
	return s, nil
}

// found takes over what is known of the .log from outside.
func (s *Segment) found(info fs.FileInfo) error {
	if info.IsDir() {
		return &fs.PathError{Op: "open", Path: s.name(logSuffix), Err: errors.New("is a directory")}
	}
	s.pub.m = marks{size: info.Size(), next: unknown, maxTs: unknown, maxTsOffset: s.base, firstTs: unknown}
	if info.Size() == 0 {
		s.pub.m.next = s.base
	}
	s.modTime.Store(info.ModTime().UnixMilli())
	if info.Size() > maxBytes {
		return &OverflowError{File: s.name(logSuffix), Base: s.base, Offset: s.base, Bytes: info.Size()}
	}
	return nil
}
