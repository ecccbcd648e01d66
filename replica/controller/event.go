package controller

import (
	"fmt"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/replica"
)

// Event is what a Core can be told. The types below implement it as values; the Core keeps their slices.
type Event interface{ event() }

// The store's word.
type (
	// Elected begins a rule: this Core's claim was written to the store, and nobody else's writes can succeed any more.
	Elected struct {
		Epoch   int32               // the value of /controller_epoch
		Version int64               // and its version: the guard of all writes
		Keys    []replica.Versioned // all there is, read after the election
	}
	// Deposed ends it: the session is lost, or the host wants no more.
	Deposed struct{}
	// Seen is a change of a key under IDsPrefix: nodes come and go.
	Seen struct{ replica.Versioned }
	// Committed answers a Commit. Exactly one must come for each.
	Committed struct {
		Tag      uint64
		Versions []int64 // of the writes; with Err nil
		Err      error   // a *replica.ConflictError of the guard: nothing was written; any other: it is unknown
	}
	// Tick passes time. Once a second is often enough.
	Tick struct{}
)

// Requests. Each gets one Reply with its Tag, which the caller chooses.
type (
	// CreateTopic makes a topic.
	CreateTopic struct {
		Tag               uint64
		Topic             string
		Partitions        int                // 0 or -1: num.partitions
		ReplicationFactor int                // 0 or -1: default.replication.factor
		Assignment        [][]replica.NodeID // who holds partition 0, 1, …; then the two numbers above must be left out
		Config            map[string]string  // the topic's own settings, as SetConfig takes them
		ValidateOnly      bool               // say what would happen
		ID                [16]byte           // random, not zero
		Seed              uint64             // random: where the placement begins
	}
	// AddPartitions makes a topic have Partitions partitions.
	AddPartitions struct {
		Tag        uint64
		Topic      string
		Partitions int                // the new number, larger than the old
		Assignment [][]replica.NodeID // of the new ones only; nil: they are placed
		Seed       uint64
	}
	// DeleteTopic removes a topic with all partitions.
	DeleteTopic struct {
		Tag   uint64
		Topic string
	}
	// SetConfig replaces a topic's own settings. InvalidConfig, before anything is stored: a key that is no topic's, a value that
	// cannot be. Leaders heed it soon, see member.AwaitConfig. Another min.insync.replicas empties the ELRs of the topic and forgets
	// the last leaders of partitions that have none, as Kafka does: if nobody was in sync such a partition needs an unclean election.
	// Where these become allowed, those that are needed are held within Config.UncleanInterval (Elect does it at once).
	SetConfig struct {
		Tag    uint64
		Topic  string
		Config map[string]string
	}
	// AlterConfig changes some of a topic's own settings (incremental alter configs, KIP-339), all or none. No key may be named
	// twice. What SetConfig says of values holds of all the topic then has.
	AlterConfig struct {
		Tag    uint64
		Topic  string
		Set    map[string]string
		Delete []string // back to the default
		// Append and Subtract change lists: cleanup.policy, and the throttled replicas.
		Append, Subtract map[string]string
		ValidateOnly     bool
	}
	// DescribeConfig asks for the settings of topics, defaults included; none named: of all. The store is not asked, see Describe.
	DescribeConfig struct {
		Tag    uint64
		Topics []string
	}
	// Describe asks for topics; none named: for all. They are shown as this Core knows them: if it was deposed and is not told so,
	// as they were. That there is no such topic is the word of the controller that rules, as all refusals are.
	Describe struct {
		Tag    uint64
		Topics []string
	}
	// AlterPartition is a leader's proposal of another in-sync set. One without the leader is from one whose log has failed: another
	// of the set is elected (NewLeaderElected), and what the old one had counts as lost.
	AlterPartition struct {
		Tag         uint64
		Node        replica.NodeID // who proposes
		BrokerEpoch int64          // of its registration
		TopicID     [16]byte
		Partition   log.TopicPartition
		Proposal    replica.Proposal
	}
	// ControlledShutdown takes a node out of leaderships and in-sync sets before it stops.
	ControlledShutdown struct {
		Tag         uint64
		Node        replica.NodeID
		BrokerEpoch int64
	}
	// Elect holds elections by hand; no partition named: all that need one.
	Elect struct {
		Tag        uint64
		Election   Election // ToLeader or Uncleanly
		Partitions []log.TopicPartition
	}
	// Reassign moves a partition to other nodes, or with an empty To cancels the move under way.
	Reassign struct {
		Tag       uint64
		Partition log.TopicPartition
		To        []replica.NodeID
	}
	// ListReassignments asks for all moves under way. The store is not asked, see Describe.
	ListReassignments struct{ Tag uint64 }
)

func (Elected) event()            {}
func (Deposed) event()            {}
func (Seen) event()               {}
func (Committed) event()          {}
func (Tick) event()               {}
func (CreateTopic) event()        {}
func (AddPartitions) event()      {}
func (DeleteTopic) event()        {}
func (SetConfig) event()          {}
func (AlterConfig) event()        {}
func (DescribeConfig) event()     {}
func (Describe) event()           {}
func (AlterPartition) event()     {}
func (ControlledShutdown) event() {}
func (Elect) event()              {}
func (Reassign) event()           {}
func (ListReassignments) event()  {}

// Action is what a Core asks for.
type Action interface{ action() }

type (
	// Commit is a transaction for the store, to be answered by Committed. There is at most one under way. One without writes
	// asks whether its guard holds.
	Commit struct {
		Tag         uint64
		Transaction replica.Transaction
	}
	// Reply answers a request: what it says is in the store. A refusal is that of the controller that ruled when the request came,
	// or replica.NotController or replica.RequestTimedOut; so is an answer that changes nothing, but for what only looks.
	Reply struct {
		Tag       uint64
		Err       error            // nil, or *Error
		Partition Partition        // of AlterPartition
		Topics    []Topic          // of Describe, CreateTopic, AddPartitions
		Elections []ElectionResult // of Elect
		Moves     []Reassignment   // of ListReassignments
		Settings  []TopicSettings  // of DescribeConfig
	}
	// Changed says that a partition's state was written.
	Changed struct{ News }
	// Resign says that the rule is over: a transaction was refused, or its fate is unknown. The Core does nothing more until
	// Elected. Everything it had promised is answered.
	Resign struct{ Err error }
	// Damaged is a key that cannot be read. The partition or node is left alone as long as this rule lasts.
	Damaged struct {
		Key string
		Err error
	}
)

func (Commit) action()  {}
func (Reply) action()   {}
func (Changed) action() {}
func (Resign) action()  {}
func (Damaged) action() {}

// Topic is a topic as Describe shows it.
type Topic struct {
	Name       string
	ID         [16]byte
	Partitions []Partition
	Config     map[string]string
}

// ElectionResult is what became of one election asked for.
type ElectionResult struct {
	Partition log.TopicPartition
	Err       error // nil, or *Error
}

// Reassignment is a move under way.
type Reassignment struct {
	Partition                  log.TopicPartition
	Replicas, Adding, Removing []replica.NodeID
}

// Error is a refusal: Kafka's code, and a sentence. errors.Is(err, replica.NotController) and the like.
type Error struct {
	Code    replica.ErrorCode
	Message string
}

// Error is one sentence.
func (e *Error) Error() string { return e.Message + ": " + e.Code.String() }

// Unwrap is the code.
func (e *Error) Unwrap() error { return e.Code }

func refuse(code replica.ErrorCode, format string, args ...any) *Error {
	return &Error{code, fmt.Sprintf(format, args...)}
}
