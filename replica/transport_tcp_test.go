package replica

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/vfs"
)

var someMessages = []Message{
	FetchRequest{},
	FetchRequest{Tag: 1<<63 + 5, Offset: 7, LogStart: 1, LeaderEpoch: 3, LastFetchedEpoch: -1, BrokerEpoch: 9, Unsynced: 6, UncleanStop: true, TopicID: [16]byte{7, 15: 8},
		Isolation: log.LogEnd, MaxBytes: 1 << 20, MinBytes: 1, MaxWait: 500 * time.Millisecond},
	FetchRequest{From: NoNode, Tag: 6, Offset: 7, LogStart: -1, LeaderEpoch: -1, LastFetchedEpoch: 2, BrokerEpoch: -1, Isolation: log.ReadCommitted, MaxBytes: 100},
	AppendRequest{From: NoNode, Tag: 13, Raw: []byte("records"), Acks: -1, Timeout: time.Second, LeaderEpoch: 3, BrokerEpoch: 4},
	OffsetRequest{From: NoNode, Tag: 14, At: MaxTime, Isolation: log.ReadCommitted, LeaderEpoch: -1},
	Answer{Tag: 15, Result: Result{Err: MessageTooLarge, Base: -1, Cause: &RemoteError{"too large", 1 << 4}, Raw: []byte("r"), Bytes: 1}},
	StatusRequest{Tag: 16},
	EpochRequest{From: NoNode, Tag: 7, LeaderEpoch: 3, Epoch: 2},
	EndTxn{Tag: 8, ProducerID: 5, ProducerEpoch: 6, Commit: true, CoordinatorEpoch: 7, TransactionVersion: 2, LeaderEpoch: -1, BrokerEpoch: 1 << 40, Timeout: time.Second},
	ControlRequest{Tag: 11, BrokerEpoch: 5, TopicID: [16]byte{1, 2}, Proposal: Proposal{ISR: []NodeID{1, 3}, BrokerEpochs: []int64{5, -1}, LeaderEpoch: 2, PartitionEpoch: 9}},
	ControlRequest{Tag: 12, Stopping: true},
	ControlRequest{Tag: 13, Settings: true, Proposal: Proposal{LeaderEpoch: -1, PartitionEpoch: 7}},
	ControlAnswer{Tag: 11, Answer: ISRAnswer{Err: IneligibleReplica, ISR: []NodeID{1}, LeaderEpoch: 2, PartitionEpoch: 9}},
	Answer{Tag: 9, Result: refusal(FencedLeaderEpoch)},
	Answer{Tag: 10, Result: Result{Raw: []byte("records"), Bytes: 7, Aborted: []log.AbortedTxn{{ProducerID: 1, FirstOffset: 2, LastOffset: 3, LastStable: 4}, {ProducerID: 5}}}},
	FetchResponse{Tag: 3, Result: refusal(NotLeaderOrFollower)},
	FetchResponse{Tag: 4, Result: Result{Base: -1, Last: -1, AppendTime: -1, Raw: []byte("records"), Bytes: 7, HighWatermark: 5, LastStable: 4, LogStart: 1,
		LogEnd: 9, Removal: 2, Diverged: true, Duplicate: true, Gap: true, EpochEnd: log.EpochEnd{Epoch: 2, End: 8}, Leader: 3, LeaderEpoch: 6}},
}

func TestPingsReadBackAsTheyWere(t *testing.T) {
	for _, m := range []ping{{}, {lost: true}} {
		head, _ := appendFrame(nil, log.TopicPartition{}, m)
		_, got, err := decodeFrame(head[4:])
		require.NoError(t, err)
		require.Equal(t, m, got)
	}
}

func TestFramesReadBackAsTheyWere(t *testing.T) {
	for _, m := range someMessages {
		head, raw := appendFrame(nil, ordersZero, m)
		whole := slices.Concat(head, raw)
		require.Equal(t, len(whole)-4, int(binary.BigEndian.Uint32(whole)))
		tp, got, err := decodeFrame(whole[4:])
		require.NoError(t, err)
		require.Equal(t, ordersZero, tp)
		require.Equal(t, m, got)
		for cut := range len(head) - 4 {
			_, _, err := decodeFrame(whole[4 : 4+cut])
			require.ErrorIs(t, err, ErrFrame)
		}
	}
}

