package compaction

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/vfs"
)

// Swap puts the new segments, complete and synced under the suffix .cleaned in dir, in the place of the old ones, and opens
// them: bases ascending, the first equal to that of old[0]. It works for Run's groups and for the parts of segment.Split.
// o are the options of live segments.
//
// It is durable when it returns. The old segments then have a suffix that ends in .deleted and go on for whoever holds
// them; the caller takes them out of its list, deletes them (Segment.Delete) and gives them up, at once or after
// file.delete.delay.ms, and removes producer snapshots at bases that are gone.
//
// It may run beside appends, rolls and readers of the log, not beside truncation, deletion, or another Swap. It syncs the
// directory four times for one new segment, twice more for each other one, and once more for each transaction index.
//
// An error that is ErrUnsettled: see there. After any other everything is as before the call, but for the .cleaned files,
// which are gone.
func Swap(dir string, o segment.Options, old []*segment.Segment, bases []int64) (live []*segment.Segment, err error) {
	if err := syncDir(o.FS, dir); err != nil {
		s := swap{fs: o.FS, dir: dir, bases: bases}
		return nil, s.undo(err)
	}
	return SwapNamed(dir, o, old, bases)
}

// SwapNamed is Swap for who has synced the directory since the new files were made, while nobody had to wait for it.
func SwapNamed(dir string, o segment.Options, old []*segment.Segment, bases []int64) (live []*segment.Segment, err error) {
	if len(old) == 0 || len(bases) == 0 || bases[0] != old[0].Base() || !slices.IsSorted(bases) {
		return nil, fmt.Errorf("%s: segments at %v cannot take the place of %d others", dirName(dir), bases, len(old))
	}
	o.Suffix = ""
	s := swap{fs: o.FS, dir: dir, old: old, bases: bases}
	if s.aside, err = s.unused(); err != nil {
		return nil, errors.Join(err, s.clear())
	}
	for _, step := range []func() error{s.commit, s.retire, s.land} {
		if err := step(); err != nil {
			return nil, s.undo(err)
		}
	}
	for _, base := range bases {
		seg, err := segment.Open(dir, base, o)
		if err != nil {
			for _, seg := range live {
				err = errors.Join(err, seg.Abandon())
			}
			return nil, s.undo(err)
		}
		live = append(live, seg)
	}
	return live, nil
}

// swap is one Swap at work. What it has done is what undo takes back, in the opposite order:
//
//	commit   N.log.cleaned  → N.log.swap         once all are, a crash is settled forwards
//	retire   N.log          → N.log.deleted
//	land     N.log.swap     → N.log
type swap struct {
	fs      vfs.FS
	dir     string
	old     []*segment.Segment
	bases   []int64
	aside   string // suffix of the old ones
	raised  bool   // commit has begun with the last one, that of the lowest base: it may be complete
	retired int    // old segments that have the suffix; the next one may have it in part
	retires bool   // retire has begun
	landed  [][2]string
	aborts  []int64 // bases of new segments with a transaction index
}

func (s *swap) name(base int64, kind, suffix string) string {
	return fileName(s.dir, base, kind, suffix)
}
func (s *swap) sync() error { return syncDir(s.fs, s.dir) }

// unused is a suffix for old files that no file has: one of the same base may still wait for its deletion, and its readers
// find it by name.
func (s *swap) unused() (string, error) {
	suffix := deleted
	for n := 1; ; n++ {
		taken := false
		for _, seg := range s.old {
			for _, kind := range kinds {
				_, err := s.fs.Stat(s.name(seg.Base(), kind, suffix))
				if err != nil && !errors.Is(err, fs.ErrNotExist) {
					return "", err
				}
				taken = taken || err == nil
			}
		}
		if !taken {
			return suffix, nil
		}
		suffix = fmt.Sprintf(".%d%s", n, deleted)
	}
}

