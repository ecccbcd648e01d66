package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/partlog/partlog/index"
	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/internal/epoch"
	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/vfs"
)

var rootCheckpoints = []string{checkpoint.RecoveryPoints, checkpoint.LogStarts, checkpoint.HighWatermarks, checkpoint.CleanerOffsets}

// rootFiles mends the malformed small files of the root. Lines of other partitions that can be read stay.
func (r *repairer) rootFiles(found []log.Finding) error {
	for _, f := range found {
		switch {
		case strings.Contains(f.File, "/"):
		case f.Kind == log.FindingCheckpoint && f.Position < 0 && f.Offset < 0 && slices.Contains(rootCheckpoints, f.File):
			if err := r.salvage(f.File); err != nil {
				return err
			}
		case f.File == checkpoint.MetaProperties, f.Kind == log.FindingLeftover && strings.HasSuffix(f.File, ".tmp"):
			r.say("move", "%s out: %s", f.File, f.Detail)
			if err := r.q.keepFile(r.fs.FS, f.File); err != nil {
				return err
			}
			if err := r.fs.FS.Remove(f.File); err != nil {
				return err
			}
		}
	}
	return syncDirs(r.fs, ".")
}

// maxCheckpoint bounds what is read of a malformed checkpoint.
const maxCheckpoint = 64 << 20

// salvage writes a checkpoint anew from the lines that can be read. A recovery point that stood in a malformed file is
// not believed: the mended partitions are scanned anyway.
func (r *repairer) salvage(name string) error {
	b, err := vfs.ReadFile(r.fs, name, maxCheckpoint)
	if err != nil {
		return err
	}
	kept := map[checkpoint.Partition]int64{}
	dropped := 0
	for i, line := range strings.Split(string(b), "\n") {
		f := strings.Fields(line)
		if len(f) != 3 {
			if i > 1 && line != "" {
				dropped++
			}
			continue
		}
		partition, err1 := strconv.ParseInt(f[1], 10, 32)
		offset, err2 := strconv.ParseInt(f[2], 10, 64)
		tp := log.TopicPartition{Topic: f[0], Partition: int32(partition)}
		if err1 != nil || err2 != nil || offset < 0 || tp.Validate() != nil || name == checkpoint.RecoveryPoints && slices.Contains(r.t.partitions, tp) {
			dropped++
			continue
		}
		kept[checkpoint.Partition(tp)] = offset
	}
	r.say("rewrite", "%s: lines that make sense and stay %d, others dropped %d", name, len(kept), dropped)
	if err := r.q.keepFile(r.fs.FS, name); err != nil {
		return err
	}
	return checkpoint.WriteOffsets(r.fs, name, kept)
}

// marks drops lines of the root's checkpoints that speak of offsets the log does not have. The recovery point and the
// high watermark are fitted when the log is opened; a start offset or cleaner offset beyond the end would cost records.
func (p *partitionRepair) marks() error {
	key := checkpoint.Partition(p.tp)
	for _, name := range rootCheckpoints {
		offsets, err := checkpoint.ReadOffsets(p.fs, name)
		if err != nil {
			return err
		}
		at, ok := offsets[key]
		if !ok || at >= 0 && (at <= p.end || name == checkpoint.RecoveryPoints || name == checkpoint.HighWatermarks) {
			continue
		}
		p.say("drop", "the line of %s in %s: offset %d, the log ends at %d", p.tp, name, at, p.end)
		if err := p.q.keepFile(p.fs.FS, name); err != nil {
			return err
		}
		delete(offsets, key)
		if err := checkpoint.WriteOffsets(p.fs, name, offsets); err != nil {
			return err
		}
	}
	return nil
}

// derived rebuilds what the mended log no longer agrees with.
func (p *partitionRepair) derived() error {
	view := *p.t
	view.fs, view.isRoot, view.partitions = p.fs, false, []log.TopicPartition{p.tp}
	found, err := verifyAll(p.ctx, p.e, &view, p.c)
	if err != nil {
		return err
	}
	if p.interval == 0 {
		p.interval = p.guessInterval(found)
	}
	done := map[string]bool{}
	for _, f := range found {
		if path.Dir(f.File) != p.folder {
			continue
		}
		digits, _, _ := strings.Cut(path.Base(f.File), ".")
		base, _ := offsetArg(digits)
		what, fix := p.fixOf(f, base)
		if what == "" || done[what] {
			continue
		}
		done[what] = true
		if err := fix(); err != nil {
			return err
		}
	}
	return p.sync()
}

// fixOf is what to do about a finding, and a name for it, since one step may mend several findings.
func (p *partitionRepair) fixOf(f log.Finding, base int64) (string, func() error) {
	switch f.Kind {
	case log.FindingIndex, log.FindingTimeIndex:
		return fmt.Sprint("indexes ", base), func() error { return p.rebuildIndexes(base) }
	case log.FindingTxnIndex:
		return "transactions", p.rebuildTransactions
	case log.FindingEpochs:
		return "epochs", p.rebuildEpochs
	case log.FindingSnapshot, log.FindingMetadata, log.FindingLeftover, log.FindingForeign:
		return f.File, func() error { return p.moveOut(f.File, f.Detail) }
	}
	return "", nil
}

