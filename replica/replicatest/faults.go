package replicatest

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/replica/controller"
	"github.com/partlog/partlog/vfs/vfstest"
)

// FaultKind is a way to go wrong.
type FaultKind uint8

const (
	Kill          FaultKind = iota // the process of Node ends at once, and comes back after For
	PowerLoss                      // so does its machine: what was not synced may be gone, or a part of it
	Blackout                       // all machines lose power at once
	Midway                         // Node stops inside one of its next accesses of the disk: killed, or without power, as Amount says
	CleanStop                      // Node is shut down as it should be, and comes back
	Pause                          // nothing happens in the process for a while
	Isolate                        // nothing comes from or to Node
	OneWay                         // nothing comes from Node to Other
	Split                          // nothing comes from Node to Other or back
	CutStore                       // Node does not reach the store
	SlowDisk                       // each access takes Amount longer, in microseconds
	FullDisk                       // Amount bytes are left on the disk
	Clock                          // the wall clock jumps by Amount ms, the steady one ahead if that is positive
	CutRuler                       // controller Node does not reach the store
	Depose                         // the session of controller Node ends, and it does not know
	StallRuler                     // what controller Node writes takes Amount ms longer to arrive
	Reassign                       // a partition moves to nodes drawn from Amount, as the partition is
	Cancel                         // a move of one that is under way is cancelled
	ElectFirst                     // a preferred election is held, of all
	ElectUnclean                   // an unclean election is held by hand, if the run allows them
	Lossy                          // Amount percent of all messages are lost
	Slow                           // every message takes Amount ms longer
	Reorder                        // Amount percent of all messages are late by far
	Repeat                         // Amount percent of all messages arrive twice
	DeleteRecords                  // the leader of a partition is asked to delete the records below an offset, both drawn from Amount
	SyncFails                      // the next sync of Node's disk fails, and what it should have written never reaches the device
	Remake                         // a topic is deleted and made anew
	Grow                           // a topic gets another partition
	MinISR                         // a topic gets another min.insync.replicas, drawn from Amount
	StoreFails                     // Amount percent of what the store is asked fails; of writes, half are done all the same
	StoreSlow                      // what is written to the store takes Amount ms longer to arrive
	Deaf                           // Node is not told what the store's watches should tell, and then finds out
	DeafRuler                      // nor is controller Node
	NewsTwice                      // Amount percent of what watches tell is told once more, late
	FarClock                       // the wall clock jumps by Amount minutes
	Sizes                          // the logs of Node get another segment.bytes and retention.bytes, drawn from Amount
	faultKinds    = iota
)

var faultNames = [...]string{"kill", "power loss", "blackout", "midway", "clean stop", "pause", "isolate", "one way", "split", "cut from store", "slow disk",
	"full disk", "clock", "cut controller", "depose", "stall controller", "reassign", "cancel", "elect first", "elect unclean", "lossy", "slow", "reorder", "repeat", "delete records", "sync fails", "remake topic", "grow topic", "min isr",
	"store fails", "store slow", "deaf", "deaf controller", "news twice", "far clock", "sizes"}

// String is a short name.
func (k FaultKind) String() string {
	if int(k) < len(faultNames) {
		return faultNames[k]
	}
	return "unknown"
}

// Fault is something that goes wrong.
type Fault struct {
	Kind        FaultKind
	At, For     time.Duration // since the storm began; how long until it is mended
	Node, Other int
	Amount      int64
}

// String is one line.
func (f Fault) String() string {
	return fmt.Sprintf("at %v for %v: %v, node %d, other %d, amount %d", f.At.Round(time.Microsecond), f.For.Round(time.Microsecond), f.Kind, f.Node, f.Other, f.Amount)
}

// weights are how often each kind is drawn.
var weights = [faultKinds]int{Kill: 10, PowerLoss: 8, Blackout: 1, Midway: 8, CleanStop: 5, Pause: 6, Isolate: 6, OneWay: 5, Split: 4, CutStore: 5, SlowDisk: 3,
	FullDisk: 2, Clock: 3, CutRuler: 3, Depose: 3, StallRuler: 3, Reassign: 6, Cancel: 1, ElectFirst: 3, ElectUnclean: 1, Lossy: 2, Slow: 2, Reorder: 2, Repeat: 2,
	DeleteRecords: 3, SyncFails: 2, Remake: 3, Grow: 2, MinISR: 3, StoreFails: 4, StoreSlow: 2, Deaf: 3, DeafRuler: 2, NewsTwice: 2, FarClock: 3, Sizes: 3}

