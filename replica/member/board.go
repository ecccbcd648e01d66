package member

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/replica/controller"
)

// board is what the store has told, and what of it the node has not been told yet.
type board struct {
	self replica.NodeID

	mu       sync.Mutex // guards the rest; nothing is called under it
	wake     chan struct{}
	current  bool // all that is in the store has been told once since the present watch began
	opened   bool // the node may be told
	parts    map[log.TopicPartition]*part
	round    int // counts the watches
	dirty    map[log.TopicPartition]bool
	peers    []replica.Peer                  // not told yet
	nodes    map[replica.NodeID]replica.Peer // as a controller knows them
	settings settings
	led      map[log.TopicPartition]int32 // leader epochs of an earlier life, in which this node must not lead again
	restored atomic.Int64                 // how often the store was restored from a backup, when it was asked last
	looks    looks
}

// part is a partition.
type part struct {
	news  controller.News
	round int // of the watch that told it last
	turn  int64
	// restored is how often the store had been restored when it was told last that the partition is there.
	restored int64
}

func (b *board) init(self replica.NodeID) {
	b.nodes = map[replica.NodeID]replica.Peer{}
	b.settings.list, b.settings.looking = map[string]*ownSettings{}, make(chan struct{}, 1)
	b.self, b.wake = self, make(chan struct{})
	b.parts, b.dirty, b.led = map[log.TopicPartition]*part{}, map[log.TopicPartition]bool{}, map[log.TopicPartition]int32{}
}

// turn wakes who waits for a change. Under mu.
func (b *board) turn() {
	close(b.wake)
	b.wake = make(chan struct{})
}

// begin notes that a watch begins.
func (b *board) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.current = false
	b.round++
}

// tell takes what the watch says.
func (b *board) tell(n controller.News) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case n.Current:
		return // settle says so once what is missing was looked up
	case n.Partition.Topic == "" && b.nodes[n.Peer.Node] == n.Peer:
		return // watches are renewed, see package patience
	case n.Partition.Topic == "":
		b.peers = append(b.peers, n.Peer)
		b.nodes[n.Peer.Node] = n.Peer
	default:
		b.note(n)
	}
	b.turn()
}

// note takes news of a partition, unless they are older than what is known. Under mu.
func (b *board) note(n controller.News) {
	tp := n.Partition
	p := b.parts[tp]
	if p == nil {
		p = &part{turn: b.looks.next()}
		b.parts[tp] = p
	} else if n.Deleted != p.news.Deleted || n.TopicID != p.news.TopicID {
		p.turn = b.looks.next()
	} else if !n.Deleted && !p.news.Deleted && n.TopicID == p.news.TopicID && n.State.PartitionEpoch < p.news.State.PartitionEpoch {
		p.round = b.round
		return
	}
	p.news, p.round = n, b.round
	if !n.Deleted {
		p.restored = b.restored.Load()
	}
	b.dirty[tp] = true
}

// missing are the partitions that were told before, but not in this round, which is at its end.
func (b *board) missing() (list []log.TopicPartition) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for tp, p := range b.parts {
		if p.round != b.round && !p.news.Deleted {
			list = append(list, tp)
		}
	}
	return list
}

// settle says that all that is in the store has been told.
func (b *board) settle() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.current = true
	b.turn()
}

// standing is what the controller makes of a registration. wake is closed at the next change.
func (b *board) standing(epoch int64) (s standing, wake <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	me := b.nodes[b.self]
	s.noticed = me.BrokerEpoch == epoch
	s.serving = s.noticed && me.Alive && !me.ShuttingDown
	s.noticed = s.noticed && b.current
	return s, b.wake
}

type standing struct {
	noticed bool // and all is known that the store said before
	serving bool
}

func (b *board) isOpen() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.opened
}

// open lets the node be told. all is what the store says while this node is registered and not in service: what it leads by
// that it led in an earlier life. What the watch had told before, and is not in it, is gone, though the watch has not said so yet.
func (b *board) open(since int64, all []controller.News) {
	b.mu.Lock()
	defer b.mu.Unlock()
	there := make(map[log.TopicPartition]bool, len(all))
	for _, n := range all {
		there[n.Partition] = true
		if b.outdated(since, n) {
			continue
		}
		b.note(n)
		if n.State.Leader == b.self {
			b.led[n.Partition] = n.State.LeaderEpoch
		}
	}
	for tp, p := range b.parts {
		if !there[tp] && p.turn <= since && !p.news.Deleted {
			b.note(controller.News{Partition: tp, Deleted: true})
		}
	}
	b.opened = true
	b.turn()
}

// life is the broker epoch of a node as a controller knows it; 0: it knows none.
func (b *board) life(node replica.NodeID) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.nodes[node].BrokerEpoch
}

// heard is how often the store had been restored when it was told last that a partition is there.
func (b *board) heard(tp log.TopicPartition) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.parts[tp]; p != nil {
		return p.restored
	}
	return 0
}

// take is what the node has to be told; wake is closed when there is more.
func (b *board) take() (peers []replica.Peer, parts []controller.News, wake <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	peers, b.peers = b.peers, nil
	if b.opened {
		for tp := range b.dirty {
			p := b.parts[tp]
			if !b.past(p.news) {
				parts = append(parts, p.news)
			}
			if p.news.Deleted {
				delete(b.parts, tp)
				b.looks.gone(tp, p.turn)
			}
		}
		clear(b.dirty)
	}
	return peers, parts, b.wake
}

// past says that the news make this node what it was in an earlier life. Under mu.
func (b *board) past(n controller.News) bool {
	epoch, ok := b.led[n.Partition]
	switch {
	case !ok:
		return false
	case !n.Deleted && n.State.Leader == b.self && n.State.LeaderEpoch <= epoch:
		return true
	case n.Deleted || n.State.LeaderEpoch > epoch:
		delete(b.led, n.Partition)
	}
	return false
}

// all lets the node be told everything once more.
func (b *board) all() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for tp := range b.parts {
		b.dirty[tp] = true
	}
	b.turn()
}

// back puts news back that could not be passed on, unless there are newer ones.
func (b *board) back(list []controller.News) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range list {
		if n.Deleted && b.parts[n.Partition] == nil {
			b.parts[n.Partition] = &part{news: n, round: b.round, turn: b.looks.went[n.Partition]}
		}
		b.dirty[n.Partition] = true
	}
}

// awaitNothingLed waits a while for the store to say that others lead.
func (b *board) awaitNothingLed(ctx context.Context, limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		b.mu.Lock()
		leads, wake := false, b.wake
		for _, p := range b.parts {
			leads = leads || !p.news.Deleted && p.news.State.Leader == b.self
		}
		b.mu.Unlock()
		if !leads {
			return
		}
		select {
		case <-wake:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// mineToo says whether a partition has a replica here.
func (b *board) mineToo(n controller.News) bool {
	return !n.Deleted && slices.Contains(n.State.Replicas, b.self)
}
