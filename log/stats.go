package log

import "time"

// Stats are a log's figures since it was opened; cheap to take.
type Stats struct {
	Offsets   Offsets
	Bytes     int64 // of all .log files
	Segments  int
	Leaked    int64 // Fetched that were dropped without Close; only builds with the tag logpoison notice
	Pinned    int   // Fetched that were not closed and running iterators; each holds a segment, dropped ones too
	Followers int   // iterators of Follow and Fetches that wait
	Unsynced  int64 // offsets between Durable and LogEnd
	Appends   int64 // append calls that wrote
	Appended  int64 // bytes they wrote
	Syncs     int64 // group commit rounds
	Freed     int64 // bytes of .log files that retention or DropOldest dropped
	Deleting  int   // segments that left the log and whose files are still there (file.delete.delay.ms)
	Cleaner   CleanerStats
	LastError error // the sticky one, or nil
	// Failing is work in the background that failed when it was last tried, by task. A log on its own has none.
	Failing []Failure
}

// Stats takes the log's figures.
func (l *Log) Stats() Stats {
	o := l.load()
	s := Stats{
		Offsets: o, Unsynced: o.LogEnd - o.Durable, Followers: int(l.followers.Load()),
		Cleaner: l.cleaner.snapshot(), Pinned: int(l.pinned.Load()), Leaked: l.leaked.Load(), Failing: l.failures.list(),
		Appends: l.stats.appends.Load(), Appended: l.stats.bytes.Load(), Freed: l.stats.freed.Load(), Deleting: l.discards.count(), Syncs: l.stats.syncs.Load(), LastError: l.ended(),
	}
	for _, seg := range l.segments() {
		s.Segments++
		s.Bytes += seg.Size()
	}
	return s
}

// DirStats are the figures of a log root.
type DirStats struct {
	Logs     int   // open partitions
	Stopped  int   // of these, the ones that take no appends any more (ErrFailed)
	Bytes    int64 // of all .log files of open partitions
	Segments int
	Unsynced int64 // offsets between Durable and LogEnd, over all logs
	Mappings int   // mapped index files
	Files    int   // open files of logs, see DirConfig.MaxOpenFiles
	Free     int64 // bytes that may still be written on the root's device; -1 unknown
	// CheckpointAge is how long ago the checkpoints were last written, or found to say what is so already; by DirConfig.Now.
	CheckpointAge time.Duration
	Deleting      int // folders of deleted partitions whose files are still there
	Stray, Future int // folders set aside, and copies of moves that are under way or were not finished
	Failing       []Failure
	EventPanics   int64 // event functions that panicked
}

// Stats takes the figures of the root and of all open partitions.
func (d *Dir) Stats() DirStats {
	if d.fs == nil {
		return DirStats{Free: -1}
	}
	s := DirStats{Mappings: d.budget.Mappings(), Files: d.budget.Files(), Free: -1, EventPanics: d.eventPanics.Load(), Failing: d.allFailures()}
	for l := range d.open() {
		s.Logs++
		if l.ended() != nil {
			s.Stopped++
		}
		o := l.load()
		s.Unsynced += o.LogEnd - o.Durable
		for _, seg := range l.segments() {
			s.Segments++
			s.Bytes += seg.Size()
		}
	}
	if free, err := d.fs.Free("."); err == nil {
		s.Free = free
	}
	s.CheckpointAge = max(0, d.cfg.Now().Sub(time.UnixMilli(d.points.written.Load())))
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range d.marked {
		switch f.State {
		case FolderDeleting:
			s.Deleting++
		case FolderStray:
			s.Stray++
		case FolderFuture:
			s.Future++
		}
	}
	return s
}
