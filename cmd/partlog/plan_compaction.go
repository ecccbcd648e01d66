package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/partlog/partlog/compaction"
	"github.com/partlog/partlog/log"
)

var compactionPlanning = planning{
	name: "compaction", counts: true,
	help: `
plan compaction says what partlog clean, or a broker's cleaner with the same settings, would take on: where the dirty part
begins (cleaner-offset-checkpoint), where it ends and what holds it there, how many bytes are clean and dirty, whether the
log is due (min.cleanable.dirty.ratio, max.compaction.lag.ms), and which segments would become one. It reads only the ends of
segments; with --dry-run it reads the log and counts what would go.

  partlog plan compaction prices-0
  partlog plan compaction prices-0 --dry-run --config delete.retention.ms=0
  partlog plan compaction /var/lib/kafka/data --json | jq 'select(.due) | .partition'

What holds the end: "active segment"; "last stable offset": an open transaction, or the high watermark;
"min.compaction.lag.ms": a record younger than that. A folder does not say what its topic's cleanup.policy is, so it is not
asked for, unless --config gives it.`,
	look: func(ctx context.Context, e *env, l *log.Log, ask planQuestion) error {
		plan, err := l.PlanCompaction(ask.now)
		if err != nil {
			return err
		}
		d := describeCompaction(plan)
		d.Partition, d.Now = l.TopicPartition().String(), ask.now.UnixMilli()
		if ask.settings[policyKey] != "" && !l.Config().Cleanup.Has(log.Compact) {
			d.Due, d.Why = false, "cleanup.policy"
		}
		if ask.dryRun {
			p := &progress{e: e}
			res, err := l.Compact(ctx, log.CompactOptions{Force: true, DryRun: true, Progress: showCleaning(p, l)})
			p.done()
			if err != nil {
				return err
			}
			r := describeCleaning(res)
			d.DryRun = &r
		}
		if ask.json {
			return json.NewEncoder(e.out).Encode(d)
		}
		return d.print(e.out, l)
	},
}

// compactionInfo is a plan of a compaction as JSON.
type compactionInfo struct {
	Partition         string        `json:"partition"`
	Now               int64         `json:"now"`
	Due               bool          `json:"due"`
	Why               string        `json:"why"` // what decides on due
	FirstDirtyOffset  int64         `json:"firstDirtyOffset"`
	UncleanableOffset int64         `json:"uncleanableOffset"`
	HeldBy            string        `json:"heldBy"`
	Reset             *string       `json:"checkpointReset"`
	CleanBytes        int64         `json:"cleanBytes"`
	CleanableBytes    int64         `json:"cleanableBytes"`
	DirtyRatio        float64       `json:"dirtyRatio"`
	OldestDirty       *int64        `json:"oldestDirty"`
	Groups            []groupInfo   `json:"groups"`
	DryRun            *cleaningInfo `json:"dryRun,omitempty"`
}

type groupInfo struct {
	BaseOffset int64 `json:"baseOffset"`
	Segments   int   `json:"segments"`
	Bytes      int64 `json:"bytes"`
}

func describeCompaction(p compaction.Plan) compactionInfo {
	d := compactionInfo{Due: p.Due, FirstDirtyOffset: p.FirstDirty, UncleanableOffset: p.Uncleanable, HeldBy: p.Hold.String(),
		CleanBytes: p.CleanBytes, CleanableBytes: p.CleanableBytes, DirtyRatio: p.DirtyRatio, Groups: []groupInfo{}}
	switch {
	case p.CleanableBytes == 0:
		d.Why = "nothing to clean"
	case p.Overdue:
		d.Why = "max.compaction.lag.ms"
	default:
		d.Why = "min.cleanable.dirty.ratio"
	}
	if p.Reset != compaction.NotReset {
		text := p.Reset.String()
		d.Reset = &text
	}
	if p.OldestDirty >= 0 {
		d.OldestDirty = &p.OldestDirty
	}
	for _, g := range p.Groups {
		d.Groups = append(d.Groups, groupInfo{g.Base, g.Last - g.First + 1, g.Bytes})
	}
	return d
}

