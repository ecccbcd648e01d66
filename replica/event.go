package replica

import (
	"time"

	"github.com/partlog/partlog/log"
)

// Event is everything that can happen to a partition. The types below implement it as values; what comes all the time (Produce,
// FetchRequest, Appended, Read) is taken as a pointer, too, so that nothing need be allocated. Step keeps none of them; of their
// slices it keeps those it says.
//
// What asks (Produce, EndTxn, FetchRequest, EpochRequest) gets one Reply with its Tag; a Produce with Acks 0 and a Withdraw get none.
// Tags are the shell's: no two requests that are not answered may have the same, whoever asks. So what came from another node, or a
// client, under a tag of its own is given another one, and the answer (FetchResponse, Answer) goes out under the first. The tags of
// Actions are the Partition's: answers of the log (Appended, Read, Truncated, Assigned, Synced) and an ISRAnswer have them, and but for
// Read and Synced come in the order in which they were asked for.
type Event interface{ event() }

// LogState is all a Partition knows of its log. Each answer of the log carries what it was right after.
type LogState struct {
	log.Offsets // HighWatermark counts only in New: afterwards the Partition itself moves it
	// Epochs is log.Log.Epochs. It is kept and must not change; the same slice may be given again while neither a leader epoch
	// nor the log start changed and nothing was truncated.
	Epochs []log.EpochEntry
}

// The controller's word.
type (
	// Assign says who leads and who replicates. Older news are ignored. The slices are copied.
	Assign struct {
		TopicID     [16]byte
		Leader      NodeID // NoNode: nobody may
		LeaderEpoch int32
		// PartitionEpoch grows with every change of the partition. 0 says that it has just been made: a node that has no log of
		// it has lost none. With a larger one a log that is not there counts as lost if the Dir was not stopped cleanly, and
		// its replica is put out of sync until it has caught up.
		PartitionEpoch int32
		Replicas       []NodeID
		ISR            []NodeID
		// Adding and Removing are the parts of Replicas that a reassignment brings and takes away; they are informative.
		Adding, Removing []NodeID
		// BrokerEpoch of the registration of this node that the news are for (KIP-380). News for an earlier life of the node are
		// ignored: it must not lead an epoch again of which it may have lost records. 0 is unchecked: then the shell must see to it
		// that it gives only news from after the controller has noticed this life.
		BrokerEpoch int64
		// Recovering: the leader was elected from outside the in-sync set.
		Recovering bool
		// MinISR is min.insync.replicas in this version of the partition, which counts over Config.MinISR; 0: it does not say.
		// Negative: so many, but for the sign, or Config.MinISR if that is larger.
		MinISR int
	}
	// Peer is what the controller knows of a node: whether it may become in-sync. A node never spoken of may.
	Peer struct {
		Node         NodeID
		BrokerEpoch  int64 // of its registration; -1 unknown
		Alive        bool  // not fenced
		ShuttingDown bool  // asked for a controlled shutdown
	}
	// ISRAnswer answers ProposeISR. Exactly one must come for each, with RequestTimedOut or NetworkException if the controller
	// does not answer.
	ISRAnswer struct {
		Tag            uint64 // of the proposal
		Err            ErrorCode
		ISR            []NodeID // as the controller has it now, with None
		LeaderEpoch    int32
		PartitionEpoch int32
	}
	// Stop ends the replica here: it persists its high watermark and answers all who wait. It is ignored if LeaderEpoch is older
	// than the known one; -1 always counts.
	Stop struct {
		Delete      bool // the log goes too
		LeaderEpoch int32
		// TopicID and PartitionEpoch say what ends: the topic, and the version of the partition in which it has no replica here any
		// more. A replica of another topic, or of a later version, is not meant and stays. Afterwards an Assign of the same topic
		// makes a replica again only if it is newer than this, and than what the replica was told: see Node.Stop. 0: the topic is
		// gone, or nobody knows the version. Both zero: unchecked. Then the shell must see to it that no older Assign comes later.
		TopicID        [16]byte
		PartitionEpoch int32
	}
	// Reconfigure changes the configuration, but for Self. By itself it moves no offset.
	Reconfigure struct{ Config Config }
)

