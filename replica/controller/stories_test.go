package controller

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/replica"
)

// story is what a real cluster of Kafka 4.3.1 did with one partition.
type story struct {
	Story       string            `json:"story"`
	TopicConfig map[string]string `json:"topicConfig"`
	Events      []storyEvent      `json:"events"`
	Records     []storyRecord     `json:"controllerRecords"`
}

type storyEvent struct {
	Step     int            `json:"step"`
	Do       string         `json:"do"`
	Node     replica.NodeID `json:"node"`
	Replicas ids            `json:"replicas"`
	To       ids            `json:"to"`
	Answer   struct {
		Error string `json:"error"`
	} `json:"answer"`
	State *storyState `json:"state"`
	View  *storyState `json:"view"`
}

type storyState struct {
	Leader       replica.NodeID `json:"leader"`
	LeaderEpoch  int32          `json:"leaderEpoch"`
	Replicas     ids            `json:"replicas"`
	ISR          ids            `json:"isr"`
	ELR          ids            `json:"elr"`
	LastKnownELR ids            `json:"lastKnownElr"`
	Offline      ids            `json:"offline"`
}

// storyRecord is one record of the controller's log: what is missing did not change.
type storyRecord struct {
	Replicas     *ids            `json:"replicas"`
	ISR          *ids            `json:"isr"`
	Adding       *ids            `json:"addingReplicas"`
	Removing     *ids            `json:"removingReplicas"`
	Leader       *replica.NodeID `json:"leader"`
	ELR          *ids            `json:"eligibleLeaderReplicas"`
	LastKnownELR *ids            `json:"lastKnownElr"`
	Recovery     *int            `json:"leaderRecoveryState"`
}

// fold makes the partition after each record.
func fold(records []storyRecord) (out []Partition) {
	var p Partition
	set := func(to *[]replica.NodeID, from *ids) {
		if from != nil {
			*to = *from
		}
	}
	for i, r := range records {
		set(&p.Replicas, r.Replicas)
		set(&p.ISR, r.ISR)
		set(&p.Adding, r.Adding)
		set(&p.Removing, r.Removing)
		set(&p.ELR, r.ELR)
		set(&p.LastKnownELR, r.LastKnownELR)
		if r.Leader != nil {
			p.Leader = *r.Leader
			if i > 0 {
				p.LeaderEpoch++
			}
		}
		if r.Recovery != nil {
			p.Recovering = *r.Recovery == 1
		}
		p.PartitionEpoch = int32(i)
		out = append(out, p)
	}
	return out
}

// The same events lead to the same leaders, epochs, in-sync and eligible replicas, change by change.
func TestStoriesOfRealClustersEndTheSame(t *testing.T) {
	files, err := filepath.Glob("../stories/testdata/*/story.json")
	require.NoError(t, err)
	require.Len(t, files, 10)
	for _, file := range files {
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		var s story
		require.NoError(t, json.Unmarshal(raw, &s))
		t.Run(s.Story, func(t *testing.T) { s.replay(t) })
	}
}

func (s story) replay(t *testing.T) {
	w := newWorld(t, Config{NoBalance: true}, 1, 2, 3, 4)
	for _, e := range s.Events {
		switch e.Do {
		case "create topic":
			w.create(s.Story, map[string]string{minISRKey: s.TopicConfig[minISRKey]}, e.Replicas)
		case "start":
			w.start(e.Node)
		case "resume":
			if !w.core.active(e.Node) { // it lost its session, but nothing of what it had
				w.nodes[e.Node].stopped = true
				w.start(e.Node)
			}
		case "stop cleanly":
			w.stop(e.Node)
		case "reassign":
			require.Equal(t, e.Answer.Error, code(w.reassign(s.Story, e.To...)), "step %d", e.Step)
		case "elect preferred":
			require.Equal(t, e.Answer.Error, code(w.electOne(s.Story, ToLeader)), "step %d", e.Step)
		case "elect unclean":
			require.Equal(t, e.Answer.Error, code(w.electOne(s.Story, Uncleanly)), "step %d", e.Step)
		}
		view := e.State
		if view == nil {
			view = e.View
		}
		if view != nil {
			w.follow(s.Story, *view)
			p := w.partition(s.Story)
			want := storyState{p.Leader, p.LeaderEpoch, p.Replicas, slices.Sorted(slices.Values(p.ISR)), p.ELR, p.LastKnownELR, view.Offline}
			slices.Sort(view.ISR)
			slices.Sort(view.ELR)
			for _, list := range []*ids{&want.ISR, &want.ELR, &want.LastKnownELR} {
				if *list == nil {
					*list = ids{}
				}
			}
			require.Equal(t, *view, want, "step %d", e.Step)
		}
	}
	want := fold(s.Records)
	require.Len(t, w.news, len(want))
	for i := range want {
		got := w.news[i].State
		slices.Sort(want[i].ELR)
		require.True(t, got.equal(want[i]) && got.PartitionEpoch == want[i].PartitionEpoch, "record %d: %+v\nnot %+v", i, got, want[i])
	}
}

// follow lets happen what must have happened by itself: nodes that are offline were fenced, and the in-sync set that the
// leader proposed is what it is.
func (w *world) follow(topic string, view storyState) {
	for _, id := range []replica.NodeID{1, 2, 3, 4} {
		if slices.Contains(view.Offline, id) && w.core.active(id) {
			p := w.partition(topic)
			if !slices.Contains(view.ISR, id) && p.Leader != id && slices.Contains(p.ISR, id) && p.Leader == view.Leader {
				w.sync(topic, without(p.ISR, ids{id})...) // the leader was quicker than the session's end
			}
			w.die(id)
		}
	}
	p := w.partition(topic)
	switch {
	case p.Reassigning():
		w.sync(topic, union(p.ISR, p.Adding)...)
	case len(p.ISR) < len(view.ISR) && len(view.ISR)-len(p.ISR) > 1:
		for _, id := range without(view.ISR, p.ISR) {
			w.sync(topic, union(w.partition(topic).ISR, ids{id})...)
		}
	case !sameSet(p.ISR, view.ISR):
		w.sync(topic, view.ISR...)
	}
}
