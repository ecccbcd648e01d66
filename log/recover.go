package log

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"strings"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/segment"
)

// recover makes the segments whole. After a clean stop only the active one's end is looked at; otherwise all from the
// recovery point on are read from the device, batch by batch.
//
// Verdicts per segment (D for the offset known durable, the recovery point or the durable hint):
//
//	clean            every batch checks
//	torn             bad bytes at or above D, nothing valid behind    cut, reported
//	torn with valid  bad bytes at or above D, valid batches behind    saved in the root, cut, reported
//	damaged          bad bytes below D                                nothing changed; *CorruptError
//
// Cutting goes from the end of the log towards its start, each step durable before the next, so that a crash inside
// recovery leaves a state that recovers to the same log.
func (l *Log) recover(ctx context.Context, segs segments, at stored) (segments, error) {
	if len(segs) == 0 {
		return l.startEmpty(at.logStart)
	}
	from := max(0, segs.floor(at.recoveryPoint))
	if at.clean {
		if whole, err := cleanEnd(segs.active()); err != nil || whole {
			if err == nil && at.recoveryPoint > 0 {
				err = segs.jumped(at.recoveryPoint)
			}
			if err != nil {
				return segs, err
			}
			return l.startAbove(segs, at)
		}
		from = len(segs) - 1
	}
	l.unlist()
	// The scan learns the epochs from here on; those before must be known, or they are read too.
	if err := l.findLostEpochs(ctx, segs[:from], segs, at.logStart); err != nil {
		return segs, err
	}
	began := segs[from].Base()
	if err := l.beginProducers(ctx, segs, from, at); err != nil {
		return segs, err
	}
	segs, err := l.recoverFrom(ctx, segs, from, at)
	if err != nil {
		return segs, err
	}
	if from, err = l.finishRoll(ctx, segs, from, at); err != nil {
		return segs, err
	}
	// What was read may sit in the page cache alone. Nothing is published before it is on the device.
	if err := l.syncAll(segs[min(from, len(segs)-1):]); err != nil {
		return segs, err
	}
	if err := l.settleSnapshots(began); err != nil {
		return segs, err
	}
	return l.startAbove(segs, at)
}

// finishRoll writes the last time index entry of a segment that ends at the recovery point: it was synced while it was
// active, and a crash during the roll behind it may have left it without. It returns from where on to sync.
func (l *Log) finishRoll(ctx context.Context, segs segments, from int, at stored) (int, error) {
	if at.clean || from == 0 || from >= len(segs) || segs[from].Base() != at.recoveryPoint {
		return from, nil
	}
	err := segs[from-1].Seal(ctx)
	if isNoSpace(err) { // in memory that entry needs no room
		_, err = segs[from-1].Recover(ctx, segment.ScanOptions{Durable: at.durable})
		l.recovery.Unfiled = append(l.recovery.Unfiled, segs[from-1].IndexFile(), segs[from-1].TimeIndexFile())
	}
	if err != nil && !errors.Is(err, segment.ErrCorrupt) {
		return from, err
	}
	return from - 1, nil
}

// cleanEnd says whether the active segment ends with a whole batch. Bytes behind it came after the clean stop.
func cleanEnd(active *segment.Segment) (bool, error) {
	_, err := active.NextOffset()
	if errors.Is(err, segment.ErrCorrupt) {
		return false, nil
	}
	return err == nil, err
}

func (l *Log) recoverFrom(ctx context.Context, segs segments, from int, at stored) (segments, error) {
	told := l.progress(segs[from:])
	for i := from; i < len(segs); i++ {
		if err := l.checkOrder(segs, i); err != nil {
			return segs, err
		}
		later := segs[i+1:]
		var aborted []segment.AbortedTxn
		s, err := segs[i].Recover(ctx, segment.ScanOptions{
			Durable: at.durable,
			Each: func(b record.Batch) error {
				aborted = appendAborted(aborted, l.producers.state.Replay(b), segs[i].Base())
				return l.learnEpoch(b)
			},
			Evict:    !l.dir.cfg.NoEvict,
			Progress: told(segs[i]),
			BeforeCut: func(s segment.Scan, tail io.ReaderAt) error {
				return l.beforeCut(segs[i], later, s, tail)
			},
		})
		l.recovery.Scanned += s.ValidBytes + s.CutBytes
		if err != nil {
			return segs, segs.explain(err)
		}
		if s.IndexesRebuilt {
			l.recovery.Rebuilt = append(l.recovery.Rebuilt, segs[i].IndexFile(), segs[i].TimeIndexFile())
		}
		if s.IndexesKept {
			l.recovery.Unfiled = append(l.recovery.Unfiled, segs[i].IndexFile(), segs[i].TimeIndexFile())
		}
		if err := segs[i].SetAborted(aborted); err != nil {
			return segs, err
		}
		end := s.NextOffset
		if s.CutBytes == 0 && len(later) > 0 {
			end = max(end, later[0].Base())
		}
		if err := l.recoveredTo(end); err != nil {
			return segs, err
		}
		if s.CutBytes == 0 {
			continue
		}
		l.reportCut(segs[i], s)
		return segs[:i+1], l.dropSnapshotsAbove(s.NextOffset)
	}
	return segs, nil
}