func (d *compactionInfo) print(w io.Writer, l *log.Log) error {
	due := "not due"
	if d.Due {
		due = "due"
	}
	_, err := fmt.Fprintf(w, "%s: %s (%s); clean up to offset %d, %s; cleanable up to %d, %s; dirty ratio %.2f\n", d.Partition, due, d.Why,
		d.FirstDirtyOffset, counted(d.CleanBytes, "byte"), d.UncleanableOffset, counted(d.CleanableBytes, "byte"), d.DirtyRatio)
	say := func(format string, args ...any) {
		if err == nil {
			_, err = fmt.Fprintf(w, "  "+format+"\n", args...)
		}
	}
	say("what begins at offset %d stays as it is: %s", d.UncleanableOffset, d.HeldBy)
	if d.Reset != nil {
		say("the cleaner's checkpoint is %s: the dirty part begins at the log start again", *d.Reset)
	}
	if d.OldestDirty != nil {
		say("the oldest dirty segment began at %s", time.UnixMilli(*d.OldestDirty).UTC().Format(stamp))
	}
	for _, g := range d.Groups {
		say("%s from offset %d on, %s: would become one", counted(g.Segments, "segment"), g.BaseOffset, counted(g.Bytes, "byte"))
	}
	if d.DryRun != nil {
		say("a dry run: %s", d.DryRun)
	}
	return err
}

// stamp is how times are printed.
const stamp = "2006-01-02T15:04:05.000Z"

// cleaningInfo is what a compaction did, or would do, as JSON.
type cleaningInfo struct {
	FirstDirtyOffset int64 `json:"firstDirtyOffset"`
	MapFull          bool  `json:"mapFull"`
	Keys             int   `json:"keys"`
	ReadRecords      int64 `json:"readRecords"`
	Superseded       int64 `json:"superseded"`
	Tombstones       int64 `json:"tombstones"`
	Unkeyed          int64 `json:"unkeyed"`
	Aborted          int64 `json:"aborted"`
	Markers          int64 `json:"markers"`
	EmptyBatches     int64 `json:"emptyBatches"`
	Groups           int   `json:"groups"`
	Unchanged        int   `json:"unchangedSegments"`
	BytesBefore      int64 `json:"bytesBefore"`
	BytesAfter       int64 `json:"bytesAfter"`
}

func describeCleaning(r compaction.Result) cleaningInfo {
	return cleaningInfo{r.FirstDirty, r.MapFull, r.Keys, r.Read.Records, r.Superseded, r.Tombstones, r.Unkeyed, r.Aborted, r.Markers,
		r.EmptyBatches, r.Groups, r.Unchanged, r.Before, r.After}
}

// dropped is the number of all records that went.
func (c cleaningInfo) dropped() int64 {
	return c.Superseded + c.Tombstones + c.Unkeyed + c.Aborted + c.Markers
}

// String is what went of how much: "2 of 9 records dropped (2 superseded), 90 bytes now 70; clean up to offset 9".
func (c cleaningInfo) String() string {
	text := fmt.Sprintf("%d of %s dropped", c.dropped(), counted(c.ReadRecords, "record"))
	sep := " ("
	for _, kind := range []struct {
		n    int64
		name string
	}{{c.Superseded, "superseded"}, {c.Tombstones, "tombstones past their time"}, {c.Unkeyed, "without a key"}, {c.Aborted, "aborted"}, {c.Markers, "transaction markers"}} {
		if kind.n > 0 {
			text += fmt.Sprintf("%s%d %s", sep, kind.n, kind.name)
			sep = ", "
		}
	}
	if sep == ", " {
		text += ")"
	}
	return fmt.Sprintf("%s, %s now %d; clean up to offset %d", text, counted(c.BytesBefore, "byte"), c.BytesAfter, c.FirstDirtyOffset)
}

// showCleaning shows how far a compaction has come.
func showCleaning(p *progress, l *log.Log) func(compaction.Progress) {
	return func(at compaction.Progress) {
		p.show("%s: %s, %d of %d bytes, segment %d", l.TopicPartition(), at.Phase, at.Done, at.Total, at.Offset)
	}
}

// cleaningError says of an error of a compaction what a person can do.
func cleaningError(err error) error {
	if errors.Is(err, compaction.ErrMapTooSmall) {
		return worded(err, "the memory for keys has no room for a single one; give more with --map-bytes")
	}
	return err
}
