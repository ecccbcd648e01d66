package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/vfs"
)

func infoCommand() *command {
	return &command{
		name: "info", args: "DIR", summary: "offsets, epochs and segments that a log opened here would have, after recovery",
		help: `
info opens the partition as a writer would, recovery included, and tells what came of it. Nothing on disk changes: the
recovery runs over a copy-on-write view in memory, so it works on read-only files, beside a running broker or writer
(whose lock is not asked for), and says beforehand what an open would cut. DIR is a partition folder, or a log root for
all its partitions.

    partlog info orders-0
    partlog info /var/lib/kafka/data --json | jq 'select(.openedClean|not) | .topic'

With --json there is one object a line and partition. Offsets: logStartOffset, logEndOffset, highWatermark and
lastStableOffset as the log would have them, checkpointedHighWatermark and recoveryPoint as the root remembers them (null
if it does not). recovery says what an open would scan, cut, rebuild and find. The high watermark of a log alone is its
end; only with replicas it stays behind.

Exit code 1: a partition is damaged below its recovery point and would not open (see partlog verify, partlog repair).`,
		setup: func(fl *flag.FlagSet) func(context.Context, *env, []string) error {
			asJSON := fl.Bool("json", false, "one JSON object a line and partition")
			var now millis
			fl.Var(&now, "now", "take `TIME` (Unix milliseconds, or 2026-01-31T12:00:00Z) for the present")
			s := configFlag(fl)
			return func(ctx context.Context, e *env, args []string) error {
				if err := want(args, "DIR"); err != nil {
					return err
				}
				c, err := s.config()
				if err != nil {
					return err
				}
				return runInfo(ctx, e, args[0], c, now, *asJSON)
			}
		},
	}
}

// partitionInfo is what info says of a partition, under the names of Kafka's own opinion in the golden folders.
type partitionInfo struct {
	Topic                     string         `json:"topic"`
	Partition                 int32          `json:"partition"`
	LogStartOffset            int64          `json:"logStartOffset"`
	LogEndOffset              int64          `json:"logEndOffset"`
	HighWatermark             int64          `json:"highWatermark"`
	CheckpointedHighWatermark *int64         `json:"checkpointedHighWatermark"`
	LastStableOffset          int64          `json:"lastStableOffset"`
	RecoveryPoint             int64          `json:"recoveryPoint"`
	OpenedClean               bool           `json:"openedClean"`
	LeaderEpochs              []epochInfo    `json:"leaderEpochs"`
	Segments                  []segmentInfo  `json:"segments"`
	Producers                 []producerInfo `json:"producers"`
	AbortedTransactions       []abortedInfo  `json:"abortedTransactions"`
	TopicID                   *string        `json:"topicId"`
	Recovery                  recoveryInfo   `json:"recovery"`
}

type epochInfo struct {
	Epoch       int32 `json:"epoch"`
	StartOffset int64 `json:"startOffset"`
}

type segmentInfo struct {
	BaseOffset       int64 `json:"baseOffset"`
	Size             int64 `json:"size"`
	IndexEntries     int   `json:"indexEntries"`
	TimeIndexEntries int   `json:"timeIndexEntries"`
	LargestTimestamp int64 `json:"largestTimestamp"`
}

type recoveryInfo struct {
	ScannedBytes int64         `json:"scannedBytes"`
	CutBytes     int64         `json:"cutBytes"`
	Saved        []string      `json:"saved"`
	Rebuilt      []string      `json:"rebuilt"`
	Removed      []string      `json:"removed"`
	Findings     []findingInfo `json:"findings"`
}

// findingInfo is a finding as info and verify write it; what is unknown is null.
type findingInfo struct {
	File     string `json:"file"`
	Position *int64 `json:"position"`
	Offset   *int64 `json:"offset"`
	Kind     string `json:"kind"`
	Detail   string `json:"detail"`
}

func describeFinding(f log.Finding) findingInfo {
	out := findingInfo{File: f.File, Kind: f.Kind, Detail: f.Detail}
	if f.Position >= 0 {
		out.Position = &f.Position
	}
	if f.Offset >= 0 {
		out.Offset = &f.Offset
	}
	return out
}

func runInfo(ctx context.Context, e *env, dir string, c log.Config, now millis, asJSON bool) error {
	t, err := lookAt(dir)
	if err != nil {
		return err
	}
	if t.isRoot && len(t.partitions) == 0 {
		return t.noPartition(dir)
	}
	t.notePassed(e)
	clock := now.clock()
	failed := 0
	for _, tp := range t.partitions {
		info, err := inspect(ctx, t, tp, c, clock)
		if err == nil && asJSON {
			err = json.NewEncoder(e.out).Encode(info)
		} else if err == nil {
			err = info.print(e.out)
		}
		if err != nil && (!t.isRoot || ctx.Err() != nil || errors.Is(err, syscall.EPIPE)) {
			return err
		}
		if err != nil {
			fmt.Fprintf(e.err, "partlog info: %s: %s\n", tp, sentence(err))
			failed = max(failed, failureCode(err))
		}
	}
	if failed != 0 {
		return &exit{code: failed}
	}
	return nil
}

// failureCode is the exit code of one partition's error where others follow.
func failureCode(err error) int {
	if errors.Is(err, log.ErrCorrupt) {
		return exitFound
	}
	return exitFailed
}

