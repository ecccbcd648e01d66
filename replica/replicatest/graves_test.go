package replicatest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A power loss that takes the marker of a transaction leaves its records to the producer's next marker: what the coordinator
// once decided is no longer what the log says.
func TestARecordCountsAsTheMarkerInItsLogSays(t *testing.T) {
	first, second := &txn{decided: commitMarker}, &txn{decided: abortMarker}
	s := &sim{book: []origin{{}, {producer: 7, txn: first, key: 1}, {producer: 7, txn: second, key: 1}}}
	m := &model{s: s}
	other := entry{commitMarker, 0, 8}
	for name, c := range map[string]struct {
		list []entry
		last int64 // of key 1; -1: there is none
	}{
		"its own commit":               {[]entry{{data, 0, 1}, other, {commitMarker, 0, 7}, {data, 0, 2}, {abortMarker, 0, 7}}, 0},
		"its own abort":                {[]entry{{data, 0, 2}, {abortMarker, 0, 7}}, -1},
		"lost, then the next's abort":  {[]entry{{data, 0, 1}, other, {abortMarker, 2, 7}}, -1},
		"lost, then the next's commit": {[]entry{{data, 0, 2}, other, {commitMarker, 2, 7}}, 0},
		"not there, it was to commit":  {[]entry{{data, 0, 1}, other}, 0},
		"not there, it was to abort":   {[]entry{{data, 0, 2}, other}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			at, ok := m.latest(c.list, 1, 0, int64(len(c.list)))
			require.Equal(t, c.last >= 0, ok)
			if ok {
				require.Equal(t, c.last, at)
			}
		})
	}
}
