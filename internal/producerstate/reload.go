package producerstate

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"

	"github.com/partlog/partlog/vfs"
)

// Reload says where a State is to be taken from.
type Reload struct {
	FS            vfs.FS
	Folder        string // of the partition, below FS
	LogStart, End int64  // what the log holds; End may be below the State's own: the log was truncated
	Now           int64  // Unix ms: producers that expired are not loaded
	ReadOnly      bool   // remove no file
	Listed        bool   // Snapshots is what List gives, and may be changed; else Reload lists them
	Snapshots     []int64
}

// Reloaded says what Reload found. The state is that of a snapshot: it is whole once the batches in [From, End) are
// given to Replay, and SetEnd(End) is called.
type Reloaded struct {
	From     int64   // End: nothing is left to be replayed
	Snapshot int64   // the one that was loaded; -1 none
	Kept     bool    // the state in memory was right already
	Damaged  []error // snapshots that could not be used, newest first; *CorruptError or what reading met
	Removed  []int64 // snapshots that are gone (would be, if ReadOnly): outside of [LogStart, End], or damaged
	// Missing says that there was no snapshot to start from, and the log holds something: all of it must be replayed.
	// Kafka takes a log without any snapshot that was stopped cleanly for one without producers; nothing here is guessed.
	Missing bool
}

// Reload makes the state that of the log's offsets below End, or of an earlier offset to go on from. Snapshots that
// speak of what the log does not hold are removed, durably. A damaged one is removed, and the next older one taken.
//
// The snapshot at LogStart is used, unlike by Kafka: it is all that is left of producers whose records are deleted, which may
// still repeat them, or write with an epoch that was fenced.
//
// Until SetEnd(End) is called everything that was not replayed yet counts as unstable, so that a high watermark that moves
// meanwhile shows no open transaction.
//
// Only the last batch of each producer is in a snapshot: repeats of older ones are not recognised from now on. After an
// error the state is empty or as it was, and must be reloaded before it is used.
func (s *State) Reload(r Reload) (Reloaded, error) {
	res := Reloaded{From: max(r.LogStart, r.End), Snapshot: -1}
	s.clock = r.Now
	snapshots := r.Snapshots
	if !r.Listed {
		var err error
		if snapshots, err = List(r.FS, r.Folder); err != nil {
			return res, err
		}
	}
	outside := func(offset int64) bool { return offset > r.End || offset < max(1, r.LogStart) }
	for _, offset := range snapshots {
		if outside(offset) {
			res.Removed = append(res.Removed, offset)
		}
	}
	if err := r.remove(res.Removed); err != nil {
		return res, err
	}
	snapshots = slices.DeleteFunc(snapshots, outside)
	if s.holds(r.End) {
		s.end = r.End
		s.lowerSnapshot(snapshots, r.LogStart)
		s.OnLogStart(r.LogStart)
		res.Kept = true
		return res, nil
	}
	s.reloading, s.until = true, r.End
	s.unstable.hold(r.LogStart)
	for _, offset := range slices.Backward(snapshots) {
		err := s.load(r, offset)
		if err == nil {
			res.From, res.Snapshot = offset, offset
			s.unstable.hold(offset)
			s.SetEnd(offset)
			return res, nil
		}
		res.Damaged = append(res.Damaged, err)
		if !errors.Is(err, ErrCorrupt) {
			continue // it cannot be read now; that says nothing about what is in it
		}
		if err := r.remove([]int64{offset}); err != nil {
			return res, err
		}
		res.Removed = append(res.Removed, offset)
	}
	s.clear(r.LogStart)
	s.SetEnd(r.LogStart)
	res.From = r.LogStart
	res.Missing = r.End > r.LogStart
	return res, nil
}

func (r Reload) remove(offsets []int64) error {
	if r.ReadOnly {
		return nil
	}
	return Remove(r.FS, r.Folder, offsets)
}

// holds says whether the state is that of the log's offsets below end: it is at end, or it is behind it without a
// producer, and no batch between the two had one. (That producers are gone says nothing: they may have expired after
// they ended a transaction which the truncation opens again.)
func (s *State) holds(end int64) bool {
	if s.reloading {
		return false
	}
	return s.end == end || s.end > end && len(s.producers) == 0 && s.unstable.Pending() == 0 && s.last < end
}

func (s *State) lowerSnapshot(snapshots []int64, logStart int64) {
	newest := logStart
	if n := len(snapshots); n > 0 {
		newest = snapshots[n-1]
	}
	s.snapshot = min(s.snapshot, newest)
}

// load takes the state of one snapshot.
func (s *State) load(r Reload, offset int64) error {
	name := path.Join(r.Folder, FileName(offset))
	entries, err := ReadSnapshot(r.FS, name)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%s vanished: %w", name, err)
		}
		return err
	}
	s.clear(offset)
	if reason := s.fill(entries, offset, r.Now); reason != "" {
		s.clear(r.LogStart)
		return &CorruptError{File: name, Position: headerSize, Reason: reason}
	}
	return nil
}

// fill makes entries the producers of an empty state at end. What no log can have led to is named, and not believed.
func (s *State) fill(entries []Entry, end, now int64) (reason string) {
	s.producers, s.peak = make(map[int64]*producer, len(entries)), len(entries)
	var block []producer
	for i, e := range entries {
		if reason := e.impossible(end); reason != "" {
			return fmt.Sprintf("producer %d %s", e.ProducerID, reason)
		}
		if s.producers[e.ProducerID] != nil {
			return fmt.Sprintf("producer %d is there twice", e.ProducerID)
		}
		if e.Timestamp >= 0 && s.expired(e.TxnFirstOffset, e.Timestamp, now) {
			continue
		}
		if len(block) == cap(block) {
			block = make([]producer, 0, min(blockSize, len(entries)-i))
		}
		block = append(block, e.producer())
		p := &block[len(block)-1]
		s.see(p)
		s.producers[p.id] = p
		if p.txnFirst >= 0 {
			s.open.items = append(s.open.items, txn{first: p.txnFirst, id: p.id})
		}
	}
	slices.SortFunc(s.open.items, txn.compare)
	if s.open.len() > 0 {
		s.unstable.commit(nil, s.open.oldest())
	}
	return ""
}

// blockSize is how many producers are allocated together when a snapshot is loaded: a few, because a block is kept
// while one of them is.
const blockSize = 8

func (e Entry) impossible(end int64) string {
	switch {
	case e.ProducerID < 0:
		return "has no id"
	case e.Epoch < -1 || e.LastSequence < -1 || e.LastOffset < -1 || e.OffsetDelta < 0 || e.TxnFirstOffset < -1 || e.CoordinatorEpoch < -1:
		return "has a negative field"
	case e.LastOffset >= end || e.TxnFirstOffset >= end:
		return fmt.Sprintf("speaks of offset %d, but the snapshot covers those below %d", max(e.LastOffset, e.TxnFirstOffset), end)
	case e.LastOffset >= 0 && int64(e.OffsetDelta) > e.LastOffset:
		return "has a last batch that begins below offset 0"
	}
	return ""
}

func (e Entry) producer() producer {
	p := producer{id: e.ProducerID, timestamp: e.Timestamp, txnFirst: e.TxnFirstOffset, coordinator: e.CoordinatorEpoch, epoch: e.Epoch}
	if e.LastOffset >= 0 {
		p.push(batch{last: e.LastOffset, timestamp: e.Timestamp, sequence: e.LastSequence, delta: e.OffsetDelta})
	}
	return p
}
