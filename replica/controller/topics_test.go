package controller

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/replica"
)

func (w *world) placed(r CreateTopic) Reply {
	w.t.Helper()
	copy(r.ID[:], r.Topic+"-id")
	return w.ask(func(tag uint64) Event { r.Tag = tag; return r })
}

func TestTopicsThatAreRefused(t *testing.T) {
	w := newWorld(t, Config{}, 1, 2, 3)
	w.create("a.b", nil, ids{1})
	w.die(3)
	for _, c := range []struct {
		want string
		r    CreateTopic
	}{
		{"INVALID_TOPIC_EXCEPTION", CreateTopic{Topic: ""}},
		{"INVALID_TOPIC_EXCEPTION", CreateTopic{Topic: ".."}},
		{"INVALID_TOPIC_EXCEPTION", CreateTopic{Topic: "a/b"}},
		{"INVALID_TOPIC_EXCEPTION", CreateTopic{Topic: strings.Repeat("x", 250)}},
		{"INVALID_TOPIC_EXCEPTION", CreateTopic{Topic: "a_b"}},
		{"TOPIC_ALREADY_EXISTS", CreateTopic{Topic: "a.b"}},
		{"INVALID_PARTITIONS", CreateTopic{Topic: "t", Partitions: -2}},
		{"POLICY_VIOLATION", CreateTopic{Topic: "t", Partitions: 10_001}},
		{"INVALID_REPLICATION_FACTOR", CreateTopic{Topic: "t", ReplicationFactor: -2}},
		{"INVALID_REPLICATION_FACTOR", CreateTopic{Topic: "t", ReplicationFactor: 4}},
		{"INVALID_REQUEST", CreateTopic{Topic: "t", Partitions: 1, Assignment: [][]replica.NodeID{{1}}}},
		{"INVALID_REPLICA_ASSIGNMENT", CreateTopic{Topic: "t", Assignment: [][]replica.NodeID{{1, 2}, {1}}}},
		{"INVALID_REPLICA_ASSIGNMENT", CreateTopic{Topic: "t", Assignment: [][]replica.NodeID{{1, 1}}}},
		{"INVALID_REPLICA_ASSIGNMENT", CreateTopic{Topic: "t", Assignment: [][]replica.NodeID{{1, 9}}}},
		{"INVALID_REPLICA_ASSIGNMENT", CreateTopic{Topic: "t", Assignment: [][]replica.NodeID{{}}}},
		{"INVALID_REPLICA_ASSIGNMENT", CreateTopic{Topic: "t", Assignment: [][]replica.NodeID{{3}}}},
		{"INVALID_PARTITIONS", CreateTopic{Topic: "t", Assignment: [][]replica.NodeID{}}},
		{"INVALID_CONFIG", CreateTopic{Topic: "t", Config: map[string]string{minISRKey: "many"}}},
	} {
		require.Equal(t, c.want, code(w.placed(c.r).Err), "%+v", c.r)
	}
	require.Equal(t, "INVALID_REQUEST", code(w.ask(func(tag uint64) Event { return CreateTopic{Tag: tag, Topic: "t"} }).Err), "no id")
	r := w.ask(func(tag uint64) Event { return Describe{Tag: tag} })
	require.Len(t, r.Topics, 1)

	r = w.placed(CreateTopic{Topic: "t", ReplicationFactor: 3, ValidateOnly: true})
	require.NoError(t, r.Err)
	require.Len(t, r.Topics[0].Partitions[0].ISR, 2, "who is fenced is not in sync")
	require.Equal(t, "UNKNOWN_TOPIC_OR_PARTITION", code(w.ask(func(tag uint64) Event { return Describe{tag, []string{"t"}} }).Err))
}