// commit renames from the highest base down, each for good before the next: what is .swap while anything is .cleaned is
// thereby known to be incomplete. The .cleaned files need names that last for that.
func (s *swap) commit() error {
	for i := len(s.bases) - 1; i >= 0; i-- {
		s.raised = i == 0
		for _, kind := range kinds {
			err := s.fs.Rename(s.name(s.bases[i], kind, cleaned), s.name(s.bases[i], kind, swapping))
			if kind == txnKind && errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return err
			}
			if kind == txnKind {
				s.aborts = append(s.aborts, s.bases[i])
			}
		}
		if err := s.sync(); err != nil {
			return err
		}
	}
	return nil
}

// retire takes the old files aside. It is for good before the new ones take their names: an old segment that came back
// beside them would be history twice.
func (s *swap) retire() error {
	s.retires = true
	for _, seg := range s.old {
		if err := seg.Rename(s.aside); err != nil {
			return err
		}
		s.retired++
	}
	return s.sync()
}

// land gives the new files their names, from the lowest base up, each segment for good before the next: what is still .swap
// then lies above all that is live. A .log.swap makes Settle remove what has the names beside it: offset and time index
// can be had again from the log, a transaction index cannot, so it waits until the .log has its name for good.
func (s *swap) land() error {
	for _, base := range s.bases {
		for _, kind := range kinds {
			if kind == txnKind {
				if !slices.Contains(s.aborts, base) {
					continue
				}
				if err := s.sync(); err != nil {
					return err
				}
			}
			if err := s.landFile(base, kind); err != nil {
				return err
			}
		}
		if err := s.sync(); err != nil {
			return err
		}
	}
	return nil
}

func (s *swap) landFile(base int64, kind string) error {
	from, to := s.name(base, kind, swapping), s.name(base, kind, "")
	err := s.fs.Rename(from, to)
	if err == nil {
		s.landed = append(s.landed, [2]string{from, to})
	}
	return err
}

// undo takes everything back after cause. A crash meanwhile leaves what a crash in the swap could have left.
func (s *swap) undo(cause error) error {
	for _, step := range []func() error{s.unland, s.unretire, s.uncommit, s.clear} {
		if err := step(); err != nil {
			return fmt.Errorf("%w: %w", ErrUnsettled, errors.Join(cause, err))
		}
	}
	return cause
}

func (s *swap) unland() error {
	for i := len(s.landed) - 1; i >= 0; i-- {
		from, to := s.landed[i][0], s.landed[i][1]
		if err := s.fs.Rename(to, from); err != nil {
			return err
		}
		if strings.HasSuffix(to, txnKind) { // for good before the .log, for the same reason
			if err := s.sync(); err != nil {
				return err
			}
		}
	}
	if len(s.landed) == 0 {
		return nil
	}
	return s.sync()
}

func (s *swap) unretire() error {
	if !s.retires {
		return nil
	}
	if s.retired < len(s.old) {
		base := s.old[s.retired].Base()
		for _, kind := range kinds {
			err := s.fs.Rename(s.name(base, kind, s.aside), s.name(base, kind, ""))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	for i := s.retired - 1; i >= 0; i-- {
		if err := s.old[i].Rename(""); err != nil {
			return err
		}
	}
	return s.sync()
}

// uncommit makes the lowest segment incomplete again, whose files alone could have made the set complete.
func (s *swap) uncommit() error {
	if !s.raised {
		return nil
	}
	err := s.fs.Rename(s.name(s.bases[0], ".log", swapping), s.name(s.bases[0], ".log", cleaned))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return s.sync()
}

// clear removes the new files, those that would prove themselves complete first.
func (s *swap) clear() error {
	for _, suffix := range []string{swapping, cleaned} {
		for _, base := range s.bases {
			for _, kind := range kinds {
				if err := removeIfThere(s.fs, s.name(base, kind, suffix)); err != nil {
					return err
				}
			}
		}
		if err := s.sync(); err != nil {
			return err
		}
	}
	return nil
}
