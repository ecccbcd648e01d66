package log

import (
	"context"
	"fmt"

	"github.com/partlog/partlog/internal/epoch"
	"github.com/partlog/partlog/record"
)

// EpochEntry says where a leader epoch begins.
type EpochEntry struct {
	Epoch int32
	Start int64 // offset of the epoch's first record
}

// EpochEnd says where an epoch ends: the offset behind its last record. -1, -1 if unknown.
type EpochEnd struct {
	Epoch int32 // the one asked for, or the largest below it that there is
	End   int64 // exclusive
}

// AssignEpoch makes epoch the log's leader epoch from the log end on, as a new leader does before its first append.
// The entry is on the device when it returns. A repeated call changes nothing; an epoch below the current one is
// ErrFenced.
func (l *Log) AssignEpoch(epoch int32) error {
	if err := l.ended(); err != nil {
		return err
	}
	if err := l.write.lock(context.Background()); err != nil {
		return err
	}
	defer l.write.unlock()
	if err := l.ended(); err != nil {
		return err
	}
	if latest, ok := l.epochs.Latest(); epoch < 0 || ok && epoch < latest.Epoch {
		return fmt.Errorf("%w: epoch %d, the log is at %d", ErrFenced, epoch, latest.Epoch)
	}
	return l.assign(epoch, l.load().LogEnd)
}

// Epochs lists the leader epochs the log has records of, ascending, and the one it was last told of.
func (l *Log) Epochs() []EpochEntry {
	if l.epochs == nil {
		return nil
	}
	entries := l.epochs.Entries()
	out := make([]EpochEntry, len(entries))
	for i, e := range entries {
		out[i] = EpochEntry{Epoch: e.Epoch, Start: e.StartOffset}
	}
	return out
}

// EndOfEpoch answers a follower's question (KIP-101): the largest epoch at or below the given one and the offset behind
// its last record. The latest epoch ends at the log end; an epoch newer than all known ones, or -1, is unknown; for one
// older than all the answer is that epoch and the first known start.
func (l *Log) EndOfEpoch(epoch int32) EpochEnd {
	if l.epochs == nil {
		return EpochEnd{Epoch: -1, End: -1}
	}
	e, end := l.epochs.EndOffset(epoch, l.load().LogEnd)
	return EpochEnd{Epoch: e, End: end}
}

// leaderEpoch is the epoch to stamp on a leader's batch, after fencing. The caller holds write.
func (l *Log) leaderEpoch(role Role, given *int32) (int32, error) {
	latest, ok := l.epochs.Latest()
	current := max(0, l.newest) // with an empty cache: batches below the log start may still carry it
	if ok {
		current = latest.Epoch
	}
	switch {
	case given == nil:
	case role == Leader && *given != current, role == Follower && ok && *given < current:
		return 0, fmt.Errorf("%w: leader epoch %d, the log is at %d", ErrFenced, *given, current)
	}
	return current, nil
}

// knownEpochs is what the cache held before batches were about to be written; nil if they bring nothing new.
type knownEpochs struct {
	entries []epoch.Entry
	newest  int32
}

// assignEpochs tells the cache of the epochs in the batches about to be written. What it held before comes back, in case
// they cannot be written; after an error it is as before. The caller holds write.
func (l *Log) assignEpochs(p *prepared, epoch int32) (before *knownEpochs, err error) {
	if latest, ok := l.epochs.Latest(); ok && p.role == Leader && latest.Epoch == epoch {
		return nil, nil
	}
	if p.role == Follower && !l.bringsEpochs(p.raw) {
		return nil, nil
	}
	before = &knownEpochs{l.epochs.Entries(), l.newest}
	if p.role == Leader {
		err = l.assign(epoch, p.first)
	} else {
		err = l.learnEpochs(p)
	}
	if err != nil {
		l.restoreEpochs(before)
		return nil, err
	}
	return before, nil
}

// restoreEpochs undoes assignEpochs. The file may keep entries behind the log end, which loading cuts off.
func (l *Log) restoreEpochs(before *knownEpochs) {
	if before == nil {
		return
	}
	l.epochs.Restore(before.entries)
	l.newest = before.newest
	l.publishEpoch()
}

// bringsEpochs says whether a follower's batches change the cache.
func (l *Log) bringsEpochs(raw []byte) bool {
	latest, ok := l.epochs.Latest()
	for rest := raw; len(rest) > 0; {
		b, next, err := record.Next(rest)
		if err != nil {
			return true
		}
		rest = next
		if b.Magic() < 2 && ok || b.LeaderEpoch() >= 0 && (!ok || b.LeaderEpoch() != latest.Epoch) {
			return true
		}
	}
	return false
}

// learnEpochs is Kafka's rule for a follower: each batch's epoch is assigned, a batch of an old format forgets them all.
func (l *Log) learnEpochs(p *prepared) error {
	for rest := p.raw; len(rest) > 0; {
		b, next, err := record.Next(rest)
		if err != nil {
			return refusedRecord(err)
		}
		rest = next
		switch {
		case b.Magic() < 2 && l.epochs.Len() > 0:
			if err := l.epochs.Clear(); err != nil {
				return l.epochRefused(err)
			}
			l.update(func(o *Offsets) { o.LeaderEpoch = record.NoEpoch })
		case b.LeaderEpoch() >= 0:
			if latest, ok := l.epochs.Latest(); ok && latest.Epoch == b.LeaderEpoch() {
				continue
			}
			if err := l.assign(b.LeaderEpoch(), b.BaseOffset()); err != nil {
				return err
			}
		}
	}
	return nil
}

// assign adds an entry, on disk first, and publishes the latest epoch.
func (l *Log) assign(epoch int32, start int64) error {
	if _, err := l.epochs.Assign(epoch, start); err != nil {
		return l.epochRefused(err)
	}
	l.publishEpoch()
	return nil
}

func (l *Log) publishEpoch() {
	latest := int32(record.NoEpoch)
	if e, ok := l.epochs.Latest(); ok {
		latest = e.Epoch
		l.newest = max(l.newest, latest)
	}
	l.update(func(o *Offsets) { o.LeaderEpoch = latest })
}

func (l *Log) epochRefused(err error) error {
	if isNoSpace(err) {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return fmt.Errorf("leader epochs of %s: %w", l.name, err)
}
