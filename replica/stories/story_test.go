// Package stories replays what real clusters of Apache Kafka 4.3.1 did with one partition: one controller, up to four
// brokers, ordinary elections, stops, kills, pauses. Each folder of testdata is one story (testdata/README.md); nothing in
// them was written by this module. Here the same events happen to replica.Partition over log.Log, under a controller.Core,
// with a clock of their own, in one thread.
package stories

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/replica/controller"
)

// story is a story.json.
type story struct {
	Name        string            `json:"story"`
	Title       string            `json:"title"`
	Topic       string            `json:"topic"`
	TopicID     string            `json:"topicId"`
	TopicConfig map[string]string `json:"topicConfig"`
	Events      []event           `json:"events"`
	Truncations []truncation      `json:"truncations"`
	Records     []change          `json:"controllerRecords"`
}

type event struct {
	Step     int              `json:"step"`
	Do       string           `json:"do"`
	Wait     string           `json:"wait"`
	Settled  string           `json:"settled"`
	Look     string           `json:"look"`
	Probe    string           `json:"probe"`
	Copied   string           `json:"copied"`
	Consumed *consumed        `json:"consumed"`
	Node     replica.NodeID   `json:"node"`
	Nodes    []replica.NodeID `json:"nodes"`
	Replicas []replica.NodeID `json:"replicas"`
	To       []replica.NodeID `json:"to"`

	// Of produce. Errors is one string for all, or a list.
	Records     int             `json:"records"`
	Acks        int8            `json:"acks"`
	PerBatch    int             `json:"perBatch"`
	FirstNumber int             `json:"firstNumber"`
	Timeout     int64           `json:"timeout"`
	BaseOffsets []int64         `json:"baseOffsets"`
	Errors      json.RawMessage `json:"errors"`

	Below     int64   `json:"below"`
	Timestamp int64   `json:"timestamp"`
	Offset    int64   `json:"offset"`
	TookMs    int64   `json:"tookMs"`
	Answer    *answer `json:"answer"`
	State     *state  `json:"state"`
	View      *view   `json:"view"`
}

type consumed struct {
	Beginning int64 `json:"beginningOffset"`
	End       int64 `json:"endOffset"`
	Position  int64 `json:"position"` // the consumer's, when it had read everything
	Records   int   `json:"records"`
}

// answer is that of any request; a probe fills what it asks for.
type answer struct {
	Error        string `json:"error"`
	LowWatermark int64  `json:"lowWatermark"`

	Offset      int64 `json:"offset"`
	LeaderEpoch int32 `json:"leaderEpoch"`
	Timestamp   int64 `json:"timestamp"`

	HighWatermark int64             `json:"hw"`
	LastStable    int64             `json:"lso"`
	LogStart      int64             `json:"logStart"`
	Batches       []json.RawMessage `json:"batches"`
	Leader        *struct {
		ID    replica.NodeID `json:"leaderId"`
		Epoch int32          `json:"leaderEpoch"`
	} `json:"currentLeader"`
}

// view is how the cluster describes the partition. The order in the sets means nothing: they are sorted here.
type view struct {
	Leader       replica.NodeID   `json:"leader"`
	LeaderEpoch  int32            `json:"leaderEpoch"`
	Replicas     []replica.NodeID `json:"replicas"`
	ISR          []replica.NodeID `json:"isr"`
	ELR          []replica.NodeID `json:"elr"`
	LastKnownELR []replica.NodeID `json:"lastKnownElr"`
	Offline      []replica.NodeID `json:"offline"`
}

func (v view) sorted() view {
	for _, set := range []*[]replica.NodeID{&v.ISR, &v.ELR, &v.LastKnownELR, &v.Offline} {
		*set = slices.Sorted(slices.Values(*set))
	}
	return v
}

type state struct {
	view
	Nodes map[replica.NodeID]nodeState `json:"nodes"`
}

// nodeState is what a node has. What only the moment of a checkpoint or a sync decides is not compared.
type nodeState struct {
	Node          string     `json:"node"` // up, paused, down
	LogStart      int64      `json:"logStart"`
	LogEnd        int64      `json:"logEnd"`
	Segments      [][2]int64 `json:"segments"` // base offset, bytes
	Epochs        [][2]int64 `json:"epochs"`   // the lines of the file
	HighWatermark *int64     `json:"highWatermark"`
}

