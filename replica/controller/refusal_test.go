package controller

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/replica"
)

// question is a request and the code of its answer.
type question struct {
	in   Event // of tag 1
	code string
}

// questions are the requests whose answer changes nothing.
func questions(w *world) map[string]question {
	at := func(topic string) log.TopicPartition { return log.TopicPartition{Topic: topic} }
	propose := func(change func(a *AlterPartition)) AlterPartition {
		a := w.propose("t", 1, 2, 3)
		a.Tag = 1
		change(&a)
		return a
	}
	return map[string]question{
		"a topic with this id":            {propose(func(a *AlterPartition) { a.TopicID[5] = 9 }), "UNKNOWN_TOPIC_ID"},
		"the topic of this id":            {propose(func(a *AlterPartition) { a.Partition.Topic = "u" }), "INCONSISTENT_TOPIC_ID"},
		"the partition":                   {propose(func(a *AlterPartition) { a.Partition.Partition = 9 }), "UNKNOWN_TOPIC_OR_PARTITION"},
		"an older leader epoch":           {propose(func(a *AlterPartition) { a.Proposal.LeaderEpoch = -1 }), "FENCED_LEADER_EPOCH"},
		"an older version":                {propose(func(a *AlterPartition) { a.Proposal.PartitionEpoch-- }), "INVALID_UPDATE_VERSION"},
		"a newer version":                 {propose(func(a *AlterPartition) { a.Proposal.PartitionEpoch++ }), "NOT_CONTROLLER"},
		"another leader":                  {propose(func(a *AlterPartition) { a.Node, a.BrokerEpoch = 2, w.epoch(2) }), "INVALID_REQUEST"},
		"another life":                    {propose(func(a *AlterPartition) { a.BrokerEpoch-- }), "STALE_BROKER_EPOCH"},
		"a member that is down":           {propose(func(a *AlterPartition) { a.Proposal.ISR, a.Proposal.BrokerEpochs = ids{1, 4}, nil }), "INELIGIBLE_REPLICA"},
		"who is in sync already":          {propose(func(a *AlterPartition) {}), "NONE"},
		"shut down, of another life":      {ControlledShutdown{1, 1, 0}, "STALE_BROKER_EPOCH"},
		"shut down again":                 {ControlledShutdown{1, 5, w.epoch(5)}, "NONE"},
		"a name that is taken":            {CreateTopic{Tag: 1, Topic: "t", Partitions: 1, ID: [16]byte{9}}, "TOPIC_ALREADY_EXISTS"},
		"a name that is taken, almost":    {CreateTopic{Tag: 1, Topic: "a_b", Partitions: 1, ID: [16]byte{9}}, "INVALID_TOPIC_EXCEPTION"},
		"more replicas than nodes":        {CreateTopic{Tag: 1, Topic: "v", Partitions: 1, ReplicationFactor: 9, ID: [16]byte{9}}, "INVALID_REPLICATION_FACTOR"},
		"a node that never was":           {CreateTopic{Tag: 1, Topic: "v", Assignment: []ids{{9}}, ID: [16]byte{9}}, "INVALID_REPLICA_ASSIGNMENT"},
		"settings that cannot be":         {SetConfig{1, "t", map[string]string{minISRKey: "0"}}, "INVALID_CONFIG"},
		"what would be made":              {CreateTopic{Tag: 1, Topic: "v", Partitions: 1, ReplicationFactor: 1, ID: [16]byte{9}, ValidateOnly: true}, "NONE"},
		"fewer partitions":                {AddPartitions{Tag: 1, Topic: "t", Partitions: 1}, "INVALID_PARTITIONS"},
		"grow what is not there":          {AddPartitions{Tag: 1, Topic: "v", Partitions: 1}, "UNKNOWN_TOPIC_OR_PARTITION"},
		"delete what is not there":        {DeleteTopic{1, "v"}, "UNKNOWN_TOPIC_OR_PARTITION"},
		"set what is not there":           {SetConfig{1, "v", nil}, "UNKNOWN_TOPIC_OR_PARTITION"},
		"set what is set":                 {SetConfig{1, "t", map[string]string{"retention.ms": "1000"}}, "NONE"},
		"alter what is not there":         {AlterConfig{Tag: 1, Topic: "v"}, "UNKNOWN_TOPIC_OR_PARTITION"},
		"alter nothing":                   {AlterConfig{Tag: 1, Topic: "t", Set: map[string]string{"retention.ms": "1000"}}, "NONE"},
		"what would be altered":           {AlterConfig{Tag: 1, Topic: "t", Delete: []string{"retention.ms"}, ValidateOnly: true}, "NONE"},
		"describe what is not there":      {Describe{1, []string{"v"}}, "UNKNOWN_TOPIC_OR_PARTITION"},
		"settings of what is not there":   {DescribeConfig{1, []string{"v"}}, "UNKNOWN_TOPIC_OR_PARTITION"},
		"elect nobody":                    {Elect{Tag: 1, Election: ToLeader}, "NONE"},
		"elect who leads":                 {Elect{Tag: 1, Election: ToLeader, Partitions: []log.TopicPartition{at("t")}}, "NONE"},
		"elect where nothing is":          {Elect{Tag: 1, Election: Uncleanly, Partitions: []log.TopicPartition{at("v")}}, "NONE"},
		"an election that there is not":   {Elect{Tag: 1, Election: Online}, "INVALID_REQUEST"},
		"move what is not there":          {Reassign{1, at("v"), ids{1}}, "UNKNOWN_TOPIC_OR_PARTITION"},
		"move to where it is":             {Reassign{1, at("t"), ids{1, 2, 3, 4}}, "NONE"},
		"move to a node that never was":   {Reassign{1, at("t"), ids{9}}, "INVALID_REPLICA_ASSIGNMENT"},
		"cancel a move that there is not": {Reassign{1, at("t"), nil}, "NO_REASSIGNMENT_IN_PROGRESS"},
	}
}

