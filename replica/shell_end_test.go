package replica

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
)

// A producer has just taken a replica's turn, and is not counted in the pool yet, when the node is closed: Close waits for it all the
// same, or it would append when the next node has the Dir.
func TestCloseWaitsForAReplicaThatWasWokenJustBefore(t *testing.T) {
	g := newGroup(t, log.Config{Durability: log.Buffered}, 1)
	g.produce("a")
	r := g.handle(1).r
	g.awakeByHand(r)
	closed := make(chan error, 1)
	go func() { closed <- g.nodes[1].Close() }()
	select {
	case <-closed:
		g.nodes[1].alive = false
		t.Fatal("closed")
	case <-time.After(50 * time.Millisecond):
	}
	g.nodes[1].fast.submit(r)
	require.NoError(t, <-closed)
	require.NoError(t, g.nodes[1].dir.Close())
	g.nodes[1].alive = false
}

// Mail that comes in the same turn as the last is refused, as what comes later is.
func TestWhatComesRightBehindTheEndIsRefused(t *testing.T) {
	g := newGroup(t, log.Config{Durability: log.Buffered}, 1)
	g.produce("a")
	r := g.handle(1).r
	g.awakeByHand(r)
	settings := make(chan error, 1)
	call, q := newCall(rawBatch(t, "b"), 1), &question{event: OffsetRequest{From: NoNode, At: MaxTime, LeaderEpoch: -1}, done: make(chan Result, 1)}
	r.slots <- struct{}{}
	for _, m := range []mail{{last: true}, {settings: true, heeded: settings}, {call: call}, {question: q}} {
		require.True(t, r.post(m))
	}
	g.nodes[1].fast.submit(r)
	require.ErrorIs(t, g.soon(settings), NotLeaderOrFollower)
	for _, done := range []chan Result{call.done, q.done} {
		select {
		case res := <-done:
			require.Equal(t, NotLeaderOrFollower, res.Err)
		case <-time.After(5 * time.Second):
			t.Fatal("nobody answers")
		}
	}
}

// awakeByHand waits until a replica has nothing to do, and has it taken for one that was woken and is not run yet.
func (g *group) awakeByHand(r *runner) {
	g.eventually("it rests", func() bool {
		r.mailMu.Lock()
		defer r.mailMu.Unlock()
		was := r.awake
		r.awake = true
		return !was
	})
}

func (g *group) soon(answer chan error) error {
	select {
	case err := <-answer:
		return err
	case <-time.After(5 * time.Second):
		g.t.Fatal("nobody answers")
		return nil
	}
}