// viewed opens one partition over a view that keeps every change in memory, and lets go of it.
func viewed(ctx context.Context, t *target, tp log.TopicPartition, c log.Config, clock func() time.Time, look func(*log.Log) error) (err error) {
	if t.folder != "" && t.folder != tp.String() {
		return fmt.Errorf("%s is not how a log spells %s", t.folder, tp)
	}
	view := vfs.Overlay(t.fs)
	d, err := log.OpenDir(t.root, log.DirConfig{FS: view, Now: clock, NoEvict: true, Manual: true})
	if err != nil {
		return err
	}
	defer func() { // what this writes stays in the view as well
		if closed := d.Close(); err == nil && closed != nil {
			err = closed
		}
	}()
	l, err := d.Open(ctx, tp, c)
	if err != nil {
		return err
	}
	return look(l)
}

// inspect describes one partition as an open would find it.
func inspect(ctx context.Context, t *target, tp log.TopicPartition, c log.Config, clock func() time.Time) (info *partitionInfo, err error) {
	err = viewed(ctx, t, tp, c, clock, func(l *log.Log) error {
		info, err = describeLog(t, tp, l)
		return err
	})
	if err != nil {
		return nil, err
	}
	return info, nil
}

func describeLog(t *target, tp log.TopicPartition, l *log.Log) (*partitionInfo, error) {
	o := l.Offsets()
	info := &partitionInfo{Topic: tp.Topic, Partition: tp.Partition, LogStartOffset: o.LogStart, LogEndOffset: o.LogEnd, HighWatermark: o.HighWatermark,
		RecoveryPoint: o.RecoveryPoint, OpenedClean: l.Recovery().Clean, Recovery: describeRecovery(l.Recovery()),
		LastStableOffset: o.LastStable, Producers: describeProducers(l), AbortedTransactions: []abortedInfo{},
		LeaderEpochs: []epochInfo{}, Segments: []segmentInfo{}}
	if marks, err := checkpoint.ReadOffsets(t.fs, checkpoint.HighWatermarks); err == nil { // a malformed one is among the findings
		if hw, ok := marks[checkpoint.Partition(tp)]; ok {
			info.CheckpointedHighWatermark = &hw
		}
	}
	if id, found, err := checkpoint.ReadTopicID(t.fs, tp.String()+"/"+checkpoint.Metadata); err == nil && found {
		text := id.String()
		info.TopicID = &text
	}
	aborted, err := l.AbortedTxns()
	if err != nil {
		return nil, err
	}
	for _, t := range aborted {
		info.AbortedTransactions = append(info.AbortedTransactions, abortedInfo{t.ProducerID, t.FirstOffset, t.LastOffset, t.LastStable})
	}
	for _, ep := range l.Epochs() {
		info.LeaderEpochs = append(info.LeaderEpochs, epochInfo{ep.Epoch, ep.Start})
	}
	for _, s := range l.SegmentInfos() {
		info.Segments = append(info.Segments, segmentInfo{s.Base, s.Bytes, s.IndexEntries, s.TimeIndexEntries, s.LargestTimestamp})
	}
	return info, nil
}

func describeRecovery(r log.RecoveryReport) recoveryInfo {
	out := recoveryInfo{ScannedBytes: r.Scanned, CutBytes: r.Cut, Rebuilt: append([]string{}, r.Rebuilt...), Removed: append([]string{}, r.Removed...), Saved: append([]string{}, r.Saved...), Findings: []findingInfo{}}
	for _, f := range r.Findings {
		out.Findings = append(out.Findings, describeFinding(f))
	}
	return out
}

// print is the form for people.
func (p *partitionInfo) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintf(w, "%s-%d\n", p.Topic, p.Partition)
	stop := "clean"
	if !p.OpenedClean {
		stop = "unclean: an open recovers from the recovery point"
	}
	id := "none"
	if p.TopicID != nil {
		id = *p.TopicID
	}
	fmt.Fprintf(w, "  last stop\t%s\n  topic id\t%s\n", stop, id)
	held := fmt.Sprintf("%d to %d (the next is %d)", p.LogStartOffset, p.LogEndOffset-1, p.LogEndOffset)
	if p.LogStartOffset == p.LogEndOffset {
		held = fmt.Sprintf("none (the next is %d)", p.LogEndOffset)
	}
	fmt.Fprintf(w, "  offsets\t%s\n  high watermark\t%d\n  recovery point\t%d\n", held, p.HighWatermark, p.RecoveryPoint)
	for i, ep := range p.LeaderEpochs {
		label := ""
		if i == 0 {
			label = "leader epochs"
		}
		fmt.Fprintf(w, "  %s\t%d from offset %d\n", label, ep.Epoch, ep.StartOffset)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "  segment\tbytes\tindex entries\ttime entries\tyoungest record\n")
	for _, s := range p.Segments {
		fmt.Fprintf(w, "  %d\t%d\t%d\t%d\t%s\n", s.BaseOffset, s.Size, s.IndexEntries, s.TimeIndexEntries, time.UnixMilli(s.LargestTimestamp).UTC().Format("2006-01-02T15:04:05.000Z"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	r := p.Recovery
	if r.CutBytes > 0 {
		fmt.Fprintf(out, "  an open would cut %s\n", counted(r.CutBytes, "byte"))
	}
	for _, file := range r.Rebuilt {
		fmt.Fprintf(out, "  an open would rebuild %s\n", filepath.ToSlash(file))
	}
	for _, file := range r.Removed {
		fmt.Fprintf(out, "  an open would remove %s\n", filepath.ToSlash(file))
	}
	for _, f := range r.Findings {
		fmt.Fprintf(out, "  %s: %s\n", f.File, f.Detail)
	}
	return nil
}
