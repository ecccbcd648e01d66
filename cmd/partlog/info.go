package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/log"
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
			now := nowFlag(fl)
			s := configFlag(fl)
			return func(ctx context.Context, e *env, args []string) error {
				if err := want(args, "DIR"); err != nil {
					return err
				}
				c, err := s.config()
				if err != nil {
					return err
				}
				return runInfo(ctx, e, args[0], c, *now, *asJSON)
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
	t, err := lookAtAll(dir)
	if err != nil {
		return err
	}
	t.notePassed(e)
	clock := now.clock()
	return t.each(ctx, e, "info", func(tp log.TopicPartition) error {
		info, err := inspect(ctx, e, t, tp, c, clock)
		switch {
		case err != nil:
			return err
		case asJSON:
			return json.NewEncoder(e.out).Encode(info)
		}
		return info.print(e.out)
	})
}

// inspect describes one partition as an open would find it.
func inspect(ctx context.Context, e *env, t *target, tp log.TopicPartition, c log.Config, clock func() time.Time) (info *partitionInfo, err error) {
	err = viewed(ctx, e, t, tp, c, clock, func(l *log.Log) error {
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
	if p.LastStableOffset < p.HighWatermark {
		fmt.Fprintf(w, "  last stable offset\t%d: read-committed readers wait for an open transaction (partlog transactions)\n", p.LastStableOffset)
	}
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
