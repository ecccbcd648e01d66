package replica

import (
	"errors"
	"syscall"
	"time"

	"github.com/partlog/partlog/internal/producerstate"
	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
)

// defaultProduceTimeout is a producer's request.timeout.ms.
const defaultProduceTimeout = 30 * time.Second

// entry is a produce request before and during its append.
type entry struct {
	tag      uint64
	raw      []byte
	extra    any
	acks     int8
	epoch    int32 // under which it was asked for; -1 unchecked
	deadline time.Time
	answered bool
}

// queue is the produce requests whose append was not asked for yet, first come first.
type queue struct {
	entries []entry
	head    int
}

func (q *queue) len() int { return len(q.entries) - q.head }

func (q *queue) push(e entry) {
	if q.head > 0 && q.head == len(q.entries) {
		q.entries, q.head = q.entries[:0], 0
	}
	q.entries = append(q.entries, e)
}

func (q *queue) pop() entry {
	e := q.entries[q.head]
	q.entries[q.head] = entry{}
	q.head++
	if q.head > 64 && q.head*2 > len(q.entries) {
		n := copy(q.entries, q.entries[q.head:])
		clear(q.entries[n:])
		q.entries, q.head = q.entries[:n], 0
	}
	return e
}

// waiter is an appended request that is answered when the high watermark has come to required.
type waiter struct {
	required int64
	tag      uint64
	deadline time.Time
	result   Result
}

// waits is ordered by required.
type waits struct {
	list []waiter
	head int
}

func (w *waits) len() int { return len(w.list) - w.head }

func (w *waits) add(n waiter) {
	if w.head == len(w.list) {
		w.list, w.head = w.list[:0], 0
	} else if w.head > 64 && w.head*2 > len(w.list) {
		k := copy(w.list, w.list[w.head:])
		clear(w.list[k:])
		w.list, w.head = w.list[:k], 0
	}
	w.list = append(w.list, n)
	for i := len(w.list) - 1; i > w.head && w.list[i-1].required > n.required; i-- {
		w.list[i], w.list[i-1] = w.list[i-1], n
	}
}

// produce takes a request. What it may do is judged when its turn comes.
func (p *Partition) produce(e Produce) {
	epoch := int32(-1)
	if e.LeaderEpoch != nil {
		epoch = *e.LeaderEpoch
	}
	code := p.check(epoch, true)
	if code == None && (e.Acks < -1 || e.Acks > 1) {
		code = InvalidRequiredAcks
	}
	if e.Timeout <= 0 {
		e.Timeout = defaultProduceTimeout
	}
	n := entry{tag: e.Tag, raw: e.Raw, extra: e.Extra, acks: e.Acks, epoch: epoch, deadline: p.now.Add(e.Timeout)}
	if code != None {
		p.refuse(n, code)
		return
	}
	p.queue.push(n)
	p.settle()
}

// endTxn is a produce request whose bytes the log makes.
func (p *Partition) endTxn(e EndTxn) {
	if e.Extra == nil {
		e.Extra = e
	}
	p.produce(Produce{Tag: e.Tag, Acks: -1, Timeout: e.Timeout, LeaderEpoch: &e.LeaderEpoch, Extra: e.Extra})
}

func (p *Partition) refuse(n entry, code ErrorCode) {
	if n.acks == 0 || n.answered {
		return
	}
	r := p.result(code)
	if code == NotEnoughReplicas {
		r.Cause = &NotEnoughReplicasError{len(p.lead.isr), p.minISR()}
	}
	p.do(Action{Kind: Reply, Tag: n.tag, Result: r})
}

// appendNext asks for the append of the next request that may be.
func (p *Partition) appendNext() {
	for p.queue.len() > 0 {
		n := p.queue.pop()
		code := p.check(n.epoch, true)
		if code == None && n.acks == -1 && len(p.lead.isr) < p.minISR() {
			code = NotEnoughReplicas
		}
		if code != None {
			p.refuse(n, code)
			continue
		}
		p.begin(work{ours: true, entry: n, raw: n.raw},
			Action{Kind: DoAppend, Role: log.Leader, Raw: n.raw, Extra: n.extra, LeaderEpoch: p.leaderEpoch})
		return
	}
}

// produced goes on with a request after its append.
func (p *Partition) produced(w work, e Appended) {
	if e.Err != nil {
		p.notProduced(w, e.Err)
		return
	}
	r := p.result(None)
	r.Base, r.Last, r.AppendTime, r.Duplicate = e.Base, e.Last, e.AppendTime, e.Duplicate
	r.LogStart, r.LogEnd = p.state.LogStart, p.state.LogEnd
	switch {
	case w.entry.answered || w.entry.acks == 0:
	case w.entry.acks == 1:
		p.do(Action{Kind: Reply, Tag: w.entry.tag, Result: r})
	case e.Last < p.hw:
		p.confirm(waiter{tag: w.entry.tag, result: r})
	default:
		p.waits.add(waiter{required: e.Last + 1, tag: w.entry.tag, deadline: w.entry.deadline, result: r})
		p.arm(w.entry.deadline)
	}
	p.sync()
	p.advance()
	p.wake(false)
}

