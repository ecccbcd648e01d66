package compaction

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func mapOf(bytes int64, load float64, exact bool) *keyMap {
	return newKeyMap(Config{MapBytes: bytes, MapLoad: load, ExactKeys: exact}.withDefaults())
}

// Scenario: M001, M002
func TestAllKeysAreFoundAgain(t *testing.T) {
	for _, exact := range []bool{false, true} {
		for _, n := range []int{10, 100, 1000, 5000, 50_000} {
			m := mapOf(48*int64(n), 0, exact)
			if exact {
				m = mapOf(96*int64(n)+4096, 0, true)
			}
			for round := range 2 {
				for i := range n {
					if !m.put(fmt.Appendf(nil, "key %d", i), int64(i)) || m.latest != int64(i) {
						t.Fatal(i)
					}
				}
				require.Equal(t, n, m.n)
				for i := range n {
					if m.get(fmt.Appendf(nil, "key %d", i)) != int64(i) {
						t.Fatal(i)
					}
				}
				require.EqualValues(t, -1, m.get([]byte("key")))
				if round == 0 {
					m.reset()
					for i := range n {
						if m.get(fmt.Appendf(nil, "key %d", i)) != -1 {
							t.Fatal(i)
						}
					}
				}
			}
		}
	}
}

// Scenario: M003
func TestAMapWithoutAnEmptySlotStillAnswers(t *testing.T) {
	m := mapOf(100*slotBytes, 1, false)
	for i := range 100 {
		require.True(t, m.put(fmt.Appendf(nil, "%d", i), int64(i)))
	}
	require.EqualValues(t, 99, m.get([]byte("99")))
	require.EqualValues(t, -1, m.get([]byte("unknown")))
	require.False(t, m.put([]byte("unknown"), 100))
	require.False(t, m.put([]byte("99"), 100), "a full map takes no later offset either")
	require.EqualValues(t, []int64{99, 99}, []int64{m.get([]byte("99")), m.latest})
}

// As many keys as Kafka's map of that size, and no more memory.
func TestAMapHoldsWhatItSaysInTheMemoryItHas(t *testing.T) {
	for _, bytes := range []int64{24, 25, 48, 2400, 1 << 20, 4 << 20} {
		m := mapOf(bytes, 0, false)
		want := int(float64(bytes/slotBytes) * 0.9)
		n := 0
		for m.put(fmt.Appendf(nil, "%d", n), int64(n)) {
			n++
		}
		require.Equal(t, want, n, bytes)
		require.LessOrEqual(t, m.bytes(), bytes)
		for i := range n {
			if m.get(fmt.Appendf(nil, "%d", i)) != int64(i) {
				t.Fatal(i)
			}
		}
	}
	const most = 1 << 20
	m := mapOf(most, 0, true)
	n := 0
	for m.put(fmt.Appendf(nil, "a rather long key that has to be kept: %d", n), int64(n)) {
		n++
	}
	require.LessOrEqual(t, m.bytes(), int64(most))
	require.Greater(t, n, most/150)
}

// A small map takes little memory, whatever it may take.
func TestAMapGrowsWithItsKeys(t *testing.T) {
	m := mapOf(128<<20, 0, false)
	for i := range 1000 {
		m.put(fmt.Appendf(nil, "%d", i), int64(i))
	}
	require.Less(t, m.bytes(), int64(200<<10))
}

func TestKeysThatHashAlikeAreToldApartWhenExact(t *testing.T) {
	m := mapOf(1<<16, 0, true)
	m.put([]byte("one"), 1)
	a, _ := m.hash([]byte("one"))
	s := m.find(m.table(a), a, 0, []byte("one"))
	require.NotNil(t, s)
	require.EqualValues(t, 2, s.next)
	other := m.find(m.table(a), a, 0, []byte("two")) // as if its hash were the same
	require.Zero(t, other.next)
}

func TestTheMapIsAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := mapOf(rapid.Int64Range(24, 4000).Draw(t, "bytes"), 0, rapid.Bool().Draw(t, "exact"))
		model := map[string]int64{}
		for i, key := range rapid.SliceOf(rapid.StringN(0, 3, 3)).Draw(t, "keys") {
			had := len(model)
			if !m.put([]byte(key), int64(i)) {
				if m.exact == nil && had < m.limit {
					t.Fatalf("refused with %d of %d", had, m.limit)
				}
				break
			}
			model[key] = int64(i)
		}
		if m.n != len(model) {
			t.Fatalf("%d keys, want %d", m.n, len(model))
		}
		for key, want := range model {
			if got := m.get([]byte(key)); got != want {
				t.Fatalf("%q: %d, want %d", key, got, want)
			}
		}
	})
}

func TestTheMapAllocatesNothingPerRecord(t *testing.T) {
	m := mapOf(1<<20, 0, false)
	key := []byte("a key of some length")
	m.put(key, 1)
	n := int64(0)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		n++
		m.put(key, n)
		m.get(key)
	}))
}

func BenchmarkKeyMap(b *testing.B) {
	keys := make([][]byte, 100_000)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "key-%010d", i)
	}
	m := mapOf(128<<20, 0, false)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		m.put(keys[rand.IntN(len(keys))], int64(i))
		i++
	}
}

// bytes is the memory that slots and keys take.
func (m *keyMap) bytes() (n int64) {
	for _, t := range m.tables {
		n += slotBytes * int64(len(t.slots))
	}
	if m.exact != nil {
		n += m.exact.bytes()
	}
	return n
}

func (a *arena) bytes() (n int64) {
	for _, c := range a.chunks {
		n += int64(cap(c))
	}
	return n
}
