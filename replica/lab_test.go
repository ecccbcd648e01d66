package replica

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/partlog/partlog/log"
)

// fakeRecord is a record of a fakeLog: what it was written as, in which epoch.
type fakeRecord struct {
	epoch int32
	id    uint64
}

// fakeLog behaves like a log.Log, in memory, with records of 20 bytes.
type fakeLog struct {
	start   int64
	records []fakeRecord // the first is at start
	epochs  []log.EpochEntry
	hw      int64
	durable int64
	saved   int64 // high watermark in the checkpoint
	fail    error // of the next append
}

func (l *fakeLog) end() int64 { return l.start + int64(len(l.records)) }

func (l *fakeLog) state() LogState {
	latest := latestEpoch(l.epochs)
	return LogState{
		Offsets: log.Offsets{LogStart: l.start, LastStable: l.hw, HighWatermark: l.hw, LogEnd: l.end(),
			Durable: l.durable, RecoveryPoint: l.durable, LeaderEpoch: latest},
		Epochs: l.epochs,
	}
}

func (l *fakeLog) assign(epoch int32, start int64) {
	if n := len(l.epochs); n > 0 && l.epochs[n-1].Epoch == epoch && l.epochs[n-1].Start <= start {
		return
	}
	kept := slices.Clone(l.epochs)
	for n := len(kept); n > 0 && (kept[n-1].Epoch >= epoch || kept[n-1].Start >= start); n-- {
		kept = kept[:n-1]
	}
	l.epochs = append(kept, log.EpochEntry{Epoch: epoch, Start: start})
}

func (l *fakeLog) append(role log.Role, epoch int32, raw []byte) (base, last int64, err error) {
	if err, l.fail = l.fail, nil; err != nil {
		return -1, -1, err
	}
	base = l.end()
	if role == log.Leader {
		if latest := latestEpoch(l.epochs); epoch != latest {
			return -1, -1, fmt.Errorf("%w: %d, not %d", log.ErrFenced, epoch, latest)
		}
		for ; len(raw) >= 20; raw = raw[20:] {
			l.records = append(l.records, fakeRecord{epoch, binary.BigEndian.Uint64(raw[12:])})
		}
		return base, l.end() - 1, nil
	}
	if latest := latestEpoch(l.epochs); epoch < latest {
		return -1, -1, fmt.Errorf("%w: %d, not %d", log.ErrFenced, epoch, latest)
	}
	for ; len(raw) >= 20; raw = raw[20:] {
		offset := int64(binary.BigEndian.Uint64(raw))
		r := fakeRecord{int32(binary.BigEndian.Uint32(raw[8:])), binary.BigEndian.Uint64(raw[12:])}
		if r.epoch > epoch {
			break
		}
		if offset != l.end() {
			return -1, -1, fmt.Errorf("%w: %d, not %d", log.ErrUnexpectedOffset, offset, l.end())
		}
		l.assign(r.epoch, offset)
		l.records = append(l.records, r)
	}
	return base, l.end() - 1, nil
}

func (l *fakeLog) read(offset, maxBytes, bound int64) (raw []byte, next int64) {
	for o := offset; o < min(bound, l.end()); o++ {
		if int64(len(raw)+20) > maxBytes && len(raw) > 0 {
			break
		}
		r := l.records[o-l.start]
		raw = binary.BigEndian.AppendUint64(raw, uint64(o))
		raw = binary.BigEndian.AppendUint32(raw, uint32(r.epoch))
		raw = binary.BigEndian.AppendUint64(raw, r.id)
		offset = o + 1
	}
	return raw, offset
}

func (l *fakeLog) truncate(to int64) {
	if to < l.start {
		l.reset(to)
		return
	}
	to = min(to, l.end())
	l.records = slices.Clone(l.records[:to-l.start])
	kept := slices.Clone(l.epochs)
	for n := len(kept); n > 0 && kept[n-1].Start >= to; n-- {
		kept = kept[:n-1]
	}
	l.epochs = kept
	l.hw, l.durable = min(l.hw, to), min(l.durable, to)
}

