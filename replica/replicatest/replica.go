package replicatest

import (
	"errors"
	"slices"
	"time"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/vfs"
)

// rep is a replica on a node: the core, its log, and what the log still has to do.
type rep struct {
	n    *node
	part *part
	p    *replica.Partition
	log  *log.Log

	todo    []replica.Action // of the log, in order; the first is under way if busy
	busy    bool
	stash   map[uint64]stash // what consumers' reads found, by read tag
	tick    time.Duration    // when the next tick comes; 0: none
	unpin   func()
	ceiling int64 // of what compaction may remove for good
	highest int64 // ceiling since the last look at what it did
	leaving bool  // it was told to delete itself
	copied  bool  // what was appended last came from a leader
	gaveUp  bool  // its log failed; what it was doing then is in doubt

	// As the core stands.
	role  replica.Role
	epoch int32
	leads int32 // epoch it serves as leader; -1

	asks    uint64         // tag of the last fetch
	asksOf  replica.NodeID // who it is for
	epochs  []log.EpochEntry
	kept    []log.EpochEntry // by a mutant
	latest  int32
	start   int64
	hw      int64 // last told to the log
	checked int64 // of what lies below its high watermark, how much was compared
}

type stash struct {
	records []seenRecord
	next    int64
	stamp   uint64
}

// highWatermarks are the marks in the checkpoint of a root, by partition; -1 where there is none.
func (s *sim) highWatermarks(fsys vfs.FS) []int64 {
	entries, _ := checkpoint.ReadOffsets(fsys, checkpoint.HighWatermarks)
	marks := make([]int64, len(s.parts))
	for i, p := range s.parts {
		marks[i] = -1
		if at, ok := entries[checkpoint.Partition(p.tp)]; ok {
			marks[i] = at
		}
	}
	return marks
}

// step gives the replica an event.
func (r *rep) step(e replica.Event) {
	n := r.n
	if !n.up || r.p == nil || r.gone() {
		return
	}
	acts := r.p.Step(n.mono(), e, n.acts[:0])
	n.acts = acts
	switch e := e.(type) {
	case replica.Stop:
		r.refresh()
		r.leaving = r.leaving || e.Delete && r.role == replica.Deleted
	case replica.Assign, replica.Assigned:
		r.refresh()
	case replica.Truncated, replica.Appended:
		if r.part.model.lost[n.id] {
			r.refresh()
		}
	}
	for i := range acts {
		r.act(&acts[i])
		if n.s.failure != "" {
			return
		}
	}
	r.arm()
}

// gone says that the replica was deleted, or its process has ended.
func (r *rep) gone() bool { return r.n.seats[r.part.index].rep != r }

// begin gives a log that was opened its replica.
func (r *rep) begin(unclean bool) {
	r.epochs = nil
	start := r.state()
	saved := start.HighWatermark
	if m := r.n.s.mutant; m.forgetMark {
		start.HighWatermark = start.LogStart
	} else if other := r.n.seats[(r.part.index+1)%len(r.n.seats)].rep; m.mixedMarks && other != nil {
		start.HighWatermark = other.hw
	}
	r.p = replica.New(r.part.tp, r.config(), start, unclean)
	for _, o := range r.n.peers {
		if o.Node > 0 {
			r.p.Step(r.n.mono(), o.Peer, nil)
		}
	}
	r.refresh()
	at := r.p.Status().HighWatermark
	if at != saved {
		r.part.fail("node %d begins with a high watermark of %d, its log has %d", r.n.id, at, saved)
	}
	r.hw = at
	r.arm()
}

// refresh notes how the core stands.
func (r *rep) refresh() {
	if r.p == nil {
		return
	}
	st := r.p.Status()
	r.role, r.epoch = st.Role, st.LeaderEpoch
	leads := int32(-1)
	if st.Role == replica.Leader && st.Active {
		leads = st.LeaderEpoch
	}
	if leads >= 0 && leads != r.leads {
		r.leads = leads
		r.part.note("node %d leads epoch %d from %d, high watermark %d, in sync %v", r.n.id, leads, st.EpochStart, st.HighWatermark, st.ISR)
		r.part.model.elected(r, st.HighWatermark)
	}
	r.leads = leads
	if m := &r.part.model; m.lost[r.n.id] && !st.UncleanStop && st.Role != replica.Idle {
		m.lost[r.n.id] = false
		r.part.note("node %d has caught up", r.n.id)
	}
}

