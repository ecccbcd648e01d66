package replica

import (
	"context"

	"github.com/partlog/partlog/log"
)

func (r *runner) state(l *log.Log) LogState {
	s := LogState{Offsets: l.Offsets()}
	if c := r.core; c != nil && sameEpochs(c, s.Offsets) {
		s.Epochs = c.state.Epochs
	} else {
		s.Epochs = l.Epochs()
	}
	return s
}

// sameEpochs says whether the epochs the core knows are still the log's: no new one, none cut off at either end.
func sameEpochs(c *Partition, o log.Offsets) bool {
	return o.LeaderEpoch == c.state.LeaderEpoch && o.LogStart == c.state.LogStart && o.LogEnd >= c.state.LogEnd
}

// do carries out an action and returns its answer, if it is there at once.
func (r *runner) do(a *Action) Event {
	l := r.log.Load()
	switch a.Kind {
	case DoAppend:
		return r.append(l, a)
	case DoRead:
		if a.To < 0 || r.node.window.enter(a.To, r, a.MaxBytes) {
			return r.read(l, a)
		}
		r.readLater(*a)
	case DoTruncate:
		tag, offset := a.Tag, a.Offset
		r.slowly(func() Event {
			_, err := l.Truncate(r.node.ctx, offset)
			return Truncated{Tag: tag, Err: err, State: LogState{Offsets: l.Offsets(), Epochs: l.Epochs()}}
		})
	case DoReset:
		tag, offset := a.Tag, a.Offset
		r.slowly(func() Event {
			err := l.ResetTo(r.node.ctx, offset)
			return Truncated{Tag: tag, Err: err, State: LogState{Offsets: l.Offsets(), Epochs: l.Epochs()}}
		})
	case DoSkip:
		tag, offset, epoch := a.Tag, a.Offset, a.LeaderEpoch
		r.slowly(func() Event {
			err := skip(r.node.ctx, l, epoch, offset)
			return Truncated{Tag: tag, Err: err, State: LogState{Offsets: l.Offsets(), Epochs: l.Epochs()}}
		})
	case DoEpoch:
		tag, epoch := a.Tag, a.LeaderEpoch
		r.slowly(func() Event {
			err := l.AssignEpoch(epoch)
			return Assigned{Tag: tag, Err: err, State: LogState{Offsets: l.Offsets(), Epochs: l.Epochs()}}
		})
	case DoSync:
		tag, end, life := a.Tag, l.Offsets().LogEnd, r.life
		r.node.slow.submit(taskFunc(func() {
			err := l.Wait(r.node.ctx, log.MarkDurable, end)
			r.post(mail{settled: func() Event { return r.of(life, Synced{Tag: tag, Err: err, State: r.state(l)}) }})
		}))
	case SetHighWatermark:
		_, _ = l.SetHighWatermark(a.Offset) // fails only when the log has, which the next append says
	case PersistHighWatermark: // the log has it: the Dir writes those of all logs together, and truncations see to it themselves
	case SetLogStart:
		if a.Offset > r.startAsked { // the core asks again until it is done
			r.startAsked = a.Offset
			offset := a.Offset
			r.slowly(func() Event {
				_ = l.FollowLogStart(r.node.ctx, offset) // not raised: the leader says it again
				return LogChanged{}
			})
		}
	case SetRemoval:
		release := l.PinRemoval("replicas of "+r.tp.String(), a.Offset)
		r.unpin()
		r.unpin = release
	case SendFetch:
		if o := l.Offsets(); o.LogEnd == a.Fetch.Offset { // syncs that the core was not told of
			a.Fetch.Unsynced = max(o.LogEnd-o.Durable, 0)
		}
		a.Fetch.MaxBytes = min(a.Fetch.MaxBytes, l.Config().SegmentBytes) // no append takes more
		r.fetchAt.Store(int32(a.To))
		r.fetchTag = a.Fetch.Tag
		r.node.sendBy(passing{by: r.by}, a.To, r.tp, a.Fetch)
	case Reply:
		r.reply(a)
	case ProposeISR:
		r.propose(a.Tag, a.Proposal)
	case Fail:
		r.failed(a.Err)
	case Delete:
		r.remove()
	}
	return nil
}

// skip carries out a DoSkip. The epoch comes first: one at the log end that has no record yet is as it is with every new leader.
func skip(ctx context.Context, l *log.Log, epoch int32, to int64) error {
	if epoch >= 0 {
		if err := l.AssignEpoch(epoch); err != nil {
			return err
		}
	}
	return l.FollowEnd(ctx, to)
}

// slowly has work done in the slow pool, after all of this partition's that was asked for before.
func (r *runner) slowly(job func() Event) {
	r.slowJobs = append(r.slowJobs, job)
	if len(r.slowJobs) == 1 {
		r.nextSlow()
	}
}

func (r *runner) nextSlow() {
	job, life := r.slowJobs[0], r.life
	r.node.slow.submit(taskFunc(func() {
		e := job()
		r.post(mail{settled: func() Event {
			if r.life != life {
				return nil
			}
			r.slowJobs = r.slowJobs[1:]
			if len(r.slowJobs) > 0 {
				r.nextSlow()
			}
			return e
		}})
	}))
}

