package log

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/partlog/partlog/internal/producerstate"
	"github.com/partlog/partlog/record"
)

// mostProducers bounds the memory of a check: a producer costs about 190 bytes. A log with more that are alive at once is
// checked up to there, as far as producers go.
const mostProducers = 1 << 19

// producerCheck replays the batches, as the walk meets them, into a producer state of its own, and holds against it what is
// derived from them: every snapshot when its offset is reached, the indexes of aborted transactions marker by marker, and,
// in a running log, the state that it works with.
//
// What the batches cannot tell is not blamed. Producers are forgotten by time; those of deleted records may be gone, or only
// be known from a snapshot; compaction takes batches and markers away, and keeps emptied ones.
type producerCheck struct {
	state     *producerstate.State
	start     int64 // base of the first segment: what was written below is not there to be compared
	at        int64 // behind the last batch
	newest    int64 // timestamp so far
	most      int
	snapshots []snapshotFile // not yet reached, by offset
	any       bool           // there was a snapshot

	loose bool               // offsets or records are missing below at, or producers had to be left out
	blind bool               // too many producers
	data  map[int64]struct{} // producers whose open transaction has records left

	claims      []stableClaim // not yet proven right or wrong
	overclaimed []*faults     // proven wrong, one for each file
}

type snapshotFile struct {
	name   string // in the folder
	offset int64
}

// begin lists the snapshots of the folder.
func (p *producerCheck) begin(c *folderCheck, entries []fs.DirEntry) {
	p.state = producerstate.New(producerstate.Config{ExpireAfter: c.expiry()}, 0)
	p.most, p.newest, p.data = cmp.Or(c.most, mostProducers), math.MinInt64, map[int64]struct{}{}
	if len(c.bases) > 0 {
		p.start = c.bases[0]
	}
	p.at = p.start
	for _, f := range entries {
		digits, ok := strings.CutSuffix(f.Name(), ".snapshot")
		offset, err := parseOffset(digits)
		if ok && err == nil && !f.IsDir() {
			p.snapshots = append(p.snapshots, snapshotFile{f.Name(), offset})
		}
	}
	p.any = len(p.snapshots) > 0
	slices.SortFunc(p.snapshots, func(a, b snapshotFile) int { return cmp.Compare(a.offset, b.offset) })
}

// expiry is producer.id.expiration.ms, negative for never.
func (v *verifier) expiry() int64 {
	switch {
	case v.o.ProducerExpiry == 0:
		return (24 * time.Hour).Milliseconds()
	case v.o.ProducerExpiry < 0:
		return -1
	}
	return max(1, v.o.ProducerExpiry.Milliseconds())
}

// batch is called for every valid batch, in order.
func (p *producerCheck) batch(s *segmentCheck, b record.Batch) {
	base, last := b.BaseOffset(), b.LastOffset()
	p.reach(s.folderCheck, base, last)
	if base > p.at || b.Magic() >= 2 && int64(b.Count()) < last-base+1 {
		p.loose = true
	}
	p.at = max(p.at, last+1)
	p.newest = max(p.newest, b.MaxTimestamp())
	id, _, _ := b.Producer()
	if id < 0 || p.blind {
		return
	}
	if b.Transactional() && !b.Control() {
		p.begins(s.folderCheck, base)
	}
	_, records := p.data[id]
	completed := p.state.Replay(b).Completed()
	s.txns.marker(b, id, completed, records)
	switch {
	case b.Control():
		delete(p.data, id)
	case b.Transactional() && b.Count() > 0 && len(p.data) < mostProducers:
		p.data[id] = struct{}{}
	}
	if len(completed) > 0 {
		p.state.OnHighWatermark(min(p.at, s.replicated()))
	}
	if p.state.Len() > p.most { // those that the log itself may have forgotten
		p.loose = true
		if p.state.Expire(p.newest); p.state.Len() > p.most {
			p.state.Reset(p.at)
			p.blind = true
		}
	}
}

// replicated is the high watermark of a running log; files at rest have none that could be known.
func (c *folderCheck) replicated() int64 {
	if c.live == nil {
		return math.MaxInt64
	}
	return c.live.offsets.HighWatermark
}