// Requests. Each gets one Reply with its Tag, and only Produce with Acks 0 and Withdraw get none. Tags are the shell's: no two
// requests that are not answered may have the same. What came from elsewhere with a tag of its sender gets another one here, and the
// answer goes out under the sender's; a Reply does not say whom it is for.
type (
	// Produce appends one encoded batch. Raw is handed on and must not be touched until DoAppend was carried out.
	Produce struct {
		Tag     uint64
		Raw     []byte
		Acks    int8          // 0, 1, or -1: all in-sync replicas
		Timeout time.Duration // for Acks -1; 0: 30 s
		// LeaderEpoch under which the request is made; nil unchecked.
		LeaderEpoch *int32
		// Extra is handed on to DoAppend: what else the shell needs for it, a transaction marker in place of Raw, say.
		Extra any
	}
	// EndTxn has the leader write the marker that ends a producer's transaction (WriteTxnMarkers). It is a Produce with Acks -1
	// without Raw; DoAppend then means log.Log.EndTxn.
	EndTxn struct {
		From               NodeID // who asks over the Transport
		Tag                uint64
		ProducerID         int64
		ProducerEpoch      int16
		Commit             bool
		CoordinatorEpoch   int32
		TransactionVersion int8
		LeaderEpoch        int32         // under which the request is made; -1 unchecked
		BrokerEpoch        int64         // of who asks; -1 unknown
		Timeout            time.Duration // 0: 30 s
		Extra              any           // handed on to DoAppend; nil: the EndTxn itself
	}
	// Withdraw drops a consumer's FetchRequest that nobody waits for any more: it gets no Reply.
	Withdraw struct{ Tag uint64 }
	// FetchRequest asks for records, of a follower (From is its node) or a consumer (From is NoNode).
	FetchRequest struct {
		From             NodeID
		Tag              uint64
		Offset           int64
		LogStart         int64         // a follower's log start offset
		LeaderEpoch      int32         // under which the request is made; -1 unchecked
		LastFetchedEpoch int32         // epoch of the last record the asker has; -1 unknown: divergence is not looked for
		BrokerEpoch      int64         // a follower's; -1 unknown
		TopicID          [16]byte      // zero: unchecked. InconsistentTopicID if the name is another topic's here
		Unsynced         int64         // a follower's: how many of the offsets below Offset a loss of power may take from it
		UncleanStop      bool          // a follower that may have lost its synced tail and has not caught up since
		Isolation        log.Isolation // a consumer's: ReadUncommitted or ReadCommitted
		MaxBytes         int64
		MinBytes         int64         // wait until there is as much, at most MaxWait
		MaxWait          time.Duration // 0: do not wait
	}
	// EpochRequest asks where an epoch ended (OffsetForLeaderEpoch).
	EpochRequest struct {
		From        NodeID
		Tag         uint64
		LeaderEpoch int32 // under which the request is made; -1 unchecked
		Epoch       int32
	}
	// AppendRequest is a Produce of a client of another node; a Partition is given the Produce.
	AppendRequest struct {
		From        NodeID // who asks over the Transport
		Tag         uint64
		Raw         []byte
		Acks        int8
		Timeout     time.Duration
		LeaderEpoch int32 // under which the request is made; -1 unchecked
		BrokerEpoch int64 // of who asks; -1 unknown
	}
	// OffsetRequest asks for an offset (ListOffsets); a Partition is asked by View.
	OffsetRequest struct {
		From        NodeID
		Tag         uint64
		At          int64 // a time, Latest, Earliest, MaxTime
		Isolation   log.Isolation
		LeaderEpoch int32 // under which the request is made; -1 unchecked
	}
	// FetchResponse is the leader's Reply to a SendFetch. Without an answer the shell may say NetworkException.
	FetchResponse struct {
		From   NodeID
		Tag    uint64 // of the request
		Result Result // Raw is handed on to DoAppend
	}
)

// The log's answers, in the order of the actions asked for. Err is the log's own error.
type (
	// Appended answers DoAppend.
	Appended struct {
		Tag        uint64
		Base, Last int64
		AppendTime int64 // log.Appended's
		Duplicate  bool
		Err        error
		State      LogState
	}
	// Read answers DoRead.
	Read struct {
		Tag   uint64
		Raw   []byte // handed on to the Reply; may be nil if the shell keeps the bytes itself
		Bytes int64  // how many there are
		// Next is the offset behind the last whole batch. Without one: where it was looked for one in vain, as log.Fetched.NextOffset
		// says; the offset asked for if that is not known. What lies between a follower skips (Result.Gap).
		Next int64
		// Aborted are the transactions a ReadCommitted reader of these bytes must leave out; handed on to the Reply.
		Aborted []log.AbortedTxn
		Err     error
		State   LogState
	}
	// Truncated answers DoTruncate, DoReset and DoSkip.
	Truncated struct {
		Tag   uint64
		Err   error
		State LogState
	}
	// Assigned answers DoEpoch.
	Assigned struct {
		Tag   uint64
		Err   error
		State LogState
	}
	// Synced answers DoSync.
	Synced struct {
		Tag   uint64
		Err   error
		State LogState
	}
	// LogChanged tells of what happened to the log by itself: records deleted, a last stable offset that moved, a sync.
	LogChanged struct{ State LogState }
)

// Tick lets time pass: deadlines, the checks of the in-sync set, back-off. NextTick says when there is something to do.
type Tick struct{}

func (Assign) event()        {}
func (Peer) event()          {}
func (ISRAnswer) event()     {}
func (Stop) event()          {}
func (Reconfigure) event()   {}
func (Produce) event()       {}
func (EndTxn) event()        {}
func (Withdraw) event()      {}
func (FetchRequest) event()  {}
func (EpochRequest) event()  {}
func (AppendRequest) event() {}
func (OffsetRequest) event() {}
func (FetchResponse) event() {}
func (Appended) event()      {}
func (Read) event()          {}
func (Truncated) event()     {}
func (Assigned) event()      {}
func (Synced) event()        {}
func (LogChanged) event()    {}
func (Tick) event()          {}
