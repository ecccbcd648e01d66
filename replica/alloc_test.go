package replica

import (
	"testing"
	"time"

	"github.com/partlog/partlog/log"
)

// steady is a leader of three whose log is not there: answers are made up, so that only Step is measured.
type steady struct {
	p       *Partition
	now     time.Time
	out     []Action
	state   LogState
	raw     []byte
	tag     uint64
	replies int
}

func newSteady() *steady {
	s := &steady{now: epochOfTests, raw: make([]byte, 1000), state: LogState{Epochs: entries(0, 0, 1, 0)}}
	s.p = New(log.TopicPartition{Topic: "t"}, Config{Self: 1}, s.state, false)
	s.step(Assign{Leader: 1, LeaderEpoch: 1, PartitionEpoch: 1, Replicas: []NodeID{1, 2, 3}, ISR: []NodeID{1, 2, 3}})
	return s
}

func (s *steady) step(e Event) {
	s.out = s.p.Step(s.now, e, s.out[:0])
	for i := 0; i < len(s.out); i++ {
		a := s.out[i]
		switch a.Kind {
		case DoEpoch:
			s.out = s.p.Step(s.now, Assigned{Tag: a.Tag, State: s.state}, s.out)
		case DoAppend:
			s.state.LogEnd += 10
			s.out = s.p.Step(s.now, Appended{Tag: a.Tag, Base: s.state.LogEnd - 10, Last: s.state.LogEnd - 1, AppendTime: -1, State: s.state}, s.out)
		case DoRead:
			s.out = s.p.Step(s.now, Read{Tag: a.Tag, Raw: s.raw, Bytes: 1000, Next: s.state.LogEnd, State: s.state}, s.out)
		case Reply:
			s.replies++
		}
	}
}

// round is one produce request with acks=all, and the fetches of both followers and a consumer that wait for it.
func (s *steady) round() {
	s.now = s.now.Add(time.Millisecond)
	end := s.state.LogEnd
	for node := range NodeID(2) {
		s.tag++
		s.step(FetchRequest{From: node + 2, Tag: s.tag, Offset: end, LeaderEpoch: 1, LastFetchedEpoch: 1, BrokerEpoch: -1,
			MaxBytes: 1 << 20, MinBytes: 1, MaxWait: 500 * time.Millisecond})
	}
	s.tag++
	s.step(FetchRequest{From: NoNode, Tag: s.tag, Offset: end, LeaderEpoch: -1, LastFetchedEpoch: -1,
		MaxBytes: 1 << 20, MinBytes: 1, MaxWait: 500 * time.Millisecond})
	s.tag++
	s.step(Produce{Tag: s.tag, Raw: s.raw, Acks: -1})
	s.step(Tick{})
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	s := newSteady()
	for range 1000 {
		s.round()
	}
	s.replies = 0
	if n := testing.AllocsPerRun(1000, s.round); n > 0 {
		t.Errorf("%v allocations a round of produce and fetches", n)
	}
	if s.replies < 4000 {
		t.Errorf("%d replies to 1000 rounds of four requests", s.replies)
	}
	if f := s.p.Status(); f.HighWatermark != s.state.LogEnd-10 || len(s.p.fetches.slots) > 8 {
		t.Errorf("high watermark %d of %d, %d slots", f.HighWatermark, s.state.LogEnd, len(s.p.fetches.slots))
	}
}

func TestFollowingAllocatesNothing(t *testing.T) {
	state := LogState{Epochs: entries(0, 0, 1, 0)}
	p := New(log.TopicPartition{Topic: "t"}, Config{Self: 1}, state, false)
	now, raw := epochOfTests, make([]byte, 1000)
	out := p.Step(now, Assign{Leader: 2, LeaderEpoch: 1, PartitionEpoch: 1, Replicas: []NodeID{1, 2, 3}, ISR: []NodeID{1, 2, 3}}, nil)
	appends := 0
	round := func() {
		now = now.Add(time.Millisecond)
		fetch := out[len(out)-1]
		r := Result{Raw: raw, Bytes: 1000, HighWatermark: state.LogEnd, LogEnd: state.LogEnd + 10, Removal: -1}
		out = p.Step(now, FetchResponse{From: 2, Tag: fetch.Tag, Result: r}, out[:0])
		do := out[len(out)-1]
		state.LogEnd += 10
		out = p.Step(now, Appended{Tag: do.Tag, Base: state.LogEnd - 10, Last: state.LogEnd - 1, State: state}, out[:0])
		out = p.Step(now, Tick{}, out)
		appends++
	}
	for range 100 {
		round()
	}
	if n := testing.AllocsPerRun(1000, round); n > 0 {
		t.Errorf("%v allocations a fetch", n)
	}
	if got := p.Status().Counts.Appends; got != int64(appends) || appends < 1000 {
		t.Errorf("%d appends, want %d", got, appends)
	}
}

func BenchmarkRound(b *testing.B) {
	s := newSteady()
	b.ReportAllocs()
	for b.Loop() {
		s.round()
	}
}

// BenchmarkTick is 10,000 leaders: idle, and each with everything due at once.
func BenchmarkTick(b *testing.B) {
	leaders := make([]*steady, 10_000)
	for i := range leaders {
		leaders[i] = newSteady()
		leaders[i].round()
	}
	b.Run("nothing due", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			for _, s := range leaders {
				s.out = s.p.Step(s.now, Tick{}, s.out[:0])
			}
		}
	})
	b.Run("everything due", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			for _, s := range leaders {
				s.now = s.now.Add(15 * time.Second)
				s.out = s.p.Step(s.now, Tick{}, s.out[:0])
				for i := range s.p.lead.remotes { // keep them in sync
					s.p.lead.remotes[i].caughtUpAt = s.now
				}
			}
		}
	})
}

// A commit on three replicas of one process leaves little behind: its batch is not among it.
func TestACommitLeavesLittleGarbage(t *testing.T) {
	h, raw := diskGroup(t, 1, 2, 3).ready(), rawBatch(t, string(make([]byte, 10<<10)))
	commit := func() {
		if _, err := h.Append(t.Context(), raw, -1); err != nil {
			t.Fatal(err)
		}
		clear(raw[:8]) // base offset
	}
	for range 100 {
		commit()
	}
	if n := testing.AllocsPerRun(1000, commit); n > 8 { // the messages; the race detector forgets some of what could be used again
		t.Errorf("%v allocations a commit", n)
	}
}