func TestTopicsArePlacedGrownAndDeleted(t *testing.T) {
	for _, layout := range []Placement{Striped, Staggered} {
		w := newWorld(t, Config{Partitions: 8, ReplicationFactor: 3, Placement: layout}, 1, 2, 3, 4)
		require.NoError(t, w.placed(CreateTopic{Topic: "t", Seed: 5}).Err)
		grow := func(r AddPartitions) error {
			r.Topic = "t"
			return w.ask(func(tag uint64) Event { r.Tag = tag; return r }).Err
		}
		require.Equal(t, "INVALID_PARTITIONS", code(grow(AddPartitions{Partitions: 8})))
		require.Equal(t, "INVALID_REPLICA_ASSIGNMENT", code(grow(AddPartitions{Partitions: 10, Assignment: [][]replica.NodeID{{1, 2, 3}}})))
		require.Equal(t, "INVALID_REPLICA_ASSIGNMENT", code(grow(AddPartitions{Partitions: 9, Assignment: [][]replica.NodeID{{1, 2}}})))
		require.NoError(t, grow(AddPartitions{Partitions: 16, Seed: 6}))
		holds := map[replica.NodeID]int{}
		for _, p := range w.topic("t").Partitions {
			require.Equal(t, p.Replicas, p.ISR)
			require.Equal(t, p.Replicas[0], p.Leader)
			for _, id := range p.Replicas {
				holds[id]++
			}
		}
		require.Len(t, holds, 4)
		for id, n := range holds {
			require.Equal(t, 12, n, "node %d", id)
		}
		before := len(w.news)
		require.NoError(t, w.ask(func(tag uint64) Event { return DeleteTopic{tag, "t"} }).Err)
		require.Equal(t, "UNKNOWN_TOPIC_OR_PARTITION", code(w.ask(func(tag uint64) Event { return DeleteTopic{tag, "t"} }).Err))
		require.Len(t, w.news[before:], 16)
		require.True(t, w.news[before].Deleted)
		left, err := w.store.List(t.Context(), "/")
		require.NoError(t, err)
		for _, v := range left {
			require.False(t, strings.HasPrefix(v.Key, TopicsPrefix) || strings.HasPrefix(v.Key, DeletePrefix), v.Key)
		}
		require.NoError(t, w.placed(CreateTopic{Topic: "t"}).Err)
	}
}

// The keys are Kafka's own, so that a browser of ZooKeeper shows Kafka's picture.
func TestWhatStandsInTheStore(t *testing.T) {
	w := newWorld(t, Config{}, 1, 2, 3)
	w.create("orders", map[string]string{minISRKey: "2"}, ids{1, 2}, ids{2, 1})
	require.NoError(t, w.reassign("orders", 1, 3))
	all, err := w.store.List(t.Context(), "/")
	require.NoError(t, err)
	got := map[string]string{}
	token := regexp.MustCompile(`"token":"[0-9a-z]+"`)
	for _, v := range all {
		got[v.Key] = token.ReplaceAllString(string(v.Value), `"token":"…"`)
	}
	id := `"b3JkZXJzAAAAAAAAAAAAAA"`
	require.Equal(t, map[string]string{
		"/controller":              `{"version":1,"brokerid":100,"timestamp":"1700000000000"}`,
		"/controller_epoch":        `1`,
		"/brokers/ids/1":           `{"version":5,"host":"","port":0,"jmx_port":-1,"endpoints":["PLAINTEXT://:0"],"previous_broker_epoch":-1,"token":"…"}`,
		"/brokers/ids/2":           got["/brokers/ids/1"],
		"/brokers/ids/3":           got["/brokers/ids/1"],
		"/brokers/registrations/1": fmt.Sprintf(`{"version":1,"broker_epoch":%d,"fenced":false,"in_controlled_shutdown":false}`, w.epoch(1)),
		"/brokers/registrations/2": got["/brokers/registrations/2"],
		"/brokers/registrations/3": got["/brokers/registrations/3"],
		"/config/topics/orders":    `{"version":1,"config":{"min.insync.replicas":"2"}}`,
		"/brokers/topics/orders": `{"version":3,"topic_id":` + id + `,"partitions":{"0":[1,3,2],"1":[2,1]},` +
			`"adding_replicas":{"0":[3]},"removing_replicas":{"0":[2]}}`,
		"/brokers/topics/orders/partitions/0/state": `{"version":1,"controller_epoch":1,"leader":1,"leader_epoch":0,"isr":[1,2],"topic_id":` + id +
			`,"partition_epoch":1,"replicas":[1,3,2],"adding_replicas":[3],"removing_replicas":[2]}`,
		"/brokers/topics/orders/partitions/1/state": `{"version":1,"controller_epoch":1,"leader":2,"leader_epoch":0,"isr":[2,1],"topic_id":` + id +
			`,"partition_epoch":0,"replicas":[2,1]}`,
	}, got)
}

