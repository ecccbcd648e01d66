package log

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"

	"github.com/partlog/partlog/segment"
)

// sealedBytes remembers the size of all segments but the active one, for as long as the list stays the same.
type sealedBytes struct {
	list  *segments
	bytes int64
}

// total is the size of all .log files.
func (s *sealedBytes) total(list *segments) int64 {
	if s.list != list {
		sealed := (*list)[:len(*list)-1]
		s.list, s.bytes = list, sealed.bytes()
	}
	return s.bytes + list.active().Size()
}

// makeRoom sees to it that n more bytes fit under Config.MaxBytes, as Config.WhenFull says. The caller holds write.
func (l *Log) makeRoom(ctx context.Context, n int64) error {
	if l.cfg.MaxBytes == 0 {
		return nil
	}
	total := l.sealed.total(l.list.Load())
	if total+n <= l.cfg.MaxBytes {
		return nil
	}
	if l.cfg.WhenFull == DropOldest && n <= l.cfg.MaxBytes {
		dropped, err := l.dropOldest(ctx, total+n-l.cfg.MaxBytes)
		if dropped || err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: the log has %d bytes, the append %d, MaxBytes is %d", ErrFull, total, n, l.cfg.MaxBytes)
}

// dropOldest removes whole segments from the start of the log until excess bytes are gone, rolling the active one if that
// must go too. Nothing that readers have not been shown is dropped: then it is false, and nothing is changed but for the
// roll.
func (l *Log) dropOldest(ctx context.Context, excess int64) (dropped bool, err error) {
	segs := *l.list.Load()
	n := segs.covering(excess)
	if n == len(segs) {
		if err := l.roll(ctx, l.load().LogEnd); err != nil {
			return false, err
		}
		segs = *l.list.Load()
	}
	if segs[n].Base() > l.load().HighWatermark {
		return false, nil
	}
	return true, l.dropPrefix(segs, n)
}

// covering is how many of the oldest segments hold at least that many bytes.
func (s segments) covering(bytes int64) int {
	for i, seg := range s {
		if bytes -= seg.Size(); bytes <= 0 {
			return i + 1
		}
	}
	return len(s)
}

// dropPrefix takes segs[:n] out of the log. The files go first, from the oldest on, each gone for good before the next:
// whatever a crash leaves is the log with fewer of its oldest segments, and a reader that was told "gone" never finds the
// records back. Readers that hold a segment finish.
func (l *Log) dropPrefix(segs segments, n int) error {
	for _, seg := range segs[:n] {
		if err := seg.Rename(".deleted"); err != nil {
			return fmt.Errorf("drop %s: %w", seg.File(), err)
		}
		if err := l.syncDir(); err != nil {
			return l.fail(err) // it may come back, and the next sync would not say so
		}
	}
	rest, start := segs[n:], segs[n].Base()
	l.producers.state.OnLogStart(start)
	l.producers.drop(start, math.MaxInt64)
	l.update(func(o *Offsets) {
		o.LogStart = max(o.LogStart, start)
		o.HighWatermark = max(o.HighWatermark, start)
		l.restable(o)
	})
	l.list.Store(&rest)
	l.epochs.TruncateFromStart(l.load().LogStart) // the file may lag: loading cuts it again
	var err error
	for _, seg := range segs[:n] {
		err = errors.Join(err, discard(seg), l.removeSnapshot(seg.Base()))
	}
	if err != nil {
		return fmt.Errorf("drop the oldest segments of %s: %w", l.name, err)
	}
	return nil
}

func (l *Log) removeSnapshot(base int64) error {
	err := l.fs.Remove(l.path(segment.FileName(base, ".snapshot")))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