// reach checks the snapshots up to the batch of [base, last].
func (p *producerCheck) reach(c *folderCheck, base, last int64) {
	for len(p.snapshots) > 0 && p.snapshots[0].offset <= last && c.going() {
		f := p.snapshots[0]
		p.snapshots = p.snapshots[1:]
		p.snapshot(c, f, f.offset > base && f.offset > p.start, false)
	}
}

// finish checks the snapshots at the end, and what a running log knows.
func (p *producerCheck) finish(c *folderCheck) {
	p.begins(c, max(c.end, p.at, c.emptyEnd()))
	for _, f := range p.overclaimed {
		f.report(c.verifier, "entry")
	}
	for len(p.snapshots) > 0 && c.going() {
		f := p.snapshots[0]
		p.snapshots = p.snapshots[1:]
		p.snapshot(c, f, false, f.offset > max(c.end, p.at, c.emptyEnd()))
	}
	switch {
	case !c.going():
	case c.live != nil:
		p.live(c)
	case !p.any && c.marks.clean && p.sees(c):
		p.missing(c)
	}
}

// sees says whether the state can be believed: every batch so far was there to be read.
func (p *producerCheck) sees(c *folderCheck) bool { return c.complete && !p.blind }

// snapshot checks one file. inside says that its offset lies within a batch, beyond that it lies behind the log.
func (p *producerCheck) snapshot(c *folderCheck, f snapshotFile, inside, beyond bool) {
	name := c.path(f.name)
	if c.live != nil && (f.offset > c.live.offsets.LogEnd || c.live.changed()) {
		return
	}
	entries, err := producerstate.ReadSnapshot(c.fs, name)
	if corrupt, ok := errors.AsType[*producerstate.CorruptError](err); ok {
		c.find(FindingSnapshot, name, corrupt.Position, f.offset, "%s; an older snapshot is used and the log read from there", corrupt.Reason)
		return
	}
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) || c.live == nil {
			c.fail(err)
		}
		return
	}
	if reason, position := impossible(entries, f.offset); reason != "" {
		c.find(FindingSnapshot, name, position, f.offset, "%s", reason)
		return
	}
	switch {
	case beyond:
		if c.complete && c.live == nil {
			c.find(FindingSnapshot, name, -1, f.offset, "it speaks of offsets up to %d, but the log ends at %d", f.offset, c.end)
		}
	case c.live == nil && f.offset > c.rebuilt || !p.sees(c): // a recovery makes it anew; or nobody can say
	case inside:
		c.find(FindingSnapshot, name, -1, f.offset, "its offset lies within a batch, where no log takes a snapshot: what is behind it would be counted twice, or not at all")
	default:
		j := p.judge(c, f.offset, p.written(c, name))
		if bad := j.compare(entries); bad != nil {
			bad.kind, bad.file, bad.offset = FindingSnapshot, name, f.offset
			bad.report(c.verifier, "producer")
		}
	}
}

// entryAt is where the i-th producer of a snapshot stands.
func entryAt(i int) int64 { return 10 + 46*int64(i) }

// impossible says what no log can have led to.
func impossible(entries []producerstate.Entry, offset int64) (reason string, position int64) {
	seen := make(map[int64]struct{}, len(entries))
	for i, e := range entries {
		_, twice := seen[e.ProducerID]
		seen[e.ProducerID] = struct{}{}
		switch {
		case twice:
			reason = fmt.Sprintf("producer %d is there twice: an older snapshot is used and the log read from there", e.ProducerID)
		case e.LastOffset >= offset || e.TxnFirstOffset >= offset:
			reason = fmt.Sprintf("producer %d speaks of offset %d, but the snapshot covers offsets below %d", e.ProducerID, max(e.LastOffset, e.TxnFirstOffset), offset)
		case e.ProducerID < 0 || e.Epoch < -1 || e.LastSequence < -1 || e.LastOffset < -1 || e.OffsetDelta < 0 || e.TxnFirstOffset < -1 || e.CoordinatorEpoch < -1:
			reason = fmt.Sprintf("producer %d has a negative field: an older snapshot is used and the log read from there", e.ProducerID)
		}
		if reason != "" {
			return reason, entryAt(i)
		}
	}
	return "", 0
}

