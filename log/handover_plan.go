package log

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/vfs"
)

// look makes the plan.
func (h *handover) look(ctx context.Context) error {
	tps, err := h.src.choose(h.o.Partitions)
	if err != nil {
		return err
	}
	d, err := OpenDir(h.src.path, DirConfig{FS: vfs.Overlay(h.src.fs), Manual: true, NoEvict: true})
	if err != nil {
		return err
	}
	defer d.Close() // what it writes is in memory alone
	h.targets = map[TopicPartition]HandoverPartition{}
	if err := h.readTopics(); err != nil {
		return err
	}
	for _, tp := range tps {
		if err := ctx.Err(); err != nil {
			return err
		}
		p := HandoverPartition{TopicPartition: tp}
		if err := h.lookAtTarget(&p); err != nil {
			return err
		}
		if err := h.lookAtSource(ctx, d, &p); err != nil {
			return err
		}
		h.plan.Partitions = append(h.plan.Partitions, p)
		h.targets[tp] = p
	}
	return nil
}

func (h *handover) refuse(tp TopicPartition, kind, format string, args ...any) {
	h.plan.Problems = append(h.plan.Problems, HandoverProblem{tp, kind, fmt.Sprintf(format, args...)})
}

// internalTopics hold what a cluster knows of itself: another one's would contradict it.
func internalTopic(topic string) bool {
	return topic == "__consumer_offsets" || topic == "__transaction_state" || topic == "__share_group_state" || topic == "__cluster_metadata"
}

// lookAtTarget finds the topic id, and whether the target has something of the partition.
func (h *handover) lookAtTarget(p *HandoverPartition) error {
	tp := p.TopicPartition
	if err := tp.Validate(); err != nil {
		h.refuse(tp, HandoverName, "%v", err)
	}
	if internalTopic(tp.Topic) {
		h.refuse(tp, HandoverInternal, "the topic holds what the source's cluster knows of itself; name the partitions to hand over without it")
	}
	given, isGiven := h.o.Topics[tp.Topic]
	p.TopicID = given
	if h.there != nil {
		have, err := h.targetID(tp)
		if err != nil {
			return err
		}
		if isGiven && !have.IsZero() && have != given {
			h.refuse(tp, HandoverTopicID, "the target's folder has the topic id %v, given was %v", have, checkpoint.ID(given))
		}
		if !have.IsZero() {
			p.TopicID = have
		}
		if err := h.lookForRecords(p); err != nil {
			return err
		}
	}
	if p.TopicID == [16]byte{} {
		h.refuse(tp, HandoverTopicID, "the target's id of the topic is not known: create the topic there and give its id, else the broker sets the folder aside as stray")
		return nil
	}
	if other, ok := h.topics[p.TopicID]; ok && other != tp.Topic {
		h.refuse(tp, HandoverTopicID, "%v is the id of the topic %s: no two have the same", checkpoint.ID(p.TopicID), other)
		return nil
	}
	h.topics[p.TopicID] = tp.Topic
	return nil
}

// readTopics finds the ids that the target's folders have.
func (h *handover) readTopics() error {
	h.topics = map[checkpoint.ID]string{}
	if h.there == nil {
		return nil
	}
	all, _, err := Folders(h.there.fs)
	if err != nil {
		return err
	}
	for _, tp := range all {
		id, ok, err := checkpoint.ReadTopicID(h.there.fs, tp.String()+"/"+checkpoint.Metadata)
		if err == nil && ok { // what cannot be read matters where the topic is handed over, and is looked at there
			h.topics[id] = tp.Topic
		}
	}
	return nil
}

// targetID is the topic id in the target's folders of the topic, this partition's first.
func (h *handover) targetID(tp TopicPartition) (found checkpoint.ID, err error) {
	all, _, err := Folders(h.there.fs)
	if err != nil {
		return found, err
	}
	for _, other := range all {
		if other.Topic != tp.Topic {
			continue
		}
		id, ok, err := checkpoint.ReadTopicID(h.there.fs, other.String()+"/"+checkpoint.Metadata)
		switch {
		case errors.Is(err, checkpoint.ErrFormat):
			h.refuse(tp, HandoverTopicID, "%s of the target's %s is malformed: %v", checkpoint.Metadata, other, err)
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return found, err
		case ok && !found.IsZero() && id != found:
			h.refuse(tp, HandoverTopicID, "the target's folders of the topic have different topic ids")
		case ok:
			found = id
		}
	}
	return found, nil
}

