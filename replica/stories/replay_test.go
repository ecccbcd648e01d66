package stories

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/replica/controller"
	"github.com/partlog/partlog/vfs"
)

// The same events, at real logs under a real controller, lead to the same leaders, epochs, in-sync and eligible replicas,
// answers, log starts, log ends, high watermarks, epoch files and truncations; in the end every log has the bytes that
// Kafka's has, and a consumer gets the same records.
//
// Scenario: N003, N010, N011, N017, N025, N026, N027, N033, N036, Q009, F001, F006, F021, F024, Z007, Z008.
func TestStoriesOfRealClusters(t *testing.T) {
	for _, name := range names(t) {
		t.Run(name, func(t *testing.T) { newCluster(t, readStory(t, name), nil).replay() })
	}
}

// How long messages take does not matter: only where a follower's segments begin depends on it.
func TestStoriesOfRealClustersOverSlowNetworks(t *testing.T) {
	for seed := range uint64(3) {
		for _, name := range names(t) {
			t.Run(fmt.Sprintf("%s/%d", name, seed), func(t *testing.T) {
				dice := rand.New(rand.NewPCG(seed, 0))
				newCluster(t, readStory(t, name), func() time.Duration { return time.Duration(dice.IntN(30_000)) * time.Microsecond }).replay()
			})
		}
	}
}

func (c *cluster) replay() {
	for i := range c.story.Events {
		c.play(&c.story.Events[i])
	}
	require.Equal(c.t, lines(c.story.history()), lines(c.history), "what the controller recorded")
	cuts := []truncation{}
	for _, id := range c.ids() {
		cuts = append(cuts, c.nodes[id].cuts...)
	}
	require.Equal(c.t, text(c.story.Truncations), text(cuts), "truncations")
}

