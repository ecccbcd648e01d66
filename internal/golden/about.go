package golden

import (
	"encoding/json"
	"fmt"
	"testing"
)

// Facts is about.json: how a case came about and what Kafka makes of it.
type Facts struct {
	Case              string                  `json:"case"`
	Topic             string                  `json:"topic"`
	Partition         int32                   `json:"partition"`
	TopicConfig       map[string]string       `json:"topicConfig"`
	Broker            string                  `json:"broker"`
	How               string                  `json:"how"`
	ChangedAfterwards string                  `json:"changedAfterwards"` // damage done to the folder by hand; "" none
	StoppedClean      bool                    `json:"stoppedClean"`
	OpenedAtMs        int64                   `json:"openedAtMs"` // wall clock of AsOpened: producers expire by record time
	AsOpened          Opened                  `json:"asOpenedByKafka"`
	Consumer          map[string]ConsumerView `json:"consumer"` // by "records.jsonl" and "committed.jsonl"
	Files             map[string]FileFacts    `json:"files"`    // by path below root/, slash-separated
}

// Opened is what Kafka's own storage classes say after opening a copy of the folder.
type Opened struct {
	OpenedClean               bool                 `json:"openedClean"`
	LogStartOffset            int64                `json:"logStartOffset"`
	LogEndOffset              int64                `json:"logEndOffset"`
	HighWatermark             int64                `json:"highWatermark"`
	CheckpointedHighWatermark int64                `json:"checkpointedHighWatermark"`
	LastStableOffset          int64                `json:"lastStableOffset"`
	RecoveryPoint             int64                `json:"recoveryPoint"`
	TopicID                   string               `json:"topicId"`
	LeaderEpochs              []EpochFacts         `json:"leaderEpochs"`
	Segments                  []SegmentFacts       `json:"segments"`
	Producers                 []ProducerFacts      `json:"producers"`
	AbortedTransactions       []AbortedTransaction `json:"abortedTransactions"`
}

// EpochFacts is one entry of the leader epoch cache.
type EpochFacts struct {
	Epoch       int32 `json:"epoch"`
	StartOffset int64 `json:"startOffset"`
}

// SegmentFacts is one segment after opening; an active index that was pre-sized may count zero slots as entries.
type SegmentFacts struct {
	BaseOffset       int64 `json:"baseOffset"`
	Size             int64 `json:"size"`
	IndexEntries     int   `json:"indexEntries"`
	TimeIndexEntries int   `json:"timeIndexEntries"`
	LargestTimestamp int64 `json:"largestTimestamp"`
}

// ProducerFacts is one entry of the producer state.
type ProducerFacts struct {
	ProducerID       int64 `json:"producerId"`
	Epoch            int16 `json:"epoch"`
	LastSequence     int32 `json:"lastSequence"`
	LastOffset       int64 `json:"lastOffset"`
	LastTimestamp    int64 `json:"lastTimestamp"`
	CoordinatorEpoch int32 `json:"coordinatorEpoch"`
	TxnFirstOffset   int64 `json:"txnFirstOffset"`
	CachedBatches    int   `json:"cachedBatches"`
}

// AbortedTransaction is one entry of a transaction index.
type AbortedTransaction struct {
	ProducerID       int64 `json:"producerId"`
	FirstOffset      int64 `json:"firstOffset"`
	LastOffset       int64 `json:"lastOffset"`
	LastStableOffset int64 `json:"lastStableOffset"`
}

// ConsumerView says what a consumer of one isolation level met.
type ConsumerView struct {
	BeginningOffset int64  `json:"beginningOffset"`
	EndOffset       int64  `json:"endOffset"`
	Records         int    `json:"records"`
	SameAs          string `json:"sameAs"` // the other file, when this one is not kept because it is identical
}

// FileFacts is the size of a file as Kafka left it; StoredSize is set when the copy here lacks its trailing zeros.
type FileFacts struct {
	Size       int64  `json:"size"`
	StoredSize *int64 `json:"storedSize"`
}

// AboutOf reads a case's about.json.
func AboutOf(name string) (Facts, error) {
	var f Facts
	b, err := File(name, "about.json")
	if err != nil {
		return f, fmt.Errorf("golden: no case %q: %w", name, err)
	}
	if err := json.Unmarshal(b, &f); err != nil {
		return f, fmt.Errorf("golden: about.json of %s: %w", name, err)
	}
	return f, nil
}

// About is [AboutOf] for tests: an unknown case fails the test.
func About(tb testing.TB, name string) Facts {
	tb.Helper()
	f, err := AboutOf(name)
	if err != nil {
		tb.Fatal(err)
	}
	return f
}
