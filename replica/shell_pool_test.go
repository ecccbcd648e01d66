package replica

import (
	"context"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/vfs"
)

// A pool that was at work has a few goroutines at rest, which end with it.
func TestAFewGoroutinesOfAPoolRest(t *testing.T) {
	p := newPool(20)
	var begun sync.WaitGroup
	hold := make(chan struct{})
	for range 20 {
		begun.Add(1)
		p.submit(taskFunc(func() { begun.Done(); <-hold }))
	}
	begun.Wait()
	require.False(t, p.lend(), "all are busy")
	close(hold)
	p.wait()
	resting := func() int {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.resting)
	}
	require.Equal(t, resters, resting())
	done := make(chan int)
	p.submit(taskFunc(func() { done <- resting() }))
	require.Equal(t, resters-1, <-done, "who rests is called")
	p.wait()
	p.close()
	require.Zero(t, resting())
	p.submit(taskFunc(func() { done <- resting() }))
	<-done
	p.close()
}

// What was lent counts as submitted, and what came meanwhile is done in its place.
func TestATurnOnAGoroutineOfSomebodyElseCounts(t *testing.T) {
	p := newPool(1)
	require.True(t, p.lend())
	ran := make(chan struct{})
	p.submit(taskFunc(func() { close(ran) }))
	select {
	case <-ran:
		t.Fatal("two at a time")
	case <-time.After(10 * time.Millisecond):
	}
	p.giveBack(nil, false)
	<-ran
	p.wait()
	require.True(t, p.lend())
	again := 0
	p.giveBack(taskAgain(func() bool { again++; return again < 3 }), true)
	p.wait()
	require.Equal(t, 3, again)
	p.close()
}

type taskAgain func() bool

func (f taskAgain) run(*worker) bool { return f() }

// hangingFS lets no write to a log come to its end while hang is locked.
type hangingFS struct {
	vfs.FS
	hang *sync.RWMutex
}

func (h hangingFS) OpenFile(name string, flag int, perm os.FileMode) (vfs.File, error) {
	f, err := h.FS.OpenFile(name, flag, perm)
	if err == nil && strings.HasSuffix(name, ".log") {
		f = hangingFile{f, h.hang}
	}
	return f, err
}

type hangingFile struct {
	vfs.File
	hang *sync.RWMutex
}

func (h hangingFile) WriteAt(b []byte, at int64) (int, error) {
	h.hang.RLock()
	defer h.hang.RUnlock()
	return h.File.WriteAt(b, at)
}

// The disk of a follower hangs in an append. Producers are let go when their time is up, the other follower has everything, and
// when the first is out of sync all is as before: no goroutine that others need waits for that disk.
func TestAFollowerWhoseDiskHangsHoldsUpNobody(t *testing.T) {
	g := &group{t: t, network: NewNetwork(), ids: []NodeID{1, 2, 3}, nodes: map[NodeID]*member{}}
	g.state = Assign{TopicID: [16]byte{1}, Leader: 1, Replicas: g.ids, ISR: slices.Clone(g.ids)}
	var hang sync.RWMutex
	for _, id := range g.ids {
		g.nodes[id] = &member{fs: vfs.Mem()}
		if id == 2 {
			g.nodes[id].fs = hangingFS{vfs.Mem(), &hang}
		}
		g.start(id, log.Config{Durability: log.Buffered})
	}
	defer func() {
		for _, m := range g.nodes {
			require.NoError(t, m.Close())
			require.NoError(t, m.dir.Close())
		}
	}()
	g.assign(g.state)
	g.produce("a")
	g.caughtUp(1, 2, 3)

	hang.Lock()
	released := false
	release := func() {
		if !released {
			hang.Unlock()
			released = true
		}
	}
	defer release()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	end := g.handle(1).Log().Offsets().LogEnd + 1
	answered := make(chan error, 1)
	go func() {
		_, err := g.handle(1).Append(ctx, rawBatch(t, "b"), -1)
		answered <- err
	}()
	g.eventually("it is in the leader's log", func() bool { return g.handle(1).Log().Offsets().LogEnd == end })
	cancel()
	select {
	case err := <-answered:
		require.ErrorAs(t, err, new(*log.UnconfirmedError))
	case <-time.After(20 * time.Second):
		t.Fatal("the producer waits for a disk that is not its leader's")
	}
	require.Eventually(t, func() bool { return g.handle(3).Log().Offsets().LogEnd == end }, 5*time.Second, time.Millisecond)
	g.inSync(1, 2)
	g.produce("c")
	require.NoError(t, g.nodes[3].Close()) // which waits for none but its own
	require.NoError(t, g.nodes[3].dir.Close())
	delete(g.nodes, 3)
	release()
	g.caughtUp(1, 2)
}
