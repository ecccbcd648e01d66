package log

import (
	"context"
	"errors"
	"fmt"
	"math"
	"syscall"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/internal/epoch"
)

// A partition moves from one root to another in these steps. At no time are there two live folders of it, and whatever is
// the first one that SettleMoves finds after a crash is complete:
//
//	to:    T-P.<uuid>-future        the copy; catches up while appends go on
//	       ...                      appends wait; the rest is copied, everything synced, to's checkpoints written
//	from:  T-P -> T-P.<uuid>-delete the move is done from here on
//	to:    T-P.<uuid>-future -> T-P
//	from:  the checkpoints forget it, its files go file.delete.delay.ms later
type move struct {
	from, to *Dir
	tp       TopicPartition
	src, dst *Log
	folder   string // of dst
	cuts     uint64 // truncations of src that the copy knows of
}

// Move moves a partition to another Dir, which must be open: to another disk, for instance. It is copied, batch by batch and
// with its checksums looked at, while appends and reads go on; these are held up at the end, for the last of the copy and a
// few syncs. Then the log here ends (ErrClosed, as after Close, for everybody who uses it), and to.Get has it: with the same
// records, offsets, leader epochs, marks, topic id, producers and configuration. The files here are removed as Delete does.
//
// ErrNoPartition: there is none here; one that is not open is opened first. ErrPartitionExists: to has it already.
// ErrMoving: a move of it is under way, or one was cut short (SettleMoves). *FolderError: the name is too long for the
// suffix, as it is for a broker. ctx is heard until the copy is complete. After an error the partition is where it was,
// unless the error says that it was moved; a partition that could not be renamed is closed.
func (d *Dir) Move(ctx context.Context, tp TopicPartition, to *Dir) error {
	if d.fs == nil || to == nil || to.fs == nil {
		return ErrClosed
	}
	if d == to {
		return fmt.Errorf("%w: %s is to move to where it is", ErrPartitionExists, tp)
	}
	m := &move{from: d, to: to, tp: tp, folder: tp.markedFolder(futureFolder)}
	if len(m.folder) > 255 {
		return &FolderError{Name: m.folder, Reason: fmt.Sprintf("a name of %d characters, at most 255 are possible", len(m.folder))}
	}
	if err := m.source(ctx); err != nil {
		return err
	}
	if err := m.begin(); err != nil {
		return err
	}
	defer m.end()
	if exists(to.fs, tp.String()) {
		return fmt.Errorf("%w: %s", ErrPartitionExists, tp)
	}
	err := m.copyLog(ctx)
	if err == nil {
		err = m.finish(ctx)
	}
	if err != nil {
		return fmt.Errorf("move %s: %w", tp, err)
	}
	return nil
}

// source finds the log to be moved, opening it if it is not open.
func (m *move) source(ctx context.Context) (err error) {
	open := false
	if m.src, open = m.from.Get(m.tp); open {
		return nil
	}
	if !exists(m.from.fs, m.tp.String()) {
		return fmt.Errorf("%w: %s", ErrNoPartition, m.tp)
	}
	m.src, err = m.from.Open(ctx, m.tp, Config{})
	return err
}

// begin keeps others off the partition: in from nobody deletes it, in to nobody opens it.
func (m *move) begin() error {
	for i, d := range []*Dir{m.from, m.to} {
		d.mu.Lock()
		var err error
		switch {
		case d.closed, i == 0 && d.logs[m.tp] != m.src:
			err = ErrClosed
		case d.moves[m.tp]:
			err = fmt.Errorf("%w: %s", ErrMoving, m.tp)
		case i == 1 && (d.logs[m.tp] != nil || d.busy[m.tp] != nil):
			err = fmt.Errorf("%w: %s", ErrPartitionExists, m.tp)
		default:
			d.moves[m.tp] = true
		}
		d.mu.Unlock()
		if err != nil {
			if i == 1 {
				m.release(m.from)
			}
			return err
		}
	}
	return nil
}

func (m *move) end() {
	m.release(m.from)
	m.release(m.to)
}

func (m *move) release(d *Dir) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.moves, m.tp)
}

// copyLog makes the copy and lets it catch up, so that little is left to do while appends wait.
func (m *move) copyLog(ctx context.Context) (err error) {
	if folder, ok := m.to.futureOf(m.tp); ok {
		return fmt.Errorf("%w: %s is there", ErrMoving, folder)
	}
	if err := m.open(ctx); err != nil {
		m.undo()
		return err
	}
	// Appends that outrun the copy are held up for the rest of it: more rounds would only make that longer.
	for behind, before := m.behind(), int64(math.MaxInt64); behind <= before/2; behind, before = m.behind(), behind {
		if err = m.catchUp(ctx); err != nil || behind < 1000 {
			break
		}
	}
	if err == nil {
		err = m.dst.Sync(ctx)
	}
	if err != nil {
		m.undo()
	}
	return err
}

// behind is how many offsets the copy lacks.
func (m *move) behind() int64 { return m.src.load().LogEnd - m.dst.load().LogEnd }

