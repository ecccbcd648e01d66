package interop

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/replica/placement"
)

// javaRandom is java.util.Random, whose numbers are part of Java's specification: the same seed gives both sides the same chance.
type javaRandom int64

const javaMultiplier, javaMask = 0x5DEECE66D, 1<<48 - 1

func newJavaRandom(seed int64) *javaRandom {
	r := javaRandom((seed ^ javaMultiplier) & javaMask)
	return &r
}

func (r *javaRandom) next31() int32 {
	*r = (*r*javaMultiplier + 0xB) & javaMask
	return int32(*r >> 17)
}

func (r *javaRandom) intN(n int) int {
	bound := int32(n)
	v := r.next31()
	if bound&(bound-1) == 0 {
		return int(int64(bound) * int64(v) >> 31)
	}
	for {
		if m := v % bound; v-m+(bound-1) >= 0 {
			return int(m)
		}
		v = r.next31()
	}
}

func javaShuffle[T any](r *javaRandom, list []T) {
	for i := len(list); i > 1; i-- {
		j := r.intN(i)
		list[i-1], list[j] = list[j], list[i-1]
	}
}

// javaDraws asks in Kafka's order: in that of racks in a Java hash map, which is that of the names while these are single letters,
// the fenced before the others.
type javaDraws struct{ *javaRandom }

func (d javaDraws) StartOffsets(s placement.Stripe) (unfenced, fenced int) {
	if len(s.Fenced) > 0 {
		fenced = d.intN(len(s.Fenced))
	}
	if len(s.Unfenced) > 0 {
		unfenced = d.intN(len(s.Unfenced))
	}
	return unfenced, fenced
}

func (d javaDraws) StartRack(n int) int { return d.intN(n) }

func (d javaDraws) Shuffle(stripes []placement.Stripe) {
	byName := slices.Clone(stripes)
	slices.SortFunc(byName, func(a, b placement.Stripe) int { return cmp.Compare(a.Rack, b.Rack) })
	javaShuffle(d.javaRandom, stripes)
	for _, s := range byName {
		javaShuffle(d.javaRandom, s.Fenced)
		javaShuffle(d.javaRandom, s.Unfenced)
	}
}

// somePlacement is a random cluster and request: few racks or many, of unequal size, brokers fenced, ids with gaps and in no order,
// now and then more replicas than brokers or none.
func somePlacement(r *rand.Rand) Placement {
	p := Placement{FirstPartition: r.IntN(3) * r.IntN(40), Partitions: 1 + r.IntN(30), Seed: new(int64)}
	*p.Seed = r.Int64()
	if r.IntN(20) == 0 {
		p.Partitions = 200
	}
	racks, fenced := r.IntN(7), r.IntN(5)
	for _, id := range r.Perm(40)[:r.IntN(14)] {
		b := PlacedBroker{ID: int32(id), Fenced: fenced > 0 && r.IntN(5) < fenced}
		if racks > 0 {
			b.Rack = string(rune('A' + r.IntN(1+r.IntN(racks))))
		}
		p.Brokers = append(p.Brokers, b)
	}
	if r.IntN(15) == 0 && len(p.Brokers) > 0 {
		p.Brokers[0].Rack = ""
	}
	p.ReplicationFactor = 1 + r.IntN(max(len(p.Brokers), 1))
	if r.IntN(15) == 0 {
		p.ReplicationFactor = r.IntN(17) - 1
	}
	return p
}

func brokersOf(p Placement) (out []placement.Broker) {
	for _, b := range p.Brokers {
		out = append(out, placement.Broker(b))
	}
	return out
}

func requestOf(p Placement) placement.Request {
	return placement.Request{Partitions: p.Partitions, ReplicationFactor: p.ReplicationFactor, FirstPartition: p.FirstPartition}
}

// samePlacements compares thousands of answers; a refusal is nil.
func samePlacements(t *testing.T, cases []Placement, theirs [][][]int32, ours func(Placement) ([][]int32, error)) {
	t.Helper()
	require.Len(t, theirs, len(cases))
	refused := 0
	for i, p := range cases {
		got, err := ours(p)
		require.Equal(t, theirs[i] == nil, err != nil, "%+v: %v; Kafka: %v", p, err, theirs[i])
		if err != nil {
			refused++
			continue
		}
		require.Equal(t, theirs[i], got, "%+v", p)
	}
	require.Positive(t, refused)
	require.Less(t, refused, len(cases)/2)
	t.Logf("%d placements, %d of them refused", len(cases), refused)
}

func TestStripedPlacesAsTheController(t *testing.T) {
	_, d := kafka(t)
	r := rand.New(rand.NewPCG(31, uint64(rounds(t, "PARTLOG_INTEROP_SEED", 5))))
	cases := make([]Placement, rounds(t, "PARTLOG_INTEROP_PLACEMENTS", 4000))
	for i := range cases {
		cases[i] = somePlacement(r)
	}
	theirs, err := d.Striped(cases)
	require.NoError(t, err)
	samePlacements(t, cases, theirs, func(p Placement) ([][]int32, error) {
		return placement.Striped(brokersOf(p), requestOf(p), javaDraws{newJavaRandom(*p.Seed)})
	})
}

// classic is the driver with Kafka 3.9 loaded.
func classic(t *testing.T) *Driver {
	t.Helper()
	j, d := kafka(t)
	classpath, err := j.Classic(context.Background())
	require.NoError(t, err)
	require.NoError(t, d.LoadClassic(classpath))
	return d
}

func TestStaggeredPlacesAsTheClassicAssignment(t *testing.T) {
	d := classic(t)
	r := rand.New(rand.NewPCG(32, uint64(rounds(t, "PARTLOG_INTEROP_SEED", 5))))
	cases := make([]Placement, rounds(t, "PARTLOG_INTEROP_PLACEMENTS", 4000))
	for i := range cases {
		p := somePlacement(r)
		if i%3 == 0 { // told where to begin, both numbers are the same
			p.Seed, p.StartIndex = nil, new(int)
			*p.StartIndex = r.IntN(60)
		}
		cases[i] = p
	}
	theirs, err := d.Staggered(cases)
	require.NoError(t, err)
	samePlacements(t, cases, theirs, func(p Placement) ([][]int32, error) {
		s := placement.Start{}
		if p.StartIndex != nil {
			s = placement.Start{Index: *p.StartIndex, Shift: *p.StartIndex}
		} else if n := len(p.Brokers); n > 0 {
			chance := newJavaRandom(*p.Seed)
			s.Index = chance.intN(n)
			s.Shift = chance.intN(n)
		}
		return placement.Staggered(brokersOf(p), requestOf(p), s)
	})
}