func (l *fakeLog) reset(to int64) {
	l.start, l.records, l.epochs, l.hw, l.durable = to, nil, nil, to, to
}

func (l *fakeLog) setStart(to int64) {
	to = min(to, l.hw)
	if to <= l.start {
		return
	}
	l.records = slices.Clone(l.records[to-l.start:])
	l.start = to
	kept := slices.Clone(l.epochs)
	n := 0
	for n < len(kept) && kept[n].Start <= to {
		n++
	}
	if n > 0 {
		kept = kept[n-1:]
		kept[0].Start = to
	}
	l.epochs = kept
}

// perform carries out an action of the log, and says what the answer is; nil if there is none.
func (l *fakeLog) perform(a Action) Event {
	switch a.Kind {
	case DoAppend:
		base, last, err := l.append(a.Role, a.LeaderEpoch, a.Raw)
		return Appended{Tag: a.Tag, Base: base, Last: last, AppendTime: -1, Err: err, State: l.state()}
	case DoRead:
		if a.Offset < l.start || a.Offset > l.end() {
			return Read{Tag: a.Tag, Err: &log.OffsetRangeError{Offset: a.Offset, LogStart: l.start, LogEnd: l.end()}, State: l.state()}
		}
		bound := l.end()
		if a.Isolation != log.LogEnd {
			bound = l.hw
		}
		raw, next := l.read(a.Offset, a.MaxBytes, bound)
		return Read{Tag: a.Tag, Raw: raw, Bytes: int64(len(raw)), Next: next, State: l.state()}
	case DoTruncate:
		l.truncate(a.Offset)
		return Truncated{Tag: a.Tag, State: l.state()}
	case DoReset:
		l.reset(a.Offset)
		return Truncated{Tag: a.Tag, State: l.state()}
	case DoSkip:
		if a.LeaderEpoch >= 0 {
			l.assign(a.LeaderEpoch, l.end())
		}
		for l.end() < a.Offset {
			l.records = append(l.records, fakeRecord{})
		}
		return Truncated{Tag: a.Tag, State: l.state()}
	case DoEpoch:
		if latestEpoch(l.epochs) > a.LeaderEpoch {
			return Assigned{Tag: a.Tag, Err: log.ErrFenced, State: l.state()}
		}
		l.assign(a.LeaderEpoch, l.end())
		return Assigned{Tag: a.Tag, State: l.state()}
	case DoSync:
		l.durable = l.end()
		return Synced{Tag: a.Tag, State: l.state()}
	case SetHighWatermark:
		l.hw = min(max(a.Offset, l.start), l.end())
	case PersistHighWatermark:
		l.saved = a.Offset
	case SetLogStart:
		l.setStart(a.Offset)
		return LogChanged{State: l.state()}
	}
	return nil
}

// filled is a log with n records in the epochs given.
func filled(n int64, epochs ...log.EpochEntry) *fakeLog {
	l := &fakeLog{}
	for o := range n {
		e := int32(0)
		for _, entry := range epochs {
			if entry.Start <= o {
				e = entry.Epoch
			}
		}
		l.records = append(l.records, fakeRecord{e, uint64(o)})
	}
	l.epochs = epochs
	return l
}

// entries spells epochs: entries(0, 0, 3, 2) is epoch 0 from offset 0 and 3 from 2.
func entries(pairs ...int64) (list []log.EpochEntry) {
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, log.EpochEntry{Epoch: int32(pairs[i]), Start: pairs[i+1]})
	}
	return list
}

// lab is one replica over a fakeLog, driven by hand. Unless told otherwise the log answers at once.
type lab struct {
	t    *testing.T
	p    *Partition
	log  *fakeLog
	now  time.Time
	hold map[Kind]bool // log actions that are kept in held instead of carried out
	held []Action
	all  []Action // of the last step, in order
}

var epochOfTests = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func newLab(t *testing.T, c Config, l *fakeLog) *lab {
	c.Self = 1
	return &lab{t: t, p: New(log.TopicPartition{Topic: "t"}, c, l.state(), false), log: l, now: epochOfTests, hold: map[Kind]bool{}}
}