func FuzzDecodeFrame(f *testing.F) {
	for _, m := range someMessages {
		head, raw := appendFrame(nil, ordersZero, m)
		f.Add(slices.Concat(head, raw)[4:])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		tp, m, err := decodeFrame(b)
		if err != nil {
			return
		}
		head, raw := appendFrame(nil, tp, m)
		again, m2, err := decodeFrame(slices.Concat(head, raw)[4:])
		if err != nil || again != tp || fmt.Sprint(m2) != fmt.Sprint(m) {
			t.Fatalf("%v %v: %v %v %v", tp, m, again, m2, err)
		}
	})
}

type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	e.read += len(p)
	return len(p), nil
}

func TestALengthThatLiesCostsNoMemory(t *testing.T) {
	nothing, coming := func() error { return nil }, atomic.Int64{}
	for _, n := range []uint32{0, 6, 1<<20 + 1, 1<<32 - 1} {
		_, err := readFrame(bytes.NewReader(binary.BigEndian.AppendUint32(nil, n)), 1<<20, &coming, nothing)
		require.ErrorIs(t, err, ErrFrame)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := readFrame(bytes.NewReader(binary.BigEndian.AppendUint32(nil, 1<<30)), 1<<30, &coming, nothing)
	runtime.ReadMemStats(&after)
	require.ErrorIs(t, err, io.EOF)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(2<<20))
	body, err := readFrame(io.MultiReader(bytes.NewReader(binary.BigEndian.AppendUint32(nil, 5<<20)), &endless{}), 8<<20, &coming, nothing)
	require.NoError(t, err)
	require.Len(t, body, 5<<20)
}

func TestStrangersOnTheWireAreCutOff(t *testing.T) {
	tcp, err := ListenTCP("127.0.0.1:0", TCPConfig{Self: 1, MaxFrame: 1 << 20})
	require.NoError(t, err)
	defer tcp.Close()
	go func() { _ = tcp.Serve(t.Context(), func(Envelope) {}) }()
	for name, b := range map[string][]byte{
		"no hello":          []byte("GET / HTTP/1.1\r\n\r\n"),
		"for somebody else": appendHello(nil, 2, 3),
		"a huge frame":      append(appendHello(nil, 2, 1), 0xff, 0xff, 0xff, 0xff),
		"no message":        append(appendHello(nil, 2, 1), 0, 0, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8),
	} {
		c, err := net.Dial("tcp", tcp.Addr().String())
		require.NoError(t, err)
		_, err = c.Write(b)
		require.NoError(t, err)
		require.NoError(t, c.SetReadDeadline(time.Now().Add(5*time.Second)))
		_, err = c.Read(make([]byte, 1))
		require.Error(t, err, name)
		require.NotErrorIs(t, err, context.DeadlineExceeded, name)
		timeout := false
		if e, ok := err.(net.Error); ok {
			timeout = e.Timeout()
		}
		require.False(t, timeout, name)
		require.NoError(t, c.Close())
	}
}

