package replica

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/vfs"
)

// patient is a node that takes 30 s to notice that nobody answers.
func patient(t *testing.T, id NodeID, wire Transport) *Node {
	t.Helper()
	d, err := log.OpenDir("mem", log.DirConfig{FS: vfs.Mem(), Defaults: log.Config{Durability: log.Buffered}})
	require.NoError(t, err)
	n, err := NewNode(NodeConfig{Config: Config{Self: id, Backoff: 10 * time.Millisecond}, Dir: d, Transport: wire})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, n.Close())
		require.NoError(t, d.Close())
	})
	return n
}

// What is asked of a node that is made later, or is being made, is asked again as soon as it is there.
func TestWhatIsAskedOfANodeBeforeItServesIsNotForgotten(t *testing.T) {
	begin := map[string]func(t *testing.T) (first, second Transport){
		"in process": func(*testing.T) (first, second Transport) {
			network := NewNetwork()
			return network.Transport(1), network.Transport(2)
		},
		"TCP": func(t *testing.T) (first, second Transport) {
			a, b := listen(t, 1), listen(t, 2)
			a.SetPeer(2, b.Addr().String())
			b.SetPeer(1, a.Addr().String())
			return a, b
		},
		"TCP, known later": func(t *testing.T) (first, second Transport) {
			a, b := listen(t, 1), listen(t, 2)
			time.AfterFunc(100*time.Millisecond, func() {
				a.SetPeer(2, b.Addr().String())
				b.SetPeer(1, a.Addr().String())
			})
			return a, b
		},
	}
	for name, transports := range begin {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, second := transports(t)
			a := Assign{TopicID: [16]byte{1}, Leader: 2, Replicas: []NodeID{1, 2}, ISR: []NodeID{1, 2}}
			follower := patient(t, 1, first)
			require.NoError(t, follower.Assign(ordersZero, a))
			h, err := follower.Partition(ordersZero)
			require.NoError(t, err)
			require.Eventually(t, func() bool { return h.Status().Phase == "fetching" || h.Status().Counts.FetchErrors > 0 }, 5*time.Second, time.Millisecond)
			asked := make(chan error, 1)
			go func() { // of a client, on the same way
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				for {
					_, err := follower.Remote(2, ordersZero).EndOfEpoch(ctx, 0, nil)
					if refused := (*RefusedError)(nil); err == nil || !errors.As(err, &refused) {
						asked <- err
						return
					}
					time.Sleep(time.Millisecond)
				}
			}()
			time.Sleep(150 * time.Millisecond)

			leader := patient(t, 2, second)
			require.NoError(t, leader.Assign(ordersZero, a))
			h, err = leader.Partition(ordersZero)
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			_, err = h.Append(ctx, rawBatch(t, "v"), -1)
			require.NoError(t, err, "the follower does not ask")
			require.NoError(t, <-asked)
		})
	}
}

// A node takes messages when NewNode returns.
func TestANodeServesWhenNewNodeReturns(t *testing.T) {
	for range 100 {
		network := NewNetwork()
		a := patient(t, 1, network.Transport(1))
		b := patient(t, 2, network.Transport(2))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		_, err := a.Remote(2, ordersZero).EndOfEpoch(ctx, 0, nil)
		require.ErrorIs(t, err, UnknownTopicOrPartition)
		_, err = b.Remote(1, ordersZero).EndOfEpoch(ctx, 0, nil)
		require.ErrorIs(t, err, UnknownTopicOrPartition)
		cancel()
	}
}

func listen(t *testing.T, id NodeID) *TCP {
	t.Helper()
	tcp, err := ListenTCP("127.0.0.1:0", TCPConfig{Self: id, Backoff: 5 * time.Millisecond})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, tcp.Close()) })
	return tcp
}
