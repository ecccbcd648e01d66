package replica

import (
	"context"
	"encoding/binary"
	"net"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/vfs"
)

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// dialAs connects to a TCP, says who it is, and writes something.
func dialAs(t *testing.T, tcp *TCP, from NodeID, b ...byte) net.Conn {
	c, err := net.Dial("tcp", tcp.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	_, err = c.Write(append(appendHello(nil, from, tcp.conf.Self), b...))
	require.NoError(t, err)
	return c
}

// ended waits until the other side has ended a connection.
func ended(t *testing.T, c net.Conn) {
	require.NoError(t, c.SetReadDeadline(time.Now().Add(5*time.Second)))
	_, err := c.Read(make([]byte, 1))
	require.Error(t, err)
	timeout, ok := err.(net.Error)
	require.False(t, ok && timeout.Timeout(), "it is still open")
}

func (t *TCP) open() (callers, all int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.callers, len(t.conns)
}

// Connections that announce much and send nothing cost next to nothing, and do not keep a node from reaching others.
func TestManyConnectionsThatHangCostLittleAndHoldUpNobody(t *testing.T) {
	tcp, err := ListenTCP("127.0.0.1:0", TCPConfig{Self: 1, MaxConns: 200})
	require.NoError(t, err)
	defer tcp.Close()
	other, err := ListenTCP("127.0.0.1:0", TCPConfig{Self: 2})
	require.NoError(t, err)
	defer other.Close()
	got := make(chan Envelope, 1)
	go func() { _ = other.Serve(t.Context(), func(e Envelope) { got <- e }) }()
	tcp.SetPeer(2, other.Addr().String())

	before := heap()
	for i := range 200 {
		dialAs(t, tcp, NodeID(10+i), binary.BigEndian.AppendUint32(nil, 60<<20)...)
	}
	require.Eventually(t, func() bool { callers, _ := tcp.open(); return callers == 200 }, 5*time.Second, time.Millisecond)
	time.Sleep(50 * time.Millisecond) // the last have read the length
	require.Less(t, heap()-before, int64(200*128<<10))
	tcp.Send(2, ordersZero, EpochRequest{From: NoNode})
	select {
	case <-got:
	case <-time.After(5 * time.Second):
		t.Fatal("it does not get out any more")
	}
}

// Strangers that say they are nodes, as many as there may be, do not keep one out that is known; it keeps them out, and another node.
func TestConnectionsOfStrangersDoNotKeepNodesOut(t *testing.T) {
	tcp, err := ListenTCP("127.0.0.1:0", TCPConfig{Self: 1, MaxConns: 3, Peers: map[NodeID]string{2: "127.0.0.1:1", 3: "127.0.0.1:1", 4: "127.0.0.1:1"}})
	require.NoError(t, err)
	defer tcp.Close()
	said := make(chan NodeID, 9)
	go func() { _ = tcp.Serve(t.Context(), func(e Envelope) { said <- e.From }) }()
	head, _ := appendFrame(nil, ordersZero, EpochRequest{From: NoNode})
	heard := func(from NodeID) net.Conn {
		c := dialAs(t, tcp, from, head...)
		for {
			select {
			case got := <-said:
				if got == from {
					return c
				}
			case <-time.After(5 * time.Second):
				t.Fatal(from, "is kept out")
			}
		}
	}
	var strangers []net.Conn
	for i := range NodeID(3) {
		strangers = append(strangers, heard(100+i))
	}
	for i := range NodeID(3) {
		heard(2 + i)
		ended(t, strangers[i])
	}
	ended(t, dialAs(t, tcp, 2)) // all that are there are known: there is no room
}

func TestWhoDoesNotSayWhoItIsGoesFirst(t *testing.T) {
	tcp, err := ListenTCP("127.0.0.1:0", TCPConfig{Self: 1, MaxConns: 3})
	require.NoError(t, err)
	defer tcp.Close()
	got := make(chan Envelope, 1)
	go func() { _ = tcp.Serve(t.Context(), func(e Envelope) { got <- e }) }()
	var silent []net.Conn
	for range 3 {
		c, err := net.Dial("tcp", tcp.Addr().String())
		require.NoError(t, err)
		defer c.Close()
		silent = append(silent, c)
		require.Eventually(t, func() bool { callers, _ := tcp.open(); return callers == len(silent) }, 5*time.Second, time.Millisecond)
	}
	head, _ := appendFrame(nil, ordersZero, EpochRequest{From: NoNode})
	dialAs(t, tcp, 2, head...)
	select {
	case e := <-got:
		require.Equal(t, NodeID(2), e.From)
	case <-time.After(5 * time.Second):
		t.Fatal("nobody could say anything")
	}
	ended(t, silent[0])
}

// A node that connects again and again has a few connections, the latest of them.
func TestOneNodeHasFewConnections(t *testing.T) {
	tcp, err := ListenTCP("127.0.0.1:0", TCPConfig{Self: 1})
	require.NoError(t, err)
	var conns []net.Conn
	for i := range 20 {
		conns = append(conns, dialAs(t, tcp, 2))
		if i >= connsOfNode {
			ended(t, conns[i-connsOfNode])
		} else {
			time.Sleep(2 * time.Millisecond)
		}
	}
	require.Eventually(t, func() bool { callers, all := tcp.open(); return callers == connsOfNode && all == callers }, 5*time.Second, time.Millisecond)
	require.NoError(t, tcp.Close())
}

// Frames that have not come whole take no more than four of the largest.
func TestFramesThatAreComingInAreBounded(t *testing.T) {
	tcp, err := ListenTCP("127.0.0.1:0", TCPConfig{Self: 1, MaxFrame: 4 << 20})
	require.NoError(t, err)
	defer tcp.Close()
	go func() { _ = tcp.Serve(t.Context(), func(Envelope) {}) }()
	half := append(binary.BigEndian.AppendUint32(nil, 4<<20), make([]byte, 3<<20)...)
	for i := range 4 {
		dialAs(t, tcp, NodeID(10+i), half...)
	}
	require.Eventually(t, func() bool { return tcp.coming.Load() == 16<<20 }, 5*time.Second, time.Millisecond)
	c := dialAs(t, tcp, 20)
	_, _ = c.Write(half) // it may be cut off meanwhile
	ended(t, c)
	require.Eventually(t, func() bool { return tcp.coming.Load() == 16<<20 }, 5*time.Second, time.Millisecond)
}

// What waits for a peer that does not read is bounded by bytes, too.
func TestRecordsThatWaitForAPeerAreBounded(t *testing.T) {
	tcp, err := ListenTCP("127.0.0.1:0", TCPConfig{Self: 1, MaxFrame: 1 << 20})
	require.NoError(t, err)
	defer tcp.Close()
	deaf, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer deaf.Close()
	tcp.SetPeer(2, deaf.Addr().String())
	raw := make([]byte, 512<<10)
	for range 1000 {
		tcp.Send(2, ordersZero, FetchResponse{Result: Result{Raw: raw, Bytes: int64(len(raw))}})
	}
	require.LessOrEqual(t, tcp.peers[2].bytes.Load(), int64(4<<20))
	require.LessOrEqual(t, len(tcp.peers[2].queue), 8)
}

// Nothing comes on a connection that a node makes; of one that says something all the same there is another attempt, and no more.
func TestAPeerThatTalksBackIsLeft(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	tcp, err := ListenTCP("127.0.0.1:0", TCPConfig{Self: 1, Backoff: time.Millisecond, Peers: map[NodeID]string{2: l.Addr().String()}})
	require.NoError(t, err)
	defer tcp.Close()
	for range 3 {
		tcp.Send(2, ordersZero, EpochRequest{From: NoNode})
		c, err := l.Accept()
		require.NoError(t, err)
		_, err = c.Write([]byte("what?"))
		require.NoError(t, err)
		require.NoError(t, c.SetReadDeadline(time.Now().Add(5*time.Second)))
		for err == nil {
			_, err = c.Read(make([]byte, 100))
		}
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
		require.NoError(t, c.Close())
	}
}

// wired are nodes over TCP.
func wired(t *testing.T, conf log.Config, tc TCPConfig, c Config, ids ...NodeID) (*group, map[NodeID]*TCP) {
	g := &group{t: t, network: NewNetwork(), ids: ids, nodes: map[NodeID]*member{}}
	g.state = Assign{TopicID: [16]byte{1}, Leader: ids[0], Replicas: ids, ISR: slices.Clone(ids)}
	wires := map[NodeID]*TCP{}
	for _, id := range ids {
		tc.Self = id
		tcp, err := ListenTCP("127.0.0.1:0", tc)
		require.NoError(t, err)
		wires[id] = tcp
		for other, w := range wires {
			if other != id {
				tcp.SetPeer(other, w.Addr().String())
				w.SetPeer(id, tcp.Addr().String())
			}
		}
	}
	for _, id := range ids {
		g.epoch++
		c.Self, c.BrokerEpoch = id, g.epoch
		m := &member{fs: vfs.Mem(), alive: true}
		var err error
		m.dir, err = log.OpenDir("mem", log.DirConfig{FS: m.fs, Defaults: conf})
		require.NoError(t, err)
		m.Node, err = NewNode(NodeConfig{Config: c, Dir: m.dir, Transport: wires[id], Propose: g.propose})
		require.NoError(t, err)
		g.nodes[id] = m
	}
	t.Cleanup(func() {
		for _, m := range g.nodes {
			if m.alive {
				require.NoError(t, m.Close())
				require.NoError(t, m.dir.Close())
			}
		}
		for _, w := range wires {
			require.NoError(t, w.Close())
		}
	})
	g.assign(g.state)
	return g, wires
}

// A follower, and a consumer of another node, that ask for more than a frame holds get what fits, and go on from there.
func TestFetchesAskForNoMoreThanAFrameHolds(t *testing.T) {
	c := quick
	c.FetchBytes = 4 << 20
	g, _ := wired(t, log.Config{Durability: log.Buffered}, TCPConfig{MaxFrame: 1 << 20}, c, 1, 2)
	g.produce("a")
	require.NoError(t, g.nodes[2].Stop(ordersZero, Stop{LeaderEpoch: -1}))
	for range 6 {
		_, err := g.handle(1).Append(t.Context(), rawBatch(t, string(make([]byte, 400<<10))), 1)
		require.NoError(t, err)
	}
	g.elect(1)
	g.caughtUp(1, 2)
	remote := g.nodes[2].Remote(1, ordersZero)
	for offset := int64(0); offset < 7; {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		f, err := remote.Fetch(ctx, offset, FetchOptions{MaxBytes: 1 << 40})
		cancel()
		require.NoError(t, err)
		require.Greater(t, f.NextOffset, offset)
		offset = f.NextOffset
	}
}

// A batch that does not fit into a frame is said to be too large, rather than never answered.
func TestABatchThatNoFrameHoldsIsAnsweredAsTooLarge(t *testing.T) {
	g, _ := wired(t, log.Config{Durability: log.Buffered}, TCPConfig{MaxFrame: 64 << 10}, quick, 1, 2)
	g.produce("a")
	_, err := g.handle(1).Append(t.Context(), rawBatch(t, string(make([]byte, 100<<10))), 1)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return g.handle(2).Status().LastError == error(MessageTooLarge) }, 5*time.Second, time.Millisecond)
	g.inSync(1, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	_, err = g.nodes[2].Remote(1, ordersZero).Fetch(ctx, 1, FetchOptions{})
	require.ErrorIs(t, err, MessageTooLarge)
}

