package controller

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/replica"
)

// rulers runs n controllers over one store until the test ends.
type rulers struct {
	t     *testing.T
	store *replica.MemStore
	all   []*Controller
	stops []context.CancelFunc
	done  sync.WaitGroup
}

func newRulers(t *testing.T, n int) *rulers {
	r := &rulers{t: t, store: replica.NewMemStore()}
	for i := range n {
		c := NewController(r.store, Options{Node: replica.NodeID(i + 1), Retry: time.Millisecond})
		ctx, cancel := context.WithCancel(t.Context())
		r.all, r.stops = append(r.all, c), append(r.stops, cancel)
		r.done.Go(func() {
			if err := c.Run(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("run: %v", err)
			}
		})
	}
	t.Cleanup(func() {
		for _, stop := range r.stops {
			stop()
		}
		r.done.Wait()
	})
	return r
}

// ask tries all controllers until one rules.
func (r *rulers) ask(do func(*Controller) error) error {
	r.t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for n := 0; ; n++ {
		ctrl := r.all[n%len(r.all)]
		err := do(ctrl)
		if !errors.Is(err, replica.NotController) && !errors.Is(err, replica.RequestTimedOut) && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		if time.Now().After(deadline) {
			r.t.Fatal("nobody rules")
		}
		time.Sleep(time.Millisecond)
	}
}

func (r *rulers) start(id replica.NodeID, previous int64) (*Registered, replica.Session) {
	r.t.Helper()
	session, err := r.store.Session(r.t.Context(), time.Second)
	require.NoError(r.t, err)
	n, err := Register(r.t.Context(), r.store, session, Registration{Node: id, PreviousEpoch: previous})
	require.NoError(r.t, err)
	return n, session
}

// until waits for a partition to be as wanted.
func (r *rulers) until(what string, topic string, ok func(Partition) bool) Partition {
	r.t.Helper()
	var p Partition
	require.Eventually(r.t, func() bool {
		var topics []Topic
		err := r.ask(func(c *Controller) (err error) {
			ctx, cancel := context.WithTimeout(r.t.Context(), time.Second)
			defer cancel()
			topics, err = c.Describe(ctx, topic)
			return err
		})
		if err != nil {
			return false
		}
		p = topics[0].Partitions[0]
		return ok(p)
	}, 10*time.Second, time.Millisecond, what)
	return p
}

func TestControllersRuleOneAfterTheOther(t *testing.T) {
	ctx := t.Context()
	r := newRulers(t, 3)
	_, session1 := r.start(1, -1)
	node2, _ := r.start(2, -1)
	r.start(3, -1)
	require.Eventually(t, func() bool {
		all, err := r.store.List(ctx, RegistrationsPrefix)
		return err == nil && len(all) == 3
	}, 10*time.Second, time.Millisecond)

	var made Topic
	require.NoError(t, r.ask(func(c *Controller) (err error) {
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		made, err = c.CreateTopic(short, CreateTopic{Topic: "t", Assignment: [][]replica.NodeID{{1, 2, 3}}})
		return err
	}))
	require.NotZero(t, made.ID)

	// The node dies, and the ruler with it.
	v, err := r.store.Get(ctx, EpochKey)
	require.NoError(t, err)
	require.Equal(t, "1", string(v.Value))
	r.store.Expire(session1)
	for i, c := range r.all {
		if _, err := c.Describe(ctx); err == nil {
			r.stops[i]()
			r.all = append(r.all[:i:i], r.all[i+1:]...)
			break
		}
	}
	require.Len(t, r.all, 2)
	p := r.until("2 leads", "t", func(p Partition) bool { return p.Leader == 2 })
	require.Equal(t, ids{2, 3}, p.ISR)
	v, err = r.store.Get(ctx, EpochKey)
	require.NoError(t, err)
	require.Equal(t, "2", string(v.Value))

	require.NoError(t, r.ask(func(c *Controller) error { return c.ControlledShutdown(ctx, 2, node2.Epoch()) }))
	p = r.until("3 leads", "t", func(p Partition) bool { return p.Leader == 3 })
	require.Equal(t, "ELIGIBLE_LEADERS_NOT_AVAILABLE", func() string {
		var results []ElectionResult
		require.NoError(t, r.ask(func(c *Controller) (err error) {
			results, err = c.Elect(ctx, Elect{Election: Uncleanly, Partitions: []log.TopicPartition{{Topic: "x"}, {Topic: "t"}}})
			return err
		}))
		require.Equal(t, "UNKNOWN_TOPIC_OR_PARTITION", code(results[0].Err))
		require.Equal(t, "ELECTION_NOT_NEEDED", code(results[1].Err))
		return replica.EligibleLeadersNotAvailable.String()
	}())
	require.Equal(t, ids{3}, p.ISR)

	require.NoError(t, r.ask(func(c *Controller) error { return c.SetConfig(ctx, "t", map[string]string{minISRKey: "2"}) }))
	require.NoError(t, r.ask(func(c *Controller) error {
		_, err := c.AddPartitions(ctx, AddPartitions{Topic: "t", Partitions: 2, Assignment: [][]replica.NodeID{{3, 2, 1}}})
		return err
	}))
	require.NoError(t, r.ask(func(c *Controller) error {
		return c.Reassign(ctx, Reassign{Partition: log.TopicPartition{Topic: "t"}, To: ids{3, 1}})
	}))
	require.NoError(t, r.ask(func(c *Controller) error {
		moves, err := c.ListReassignments(ctx)
		if err == nil {
			require.Len(t, moves, 1)
		}
		return err
	}))
	require.NoError(t, r.ask(func(c *Controller) error { return c.DeleteTopic(ctx, "t") }))
	all, err := r.store.List(ctx, TopicsPrefix)
	require.NoError(t, err)
	require.Empty(t, all)
}

