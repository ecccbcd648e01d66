package member

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

// Calls of the store that fail, hang, are slow, or are done without an answer; watches that end, hang, tell twice or not at all;
// sessions that end, known or not: of one member or of several at once. What is committed stays, and when it is over all is well
// again.
func TestMembersOutliveEveryTroubleOfTheStore(t *testing.T) {
	seeds := 4
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) { outlive(t, seed) })
	}
}

func outlive(t *testing.T, seed int) {
	rng := rand.New(rand.NewPCG(uint64(seed), 7))
	c := newCluster(t, 1, 2, 3)
	c.create("orders", map[string]string{"min.insync.replicas": "2"}, ids{1, 2, 3})
	c.produce("a")
	c.inSync(3)
	want := []string{"a"}
	for round := range 30 {
		for id, n := range c.nodes {
			if rng.IntN(3) == 0 {
				continue
			}
			s := n.store
			switch rng.IntN(8) {
			case 0:
				s.flaky.Store(30)
			case 1:
				s.hangs.Store(30)
			case 2:
				s.slow.Store(int64(time.Duration(rng.IntN(3000)) * time.Millisecond))
			case 3:
				s.mute.Store(true)
			case 4:
				s.again.Store(true)
			case 5:
				s.deaf.Store(true)
			case 6:
				s.down.Store(true)
			case 7:
				c.kill(id)
				c.start(id, nil)
			}
			if rng.IntN(2) == 0 {
				s.cut()
			}
			if rng.IntN(3) == 0 {
				s.expire()
			}
		}
		time.Sleep(time.Duration(rng.IntN(20000)) * time.Millisecond)
		for _, n := range c.nodes {
			n.store.heal()
		}
		v := fmt.Sprint(round)
		c.produceWithin(5*time.Minute, v)
		want = append(want, v)
	}
	time.Sleep(3 * time.Minute)
	for id := range c.nodes {
		c.inService(id)
	}
	c.inSync(3)
	c.produce("end")
	want = append(want, "end")
	for id := range c.nodes {
		c.holds(id, want...)
	}
}

func (s *troubled) heal() {
	s.flaky.Store(0)
	s.hangs.Store(0)
	s.slow.Store(0)
	s.mute.Store(false)
	s.again.Store(false)
	s.deaf.Store(false)
	s.down.Store(false)
}