// A successor finds everything as it was, and what happened in between.
func TestASuccessorTakesOver(t *testing.T) {
	w := newWorld(t, Config{}, 1, 2, 3)
	w.create("t", map[string]string{minISRKey: "2"}, ids{1, 2, 3}, ids{2, 3, 1})
	require.NoError(t, w.reassign("t", 1, 2))
	w.sync("t", 1, 2)
	before := w.topic("t")
	w.elect(Config{})
	require.Equal(t, fmt.Sprint(before), fmt.Sprint(w.topic("t")))
	require.Empty(t, w.damaged)
	epoch, ok := w.core.Ruling()
	require.True(t, ok)
	require.EqualValues(t, 2, epoch)

	w.store.Expire(w.nodes[1].session) // nobody tells
	w.elect(Config{})
	p := w.partition("t")
	require.Equal(t, []any{replica.NodeID(2), ids{2}, ids{1}}, []any{p.Leader, p.ISR, p.ELR})
}

// Deletion goes on under the next controller, wherever the last one stopped; creation too.
func TestHalfDoneWorkIsFinishedByTheSuccessor(t *testing.T) {
	for commits := 1; commits <= 8; commits++ {
		w := newWorld(t, Config{}, 1, 2)
		lists := make([][]replica.NodeID, 250)
		for i := range lists {
			lists[i] = ids{1, 2}
		}
		// The create takes 3 transactions, the deletion 1 for the mark and 3 for the rest.
		left := commits
		ctx := context.Background()
		var todo []Event
		done := map[uint64]error{}
		step := func(in Event) {
			for todo = append(todo, in); len(todo) > 0; {
				e := todo[0]
				todo = todo[1:]
				for _, a := range w.core.Step(w.now, e, nil) {
					switch a := a.(type) {
					case Commit:
						if left--; left >= 0 {
							versions, err := w.rule.Commit(ctx, a.Transaction)
							require.NoError(t, err)
							todo = append(todo, Committed{a.Tag, versions, nil})
						}
					case Reply:
						done[a.Tag] = a.Err
					}
				}
			}
		}
		step(CreateTopic{Tag: 1, Topic: "t", Assignment: lists, ID: [16]byte{1}})
		step(DeleteTopic{Tag: 2, Topic: "t"})
		created, deleted := done[1] == nil && len(done) > 0, len(done) == 2
		require.Equal(t, commits >= 3, created, "%d commits", commits)
		require.Equal(t, commits >= 7, deleted, "%d commits", commits)

		w.elect(Config{})
		r := w.ask(func(tag uint64) Event { return Describe{Tag: tag} })
		keys, err := w.store.List(ctx, TopicsPrefix)
		require.NoError(t, err)
		if commits >= 4 { // the mark was written
			require.Empty(t, r.Topics, "%d commits", commits)
			require.Empty(t, keys, "%d commits", commits)
			marks, err := w.store.List(ctx, DeletePrefix)
			require.NoError(t, err)
			require.Empty(t, marks)
			continue
		}
		require.Len(t, keys, 251, "%d commits", commits)
		for _, p := range r.Topics[0].Partitions {
			require.Equal(t, Partition{Leader: 1, Replicas: ids{1, 2}, ISR: ids{1, 2}}, p)
		}
	}
}

