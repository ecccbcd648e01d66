package replica

import (
	"slices"
	"time"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
)

// defaultFetchBytes is a consumer's max.partition.fetch.bytes.
const defaultFetchBytes = 1 << 20

// fetchState is where a fetch is on its way.
//
//	held ──▶ reading ──▶ answered
//	  │       │   ▲
//	  ▼       ▼   │ more was written, time is up
//	 waiting ─────┘
type fetchState uint8

const (
	freeSlot fetchState = iota
	held                // until the leader may begin
	waiting             // for more bytes
	reading             // DoRead is under way
)

// slot is a fetch that is not answered yet.
type slot struct {
	state    fetchState
	final    bool   // whatever the next read gives is the answer
	seen     bool   // the follower's state was updated
	gen      uint32 // of the slot: an answer to an earlier use does not fit
	req      FetchRequest
	deadline time.Time
	got      int64 // bytes of the last read
	grown    int64 // p.grown when the log ended at the bound of the last read
	marks    marks
}

// marks as they stood before a read.
type marks struct{ hw, start, end, stable int64 }

// seenTo is where the fetch saw its end when its read was asked for.
func (s *slot) seenTo() int64 {
	switch {
	case s.req.From != NoNode:
		return s.marks.end
	case s.req.Isolation == log.ReadCommitted:
		return s.marks.stable
	default:
		return s.marks.hw
	}
}

type fetches struct {
	slots   []slot
	free    []int
	waiting int
	open    int
}

func (f *fetches) add(req FetchRequest) int {
	var i int
	if n := len(f.free); n > 0 {
		i, f.free = f.free[n-1], f.free[:n-1]
	} else {
		i = len(f.slots)
		f.slots = append(f.slots, slot{})
	}
	f.slots[i] = slot{state: held, gen: f.slots[i].gen + 1, req: req}
	f.open++
	return i
}

func (f *fetches) remove(i int) {
	f.park(i, freeSlot)
	f.free = append(f.free, i)
	f.open--
}

// park changes the state of a slot.
func (f *fetches) park(i int, s fetchState) {
	if f.slots[i].state == waiting {
		f.waiting--
	}
	if s == waiting {
		f.waiting++
	}
	f.slots[i].state = s
}

func (f *fetches) readTag(i int) uint64 { return uint64(f.slots[i].gen)<<32 | uint64(i+1) }

func (f *fetches) byReadTag(tag uint64) (int, bool) {
	i := int(uint32(tag)) - 1
	if i < 0 || i >= len(f.slots) || f.slots[i].state != reading || f.slots[i].gen != uint32(tag>>32) {
		return 0, false
	}
	return i, true
}

// fetch takes a request of a follower or a consumer.
func (p *Partition) fetch(e FetchRequest) {
	if e.MaxBytes <= 0 {
		e.MaxBytes = defaultFetchBytes
	}
	e.MinBytes = min(e.MinBytes, e.MaxBytes)
	if code := p.mayFetch(&e); code != None {
		p.counts.FetchErrors++
		p.do(Action{Kind: Reply, Tag: e.Tag, To: e.From, Result: p.result(code)})
		return
	}
	i := p.fetches.add(e)
	s := &p.fetches.slots[i]
	s.deadline = p.now.Add(e.MaxWait)
	s.final = e.MaxWait <= 0 || e.MinBytes <= 0
	if p.role == Leader && !p.lead.active {
		return
	}
	p.serve(i)
}

// mayFetch checks who asks, and under which epochs.
func (p *Partition) mayFetch(e *FetchRequest) ErrorCode {
	replica := e.From >= 0
	none := [16]byte{}
	if e.TopicID != p.topicID && e.TopicID != none && p.topicID != none {
		return InconsistentTopicID // its name has been given anew
	}
	if code := p.check(e.LeaderEpoch, replica); code != None || !replica {
		return code
	}
	if p.remote(e.From) == nil {
		if e.LeaderEpoch < 0 {
			return NotLeaderOrFollower
		}
		return UnknownLeaderEpoch // this leader does not know of that replica yet
	}
	if p.staleBroker(e.From, e.BrokerEpoch) {
		return NotLeaderOrFollower
	}
	return None
}

// bound is how far a fetch may see.
func (p *Partition) bound(e *FetchRequest) int64 {
	if e.From != NoNode {
		return p.state.LogEnd
	}
	return p.hw
}