// progress tells DirConfig.Progress how far the recovery of these segments is, one after the other.
func (l *Log) progress(segs segments) (of func(*segment.Segment) func(done, total int64)) {
	tell, total, before := l.dir.cfg.Progress, segs.bytes(), int64(0)
	return func(seg *segment.Segment) func(done, total int64) {
		if tell == nil {
			return nil
		}
		base := before
		before += seg.Size()
		return func(done, _ int64) { tell(l.tp, min(base+done, total), total) }
	}
}

// checkOrder refuses a segment that overlaps the one before it, or whose leader epochs fall below its predecessor's: a
// stale history that a lost rename brought back, never a continuation.
func (l *Log) checkOrder(segs segments, i int) error {
	if i == 0 || segs[i].Size() == 0 {
		return nil
	}
	prevEnd, err := segs[i-1].NextOffset()
	if err != nil {
		return segs.explain(err)
	}
	first, err := segs[i].First()
	if errors.Is(err, segment.ErrCorrupt) || errors.Is(err, segment.ErrNotFound) {
		return nil // the scan will say so
	}
	if err != nil {
		return err
	}
	reason := ""
	if prevEnd > segs[i].Base() {
		reason = fmt.Sprintf("overlaps the segment before it, which ends at offset %d", prevEnd)
	} else if segs[i-1].Size() > 0 {
		last, err := segs[i-1].Find(prevEnd - 1)
		if err != nil {
			return segs.explain(err)
		}
		if first.LeaderEpoch >= 0 && first.LeaderEpoch < last.LeaderEpoch {
			reason = fmt.Sprintf("begins in leader epoch %d, the segment before it ends in %d", first.LeaderEpoch, last.LeaderEpoch)
		}
	}
	if reason == "" {
		return nil
	}
	return &CorruptError{File: segs[i].File(), Offset: segs[i].Base(), Intact: [2]int64{prevEnd, segs[i].Base()}, Err: errors.New(reason)}
}

// beforeCut runs when a segment is about to be shortened: first the segments behind it go, highest first, then what is
// cut is saved if it holds whole batches.
func (l *Log) beforeCut(seg *segment.Segment, later segments, s segment.Scan, tail io.ReaderAt) error {
	for i := len(later) - 1; i >= 0; i-- {
		if err := l.setAside(later[i], "the log was cut before this segment"); err != nil {
			return err
		}
	}
	if len(later) > 0 {
		if err := l.syncDir(); err != nil {
			return err
		}
	}
	if s.Verdict != segment.TornWithValid {
		return nil
	}
	return l.saveTail(seg, s, tail)
}

// setAside takes a segment that cannot follow any more out of the folder. Its records, if it has any, become a plain
// file in the root, where no broker takes it for a log.
func (l *Log) setAside(seg *segment.Segment, why string) error {
	if seg.Size() > 0 {
		saved := l.savedName(seg.Base(), 0)
		l.recovery.SetAside += seg.Size()
		l.recovery.Saved = append(l.recovery.Saved, saved)
		l.find(Finding{File: seg.File(), Position: 0, Offset: seg.Base(), Kind: FindingTail,
			Detail: why + "; its file is kept as " + saved})
		if err := l.fs.Rename(seg.File(), saved); err != nil {
			return err
		}
		if err := syncDir(l.fs, "."); err != nil {
			return err
		}
		if err := l.syncDir(); err != nil { // before what is derived goes: a power loss may undo the rename alone
			return err
		}
	}
	return discard(seg)
}

