package main

import (
	"context"
	"errors"
	"fmt"
	"path"
	"sort"
	"strings"
	"time"

	"github.com/partlog/partlog/compaction"
	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/retention"
)

// state is what a segment is to the cleaners.
type state string

const (
	stateSealed state = "sealed" // closed, of a log that does not compact
	stateClean  state = "clean"  // compacted before
	stateDirty  state = "dirty"  // the next compaction reads it
	stateHeld   state = "held"   // sealed, but a compaction must leave it alone still
	stateActive state = "active" // being written
)

// part is one segment, or several neighbours of many.
type part struct {
	Count             int
	Base, Next, Bytes int64
	From, To          int64 // Unix ms of its records; -1 none, or unknown
	Entries, Times    int64 // of the indexes
	Batches, Records  int64 // -1: not read
	Missing           int64 // offsets without a record
	State             state
	Drop              string // why retention drops it; "" if it stays
	Damage            int    // findings
	Partly            bool   // Batches, Records and Missing are of what could be read

}

// snapshot is all that a report says of one partition.
type snapshot struct {
	tp       log.TopicPartition
	broken   string // why it does not open; only the files are known then
	parts    []part
	o        log.Offsets
	hw       *int64 // as the root remembers it
	topicID  string
	clean    bool
	recovery log.RecoveryReport
	config   log.Config
	assumed  string // how the cleanup policy is known
	epochs   []log.EpochEntry
	open     []log.OpenTransaction
	retain   retention.Plan
	compact  *compaction.Plan // nil: the log does not compact
	findings []log.Finding
	holes    holes
	unread   string // why not all could be read
	now      int64
}

// look gathers a partition's facts. Only the end of ctx is an error.
func (r *reporting) look(ctx context.Context, tp log.TopicPartition, now time.Time) (*snapshot, error) {
	s := &snapshot{tp: tp, now: now.UnixMilli(), findings: r.findings[tp.String()], config: r.configOf(tp)}
	s.assumed = "Kafka's default"
	if r.settings[policyKey] != "" {
		s.assumed = "as given"
	} else if s.config.Cleanup != r.config.Cleanup {
		s.assumed = "the root has a cleaner checkpoint for it"
	}
	if at, ok := r.marks[checkpoint.Partition(tp)]; ok {
		s.hw = &at
	}
	if id, found, err := checkpoint.ReadTopicID(r.t.fs, tp.String()+"/"+checkpoint.Metadata); err == nil && found {
		s.topicID = id.String()
	}
	err := viewed(ctx, r.progress.e, r.t, tp, s.config, r.clock, func(l *log.Log) error { return s.take(ctx, l, now, !r.quick) })
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		s.broken = sentence(err)
		s.listFiles(r)
	}
	s.blame()
	return s, nil
}

// take reads the facts off an open log.
func (s *snapshot) take(ctx context.Context, l *log.Log, now time.Time, read bool) error {
	s.o, s.config, s.recovery, s.clean = l.Offsets(), l.Config(), l.Recovery(), l.Recovery().Clean
	s.epochs, s.open, s.retain = l.Epochs(), l.OpenTransactions(), l.PlanRetention(now)
	before := int64(-1)
	for _, i := range l.SegmentInfos() {
		p := part{Count: 1, Base: i.Base, Next: i.Next, Bytes: i.Bytes, From: before, To: i.LargestTimestamp, Batches: -1, Records: -1,
			Entries: int64(i.IndexEntries), Times: int64(i.TimeIndexEntries), State: stateSealed}
		if p.From < 0 || p.From > p.To {
			p.From = p.To
		}
		if i.Bytes == 0 {
			p.From, p.To = -1, -1
		} else {
			before = p.To
		}
		if !i.Sealed {
			p.State = stateActive
		}
		s.parts = append(s.parts, p)
	}
	for i, d := range s.retain.Drop {
		if i < len(s.parts) && s.parts[i].Base == d.Base {
			s.parts[i].Drop = d.Reason.String()
		}
	}
	if s.config.Cleanup.Has(log.Compact) {
		plan, err := l.PlanCompaction(now)
		if err != nil {
			return err
		}
		s.compact = &plan
		for i := range s.parts {
			s.parts[i].judge(&plan)
		}
	}
	if read && len(s.parts) > 0 {
		return s.read(ctx, l)
	}
	return nil
}

