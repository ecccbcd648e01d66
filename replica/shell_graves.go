package replica

import "github.com/partlog/partlog/log"

// graveLimit is how many replicas that are gone are remembered. News are late by what a call, a message or a watch takes, seconds
// maybe; and more replicas than that do not go in seconds. They take a megabyte.
const graveLimit = 8192

// grave is what is known of a replica that is gone.
type grave struct {
	topicID [16]byte
	version int32 // partition epoch of the newest word on it
}

// bars says that an Assign is of the time before. Topic ids are not given twice: only a store that was restored has a deleted
// topic back, in later versions.
func (g *grave) bars(a *Assign) bool { return a.TopicID == g.topicID && a.PartitionEpoch <= g.version }

// newest is the version of two words, if they are on the same topic.
func (g *grave) newest(o *grave) int32 {
	if g.topicID != o.topicID {
		return g.version
	}
	return max(g.version, o.version)
}

// graves are the last ones of a node.
type graves struct {
	of    map[log.TopicPartition]numbered
	order []burial // oldest first; those that are not in of under their number are over
	last  int64
}

type numbered struct {
	grave
	number int64
}

type burial struct {
	tp     log.TopicPartition
	number int64
}

func (g *graves) bury(tp log.TopicPartition, one grave) {
	if g.of == nil {
		g.of = make(map[log.TopicPartition]numbered)
	}
	if old, ok := g.of[tp]; ok {
		one.version = one.newest(&old.grave)
	}
	g.last++
	g.of[tp] = numbered{one, g.last}
	g.order = append(g.order, burial{tp, g.last})
	for len(g.of) > graveLimit || len(g.order) > 2*graveLimit {
		g.drop()
	}
}

// drop forgets the oldest, if it is still that one.
func (g *graves) drop() {
	old := g.order[0]
	if g.order = g.order[1:]; g.of[old.tp].number == old.number {
		delete(g.of, old.tp)
	}
}

func (g *graves) bars(tp log.TopicPartition, a *Assign) bool {
	one, ok := g.of[tp]
	return ok && one.bars(a)
}
