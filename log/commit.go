package log

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/vfs"
)

// recoveryPointEvery is how many synced bytes may lie above the persisted recovery point of a durable log before the
// committing goroutine moves it: it bounds what an unclean open must scan.
const recoveryPointEvery = 64 << 20

// committer lets concurrent appends share one sync. The first waiter leads a round and syncs for all; whoever arrives
// meanwhile waits for the next one. There is no goroutine: the leader is one of the callers.
type committer struct {
	// mu guards running; it is held for an assignment only.
	mu      sync.Mutex
	running chan struct{} // the round token: closed when the present round ends; nil between rounds

	// The rest belongs to whoever holds the token.
	born     int64 // base of the newest segment whose directory entry is known durable
	atRP     int64 // counters.bytes when the recovery point was last persisted
	storedRP int64 // recovery point in the checkpoint on disk; 0 none. The durable hint is valid under this one only

	swept atomic.Int64 // a recovery point that the root's sweep wrote since; 0 none. See stored
}

// stored is the recovery point in the checkpoint on disk. The caller holds the token.
func (c *committer) stored() int64 {
	if swept := c.swept.Swap(0); swept > 0 {
		c.storedRP = swept
	}
	return c.storedRP
}

// acquire takes the round token, waiting for a running round.
func (c *committer) acquire(ctx context.Context) error {
	for {
		c.mu.Lock()
		running := c.running
		if running == nil {
			c.running = make(chan struct{})
			c.mu.Unlock()
			return nil
		}
		c.mu.Unlock()
		if err := waitRound(ctx, running); err != nil {
			return err
		}
	}
}

// tryAcquire takes the token, or gives the round to wait for.
func (c *committer) tryAcquire() (running chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running == nil {
		c.running = make(chan struct{})
		return nil
	}
	return c.running
}

func (c *committer) release() {
	c.mu.Lock()
	close(c.running)
	c.running = nil
	c.mu.Unlock()
}

