package replica

import "github.com/partlog/partlog/log"

// Kind says what an Action asks for, and which of its fields count.
type Kind uint8

const (
	// DoAppend: Tag, Raw, Extra, Role, LeaderEpoch go to log.Log.AppendBatches, or for an EndTxn to log.Log.EndTxn; the LeaderEpoch
	// option of both fences. Answer: Appended, which may come before the bytes are on the device.
	DoAppend Kind = iota + 1
	// DoRead: Tag, Offset, MaxBytes, Isolation; To is the follower it is for, negative for others. Answer: Read. Any number may
	// be under way, also beside other work of the log.
	DoRead
	// DoTruncate: Tag, Offset go to log.Log.Truncate. Answer: Truncated.
	DoTruncate
	// DoReset: Tag, Offset go to log.Log.ResetTo. Answer: Truncated.
	DoReset
	// DoSkip: Tag; LeaderEpoch goes to log.Log.AssignEpoch unless it is negative, then Offset to log.Log.FollowEnd. Answer: Truncated.
	DoSkip
	// DoEpoch: Tag, LeaderEpoch go to log.Log.AssignEpoch. Answer: Assigned.
	DoEpoch
	// DoSync: Tag. Everything appended so far must reach the device. Answer: Synced. At most one is under way, beside appends.
	DoSync
	// SetHighWatermark: Offset goes to log.Log.SetHighWatermark, before any later action is carried out.
	SetHighWatermark
	// PersistHighWatermark: Offset must be in the checkpoint file (replication-offset-checkpoint), or a smaller one, before a
	// DoTruncate or DoReset behind it begins; else soon. A shell gathers those of many partitions in one write.
	PersistHighWatermark
	// SetLogStart: Offset goes to log.Log.DeleteRecords: the leader's log starts there. LogChanged should follow.
	SetLogStart
	// SetRemoval: Offset is where the slowest assigned replica is; tombstones and transaction markers at or above it must stay
	// (log.Log.PinRemoval). Before the first one nothing may go.
	SetRemoval
	// SendFetch: Fetch is for node To. Answer: FetchResponse.
	SendFetch
	// Reply: Result answers the request Tag, which alone says whom it is for (Event); ReadTag is the DoRead that has its bytes, 0 if none.
	Reply
	// ProposeISR: Proposal with Tag is for the controller. Answer: ISRAnswer.
	ProposeISR
	// Fail: Err made the replica useless; it answers KafkaStorageError until it is made anew: when the controller says something
	// newer, or when its owner has opened the log again. It must not lead a leader epoch once more in which it had records that are
	// gone.
	Fail
	// Delete: nothing is under way any more, the log can be removed.
	Delete
)

var kindNames = [...]string{"none", "append", "read", "truncate", "reset", "skip", "epoch", "sync", "high watermark", "persist high watermark",
	"log start", "removal", "fetch", "reply", "propose", "fail", "delete"}

// String is a short word.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown"
}

// Action is something to be done, in the order given. It is one flat value, so that a slice of them is filled without
// allocating; Kind says which fields count, the others are zero.
type Action struct {
	Kind        Kind
	Role        log.Role
	Isolation   log.Isolation
	LeaderEpoch int32
	To          NodeID
	Tag         uint64
	ReadTag     uint64
	Offset      int64
	MaxBytes    int64
	Raw         []byte
	Extra       any
	Err         error
	Fetch       FetchRequest
	Result      Result
	Proposal    Proposal
}

// Proposal is a change of the in-sync set that only the controller can make: with its leader, or without one whose log has
// failed, so that another of the set leads. The slices belong to the receiver.
type Proposal struct {
	ISR            []NodeID
	BrokerEpochs   []int64 // beside ISR; -1 for one that never fetched
	LeaderEpoch    int32
	PartitionEpoch int32 // the change is of this version
	Recovering     bool  // always false: the leader has recovered
}

// Result answers a request.
type Result struct {
	Err   ErrorCode
	Cause error // the log's error behind Err, for the host; nil if there is none

	// Produce.
	Base, Last int64 // -1 if nothing is known to be in the log
	AppendTime int64 // Unix ms if the log stamps it; -1
	Duplicate  bool

	// Fetch. The marks are those from before the read; -1 unknown.
	Raw                                         []byte
	Bytes                                       int64
	Aborted                                     []log.AbortedTxn // for ReadCommitted
	HighWatermark, LastStable, LogStart, LogEnd int64
	Removal                                     int64 // the leader's ceiling, for followers: where the slowest replica is; -1 unknown
	// Diverged: the asker's history parts from this log; EpochEnd says where. No records come with it.
	Diverged bool
	// Gap: from the offset asked for up to EpochEnd.End the log has no record, and this part of it is of EpochEnd.Epoch (-1 unknown).
	// Only a leader that has looked says so, to followers; an answer that is merely empty says nothing of what there is.
	Gap bool

	// EpochEnd of a fetch that is Diverged or has a Gap, and of an EpochRequest (-1, -1: unknown).
	EpochEnd log.EpochEnd

	// Leader and LeaderEpoch are the present ones, with FencedLeaderEpoch and NotLeaderOrFollower; NoNode, -1 if unknown.
	Leader      NodeID
	LeaderEpoch int32
}
