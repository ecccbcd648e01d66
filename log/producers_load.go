package log

import (
	"context"
	"errors"
	"io/fs"
	"slices"

	"github.com/partlog/partlog/internal/producerstate"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/segment"
)

// reload is where a producer state of this log comes from.
func (l *Log) reload(start, end int64) producerstate.Reload {
	return producerstate.Reload{FS: l.fs, Folder: l.name, LogStart: start, End: end, Now: l.now().UnixMilli()}
}

// reloadBelow makes the producer state that of the offsets below end, from the newest snapshot and the batches behind it,
// and leaves snapshots as Kafka does: at the start of the last segments, and at the end if batches had to be read.
func (l *Log) reloadBelow(ctx context.Context, segs segments, r producerstate.Reload, report *RecoveryReport) (producerstate.Reloaded, error) {
	s := l.producers.state
	end := r.End
	res, err := s.Reload(r)
	if err != nil {
		return res, err
	}
	for _, err := range res.Damaged {
		report.find(Finding{File: l.name, Position: -1, Offset: -1, Kind: FindingSnapshot, Detail: err.Error() + "; an older one is used and the log read from there"})
	}
	for _, offset := range res.Removed {
		if r.ReadOnly {
			break
		}
		report.Removed = append(report.Removed, l.path(producerstate.FileName(offset)))
	}
	if res.From < end {
		points := producerstate.Points(segs.bases(), end)
		err = l.replay(ctx, segs, res.From, end, report, func(b record.Batch) { s.Replay(b) }, func(base int64) error {
			if base <= res.From || !slices.Contains(points, base) {
				return nil
			}
			s.SetEnd(base)
			return l.producers.remember(base, base)
		})
		if err != nil {
			return res, err
		}
		s.Expire(l.now().UnixMilli())
	}
	s.SetEnd(end)
	if res.From < end {
		err = l.producers.remember(end, end)
	}
	return res, err
}