// truncation is what a node's own log said about cutting the partition.
type truncation struct {
	Node               replica.NodeID `json:"node"`
	To                 *int64         `json:"to,omitempty"`
	Completed          bool           `json:"completed,omitempty"`
	LeaderAnswered     *epochEnd      `json:"leaderAnswered,omitempty"`
	BelowHighWatermark *int64         `json:"belowHighWatermark,omitempty"`
	From               *int64         `json:"from,omitempty"`
	StartAnewAt        *int64         `json:"startAnewAt,omitempty"`
}

type epochEnd struct {
	Epoch int32 `json:"epoch"`
	End   int64 `json:"endOffset"`
}

// change is a record of the controller's log: what is missing did not change. The epochs stand in the first one only.
type change struct {
	LeaderEpoch    int32 `json:"leaderEpoch"`
	PartitionEpoch int32 `json:"partitionEpoch"`

	Replicas     *[]replica.NodeID `json:"replicas"`
	ISR          *[]replica.NodeID `json:"isr"`
	Adding       *[]replica.NodeID `json:"addingReplicas"`
	Removing     *[]replica.NodeID `json:"removingReplicas"`
	Leader       *replica.NodeID   `json:"leader"`
	ELR          *[]replica.NodeID `json:"eligibleLeaderReplicas"`
	LastKnownELR *[]replica.NodeID `json:"lastKnownElr"`
	Recovery     *int              `json:"leaderRecoveryState"`
}

// line is a partition in one line of text, sets sorted, so that two can be compared and read.
func line(p controller.Partition) string {
	set := func(s []replica.NodeID) []replica.NodeID { return slices.Sorted(slices.Values(s)) }
	return fmt.Sprintf("%d: leader %d in epoch %d, replicas %d, adding %d, removing %d, in sync %d, eligible %d, last known %d, recovering %v",
		p.PartitionEpoch, p.Leader, p.LeaderEpoch, p.Replicas, set(p.Adding), set(p.Removing), set(p.ISR), set(p.ELR), set(p.LastKnownELR), p.Recovering)
}

// history is the partition after each record of the controller.
func (s *story) history() (lines []string) {
	var p controller.Partition
	set := func(to, from *[]replica.NodeID) {
		if from != nil {
			*to = *from
		}
	}
	for i, r := range s.Records {
		p.PartitionEpoch++
		if i == 0 {
			p.LeaderEpoch, p.PartitionEpoch = r.LeaderEpoch, r.PartitionEpoch
		}
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
		lines = append(lines, line(p))
	}
	return lines
}

// errorOf is the error of the i-th request of a produce.
func (e *event) errorOf(t *testing.T, i int) string {
	var one string
	if json.Unmarshal(e.Errors, &one) == nil {
		return one
	}
	var list []string
	require.NoError(t, json.Unmarshal(e.Errors, &list))
	return list[i]
}

func (s *story) dir(parts ...string) string {
	return filepath.Join(append([]string{"testdata", s.Name}, parts...)...)
}

func (s *story) tp() log.TopicPartition { return log.TopicPartition{Topic: s.Topic} }

func (s *story) topicID(t *testing.T) (id [16]byte) {
	raw, err := base64.RawURLEncoding.DecodeString(s.TopicID)
	require.NoError(t, err)
	require.Equal(t, len(id), copy(id[:], raw))
	return id
}

func (s *story) config(t *testing.T) log.Config {
	c, err := log.ParseConfig(s.TopicConfig)
	require.NoError(t, err)
	c.Visibility, c.Durability = log.External, log.Buffered
	return c
}

func readStory(t *testing.T, name string) *story {
	raw, err := os.ReadFile(filepath.Join("testdata", name, "story.json"))
	require.NoError(t, err)
	s := &story{}
	require.NoError(t, json.Unmarshal(raw, s))
	require.Equal(t, name, s.Name)
	return s
}

// names are the stories there are.
func names(t *testing.T) (list []string) {
	files, err := filepath.Glob("testdata/*/story.json")
	require.NoError(t, err)
	for _, f := range files {
		list = append(list, filepath.Base(filepath.Dir(f)))
	}
	require.Len(t, list, 10)
	return list
}

// consumedRecord is a line of records.jsonl.
type consumedRecord struct {
	Offset      int64   `json:"offset"`
	Timestamp   int64   `json:"timestamp"`
	Key         *string `json:"key"`
	Value       *string `json:"value"`
	LeaderEpoch int32   `json:"leaderEpoch"`
}

func (s *story) records(t *testing.T) (list []consumedRecord) {
	f, err := os.Open(s.dir("records.jsonl"))
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	for d := json.NewDecoder(f); d.More(); {
		var r consumedRecord
		require.NoError(t, d.Decode(&r))
		list = append(list, r)
	}
	return list
}