func TestReplicasOverTCPReconnectAndLeaveNothingBehind(t *testing.T) {
	before := runtime.NumGoroutine()
	g := &group{t: t, network: NewNetwork(), ids: []NodeID{1, 2, 3}, nodes: map[NodeID]*member{}}
	g.state = Assign{TopicID: [16]byte{1}, Leader: 1, Replicas: g.ids, ISR: slices.Clone(g.ids)}
	wires := map[NodeID]*TCP{}
	listen := func(id NodeID, addr string) {
		tcp, err := ListenTCP(addr, TCPConfig{Self: id, Backoff: 5 * time.Millisecond})
		require.NoError(t, err)
		wires[id] = tcp
		for other, w := range wires {
			if other != id {
				tcp.SetPeer(other, w.Addr().String())
				w.SetPeer(id, tcp.Addr().String())
			}
		}
	}
	for _, id := range g.ids {
		listen(id, "127.0.0.1:0")
	}
	conf := log.Config{Durability: log.Buffered}
	for _, id := range g.ids {
		g.nodes[id] = &member{fs: vfs.Mem()}
		g.startOver(id, conf, wires[id])
	}
	g.assign(g.state)
	for i := range 20 {
		g.produce(fmt.Sprint("v", i))
	}
	addr := wires[1].Addr().String()
	require.NoError(t, wires[1].Close())
	require.ErrorIs(t, wires[1].Close(), ErrTransportClosed)
	require.ErrorIs(t, wires[1].Serve(t.Context(), func(Envelope) {}), ErrTransportClosed)
	require.Eventually(t, func() bool { return g.nodes[1].Err() != nil }, 5*time.Second, time.Millisecond)
	g.kill(1)
	g.elect(2, 1)
	g.produce("led by another")
	listen(1, addr)
	g.startOver(1, conf, wires[1])
	g.assign(g.state)
	g.inSync(2, 3)
	g.produce("end")
	g.caughtUp(2, 1, 3)
	for _, id := range g.ids {
		require.Len(t, g.values(id), 22)
		require.Equal(t, g.values(2), g.values(id))
	}
	for _, id := range g.ids {
		require.NoError(t, g.nodes[id].Close())
		require.NoError(t, g.nodes[id].dir.Close())
		require.NoError(t, wires[id].Close())
	}
	for range 1000 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal("goroutines are left")
}

func TestTroubleWithAPeerIsToldOnceUntilItIsOver(t *testing.T) {
	type trouble struct {
		node NodeID
		err  error
	}
	told := make(chan trouble, 100)
	tcp, err := ListenTCP("127.0.0.1:0", TCPConfig{Self: 1, Backoff: time.Millisecond, Trouble: func(n NodeID, err error) { told <- trouble{n, err} }})
	require.NoError(t, err)
	defer tcp.Close()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	nobody := free.Addr().String()
	require.NoError(t, free.Close())

	arrived := make(chan Envelope, 100)
	begin := func(addr string, self NodeID) *TCP {
		other, err := ListenTCP(addr, TCPConfig{Self: self})
		require.NoError(t, err)
		go func() { _ = other.Serve(t.Context(), func(e Envelope) { arrived <- e }) }()
		return other
	}
	next := func() trouble {
		t.Helper()
		select {
		case got := <-told:
			return got
		case <-time.After(5 * time.Second):
			t.Fatal("nothing is told")
			return trouble{}
		}
	}
	tcp.SetPeer(2, nobody)
	for range 2 {
		for range 20 {
			tcp.Send(2, ordersZero, Answer{})
		}
		for got := next(); ; got = next() { // the first may be of a connection that ended
			require.EqualValues(t, 2, got.node)
			if strings.Contains(got.err.Error(), "replica: node 2 cannot be reached: dial tcp "+nobody) {
				break
			}
		}
		time.Sleep(10 * time.Millisecond)
		require.Empty(t, told, "once")
		other := begin(nobody, 2)
		require.Eventually(t, func() bool { tcp.Send(2, ordersZero, Answer{}); return len(arrived) > 0 }, 5*time.Second, time.Millisecond)
		require.Eventually(t, func() bool { return len(tcp.peers[2].queue) == 0 }, 5*time.Second, time.Millisecond)
		require.NoError(t, other.Close())
		for len(arrived) > 0 {
			<-arrived
		}
	}
	third, err := ListenTCP("127.0.0.1:0", TCPConfig{Self: 3, Peers: map[NodeID]string{7: tcp.Addr().String()}})
	require.NoError(t, err)
	defer third.Close()
	third.Send(7, ordersZero, Answer{})
	got := next()
	for got.node == 2 { // of the connection that ended last
		got = next()
	}
	require.EqualValues(t, 3, got.node)
	require.ErrorContains(t, got.err, "takes node 1 for node 7")
}
