package log

import (
	"context"
	"errors"
	"fmt"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/segment"
)

// The recovery points of many logs are written together, off the path of appends. First each log by itself syncs what its
// new point would stand on (standOn); then one write of the checkpoint moves them all (points.sweep). No log is held
// between the two: a truncation that came in between shows in the count of truncations, and one that comes later finds
// the new point in the marks and lowers it again behind the write.

// footing is what a log's recovery point can be moved to.
type footing struct {
	l    *Log
	end  int64  // all files below are on the device
	cuts uint64 // count of truncations it was found under
}

// behind says whether there is something to gain: the recovery point lags behind what is durable.
func (l *Log) behind() bool {
	if l.ended() != nil {
		return false
	}
	o := l.load()
	return l.reach(o, *l.list.Load()) > o.RecoveryPoint
}

// reach is how far the recovery point may come without another sync of the active segment's records: of a Buffered log
// only what its rolls synced, as with Kafka.
func (l *Log) reach(o Offsets, segs segments) int64 {
	if l.cfg().Durability == Buffered {
		return min(o.Durable, segs.active().Base())
	}
	return o.Durable
}

// standOn syncs indexes, producer snapshots and whatever else belongs below a new recovery point.
func (l *Log) standOn(ctx context.Context) (footing, error) {
	if err := l.commits.acquire(ctx); err != nil {
		return footing{}, err
	}
	defer l.commits.release()
	if err := l.ended(); err != nil {
		return footing{}, err
	}
	o, cuts := l.loadCuts()
	segs := *l.list.Load()
	f := footing{l: l, end: l.reach(o, segs), cuts: cuts}
	below := segs.notBelow(o.RecoveryPoint)
	for len(below) > 0 && below.active().Base() >= f.end {
		below = below[:len(below)-1]
	}
	switch err := l.syncAll(below); {
	case isNoSpace(err) && !errors.Is(err, segment.ErrBroken): // nothing was lost: the entries are still in memory
		return footing{}, fmt.Errorf("%w: %w", ErrNoSpace, err)
	case err != nil:
		return footing{}, l.fail(err)
	}
	err := l.payEpochs(ctx)
	if err == nil {
		err = l.writeSnapshots(turn{ctx})
	}
	switch {
	case isNoSpace(err):
		return footing{}, fmt.Errorf("%w: %w", ErrNoSpace, err)
	case isContext(err):
		return footing{}, err
	case err != nil:
		return footing{}, l.fail(err)
	}
	l.commits.atRP = l.stats.bytes.Load()
	return f, nil
}

// flush makes everything written durable, as flush.ms asks. The recovery point follows with the next checkpoint.
func (l *Log) flush(ctx context.Context) error {
	if err := l.commits.acquire(ctx); err != nil {
		return err
	}
	defer l.commits.release()
	if err := l.ended(); err != nil {
		return err
	}
	l.stats.lastFlush.Store(l.now().UnixMilli())
	return l.syncRound()
}

// sweep writes the checkpoints of all open logs: the marks as they are now, and the recovery points that ready allows.
func (p *points) sweep(ctx context.Context, logs []*Log, ready []footing) error {
	if err := p.writing.lock(ctx); err != nil {
		return err
	}
	defer p.writing.unlock()
	p.mu.Lock()
	p.waiting = 0
	moved := ready[:0]
	for _, f := range ready {
		if f.l.raisePoint(f) {
			p.setLocked(checkpoint.RecoveryPoints, f.l.tp, f.end)
			moved = append(moved, f)
		}
	}
	for _, l := range logs {
		p.takeMarks(l)
	}
	p.mu.Unlock()
	var errs []error
	for _, name := range pointFiles {
		err := p.write(name)
		if errs = append(errs, err); err != nil || name != checkpoint.RecoveryPoints {
			continue
		}
		for _, f := range moved {
			f.l.commits.swept.Store(f.end)
		}
	}
	err := errors.Join(errs...)
	if err == nil {
		p.written.Store(p.now().UnixMilli())
	}
	return err
}

// renote writes the durable hint anew under the recovery point that a sweep wrote, if more has become durable since; a
// round that is running does that itself.
func (f footing) renote() {
	if f.l.commits.tryAcquire() != nil {
		return
	}
	defer f.l.commits.release()
	if o := f.l.load(); f.l.ended() == nil && o.Durable > f.end {
		f.l.noteDurable(o.Durable)
	}
}

// sweepHighWatermarks writes that file alone.
func (p *points) sweepHighWatermarks(ctx context.Context, logs []*Log) error {
	if err := p.writing.lock(ctx); err != nil {
		return err
	}
	defer p.writing.unlock()
	p.mu.Lock()
	for _, l := range logs {
		if o, live := l.liveMarks(); live {
			p.setLocked(checkpoint.HighWatermarks, l.tp, o.HighWatermark)
		}
	}
	p.mu.Unlock()
	return p.write(checkpoint.HighWatermarks)
}

// takeMarks notes high watermark and start offset of an open log. A start offset in the file is never lowered here: it may
// be one that DeleteRecords has just made durable and is about to show. mu is held.
func (p *points) takeMarks(l *Log) {
	o, live := l.liveMarks()
	if !live {
		return
	}
	p.setLocked(checkpoint.HighWatermarks, l.tp, o.HighWatermark)
	key, first := checkpoint.Partition(l.tp), l.list.Load().first().Base()
	stored, ok := p.files[checkpoint.LogStarts][key]
	switch {
	case o.LogStart > first && (!ok || stored < o.LogStart):
		p.setLocked(checkpoint.LogStarts, l.tp, o.LogStart)
	case ok && stored <= first: // the first segment says as much
		p.deleteLocked(checkpoint.LogStarts, key)
	}
}

// liveMarks are the marks of a log that has not ended; the checkpoints of one that has say what was true then.
func (m *marks) liveMarks() (o Offsets, live bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.o, m.ended() == nil
}

// raisePoint moves the recovery point in memory, unless the log was cut since or has ended.
func (m *marks) raisePoint(f footing) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cuts != f.cuts || m.ended() != nil || f.end <= m.o.RecoveryPoint || f.end > m.o.LogEnd {
		return false
	}
	m.o.RecoveryPoint = f.end
	return true
}
