package log

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/partlog/partlog/segment"
)

// settle finishes or undoes what an interrupted deletion, compaction or split left in the folder, by Kafka's rules:
//
//	.deleted   was on its way out: removed
//	.cleaned   the new files were not complete: they go, and with them every .swap at or above the lowest of them
//	.swap      all new files were complete: they replace what they cover
//	.tmp       a small file's replacement that was never renamed: removed
//
// Every step leaves a state that settles to the same result.
func (l *Log) settle() error {
	names, err := l.leftovers()
	if err != nil || len(names) == 0 {
		return err
	}
	l.unlist()
	lowest := int64(math.MaxInt64)
	for _, name := range names {
		if strings.HasSuffix(name, ".cleaned") {
			lowest = min(lowest, fileOffset(name))
		}
	}
	// The .swap files of an incomplete set go before the .cleaned ones that prove it incomplete.
	for _, name := range names {
		if strings.HasSuffix(name, ".swap") && fileOffset(name) >= lowest {
			if err := l.removeFile(name); err != nil {
				return err
			}
		}
	}
	if err := l.syncDir(); err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasSuffix(name, ".swap") {
			continue
		}
		if err := l.removeFile(name); err != nil && !l.putOff(name, err) {
			return err
		}
	}
	if err := l.swapIn(names, lowest); err != nil {
		return err
	}
	return l.syncDir()
}

// leftovers lists the files with one of the four suffixes.
func (l *Log) leftovers() ([]string, error) {
	entries, err := l.listing()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if isLeftover(e.Name()) && !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

func isLeftover(name string) bool {
	return strings.HasSuffix(name, ".deleted") || strings.HasSuffix(name, ".cleaned") || strings.HasSuffix(name, ".swap") || strings.HasSuffix(name, ".tmp")
}

// putOff leaves a file that nobody needs and that cannot be removed now for later: it must not keep the log from opening.
func (l *Log) putOff(name string, why error) bool {
	if !strings.HasSuffix(name, ".deleted") && !strings.HasSuffix(name, ".tmp") {
		return false
	}
	l.discards.add(discarded{file: name, promptly: true})
	l.find(Finding{File: l.path(name), Position: -1, Offset: -1, Kind: FindingLeftover, Detail: why.Error() + "; its removal is tried again"})
	return true
}

// fileOffset is the number before the first dot of a file name; files without one sort behind all offsets.
func fileOffset(name string) int64 {
	digits, _, _ := strings.Cut(name, ".")
	offset, err := parseOffset(digits)
	if err != nil {
		return math.MaxInt64
	}
	return offset
}

func parseOffset(digits string) (int64, error) {
	offset, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || offset < 0 {
		return 0, fmt.Errorf("%q is no offset", digits)
	}
	return offset, nil
}

// swapIn completes the swaps below lowest: what they cover is removed, then the suffix is dropped.
func (l *Log) swapIn(names []string, lowest int64) error {
	swaps := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return !strings.HasSuffix(name, ".swap") || fileOffset(name) >= lowest
	})
	lo, hi, err := l.swapRange(swaps)
	if err != nil {
		return err
	}
	if err := l.removeCovered(lo, hi); err != nil {
		return err
	}
	if err := l.syncDir(); err != nil {
		return err
	}
	// From the lowest offset up, each gone for good before the next: what is still .swap then lies above all that is live,
	// and completing it once more takes nothing away that was completed before.
	slices.SortStableFunc(swaps, func(a, b string) int { return cmp.Compare(fileOffset(a), fileOffset(b)) })
	for i, name := range swaps {
		if i > 0 && fileOffset(name) != fileOffset(swaps[i-1]) {
			if err := l.syncDir(); err != nil {
				return err
			}
		}
		live := strings.TrimSuffix(name, ".swap")
		if err := l.fs.Rename(l.path(name), l.path(live)); err != nil {
			return err
		}
		l.recovery.Rebuilt = append(l.recovery.Rebuilt, l.path(live))
	}
	return nil
}

// swapRange is the range of offsets [lo, hi) that complete .log.swap files hold.
func (l *Log) swapRange(swaps []string) (lo, hi int64, err error) {
	lo = math.MaxInt64
	opts := l.segOpts
	opts.Suffix = ".swap"
	opts.ReadOnly, opts.Whole = true, true // looking must not make index files for it
	for _, name := range swaps {
		if !strings.HasSuffix(name, ".log.swap") {
			continue
		}
		seg, err := segment.Open(l.name, fileOffset(name), opts)
		if err != nil {
			return 0, 0, err
		}
		end, err := seg.NextOffset()
		if err == nil {
			lo, hi = min(lo, seg.Base()), max(hi, end)
		}
		if abandoned := seg.Abandon(); err == nil {
			err = abandoned
		}
		if err != nil {
			return 0, 0, fmt.Errorf("complete the swap of %s: %w", l.path(name), err)
		}
	}
	return lo, hi, nil
}

// removeCovered removes every plain file whose offset lies in [lo, hi): logs, indexes and snapshots alike.
func (l *Log) removeCovered(lo, hi int64) error {
	entries, err := l.fs.ReadDir(l.name)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() || strings.HasSuffix(e.Name(), ".swap") || !strings.Contains(e.Name(), ".") {
			continue
		}
		if offset := fileOffset(e.Name()); offset >= lo && offset < hi {
			if err := l.removeFile(e.Name()); err != nil {
				return err
			}
		}
	}
	return nil
}
