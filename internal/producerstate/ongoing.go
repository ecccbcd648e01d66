package producerstate

import (
	"cmp"
	"math"
	"slices"
)

// ongoing is the open transactions of a log in order of first offset. New ones come at the end; one that ends is only
// marked, and swept out when it reaches the front or when half of the list is marked. So all of it costs O(log n).
type ongoing struct {
	items []txn
	dead  int
}

type txn struct {
	first, id int64
	dead      bool
}

func (t txn) compare(o txn) int {
	return cmp.Or(cmp.Compare(t.first, o.first), cmp.Compare(t.id, o.id))
}

// oldest is the first offset of the oldest one; math.MaxInt64 if there is none.
func (o *ongoing) oldest() int64 {
	if len(o.items) == 0 {
		return math.MaxInt64
	}
	return o.items[0].first // sweep leaves no dead one there
}

func (o *ongoing) len() int { return len(o.items) - o.dead }

func (o *ongoing) add(first, id int64) {
	t := txn{first: first, id: id}
	if n := len(o.items); n == 0 || o.items[n-1].compare(t) < 0 {
		o.items = append(o.items, t)
		return
	}
	at, _ := slices.BinarySearchFunc(o.items, t, txn.compare)
	o.items = slices.Insert(o.items, at, t)
}

func (o *ongoing) remove(first, id int64) {
	at, found := slices.BinarySearchFunc(o.items, txn{first: first, id: id}, txn.compare)
	if !found || o.items[at].dead {
		return
	}
	o.items[at].dead = true
	o.dead++
	if at == 0 || o.dead > 32 && o.dead*2 > len(o.items) {
		o.sweep()
	}
}

// sweep drops the dead at the front, and all of them if they are many.
func (o *ongoing) sweep() {
	if o.dead*2 > len(o.items) || o.dead == len(o.items) {
		o.items, o.dead = slices.DeleteFunc(o.items, func(t txn) bool { return t.dead }), 0
		return
	}
	n := 0
	for n < len(o.items) && o.items[n].dead {
		n++
	}
	o.items, o.dead = o.items[n:], o.dead-n
}
