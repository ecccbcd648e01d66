package member

import (
	"context"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/replica/controller"
)

// looks are look-ups at the store that are under way. The watch tells what happens in the order in which it did; the answer to a
// look-up may come when that has been told, and more: that the partition was deleted, say, and its replica is gone. Then it would be
// made anew, and nobody would say again that there is none. Guarded by board.mu.
//
//	look-up    |---- there is t-0 ------------------- answer: t-0 is outdated
//	watch                           t-0 is gone |
//
// Versions tell of one life of a partition which news are newer. Of a life that begins or ends none does, so these are counted.
type looks struct {
	turns int64                        // how often a partition came to be, became another topic's or went, as far as was told
	under map[int64]int                // look-ups under way, by the turns before them
	went  map[log.TopicPartition]int64 // partitions that are gone, by turn; only while look-ups from before are under way
}

func (l *looks) next() int64 {
	l.turns++
	return l.turns
}

// gone remembers a partition that is taken from the board.
func (l *looks) gone(tp log.TopicPartition, turn int64) {
	if len(l.under) == 0 {
		return
	}
	if l.went == nil {
		l.went = map[log.TopicPartition]int64{}
	}
	l.went[tp] = turn
}

func (l *looks) end(since int64) {
	if l.under[since]--; l.under[since] == 0 {
		delete(l.under, since)
	}
	oldest := l.turns
	for s := range l.under {
		oldest = min(oldest, s)
	}
	for tp, turn := range l.went {
		if turn <= oldest {
			delete(l.went, tp)
		}
	}
}

// look begins a look-up, which must end with looked.
func (b *board) look() (since int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := &b.looks
	if l.under == nil {
		l.under = map[int64]int{}
	}
	l.under[l.turns]++
	return l.turns
}

// looked ends a look-up, which has found list.
func (b *board) looked(since int64, list ...controller.News) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range list {
		if !b.outdated(since, n) && !b.knows(n) {
			b.note(n)
			b.turn()
		}
	}
	b.looks.end(since)
}

// knows says that news tell nothing new. Under mu.
func (b *board) knows(n controller.News) bool {
	p := b.parts[n.Partition]
	if p == nil || n.Deleted || p.news.Deleted {
		return n.Deleted && (p == nil || p.news.Deleted)
	}
	return n.TopicID == p.news.TopicID && n.State.PartitionEpoch <= p.news.State.PartitionEpoch
}

// outdated says that what was looked up is of a life of the partition that may be over: the watch tells what came of it. Under mu.
func (b *board) outdated(since int64, n controller.News) bool {
	p := b.parts[n.Partition]
	if p == nil {
		return b.looks.went[n.Partition] > since
	}
	return p.turn > since && (n.Deleted || p.news.Deleted || n.TopicID != p.news.TopicID)
}

// lookUp reads what the store says of one partition, and puts it on the board unless that knows better.
func (m *Member) lookUp(ctx context.Context, tp log.TopicPartition) (controller.News, error) {
	since := m.board.look()
	n, err := controller.Lookup(ctx, m.store, tp)
	if err != nil {
		m.board.looked(since)
	} else {
		m.board.looked(since, n)
	}
	return n, err
}