// judge says what a compaction makes of a sealed segment.
func (p *part) judge(plan *compaction.Plan) {
	switch {
	case p.State == stateActive:
	case p.Next <= plan.FirstDirty:
		p.State = stateClean
	case p.Base < plan.Uncleanable:
		p.State = stateDirty
	default:
		p.State = stateHeld
	}
}

// read goes through all batches for what the indexes do not say. It goes on behind damage.
func (s *snapshot) read(ctx context.Context, l *log.Log) error {
	s.holes.begin(s.parts[0].Base, s.o.LogEnd)
	for from := s.o.LogStart; from < s.o.LogEnd; {
		next, err := s.readFrom(ctx, l, from)
		if err == nil {
			if next < s.o.LogEnd {
				s.miss(next, s.o.LogEnd)
			}
			break
		}
		if ctx.Err() != nil {
			return err
		}
		if s.unread == "" {
			s.unread = sentence(err)
		}
		at := s.holding(next)
		s.parts[at].Partly = true
		from = s.parts[at].Next
		if bad, ok := errors.AsType[*log.CorruptError](err); ok && bad.Intact[1] > next {
			from = bad.Intact[1]
		}
	}
	for i := range s.parts {
		if p := &s.parts[i]; p.Next > s.o.LogStart && !p.Partly {
			p.Batches, p.Records = max(p.Batches, 0), max(p.Records, 0)
		}
	}
	return nil
}

// holding is the place of the segment that an offset belongs to.
func (s *snapshot) holding(offset int64) int {
	return max(0, sort.Search(len(s.parts), func(i int) bool { return s.parts[i].Base > offset })-1)
}

// readFrom reads from an offset on as far as it gets.
func (s *snapshot) readFrom(ctx context.Context, l *log.Log, from int64) (next int64, err error) {
	at, next := s.holding(from), from
	for b, err := range l.Batches(ctx, from, log.WithIsolation(log.LogEnd)) {
		if err != nil {
			return next, err
		}
		for at+1 < len(s.parts) && b.LastOffset() >= s.parts[at].Next {
			at++
		}
		s.parts[at].take(b)
		if b.Magic() >= 2 || b.Codec() == 0 { // an old compressed set names its last offset only
			if b.BaseOffset() > next {
				s.miss(next, b.BaseOffset())
			}
			missing := b.NextOffset() - b.BaseOffset() - int64(b.Count())
			s.holes.thin(b.BaseOffset(), b.NextOffset(), missing)
			s.parts[at].Missing += max(0, missing)
		}
		next = max(next, b.NextOffset())
	}
	return next, nil
}

// take counts a batch.
func (p *part) take(b record.Batch) {
	if from := b.BaseTimestamp(); p.Batches < 0 || from >= 0 && from < p.From {
		p.From = from
	}
	p.Batches, p.Records = max(p.Batches, 0)+1, max(p.Records, 0)+int64(b.Count())
}

// miss takes in offsets that no batch holds, for each segment that names them.
func (s *snapshot) miss(from, to int64) {
	s.holes.gap(from, to)
	for i := range s.parts {
		p := &s.parts[i]
		if lo, hi := max(from, p.Base), min(to, p.Next); lo < hi {
			p.Missing += hi - lo
		}
	}
}