func TestTCPConfigsThatCannotBeAreRefusedOrMadeGood(t *testing.T) {
	_, err := ListenTCP("127.0.0.1:0", TCPConfig{Self: NoNode})
	require.ErrorContains(t, err, "TCPConfig.Self")
	tcp, err := ListenTCP("127.0.0.1:0", TCPConfig{Self: 1, MaxFrame: 1, MaxQueue: 1<<31 - 1, Backoff: 1 << 62, MaxConns: -1})
	require.NoError(t, err)
	tcp.SetPeer(2, "127.0.0.1:1")
	tcp.Send(2, ordersZero, EpochRequest{})
	tcp.Send(3, ordersZero, EpochRequest{})
	require.NoError(t, tcp.Close())
	tcp.SetPeer(4, "127.0.0.1:1")
	tcp.Send(4, ordersZero, EpochRequest{})
}

// flood sends n requests that a replica of node 1 keeps waiting.
func flood(g *group, from NodeID, n int, m func(i int) Message) {
	for i := range n {
		g.network.Transport(from).Send(1, ordersZero, m(i))
		if i%200 == 0 {
			time.Sleep(time.Millisecond / 2)
		}
	}
}

// Whatever other nodes ask for, and however long they would wait, what is remembered of it is bounded, and the node serves
// the others.
func TestRequestsOfOtherNodesAreBounded(t *testing.T) {
	g := newGroup(t, log.Config{Durability: log.Buffered}, 1, 2)
	g.produce("a")
	flood(g, 9, 20000, func(i int) Message {
		return FetchRequest{From: NoNode, Tag: uint64(i), Offset: 1, MinBytes: 1, MaxWait: 1 << 62, LeaderEpoch: -1, LastFetchedEpoch: -1}
	})
	h := g.handle(1)
	require.LessOrEqual(t, h.Status().Fetches, farOfNode+1)
	flood(g, 2, 2000, func(i int) Message {
		return FetchRequest{From: 2, Tag: uint64(i), Offset: 1, MinBytes: 1, MaxWait: 1 << 62, LeaderEpoch: -1, LastFetchedEpoch: -1, BrokerEpoch: -1}
	})
	require.LessOrEqual(t, h.Status().Fetches, farOfNode+farOfFollower)
	g.produce("b") // answers all
	require.Eventually(t, func() bool { return h.Status().Fetches <= 1 }, 5*time.Second, time.Millisecond)
	g.produce("c")
	require.Eventually(t, func() bool { h.r.coreMu.Lock(); defer h.r.coreMu.Unlock(); return h.r.far.all <= 1 }, 5*time.Second, time.Millisecond)
}

