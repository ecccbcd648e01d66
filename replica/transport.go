package replica

import (
	"context"

	"github.com/partlog/partlog/log"
)

// Transport moves messages between nodes. A message may be lost, come twice, or after a later one: replicas repeat what is not
// answered and ignore what is not awaited. NewNetwork is one inside a process, ListenTCP one over plain TCP. All methods are
// safe for concurrent use. NewNode refuses one that has a method Self() NodeID, as these two have, and is another node's.
type Transport interface {
	// Send hands a message over. It does not wait for the network: what cannot be sent is lost. The message and all it refers to
	// must not be changed afterwards, by either side.
	Send(to NodeID, tp log.TopicPartition, m Message)
	// Serve calls deliver for each message that arrives until ctx ends, or the transport is closed, and returns why.
	// deliver does not block and may be called concurrently, but not any more once Serve has returned. Serve runs once at a time.
	// What arrives before it should wait, as with TCP, or its sender be told that it is lost (Lost), as with Network: a fetch that is
	// lost in silence is sent again after Config.FetchLimit, 30 s, only.
	Serve(ctx context.Context, deliver func(Envelope)) error
}

// Message is what nodes say to each other: a FetchRequest and its FetchResponse between replicas; a consumer's FetchRequest (From
// is NoNode), an EpochRequest, an OffsetRequest, a StatusRequest, an AppendRequest, an EndTxn and their Answer between a client of one
// node and a replica of another; a ControlRequest and its ControlAnswer between a node and the one whose controller rules.
type Message interface {
	Event
	message()
}

func (FetchRequest) message()  {}
func (FetchResponse) message() {}
func (EpochRequest) message()  {}
func (AppendRequest) message() {}
func (OffsetRequest) message() {}
func (EndTxn) message()        {}
func (Answer) message()        {}

// Lost is what a Transport itself says, and never sends: messages between this node and Envelope.From may be lost, because a
// connection broke, say. What waits for an answer of that node asks again at once. One that does not know never says it.
type Lost struct {
	Why error // for the error of who does not ask again; nil: unknown
}

func (Lost) event()   {}
func (Lost) message() {}

// Answer is the Result of what a client of another node asked for.
type Answer struct {
	From   NodeID
	Tag    uint64 // of the request
	Result Result
}

func (Answer) event() {}

// ControlRequest is what a node asks the controller: to change the in-sync set of a partition it leads, or with Stopping to take
// it out of service before it stops (then the partition is empty). With Settings it is for a leader instead: it answers once it
// goes by this version of the partition (Proposal.PartitionEpoch) and by its topic's settings as they are now.
type ControlRequest struct {
	Tag         uint64
	BrokerEpoch int64 // of its registration
	TopicID     [16]byte
	Proposal    Proposal
	Stopping    bool
	Settings    bool
}

// ControlAnswer answers it.
type ControlAnswer struct {
	Tag    uint64 // of the request
	Answer ISRAnswer
}

func (ControlRequest) event()   {}
func (ControlRequest) message() {}
func (ControlAnswer) event()    {}
func (ControlAnswer) message()  {}

// Envelope is a message that arrived. From is who sent it as far as the transport knows; what the message says of that does
// not count, except that a FetchRequest of NoNode is a consumer's.
type Envelope struct {
	From      NodeID
	Partition log.TopicPartition
	Message   Message

	on passing
}