// savedName is a plain file of the root for bytes cut out of a segment from a position on: a new one each time, so that
// nothing saved earlier is lost. Where the partition's name is so long that no file could be called that, its end is left out.
func (l *Log) savedName(base, position int64) string {
	const longest, behind = 255, len(".18446744073709551615.from-2147483647.cut.2147483647")
	of := l.name
	if len(of) > longest-behind {
		of = fmt.Sprintf("%s~%08x", of[:longest-behind-9], crc32.ChecksumIEEE([]byte(of)))
	}
	first := fmt.Sprintf("%s.%020d.from-%d.cut", of, base, position)
	name := first
	for n := 2; n < math.MaxInt32; n++ {
		if _, err := l.fs.Stat(name); err != nil { // what keeps it from being looked at keeps it from being written
			break
		}
		name = fmt.Sprintf("%s.%d", first, n)
	}
	return name
}

// saveTail copies the bytes about to be cut, and makes the copy durable.
func (l *Log) saveTail(seg *segment.Segment, s segment.Scan, tail io.ReaderAt) error {
	name := l.savedName(seg.Base(), s.ValidBytes)
	if err := copyOut(l.fs, name, io.NewSectionReader(tail, s.ValidBytes, s.CutBytes)); err != nil {
		return fmt.Errorf("save %d bytes cut from %s: %w", s.CutBytes, seg.File(), err)
	}
	l.recovery.Saved = append(l.recovery.Saved, name)
	return nil
}

// reportCut tells what was cut. Zeros in a log that reserves room (Config.Preallocate) are that room: nothing is lost with them.
func (l *Log) reportCut(seg *segment.Segment, s segment.Scan) {
	if s.ZeroTail && l.cfg().Preallocate {
		return
	}
	l.recovery.Cut += s.CutBytes
	why := "unreadable bytes"
	switch {
	case s.ZeroTail:
		why = "zeros: room that a writer with preallocate reserved, or a length that reached the device before its data"
	case s.FirstBad != nil:
		why = s.FirstBad.Reason
	}
	detail := fmt.Sprintf("%d bytes cut: %s", s.CutBytes, why)
	if s.Verdict == segment.TornWithValid {
		detail += fmt.Sprintf("; %d whole batches stood behind and were kept as %s", s.ValidBehind, l.recovery.Saved[len(l.recovery.Saved)-1])
	}
	l.find(Finding{File: seg.File(), Position: s.ValidBytes, Offset: s.NextOffset, Kind: FindingTail, Detail: detail})
}

// startEmpty makes the first segment of a folder that has none.
func (l *Log) startEmpty(base int64) (segments, error) {
	l.unlist()
	seg, err := segment.Create(l.name, base, l.cfg().segOpts)
	if err != nil {
		return nil, err
	}
	return segments{seg}, l.syncDir()
}

// startAbove handles a log whose start offset lies behind its end: every record it holds was deleted, or the data below
// the start is gone. Kafka starts over at the start offset; the files are kept as plain files in the root.
func (l *Log) startAbove(segs segments, at stored) (segments, error) {
	end, err := segs.active().NextOffset()
	if err != nil {
		return segs, segs.explain(err)
	}
	if known := max(at.recoveryPoint, at.hint); end < known {
		l.find(Finding{File: segs.active().File(), Position: segs.active().Size(), Offset: end, Kind: FindingShort,
			Detail: fmt.Sprintf("the log ends with a whole batch at offset %d, but all up to offset %d was known to be on the device: the records between are gone", end, known)})
	}
	if end >= at.logStart {
		return segs, nil
	}
	l.unlist()
	l.find(Finding{File: segs.active().File(), Position: -1, Offset: end, Kind: FindingShort,
		Detail: fmt.Sprintf("the log ends at offset %d, below its start offset %d; it starts over there", end, at.logStart)})
	for i := len(segs) - 1; i >= 0; i-- {
		if err := l.setAside(segs[i], "the log starts over behind this segment"); err != nil {
			return segs, err
		}
	}
	if err := l.epochs.Clear(); err != nil {
		return segs, err
	}
	if err := l.dropSnapshotsAbove(-1); err != nil {
		return segs, err
	}
	return l.startEmpty(at.logStart)
}

// dropSnapshotsAbove removes producer snapshots that speak of offsets the log no longer has.
func (l *Log) dropSnapshotsAbove(end int64) error {
	entries, err := l.listing()
	if err != nil {
		return err
	}
	for _, e := range entries {
		if snapshotOffset(e.Name()) > end {
			if err := l.removeFile(e.Name()); err != nil {
				return err
			}
		}
	}
	return nil
}

// snapshotOffset is the offset that a file is named after if it is a producer snapshot, else -1.
func snapshotOffset(name string) int64 {
	digits, ok := strings.CutSuffix(name, ".snapshot")
	if !ok {
		return -1
	}
	offset, err := parseOffset(digits)
	if err != nil {
		return -1
	}
	return offset
}