func waitRound(ctx context.Context, running chan struct{}) error {
	select {
	case <-running:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// commit returns once everything below end, written when cuts was the count of truncations, is durable. It leads a
// round or joins the next. Its error is ctx's, the sticky one, or ErrTruncated when what was there is gone, even if
// something else was appended at those offsets since.
func (l *Log) commit(ctx context.Context, end int64, cuts uint64) error {
	for {
		if done, err := l.confirmed(end, cuts); done {
			return err
		}
		if running := l.commits.tryAcquire(); running != nil {
			if err := waitRound(ctx, running); err != nil {
				return err
			}
			continue
		}
		if err := l.lead(end, cuts); err != nil {
			return err
		}
	}
}

// confirmed says whether what was written below end, when cuts was the count of truncations, waits no longer: it is
// durable, or ErrTruncated.
func (l *Log) confirmed(end int64, cuts uint64) (done bool, err error) {
	o, lost := l.lost(cuts, end)
	if lost {
		return true, ErrTruncated
	}
	return o.Durable >= end, nil
}

// lead runs one round and gives the token back. It looks again first: what is waited for may have become durable in the
// instant before the token was free, by another's round or by a Close, after which the log has ended.
func (l *Log) lead(end int64, cuts uint64) error {
	defer l.deliver()
	defer l.commits.release()
	if done, err := l.confirmed(end, cuts); done {
		return err
	}
	if err := l.ended(); err != nil {
		return err
	}
	return l.syncRound()
}

// commitAll is commit for everything written so far. A truncation meanwhile leaves less to do, it is no error.
func (l *Log) commitAll(ctx context.Context) error {
	o, cuts := l.loadCuts()
	if err := l.commit(ctx, o.LogEnd, cuts); err != ErrTruncated {
		return err
	}
	return nil
}

// syncBelowRoll makes everything written durable, directory entries included. The caller holds write.
func (l *Log) syncBelowRoll(ctx context.Context) error {
	if o := l.load(); o.Durable >= o.LogEnd {
		return nil
	}
	if err := l.commits.acquire(ctx); err != nil {
		return err
	}
	defer l.commits.release()
	if err := l.ended(); err != nil {
		return err
	}
	return l.syncRound()
}

// syncRound makes all that is written durable and publishes it. The caller holds the round token, so no truncation and
// no other round runs; appends and rolls may.
//
// Order matters: a segment that was rolled is synced before the directory entry of its successor, and that before the
// successor's bytes, so that an acknowledged record is never in a file that has no name.
func (l *Log) syncRound() error {
	began := l.syncBegins()
	l.dir.rounds.begin()
	end, err := l.syncData()
	l.dir.rounds.end()
	l.syncEnded(began)
	if err != nil {
		return l.fail(err)
	}
	l.update(func(o *Offsets) {
		o.Durable = max(o.Durable, end)
		l.raiseVisible(o)
	})
	l.stats.syncs.Add(1)
	l.noteDurable(end)
	if l.stats.bytes.Load()-l.commits.atRP < recoveryPointEvery && !l.producers.overdue() {
		return nil
	}
	if l.dir.points.writing.held.Load() || l.snapshots.held.Load() {
		return nil // somebody else writes the checkpoint, however long that takes: the next round does this
	}
	// The round itself succeeded: a checkpoint for which there is no room is only written later.
	err = l.advanceRecoveryPoint(end, turn{})
	if err == errBusy || errors.Is(err, ErrNoSpace) {
		return nil
	}
	return err
}

// syncData syncs the .log bytes of every segment that holds something not yet durable, and the directory entries of
// the new ones among them. It returns the offset below which all is on the device.
func (l *Log) syncData() (end int64, err error) {
	o := l.load()
	segs := *l.list.Load()
	for _, seg := range segs[max(0, segs.floor(o.Durable)):] {
		if seg.Base() > l.commits.born {
			if err := l.syncDir(); err != nil {
				return 0, err
			}
			l.commits.born = segs.active().Base()
		}
		switch err := seg.SyncData(); {
		case err == nil:
		case errors.Is(err, fs.ErrClosed): // retention took it meanwhile; what is deleted needs no sync
		default:
			return 0, fmt.Errorf("sync %s: %w", l.name, err)
		}
	}
	return o.LogEnd, nil
}

func (l *Log) syncDir() error { return syncDir(l.fs, l.name) }

// syncDir makes a directory's entries durable, where the file system has a call for it.
func syncDir(fsys vfs.FS, name string) error {
	if err := fsys.SyncDir(name); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return fmt.Errorf("sync directory %s: %w", name, err)
	}
	return nil
}

// syncAll makes every file of the segments from offset from on durable, indexes included, so that the recovery point
// may pass them. The caller holds the round token or write.
func (l *Log) syncAll(segs []*segment.Segment) error {
	for _, seg := range segs {
		if err := seg.Sync(); err != nil && !errors.Is(err, fs.ErrClosed) {
			return fmt.Errorf("sync %s: %w", l.name, err)
		}
	}
	return l.syncDir()
}

// advanceRecoveryPoint syncs all files below end, writes the producer snapshots that are due, and then persists end in the
// root's checkpoint. Its error is the sticky one, ErrNoSpace where only an index, a snapshot or the checkpoint had no room,
// or that of a turn not taken. The caller holds the round token.
func (l *Log) advanceRecoveryPoint(end int64, w turn) error {
	segs := *l.list.Load()
	o := l.load()
	switch err := l.syncAll(segs.notBelow(o.RecoveryPoint)); {
	case isNoSpace(err) && !errors.Is(err, segment.ErrBroken): // nothing was lost: the entries are still in memory
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	case err != nil:
		return l.fail(err)
	}
	l.stats.lastFlush.Store(l.now().UnixMilli())
	err := l.payEpochs(context.Background())
	if err == nil {
		err = l.writeSnapshots(w)
	}
	switch {
	case isNoSpace(err):
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	case err == errBusy || isContext(err):
		return err
	case err != nil:
		return l.fail(err)
	}
	switch err := l.storeRecoveryPoint(max(o.RecoveryPoint, min(end, o.LogEnd)), w); {
	case isNoSpace(err):
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	case err == errBusy || isContext(err):
		return err
	case err != nil:
		return l.fail(err)
	}
	l.commits.atRP = l.stats.bytes.Load()
	return nil
}

// notBelow is the segments that may hold something not synced under a recovery point. One that ends at the point is among
// them: it got its last time index entry when it was rolled, later.
func (s segments) notBelow(recoveryPoint int64) segments {
	return s[max(0, s.floor(recoveryPoint-1)):]
}

// storeRecoveryPoint makes rp durable in the checkpoint, then valid. After an error the old one stays valid: it was true,
// and so is whatever the file has now. The caller holds the round token.
func (l *Log) storeRecoveryPoint(rp int64, w turn) error {
	if err := l.dir.points.storeWith(w, checkpoint.RecoveryPoints, l.tp, rp); err != nil {
		return err
	}
	l.commits.swept.Store(0) // what was swept was written before this
	l.commits.storedRP = rp
	l.update(func(o *Offsets) { o.RecoveryPoint = rp })
	return nil
}

// Sync makes everything appended before the call durable: .log files, indexes and directory entries. Kafka's flush: it
// moves the recovery point too. ErrNoSpace: everything is durable, but there is no room to write the recovery point.
func (l *Log) Sync(ctx context.Context) error {
	if err := l.ended(); err != nil {
		return err
	}
	end := l.load().LogEnd
	if err := l.commits.acquire(ctx); err != nil {
		return err
	}
	defer l.commits.release()
	if err := l.ended(); err != nil {
		return err
	}
	if err := l.syncRound(); err != nil {
		return err
	}
	return l.advanceRecoveryPoint(end, turn{ctx})
}

// isContext says that a call gave up waiting, before it changed anything.
func isContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
