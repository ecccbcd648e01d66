package controller

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A leader whose log has failed proposes the others: one of them leads, and what the failed one had does not count any more.
func TestALeaderThatProposesTheOthersIsReplaced(t *testing.T) {
	for name, c := range map[string]struct {
		isr  ids // what it proposes
		code string
		elr  ids // afterwards
	}{
		"all others":                  {ids{2, 3}, "NEW_LEADER_ELECTED", nil},
		"one, 3 was in sync till now": {ids{2}, "NEW_LEADER_ELECTED", ids{3}},
		"one that is not in sync":     {ids{2, 4}, "INVALID_REQUEST", nil},
		"nobody":                      {nil, "INVALID_REQUEST", nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Config{}, 1, 2, 3, 4)
			w.create("t", map[string]string{minISRKey: "2"}, ids{1, 2, 3, 4})
			w.sync("t", 1, 2, 3)
			before := w.partition("t")
			require.Equal(t, c.code, code(w.alter(w.propose("t", c.isr...)).Err))
			after := w.partition("t")
			if c.code == "INVALID_REQUEST" {
				require.Equal(t, before, after)
				return
			}
			require.Equal(t, c.isr[0], after.Leader)
			require.Equal(t, c.isr, after.ISR)
			require.Equal(t, c.elr, after.ELR)
			require.Equal(t, before.LeaderEpoch+1, after.LeaderEpoch)
			require.Equal(t, before.PartitionEpoch+1, after.PartitionEpoch)
			require.Equal(t, "INVALID_REQUEST", code(w.alter(func() AlterPartition {
				a := w.propose("t", 2)
				a.Node, a.BrokerEpoch = 1, w.epoch(1)
				return a
			}()).Err), "it leads no more")
		})
	}
}
