package compaction

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/partlog/partlog/segment"
)

// Settled says what Settle found. Names are paths below the file system's root.
type Settled struct {
	RolledBack    []string // .cleaned and .swap files of a swap that was not complete: removed
	RolledForward []string // live files that were still called .swap: what they cover was removed
}

// Settle finishes or undoes a Swap that a crash interrupted, when a log is opened and before its segments are listed:
//
//	.cleaned   the new files were not complete: they go, and with them every .swap at or above the lowest of them
//	.swap      all new files were complete: what they cover goes, logs, indexes and snapshots alike, and they take its place
//
// Every state it can itself be interrupted in settles to the same result. Files with other suffixes are looked at only
// where something covers them. Of o only FS and what reading needs is used.
//
// An error that is not an I/O error is a .log.swap that cannot be read, a *segment.CorruptError; nothing was changed then.
func Settle(dir string, o segment.Options) (Settled, error) {
	s := settler{dir: dir, o: o}
	entries, err := o.FS.ReadDir(dirName(dir))
	if err != nil {
		return s.out, err
	}
	lowest := int64(math.MaxInt64)
	var swaps, fresh []string
	for _, e := range entries {
		switch name := e.Name(); {
		case e.IsDir():
		case strings.HasSuffix(name, cleaned):
			fresh = append(fresh, name)
			lowest = min(lowest, fileOffset(name))
		case strings.HasSuffix(name, swapping):
			swaps = append(swaps, name)
		}
	}
	if len(swaps) == 0 && len(fresh) == 0 {
		return s.out, nil
	}
	slices.SortStableFunc(swaps, func(a, b string) int { return cmp.Compare(fileOffset(a), fileOffset(b)) })
	n, _ := slices.BinarySearchFunc(swaps, lowest, func(name string, at int64) int { return cmp.Compare(fileOffset(name), at) })
	lo, hi, err := s.covered(swaps[:n])
	if err != nil {
		return s.out, err
	}
	if err := s.back(swaps[n:], fresh); err != nil {
		return s.out, err
	}
	return s.out, s.forward(swaps[:n], lo, hi)
}

type settler struct {
	dir string
	o   segment.Options
	out Settled
}

func (s *settler) path(name string) string {
	if s.dir == "" || s.dir == "." {
		return name
	}
	return s.dir + "/" + name
}

func (s *settler) sync() error { return syncDir(s.o.FS, s.dir) }

// back undoes an incomplete set: the .swap files go for good before the .cleaned ones that prove them incomplete.
func (s *settler) back(swaps, fresh []string) error {
	for _, names := range [][]string{swaps, fresh} {
		for _, name := range names {
			if err := removeIfThere(s.o.FS, s.path(name)); err != nil {
				return err
			}
			s.out.RolledBack = append(s.out.RolledBack, s.path(name))
		}
		if len(names) == 0 {
			continue
		}
		if err := s.sync(); err != nil {
			return err
		}
	}
	return nil
}

// covered is the range of offsets [lo, hi) that complete .log.swap files hold.
func (s *settler) covered(swaps []string) (lo, hi int64, err error) {
	lo = math.MaxInt64
	for _, name := range swaps {
		if isLog(name) {
			lo = min(lo, fileOffset(name))
		}
	}
	for _, name := range swaps {
		if !isLog(name) {
			continue
		}
		end, err := s.endOf(name, lo)
		if err != nil {
			return 0, 0, fmt.Errorf("complete the swap of %s: %w", s.path(name), err)
		}
		hi = max(hi, end)
	}
	return lo, hi, nil
}