// step gives an event, lets the log answer, and returns the other actions.
func (l *lab) step(e Event) []Action {
	l.t.Helper()
	l.all = l.all[:0]
	pending := []Event{e}
	var rest []Action
	for len(pending) > 0 {
		acts := l.p.Step(l.now, pending[0], nil)
		pending = pending[1:]
		l.all = append(l.all, acts...)
		for _, a := range acts {
			switch a.Kind {
			case DoAppend, DoRead, DoTruncate, DoReset, DoSkip, DoEpoch, DoSync, SetHighWatermark, PersistHighWatermark, SetLogStart:
				if l.hold[a.Kind] {
					l.held = append(l.held, a)
				} else if answer := l.log.perform(a); answer != nil {
					pending = append(pending, answer)
				}
				if a.Kind != SetHighWatermark && a.Kind != PersistHighWatermark && a.Kind != SetLogStart {
					continue
				}
			}
			rest = append(rest, a)
		}
	}
	return rest
}

// release carries out the log actions held back.
func (l *lab) release() (rest []Action) {
	l.t.Helper()
	held := l.held
	l.held = nil
	hold := l.hold
	l.hold = map[Kind]bool{}
	for _, a := range held {
		if answer := l.log.perform(a); answer != nil {
			rest = append(rest, l.step(answer)...)
		}
	}
	l.hold = hold
	return rest
}

func (l *lab) pass(d time.Duration) []Action {
	l.now = l.now.Add(d)
	return l.step(Tick{})
}

// lead makes node 1 the leader, of replicas 1, 2, 3.
func (l *lab) lead(epoch int32, isr ...NodeID) []Action {
	return l.step(Assign{Leader: 1, LeaderEpoch: epoch, PartitionEpoch: l.p.partitionEpoch + 1, Replicas: []NodeID{1, 2, 3}, ISR: isr})
}

// follow makes node 1 a follower of 2.
func (l *lab) follow(epoch int32) []Action {
	return l.step(Assign{Leader: 2, LeaderEpoch: epoch, PartitionEpoch: l.p.partitionEpoch + 1, Replicas: []NodeID{1, 2, 3}, ISR: []NodeID{1, 2, 3}})
}

func records(ids ...uint64) (raw []byte) {
	for _, id := range ids {
		raw = append(raw, make([]byte, 12)...)
		raw = binary.BigEndian.AppendUint64(raw, id)
	}
	return raw
}

// produce appends n records.
func (l *lab) produce(tag uint64, acks int8, n int) []Action {
	return l.step(Produce{Tag: tag, Raw: records(make([]uint64, n)...), Acks: acks})
}

// fetchFrom is a follower's fetch that does not wait.
func (l *lab) fetchFrom(node NodeID, offset int64) []Action {
	return l.step(FetchRequest{From: node, Tag: 1000 + uint64(node), Offset: offset, LeaderEpoch: l.p.leaderEpoch,
		LastFetchedEpoch: -1, BrokerEpoch: -1, MaxBytes: 1 << 20})
}

func only(t *testing.T, acts []Action, k Kind) Action {
	t.Helper()
	found := all(acts, k)
	if len(found) != 1 {
		t.Fatalf("%d actions %q, want 1: %v", len(found), k, kinds(acts))
	}
	return found[0]
}

func all(acts []Action, k Kind) (found []Action) {
	for _, a := range acts {
		if a.Kind == k {
			found = append(found, a)
		}
	}
	return found
}

func kinds(acts []Action) (list []string) {
	for _, a := range acts {
		list = append(list, a.Kind.String())
	}
	return list
}

// reply is the answer to the request tag.
func reply(t *testing.T, acts []Action, tag uint64) Result {
	t.Helper()
	for _, a := range acts {
		if a.Kind == Reply && a.Tag == tag {
			return a.Result
		}
	}
	t.Fatalf("no reply to %d: %v", tag, kinds(acts))
	return Result{}
}

func noReply(t *testing.T, acts []Action) {
	t.Helper()
	if r := all(acts, Reply); len(r) > 0 {
		t.Fatalf("reply to %d: %+v", r[0].Tag, r[0].Result)
	}
}