// serve answers a fetch, has its bytes read, or lets it wait.
func (p *Partition) serve(i int) {
	s := &p.fetches.slots[i]
	e := &s.req
	p.fetches.park(i, held)
	s.marks = marks{hw: p.hw, start: p.state.LogStart, end: p.state.LogEnd, stable: min(p.state.LastStable, p.hw)}
	if e.LastFetchedEpoch >= 0 {
		end := endOfEpoch(p.state.Epochs, e.LastFetchedEpoch, p.state.LogEnd)
		if end.Epoch < 0 || e.Offset < p.state.LogStart || p.unproven(e) {
			p.answer(i, OffsetOutOfRange)
			return
		}
		if end.Epoch < e.LastFetchedEpoch || end.End < e.Offset {
			p.answerDiverged(i, end)
			return
		}
	}
	if e.Offset < p.state.LogStart || e.Offset > p.state.LogEnd {
		p.answer(i, OffsetOutOfRange)
		return
	}
	if e.From >= 0 && !s.seen {
		s.seen = true
		p.noteFetch(p.remote(e.From), e, s.marks.end)
	}
	if e.Offset < p.bound(e) {
		p.readFor(i)
		return
	}
	if s.final {
		p.answer(i, None)
		return
	}
	s.got, s.grown = 0, p.grownAtBound(e)
	p.fetches.park(i, waiting)
	p.arm(s.deadline)
}

// unproven says that a replica that is not in sync may have another history right up to where this log starts, and so to its own
// end: the epochs from before are not known here any more. Nothing that it has is needed.
//
//	leader     1@10 (before the records below 10 were deleted: 0@0 1@9)
//	follower   0@0, end 10       its 9 is of epoch 0
func (p *Partition) unproven(e *FetchRequest) bool {
	if e.From < 0 || e.Offset != p.state.LogStart || e.LogStart >= e.Offset || e.LastFetchedEpoch >= p.state.Epochs[0].Epoch {
		return false
	}
	return !p.remote(e.From).inISR
}

// grownAtBound is p.grown when the log ended where e sees its end now, or earlier.
func (p *Partition) grownAtBound(e *FetchRequest) int64 {
	if e.From != NoNode {
		return p.grown
	}
	return p.hwGrown
}

func (p *Partition) readFor(i int) {
	s := &p.fetches.slots[i]
	s.grown = p.grownAtBound(&s.req)
	p.fetches.park(i, reading)
	isolation := log.LogEnd
	if s.req.From == NoNode {
		isolation = min(s.req.Isolation, log.ReadCommitted)
	}
	p.do(Action{Kind: DoRead, To: s.req.From, Tag: p.fetches.readTag(i), Offset: s.req.Offset, MaxBytes: s.req.MaxBytes, Isolation: isolation})
}

// read goes on with a fetch once its bytes are there. If they are too few it waits: then no Reply names the read, and its
// bytes are not needed.
func (p *Partition) read(e Read) {
	i, ok := p.fetches.byReadTag(e.Tag)
	if !ok {
		p.counts.StaleEventsIgnored++
		return
	}
	s := &p.fetches.slots[i]
	if e.Err != nil {
		p.fetches.park(i, held)
		r := p.fetchResult(i, codeOf(e.Err))
		r.Cause = e.Err
		p.reply(i, r, e.Tag)
		return
	}
	if s.marks.stable = min(e.State.LastStable, s.marks.hw); e.State.LogEnd == p.state.LogEnd {
		p.state.LastStable = e.State.LastStable
	}
	cut := e.Bytes > 0 && e.Next < s.seenTo() // by MaxBytes or at a segment's end: no use waiting
	next, gap := min(e.Next, s.marks.end), e.Bytes == 0
	if s.req.From >= 0 {
		if keep, base, ok := gapOfEpochs(p.state.Epochs, s.req.Offset, e.Raw); ok {
			e.Raw, e.Bytes, cut = e.Raw[:keep], int64(keep), true
			next, gap = min(base, s.marks.end), keep == 0
		}
	}
	gap = gap && s.req.From >= 0 && next > s.req.Offset
	if !s.final && e.Bytes < s.req.MinBytes && !cut && !gap && p.now.Before(s.deadline) {
		s.got = e.Bytes
		p.fetches.park(i, waiting)
		p.arm(s.deadline)
		p.wakeOne(i, true)
		return
	}
	r := p.fetchResult(i, None)
	r.Raw, r.Bytes, r.Aborted = e.Raw, e.Bytes, e.Aborted
	if gap {
		r.Gap, r.EpochEnd = true, epochAt(p.state.Epochs, s.req.Offset, next)
	}
	p.reply(i, r, e.Tag)
}

