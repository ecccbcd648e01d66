// Package stories replays what real clusters of Apache Kafka 4.3.1 did with one partition: one controller, up to four
// brokers, ordinary elections, stops, kills, pauses. Each folder of testdata is one story (testdata/README.md); nothing in
// them was written by this module. Here the same events happen to replica.Partition over log.Log, under a controller.Core,
// with a clock of their own, in one thread. PARTLOG_STORIES may name a folder of other stories.
package stories

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/replica/controller"
)

// story is a story.json.
type story struct {
	home        string            // the folder that holds the story's
	Name        string            `json:"story"`
	Title       string            `json:"title"`
	Topic       string            `json:"topic"`
	TopicID     string            `json:"topicId"`
	Partition   int32             `json:"partition"`
	TopicConfig map[string]string `json:"topicConfig"`
	Settings    map[string]string `json:"settings"` // of the cluster, where they are others
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

	// Of produce. Errors is one string for all, or a list. Values and, where there are keys, the key of record i, which is
	// the (i modulo their number)-th letter, follow from the numbers.
	Records     int             `json:"records"`
	Acks        int8            `json:"acks"`
	PerBatch    int             `json:"perBatch"`
	FirstNumber int             `json:"firstNumber"`
	Timeout     int64           `json:"timeout"`
	BaseOffsets []int64         `json:"baseOffsets"`
	Errors      json.RawMessage `json:"errors"`
	Keys        string          `json:"keys"`

	// Of an idempotent or transactional producer, and of the end of its transaction.
	PID           *int64 `json:"pid"`
	Seq           int32  `json:"seq"`
	Epoch         int16  `json:"epoch"`
	Transactional bool   `json:"transactional"`
	Commit        bool   `json:"commit"`

	// Of set config.
	Key   string  `json:"key"`
	Value *string `json:"value"`

	TopicID string `json:"topicId"` // of create topic, where it is not the story's first
	Count   int    `json:"count"`   // of add partitions

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

	Isolation string `json:"isolation"` // read_uncommitted if it is missing
}

// answer is that of any request; a probe fills what it asks for.
type answer struct {
	Error        string          `json:"error"`
	Message      json.RawMessage `json:"message"` // Kafka's words
	LowWatermark int64           `json:"lowWatermark"`

	Offset      int64 `json:"offset"`
	LeaderEpoch int32 `json:"leaderEpoch"`
	Timestamp   int64 `json:"timestamp"`

	HighWatermark int64           `json:"hw"`
	LastStable    int64           `json:"lso"`
	LogStart      int64           `json:"logStart"`
	Diverging     *epochEnd       `json:"diverging"`
	Batches       [][3]int64      `json:"batches"` // first and last offset, epoch
	Ms            json.RawMessage `json:"ms"`
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
	Reassignment *moving                      `json:"reassignment"`
	Nodes        map[replica.NodeID]nodeState `json:"nodes"`
}

// moving is a reassignment under way.
type moving struct {
	Adding   []replica.NodeID `json:"adding"`
	Removing []replica.NodeID `json:"removing"`
}

