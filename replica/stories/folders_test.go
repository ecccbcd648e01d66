package stories

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/vfs"
)

// newPair is nodes over the disks given, all up, without a controller: whatever a leader proposes is accepted.
func newPair(t *testing.T, s *story, disks map[replica.NodeID]vfs.FS) *cluster {
	c := &cluster{t: t, story: s, now: time.UnixMilli(1_700_000_100_000), nodes: map[replica.NodeID]*node{}}
	for id := range disks {
		n := &node{t: t, id: id, disk: disks[id]}
		n.boot(func() time.Time { return c.now }, s)
		n.send = func(a replica.Action) { c.route(n, a) }
		n.conf = replica.Config{Self: id, LagTimeMax: s.lagTimeMax(), FetchWait: fetchWait}
		n.open(s)
		c.nodes[id] = n
	}
	return c
}

// lead has the nodes hear who leads, the leader first.
func (c *cluster) lead(leader replica.NodeID, epoch int32, isr ...replica.NodeID) {
	a := replica.Assign{Leader: leader, LeaderEpoch: epoch, TopicID: c.story.topicID(c.t), PartitionEpoch: epoch * 100, ISR: isr}
	a.Replicas = c.ids()
	c.nodes[leader].step(c.now, a)
	for _, id := range a.Replicas {
		if id != leader {
			c.nodes[id].step(c.now, a)
		}
	}
	c.drain()
}

// write appends a batch of one record at a leader.
func (n *node) write(now time.Time, value string) {
	b := record.NewBuilder(record.BuilderOptions{})
	require.NoError(n.t, b.Add(record.Record{Timestamp: 1_700_000_200_000, Value: []byte(value)}))
	batch, err := b.Finish()
	require.NoError(n.t, err)
	n.step(now, replica.Produce{Tag: 1, Raw: bytes.Clone(batch.Bytes()), Acks: 1})
	require.Equal(n.t, replica.None, n.answers[1].Err)
}

// inStep says whether all nodes have what the leader has.
func (c *cluster) inStep(leader replica.NodeID) func() bool {
	return func() bool {
		want := c.nodes[leader].log.Offsets()
		for _, n := range c.nodes {
			o := n.log.Offsets()
			if o.LogEnd != want.LogEnd || o.LogStart != want.LogStart || o.HighWatermark != want.LogEnd {
				return false
			}
		}
		return true
	}
}

// requireSound has the log look at all it has.
func (n *node) requireSound() {
	require.NoError(n.t, n.log.Sync(n.t.Context()))
	for f, err := range n.log.Verify(n.t.Context()) {
		require.NoError(n.t, err)
		n.t.Errorf("node %d: %+v", n.id, f)
	}
}

// captured are the folders of a story with what the cluster's nodes had when they were copied.
func (s *story) captured(visit func(folder, part string, id replica.NodeID, st state)) {
	var last state
	for i := range s.Events {
		e := &s.Events[i]
		if e.State != nil {
			last = *e.State
		}
		if e.TopicID != "" {
			s.TopicID = e.TopicID // made anew
		}
		for _, id := range e.Nodes {
			part := e.Copied
			if part == "final" {
				part = ""
			}
			visit(s.dir(part, fmt.Sprintf("node-%d", id)), e.Copied, id, last)
		}
	}
}

// Every folder that was captured opens with the offsets, segments and epochs that its broker had, and nothing to find
// fault with; the final ones hold the records that Kafka's consumer got.
func TestCapturedFoldersOpenAsTheirBrokersHadThem(t *testing.T) {
	for _, name := range names(t) {
		s := readStory(t, name)
		s.captured(func(folder, part string, id replica.NodeID, st state) {
			t.Run(name+"/"+part+"/"+fmt.Sprint(id), func(t *testing.T) {
				c := newPair(t, s, map[replica.NodeID]vfs.FS{id: diskOf(t, folder)})
				n, want := c.nodes[id], st.Nodes[id]
				o := n.log.Offsets()
				require.Equal(t, want.LogStart, o.LogStart)
				require.Equal(t, want.LogEnd, o.LogEnd)
				require.Equal(t, want.Segments, n.segments())
				var epochs [][2]int64
				for _, e := range n.log.Epochs() {
					epochs = append(epochs, [2]int64{int64(e.Epoch), e.Start})
				}
				require.Equal(t, slices.DeleteFunc(want.Epochs, func(e [2]int64) bool { return e[1] >= want.LogEnd }), epochs)
				n.requireSound()
				if part == "final" {
					_, err := n.log.SetHighWatermark(o.LogEnd)
					require.NoError(t, err)
					requireRecords(t, n.log, s)
				}
			})
		})
	}
}