// notProduced answers a request whose append was refused. If it is in the log but not known to be on the device, the log is
// of no use any more; if the disk does not take it, another replica is to lead.
func (p *Partition) notProduced(w work, err error) {
	r := p.result(codeOf(err))
	r.Cause = err
	unconfirmed := (*log.UnconfirmedError)(nil)
	if errors.As(err, &unconfirmed) {
		r.Err, r.Base, r.Last = KafkaStorageError, unconfirmed.Base, unconfirmed.Last
	}
	if w.entry.acks != 0 && !w.entry.answered {
		p.do(Action{Kind: Reply, Tag: w.entry.tag, Result: r})
	}
	if unconfirmed != nil || isAny(err, log.ErrFailed, log.ErrClosed) || ofDisk(err) && len(withoutSelf(p.lead.isr, p.conf.Self)) > 0 {
		p.fail(err)
	}
}

// ofDisk says that the disk refused, and not because it is full: the next attempt may succeed, but where another replica can lead
// it is better to try there.
func ofDisk(err error) bool {
	return errors.As(err, new(syscall.Errno)) && !errors.Is(err, log.ErrNoSpace)
}

// completeProduces answers those the high watermark has passed.
func (p *Partition) completeProduces() {
	w := &p.waits
	for w.head < len(w.list) && w.list[w.head].required <= p.hw {
		n := w.list[w.head]
		w.list[w.head] = waiter{}
		w.head++
		p.confirm(n)
	}
}

// confirm answers a request whose records are committed. Should fewer than required hold them, it says so; they stay.
func (p *Partition) confirm(n waiter) {
	if p.lead.maximal < p.minISR() {
		n.result.Err, n.result.Cause = NotEnoughReplicasAfterAppend, &NotEnoughReplicasError{p.lead.maximal, p.minISR()}
	}
	n.result.HighWatermark = p.hw
	p.do(Action{Kind: Reply, Tag: n.tag, Result: n.result})
}

// expireProduces gives up waiting; the records may still be committed later.
func (p *Partition) expireProduces() {
	w := &p.waits
	kept := w.head
	for i := w.head; i < len(w.list); i++ {
		n := w.list[i]
		if p.now.Before(n.deadline) {
			p.arm(n.deadline)
			w.list[kept] = n
			kept++
			continue
		}
		p.counts.ProduceTimeouts++
		n.result.Err = RequestTimedOut
		p.do(Action{Kind: Reply, Tag: n.tag, Result: n.result})
	}
	clear(w.list[kept:])
	w.list = w.list[:kept]
}

// refuseProduces answers everyone who waits for something that this replica cannot bring about any more.
func (p *Partition) refuseProduces(code ErrorCode) {
	for p.queue.len() > 0 {
		p.refuse(p.queue.pop(), code)
	}
	lost := p.role == Failed || p.role == Deleted // else an append under way still counts for whoever does not wait for replicas
	if p.work.kind == DoAppend && p.work.ours && (lost || p.work.entry.acks == -1) {
		p.refuse(p.work.entry, code)
		p.work.entry.answered = true
	}
	w := &p.waits
	for _, n := range w.list[w.head:] {
		r := p.result(code)
		r.Base, r.Last = n.result.Base, n.result.Last
		p.do(Action{Kind: Reply, Tag: n.tag, Result: r})
	}
	clear(w.list)
	w.list, w.head = w.list[:0], 0
}

// codeOf is Kafka's number for an error of the log.
func codeOf(err error) ErrorCode {
	if errors.As(err, new(*producerstate.EpochError)) {
		return InvalidProducerEpoch
	}
	if errors.As(err, new(*producerstate.CoordinatorError)) {
		return TransactionCoordinatorFenced
	}
	for _, c := range [...]struct {
		err  error
		code ErrorCode
	}{
		{nil, None},
		{log.ErrInvalidTimestamp, InvalidTimestamp},
		{log.ErrInvalidRecord, InvalidRecord},
		{log.ErrTooLarge, MessageTooLarge},
		{log.ErrOutOfOrder, OutOfOrderSequence},
		{log.ErrTxnState, InvalidTxnState},
		{log.ErrFenced, NotLeaderOrFollower}, // the log follows a newer leader already
		{log.ErrPolicy, PolicyViolation},
		{log.ErrOffsetOutOfRange, OffsetOutOfRange},
		{record.ErrCorrupt, CorruptMessage},
	} {
		if errors.Is(err, c.err) {
			return c.code
		}
	}
	return KafkaStorageError
}
