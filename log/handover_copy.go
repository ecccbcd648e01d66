package log

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/internal/epoch"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/vfs"
)

// make copies the partitions of the plan to a root of their own, readies them and verifies them. The marks are what the
// target's checkpoints are to say.
func (h *handover) make(ctx context.Context, root vfs.FS) (madeMarks, error) {
	marks := newMadeMarks()
	for _, p := range h.plan.Partitions {
		c := h.src.copying(&h.report, RestoreOptions{Progress: h.o.Progress})
		if err := c.partition(ctx, p.TopicPartition, root, p.TopicPartition.String()); err != nil {
			return nil, err
		}
	}
	if err := h.ready(ctx, root); err != nil {
		return nil, err
	}
	for i, p := range h.plan.Partitions {
		o, err := h.relabel(ctx, root, p)
		if err != nil {
			return nil, fmt.Errorf("ready %s: %w", p.TopicPartition, err)
		}
		made := &h.report.Partitions[i]
		made.LogStart, made.HighWatermark, made.LogEnd = o.LogStart, o.LogEnd, o.LogEnd
		key, base := checkpoint.Partition(p.TopicPartition), int64(0)
		bases, err := segment.List(root, p.TopicPartition.String())
		if err != nil {
			return nil, err
		}
		made.Segments, made.Bytes = len(bases), 0
		for i, at := range bases {
			if i == 0 {
				base = at
			}
			info, err := root.Stat(p.TopicPartition.String() + "/" + segment.FileName(at, ".log"))
			if err != nil {
				return nil, err
			}
			made.Bytes += info.Size()
		}
		marks[checkpoint.HighWatermarks][key] = o.LogEnd
		if o.LogStart > base {
			marks[checkpoint.LogStarts][key] = o.LogStart
		}
	}
	if err := verifyRoot(ctx, root, h.target, nil, h.o.Config, h.o.Progress); err != nil {
		return nil, err
	}
	return marks, nil
}

// ready opens the copies as a root of their own: recovers, cuts and aborts. What that root remembers of them goes again.
func (h *handover) ready(ctx context.Context, root vfs.FS) error {
	marks := newMadeMarks()
	for _, p := range h.plan.Partitions {
		h.src.marksOf(p.TopicPartition, func(file string, at int64) { marks[file][checkpoint.Partition(p.TopicPartition)] = at })
	}
	if err := marks.write(root); err != nil {
		return err
	}
	if h.src.clean {
		if err := checkpoint.WriteCleanMarker(root, h.src.epoch); err != nil {
			return err
		}
	}
	d, err := OpenDir(h.target, DirConfig{FS: root, Manual: true})
	if err != nil {
		return err
	}
	err = h.cut(ctx, d)
	if err = errors.Join(err, d.Close()); err != nil {
		return err
	}
	entries, err := root.ReadDir(".") // what a recovery saved is here too
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.IsDir() {
			if err := root.Remove(e.Name()); err != nil {
				return err
			}
		}
	}
	return nil
}

func (h *handover) cut(ctx context.Context, d *Dir) error {
	for _, p := range h.plan.Partitions {
		l, err := d.Open(ctx, p.TopicPartition, keptUnder(h.o.Config))
		if err != nil {
			return err
		}
		if p.Cut < l.Offsets().LogEnd {
			if _, err := l.Truncate(ctx, p.Cut); err != nil {
				return err
			}
		}
		for _, t := range l.OpenTransactions() {
			if !h.o.Abort {
				return &HandoverError{Problems: []HandoverProblem{{p.TopicPartition, HandoverTransactions, "a transaction is open that was not when it was looked at"}}}
			}
			if _, err := l.AbortTransaction(ctx, t); err != nil {
				return err
			}
		}
		if err := l.Close(); err != nil {
			return err
		}
		o := l.Offsets()
		q := h.targets[p.TopicPartition]
		q.LogStart, q.LogEnd = o.LogStart, o.LogEnd
		h.targets[p.TopicPartition] = q
	}
	return nil
}

// relabel gives the copy the target's topic id, the leader epoch 0 and producers that the target does not know.
func (h *handover) relabel(ctx context.Context, root vfs.FS, p HandoverPartition) (Offsets, error) {
	folder := p.TopicPartition.String()
	made := h.targets[p.TopicPartition]
	o := Offsets{LogStart: made.LogStart, LogEnd: made.LogEnd}
	if err := checkpoint.WriteTopicID(root, folder+"/"+checkpoint.Metadata, p.TopicID); err != nil {
		return o, err
	}
	bases, err := segment.List(root, folder)
	if err != nil {
		return o, err
	}
	epochs := false
	for _, base := range bases {
		any, err := relabelSegment(ctx, root, folder, base)
		if err != nil {
			return o, err
		}
		epochs = epochs || any
		if err := relabelAborted(root, folder, base); err != nil {
			return o, err
		}
	}
	if err := relabelSnapshots(root, folder); err != nil {
		return o, err
	}
	var entries []epoch.Entry
	if epochs && o.LogEnd > o.LogStart {
		entries = []epoch.Entry{{Epoch: 0, StartOffset: o.LogStart}}
	}
	if err := checkpoint.WriteEpochs(root, folder+"/"+checkpoint.LeaderEpochs, entries); err != nil {
		return o, err
	}
	return o, syncDir(root, folder)
}

// relabelSegment writes leader epoch 0 into every batch that has one, and makes its producer a stranger. The formats before 2
// have neither. epochs says whether there are such batches.
func relabelSegment(ctx context.Context, root vfs.FS, folder string, base int64) (epochs bool, err error) {
	seg, err := segment.Open(folder, base, segment.Options{FS: root, ReadOnly: true, Whole: true})
	if err != nil {
		return false, err
	}
	defer seg.Abandon()
	f, err := root.OpenFile(seg.File(), os.O_RDWR, 0)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	at := int64(0)
	_, err = seg.Scan(ctx, segment.ScanOptions{Each: func(b record.Batch) error {
		pos := at
		at += int64(b.Size())
		if b.Magic() < 2 {
			return nil
		}
		epochs = true
		id, _, _ := b.Producer()
		if b.LeaderEpoch() == 0 && stranger(id) == id {
			return nil
		}
		own, err := record.View(bytes.Clone(b.Bytes()))
		if err != nil {
			return err
		}
		own.SetLeaderEpoch(0)
		if stranger(id) != id {
			own.SetProducerID(stranger(id))
		}
		_, err = f.WriteAt(own.Bytes(), pos)
		return err
	}})
	if err != nil {
		return false, err
	}
	return epochs, f.Sync()
}