// listFiles is what can be said of a partition that does not open: the sizes of its segments.
func (s *snapshot) listFiles(r *reporting) {
	s.parts, s.compact, s.retain = nil, nil, retention.Plan{}
	entries, err := r.t.fs.ReadDir(s.tp.String())
	if err != nil {
		return
	}
	for _, e := range entries {
		digits, isLog := strings.CutSuffix(e.Name(), ".log")
		base, err := offsetArg(digits)
		if !isLog || err != nil || base < 0 {
			continue
		}
		info, err := r.t.fs.Stat(path.Join(s.tp.String(), e.Name()))
		if err != nil {
			continue
		}
		if n := len(s.parts); n > 0 {
			s.parts[n-1].Next = base
		}
		s.parts = append(s.parts, part{Count: 1, Base: base, Next: base + 1, Bytes: info.Size(), From: -1, To: -1, Entries: -1, Times: -1, Batches: -1, Records: -1, State: stateSealed})
	}
	if n := len(s.parts); n > 0 {
		s.parts[n-1].State = stateActive
		s.o.LogStart, s.o.LogEnd = s.parts[0].Base, s.parts[n-1].Next
	}
}

// blame marks the segments that findings speak of.
func (s *snapshot) blame() {
	at := map[int64]int{}
	for i := range s.parts {
		at[s.parts[i].Base] = i
	}
	for _, f := range s.findings {
		digits, _, _ := strings.Cut(path.Base(f.File), ".")
		base, err := offsetArg(digits)
		if i, ok := at[base]; ok && err == nil {
			s.parts[i].Damage++
		}
	}
}

// bytes of all .log files.
func (s *snapshot) bytes() (n int64) {
	for i := range s.parts {
		n += s.parts[i].Bytes
	}
	return n
}

// holes remembers which offsets have no record, as coarse as they can be drawn, and the largest gaps.
type holes struct {
	lo, hi  int64
	cells   [200]float64 // missing offsets
	largest []span64     // descending
	gaps    int64        // how many between batches
	missing int64        // offsets, gaps and those inside batches
}

type span64 struct{ From, To int64 }

func (h *holes) begin(lo, hi int64) { h.lo, h.hi = lo, max(hi, lo+1) }

// gap is a run of offsets between two batches.
func (h *holes) gap(from, to int64) {
	h.gaps++
	h.thin(from, to, to-from)
	i := len(h.largest)
	for i > 0 && h.largest[i-1].To-h.largest[i-1].From < to-from {
		i--
	}
	if i < mostRows {
		h.largest = append(h.largest[:i], append([]span64{{from, to}}, h.largest[i:]...)...)
		h.largest = clip(h.largest, mostRows)
	}
}

// thin is a range of which some offsets have no record.
func (h *holes) thin(from, to, missing int64) {
	if missing <= 0 || to <= from {
		return
	}
	h.missing += missing
	share := float64(missing) / float64(to-from)
	width := float64(h.hi-h.lo) / float64(len(h.cells))
	first := int(float64(max(0, from-h.lo)) / width)
	for i := max(0, first); i < len(h.cells); i++ {
		lo := float64(h.lo) + float64(i)*width
		overlap := min(float64(to), lo+width) - max(float64(from), lo)
		if lo >= float64(to) {
			return
		}
		h.cells[i] += max(0, overlap) * share
	}
}

// sentenceOfRetention says what goes, or what keeps it.
func (s *snapshot) sentenceOfRetention() string {
	what := "the oldest segment"
	text := ""
	if n := len(s.retain.Drop); n > 0 {
		text = fmt.Sprintf("%s would go now, %s; the log would then start at offset %d. ", counted(n, "segment"), size(s.retain.Freed), s.retain.NewStart)
		what = "the next segment"
	}
	if s.retain.RollFirst {
		return text + "The active segment is rolled first, so that an empty one is left."
	}
	return text + upper(held(s.retain, what)) + "."
}

// sentenceOfCompaction says whether the log is due.
func (s *snapshot) sentenceOfCompaction() string {
	d := describeCompaction(*s.compact)
	due := "not due"
	if d.Due {
		due = "due"
	}
	return fmt.Sprintf("%s (%s): clean up to offset %d, cleanable up to %d, where the %s holds it; dirty ratio %.2f.",
		upper(due), d.Why, d.FirstDirtyOffset, d.UncleanableOffset, strings.TrimPrefix(d.HeldBy, "the "), d.DirtyRatio)
}

func upper(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}
