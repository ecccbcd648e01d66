package member

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/replica/controller"
	"github.com/partlog/partlog/vfs/vfstest"
)

// Producers with transactions, and a consumer that reads what is committed, go on while leaders are killed, lose power, are cut
// off, lose their sessions, and while the topic's settings change: of each transaction all or nothing is seen, once and in its
// producer's order, by the consumer and on each replica.
func TestTransactionsOutliveFailOver(t *testing.T) {
	seeds := uint64(2)
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) { transact(t, seed) })
	}
}

// endpoint is where a client reaches a replica: here, or over the network.
type endpoint interface {
	Append(ctx context.Context, raw []byte, acks int8) (log.Appended, error)
	EndTxn(ctx context.Context, p record.Producer, commit bool, o log.EndTxnOptions) (log.Appended, error)
	Fetch(ctx context.Context, offset int64, o replica.FetchOptions) (*replica.Fetched, error)
}

// exchange is a cluster with clients.
type exchange struct {
	*cluster
	ctx  context.Context
	stop context.CancelFunc
	mu   sync.Mutex         // guards the nodes' Members, and what follows
	end  bool               // no new transactions
	want map[int64][]string // what was committed, by producer
}

// at is a way to a replica, of the leader or any; nil: there is none at the moment.
func (x *exchange) at(leader bool) endpoint {
	id := replica.NodeID(1 + rand.IntN(3))
	if leader {
		id = x.look(orders).State.Leader
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	n := x.nodes[id]
	if n == nil {
		return nil
	}
	if other := x.nodes[id%3+1]; other.Member != nil && rand.IntN(2) == 0 {
		return other.Node().Remote(id, orders)
	}
	if n.Member == nil {
		return nil
	}
	h, err := n.Node().Partition(orders)
	if err != nil {
		return nil
	}
	return h
}

// again does something until it is done.
func (x *exchange) again(do func(ctx context.Context, at endpoint) error) error {
	for x.ctx.Err() == nil {
		at := x.at(true)
		if at == nil {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		ctx, cancel := context.WithTimeout(x.ctx, time.Second)
		err := do(ctx, at)
		cancel()
		switch {
		case err == nil, errors.Is(err, replica.InvalidProducerEpoch), errors.Is(err, replica.OutOfOrderSequence), errors.Is(err, replica.InvalidTxnState):
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
	return x.ctx.Err()
}

func (x *exchange) producer(id int64) {
	p := record.Producer{ID: id, Transactional: true}
	build := record.NewBuilder(record.BuilderOptions{})
	for n := 0; ; n++ {
		x.mu.Lock()
		over := x.end
		x.mu.Unlock()
		if over || x.ctx.Err() != nil {
			return
		}
		var values []string
		for range 1 + rand.IntN(3) {
			build.Reset()
			build.SetProducer(&p)
			for range 1 + rand.IntN(3) {
				v := fmt.Sprintf("%d-%d-%d", id, n, len(values))
				values = append(values, v)
				if err := build.Add(record.Record{Timestamp: time.Now().UnixMilli(), Value: []byte(v)}); err != nil {
					x.t.Error(err)
					return
				}
			}
			b, err := build.Finish()
			if err != nil {
				x.t.Error(err)
				return
			}
			raw := slices.Clone(b.Bytes())
			if err := x.again(func(ctx context.Context, at endpoint) error {
				_, err := at.Append(ctx, slices.Clone(raw), -1)
				return err
			}); err != nil {
				if x.ctx.Err() == nil {
					x.t.Errorf("producer %d, batch of %v: %v", id, values, err)
				}
				return
			}
			p.BaseSequence += int32(b.Count())
			time.Sleep(time.Duration(rand.IntN(50)) * time.Millisecond)
		}
		commit := rand.IntN(3) > 0
		if commit {
			x.mu.Lock()
			x.want[id] = append(x.want[id], values...)
			x.mu.Unlock()
		}
		p.Epoch++
		err := x.again(func(ctx context.Context, at endpoint) error {
			_, err := at.EndTxn(ctx, record.Producer{ID: id, Epoch: p.Epoch}, commit, log.EndTxnOptions{TransactionVersion: 2})
			return err
		})
		if err != nil && !errors.Is(err, replica.InvalidProducerEpoch) {
			if x.ctx.Err() == nil {
				x.t.Errorf("producer %d, end of %v: %v", id, values, err)
			}
			return
		}
		p.BaseSequence = 0
	}
}

// consume reads until it has seen all below an offset.
func (x *exchange) consume(done <-chan int64) (seen []string) {
	at, until := int64(0), int64(-1)
	for x.ctx.Err() == nil {
		select {
		case until = <-done:
		default:
		}
		if until >= 0 && at >= until {
			return seen
		}
		to := x.at(rand.IntN(4) > 0)
		if to == nil {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		ctx, cancel := context.WithTimeout(x.ctx, time.Second)
		f, err := to.Fetch(ctx, at, replica.FetchOptions{Isolation: log.ReadCommitted, MaxBytes: 1 << 10, MinBytes: 1, MaxWait: 100 * time.Millisecond})
		cancel()
		if err != nil {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		for r, err := range f.Records() {
			if err != nil {
				x.t.Error(err)
				return seen
			}
			if r.Offset < at {
				x.t.Errorf("offset %d behind %d", r.Offset, at)
			}
			seen = append(seen, string(r.Value))
		}
		at = f.NextOffset
	}
	return seen
}

func (x *exchange) crash(id replica.NodeID, power bool, seed uint64) {
	n := x.nodes[id]
	old := n.fs.(*vfstest.Crash)
	next := old.Kill()
	if power {
		next = old.PowerLoss(seed)
	}
	x.mu.Lock()
	m := n.Member
	n.Member = nil
	x.mu.Unlock()
	require.NoError(x.t, m.Close())
	_ = n.dir.Close()
	n.fs = next
}

func (x *exchange) restart(id replica.NodeID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.start(id, nil)
}

func transact(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 11))
	c := newCluster(t)
	defer c.tell()
	for id := range replica.NodeID(3) {
		c.nodes[id+1] = &node{fs: vfstest.NewCrash(vfstest.CrashOptions{NoMmap: true}), store: newTroubled(c.store)}
		c.start(id+1, nil)
	}
	for id := range c.nodes {
		c.inService(id)
	}
	c.create("orders", map[string]string{"min.insync.replicas": "2"}, ids{1, 2, 3})
	c.inSync(3)
	x := &exchange{cluster: c, want: map[int64][]string{}}
	x.ctx, x.stop = context.WithCancel(t.Context())
	defer x.stop()
	var producers, consumer sync.WaitGroup
	for id := range int64(3) {
		producers.Go(func() { x.producer(id + 1) })
	}
	until := make(chan int64, 1)
	var seen []string
	consumer.Go(func() { seen = x.consume(until) })

	for range 25 {
		c.inSync(3)
		p := c.look(orders).State
		id := replica.NodeID(1 + rng.IntN(3))
		if rng.IntN(2) == 0 {
			id = p.Leader
		}
		pause := func(ms int) { time.Sleep(time.Duration(rng.IntN(ms)) * time.Millisecond) }
		pause(500)
		switch rng.IntN(6) {
		case 0, 1:
			x.crash(id, rng.IntN(2) == 0, rng.Uint64())
			pause(3000)
			x.restart(id)
		case 2:
			c.network.Isolate(id, true, 1, 2, 3)
			pause(3000)
			c.network.Isolate(id, false, 1, 2, 3)
		case 3:
			c.nodes[id].store.down.Store(true)
			c.nodes[id].store.expire()
			pause(3000)
			c.nodes[id].store.heal()
		case 4:
			size := []string{"300", "1000", "1048576"}[rng.IntN(3)]
			c.ask(func(ctx context.Context, ctrl *controller.Controller) error {
				return ctrl.SetConfig(ctx, "orders", map[string]string{"min.insync.replicas": "2", "internal.segment.bytes": size})
			})
		case 5:
			bad := replica.Faults{Loss: 0.1, Duplicate: 0.2, Delay: 30 * time.Millisecond}
			for _, from := range (ids{1, 2, 3}) {
				for _, to := range (ids{1, 2, 3}) {
					c.network.Fault(from, to, bad)
				}
			}
			pause(3000)
			for _, from := range (ids{1, 2, 3}) {
				for _, to := range (ids{1, 2, 3}) {
					c.network.Fault(from, to, replica.Faults{})
				}
			}
		}
	}
	x.mu.Lock()
	x.end = true
	x.mu.Unlock()
	producers.Wait()
	leader := c.inSync(3).Leader
	h, err := c.nodes[leader].Node().Partition(orders)
	require.NoError(t, err)
	require.Eventually(t, func() bool { o := h.Log().Offsets(); return o.LastStable == o.LogEnd }, time.Minute, time.Second)
	end := h.Log().Offsets().LogEnd
	until <- end
	consumer.Wait()
	x.check("the consumer", seen)
	for id, n := range c.nodes {
		h, err := n.Node().Partition(orders)
		require.NoError(t, err)
		require.Eventually(t, func() bool { return h.Log().Offsets().LastStable == end }, time.Minute, time.Second, "node %d: %+v, %d", id, h.Log().Offsets(), end)
		var all []string
		for r, err := range h.Log().Records(t.Context(), 0, log.WithIsolation(log.ReadCommitted)) {
			require.NoError(t, err)
			all = append(all, string(r.Value))
		}
		require.Equal(t, seen, all, "node %d", id)
		for f, err := range h.Log().Verify(t.Context()) {
			require.NoError(t, err)
			t.Errorf("node %d: %+v", id, f)
		}
	}
	t.Logf("%d records, log ends at %d in epoch %d", len(seen), end, c.look(orders).State.LeaderEpoch)
}

// check compares what was seen with what was committed, by producer.
func (x *exchange) check(who string, seen []string) {
	x.t.Helper()
	got := map[int64][]string{}
	for _, v := range seen {
		var id int64
		_, _ = fmt.Sscanf(v, "%d-", &id)
		got[id] = append(got[id], v)
	}
	require.Equal(x.t, x.want, got, who)
}
