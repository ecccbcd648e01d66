package mapped

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// However the keys are spread, the entry found is the one that counting finds.
func TestUpperIsRightHoweverKeysAreSpread(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	spreads := map[string]func(i, n int) int64{
		"evenly":         func(i, n int) int64 { return int64(i) * 100 },
		"ever wider":     func(i, n int) int64 { return int64(i) * int64(i) * int64(i) },
		"ever closer":    func(i, n int) int64 { return -int64(n-i) * int64(n-i) * int64(n-i) },
		"one far ahead":  func(i, n int) int64 { return int64(i) + int64(i/(n-1))*(math.MaxInt64-int64(n)) },
		"one far behind": func(i, n int) int64 { return int64(i) + int64((n-1-i)/(n-1))*math.MinInt64 },
		"two heaps":      func(i, n int) int64 { return int64(i) + int64(2*i/n)*1e12 },
		"pairs":          func(i, n int) int64 { return int64(i / 2) },
		"all over int64s": func(i, n int) int64 {
			return math.MinInt64 + int64(i)*(math.MaxInt64/int64(n)) + int64(i)*(math.MaxInt64/int64(n))
		},
	}
	for name, key := range spreads {
		for _, n := range []int{1, 2, 8, 9, 10, 100, 512} {
			var keys []int64
			var e []byte
			for i := range n {
				k := key(i, max(n, 2))
				keys, e = append(keys, k), binary.BigEndian.AppendUint64(e, uint64(k))
			}
			require.True(t, slices.IsSorted(keys), name)
			q := query{size: 8, key: func(b []byte) int64 { return int64(binary.BigEndian.Uint64(b)) }}
			targets := []int64{math.MinInt64, math.MaxInt64, 0}
			for _, k := range keys {
				targets = append(targets, k, max(k, math.MinInt64+1)-1, min(k, math.MaxInt64-1)+1)
			}
			for _, q.target = range targets {
				want := 0
				for want < n && keys[want] <= q.target {
					want++
				}
				require.Equal(t, want, q.upper(e), "%s: %d keys, target %d", name, n, q.target)
			}
		}
	}
	// Keys that are in no order, as in a damaged file, lead anywhere, but not out of the entries.
	for range 2000 {
		n := 1 + r.IntN(40)
		var e []byte
		for range n {
			e = binary.BigEndian.AppendUint64(e, r.Uint64()>>r.IntN(64))
		}
		q := query{size: 8, key: func(b []byte) int64 { return int64(binary.BigEndian.Uint64(b)) }, target: int64(r.Uint64())}
		k := q.upper(e)
		require.True(t, 0 <= k && k <= n)
	}
}

// A key that grows evenly is found with a look at both ends and at what lies around it.
func TestUpperLooksAtFewEntriesOfAnEvenIndex(t *testing.T) {
	var e []byte
	for i := range 512 {
		e = binary.BigEndian.AppendUint64(e, uint64(i*100))
	}
	looks := 0
	q := query{size: 8, key: func(b []byte) int64 { looks++; return int64(binary.BigEndian.Uint64(b)) }}
	for q.target = 0; q.target < 512*100; q.target++ {
		looks = 0
		q.upper(e)
		require.LessOrEqual(t, looks, 5, "target %d", q.target)
	}
}