// of is an answer, unless the core it is for is gone.
func (r *runner) of(life int, e Event) Event {
	if r.life != life {
		return nil
	}
	return e
}

func (r *runner) slowDone(settled func() Event) {
	e := settled()
	if e == nil || r.core == nil {
		return
	}
	l := r.log.Load()
	switch t := e.(type) {
	case Truncated:
		r.warm, r.warmNext = min(r.warm, t.State.LogEnd), min(r.warmNext, t.State.LogEnd)
		r.logStart, r.startAsked = t.State.LogStart, 0
	case reconfigured:
		t.Config.BrokerEpoch = r.conf.BrokerEpoch
		r.conf = t.Config
		r.step(t.Reconfigure)
		r.answerHeeder(t)
		return
	case LogChanged:
		r.startAsked = 0
		e = r.changed(l)
	}
	r.step(e)
}

// changed tells the core how the log is now.
func (r *runner) changed(l *log.Log) LogChanged {
	s := LogState{Offsets: l.Offsets(), Epochs: l.Epochs()}
	r.logStart = s.LogStart
	return LogChanged{State: s}
}

// append writes to the page cache, so that it need not leave the partition's turn; syncs are DoSync's.
func (r *runner) append(l *log.Log, a *Action) Event {
	c, ours := a.Extra.(*call)
	if ours && !c.begin() {
		return Appended{Tag: a.Tag, Base: -1, Last: -1, AppendTime: -1, Err: context.Canceled, State: r.state(l)}
	}
	r.by.letGo()
	r.unshare()
	var got log.Appended
	var err error
	if ours && c.marker != nil {
		got, err = c.marker.write(r.node.ctx, l, &a.LeaderEpoch)
	} else {
		got, err = l.AppendBatches(r.node.ctx, a.Raw, log.AppendOptions{As: a.Role, LeaderEpoch: &a.LeaderEpoch, Durability: log.Buffered})
	}
	if ours {
		if err == nil && c.marker == nil {
			r.share(got, a.Raw)
		}
		c.end(got, err)
	}
	if err == nil {
		if r.warmFill += int64(len(a.Raw)); r.warmFill > warmBytes {
			r.warm, r.warmNext, r.warmFill = r.warmNext, got.Base, 0
		}
	}
	r.events.appended = Appended{Tag: a.Tag, Base: got.Base, Last: got.Last, AppendTime: got.AppendTime, Duplicate: got.Duplicate, Err: err, State: r.state(l)}
	return &r.events.appended
}

// reply gives a Result to who asked.
func (r *runner) reply(a *Action) {
	to, ok := r.asked[a.Tag]
	if !ok {
		return
	}
	delete(r.asked, a.Tag)
	r.far.remove(to)
	r.tell(to, a.Result)
}

// tell gives a Result to who waits for it.
func (r *runner) tell(to asker, res Result) {
	switch {
	case to.call != nil:
		to.call.answer(r, res)
	case to.question != nil:
		to.question.done <- res
	default:
		if !to.client && len(res.Raw) == 0 {
			r.node.window.leave(to.node, r)
		}
		on := passing{by: r.by}
		if l := r.leaseOf(res.Raw); l != nil {
			on.lease = l.hold() // who gets it without a word of that keeps it
		}
		r.node.answerBy(on, to.node, r.tp, to.tag, to.client, res)
	}
}

// refuse answers a request that did not come to the core.
func (r *runner) refuse(m mail, res Result) {
	switch {
	case m.call != nil:
		r.tell(asker{call: m.call}, res)
	case m.question != nil && !m.withdrawn:
		r.tell(asker{question: m.question}, res)
	case m.heeded != nil:
		m.heeded <- refused(r.tp, settingsOf, res)
	case m.remote:
		switch e := m.event.(type) {
		case FetchRequest:
			r.tell(asker{node: m.from, tag: e.Tag, client: e.From == NoNode}, res)
		case EpochRequest:
			r.tell(asker{node: m.from, tag: e.Tag, client: true}, res)
		case OffsetRequest:
			r.tell(asker{node: m.from, tag: e.Tag, client: true}, res)
		case AppendRequest:
			r.tell(asker{node: m.from, tag: e.Tag, client: true}, res)
		case EndTxn:
			r.tell(asker{node: m.from, tag: e.Tag, client: true}, res)
		}
	}
}

// propose asks the controller, and sees to it that there is an answer.
func (r *runner) propose(tag uint64, p Proposal) {
	n, id := r.node, r.topicID
	if n.conf.Propose == nil {
		r.post(mail{event: ISRAnswer{Tag: tag, Err: RequestTimedOut}})
		return
	}
	n.talk.submit(taskFunc(func() {
		ctx, cancel := context.WithTimeout(n.ctx, n.conf.ProposeTimeout)
		defer cancel()
		answer := n.conf.Propose(ctx, r.tp, id, p)
		answer.Tag = tag
		r.post(mail{event: answer})
	}))
}