// A replica with another history, as its broker left it, is opened here and follows a leader opened from the leader's
// folder: it is cut where Kafka cut it, and ends with the bytes that the leader has, and that Kafka's replica had.
//
// Scenario: F006, F011, F021, F024.
func TestFoldersOfDivergedReplicasAreCutWhereKafkaCutThem(t *testing.T) {
	for _, c := range []struct {
		story            string
		leader, follower replica.NodeID
	}{
		{"old-leader-diverges", 2, 1},
		{"unclean-election", 2, 1},
		{"start-offset-moves", 1, 3},
	} {
		t.Run(c.story, func(t *testing.T) {
			s := readStory(t, c.story)
			disks := map[replica.NodeID]vfs.FS{}
			var before state
			s.captured(func(folder, part string, id replica.NodeID, st state) {
				if part == "before-restart" {
					disks[id], before = diskOf(t, folder), st
				}
			})
			pair := newPair(t, s, disks)
			leader, follower := pair.nodes[c.leader], pair.nodes[c.follower]
			require.Equal(t, c.leader, before.Leader)
			pair.lead(c.leader, before.LeaderEpoch, before.ISR...)
			require.True(t, pair.run(10*time.Second, pair.inStep(c.leader)))
			require.True(t, pair.run(10*time.Second, func() bool { return leader.p.Status().Replicated }))

			require.Equal(t, text(s.Truncations), text(follower.cuts))
			require.Empty(t, leader.cuts)
			require.Equal(t, logBytes(t, leader.disk, s), logBytes(t, follower.disk, s))
			require.Equal(t, leader.log.Epochs(), follower.log.Epochs())
			require.Equal(t, leader.epochFile(s), follower.epochFile(s))
			for _, n := range pair.nodes {
				final := s.dir(fmt.Sprintf("node-%d", n.id))
				n.requireSameLog(s, final)
				n.requireSameFile(s, final, "leader-epoch-checkpoint")
				n.requireSound()
				requireRecords(t, n.log, s)
			}
		})
	}
}

// boundaries are the offsets at which the batches of a log begin, and its end.
func (n *node) boundaries() (list []int64) {
	for b, err := range n.log.Batches(n.t.Context(), 0, log.WithIsolation(log.LogEnd)) {
		require.NoError(n.t, err)
		list = append(list, b.BaseOffset())
	}
	return append(list, n.log.Offsets().LogEnd)
}