// replay gives the batches of [from, end) to each; at, if not nil, is called before each segment with its base. Batches
// that cannot be read say nothing here: reading them will.
func (l *Log) replay(ctx context.Context, segs segments, from, end int64, report *RecoveryReport, each func(record.Batch), at func(base int64) error) error {
	for i := max(0, segs.floor(from)); i < len(segs) && segs[i].Base() < end; i++ {
		if at != nil {
			if err := at(segs[i].Base()); err != nil {
				return err
			}
		}
		batches := segs[i].Batches(0)
		if from > segs[i].Base() {
			batches = segs[i].BatchesFrom(from)
		}
		for b, err := range batches {
			if errors.Is(err, segment.ErrNotFound) {
				break
			}
			if errors.Is(err, segment.ErrCorrupt) {
				report.find(Finding{File: segs[i].File(), Position: -1, Offset: -1, Kind: FindingProducers,
					Detail: err.Error() + "; what it says of producers is not known"})
				break
			}
			if err != nil {
				return err
			}
			if b.BaseOffset() >= end {
				return nil
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			report.Scanned += int64(b.Size())
			each(b)
		}
		if i+1 < len(segs) {
			if err := segs[i].Park(); err != nil {
				return err
			}
		}
	}
	return nil
}

// loadProducers makes the producer state whole at the end of a log that is being opened: a recovery has done most of it.
func (l *Log) loadProducers(ctx context.Context, segs segments, start, end int64) error {
	entries, err := l.listing()
	if err != nil {
		return err
	}
	snapshots := producerstate.Snapshots(entries)
	strays := producerstate.Strays(snapshots, segs.bases())
	if err := producerstate.Remove(l.fs, l.name, strays); err != nil {
		return err
	}
	for _, offset := range strays {
		l.recovery.Removed = append(l.recovery.Removed, l.path(producerstate.FileName(offset)))
	}
	r := l.reload(segs.startOf(start), end)
	r.Listed = true
	r.Snapshots = slices.DeleteFunc(snapshots, func(offset int64) bool { return slices.Contains(strays, offset) })
	l.producers.mu.Lock()
	l.producers.storedLocked(r.Snapshots...)
	l.producers.mu.Unlock()
	res, err := l.reloadBelow(ctx, segs, r, &l.recovery)
	if err != nil {
		return err
	}
	if err := l.storeSnapshots(); err != nil {
		return err
	}
	if res.Missing {
		l.recovery.Rebuilt = append(l.recovery.Rebuilt, l.path(producerstate.FileName(end)))
	}
	return l.checkAborted(ctx, segs, start)
}

// checkAborted makes damaged indexes of aborted transactions anew.
func (l *Log) checkAborted(ctx context.Context, segs segments, start int64) error {
	for i, seg := range segs {
		err := seg.CheckAborted()
		if errors.Is(err, segment.ErrCorrupt) {
			err = l.rebuildAborted(ctx, segs[:i+1], start, err)
		}
		if err == nil && i+1 < len(segs) {
			err = seg.Park()
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// rebuildAborted rebuilds the index of the last of the segments.
func (l *Log) rebuildAborted(ctx context.Context, segs segments, start int64, why error) error {
	seg := segs.active()
	end, err := seg.NextOffset()
	if err != nil {
		return segs.explain(err)
	}
	s := producerstate.New(producerstate.Config{ExpireAfter: -1}, 0)
	r := l.reload(start, seg.Base())
	r.ReadOnly = true
	res, err := s.Reload(r)
	if err != nil {
		return err
	}
	s.SetEnd(res.From)
	var all []segment.AbortedTxn
	err = l.replay(ctx, segs, res.From, end, &l.recovery, func(b record.Batch) {
		all = appendAborted(all, s.Replay(b), seg.Base())
	}, nil)
	if err != nil {
		return err
	}
	if err := seg.SetAborted(all); err != nil {
		return err
	}
	name := l.path(segment.FileName(seg.Base(), ".txnindex"))
	l.recovery.Rebuilt = append(l.recovery.Rebuilt, name)
	l.find(Finding{File: name, Position: -1, Offset: seg.Base(), Kind: FindingTxnIndex, Detail: why.Error() + "; rebuilt from the batches"})
	return seg.Sync()
}

// appendAborted adds the aborted transactions whose marker is at or above from.
func appendAborted(all []segment.AbortedTxn, p *producerstate.Pending, from int64) []segment.AbortedTxn {
	for _, c := range p.Completed() {
		if c.Aborted && c.LastOffset >= from {
			all = append(all, abortedOf(c))
		}
	}
	return all
}

// beginProducers makes the state that of the segments below segs[from], where a recovery begins. No file is changed: the
// recovery may be refused.
func (l *Log) beginProducers(ctx context.Context, segs segments, from int, at stored) error {
	l.producers.drop(-1, -1)
	end := segs[from].Base()
	r := l.reload(min(segs.startOf(at.logStart), end), end)
	r.ReadOnly = true
	_, err := l.reloadBelow(ctx, segs, r, &l.recovery)
	return err
}

// recoveredTo notes the state at the end of a segment that was recovered. Who expired is forgotten there, as by Kafka, which
// takes each segment's state from the snapshot behind the one before: a later batch then finds a new producer, as it did
// when it was appended if the producer had expired by that time.
func (l *Log) recoveredTo(end int64) error {
	p := l.producers
	p.state.SetEnd(end)
	if err := p.remember(end, end); err != nil {
		return err
	}
	p.state.Expire(l.now().UnixMilli())
	p.mu.Lock()
	defer p.mu.Unlock()
	for n := len(p.due); n > 4 && p.dueBytes > mostDue; n-- {
		p.dueBytes -= p.dueBytes / n
		p.due = p.due[1:] // an older one serves as well
	}
	return nil
}

// settleSnapshots replaces the snapshots above from, which nothing vouches for, by those of a recovery that went through.
func (l *Log) settleSnapshots(from int64) error {
	all, err := producerstate.List(l.fs, l.name)
	if err != nil {
		return err
	}
	stale := slices.DeleteFunc(all, func(offset int64) bool { return offset <= from })
	if err := producerstate.Remove(l.fs, l.name, stale); err != nil {
		return err
	}
	return l.storeSnapshots()
}

// truncateProducers follows a truncation to end. The caller holds write and the round token.
func (l *Log) truncateProducers(end int64) error {
	segs, o := *l.list.Load(), l.load()
	l.producers.drop(-1, end)
	if _, err := l.reloadBelow(context.Background(), segs, l.reload(min(segs.startOf(o.LogStart), end), end), &RecoveryReport{}); err != nil {
		return err
	}
	if err := l.producers.remember(end, end); err != nil {
		return err
	}
	if err := l.storeSnapshots(); err != nil {
		return err
	}
	l.update(l.restable)
	return nil
}

// resetProducers follows the emptying of a log that begins at offset now.
func (l *Log) resetProducers(offset int64) error {
	l.producers.drop(-1, -1)
	l.producers.state.Reset(offset)
	l.update(l.restable)
	return l.dropSnapshotsAbove(-1)
}
