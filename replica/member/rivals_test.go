package member

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/replica/controller"
	"github.com/partlog/partlog/vfs"
)

// stalled is a store whose transactions of partitions' states wait on their way until they are let go. They go past the session
// of their controller, which is over by then: nothing but their guard keeps them out.
type stalled struct {
	*troubled
	mu   sync.Mutex
	gate chan struct{} // nil: nothing waits
	sent []replica.Transaction
	errs []error
}

func (s *stalled) hold() (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	gate := make(chan struct{})
	s.gate = gate
	return func() { close(gate) }
}

func (s *stalled) Session(ctx context.Context, ttl time.Duration) (replica.Session, error) {
	one, err := s.troubled.Session(ctx, ttl)
	return stalledSession{one, s}, err
}

type stalledSession struct {
	replica.Session
	store *stalled
}

// Done is never closed while the controller is stalled: it does not notice.
func (t stalledSession) Done() <-chan struct{} {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	if t.store.gate != nil {
		return nil
	}
	return t.Session.Done()
}

func (t stalledSession) Commit(ctx context.Context, tx replica.Transaction) ([]int64, error) {
	s := t.store
	s.mu.Lock()
	gate := s.gate
	s.mu.Unlock()
	if gate == nil || !slices.ContainsFunc(tx.Writes, func(w replica.Write) bool { return strings.HasSuffix(w.Key, "/state") }) {
		return t.Session.Commit(ctx, tx)
	}
	<-gate // whatever its context says: it is on its way
	versions, err := s.MemStore.Commit(context.Background(), tx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent, s.errs = append(s.sent, tx), append(s.errs, err)
	return versions, err
}

// A controller is stopped between making a decision and writing it, for minutes. Another rules since and has decided differently.
// What the first wrote arrives, and is refused; it answers nobody with what it had decided, and gives the rule up.
func TestADecisionThatComesMinutesLateIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		late := &stalled{troubled: newTroubled(c.store)}
		for id := range replica.NodeID(3) {
			c.nodes[id+1] = &node{fs: vfs.Mem(), store: newTroubled(c.store)}
			first := id == 0
			if first {
				c.nodes[id+1].store = late.troubled
			}
			c.start(id+1, func(conf *Config) {
				if first {
					conf.Store = late
				}
			})
			c.inService(id + 1)
		}
		c.create("orders", map[string]string{"min.insync.replicas": "2"}, ids{2, 3, 1})
		c.produce("a")
		c.inSync(3)
		require.True(t, c.nodes[1].Status().Rules, "who came first rules")

		release := late.hold()
		move := controller.Reassign{Partition: orders, To: ids{1, 3, 2}}
		asked := make(chan error, 1)
		go func() { asked <- c.nodes[1].Controller().Reassign(t.Context(), move) }()
		c.kill(3) // it decides that, too, and does not get it written
		synctest.Wait()
		late.expire()
		require.Eventually(t, func() bool { return c.nodes[2].Status().Rules }, time.Minute, time.Millisecond, "another rules")
		now := c.until("alone", func(p controller.Partition) bool { return !slices.Contains(p.ISR, 3) })
		require.Equal(t, ids{2, 3, 1}, now.Replicas)
		c.start(3, nil)
		c.inSync(3)
		c.produce("b")
		time.Sleep(10 * time.Minute)
		before := c.look(orders).State
		release()
		err := <-asked
		require.Error(t, err)
		synctest.Wait()
		late.mu.Lock()
		late.gate = nil
		require.NotEmpty(t, late.errs)
		for _, err := range late.errs {
			require.ErrorIs(t, err, replica.ErrConflict)
		}
		late.mu.Unlock()
		require.Equal(t, before, c.look(orders).State, "nothing of it was written")
		require.Eventually(t, func() bool { return !c.nodes[1].Status().Rules }, time.Minute, time.Millisecond)
		for id := range c.nodes {
			c.inService(id)
		}
		c.produce("c")
		c.inSync(3)
		for id := range c.nodes {
			c.holds(id, "a", "b", "c")
		}
		_, err = controller.Lookup(t.Context(), c.store, log.TopicPartition{Topic: "orders"})
		require.NoError(t, err)
	})
}