// settled is a cluster of five nodes, of which 4 is down and 5 shutting down.
func settled(t *testing.T) *world {
	w := newWorld(t, Config{NoBalance: true}, 1, 2, 3, 4, 5)
	w.create("t", map[string]string{"retention.ms": "1000"}, ids{1, 2, 3, 4})
	w.create("u", nil, ids{2, 1})
	w.create("a.b", nil, ids{1})
	w.die(4)
	require.NoError(t, w.ask(func(tag uint64) Event { return ControlledShutdown{tag, 5, w.epoch(5)} }).Err)
	return w
}

// Before a controller says no, or that all is as wanted, it looks whether it still rules: it writes nothing, once.
func TestWhatChangesNothingIsAnsweredAfterALookAtTheStore(t *testing.T) {
	for name := range questions(settled(t)) {
		t.Run(name, func(t *testing.T) {
			w := settled(t)
			c := questions(w)[name]
			writes, checks := w.commits, w.checks
			delete(w.replies, 1)
			w.do(c.in)
			require.Contains(t, w.replies, uint64(1))
			require.Equal(t, c.code, code(w.replies[1].Err))
			require.Equal(t, []int{writes, checks + 1}, []int{w.commits, w.checks})
			require.Zero(t, w.resigns)
		})
	}
}

// A controller that was deposed and does not know refuses nothing, and promises nothing: another rules, to whom all that may be
// otherwise. It notices that it was deposed.
func TestADeposedControllerRefusesNothing(t *testing.T) {
	for name := range questions(settled(t)) {
		t.Run(name, func(t *testing.T) {
			w := settled(t)
			old, in := w.core, questions(w)[name].in
			w.elect(Config{NoBalance: true})
			acts := old.Step(w.now, in, nil)
			require.Len(t, acts, 1, "it asks, and answers nothing")
			ask := acts[0].(Commit)
			require.Empty(t, ask.Transaction.Writes)
			require.Len(t, ask.Transaction.Guards, 1)
			versions, err := w.store.Commit(t.Context(), ask.Transaction) // past its session: nothing but the guard tells
			require.ErrorIs(t, err, replica.ErrConflict)
			acts = old.Step(w.now, Committed{ask.Tag, versions, err}, nil)
			require.Len(t, acts, 2)
			require.Equal(t, "NOT_CONTROLLER", code(acts[0].(Reply).Err))
			require.ErrorIs(t, acts[1].(Resign).Err, replica.ErrConflict)
			_, rules := old.Ruling()
			require.False(t, rules)
		})
	}
}

// What only looks costs nothing, and may be of the time before; that there is nothing to see is a refusal.
func TestLookingDoesNotAskTheStore(t *testing.T) {
	w := settled(t)
	old := w.core
	w.elect(Config{})
	w.create("new", nil, ids{1})
	for _, in := range []Event{Describe{1, nil}, Describe{1, []string{"t"}}, DescribeConfig{1, nil}, DescribeConfig{1, []string{"t"}}, ListReassignments{1}} {
		acts := old.Step(w.now, in, nil)
		require.Len(t, acts, 1)
		require.NoError(t, acts[0].(Reply).Err)
	}
	require.IsType(t, Commit{}, old.Step(w.now, Describe{1, []string{"new"}}, nil)[0])
	acts := old.Step(w.now, Describe{2, []string{"t"}}, nil)
	require.Equal(t, uint64(2), acts[0].(Reply).Tag, "it does not wait for the check that is under way")
}