// What waits for a transaction under way goes with the next one, all together, and is answered only then.
func TestChangesGatherWhileATransactionIsUnderWay(t *testing.T) {
	w := newWorld(t, Config{}, 1, 2, 3)
	create := func(n int) CreateTopic {
		return CreateTopic{Tag: uint64(1000 + n), Topic: fmt.Sprint("t", n), Assignment: [][]replica.NodeID{{1, 2}}, ID: [16]byte{byte(n + 1)}}
	}
	acts := w.core.Step(w.now, create(0), nil)
	require.Len(t, acts, 1)
	first := acts[0].(Commit)
	for n := range 9 {
		require.Empty(t, w.core.Step(w.now, create(n+1), nil))
	}
	require.Empty(t, w.core.Step(w.now, Describe{Tag: 2000}, nil), "not even this is answered before")
	versions, err := w.rule.Commit(t.Context(), first.Transaction)
	require.NoError(t, err)
	acts = w.core.Step(w.now, Committed{first.Tag, versions, nil}, nil)
	require.Len(t, acts, 3)
	second := acts[1].(Commit)
	require.Len(t, second.Transaction.Writes, 18)
	require.EqualValues(t, 1000, acts[2].(Reply).Tag)

	acts = w.core.Step(w.now, Committed{second.Tag, nil, errors.New("no answer")}, nil)
	require.IsType(t, Resign{}, acts[len(acts)-1])
	require.Len(t, acts, 11)
	for _, a := range acts[:9] {
		require.Equal(t, "REQUEST_TIMED_OUT", code(a.(Reply).Err))
	}
	require.Equal(t, "NOT_CONTROLLER", code(acts[9].(Reply).Err), "who only looks")
	acts = w.core.Step(w.now, create(50), nil)
	require.Equal(t, "NOT_CONTROLLER", code(acts[0].(Reply).Err))
}

// Values that cannot be read are reported and left alone; the rest works.
func TestDamagedValuesAreLeftAlone(t *testing.T) {
	for _, c := range []struct{ key, value string }{
		{"/brokers/topics/bad/partitions/0/state", `{`},
		{"/brokers/topics/bad/partitions/0/state", `{"topic_id":"x"}`},
		{"/brokers/topics/bad/partitions/0/state", `{"topic_id":"YmFkAAAAAAAAAAAAAAAAAA","leader":7,"replicas":[1,2],"isr":[1]}`},
		{"/brokers/topics/bad/partitions/0/state", `{"topic_id":"YmFkAAAAAAAAAAAAAAAAAA","leader":1,"replicas":[1,2],"isr":[3]}`},
		{"/brokers/topics/bad/partitions/0/state", `{"topic_id":"YmFkAAAAAAAAAAAAAAAAAA","leader":1,"replicas":[],"isr":[]}`},
		{"/brokers/topics/bad/partitions/0/state", `{"topic_id":"YmFkAAAAAAAAAAAAAAAAAA","leader":1,"replicas":[1,2],"isr":[1],"leader_epoch":-1}`},
		{"/brokers/topics/bad", `{`},
		{"/brokers/topics/bad", `{"topic_id":"YmFkAAAAAAAAAAAAAAAAAA","partitions":{"1":[1]}}`},
		{"/brokers/topics/bad", `{"topic_id":"Z29vZAAAAAAAAAAAAAAAAAxx","partitions":{"0":[1]}}`},
		{"/brokers/topics/bad/partitions/0/state", `{"topic_id":"Z29vZAAAAAAAAAAAAAAAAA","leader":1,"replicas":[1,2],"isr":[1]}`},
		{"/config/topics/bad", `[]`},
	} {
		w := newWorld(t, Config{}, 1, 2)
		w.create("bad", nil, ids{1, 2})
		w.create("good", nil, ids{1, 2})
		_, err := replica.Put(t.Context(), w.store, c.key, []byte(c.value), replica.AnyVersion)
		require.NoError(t, err)
		w.elect(Config{})
		require.Len(t, w.damaged, 1, c.value)
		w.damaged = nil
		w.die(1)
		require.Equal(t, "KAFKA_STORAGE_ERROR", code(w.reassign("bad", 2, 1)), c.value)
		v, err := w.store.Get(t.Context(), c.key)
		require.NoError(t, err)
		require.Equal(t, c.value, string(v.Value))
		require.Equal(t, replica.NodeID(2), w.partition("good").Leader)
		require.Equal(t, "TOPIC_ALREADY_EXISTS", code(w.placed(CreateTopic{Topic: "bad"}).Err))
		require.NoError(t, w.ask(func(tag uint64) Event { return DeleteTopic{tag, "bad"} }).Err, c.value)
		keys, err := w.store.List(t.Context(), TopicsPrefix+"bad")
		require.NoError(t, err)
		require.Empty(t, keys, c.value)
		require.Zero(t, w.resigns)
	}
}