// Questions to a controller that hangs do not pile up, and do not hold up what this node itself has to ask.
func TestQuestionsToAControllerThatHangsHoldUpNothingElse(t *testing.T) {
	g := newGroup(t, log.Config{Durability: log.Buffered}, 1, 2)
	g.produce("a")
	n := g.nodes[1].Node
	require.NoError(t, n.Close()) // it is made anew, with a controller
	conf := n.conf
	conf.Transport = g.network.Transport(1)
	conf.Judge = func(ctx context.Context, _ NodeID, _ log.TopicPartition, _ ControlRequest) ISRAnswer {
		<-ctx.Done()
		return ISRAnswer{Err: RequestTimedOut}
	}
	n, err := NewNode(conf)
	require.NoError(t, err)
	g.nodes[1].Node = n
	g.elect(1)
	g.produce("b")
	flood(g, 9, 20000, func(i int) Message { return ControlRequest{Tag: uint64(i)} })
	require.LessOrEqual(t, n.asked.Load(), int64(remoteLimit))
	g.network.Isolate(2, true, 1)
	_, err = g.handle(1).Append(t.Context(), rawBatch(t, "c"), 1)
	require.NoError(t, err)
	g.inSync(1, 1)
}

// What other nodes say to a replica whose log takes its time to open is bounded.
func TestMailForALogThatIsNotOpenIsBounded(t *testing.T) {
	g := newGroup(t, log.Config{Durability: log.Buffered}, 1)
	r := newRunner(g.nodes[1].Node, log.TopicPartition{Topic: "slow"})
	r.opening = true
	for i := range 3 * remoteLimit {
		r.take(mail{event: FetchRequest{From: NoNode, Tag: uint64(i)}, remote: true, from: 9})
	}
	r.take(mail{event: Peer{Node: 2}})
	require.Len(t, r.held, remoteLimit+1)
	for i := range 3 * remoteLimit { // for which clients leave room
		r.take(mail{event: FetchRequest{From: 2, Tag: uint64(i)}, remote: true, from: 2})
	}
	require.Len(t, r.held, 2*remoteLimit+1)

	r = newRunner(g.nodes[1].Node, log.TopicPartition{Topic: "slow and large"})
	r.opening = true
	raw := make([]byte, 10<<20)
	for range 100 {
		r.take(mail{event: AppendRequest{From: 9, Raw: raw}, remote: true, from: 9})
	}
	require.Len(t, r.held, int(remoteBytes)/len(raw))
}