// Folders with several epochs: one replica lost its log from some batch on, begins a new epoch and writes; another one, which
// has all that the broker wrote, follows it. It is cut once, exactly where the leader's log parts from its own, wherever in
// whichever epoch that is.
//
// Scenario: N001, F006, F021.
func TestFoldersWithSeveralEpochsAreCutWhereTheyPart(t *testing.T) {
	for name, nodes := range map[string][2]replica.NodeID{
		"epochs-without-records": {2, 1}, "leader-killed": {1, 3}, "handover-uncommitted": {3, 2}, "reassign": {4, 2}, "old-leader-diverges": {2, 3},
	} {
		t.Run(name, func(t *testing.T) {
			s := readStory(t, name)
			fresh := func() (*cluster, *node, *node) {
				c := newPair(t, s, map[replica.NodeID]vfs.FS{
					nodes[0]: diskOf(t, s.dir(fmt.Sprintf("node-%d", nodes[0]))),
					nodes[1]: diskOf(t, s.dir(fmt.Sprintf("node-%d", nodes[1]))),
				})
				return c, c.nodes[nodes[0]], c.nodes[nodes[1]]
			}
			_, one, _ := fresh()
			for _, parts := range one.boundaries() {
				c, leader, follower := fresh()
				epochs := leader.log.Epochs()
				end := follower.log.Offsets().LogEnd
				latest := epochs[len(epochs)-1].Epoch
				require.GreaterOrEqual(t, len(epochs), 2)
				leader.lose(s, parts)
				c.lead(leader.id, latest+1, leader.id)
				leader.write(c.now, "another history")
				leader.write(c.now, "and more of it")
				require.True(t, c.run(10*time.Second, c.inStep(leader.id)), "parts at %d", parts)

				var at []int64
				for _, cut := range follower.cuts {
					if cut.BelowHighWatermark == nil {
						at = append(at, *cut.To)
					}
				}
				want := []int64{parts}
				if parts == end {
					want = nil
				}
				require.Equal(t, want, at, "parts at %d", parts)
				require.Equal(t, logBytes(t, leader.disk, s), logBytes(t, follower.disk, s), "parts at %d", parts)
				require.Equal(t, leader.epochFile(s), follower.epochFile(s), "parts at %d", parts)
				kept := slices.DeleteFunc(epochs, func(e log.EpochEntry) bool { return e.Start >= parts })
				require.Equal(t, append(kept, log.EpochEntry{Epoch: latest + 1, Start: parts}), follower.log.Epochs(), "parts at %d", parts)
				follower.requireSound()
			}
		})
	}
}

// lose takes everything at and above an offset from a node that is not running yet, and its replica with it.
func (n *node) lose(s *story, offset int64) {
	_, err := n.log.Truncate(n.t.Context(), offset)
	require.NoError(n.t, err)
	n.p = replica.New(s.tp(), n.conf, n.logState(), false)
}

// A folder whose epochs leave some out (0, then 4) follows a leader that has these, and not the last one. The first answer
// names an epoch the folder has never seen: it is cut to where that one would be, and only the second answer says where the
// histories part.
//
// Scenario: F006, F021.
func TestAFolderWithoutTheLeadersEpochsIsCutTwice(t *testing.T) {
	s := readStory(t, "epochs-without-records")
	c := newPair(t, s, map[replica.NodeID]vfs.FS{1: diskOf(t, s.dir("node-1")), 2: diskOf(t, s.dir("node-2"))})
	leader, follower := c.nodes[1], c.nodes[2]
	require.Equal(t, []log.EpochEntry{{Epoch: 0, Start: 0}, {Epoch: 4, Start: 4}}, follower.log.Epochs())
	leader.lose(s, 2)
	for _, epoch := range []int32{1, 3} {
		require.NoError(t, leader.log.AssignEpoch(epoch))
		for range epoch {
			_, err := leader.log.Append(t.Context(), record.Record{Value: []byte("of a leader nobody knew")})
			require.NoError(t, err)
		}
	}
	leader.p = replica.New(s.tp(), leader.conf, leader.logState(), false)
	c.lead(1, 5, 1)
	leader.write(c.now, "of one everybody knows")
	require.True(t, c.run(10*time.Second, c.inStep(1)))

	var at []string
	for _, cut := range follower.cuts {
		if cut.LeaderAnswered != nil {
			at = append(at, fmt.Sprintf("%d for %d, %d", *cut.To, cut.LeaderAnswered.Epoch, cut.LeaderAnswered.End))
		}
	}
	require.Equal(t, []string{"4 for 3, 6", "2 for 0, 2"}, at)
	require.Equal(t, []log.EpochEntry{{Epoch: 0, Start: 0}, {Epoch: 1, Start: 2}, {Epoch: 3, Start: 3}, {Epoch: 5, Start: 6}}, follower.log.Epochs())
	require.Equal(t, logBytes(t, leader.disk, s), logBytes(t, follower.disk, s))
	follower.requireSound()
}