func (r *rep) state() replica.LogState {
	o := r.log.Offsets()
	if r.epochs == nil || r.latest != o.LeaderEpoch || r.start != o.LogStart {
		r.epochs, r.latest, r.start = r.log.Epochs(), o.LeaderEpoch, o.LogStart
	}
	if n := len(r.kept); n > 0 && r.kept[n-1].Epoch > o.LeaderEpoch {
		return replica.LogState{Offsets: o, Epochs: r.kept}
	}
	return replica.LogState{Offsets: o, Epochs: r.epochs}
}

// arm asks for the tick the core wants.
func (r *rep) arm() {
	due := r.p.NextTick()
	if due.IsZero() {
		return
	}
	at := due.Sub(began) - r.n.ahead()
	if r.tick > r.n.s.now && r.tick <= at {
		return
	}
	at = max(at, r.n.s.now+time.Microsecond)
	r.tick = at
	r.n.s.schedule(at, r.n, r.n.life, func() {
		if r.tick == at {
			r.tick = 0
		}
		r.step(replica.Tick{})
	})
}

// act carries out an action, or sees to it that it will be.
func (r *rep) act(a *replica.Action) {
	n, s := r.n, r.n.s
	switch a.Kind {
	case replica.SetHighWatermark:
		r.setHighWatermark(a.Offset)
	case replica.DoRead:
		d := *a
		n.later(r.latency(), func() { r.read(d) })
	case replica.SendFetch:
		s.counts.add("fetches", 1)
		to, f := a.To, a.Fetch
		f.MaxBytes = min(f.MaxBytes, r.log.Config().SegmentBytes) // no append takes more
		if s.mutant.unsynced {
			f.Unsynced = 0
		}
		if s.mutant.anyTopic {
			f.TopicID = [16]byte{}
		}
		r.asks, r.asksOf = a.Tag, to
		s.send(n.place(), place(to), func() { s.fetch(r.part.seat(to), f) })
	case replica.Reply:
		r.reply(a)
	case replica.ProposeISR:
		r.propose(*a)
	case replica.SetRemoval:
		r.pin(a.Offset)
	case replica.Fail:
		r.failed(a.Err)
	default:
		r.todo = append(r.todo, *a)
		r.pump()
	}
}

// failed is a replica that gave up: the process has to begin anew.
func (r *rep) failed(err error) {
	n, s := r.n, r.n.s
	r.gaveUp, r.part.model.unfinished[n.id] = true, true
	if !n.shaky() {
		r.part.fail("the replica of node %d gave up: %v", n.id, err)
		return
	}
	r.part.note("the replica of node %d gave up: %v", n.id, err)
	s.counts.add("replicas that gave up", 1)
	if n.dying != nil {
		return
	}
	n.later(0, func() {
		n.kill()
		s.after(20*time.Millisecond, n.start)
	})
}

func (r *rep) latency() time.Duration {
	return r.n.s.between(5*time.Microsecond, 60*time.Microsecond) + r.n.drag
}

// pump begins the next thing the log has to do.
func (r *rep) pump() {
	if r.busy || len(r.todo) == 0 || r.gone() {
		return
	}
	r.busy = true
	r.n.later(r.latency(), func() {
		if r.gone() {
			return
		}
		a := r.todo[0]
		r.todo = slices.Delete(r.todo, 0, 1)
		r.busy = false
		r.carryOut(a)
		r.pump()
	})
}

// drain lets the log finish, for a stop.
func (r *rep) drain() {
	for len(r.todo) > 0 && r.n.s.failure == "" {
		a := r.todo[0]
		r.todo = slices.Delete(r.todo, 0, 1)
		r.carryOut(a)
	}
}

func (r *rep) carryOut(a replica.Action) {
	if r.n.dying != nil {
		return
	}
	r.part.model.begin(r, &a)
	r.perform(a)
	if r.n.dying == nil && !r.gaveUp {
		r.part.model.finished(r.n.id)
	}
}