// guessInterval is the largest index.interval.bytes that the sound indexes of the folder allow; 0 if they tell nothing.
func (p *partitionRepair) guessInterval(found []log.Finding) int64 {
	bad := map[string]bool{}
	for _, f := range found {
		bad[f.File] = true
	}
	bases, err := segment.List(p.fs, p.folder)
	if err != nil {
		return 0
	}
	narrowest := int64(0)
	for _, base := range bases {
		name := p.path(segment.FileName(base, ".index"))
		b, err := vfs.ReadFile(p.fs, name, maxIndexBytes)
		if err != nil || bad[name] {
			continue
		}
		before := int64(0)
		for ; len(b) >= index.EntrySize; b = b[index.EntrySize:] {
			at := int64(binary.BigEndian.Uint32(b[4:]))
			if at <= before {
				break
			}
			if narrowest == 0 || at-before < narrowest {
				narrowest = at - before
			}
			before = at
		}
	}
	return max(narrowest-1, 0)
}

// rebuildIndexes makes both indexes of a segment anew from its .log.
func (p *partitionRepair) rebuildIndexes(base int64) (err error) {
	p.say("rebuild", "%s and %s", p.path(segment.FileName(base, ".index")), p.path(segment.FileName(base, ".timeindex")))
	for _, ext := range []string{".index", ".timeindex"} {
		if err := p.fs.keepIfThere(p.path(segment.FileName(base, ext))); err != nil {
			return err
		}
	}
	return p.withSegment(base, func(s *segment.Segment) error {
		_, err := s.Recover(p.ctx, segment.ScanOptions{})
		return err
	})
}

func (p *partitionRepair) withSegment(base int64, f func(s *segment.Segment) error) error {
	s, err := segment.Open(p.folder, base, p.segmentOptions(""))
	if err != nil {
		return err
	}
	if err := errors.Join(f(s), s.Sync()); err != nil {
		return errors.Join(err, s.Abandon())
	}
	return s.Close()
}

// batches walks over the whole log in order.
func (p *partitionRepair) batches(each func(base int64, b record.Batch) error) error {
	bases, err := segment.List(p.fs, p.folder)
	if err != nil {
		return err
	}
	for _, base := range bases {
		o := p.segmentOptions("")
		o.ReadOnly = true
		s, err := segment.Open(p.folder, base, o)
		if err != nil {
			return err
		}
		for b, bad := range s.Batches(0) {
			if err = errors.Join(bad, p.ctx.Err()); err == nil {
				err = each(base, b)
			}
			if err != nil {
				break
			}
		}
		if err := errors.Join(err, s.Abandon()); err != nil {
			return err
		}
	}
	return nil
}

// rebuildTransactions writes every index of aborted transactions anew from the markers in the log.
func (p *partitionRepair) rebuildTransactions() error {
	open := map[int64]int64{} // first offset by producer
	aborted := map[int64][]segment.AbortedTxn{}
	decoder := record.NewDecoder(record.Limits{})
	err := p.batches(func(base int64, b record.Batch) error {
		id, _, _ := b.Producer()
		if !b.Transactional() {
			return nil
		}
		if !b.Control() {
			if _, ok := open[id]; !ok {
				open[id] = b.BaseOffset()
			}
			return nil
		}
		for rec, err := range b.Records(decoder) {
			if err != nil {
				return nil // verify reports it; the marker says nothing
			}
			first, ok := open[id]
			t, err := record.ParseControl(rec.Key)
			if err != nil || t != record.Abort && t != record.Commit || !ok {
				continue
			}
			delete(open, id)
			if t == record.Abort {
				stable := rec.Offset + 1
				for _, other := range open {
					stable = min(stable, other)
				}
				aborted[base] = append(aborted[base], segment.AbortedTxn{ProducerID: id, FirstOffset: first, LastOffset: rec.Offset, LastStable: stable})
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	bases, err := segment.List(p.fs, p.folder)
	if err != nil {
		return err
	}
	for _, base := range bases {
		name := p.path(segment.FileName(base, ".txnindex"))
		if _, err := p.fs.Stat(name); err != nil && len(aborted[base]) == 0 {
			continue
		}
		p.say("rebuild", "%s: %s", name, counted(len(aborted[base]), "aborted transaction"))
		if err := p.fs.keepIfThere(name); err != nil {
			return err
		}
		if err := p.withSegment(base, func(s *segment.Segment) error { return s.SetAborted(aborted[base]) }); err != nil {
			return err
		}
	}
	return syncDirs(p.fs, p.folder)
}

// rebuildEpochs writes the leader epoch file anew from the batches.
func (p *partitionRepair) rebuildEpochs() error {
	var list []epoch.Entry
	err := p.batches(func(_ int64, b record.Batch) error {
		if e := b.LeaderEpoch(); e >= 0 && (len(list) == 0 || e > list[len(list)-1].Epoch) {
			list = append(list, epoch.Entry{Epoch: e, StartOffset: b.BaseOffset()})
		}
		return nil
	})
	if err != nil {
		return err
	}
	name := p.path(checkpoint.LeaderEpochs)
	p.say("rebuild", "%s: %s", name, counted(len(list), "epoch"))
	if err := p.fs.keepIfThere(name); err != nil {
		return err
	}
	return checkpoint.WriteEpochs(p.fs, name, list)
}

// sync makes every file of the folder durable: the open that follows believes in what it finds after a clean stop.
func (p *partitionRepair) sync() error {
	bases, err := segment.List(p.fs, p.folder)
	if err != nil {
		return err
	}
	for _, base := range bases {
		if err := p.withSegment(base, func(*segment.Segment) error { return nil }); err != nil {
			return err
		}
	}
	return syncDirs(p.fs, p.folder, ".")
}