// written is when a snapshot was taken at the latest: the time of its file, where that can be right.
func (p *producerCheck) written(c *folderCheck, name string) int64 {
	now := c.now().UnixMilli()
	if info, err := c.fs.Stat(name); err == nil {
		if ms := info.ModTime().UnixMilli(); ms >= p.newest && ms < now {
			return ms
		}
	}
	return now
}

// missing reports that a broker would forget the producers of a log.
func (p *producerCheck) missing(c *folderCheck) {
	j := p.judge(c, p.at, c.now().UnixMilli())
	lost := 0
	for _, w := range p.state.Producers() {
		if !j.mayLack(w) {
			lost++
		}
	}
	if lost > 0 {
		name := c.path(producerstate.FileName(p.at))
		c.find(FindingSnapshot, name, -1, p.at, "no snapshot is there, but the log has %s: a broker that finds none after a clean stop forgets them, takes a repeated batch for a new one, and shows the records of open transactions; an open here reads the log instead",
			counted(lost, "producer"))
	}
}

// live compares what a running log works with.
func (p *producerCheck) live(c *folderCheck) {
	l := c.live
	if !p.sees(c) || l.changed() || p.at > l.offsets.LogEnd {
		return
	}
	j := p.judge(c, l.offsets.LogEnd, c.now().UnixMilli())
	if bad := j.compare(l.producers); bad != nil {
		bad.kind, bad.file, bad.position, bad.offset = FindingProducers, c.name, -1, l.offsets.LogEnd
		bad.report(c.verifier, "producer")
	}
	want := p.state.Unstable().LastStable(l.offsets.HighWatermark, l.offsets.LogStart)
	switch have := l.offsets.LastStable; {
	case have == want || j.loose || want <= l.offsets.LogStart: // of a transaction of deleted records a log may know nothing
	case have > want:
		c.find(FindingProducers, c.name, -1, want, "the last stable offset is %d, by the batches it is %d: read-committed readers are shown an open transaction", have, want)
	case have > l.offsets.LogStart || p.start == 0: // else it knows of one that was deleted with its segment
		c.find(FindingProducers, c.name, -1, have, "the last stable offset is %d, by the batches it is %d: read-committed readers wait for a transaction that is over", have, want)
	}
}

// judgement compares entries with the state at one offset.
type judgement struct {
	p                *producerCheck
	logStart, expire int64
	written          int64 // Unix ms: who was too old then may be forgotten
	loose            bool
}

func (p *producerCheck) judge(c *folderCheck, offset, written int64) judgement {
	return judgement{p: p, logStart: c.logStart, expire: c.expiry(), written: written, loose: p.loose || offset > p.at}
}

// compare gives the first producer that is not as the batches have it, and counts the others.
func (j judgement) compare(entries []producerstate.Entry) *faults {
	var bad *faults
	note := func(position int64, id int64, says string) {
		if bad == nil {
			bad = &faults{position: position, detail: fmt.Sprintf("producer %d %s", id, says)}
			return
		}
		bad.more++
	}
	there := make(map[int64]struct{}, len(entries))
	known := 0
	for i, e := range entries {
		there[e.ProducerID] = struct{}{}
		w, ok := j.p.state.Producer(e.ProducerID)
		if ok {
			known++
		}
		if says := j.differs(e, w, ok); says != "" {
			note(entryAt(i), e.ProducerID, says)
		}
	}
	if known == j.p.state.Len() {
		return bad
	}
	for _, w := range j.p.state.Producers() {
		if _, ok := there[w.ProducerID]; ok || j.mayLack(w) {
			continue
		}
		says := fmt.Sprintf("is not there, but wrote up to offset %d: its repeated batches would be written again", w.LastOffset)
		if w.TxnFirstOffset >= 0 {
			says = fmt.Sprintf("is not there, but has a transaction open since offset %d: read-committed readers would be shown its records", w.TxnFirstOffset)
		}
		note(-1, w.ProducerID, says)
	}
	return bad
}

// mayLack says whether a producer may rightly be forgotten.
func (j judgement) mayLack(w producerstate.Entry) bool {
	if w.LastOffset < j.logStart && (w.LastOffset >= 0 || j.logStart > j.p.start) {
		return true // a log that was opened since has not read the deleted records
	}
	open := w.TxnFirstOffset >= j.logStart && !j.loose // else it may be forgotten, or its marker be gone
	return !open && j.expire >= 0 && w.Timestamp <= j.written-j.expire
}