// What is looked at is in the store, also while a check is under way behind which its write waits.
func TestALookBesideACheckWaitsForWhatIsToBeWritten(t *testing.T) {
	w := newWorld(t, Config{}, 1)
	check := w.core.Step(w.now, DeleteTopic{1, "none"}, nil)[0].(Commit)
	require.Empty(t, check.Transaction.Writes)
	require.Empty(t, w.core.Step(w.now, CreateTopic{Tag: 2, Topic: "t", Assignment: []ids{{1}}, ID: [16]byte{1}}, nil))
	require.Empty(t, w.core.Step(w.now, Describe{3, []string{"t"}}, nil))
	acts := w.core.Step(w.now, Committed{Tag: check.Tag}, nil)
	require.Len(t, acts, 2, "the refusal, and what is to be written")
	write := acts[0].(Commit)
	require.Equal(t, uint64(1), acts[1].(Reply).Tag)
	versions, err := w.store.Commit(t.Context(), write.Transaction)
	require.NoError(t, err)
	acts = w.core.Step(w.now, Committed{write.Tag, versions, nil}, nil)
	require.Equal(t, []uint64{2, 3}, tags(acts))
}

// tags are those of the replies.
func tags(acts []Action) (all []uint64) {
	for _, a := range acts {
		if r, ok := a.(Reply); ok {
			all = append(all, r.Tag)
		}
	}
	return all
}

// A transaction that was made before a request came says nothing about the time after: it may have been applied before another was
// elected, and the request have come afterwards. All requests that come while it is under way share the next one.
func TestARefusalWaitsForACheckThatWasBegunAfterTheRequest(t *testing.T) {
	for _, first := range []Event{
		DeleteTopic{1, "none"}, // makes a check
		CreateTopic{Tag: 1, Topic: "t", Assignment: []ids{{1}}, ID: [16]byte{1}}, // a write
	} {
		w := newWorld(t, Config{}, 1)
		old := w.core
		before := old.Step(w.now, first, nil)[0].(Commit)
		versions, err := w.store.Commit(t.Context(), before.Transaction)
		require.NoError(t, err) // and the answer is on its way
		w.elect(Config{})
		for tag := range uint64(100) {
			require.Empty(t, old.Step(w.now, DeleteTopic{tag + 2, "new"}, nil))
		}
		acts := old.Step(w.now, Committed{before.Tag, versions, nil}, nil)
		require.Equal(t, []uint64{1}, tags(acts))
		check := acts[slices.IndexFunc(acts, func(a Action) bool { _, ok := a.(Commit); return ok })].(Commit)
		require.Empty(t, check.Transaction.Writes)
		_, err = w.store.Commit(t.Context(), check.Transaction)
		require.ErrorIs(t, err, replica.ErrConflict)
		acts = old.Step(w.now, Committed{check.Tag, nil, err}, nil)
		require.Len(t, tags(acts), 100)
		for _, a := range acts[:100] {
			require.Equal(t, "NOT_CONTROLLER", code(a.(Reply).Err))
		}
	}
}

// A check that is not answered did nothing: who was to be refused asks another, and the rule is over, as after a write.
func TestACheckWithoutAnAnswerEndsTheRule(t *testing.T) {
	for what, in := range map[string]func(tag uint64) Event{
		"no answer":   func(tag uint64) Event { return Committed{Tag: tag, Err: errors.New("no answer")} },
		"session end": func(uint64) Event { return Deposed{} },
	} {
		w := newWorld(t, Config{}, 1)
		check := w.core.Step(w.now, DeleteTopic{1, "none"}, nil)[0].(Commit)
		require.Empty(t, w.core.Step(w.now, CreateTopic{Tag: 2, Topic: "t", Assignment: []ids{{1}}, ID: [16]byte{1}}, nil))
		acts := w.core.Step(w.now, in(check.Tag), nil)
		require.Equal(t, []uint64{1, 2}, tags(acts), what)
		for _, a := range acts[:2] {
			require.Equal(t, "NOT_CONTROLLER", code(a.(Reply).Err), what)
		}
		_, rules := w.core.Ruling()
		require.False(t, rules, what)
		keys, err := w.store.List(context.Background(), TopicsPrefix)
		require.NoError(t, err)
		require.Empty(t, keys)
	}
}
