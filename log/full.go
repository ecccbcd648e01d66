package log

import (
	"context"
	"errors"
	"fmt"

	"github.com/partlog/partlog/retention"
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

// errNamesFirst: segments must go for an append, and somebody has their names, a compaction that swaps most likely. It lets
// go of write, waits for names and comes again. So what hangs there holds only the appends that find no room without it,
// each under its own context.
var errNamesFirst = errors.New("log: names to be taken before segments are dropped")

// makeRoom sees to it that n more bytes fit under Config.MaxBytes, as Config.WhenFull says, and that the device has room to
// spare for them. The caller holds write; named: and names.
func (l *Log) makeRoom(ctx context.Context, n int64, named bool) error {
	if l.spare != nil {
		if err := l.spare(n); err != nil {
			return err
		}
	}
	c := l.cfg()
	if c.MaxBytes == 0 {
		return nil
	}
	total := l.sealed.total(l.list.Load())
	if total+n <= c.MaxBytes {
		return nil
	}
	if c.WhenFull == DropOldest && n <= c.MaxBytes {
		if !named {
			if !l.names.tryLock() {
				return errNamesFirst
			}
			defer l.names.unlock()
		}
		dropped, err := l.dropOldest(ctx, total+n-c.MaxBytes)
		if dropped || err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: the log has %d bytes, the append %d, MaxBytes is %d", ErrFull, total, n, c.MaxBytes)
}

// dropOldest removes whole segments from the start of the log until excess bytes are gone, rolling the active one if that
// must go too. Nothing that readers have not been shown is dropped: then it is false, and nothing is changed but for the
// roll. The files go at once: MaxBytes is what the log may take of the device. The caller holds names and write.
func (l *Log) dropOldest(ctx context.Context, excess int64) (dropped bool, err error) {
	segs := *l.list.Load()
	n := segs.covering(excess)
	if n == len(segs) {
		if err := l.roll(ctx, l.load().LogEnd); err != nil {
			return false, err
		}
		if err := l.syncDir(); err != nil { // or the old ones could go without the new one having come
			return false, l.fail(err)
		}
		segs = *l.list.Load()
	}
	if segs[n].Base() > l.load().HighWatermark {
		return false, nil
	}
	if err := l.dropHead(n); err != nil {
		return false, err
	}
	l.retained(droppedReport(segs, n, retention.Size))
	_, _ = l.discardDue(l.now().UnixMilli()) // what cannot be removed now is tried again
	return true, nil
}

// droppedReport says of the first n segments what Retain would say.
func droppedReport(segs segments, n int, why retention.Reason) RetentionReport {
	r := RetentionReport{Plan: retention.Plan{NewStart: segs[n].Base(), NextDue: -1}, Dropped: n, Freed: segs[:n].bytes()}
	r.Plan.Freed = r.Freed
	for i, seg := range segs[:n] {
		r.Plan.Drop = append(r.Plan.Drop, retention.Drop{Base: seg.Base(), End: segs[i+1].Base(), Bytes: seg.Size(), Reason: why})
	}
	return r
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