func text(v any) string {
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func (c *cluster) play(e *event) {
	switch e.Do {
	case "create topic":
		c.create(e)
	case "delete topic":
		r := c.ask(func(tag uint64) controller.Event { return controller.DeleteTopic{Tag: tag, Topic: c.story.Topic} })
		require.Equal(c.t, e.Answer.Error, code(r.Err).String(), "step %d", e.Step)
	case "add partitions":
		r := c.ask(func(tag uint64) controller.Event {
			return controller.AddPartitions{Tag: tag, Topic: c.story.Topic, Partitions: e.Count}
		})
		require.Equal(c.t, e.Answer.Error, code(r.Err).String(), "step %d", e.Step)
	case "produce":
		c.produce(e)
	case "pause":
		c.pause(e.Node)
	case "resume":
		c.resume(e.Node)
	case "kill":
		c.kill(e.Node)
	case "stop cleanly":
		c.stop(e.Node)
	case "start":
		c.start(e.Node)
	case "elect preferred":
		c.elect(e, controller.ToLeader)
	case "elect unclean":
		c.elect(e, controller.Uncleanly)
	case "reassign", "cancel reassignment":
		r := c.ask(func(tag uint64) controller.Event {
			return controller.Reassign{Tag: tag, Partition: c.story.tp(), To: e.To}
		})
		require.Equal(c.t, e.Answer.Error, code(r.Err).String(), "step %d", e.Step)
	case "delete records":
		c.deleteRecords(e)
	case "end transaction":
		c.endTxn(e)
	case "set config":
		c.setConfig(e)
	case "lose the disk":
		c.nodes[e.Node].wipe(c.story)
	case "":
	default:
		c.t.Fatalf("step %d: nobody knows how to %s", e.Step, e.Do)
	}
	c.drain()
	switch {
	case e.Wait != "":
		c.await(e, 2*time.Duration(e.TookMs)*time.Millisecond+2*time.Second, func() bool {
			same := func(v view) bool { return reflect.DeepEqual(e.View.sorted(), v) }
			return same(c.view()) || slices.ContainsFunc(c.passed, same) // here some things happen in the same moment
		}, func() (any, any) { return e.View.sorted(), c.view() })
		c.passed = nil
	case e.Settled != "":
		defer func() { c.passed = nil }()
		same := func() bool { return text(c.want(e)) == text(c.state()) }
		both := func() (any, any) { return c.want(e), c.state() }
		c.await(e, 10*time.Second, same, both)
		c.run(checkpointed, func() bool { return false })
		c.await(e, 0, same, both)
		c.checkCheckpoints(e)
	case e.Look != "":
		c.await(e, time.Second, func() bool { return text(c.want(e)) == text(c.state()) }, func() (any, any) { return c.want(e), c.state() })
	case e.Probe != "":
		c.probe(e)
	case e.Copied != "":
		c.compareFolders(e)
	case e.Consumed != nil:
		c.consume(e.Consumed)
	case e.Do == "":
		c.t.Fatalf("step %d: nobody knows what this is", e.Step)
	}
}

// checkCheckpoints: at rest every running node's checkpoint says its high watermark, and one that was stopped cleanly said
// what it had, that all was synced, and who it was.
func (c *cluster) checkCheckpoints(e *event) {
	for id, st := range e.State.Nodes {
		n := c.nodes[id]
		if st.HighWatermark != nil {
			require.Equal(c.t, *st.HighWatermark, n.checkpoint(c.story, "replication-offset-checkpoint"), "step %d: node %d", e.Step, id)
		}
		if !n.up && n.clean {
			require.Equal(c.t, st.LogEnd, n.checkpoint(c.story, "recovery-point-offset-checkpoint"), "step %d: node %d", e.Step, id)
			marker, err := vfs.ReadFile(n.disk, ".kafka_cleanshutdown", 1<<10)
			require.NoError(c.t, err)
			require.Contains(c.t, string(marker), fmt.Sprint(n.epoch))
		}
	}
}

// await lets time pass until it is as the story says.
func (c *cluster) await(e *event, long time.Duration, same func() bool, both func() (want, got any)) {
	if !c.run(long, same) {
		want, got := both()
		require.Equal(c.t, text(want), text(got), "step %d: %s%s%s", e.Step, e.Wait, e.Settled, e.Look)
	}
}

// want is the state of an event in the form that the cluster gives its own.
func (c *cluster) want(e *event) state {
	s := state{view: e.State.sorted(), Nodes: maps.Clone(e.State.Nodes)}
	if m := e.State.Reassignment; m != nil {
		s.Reassignment = &moving{slices.Sorted(slices.Values(m.Adding)), slices.Sorted(slices.Values(m.Removing))}
	}
	for id, st := range s.Nodes {
		st.CheckpointedHighWatermark, st.RecoveryPoint = nil, nil // of their moment
		if c.latency != nil {
			st.Segments = nil
		}
		s.Nodes[id] = st
	}
	return s
}

func (c *cluster) elect(e *event, how controller.Election) {
	c.run(command, func() bool { return false }) // who is alive has copied everything by then
	r := c.ask(func(tag uint64) controller.Event {
		return controller.Elect{Tag: tag, Election: how, Partitions: []log.TopicPartition{c.story.tp()}}
	})
	require.NoError(c.t, r.Err)
	require.Equal(c.t, e.Answer.Error, code(r.Elections[0].Err).String(), "step %d", e.Step)
}

// produce sends batches as the stories' producer made them, one request after the other.
func (c *cluster) produce(e *event) {
	n := c.leader(e.Node)
	seq := e.Seq
	for i, number := 0, e.FirstNumber; number < e.FirstNumber+e.Records; i++ {
		var o record.BuilderOptions
		if e.PID != nil {
			o.Producer = &record.Producer{ID: *e.PID, Epoch: e.Epoch, BaseSequence: seq, Transactional: e.Transactional}
		}
		b := record.NewBuilder(o)
		for k := 0; k < e.PerBatch && number < e.FirstNumber+e.Records; k++ {
			r := record.Record{Timestamp: 1_700_000_000_000 + int64(number), Value: fmt.Appendf(nil, "%s at %d-%d", c.story.Topic, e.Node, number)}
			if e.Keys != "" {
				r.Key = []byte{e.Keys[number%len(e.Keys)]}
			}
			require.NoError(c.t, b.Add(r))
			number++
			seq++
		}
		batch, err := b.Finish()
		require.NoError(c.t, err)
		c.tag++
		tag := c.tag
		n.step(c.now, replica.Produce{Tag: tag, Raw: bytes.Clone(batch.Bytes()), Acks: e.Acks, Timeout: time.Duration(e.Timeout) * time.Millisecond})
		answered := func() bool { _, ok := n.answers[tag]; return ok }
		if e.Acks == 0 {
			c.drain()
			require.False(c.t, answered(), "step %d", e.Step)
			continue
		}
		require.True(c.t, c.run(10*time.Second, answered), "step %d: request %d has no answer", e.Step, i)
		r := n.answers[tag]
		require.Equal(c.t, e.errorOf(c.t, i), r.Err.String(), "step %d, request %d", e.Step, i)
		require.Equal(c.t, e.BaseOffsets[i], r.Base, "step %d, request %d", e.Step, i)
	}
}

// deleteRecords is answered once all live replicas have moved their log start.
func (c *cluster) deleteRecords(e *event) {
	n := c.leader(e.Node)
	require.NoError(c.t, n.log.DeleteRecords(c.t.Context(), e.Below))
	n.step(c.now, replica.LogChanged{State: n.logState()})
	c.await(e, time.Second, func() bool { return n.p.Status().LowWatermark == e.Answer.LowWatermark },
		func() (any, any) { return e.Answer.LowWatermark, n.p.Status().LowWatermark })
}

// leader is a node that has heard that it leads.
func (c *cluster) leader(id replica.NodeID) *node {
	n, epoch := c.nodes[id], c.partition().LeaderEpoch
	require.True(c.t, c.run(time.Second, func() bool {
		if n.p == nil {
			return false
		}
		st := n.p.Status()
		return st.Role == replica.Leader && st.LeaderEpoch == epoch && st.Active
	}), "node %d does not lead epoch %d", id, epoch)
	return n
}

func (c *cluster) probe(e *event) {
	n, p := c.nodes[e.Node], c.partition()
	if p.Leader == e.Node {
		c.leader(e.Node)
	}
	epoch := p.LeaderEpoch
	switch e.Probe {
	case "list offsets":
		got := c.listOffsets(n, e.Timestamp, log.ReadUncommitted)
		require.Equal(c.t, *e.Answer, got, "step %d", e.Step)
	case "fetch as consumer":
		c.probeFetch(e, -1)
	case "fetch with the old leader epoch":
		c.probeFetch(e, epoch-1)
	default:
		c.t.Fatalf("step %d: nobody knows the probe %q", e.Step, e.Probe)
	}
}

// listOffsets is a client's request for an offset by time, answered from View as its comment says.
func (c *cluster) listOffsets(n *node, timestamp int64, isolation log.Isolation) answer {
	none := func(e replica.ErrorCode) answer {
		return answer{Error: e.String(), Offset: -1, LeaderEpoch: -1, Timestamp: -1}
	}
	v := n.p.View(replica.NoNode, -1, isolation, n.log.Offsets().LastStable)
	var at log.At
	var err error
	switch {
	case n.p.Status().Role != replica.Leader:
		return none(replica.NotLeaderOrFollower) // a follower's View is for fetches
	case timestamp == -5, timestamp == -6: // of a remote tier
		return none(replica.None)
	case timestamp == -2, timestamp == -4:
		start := n.log.Offsets().LogStart
		a := answer{Error: replica.None.String(), Offset: start, LeaderEpoch: -1, Timestamp: -1}
		if epochs := n.log.Epochs(); len(epochs) > 0 && epochs[0].Start <= start {
			a.LeaderEpoch = epochs[0].Epoch
		}
		return a
	case timestamp == -1:
		if v.Err != replica.None {
			return none(v.Err)
		}
		return answer{Error: replica.None.String(), Offset: v.End, LeaderEpoch: v.LeaderEpoch, Timestamp: -1}
	case timestamp == -3:
		at, err = n.log.OffsetOfMaxTime(c.t.Context())
	default:
		at, err = n.log.OffsetForTime(c.t.Context(), time.UnixMilli(timestamp))
	}
	switch {
	case err != nil && !errors.Is(err, log.ErrNotFound):
		c.t.Fatal(err)
	case err == nil && at.Offset < v.End:
		return answer{Error: replica.None.String(), Offset: at.Offset, LeaderEpoch: at.LeaderEpoch, Timestamp: at.Timestamp}
	case !v.Settled:
		return none(replica.OffsetNotAvailable)
	}
	return none(replica.None)
}

func (c *cluster) probeFetch(e *event, epoch int32) {
	r := c.fetch(c.nodes[e.Node], e.Offset, epoch)
	want, got := *e.Answer, answer{Error: r.Err.String(), HighWatermark: r.HighWatermark, LastStable: r.LastStable, LogStart: r.LogStart, Batches: [][3]int64{}}
	for raw := r.Raw; len(raw) > 0; {
		b, rest, err := record.Next(raw)
		require.NoError(c.t, err)
		got.Batches, raw = append(got.Batches, [3]int64{b.BaseOffset(), b.LastOffset(), int64(b.LeaderEpoch())}), rest
	}
	if r.Diverged {
		got.Diverging = &epochEnd{r.EpochEnd.Epoch, r.EpochEnd.End}
	}
	if want.Leader != nil {
		require.Equal(c.t, want.Leader.ID, r.Leader, "step %d", e.Step)
		require.Equal(c.t, want.Leader.Epoch, r.LeaderEpoch, "step %d", e.Step)
	}
	want.Leader, want.Ms, want.Message = nil, nil, nil
	require.Equal(c.t, want, got, "step %d", e.Step)
}

// compareFolders compares what is on the nodes' disks with what was on those of Kafka's.
func (c *cluster) compareFolders(e *event) {
	part := e.Copied
	if part == "final" {
		part = ""
	}
	for _, id := range e.Nodes {
		n, folder := c.nodes[id], c.story.dir(part, fmt.Sprintf("node-%d", id))
		n.requireSameLog(c.story, folder)
		n.requireSameFile(c.story, folder, "leader-epoch-checkpoint")
		n.requireSameFile(c.story, folder, "partition.metadata")
		if part == "stopped" {
			n.requireSameCheckpoints(folder)
		}
	}
}

// consume reads from the leader as a consumer does, fetch by fetch, and finds the records that Kafka's consumer got.
func (c *cluster) consume(want *consumed) {
	n := c.leader(c.partition().Leader)
	start := c.listOffsets(n, -2, want.isolation()).Offset
	require.Equal(c.t, want.Beginning, start)
	require.Equal(c.t, want.End, c.listOffsets(n, -1, want.isolation()).Offset)
	var got []consumedRecord
	at := start
	for at < want.End {
		c.tag++
		n.step(c.now, replica.FetchRequest{From: replica.NoNode, Tag: c.tag, Offset: at, LeaderEpoch: -1, LastFetchedEpoch: -1, BrokerEpoch: -1, MaxBytes: 300, Isolation: want.isolation()})
		r := n.answers[c.tag]
		require.Equal(c.t, replica.None, r.Err)
		require.NotEmpty(c.t, r.Raw, "at %d", at)
		from := at
		for raw := r.Raw; len(raw) > 0; {
			var b record.Batch
			var err error
			b, raw, err = record.Next(raw)
			require.NoError(c.t, err)
			at = b.LastOffset() + 1
			if !b.Control() && !aborted(r.Aborted, b) {
				got = appendRecords(c.t, got, b, from)
			}
		}
	}
	require.Equal(c.t, want.Position, at)
	require.Len(c.t, got, want.Records)
	require.Equal(c.t, c.story.records(c.t), got)
}

// fetch is a consumer's fetch that does not wait.
func (c *cluster) fetch(n *node, offset int64, epoch int32) replica.Result {
	c.tag++
	n.step(c.now, replica.FetchRequest{From: replica.NoNode, Tag: c.tag, Offset: offset, LeaderEpoch: epoch, LastFetchedEpoch: -1, BrokerEpoch: -1, MaxBytes: 300})
	r, ok := n.answers[c.tag]
	require.True(c.t, ok, "no answer")
	return r
}

// appendRecords appends those of a batch at or above an offset.
func appendRecords(t *testing.T, list []consumedRecord, b record.Batch, from int64) []consumedRecord {
	var d record.Decoder
	for r, err := range b.Records(&d) {
		require.NoError(t, err)
		require.Empty(t, r.Headers)
		if r.Offset >= from {
			list = append(list, consumedRecord{Offset: r.Offset, Timestamp: r.Timestamp, Type: "CreateTime", Key: coded(r.Key), Value: coded(r.Value), Headers: []any{},
				LeaderEpoch: b.LeaderEpoch()})
		}
	}
	return list
}

func coded(b []byte) *string {
	if b == nil {
		return nil
	}
	text := base64.StdEncoding.EncodeToString(b)
	return &text
}

// requireRecords compares a log with the records that Kafka's consumer got.
func requireRecords(t *testing.T, l *log.Log, s *story) {
	var got []consumedRecord
	start := l.Offsets().LogStart
	isolation := log.ReadUncommitted
	for _, e := range s.Events {
		if e.Consumed != nil {
			isolation = e.Consumed.isolation()
		}
	}
	for b, err := range l.Batches(t.Context(), start, log.WithIsolation(isolation)) {
		require.NoError(t, err)
		if !b.Control() {
			got = appendRecords(t, got, b, start)
		}
	}
	require.Equal(t, s.records(t), got, s.Title)
}