// endOf is the offset behind the last batch of a .log.swap. Live segments that it takes out of the log must be what it was
// made of: then one of the old files has that batch, too. One of which none has heard has a damaged base offset, which no
// checksum covers, and all that lies below it would go.
func (s *settler) endOf(name string, lo int64) (end int64, err error) {
	seg, err := s.look(name)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, seg.Abandon()) }()
	if end, err = seg.NextOffset(); err != nil || seg.Size() == 0 {
		return end, err
	}
	last, err := seg.Last()
	if err != nil {
		return 0, err
	}
	entries, err := s.o.FS.ReadDir(dirName(s.dir))
	if err != nil {
		return 0, err
	}
	takes, known := false, false
	for _, e := range entries {
		old := e.Name()
		base := fileOffset(old)
		if e.IsDir() || !isLog(old) || strings.HasSuffix(old, swapping) || strings.HasSuffix(old, cleaned) || base < lo || base >= end {
			continue
		}
		takes = takes || base > lo && strings.HasSuffix(old, kinds[0])
		known = known || s.has(old, last)
	}
	if takes && !known {
		return 0, &segment.CorruptError{File: seg.File(), Position: last.Pos, Offset: -1, Reason: fmt.Sprintf(
			"a batch of offsets %d to %d, which none of the segments that it comes from has: its base offset is damaged", last.Base, last.LastOffset)}
	}
	return end, nil
}

// look opens a .log under any suffix and changes nothing.
func (s *settler) look(name string) (*segment.Segment, error) {
	o := s.o
	_, o.Suffix, _ = strings.Cut(name, kinds[0])
	o.ReadOnly, o.Whole = true, true // looking must not make index files
	return segment.Open(s.dir, fileOffset(name), o)
}

// has says whether an old .log holds a batch of a new one. Of a set of legacy entries each can have become a batch.
func (s *settler) has(old string, b segment.Position) bool {
	seg, err := s.look(old)
	if err != nil {
		return false
	}
	defer seg.Abandon()
	was, err := seg.Find(b.LastOffset)
	return err == nil && was.Magic == b.Magic && (was.Base == b.Base && was.LastOffset == b.LastOffset || b.Magic < 2)
}

// forward finishes complete sets, from the lowest offset up, each segment for good before the next: what is still .swap
// then lies above all that is live, and finishing once more takes nothing away that was finished before.
func (s *settler) forward(swaps []string, lo, hi int64) error {
	if len(swaps) == 0 {
		return nil
	}
	if err := s.removeCovered(swaps, lo, hi); err != nil {
		return err
	}
	if err := s.sync(); err != nil {
		return err
	}
	for len(swaps) > 0 {
		base, n := fileOffset(swaps[0]), 1
		for n < len(swaps) && fileOffset(swaps[n]) == base {
			n++
		}
		if err := s.land(swaps[:n]); err != nil {
			return err
		}
		swaps = swaps[n:]
	}
	return nil
}

// land drops the suffix of one segment's files, the transaction index's last: see swap.land.
func (s *settler) land(names []string) error {
	slices.Sort(names) // .index, .log, .timeindex, .txnindex
	for _, name := range names {
		live := strings.TrimSuffix(name, swapping)
		if strings.HasSuffix(live, txnKind) {
			if err := s.sync(); err != nil {
				return err
			}
		}
		if err := s.o.FS.Rename(s.path(name), s.path(live)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		s.out.RolledForward = append(s.out.RolledForward, s.path(live))
	}
	return s.sync()
}

// removeCovered removes every file without .swap whose offset lies in [lo, hi), or whose name is about to be taken: a new
// segment without a batch covers nothing else.
func (s *settler) removeCovered(swaps []string, lo, hi int64) error {
	entries, err := s.o.FS.ReadDir(dirName(s.dir))
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := e.Name()
		if e.IsDir() || strings.HasSuffix(name, swapping) || !strings.Contains(name, ".") {
			continue
		}
		offset := fileOffset(name)
		taken := slices.ContainsFunc(swaps, func(swap string) bool { return isLog(swap) && fileOffset(swap) == offset })
		if taken || offset >= lo && offset < hi {
			if err := removeIfThere(s.o.FS, s.path(name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// isLog says whether a name under any suffix is that of a .log.
func isLog(name string) bool {
	_, after, _ := strings.Cut(name[strings.LastIndexByte(name, '/')+1:], ".")
	return strings.HasPrefix(after, "log.") || after == "log"
}

// fileOffset is the number before the first dot of a file name; files without one sort behind all offsets.
func fileOffset(name string) int64 {
	digits, _, _ := strings.Cut(name, ".")
	offset, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || offset < 0 {
		return math.MaxInt64
	}
	return offset
}
