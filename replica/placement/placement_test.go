package placement

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// still is chance that does nothing: lists begin where it says, and a shuffle leaves all as it is.
type still struct{ unfenced map[string]int }

func (d *still) StartOffsets(s Stripe) (unfenced, fenced int) { return d.unfenced[s.Rack], 0 }
func (d *still) StartRack(int) int                            { return 0 }
func (d *still) Shuffle([]Stripe)                             {}

// The description's own examples.
func TestStaggeredExamples(t *testing.T) {
	var five []Broker
	for id := range int32(5) {
		five = append(five, Broker{ID: id})
	}
	got, err := Staggered(five, Request{Partitions: 6, ReplicationFactor: 3}, Start{})
	require.NoError(t, err)
	require.Equal(t, [][]int32{{0, 1, 2}, {1, 2, 3}, {2, 3, 4}, {3, 4, 0}, {4, 0, 1}, {0, 2, 3}}, got)

	racks := []string{"rack1", "rack3", "rack3", "rack2", "rack2", "rack1"}
	var six []Broker
	for id, rack := range racks {
		six = append(six, Broker{ID: int32(id), Rack: rack})
	}
	got, err = Staggered(six, Request{Partitions: 7, ReplicationFactor: 3}, Start{})
	require.NoError(t, err)
	require.Equal(t, [][]int32{{0, 3, 1}, {3, 1, 5}, {1, 5, 4}, {5, 4, 2}, {4, 2, 0}, {2, 0, 3}, {0, 4, 2}}, got)
}

// Sixteen partitions of three replicas on four brokers: every broker holds twelve and leads four.
func TestSixteenPartitionsOnFourBrokersAreEven(t *testing.T) {
	got, err := Staggered([]Broker{{ID: 0}, {ID: 1}, {ID: 2}, {ID: 3}}, Request{Partitions: 16, ReplicationFactor: 3}, Start{Index: 2, Shift: 1})
	require.NoError(t, err)
	leads, holds := map[int32]int{}, map[int32]int{}
	for _, replicas := range got {
		leads[replicas[0]]++
		for _, id := range replicas {
			holds[id]++
		}
	}
	require.Equal(t, map[int32]int{0: 4, 1: 4, 2: 4, 3: 4}, leads)
	require.Equal(t, map[int32]int{0: 12, 1: 12, 2: 12, 3: 12}, holds)
}

// Scenario: Z001. A fenced broker comes last.
func TestAFencedBrokerComesLast(t *testing.T) {
	got, err := Striped([]Broker{{ID: 3}, {ID: 1, Fenced: true}, {ID: 2}}, Request{Partitions: 4, ReplicationFactor: 3},
		&still{map[string]int{"": 1}})
	require.NoError(t, err)
	require.Equal(t, [][]int32{{3, 2, 1}, {2, 3, 1}, {3, 2, 1}, {2, 3, 1}}, got)
}

// Scenario: Z002
func TestReplicasGoRackByRack(t *testing.T) {
	got, err := Striped([]Broker{
		{ID: 10, Rack: "1"}, {ID: 11, Rack: "1"},
		{ID: 20, Rack: "2", Fenced: true}, {ID: 21, Rack: "2"},
		{ID: 30, Rack: "3"}, {ID: 31, Rack: "3"},
	}, Request{Partitions: 3, ReplicationFactor: 4}, &still{map[string]int{"1": 1, "3": 1}})
	require.NoError(t, err)
	require.Equal(t, [][]int32{{11, 21, 31, 10}, {21, 30, 10, 20}, {31, 11, 21, 30}}, got)
}

// Scenario: Z003
func TestARackWithFencedBrokersOnlyFollows(t *testing.T) {
	got, err := Striped([]Broker{
		{ID: 10, Rack: "1", Fenced: true}, {ID: 11, Rack: "1", Fenced: true}, {ID: 20, Rack: "2"}, {ID: 30, Rack: "3"},
	}, Request{Partitions: 20, ReplicationFactor: 3}, Random(rand.New(rand.NewPCG(1, 2))))
	require.NoError(t, err)
	for p, replicas := range got {
		require.GreaterOrEqual(t, replicas[0], int32(20), "partition %d: %v", p, replicas)
		require.True(t, slices.ContainsFunc(replicas, func(id int32) bool { return id < 20 }), "partition %d: %v", p, replicas)
	}
}

// Scenario: Z004. Errors have their names; a fenced broker is left alone while there are enough others.
func TestAFencedBrokerIsAvoidedWherePossible(t *testing.T) {
	brokers := []Broker{{ID: 1, Fenced: true}, {ID: 2}, {ID: 3}, {ID: 4}}
	got, err := Striped(brokers, Request{Partitions: 50, ReplicationFactor: 3}, Random(rand.New(rand.NewPCG(3, 4))))
	require.NoError(t, err)
	for _, replicas := range got {
		require.NotContains(t, replicas, int32(1))
	}
	got, err = Striped(brokers, Request{Partitions: 1, ReplicationFactor: 4}, Random(rand.New(rand.NewPCG(3, 4))))
	require.NoError(t, err)
	require.EqualValues(t, 1, got[0][3])
}