// gapOfEpochs finds, in what was read from offset on, the first gap in which an epoch begins: keep bytes come before it, and it
// reaches to base. A follower that only copied what is behind it would not know of that epoch, or take it to begin later. The leader would tell
// it one day to cut its log there, and it would end below what is committed. Where the first known epoch begins tells nobody to cut.
//
//	leader     0@0  [ gap 1@13 ]  2@14     a follower of epochs 0@0 2@14 is cut, as it has no 1, to 14; there it ends
//	                                       its epoch 0, and the leader has ended that at 13
func gapOfEpochs(epochs []log.EpochEntry, offset int64, raw []byte) (keep int, base int64, ok bool) {
	if len(raw) == 0 || len(epochs) < 2 || epochs[len(epochs)-1].Start < offset {
		return 0, 0, false
	}
	begins := func(base int64) bool {
		return slices.ContainsFunc(epochs[1:], func(e log.EpochEntry) bool { return offset <= e.Start && e.Start < base })
	}
	for rest := raw; len(rest) > 0; {
		b, behind, err := record.Next(rest)
		if err != nil {
			break // a torn one at the end
		}
		base := b.BaseOffset()
		if b.Magic() >= 2 && base > offset && begins(base) {
			return len(raw) - len(rest), base, true
		}
		offset, rest = b.NextOffset(), behind
	}
	return 0, 0, false
}

// wake looks at the fetches that wait: the log has grown, or the high watermark has moved.
func (p *Partition) wake(consumers bool) {
	if p.fetches.waiting == 0 {
		return
	}
	for i := range p.fetches.slots {
		if p.fetches.slots[i].state == waiting {
			p.wakeOne(i, consumers)
		}
	}
}

func (p *Partition) wakeOne(i int, consumers bool) {
	s := &p.fetches.slots[i]
	if s.req.From == NoNode && !consumers {
		return
	}
	end := p.bound(&s.req)
	inside := s.req.Offset >= p.state.LogStart && s.req.Offset <= p.state.LogEnd
	enough := s.got+p.grown-s.grown >= s.req.MinBytes
	moved := s.req.From != NoNode || end > s.marks.hw
	if s.req.From == NoNode && s.req.Isolation == log.ReadCommitted { // transactions that end show what was there before
		enough, moved = true, moved || p.state.LastStable > s.marks.stable
	}
	if !inside || s.req.Offset < end && enough && moved {
		p.serve(i)
	}
}

// awaited says that a follower waits for what begins at offset.
func (p *Partition) awaited(offset int64) bool {
	if p.fetches.waiting == 0 {
		return false
	}
	for i := range p.fetches.slots {
		if s := &p.fetches.slots[i]; s.state == waiting && s.req.From != NoNode && s.req.Offset == offset {
			return true
		}
	}
	return false
}

// serveHeld begins with the fetches that came before the leader could.
func (p *Partition) serveHeld() {
	for i := range p.fetches.slots {
		if p.fetches.slots[i].state == held {
			p.serve(i)
		}
	}
}

// withdraw forgets a consumer's fetch.
func (p *Partition) withdraw(e Withdraw) {
	for i := range p.fetches.slots {
		if s := &p.fetches.slots[i]; s.state != freeSlot && s.req.From == NoNode && s.req.Tag == e.Tag {
			p.fetches.remove(i)
			return
		}
	}
}

// expireFetches answers those that have waited long enough with what there is.
func (p *Partition) expireFetches() {
	if p.fetches.waiting == 0 {
		return
	}
	for i := range p.fetches.slots {
		s := &p.fetches.slots[i]
		switch {
		case s.state != waiting:
		case p.now.Before(s.deadline):
			p.arm(s.deadline)
		default:
			s.final = true
			p.serve(i)
		}
	}
}

// recheckFetches answers those that the present role or epoch does not allow any more.
func (p *Partition) recheckFetches() {
	for i := range p.fetches.slots {
		s := &p.fetches.slots[i]
		if s.state == freeSlot {
			continue
		}
		if code := p.mayFetch(&s.req); code != None {
			p.reply(i, p.result(code), 0)
		}
	}
	if p.role == Follower {
		p.serveHeld()
	}
}

func (p *Partition) answer(i int, code ErrorCode) { p.reply(i, p.fetchResult(i, code), 0) }

func (p *Partition) answerDiverged(i int, end log.EpochEnd) {
	r := p.fetchResult(i, None)
	r.Diverged, r.EpochEnd = true, end
	p.reply(i, r, 0)
}

// fetchResult has the marks from before the read.
func (p *Partition) fetchResult(i int, code ErrorCode) Result {
	m := p.fetches.slots[i].marks
	r := p.result(code)
	r.HighWatermark, r.LogStart, r.LogEnd, r.LastStable = m.hw, m.start, m.end, m.stable
	r.Removal = p.removal
	if code != None {
		p.counts.FetchErrors++
	}
	return r
}

func (p *Partition) reply(i int, r Result, readTag uint64) {
	s := &p.fetches.slots[i]
	tag, to := s.req.Tag, s.req.From
	p.fetches.remove(i)
	p.do(Action{Kind: Reply, Tag: tag, To: to, ReadTag: readTag, Result: r})
}