func TestKeysOfOthersAreNotOurs(t *testing.T) {
	for _, s := range []string{"", "/", "/brokers/ids/1", "/brokers/topics/", "/brokers/topics/t/partitions/01/state", "/brokers/topics/t/x",
		"/brokers/topics/t/partitions/-1/state", "/brokers/topics/t/partitions/1", "/config/topics/a/b", "/brokers/registrations/-1", "/brokers/registrations/01"} {
		_, ok := parseKey(s)
		require.False(t, ok, s)
	}
	for _, k := range []key{{kind: markKey, topic: "t"}, {kind: registrationKey, node: 7}, {kind: configKey, topic: "a.b"},
		{kind: topicKey, topic: "t"}, {kind: stateKey, topic: "partitions", partition: 12}} {
		got, ok := parseKey(k.String())
		require.True(t, ok, k.String())
		require.Equal(t, k, got)
	}
	require.True(t, slices.IsSorted([]kind{markKey, registrationKey, configKey, topicKey, stateKey}))
}

// A name is free when the last key of the old topic is gone, not before.
func TestATopicBeingDeletedIsInTheWay(t *testing.T) {
	w := newWorld(t, Config{}, 1)
	w.create("t", nil, ids{1})
	again := CreateTopic{Tag: 1, Topic: "t", Assignment: [][]replica.NodeID{{1}}, ID: [16]byte{9}}
	acts := w.core.Step(w.now, DeleteTopic{Tag: 2, Topic: "t"}, nil)
	mark := acts[0].(Commit)
	require.Equal(t, DeletePrefix+"t", mark.Transaction.Writes[0].Key)
	require.Empty(t, w.core.Step(w.now, again, nil))
	versions, err := w.rule.Commit(t.Context(), mark.Transaction)
	require.NoError(t, err)
	acts = w.core.Step(w.now, Committed{mark.Tag, versions, nil}, nil)
	require.Len(t, acts, 1)
	rest := acts[0].(Commit)
	versions, err = w.rule.Commit(t.Context(), rest.Transaction)
	require.NoError(t, err)
	acts = w.core.Step(w.now, Committed{rest.Tag, versions, nil}, nil)
	require.Equal(t, "TOPIC_ALREADY_EXISTS", code(acts[len(acts)-2].(Reply).Err), "it was there when the request came")
	require.NoError(t, acts[len(acts)-1].(Reply).Err)
	r := w.ask(func(tag uint64) Event { again.Tag = tag; return again })
	require.NoError(t, r.Err)
}

// An answer to a transaction of an earlier rule says nothing about the present one.
func TestAnswersOfAnEarlierRuleAreIgnored(t *testing.T) {
	w := newWorld(t, Config{}, 1)
	create := func(name string) CreateTopic {
		return CreateTopic{Tag: 7, Topic: name, Assignment: [][]replica.NodeID{{1}}, ID: [16]byte{name[0]}}
	}
	old := w.core.Step(w.now, create("a"), nil)[0].(Commit)
	acts := w.core.Step(w.now, Deposed{}, nil)
	require.Equal(t, "REQUEST_TIMED_OUT", code(acts[0].(Reply).Err))
	keys, err := w.store.List(t.Context(), "/")
	require.NoError(t, err)
	require.Empty(t, w.core.Step(w.now, Elected{Epoch: 1, Version: 1, Keys: keys}, nil))
	next := w.core.Step(w.now, create("b"), nil)[0].(Commit)
	require.NotEqual(t, old.Tag, next.Tag)
	require.Empty(t, w.core.Step(w.now, Committed{old.Tag, []int64{1, 1}, nil}, nil))
	require.Len(t, w.core.Step(w.now, Committed{next.Tag, []int64{1, 1}, nil}, nil), 2)
}

// A registration that cannot be read might have been of a node that lost everything.
func TestANodeWithADamagedRegistrationCountsAsUnclean(t *testing.T) {
	w := newWorld(t, Config{}, 1, 2)
	w.create("t", nil, ids{1, 2})
	_, err := replica.Put(t.Context(), w.store, RegistrationsPrefix+"1", []byte("?"), replica.AnyVersion)
	require.NoError(t, err)
	w.elect(Config{})
	require.Len(t, w.damaged, 1)
	p := w.partition("t")
	require.Equal(t, []any{replica.NodeID(2), ids{2}}, []any{p.Leader, p.ISR})
	require.True(t, w.core.active(1))
}
