package replica

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// move is something that can happen to two replicas of which one leads; false if it cannot now.
type move struct {
	name string
	do   func(c *cluster) bool
}

func (c *cluster) follower() *machine { return c.nodes[2-c.leader] }

// handOver delivers all messages of a kind to a node and lets its log work.
func (c *cluster) handOver(to NodeID, fits func(Event) bool) (any bool) {
	for i := 0; i < len(c.net); i++ {
		if c.net[i].to == to && fits(c.net[i].event) {
			c.deliver(i)
			i, any = -1, true
			for _, m := range c.nodes {
				for len(m.disk) > 0 && m.up {
					c.work(m)
				}
			}
		}
	}
	return any
}

func isFetch(e Event) bool  { _, ok := e.(FetchRequest); return ok }
func isAnswer(e Event) bool { _, ok := e.(FetchResponse); return ok }
func isNews(e Event) bool   { return !isFetch(e) && !isAnswer(e) }

// settleAll delivers the controller's news and lets the logs work.
func (c *cluster) settleAll() {
	for _, m := range c.nodes {
		c.handOver(m.id, isNews)
		for len(m.disk) > 0 && m.up {
			c.work(m)
		}
	}
	c.pass(time.Nanosecond) // so that high watermarks get to the disk
	for _, m := range c.nodes {
		for len(m.disk) > 0 && m.up {
			c.work(m)
		}
	}
}

// quick restarts a process before anybody notices; its in-sync membership is not touched.
func (c *cluster) quick(m *machine) {
	c.crash(m, 0)
	c.note("%d starts", m.id)
	c.start(m, false)
	c.announce()
}

var moves = []move{
	{"produce", func(c *cluster) bool {
		if c.leader == NoNode || c.id == 3 {
			return false
		}
		c.produce(c.node(c.leader), -1)
		return true
	}},
	{"fetch arrives", func(c *cluster) bool { return c.leader != NoNode && c.handOver(c.leader, isFetch) }},
	{"answer arrives", func(c *cluster) bool { return c.leader != NoNode && c.handOver(c.follower().id, isAnswer) }},
	{"follower restarts", func(c *cluster) bool {
		if c.leader == NoNode || !c.follower().up {
			return false
		}
		c.quick(c.follower())
		return true
	}},
	{"leader dies", func(c *cluster) bool {
		if c.leader == NoNode || !c.follower().up || len(c.isr) < 2 {
			return false
		}
		m := c.node(c.leader)
		c.crash(m, 0)
		c.fence(m)
		return true
	}},
	{"both die, the follower loses a record and leads", func(c *cluster) bool {
		if c.leader == NoNode || !c.follower().up || len(c.isr) < 2 || len(c.follower().log.records) == 0 {
			return false
		}
		lead, other := c.node(c.leader), c.follower()
		c.crash(lead, 0)
		c.crash(other, 1)
		other.lost, c.lossy = false, true // nobody says so: what was committed may be lost, but histories must not part
		c.start(other, false)
		c.fence(lead)
		return true
	}},
	{"the dead one returns", func(c *cluster) bool {
		for _, m := range c.nodes {
			if !m.up {
				m.broker++
				c.start(m, false)
				c.tell(Peer{Node: m.id, BrokerEpoch: m.broker, Alive: true})
				c.announce()
				return true
			}
		}
		return false
	}},
}

// parted says where a follower whose fetch the leader took has another record than the leader.
func (c *cluster) parted() string {
	if c.leader == NoNode || len(c.node(c.leader).p.lead.remotes) == 0 || !c.follower().up {
		return ""
	}
	lead, other := c.node(c.leader), c.follower()
	for o := range lead.p.lead.remotes[0].logEnd {
		if x, y := lead.log.mustAt(o), other.log.mustAt(o); o < other.log.end() && x != y {
			return fmt.Sprintf("offset %d is %v at the leader and %v at its follower", o, x, y)
		}
	}
	return ""
}

// play makes moves; it says whether all were possible, and what broke.
func play(rule Truncation, moved []int) (possible bool, broken string, c *cluster) {
	c = newCluster(Config{MinISR: 1, Truncation: rule, Checkpoint: time.Nanosecond, FetchWait: time.Hour, FetchLimit: time.Hour}, 2)
	c.patient = true
	c.settleAll()
	c.handOver(c.leader, isFetch)
	for _, i := range moved {
		if !moves[i].do(c) {
			return false, "", c
		}
		c.settleAll()
		if broken := c.check(); broken != "" {
			return true, broken, c
		}
		if broken := c.parted(); broken != "" {
			return true, broken, c
		}
	}
	return true, "", c
}

func spell(moved []int) string {
	var names []string
	for _, i := range moved {
		names = append(names, moves[i].name)
	}
	return strings.Join(names, ", ")
}

// The two losses that KIP-101 describes, with one record each.
//
// A follower that restarts cuts to a high watermark that lags behind; before it has copied again it becomes leader.
// Two die, the one that lost its unflushed tail leads first; the other's log has the same length, but another record in it.
func TestCuttingToTheHighWatermarkLosesAndParts(t *testing.T) {
	for _, c := range []struct {
		moved []int
		want  string
	}{
		{[]int{0, 2, 1, 3, 4}, "was committed"},
		{[]int{0, 2, 1, 5, 0, 6, 1, 2, 1, 2}, "at its follower"},
	} {
		_, broken, cl := play(ByHighWatermark, c.moved)
		if !strings.Contains(broken, c.want) {
			t.Errorf("%s:\n%q, want %q\n%s%s", spell(c.moved), broken, c.want, cl, strings.Join(cl.said, "\n"))
		}
		possible, broken, cl := play(ByEpoch, c.moved)
		if broken != "" || !possible {
			t.Errorf("%s, with epochs:\n%s (possible: %v)\n%s%s", spell(c.moved), broken, possible, cl, strings.Join(cl.said, "\n"))
		}
	}
}

// Every order of up to seven moves: with epochs nothing is lost and histories do not part; without, both happen.
func TestEveryShortHistoryOfTwoReplicas(t *testing.T) {
	const depth = 7
	for _, rule := range []Truncation{ByEpoch, ByHighWatermark} {
		histories, lost, parted := 0, 0, 0
		var walk func(moved []int)
		walk = func(moved []int) {
			for i := range moves {
				next := append(moved[:len(moved):len(moved)], i)
				possible, broken, c := play(rule, next)
				if !possible {
					continue
				}
				histories++
				switch {
				case broken == "":
					if len(next) < depth {
						walk(next)
					}
				case rule == ByEpoch:
					t.Fatalf("%s: %s\n%s", spell(next), broken, c)
				case c.lossy:
					parted++
				default:
					lost++
				}
			}
		}
		walk(nil)
		t.Logf("rule %d: %d histories, %d lose, %d part", rule, histories, lost, parted)
		if rule == ByHighWatermark && (lost == 0 || parted == 0) {
			t.Errorf("cutting to the high watermark: %d histories lose records, %d part; the rule should show both", lost, parted)
		}
	}
}