func (r *rep) perform(a replica.Action) {
	n, s := r.n, r.n.s
	switch a.Kind {
	case replica.DoAppend:
		e := r.append(&a)
		r.step(e)
	case replica.DoTruncate:
		before := r.log.Offsets().LogEnd
		stale := r.epochs
		to := a.Offset
		if s.mutant.cutMore && to > 0 && to < before {
			to--
		} else if s.mutant.cutLess && to < before {
			to++
		}
		end, err := r.log.Truncate(s.ctx, to)
		if err == nil {
			if end < before {
				s.counts.add("truncations", 1)
				s.counts.add("records truncated", before-end)
				r.part.note("node %d cuts its log from %d to %d", n.id, before, end)
			}
			r.part.model.cut(r, end)
		}
		r.epochs = nil
		if s.mutant.keepEpochs && end < before {
			r.kept = stale
		}
		r.step(replica.Truncated{Tag: a.Tag, Err: err, State: r.state()})
	case replica.DoReset:
		err := r.log.ResetTo(s.ctx, a.Offset)
		if err == nil {
			s.counts.add("resets", 1)
			r.part.note("node %d empties its log and begins at %d", n.id, a.Offset)
			r.part.model.reset(r, a.Offset)
		}
		r.epochs = nil
		r.step(replica.Truncated{Tag: a.Tag, Err: err, State: r.state()})
	case replica.DoSkip:
		r.step(r.skip(&a))
	case replica.DoEpoch:
		var err error
		if !s.mutant.noEpoch {
			if err = r.log.AssignEpoch(a.LeaderEpoch); err == nil {
				err = r.hollow()
			}
		}
		r.epochs = nil
		r.step(replica.Assigned{Tag: a.Tag, Err: err, State: r.state()})
	case replica.DoSync:
		err := r.log.Sync(s.ctx)
		r.step(replica.Synced{Tag: a.Tag, Err: err, State: r.state()})
	case replica.PersistHighWatermark:
		if err := n.dir.RunOnce(s.ctx, n.mono()); err != nil && !n.shaky() {
			r.part.fail("node %d: background work: %v", n.id, err)
		}
		for _, at := range n.seats { // it was the turn of all logs
			if o := at.rep; o != nil && o.p != nil && o.log.Offsets().LogStart != o.start {
				o.step(replica.LogChanged{State: o.state()})
			}
		}
	case replica.SetLogStart:
		err := r.log.DeleteRecords(s.ctx, a.Offset)
		fell := errors.Is(err, log.ErrOffsetOutOfRange) && r.role != replica.Leader // asked for by who led when it was not yet lower
		if err != nil && !fell && !errors.Is(err, log.ErrPolicy) && !n.shaky() {
			r.part.fail("node %d: log start %d: %v", n.id, a.Offset, err)
		}
		r.step(replica.LogChanged{State: r.state()})
	case replica.Delete:
		s.counts.add("replicas deleted", 1)
		r.part.note("node %d deletes its replica", n.id)
		n.seats[r.part.index].remove(func() error { return n.dir.Delete(s.ctx, r.part.tp) })
	}
}

// append carries out an append. Markers of transactions go the way that a coordinator's do.
func (r *rep) append(a *replica.Action) replica.Appended {
	s := r.n.s
	var done log.Appended
	var err error
	epoch := a.LeaderEpoch
	if a.Role == log.Follower {
		if s.mutant.forgetProducers {
			withoutProducers(a.Raw)
		}
		done, err = r.log.AppendBatches(s.ctx, a.Raw, log.AppendOptions{As: log.Follower, LeaderEpoch: &epoch})
	} else {
		fence := &epoch
		if s.mutant.noEpoch {
			fence = nil
		}
		if e, ok := a.Extra.(replica.EndTxn); ok {
			o := log.EndTxnOptions{CoordinatorEpoch: e.CoordinatorEpoch, TransactionVersion: int(e.TransactionVersion), LeaderEpoch: fence}
			done, err = r.log.EndTxn(s.ctx, record.Producer{ID: e.ProducerID, Epoch: e.ProducerEpoch}, e.Commit, o)
		} else {
			done, err = r.log.AppendBatches(s.ctx, a.Raw, log.AppendOptions{LeaderEpoch: fence})
		}
	}
	if err == nil && !done.Duplicate && done.Last >= done.Base {
		r.copied = a.Role == log.Follower
		s.counts.add("appends", 1)
		r.part.model.appended(r, a, done)
	} else if done.Duplicate {
		s.counts.add("duplicates recognised", 1)
	}
	if err != nil {
		s.counts.add("appends refused", 1)
		r.part.note("node %d: append refused: %v", r.n.id, err)
	}
	st := r.state()
	return replica.Appended{Tag: a.Tag, Base: done.Base, Last: done.Last, AppendTime: done.AppendTime, Duplicate: done.Duplicate, Err: err, State: st}
}