// nodeState is what a node has. What only the moment of a checkpoint or a sync decides is not compared.
type nodeState struct {
	Node          string     `json:"node"` // up, paused, down
	LogStart      int64      `json:"logStart"`
	LogEnd        int64      `json:"logEnd"`
	Segments      [][2]int64 `json:"segments"` // base offset, bytes
	Epochs        [][2]int64 `json:"epochs"`   // the lines of the file
	HighWatermark *int64     `json:"highWatermark"`

	CheckpointedHighWatermark *int64 `json:"checkpointedHighWatermark,omitempty"`
	RecoveryPoint             *int64 `json:"recoveryPoint,omitempty"`
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
	Record         string `json:"record"`
	LeaderEpoch    int32  `json:"leaderEpoch"`
	PartitionEpoch int32  `json:"partitionEpoch"`

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

// lines are partitions, each later than the one before, in a line of text each. Of replicas that come into the set one after the
// other it says only how many there are already: who is first depends on the moment.
func lines(history []controller.Partition) (list []string) {
	for i, p := range history {
		if i > 0 && i+1 < len(history) && grows(history[i-1], p) && grows(p, history[i+1]) {
			n := len(p.ISR)
			p.ISR = nil
			list = append(list, fmt.Sprintf("%s, but %d", line(p), n))
			continue
		}
		list = append(list, line(p))
	}
	return list
}

// grows says whether nothing but the in-sync set has changed, and that has grown.
func grows(a, b controller.Partition) bool {
	return a.LeaderEpoch == b.LeaderEpoch && len(a.Adding) == len(b.Adding) && len(a.ISR) < len(b.ISR)
}

// history is the partition after each record of the controller.
func (s *story) history() (list []controller.Partition) {
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
		list = append(list, p)
	}
	return list
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
	return filepath.Join(append([]string{s.home, s.Name}, parts...)...)
}

func (s *story) tp() log.TopicPartition {
	return log.TopicPartition{Topic: s.Topic, Partition: s.Partition}
}

func (s *story) topicID(t *testing.T) (id [16]byte) {
	raw, err := base64.RawURLEncoding.DecodeString(s.TopicID)
	require.NoError(t, err)
	require.Equal(t, len(id), copy(id[:], raw))
	return id
}

func (s *story) lagTimeMax() time.Duration { return s.setting("replica.lag.time.max.ms", lagTimeMax) }

func (s *story) sessionTimeout() time.Duration {
	return s.setting("broker.session.timeout.ms", sessionTimeout)
}

func (s *story) setting(key string, usual time.Duration) time.Duration {
	if ms, err := strconv.Atoi(s.Settings[key]); err == nil {
		return time.Duration(ms) * time.Millisecond
	}
	return usual
}

func (s *story) config(t *testing.T) log.Config {
	c, err := log.ParseConfig(s.TopicConfig)
	require.NoError(t, err)
	c.Visibility, c.Durability = log.External, log.Buffered
	return c
}

func readStory(t *testing.T, name string) *story {
	var home string
	var raw []byte
	var err error
	for _, home = range homes() {
		if raw, err = os.ReadFile(filepath.Join(home, name, "story.json")); err == nil {
			break
		}
	}
	require.NoError(t, err)
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields() // what nobody looks at would count as equal
	s := &story{home: home}
	require.NoError(t, d.Decode(s))
	require.Equal(t, name, s.Name)
	return s
}

// homes are the folders of the stories: that of PARTLOG_STORIES, in place of those of testdata.
func homes() []string {
	if other := os.Getenv("PARTLOG_STORIES"); other != "" {
		return []string{other}
	}
	return []string{"testdata", "testdata/more"}
}

// names are the stories there are.
func names(t *testing.T) (list []string) {
	for _, home := range homes() {
		files, err := filepath.Glob(filepath.Join(home, "*", "story.json"))
		require.NoError(t, err)
		for _, f := range files {
			list = append(list, filepath.Base(filepath.Dir(f)))
		}
	}
	require.NotEmpty(t, list)
	return list
}

// consumedRecord is a line of records.jsonl.
type consumedRecord struct {
	Offset      int64   `json:"offset"`
	Timestamp   int64   `json:"timestamp"`
	Type        string  `json:"timestampType"`
	Headers     []any   `json:"headers"`
	Key         *string `json:"key"`
	Value       *string `json:"value"`
	LeaderEpoch int32   `json:"leaderEpoch"`
}

func (s *story) records(t *testing.T) (list []consumedRecord) {
	f, err := os.Open(s.dir("records.jsonl"))
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	d := json.NewDecoder(f)
	d.DisallowUnknownFields()
	for d.More() {
		var r consumedRecord
		require.NoError(t, d.Decode(&r))
		list = append(list, r)
	}
	return list
}
