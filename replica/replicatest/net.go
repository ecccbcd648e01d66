package replicatest

import "time"

// place is where something runs, for the network: nodes by their number, then clients, the store, the rulers.
type place int

const (
	clients    place = 10
	atStore    place = 11
	firstRuler       = 12
	places           = 16
)

// network is what lies between places.
type network struct {
	blocked [places][places]int // how many faults block the way from one to the other
	lossy   float64             // chances, on top of the run's own
	repeats float64
	late    float64
	slow    time.Duration // every message, on top of the usual

	newsTwice float64 // of what the store's watches tell
}

func (n *network) cut(from, to place, by int) { n.blocked[from][to] += by }

// isolate blocks all ways of a place, or opens them again with -1.
func (n *network) isolate(p place, by int) {
	for o := range place(places) {
		if o != p {
			n.blocked[p][o] += by
			n.blocked[o][p] += by
		}
	}
}

// send lets something happen elsewhere, unless it gets lost; perhaps late, perhaps twice.
func (s *sim) send(from, to place, arrive func()) {
	if s.net.blocked[from][to] > 0 {
		s.counts.add("messages blocked", 1)
		return
	}
	if !s.calm && s.chance(s.loss+s.net.lossy) {
		s.counts.add("messages lost", 1)
		return
	}
	s.carry(to, arrive)
	if !s.calm && s.chance(s.dup+s.net.repeats) {
		s.counts.add("messages repeated", 1)
		s.carry(to, arrive)
	}
}

func (s *sim) carry(to place, arrive func()) {
	d := s.between(50*time.Microsecond, 600*time.Microsecond)
	if !s.calm {
		d += s.net.slow
		if s.chance(s.late + s.net.late) {
			s.counts.add("messages late", 1)
			d += s.between(0, 300*time.Millisecond)
		}
	}
	if n := s.nodeAt(to); n != nil {
		s.schedule(s.now+d, n, anyLife, arrive)
	} else {
		s.after(d, arrive)
	}
}

func (s *sim) nodeAt(p place) *node {
	if p >= 1 && int(p) <= len(s.nodes) {
		return s.nodes[p-1]
	}
	return nil
}