// Scenario: Z005
func TestTwoHundredPartitionsUseEveryPair(t *testing.T) {
	got, err := Striped([]Broker{{ID: 0}, {ID: 1}, {ID: 2}, {ID: 3}}, Request{Partitions: 200, ReplicationFactor: 2},
		Random(rand.New(rand.NewPCG(5, 6))))
	require.NoError(t, err)
	pairs, leads := map[[2]int32]int{}, map[int32]int{}
	for _, replicas := range got {
		pairs[[2]int32(replicas)]++
		leads[replicas[0]]++
	}
	require.Len(t, pairs, 12)
	require.Equal(t, map[int32]int{0: 50, 1: 50, 2: 50, 3: 50}, leads)
}

// Whatever is asked, the answer is a refusal or as many lists of distinct brokers as were asked for, the leader in service,
// and with racks for all no rack twice before each was used once.
func TestPlacementsHoldDistinctBrokers(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		brokers := make([]Broker, rapid.IntRange(0, 9).Draw(rt, "brokers"))
		racks := rapid.IntRange(0, 4).Draw(rt, "racks")
		for i := range brokers {
			brokers[i].ID = int32(i * 3)
			brokers[i].Fenced = rapid.IntRange(0, 3).Draw(rt, "fenced") == 0
			if racks > 0 {
				brokers[i].Rack = string(rune('a' + rapid.IntRange(0, racks-1).Draw(rt, "rack")))
			}
		}
		r := Request{
			Partitions:        rapid.IntRange(-1, 40).Draw(rt, "partitions"),
			ReplicationFactor: rapid.IntRange(-1, 10).Draw(rt, "replicas"),
			FirstPartition:    rapid.IntRange(0, 20).Draw(rt, "first"),
		}
		fenced := map[int32]bool{}
		rackOf := map[int32]string{}
		all := map[string]bool{}
		for _, b := range brokers {
			fenced[b.ID], rackOf[b.ID] = b.Fenced, b.Rack
			all[b.Rack] = true
		}
		sound := func(got [][]int32, err error) bool {
			if err != nil {
				return false
			}
			if len(got) != r.Partitions {
				rt.Fatalf("%d lists for %d partitions", len(got), r.Partitions)
			}
			for _, replicas := range got {
				distinct := map[int32]bool{}
				for _, id := range replicas {
					distinct[id] = true
				}
				if len(distinct) != r.ReplicationFactor || len(replicas) != r.ReplicationFactor {
					rt.Fatalf("replicas %v for factor %d", replicas, r.ReplicationFactor)
				}
			}
			return true
		}
		seed := rapid.Uint64().Draw(rt, "seed")
		striped, err := Striped(brokers, r, Random(rand.New(rand.NewPCG(seed, 1))))
		if sound(striped, err) {
			for _, replicas := range striped {
				if fenced[replicas[0]] {
					rt.Fatalf("a fenced broker leads: %v", replicas)
				}
			}
		}
		staggered, err := Staggered(brokers, r, Start{rapid.IntRange(0, 50).Draw(rt, "index"), rapid.IntRange(0, 50).Draw(rt, "shift")})
		if sound(staggered, err) && racks > 0 {
			for _, replicas := range staggered {
				used := map[string]bool{}
				for _, id := range replicas {
					used[rackOf[id]] = true
				}
				if len(used) != min(len(all), len(replicas)) {
					rt.Fatalf("%v use %d of %d racks", replicas, len(used), len(all))
				}
			}
		}
	})
}

// Three racks of three, three and one: each partition is in all of them, which costs the lonely broker a replica of each. The
// answer shows it, and the same chance gives the same answer.
//
// Report: B121.
func TestUnevenRacksAreKeptApartAndTheLoadIsSeen(t *testing.T) {
	brokers := []Broker{{ID: 1, Rack: "a"}, {ID: 2, Rack: "a"}, {ID: 3, Rack: "a"}, {ID: 4, Rack: "b"}, {ID: 5, Rack: "b"}, {ID: 6, Rack: "b"}, {ID: 7, Rack: "c"}}
	place := map[string]func() ([][]int32, error){
		"striped": func() ([][]int32, error) {
			return Striped(brokers, Request{Partitions: 10, ReplicationFactor: 3}, Random(rand.New(rand.NewPCG(7, 8))))
		},
		"staggered": func() ([][]int32, error) {
			return Staggered(brokers, Request{Partitions: 10, ReplicationFactor: 3}, Start{Index: 2, Shift: 1})
		},
	}
	for name, f := range place {
		t.Run(name, func(t *testing.T) {
			got, err := f()
			require.NoError(t, err)
			load := map[int32]int{}
			for _, replicas := range got {
				racks := map[string]bool{}
				for _, id := range replicas {
					racks[brokers[id-1].Rack] = true
					load[id]++
				}
				require.Len(t, racks, 3, "%v", replicas)
			}
			require.Equal(t, 10, load[7])
			for id := int32(1); id < 7; id++ {
				require.LessOrEqual(t, load[id], 6, "the others share evenly enough: %v", load)
				require.GreaterOrEqual(t, load[id], 1, "%v", load)
			}
			again, err := f()
			require.NoError(t, err)
			require.Equal(t, got, again)
		})
	}
}