// lookForRecords: an empty folder of the target's is replaced, another is not.
func (h *handover) lookForRecords(p *HandoverPartition) error {
	name := p.String()
	entries, err := h.there.fs.ReadDir(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	p.Replaces = true
	for _, base := range segment.Bases(entries) {
		info, err := h.there.fs.Stat(name + "/" + segment.FileName(base, ".log"))
		if err != nil {
			return err
		}
		if info.Size() > 0 || base > 0 {
			h.refuse(p.TopicPartition, HandoverExists, "the target's partition holds records, or held some: nothing is overwritten")
			return nil
		}
	}
	return nil
}

// lookAtSource opens the partition in memory, which recovers it as the copy will be.
func (h *handover) lookAtSource(ctx context.Context, d *Dir, p *HandoverPartition) error {
	tp := p.TopicPartition
	l, err := d.Open(ctx, tp, keptUnder(h.o.Config))
	if errors.Is(err, ErrCorrupt) {
		h.refuse(tp, HandoverDamaged, "%v; repair a copy of it first", err)
		return nil
	}
	if err != nil {
		return err
	}
	for _, f := range l.Recovery().Findings {
		if f.Kind == FindingShort || f.Kind == FindingProducers {
			h.refuse(tp, HandoverDamaged, "%s: %s", f.File, f.Detail)
		}
	}
	if h.verifies {
		if err := h.verify(ctx, l); err != nil {
			return err
		}
	}
	o := l.Offsets()
	p.LogStart, p.LogEnd, p.Bytes = o.LogStart, o.LogEnd, l.segments().bytes()
	cut, ok := h.src.points[checkpoint.HighWatermarks][checkpoint.Partition(tp)]
	switch {
	case h.o.Everything:
		cut = o.LogEnd
	case h.src.lost[checkpoint.HighWatermarks] != nil:
		h.refuse(tp, HandoverHighWatermark, "%v: how far the records are replicated is not known", h.src.lost[checkpoint.HighWatermarks])
		return nil
	case !ok && o.LogEnd > o.LogStart:
		h.refuse(tp, HandoverHighWatermark, "%s says nothing of it: how far the records are replicated is not known", checkpoint.HighWatermarks)
		return nil
	}
	p.Cut = max(min(cut, o.LogEnd), o.LogStart)
	if p.Cut < o.LogEnd {
		if p.Cut, err = l.Truncate(ctx, p.Cut); err != nil {
			return err
		}
		p.LogStart = l.Offsets().LogStart
	}
	if p.Open = l.OpenTransactions(); len(p.Open) > 0 && !h.o.Abort {
		h.refuse(tp, HandoverTransactions, "open transactions: %d, the first since offset %d (producer %d): end them, or have them aborted",
			len(p.Open), p.Open[0].FirstOffset, p.Open[0].ProducerID)
	}
	return l.Close()
}

// verify looks for what a hand-over would find in its copy.
func (h *handover) verify(ctx context.Context, l *Log) error {
	for f, err := range l.Verify(ctx) {
		if err != nil {
			return err
		}
		h.refuse(l.tp, HandoverDamaged, "%s: %s", f.File, f.Detail)
	}
	return nil
}

// String is for people: what would be done, and what stands against it.
func (p HandoverPlan) String() string {
	var text strings.Builder
	for _, q := range p.Partitions {
		fmt.Fprintf(&text, "%s: offsets %d to %d of %d to %d, topic id %v\n", q.TopicPartition, q.LogStart, q.Cut, q.LogStart, q.LogEnd, checkpoint.ID(q.TopicID))
	}
	for _, q := range p.Problems {
		fmt.Fprintf(&text, "%s: %s: %s\n", q.TopicPartition, q.Kind, q.Detail)
	}
	return text.String()
}
