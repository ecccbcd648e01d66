package compaction

import (
	"github.com/partlog/partlog/segment"
)

// Swap puts the new segments, complete and synced under the suffix .cleaned in dir, in the place of the old ones, and opens
// them: bases ascending, the first equal to that of old[0]. It works for Run's groups and for the parts of segment.Split.
// o are the options of live segments.
//
// It is durable when it returns. The old segments then have the suffix .deleted and go on for whoever holds them; the
// caller takes them out of its list, deletes them (Segment.Delete) and gives them up, at once or after
// file.delete.delay.ms, and removes producer snapshots at bases that are gone.
//
// It may run beside appends, rolls and readers of the log, not beside truncation, deletion, or another Swap.
//
// An error that is ErrUnsettled: see there. After any other everything is as before the call, but for the .cleaned files,
// which are gone.
func Swap(dir string, o segment.Options, old []*segment.Segment, bases []int64) (live []*segment.Segment, err error) {
	return nil, nil
}

// Settled says what Settle found. Names are paths below the file system's root.
type Settled struct {
	RolledBack    []string // .cleaned and .swap files of a swap that was not complete: removed
	RolledForward []string // live files that were still called .swap: what they cover was removed
}

// Settle finishes or undoes a Swap that a crash interrupted, when a log is opened and before its segments are listed.
// Every state it can itself be interrupted in settles to the same result. Files with other suffixes are not looked at.
//
// An error that is not an I/O error is a .log.swap that cannot be read, a *segment.CorruptError; nothing was removed then.
func Settle(dir string, o segment.Options) (Settled, error) {
	return Settled{}, nil
}
