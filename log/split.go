package log

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/vfs"
)

// loadSegments opens the segments and makes them whole. One that holds offsets which cannot be represented from its base
// (very old brokers wrote such) is split first, and then all is looked at anew.
func (l *Log) loadSegments(ctx context.Context, at stored) (segments, error) {
	var split []int64
	for {
		segs, err := l.openSegments()
		if err == nil {
			segs, err = l.recover(ctx, segs, at)
		}
		over, ok := errors.AsType[*segment.OverflowError](err)
		if !ok || over.Bytes > 0 {
			return segs, err
		}
		i := segs.floor(over.Base)
		if i < 0 || segs[i].Base() != over.Base || len(split) > len(segs) {
			return segs, err
		}
		split = append(split, over.Base)
		l.unlist()
		err = l.split(ctx, segs, i, at)
		for _, seg := range segs {
			err = errors.Join(err, seg.Abandon())
		}
		if err != nil {
			return nil, err
		}
	}
}

// findOverflow looks for segments that overflow, where the next one's base leaves room for it. The last one is looked at by
// whoever needs its end.
func (s segments) findOverflow() error {
	for i := 0; i+1 < len(s); i++ {
		if s[i+1].Base()-s[i].Base() <= math.MaxInt32 {
			continue
		}
		if _, err := s[i].NextOffset(); errors.Is(err, segment.ErrOverflow) {
			return err
		}
	}
	return nil
}

// split replaces a segment by parts whose offsets are representable, by Kafka's protocol, each step durable before the
// next:
//
//  1. the parts are written as .cleaned and synced       a crash until here: they are removed, and written again
//  2. from the last to the first they become .swap       and until here, as long as one .cleaned is left
//  3. the segment becomes .deleted                       from here on: settling completes it
//  4. settling removes it and drops the suffixes
//
// A crash between 2 and 3 leaves parts that settling makes live beside a segment based below all of them: it is split
// again, and the new parts take the place of the old ones.
func (l *Log) split(ctx context.Context, segs segments, i int, at stored) error {
	seg := segs[i]
	parts, err := segment.Split(ctx, seg)
	if bad, ok := errors.AsType[*segment.CorruptError](err); ok {
		if bad.Offset < at.durable {
			return segs.explain(err)
		}
		return l.cutOverflowed(seg, segs[i+1:], bad)
	}
	if err != nil {
		return err
	}
	defer func() {
		for _, part := range parts {
			_ = part.Abandon() // synced already
		}
	}()
	if err := l.syncDir(); err != nil {
		return err
	}
	for i := len(parts) - 1; i >= 0; i-- {
		if err := renamed(l, parts[i], ".swap"); err != nil {
			return err
		}
	}
	name := seg.File()
	if err := renamed(l, seg, ".deleted"); err != nil {
		return err
	}
	l.find(Finding{File: name, Position: -1, Offset: seg.Base(), Kind: FindingSplit,
		Detail: fmt.Sprintf("its offsets reach further than 2^31 above its base; it was split into %d segments", len(parts))})
	return l.settle()
}

func renamed(l *Log, seg *segment.Segment, suffix string) error {
	if err := seg.Rename(suffix); err != nil {
		return err
	}
	return l.syncDir()
}

// cutOverflowed cuts the torn tail of a segment that must be split: recovery cannot, because its indexes cannot speak of
// such offsets. What is cut is kept in any case.
func (l *Log) cutOverflowed(seg *segment.Segment, later segments, bad *segment.CorruptError) error {
	if _, err := vfs.Own(l.fs, seg.File()); err != nil {
		return err
	}
	f, err := l.fs.OpenFile(seg.File(), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	cut := func() error {
		size, err := f.Size()
		if err != nil {
			return err
		}
		scan := segment.Scan{Verdict: segment.TornWithValid, ValidBytes: bad.Position, NextOffset: bad.Offset, CutBytes: size - bad.Position, FirstBad: bad}
		if err := l.beforeCut(seg, later, scan, io.NewSectionReader(f, 0, size)); err != nil {
			return err
		}
		if err := f.Truncate(bad.Position); err != nil {
			return err
		}
		scan.Verdict = segment.Torn
		l.reportCut(seg, scan)
		return errors.Join(f.Sync(), l.dropSnapshotsAbove(bad.Offset))
	}
	return errors.Join(cut(), f.Close())
}