// differs says how an entry contradicts the batches; "" if it does not. w is what they say, if they know the producer.
func (j judgement) differs(e, w producerstate.Entry, known bool) string {
	start := j.p.start
	switch {
	case !known && (e.LastOffset < start && (e.LastOffset >= 0 || start > 0) || j.loose):
		return ""
	case !known:
		return fmt.Sprintf("is there with a batch that ends at offset %d, but the log has none of it", e.LastOffset)
	case e.Epoch != w.Epoch:
		return j.epochDiffers(e, w)
	case e.LastOffset < w.LastOffset && !(e.LastOffset < 0 && e.CoordinatorEpoch >= 0): // that is one forgotten before its last marker
		return fmt.Sprintf("ends at offset %d, but has written up to %d: repeated batches would be written again, and new ones refused", e.LastOffset, w.LastOffset)
	case e.LastOffset > w.LastOffset && !(j.loose || w.LastOffset < 0 && e.LastOffset < start):
		return fmt.Sprintf("ends at offset %d, but its last batch ends at %d", e.LastOffset, w.LastOffset)
	case e.LastOffset == w.LastOffset && e.LastSequence != w.LastSequence:
		return fmt.Sprintf("has sequence %d at offset %d, where its batch has %d: new batches would be refused, or repeated ones written again", e.LastSequence, e.LastOffset, w.LastSequence)
	case e.LastOffset == w.LastOffset && e.OffsetDelta != w.OffsetDelta:
		return fmt.Sprintf("has a last batch from offset %d, which begins at %d: repetitions of it would not be recognised", e.LastOffset-int64(e.OffsetDelta), w.LastOffset-int64(w.OffsetDelta))
	case e.LastOffset == w.LastOffset && e.Timestamp != w.Timestamp && !j.loose:
		return fmt.Sprintf("has time %d, its last record has %d: it would be forgotten at a wrong time", e.Timestamp, w.Timestamp)
	case e.CoordinatorEpoch != w.CoordinatorEpoch && !j.coordinatorMay(e, w):
		return fmt.Sprintf("has coordinator epoch %d, its last marker has %d: a coordinator that was replaced would be heard, or the right one refused", e.CoordinatorEpoch, w.CoordinatorEpoch)
	case e.TxnFirstOffset != w.TxnFirstOffset && !j.txnMay(e, w):
		return txnDiffers(e.TxnFirstOffset, w.TxnFirstOffset)
	}
	return ""
}

// epochDiffers: a marker that compaction took away may have brought a newer epoch.
func (j judgement) epochDiffers(e, w producerstate.Entry) string {
	if j.loose && e.Epoch > w.Epoch {
		return ""
	}
	return fmt.Sprintf("has epoch %d, by its batches it is %d: a writer that was replaced could write again, or the right one is refused", e.Epoch, w.Epoch)
}

// coordinatorMay: the last marker may be below the start or compacted away; or it is older than a time in which the producer
// was forgotten.
func (j judgement) coordinatorMay(e, w producerstate.Entry) bool {
	return e.CoordinatorEpoch == record.NoEpoch || e.CoordinatorEpoch > w.CoordinatorEpoch && (j.loose || w.CoordinatorEpoch < 0 && j.p.start > 0)
}

// txnMay: the transaction's first records may be deleted, or may have been when a log was opened.
func (j judgement) txnMay(e, w producerstate.Entry) bool {
	switch {
	case j.loose:
		return true
	case w.TxnFirstOffset < 0:
		return false
	case e.TxnFirstOffset < 0:
		return w.TxnFirstOffset < j.logStart
	case e.TxnFirstOffset < w.TxnFirstOffset:
		return e.TxnFirstOffset < j.p.start
	}
	return w.TxnFirstOffset < j.logStart && e.TxnFirstOffset <= w.LastOffset
}

func txnDiffers(have, want int64) string {
	switch {
	case want < 0:
		return fmt.Sprintf("has a transaction open since offset %d, which is over: read-committed readers would wait for it for ever", have)
	case have < 0:
		return fmt.Sprintf("has no transaction, but one is open since offset %d: read-committed readers would be shown its records", want)
	}
	return fmt.Sprintf("has a transaction open since offset %d, which began at %d", have, want)
}