// plan draws what goes wrong. Some runs are of one kind of fault mostly.
func (p *profile) plan(rng *rand.Rand) []Fault {
	w := weights
	for range rng.IntN(3) {
		w[rng.IntN(faultKinds)] += 20
	}
	total := 0
	for _, n := range w {
		total += n
	}
	plan := []Fault{}
	many := 2 + rng.IntN(3+int(p.Storm/(100*time.Millisecond)))
	for range many {
		n, kind := rng.IntN(total), FaultKind(0)
		for n >= w[kind] {
			n -= w[kind]
			kind++
		}
		long := rng.Float64()
		if rng.IntN(2) == 0 {
			long *= long * long // some nodes are back before anybody has noticed
		}
		f := Fault{Kind: kind, At: time.Duration(rng.Int64N(int64(p.Storm))), For: 2*time.Millisecond + time.Duration(long*float64(300*time.Millisecond)),
			Node: 1 + rng.IntN(p.Nodes), Other: 1 + rng.IntN(p.Nodes), Amount: rng.Int64N(1 << 40)}
		switch kind {
		case CutRuler, Depose, StallRuler, DeafRuler:
			f.Node = rng.IntN(p.rulers)
			if kind == StallRuler {
				f.Amount = 1 + f.Amount%150
			}
		case SlowDisk:
			f.Amount = 200 + f.Amount%20000
		case FullDisk:
			f.Amount %= 2000
		case Clock:
			f.Amount = f.Amount%2000 - 800
		case Lossy, Reorder, Repeat, StoreFails, NewsTwice:
			f.Amount = 5 + f.Amount%40
		case Slow, StoreSlow:
			f.Amount = 1 + f.Amount%80
		case FarClock:
			f.Amount = f.Amount%1200 - 600
		}
		plan = append(plan, f)
	}
	slices.SortFunc(plan, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
	return plan
}

// strike lets a fault happen, and asks for its end.
func (s *sim) strike(f Fault) {
	if s.calm {
		return
	}
	s.note("-- %v", f)
	s.counts.add("fault: "+f.Kind.String(), 1)
	n := s.node(replica.NodeID(f.Node))
	mend := func(undo func()) {
		s.after(f.For, func() {
			if !s.calm {
				undo()
			}
		})
	}
	a, b := place(f.Node), place(f.Other)
	switch f.Kind {
	case Kill:
		n.kill()
		mend(n.start)
	case PowerLoss:
		n.lose(uint64(f.Amount))
		mend(n.start)
	case Blackout:
		for i, n := range s.nodes {
			n.lose(uint64(f.Amount) + uint64(i))
			s.after(f.For+s.between(0, 20*time.Millisecond), n.start)
		}
	case Midway:
		n.rig(f)
	case CleanStop:
		s.leave(n)
		mend(n.start)
	case Pause:
		n.paused = max(n.paused, s.now+f.For)
	case Isolate:
		s.net.isolate(a, 1)
		mend(func() { s.net.isolate(a, -1) })
	case OneWay:
		s.net.cut(a, b, 1)
		mend(func() { s.net.cut(a, b, -1) })
	case Split:
		s.net.cut(a, b, 1)
		s.net.cut(b, a, 1)
		mend(func() {
			s.net.cut(a, b, -1)
			s.net.cut(b, a, -1)
		})
	case CutStore:
		s.net.cut(a, atStore, 1)
		mend(func() { s.net.cut(a, atStore, -1) })
	case SlowDisk:
		n.drag = time.Duration(f.Amount) * time.Microsecond
		mend(func() { n.drag = 0 })
	case FullDisk:
		n.trouble = true
		n.full.SetQuota(f.Amount)
		mend(func() { n.full.SetQuota(-1) })
	case Clock:
		s.counts.add("clock jumps", 1)
		n.skew = time.Duration(f.Amount) * time.Millisecond
		if f.Amount > 0 && f.Amount < 300 {
			n.fast += n.skew
			n.tellAll(replica.Tick{})
		}
	case CutRuler:
		r := s.rulers[f.Node%len(s.rulers)]
		s.net.cut(r.at, atStore, 1)
		mend(func() { s.net.cut(r.at, atStore, -1) })
	case Depose:
		if r := s.rulers[f.Node%len(s.rulers)]; r.session != nil {
			s.store.Expire(r.session)
		}
	case StallRuler:
		r := s.rulers[f.Node%len(s.rulers)]
		r.stalled += time.Duration(f.Amount) * time.Millisecond
		mend(func() { r.stalled -= time.Duration(f.Amount) * time.Millisecond })
	case StoreFails:
		s.store.fails += float64(f.Amount) / 100
		mend(func() { s.store.fails -= float64(f.Amount) / 100 })
	case StoreSlow:
		s.store.slow += time.Duration(f.Amount) * time.Millisecond
		mend(func() { s.store.slow -= time.Duration(f.Amount) * time.Millisecond })
	case Deaf:
		n.deaf++
		mend(func() {
			if n.deaf--; n.deaf == 0 && !s.mutant.staysDeaf {
				n.ready = false // the watch is begun anew
			}
		})
	case DeafRuler:
		r := s.rulers[f.Node%len(s.rulers)]
		r.deaf++
		mend(func() {
			if r.deaf--; r.deaf == 0 {
				r.lookAgain()
			}
		})
	case NewsTwice:
		s.net.newsTwice += float64(f.Amount) / 100
		mend(func() { s.net.newsTwice -= float64(f.Amount) / 100 })
	case FarClock:
		s.counts.add("clock jumps", 1)
		n.skew = time.Duration(f.Amount) * time.Minute
	case Sizes:
		n.sizes = 1 + f.Amount%12
		n.resize()
		mend(func() {
			n.sizes = 0
			n.resize()
		})
	case Reassign:
		rng := rand.New(rand.NewPCG(uint64(f.Amount), 3))
		to := []replica.NodeID{}
		for _, i := range rng.Perm(s.Nodes)[:s.Replicas] {
			to = append(to, replica.NodeID(i+1))
		}
		s.ruling().ask(controller.Reassign{Partition: s.some(f).tp, To: to}, func(controller.Reply) {})
	case Cancel:
		for _, p := range s.parts {
			if p.state.Reassigning() {
				s.ruling().ask(controller.Reassign{Partition: p.tp}, func(controller.Reply) {})
				break
			}
		}
	case ElectFirst:
		s.ruling().ask(controller.Elect{Election: controller.ToLeader}, func(controller.Reply) {})
	case ElectUnclean:
		if s.unclean {
			s.ruling().ask(controller.Elect{Election: controller.Uncleanly}, func(controller.Reply) {})
		}
	case DeleteRecords:
		if r := s.some(f).leading(); r != nil && r.n.up && r.n.dying == nil {
			r.todo = append(r.todo, replica.Action{Kind: replica.SetLogStart, Offset: f.Amount % (r.hw + 1)})
			r.pump()
		}
	case SyncFails:
		n.trouble = true
		n.full.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpSync, vfstest.OpSyncData}, Err: errors.New("input/output error"), LosePages: true,
			Hook: func(vfstest.Op) error { n.gaps = true; return nil }})
	case Remake:
		s.someTopic(f).remake()
	case Grow:
		s.someTopic(f).grow()
	case MinISR:
		s.someTopic(f).require(1 + int(f.Amount%int64(s.Replicas)))
	case Lossy:
		s.net.lossy += float64(f.Amount) / 100
		mend(func() { s.net.lossy -= float64(f.Amount) / 100 })
	case Slow:
		s.net.slow += time.Duration(f.Amount) * time.Millisecond
		mend(func() { s.net.slow -= time.Duration(f.Amount) * time.Millisecond })
	case Reorder:
		s.net.late += float64(f.Amount) / 100
		mend(func() { s.net.late -= float64(f.Amount) / 100 })
	case Repeat:
		s.net.repeats += float64(f.Amount) / 100
		mend(func() { s.net.repeats -= float64(f.Amount) / 100 })
	}
}

// some is the partition that a fault strikes.
func (s *sim) some(f Fault) *part { return s.parts[(f.Amount>>16)%int64(len(s.parts))] }

// someTopic is the topic that a fault strikes: the second, if there is one, more often.
func (s *sim) someTopic(f Fault) *topic { return s.topics[min(int((f.Amount>>16)%4), len(s.topics)-1)] }

// leave stops a node as it should be: the controller takes it out of service first, unless that takes too long.
func (s *sim) leave(n *node) {
	if !n.up {
		return
	}
	life, gone := n.life, false
	stop := func() {
		if !gone && n.life == life {
			gone = true
			n.stop()
			if s.calm {
				n.start()
			}
		}
	}
	s.ruling().ask(controller.ControlledShutdown{Node: n.id, BrokerEpoch: n.broker}, func(controller.Reply) { s.after(time.Millisecond, stop) })
	s.after(30*time.Millisecond, stop)
}
