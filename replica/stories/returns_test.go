package stories

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/vfs"
)

// returning is a replica that came back after the folders were copied, and who led then.
type returning struct {
	node, leader replica.NodeID
	leaderEpoch  int32
}

// returns are the replicas that came back after "before-restart", before anything else was done, each with the first leader it
// can have heard of.
func (s *story) returns() (list []returning) {
	var nodes []replica.NodeID // came back, and have no leader yet
	copied := false
	for i := range s.Events {
		e := &s.Events[i]
		copied = copied || e.Copied == "before-restart"
		switch {
		case !copied || e.Do == "":
		case e.Do == "start" || e.Do == "resume":
			nodes = append(nodes, e.Node)
		default:
			return list
		}
		v := e.View
		if e.State != nil {
			v = &e.State.view
		}
		if v == nil || v.Leader == replica.NoNode {
			continue
		}
		for _, id := range nodes {
			if id != v.Leader && !slices.ContainsFunc(list, func(r returning) bool { return r.node == id }) {
				list = append(list, returning{id, v.Leader, v.LeaderEpoch})
			}
		}
		nodes = nil
	}
	return list
}

// Whoever returns with the folder that its broker left follows the leader, opened from the leader's folder, and ends with its
// bytes: cut where Kafka cut it, and nowhere else.
//
// Scenario: F006, F011, F021, F024.
func TestReplicasThatReturnAreCutWhereKafkaCutThem(t *testing.T) {
	for _, name := range names(t) {
		s := readStory(t, name)
		for _, r := range s.returns() {
			t.Run(fmt.Sprintf("%s/%d", name, r.node), func(t *testing.T) {
				pair := newPair(t, s, map[replica.NodeID]vfs.FS{
					r.node:   diskOf(t, s.dir("before-restart", fmt.Sprintf("node-%d", r.node))),
					r.leader: diskOf(t, s.dir("before-restart", fmt.Sprintf("node-%d", r.leader))),
				})
				leader, follower := pair.nodes[r.leader], pair.nodes[r.node]
				pair.lead(r.leader, r.leaderEpoch, r.leader)
				require.True(t, pair.run(10*time.Second, pair.inStep(r.leader)))

				var cuts []truncation
				for _, cut := range s.Truncations {
					if cut.Node == r.node {
						cuts = append(cuts, cut)
					}
				}
				require.Equal(t, text(cuts), text(follower.cuts))
				require.Empty(t, leader.cuts)
				if s.TopicConfig["cleanup.policy"] == "compact" {
					return // each cleans its own
				}
				require.Equal(t, logBytes(t, leader.disk, s), logBytes(t, follower.disk, s))
				end := follower.log.Offsets().LogEnd // an epoch without a record is known to its leader only
				require.Equal(t, slices.DeleteFunc(leader.epochFile(s), func(e [2]int64) bool { return e[1] >= end }), follower.epochFile(s))
				follower.requireSound()
			})
		}
	}
}