// Records that a peer sends unasked do not pile up before a replica that is busy.
func TestRecordsThatNobodyAskedForAreBounded(t *testing.T) {
	g := newGroup(t, log.Config{Durability: log.Buffered}, 1)
	r := newRunner(g.nodes[1].Node, log.TopicPartition{Topic: "busy"})
	r.awake = true // it is at something else
	raw := make([]byte, 10<<20)
	taken := 0
	for range 100 {
		if r.post(mail{event: FetchResponse{From: 2, Result: Result{Raw: raw}}, remote: true, from: 2}) {
			taken++
		}
	}
	require.Equal(t, int(remoteBytes)/len(raw), taken)
	require.True(t, r.post(mail{event: Tick{}}))
}

// However much clients ask for, and however long they wait for it, a follower's fetches and a leader's answers come through: else the
// follower would ask again only after its time limit, 30 s, and fall out of sync.
func TestClientsDoNotKeepReplicationOut(t *testing.T) {
	g := newGroup(t, log.Config{Durability: log.Buffered}, 1)
	r := newRunner(g.nodes[1].Node, log.TopicPartition{Topic: "busy"})
	r.awake = true // it is at something else
	ask := func(m Message) bool { return r.post(mail{event: m, remote: true, from: 2}) }
	raw := make([]byte, 10<<20)
	for ask(AppendRequest{From: 9, Raw: raw}) {
	}
	for ask(FetchRequest{From: NoNode}) {
	}
	for range remoteLimit {
		require.True(t, ask(FetchRequest{From: 2}))
	}
	require.False(t, ask(FetchRequest{From: 2}), "they are bounded, too")
	r.remotes[ofReplicas].messages = 0
	require.True(t, ask(FetchResponse{From: 2, Result: Result{Raw: raw}}))

	g = newGroup(t, log.Config{Durability: log.Buffered}, 1, 2)
	g.produce("a")
	h := g.handle(1)
	g.network.Isolate(2, true, 1) // no fetch of it waits, so that clients take all the room there is
	require.Eventually(t, func() bool { return h.Status().Fetches == 0 }, 5*time.Second, time.Millisecond)
	for node := NodeID(10); node < 10+farLimit/farOfNode; node++ {
		flood(g, node, farOfNode, func(i int) Message {
			return FetchRequest{From: NoNode, Tag: uint64(i), Offset: 1, MinBytes: 1 << 20, MaxBytes: 1 << 20, MaxWait: time.Hour, LeaderEpoch: -1, LastFetchedEpoch: -1}
		})
		all := int(node-9) * farOfNode // before the next ones come, which else would find no room while these wait to be heard
		require.Eventually(t, func() bool { return h.Status().Fetches == all }, 30*time.Second, time.Millisecond)
	}
	g.network.Isolate(2, false, 1)
	g.inSync(1, 2)
	for range 3 {
		g.produce("b")
	}
	g.caughtUp(1, 2)
}
