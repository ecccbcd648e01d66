package placement

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
)

// Stripe is one rack as Striped sees it: two lists of brokers, each at first ascending by id.
type Stripe struct {
	Rack     string // "" brokers without one
	Unfenced []int32
	Fenced   []int32
}

// Draws is what Striped needs of chance.
type Draws interface {
	// StartOffsets says where the two lists of a rack begin, each from 0 to below the list's length (0 for an empty one).
	// It is asked once for every rack, in the order of names.
	StartOffsets(s Stripe) (unfenced, fenced int)
	// StartRack says with which of n racks, ordered by name, the first partition begins.
	StartRack(n int) int
	// Shuffle puts the stripes and the content of each list in a random order.
	Shuffle(stripes []Stripe)
}

// Random draws from r.
func Random(r *rand.Rand) Draws { return draws{r} }

type draws struct{ *rand.Rand }

func (d draws) StartOffsets(s Stripe) (unfenced, fenced int) {
	return d.StartRack(len(s.Unfenced)), d.StartRack(len(s.Fenced))
}

func (d draws) StartRack(n int) int {
	if n == 0 {
		return 0
	}
	return d.IntN(n)
}

func (d draws) Shuffle(stripes []Stripe) {
	d.Rand.Shuffle(len(stripes), func(i, j int) { stripes[i], stripes[j] = stripes[j], stripes[i] })
	for _, s := range stripes {
		for _, list := range [][]int32{s.Unfenced, s.Fenced} {
			d.Rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		}
	}
}

// Striped places partitions as Kafka's KRaft controller does. Errors: ErrPartitions, ErrReplicationFactor,
// ErrNotEnoughBrokers (fenced brokers count as brokers), ErrAllFenced, ErrDuplicateBroker, ErrStartOutOfSequence.
func Striped(brokers []Broker, r Request, d Draws) ([][]int32, error) {
	unfenced := 0
	for _, b := range brokers {
		if !b.Fenced {
			unfenced++
		}
	}
	if r.Partitions > 0 && r.ReplicationFactor > 0 && unfenced == 0 {
		return nil, fmt.Errorf("%w: %d", ErrAllFenced, len(brokers))
	}
	if err := check(brokers, r); err != nil {
		return nil, err
	}

	racks := stripes(brokers)
	for _, s := range racks {
		s.unfenced.offset, s.fenced.offset = d.StartOffsets(Stripe{s.name, slices.Clone(s.unfenced.ids), slices.Clone(s.fenced.ids)})
	}
	at := d.StartRack(len(racks))
	placed := 0 // since the last shuffle
	out := make([][]int32, 0, r.Partitions)
	for range r.Partitions {
		if placed == unfenced && unfenced > 1 {
			racks = shuffled(racks, d)
			placed = 0
		}
		if at >= len(racks) {
			at = 0
		}
		out = append(out, place(racks, at, placed, r.ReplicationFactor))
		placed++
		at++
	}
	return out, nil
}

// rack is a stripe with the memory of its lists.
type rack struct {
	name             string
	unfenced, fenced list
}

// list gives its members in turn, beginning one place later for each partition that uses it.
type list struct {
	ids           []int32
	offset, index int
	used          int // the counter of the partition that used it last
}

// next is the next member for the partition with this counter; false when that partition has had them all.
func (l *list) next(counter int) (int32, bool) {
	if len(l.ids) == 0 {
		return 0, false
	}
	if counter != l.used {
		l.used, l.index = counter, 0
		l.offset = (l.offset + 1) % len(l.ids)
	}
	if l.index >= len(l.ids) {
		return 0, false
	}
	id := l.ids[(l.index+l.offset)%len(l.ids)]
	l.index++
	return id, true
}

// stripes groups the brokers by rack, racks by name and brokers by id.
func stripes(brokers []Broker) []*rack {
	sorted := slices.Clone(brokers)
	slices.SortFunc(sorted, func(a, b Broker) int { return cmp.Or(cmp.Compare(a.Rack, b.Rack), cmp.Compare(a.ID, b.ID)) })
	var racks []*rack
	for _, b := range sorted {
		if len(racks) == 0 || racks[len(racks)-1].name != b.Rack {
			racks = append(racks, &rack{name: b.Rack})
		}
		to := &racks[len(racks)-1].unfenced
		if b.Fenced {
			to = &racks[len(racks)-1].fenced
		}
		to.ids = append(to.ids, b.ID)
	}
	return racks
}

// shuffled lets d reorder the racks and their lists; what each list remembers stays with it.
func shuffled(racks []*rack, d Draws) []*rack {
	byName := make(map[string]*rack, len(racks))
	view := make([]Stripe, len(racks))
	for i, s := range racks {
		byName[s.name] = s
		view[i] = Stripe{s.name, s.unfenced.ids, s.fenced.ids}
	}
	d.Shuffle(view)
	out := make([]*rack, len(racks))
	for i, v := range view {
		out[i] = byName[v.Rack]
		out[i].unfenced.ids, out[i].fenced.ids = v.Unfenced, v.Fenced
	}
	return out
}

// place takes the leader from the first rack with a live broker, and then one replica from each rack in turn, passing over
// the leader's the first time.
func place(racks []*rack, at, counter, factor int) []int32 {
	replicas := make([]int32, 0, factor)
	skip := -1
	for i := range racks {
		k := (at + i) % len(racks)
		if id, ok := racks[k].unfenced.next(counter); ok {
			replicas = append(replicas, id)
			skip = k
			break
		}
	}
	for k := at; len(replicas) < factor; k = (k + 1) % len(racks) {
		if k == skip {
			skip = -1
			continue
		}
		id, ok := racks[k].unfenced.next(counter)
		if !ok {
			id, ok = racks[k].fenced.next(counter)
		}
		if ok {
			replicas = append(replicas, id)
		}
	}
	return replicas
}
