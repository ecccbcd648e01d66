package replica

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Messages are lost, repeated and reordered; nodes crash, lose tails, are fenced while they live; logs are slow. Never more
// than one of three has lost its tail, with min.insync.replicas 2: nothing committed is lost or changed, and when all is
// well again everything is equal and committed. Invariants L1, L2.
func TestThreeReplicasUnderFire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newCluster(Config{MinISR: 2, LagTimeMax: 10 * time.Second, Checkpoint: 5 * time.Second, Backoff: time.Second,
			FetchWait: 500 * time.Millisecond, FetchLimit: 3 * time.Second}, 3)
		node := func() *machine { return c.nodes[rapid.IntRange(0, 2).Draw(t, "node")] }
		some := func(f func(i int)) {
			if len(c.net) > 0 {
				f(rapid.IntRange(0, len(c.net)-1).Draw(t, "message"))
			}
		}
		flow := func(*rapid.T) { c.flow(rapid.IntRange(1, 25).Draw(t, "flow")) }
		if rapid.Bool().Draw(t, "settled") {
			c.flow(20)
			for range rapid.IntRange(0, 3).Draw(t, "before") {
				c.produce(c.nodes[0], -1)
				c.flow(10)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"":        func(t *rapid.T) { fatal(t, c, c.check()) },
			"produce": func(*rapid.T) { c.produce(node(), rapid.SampledFrom([]int8{-1, -1, 1}).Draw(t, "acks")) },
			"toLeader": func(*rapid.T) {
				if c.leader != NoNode {
					c.produce(c.node(c.leader), -1)
					c.flow(3)
				}
			},
			"flow":    flow,
			"flow2":   flow,
			"flow3":   flow,
			"deliver": func(*rapid.T) { some(c.deliver) },
			"drop":    func(*rapid.T) { some(c.drop) },
			"repeat":  func(*rapid.T) { some(c.repeat) },
			"work":    func(*rapid.T) { c.work(node()) },
			"pass":    func(*rapid.T) { c.pass(time.Duration(rapid.IntRange(1, 12000).Draw(t, "ms")) * time.Millisecond) },
			"crash":   func(*rapid.T) { c.crash(node(), 0) },
			"lose": func(t *rapid.T) {
				m := node()
				for _, o := range c.nodes {
					if o != m && o.lost {
						return
					}
				}
				c.crash(m, rapid.IntRange(1, 4).Draw(t, "lose"))
			},
			"stop":     func(*rapid.T) { c.stop(node()) },
			"restart":  func(*rapid.T) { c.restart(node()) },
			"fence":    func(*rapid.T) { c.fence(node()) },
			"unfence":  func(*rapid.T) { c.unfence(node()) },
			"announce": func(*rapid.T) { c.announce() },
		})
		fatal(t, c, c.heal())
	})
}

func fatal(t *rapid.T, c *cluster, broken string) {
	t.Helper()
	if broken != "" {
		t.Fatalf("%s\n%s\n%s", broken, c, strings.Join(c.said, "\n"))
	}
}