// open makes the folder of the copy, and a log in it that begins where the source does. Until it is live the marks of its
// partition in to's checkpoints are those of the copy.
func (m *move) open(ctx context.Context) error {
	start, err := m.start(ctx)
	if err != nil {
		return err
	}
	if err := m.to.forget(ctx, m.tp); err != nil {
		return err
	}
	if err := m.to.fs.MkdirAll(m.folder, 0o755); err != nil {
		return err
	}
	m.to.mark(m.folder)
	if err := syncDir(m.to.fs, "."); err != nil {
		return err
	}
	m.to.points.set(checkpoint.LogStarts, m.tp, start)
	c := m.src.Config()
	c.MaxBytes, c.WhenFull, c.FlushMessages, c.FlushInterval = 0, Reject, math.MaxInt64, Forever
	dst, err := m.to.newLog(m.tp, c)
	if err != nil {
		return err
	}
	dst.name, dst.cfg().MaxBytes = m.folder, 0
	if err := dst.open(ctx, true, opening{}); err != nil {
		return err
	}
	m.dst = dst
	return nil
}

// start is where the copy begins: at the log start, or at the batch that it lies in.
func (m *move) start(ctx context.Context) (int64, error) {
	o, cuts := m.src.loadCuts()
	m.cuts = cuts
	for b, err := range m.src.batches(ctx, o.LogStart, readOptions{isolation: LogEnd, end: math.MaxInt64}) {
		if err != nil {
			return 0, err
		}
		return min(o.LogStart, b.BaseOffset()), nil
	}
	return o.LogStart, nil
}

// copyBytes is how much is copied in one append.
const copyBytes = 1 << 20

// catchUp copies what the source has at the call and the copy has not, however fast appends go on meanwhile. Records that
// were deleted or truncated while they were copied are no error.
func (m *move) catchUp(ctx context.Context) (err error) {
	for range 10 {
		if err = m.followCuts(ctx); err == nil {
			err = m.copyOn(ctx)
		}
		if !errors.Is(err, ErrOffsetOutOfRange) {
			break
		}
	}
	return err
}

func (m *move) copyOn(ctx context.Context) error {
	most := min(copyBytes, int(m.dst.cfg().SegmentBytes))
	var buf []byte
	first := int64(-1)
	put := func() error {
		if len(buf) == 0 {
			return nil
		}
		_, err := m.dst.AppendBatches(ctx, buf, AppendOptions{As: Follower, Durability: Buffered})
		buf, first = buf[:0], -1
		return err
	}
	o := m.src.load()
	from := max(m.dst.load().LogEnd, o.LogStart)
	for b, err := range m.src.batches(ctx, from, readOptions{isolation: LogEnd, end: o.LogEnd}) {
		if err != nil {
			return err
		}
		if len(buf)+b.Size() > most || first >= 0 && b.LastOffset()-first > math.MaxInt32 {
			if err := put(); err != nil {
				return err
			}
		}
		if first < 0 {
			first = b.BaseOffset()
		}
		buf = append(buf, b.Bytes()...)
	}
	return put()
}

// followCuts gives up what the source has truncated meanwhile.
func (m *move) followCuts(ctx context.Context) error {
	end := m.dst.load().LogEnd
	_, cuts := m.src.loadCuts()
	if cuts == m.cuts {
		return nil
	}
	_, lost := m.src.lost(m.cuts, end)
	m.cuts = cuts
	if !lost {
		return nil
	}
	start, err := m.start(ctx)
	if err != nil {
		return err
	}
	return m.dst.ResetTo(ctx, start)
}

// finish makes the copy whole while appends wait, and puts it in the source's place.
func (m *move) finish(ctx context.Context) error {
	unlock, err := m.src.exclusive(ctx)
	if err != nil {
		m.undo()
		return err
	}
	switch err := m.complete(ctx); {
	case err != nil:
		unlock()
		m.undo()
		return err
	case !m.from.beginClose(m.src):
		unlock()
		m.undo()
		return ErrClosed
	}
	m.src.giveUp()
	known := m.takeKnown()
	unlock()
	m.src.cleaner.stop() // a compaction that is under way would go on in a folder that has another name
	defer m.src.deliver()
	return m.swap(known)
}

// known is what a log has in memory alone: producers whose records were deleted, and an epoch in which nothing was written.
type known struct {
	producers *producers
	epochs    []epoch.Entry
	newest    int32
}

// complete copies the rest, and all that is not in the batches. Everything is on the device when it returns. The source is
// locked.
func (m *move) complete(ctx context.Context) error {
	if err := m.catchUp(ctx); err != nil {
		return err
	}
	src, dst := m.src, m.dst
	o := src.load()
	if err := dst.adopt(ctx, src.epochs.Entries(), o); err != nil {
		return err
	}
	if id := src.TopicID(); id != [16]byte{} {
		if err := dst.SetTopicID(id); err != nil {
			return err
		}
	}
	if err := copyMetadataSnapshots(m.from.fs, src.name, m.to.fs, m.folder); err != nil {
		return err
	}
	if err := dst.shut(); err != nil {
		return err
	}
	m.dst = nil
	if err := syncDir(m.to.fs, m.folder); err != nil {
		return err
	}
	m.to.points.set(checkpoint.HighWatermarks, m.tp, o.HighWatermark)
	return m.to.points.writeAll(ctx)
}