func commits(b record.Batch, d *record.Decoder) bool {
	for rec := range b.Records(d) {
		t, _ := record.ParseControl(rec.Key)
		return t == record.Commit
	}
	return false
}

// read carries out a read: bytes for followers, records for consumers.
func (r *rep) read(a replica.Action) {
	n, s := r.n, r.n.s
	if r.gone() {
		return
	}
	e := replica.Read{Tag: a.Tag, Next: a.Offset}
	isolation := a.Isolation
	if s.mutant.readOpen && isolation == log.ReadCommitted {
		isolation = log.ReadUncommitted
	}
	shown := int64(-1)
	if s.mutant.forgetAborted && r.copied && isolation == log.ReadCommitted {
		isolation, shown = log.ReadUncommitted, r.log.Offsets().LastStable
	}
	if s.mutant.readPast && isolation == log.ReadUncommitted {
		isolation = log.LogEnd
	}
	f, err := r.log.Fetch(s.ctx, a.Offset, log.FetchOptions{Isolation: isolation, MaxBytes: a.MaxBytes, WholeBatches: true})
	if err == nil {
		e.Bytes = f.Len()
		e.Next, err = f.NextOffset()
		if err == nil && a.Isolation == log.LogEnd {
			e.Raw = make([]byte, e.Bytes)
			if _, err = f.ReadAt(e.Raw, 0); e.Bytes == 0 {
				err = nil // cut since it was asked for
			}
		} else if err == nil {
			if shown >= 0 {
				e.Next = max(min(e.Next, shown), a.Offset)
			}
			st := stash{next: e.Next, stamp: r.part.model.stamp}
			for rec, bad := range f.Records() {
				if err = bad; bad != nil {
					break
				}
				if shown < 0 || rec.Offset < shown {
					st.records = append(st.records, seen(rec))
				}
			}
			r.stash[a.Tag] = st
		}
		f.Close()
	}
	if e.Err = err; err != nil && n.shaky() {
		s.counts.add("reads refused by a full disk", 1)
	} else if err != nil && !errors.Is(err, log.ErrOffsetOutOfRange) {
		r.part.fail("node %d cannot read at %d: %v", n.id, a.Offset, err)
		return
	}
	r.stint(&a, &e)
	e.State = r.state()
	r.step(e)
	delete(r.stash, a.Tag)
}

// reply brings an answer to who asked.
func (r *rep) reply(a *replica.Action) {
	s, n := r.n.s, r.n
	if a.Tag < clientTags {
		to, e := a.To, replica.FetchResponse{From: n.id, Tag: a.Tag, Result: a.Result}
		s.send(n.place(), place(to), func() { s.fetched(r.part.seat(to), r.part, e) })
		return
	}
	answer := result{Result: a.Result, from: n.id}
	if s.mutant.ackTimeouts && a.Result.Err == replica.RequestTimedOut {
		answer.Err = replica.None
	}
	if st, ok := r.stash[a.ReadTag]; ok {
		answer.records, answer.next, answer.stamp = st.records, st.next, st.stamp
	} else {
		answer.next = -1
	}
	tag := a.Tag
	if tag&phantom != 0 {
		return
	}
	s.send(n.place(), clients, func() {
		if done := s.asked[tag]; done != nil {
			delete(s.asked, tag)
			done(answer)
		}
	})
}

// setHighWatermark moves the mark of the log.
func (r *rep) setHighWatermark(to int64) {
	got, err := r.log.SetHighWatermark(to)
	if err != nil {
		if !r.n.shaky() {
			r.part.fail("node %d: high watermark %d: %v", r.n.id, to, err)
			return
		}
		r.part.model.marked(r, to) // the core holds what it says, whatever its log can do
		r.failed(err)
		return
	}
	if got != to {
		r.part.fail("node %d: the high watermark should be %d and is %d", r.n.id, to, got)
		return
	}
	r.part.model.marked(r, to)
}

// phantom marks tags whose answer nobody waits for.
const phantom = 1 << 61