// A ruler whose session ends says so, and rules again.
func TestALostSessionEndsTheRule(t *testing.T) {
	store := replica.NewMemStore()
	spy := &sessions{MemStore: store}
	type said struct {
		epoch int32
		rules bool
	}
	rules := make(chan said, 10)
	c := NewController(spy, Options{Node: 1, Retry: time.Second, Rule: func(epoch int32, r bool, _ error) { rules <- said{epoch, r} }})
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { c.Run(ctx) })
	defer done.Wait()
	defer cancel()
	require.Equal(t, said{1, true}, <-rules)
	spy.expire()
	require.Equal(t, said{0, false}, <-rules)
	_, err := c.Describe(ctx)
	require.ErrorIs(t, err, replica.NotController)
	require.Equal(t, said{2, true}, <-rules)
}

type sessions struct {
	*replica.MemStore
	mu   sync.Mutex
	last replica.Session
}

func (s *sessions) Session(ctx context.Context, ttl time.Duration) (replica.Session, error) {
	session, err := s.MemStore.Session(ctx, ttl)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = session
	return session, err
}

func (s *sessions) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Expire(s.last)
}

func TestFollowTellsNodesWhatTheyNeed(t *testing.T) {
	w := newWorld(t, Config{}, 1, 2)
	w.create("t", nil, ids{1, 2})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var got []News
	for n, err := range Follow(ctx, w.store) {
		if err != nil {
			require.ErrorContains(t, err, "/brokers/topics/t/partitions/0/state")
			break
		}
		got = append(got, n)
		switch len(got) {
		case 4:
			require.True(t, n.Current)
			w.die(1)
		case 6:
			_, err := replica.Put(ctx, w.store, "/brokers/topics/t/partitions/0/state", []byte("?"), replica.AnyVersion)
			require.NoError(t, err)
		}
	}
	require.Equal(t, replica.Peer{Node: 1, BrokerEpoch: w.epoch(1), Alive: true}, got[0].Peer)
	require.Equal(t, "t", got[2].Partition.Topic)
	require.False(t, got[4].Peer.Alive)
	a := got[5].State.Assign(got[5].TopicID)
	require.Equal(t, replica.NodeID(2), a.Leader)
	require.Equal(t, int32(1), a.LeaderEpoch)
	require.Equal(t, [16]byte{'t'}, a.TopicID)
}

// A request that came before Run waits for it; one to a controller whose Run has returned is not left waiting for ever.
func TestAControllerThatDoesNotRunAnyMoreSaysSo(t *testing.T) {
	c := NewController(replica.NewMemStore(), Options{Node: 4})
	early, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := c.Describe(early)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	for range 2 {
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Run(ctx) }()
		require.Eventually(t, func() bool { _, err := c.Describe(t.Context()); return err == nil }, 10*time.Second, time.Millisecond)
		_, err = c.AddPartitions(t.Context(), AddPartitions{Topic: "nope", Partitions: 2})
		require.EqualError(t, err, "there is no topic nope: UNKNOWN_TOPIC_OR_PARTITION")
		stop()
		require.ErrorIs(t, <-done, context.Canceled)
		patient, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err = c.Describe(patient)
		require.ErrorIs(t, err, replica.NotController)
		require.ErrorContains(t, err, "the controller of node 4 does not run any more")
	}
}