// adopt gives a copy the end, the start and the leader epochs of what it is a copy of.
func (l *Log) adopt(ctx context.Context, epochs []epoch.Entry, o Offsets) error {
	if err := l.lockStart(ctx); err != nil {
		return err
	}
	defer l.starts.unlock()
	if err := l.fitEnd(ctx, o.LogEnd); err != nil {
		return err
	}
	if o.LogStart > l.load().LogStart {
		if err := l.raiseStart(ctx, o.LogStart); err != nil {
			return err
		}
	}
	l.epochs.Restore(epochs)
	return nil
}

// fitEnd rolls to end if the last records below it were compacted away.
func (l *Log) fitEnd(ctx context.Context, end int64) error {
	if err := l.write.lock(ctx); err != nil {
		return err
	}
	defer l.write.unlock()
	if l.load().LogEnd >= end {
		return nil
	}
	return l.roll(ctx, end)
}

// takeKnown takes it out of the source, which has ended. Its write lock is held.
func (m *move) takeKnown() known {
	m.src.marks.mu.Lock()
	defer m.src.marks.mu.Unlock()
	taken := known{m.src.producers, m.src.epochs.Entries(), m.src.newest}
	m.src.producers = newProducers(m.src.Config())
	return taken
}

// swap does the renames, and opens the copy as the live log. It is not stopped by a context any more.
func (m *move) swap(known known) error {
	gone, err := m.leave()
	if gone == "" {
		m.undo()
		return err
	}
	if err != nil {
		return m.unsure(err)
	}
	if err := m.to.fs.Rename(m.folder, m.tp.String()); err != nil {
		return m.unsure(err)
	}
	m.to.unmark(m.folder)
	if err := syncDir(m.to.fs, "."); err != nil {
		return m.unsure(err)
	}
	m.from.note(&m.from.failures, TopicPartition{}, taskForget, m.from.cfg.Now(), m.from.forget(context.Background(), m.tp))
	m.from.doom(gone, m.src.cfg().FileDeleteDelay)
	return m.arrive(known)
}

// leave renames the source's folder. gone is "" if it is still there.
func (m *move) leave() (gone string, err error) {
	state := failed
	defer func() { m.from.end(m.tp, state, nil) }()
	folder := m.tp.markedFolder(deletingFolder)
	if err := m.from.fs.Rename(m.tp.String(), folder); err != nil {
		return "", err
	}
	state = untouched
	m.from.mark(folder)
	return folder, syncDir(m.from.fs, ".")
}

// unsure is the error of a move that a crash may or may not undo.
func (m *move) unsure(err error) error {
	return fmt.Errorf("the partition was copied to %s and closed, SettleMoves finishes the move: %w", m.folder, err)
}

// arrive opens the copy. What cannot be opened now is there all the same.
func (m *move) arrive(known known) error {
	m.release(m.to)
	l, err := m.to.Open(context.Background(), m.tp, m.src.Config())
	if err != nil {
		return fmt.Errorf("it was moved, but cannot be opened: %w", err)
	}
	return l.takeOver(known)
}

// takeOver makes what another log knew that of this one, unless something was appended since.
func (l *Log) takeOver(k known) error {
	if err := l.write.lock(context.Background()); err != nil {
		return err
	}
	defer l.write.unlock()
	if err := l.commits.acquire(context.Background()); err != nil { // a round reads them
		return err
	}
	defer l.commits.release()
	if l.ended() != nil || k.producers.state.End() != l.load().LogEnd {
		return nil
	}
	l.marks.mu.Lock()
	k.producers.due, k.producers.dueBytes = nil, 0
	k.producers.state.Taken(l.o.LogEnd)
	l.producers = k.producers
	l.restable(&l.o)
	l.marks.mu.Unlock()
	l.epochs.Restore(k.epochs)
	l.newest = max(l.newest, k.newest)
	l.publishEpoch()
	if err := l.epochs.Flush(context.Background()); err != nil {
		return l.epochRefused(err)
	}
	return nil
}

// undo removes the copy.
func (m *move) undo() {
	if m.dst != nil {
		_ = m.dst.abandon(context.Background())
		m.dst = nil
	}
	to := m.to
	if _, ok := to.futureOf(m.tp); !ok {
		return
	}
	to.note(&to.failures, TopicPartition{}, taskForget, to.cfg.Now(), errors.Join(to.discardFuture(m.folder), to.forget(context.Background(), m.tp)))
}

// discardFuture has the copy of a move that came to nothing removed.
func (d *Dir) discardFuture(folder string) error {
	f, _ := markedFolder(folder)
	gone := f.TopicPartition.markedFolder(deletingFolder)
	if err := d.fs.Rename(folder, gone); err != nil {
		if errors.Is(err, syscall.ENOENT) {
			d.unmark(folder)
			return nil
		}
		return err
	}
	d.unmark(folder)
	d.mark(gone)
	d.doom(gone, Immediately)
	return nil
}
