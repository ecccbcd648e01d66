package replica

import "strconv"

// ErrorCode is Kafka's number for what went wrong with a request, as it stands in protocol answers. It is an error; None
// is not one.
type ErrorCode int16

// The codes this package answers with or understands.
const (
	Unknown                      ErrorCode = -1
	None                         ErrorCode = 0
	OffsetOutOfRange             ErrorCode = 1
	CorruptMessage               ErrorCode = 2
	UnknownTopicOrPartition      ErrorCode = 3
	LeaderNotAvailable           ErrorCode = 5
	NotLeaderOrFollower          ErrorCode = 6
	RequestTimedOut              ErrorCode = 7
	MessageTooLarge              ErrorCode = 10
	NetworkException             ErrorCode = 13
	InvalidTopic                 ErrorCode = 17
	RecordListTooLarge           ErrorCode = 18
	NotEnoughReplicas            ErrorCode = 19
	NotEnoughReplicasAfterAppend ErrorCode = 20
	InvalidRequiredAcks          ErrorCode = 21
	InvalidTimestamp             ErrorCode = 32
	TopicAlreadyExists           ErrorCode = 36
	InvalidPartitions            ErrorCode = 37
	InvalidReplicationFactor     ErrorCode = 38
	InvalidReplicaAssignment     ErrorCode = 39
	InvalidConfig                ErrorCode = 40
	NotController                ErrorCode = 41
	InvalidRequest               ErrorCode = 42
	PolicyViolation              ErrorCode = 44
	OutOfOrderSequence           ErrorCode = 45
	InvalidProducerEpoch         ErrorCode = 47
	InvalidTxnState              ErrorCode = 48
	TransactionCoordinatorFenced ErrorCode = 52
	OperationNotAttempted        ErrorCode = 55
	KafkaStorageError            ErrorCode = 56
	ReassignmentInProgress       ErrorCode = 60
	FencedLeaderEpoch            ErrorCode = 74
	UnknownLeaderEpoch           ErrorCode = 75
	UnsupportedCompressionType   ErrorCode = 76
	StaleBrokerEpoch             ErrorCode = 77
	OffsetNotAvailable           ErrorCode = 78
	PreferredLeaderNotAvailable  ErrorCode = 80
	EligibleLeadersNotAvailable  ErrorCode = 83
	ElectionNotNeeded            ErrorCode = 84
	NoReassignmentInProgress     ErrorCode = 85
	InvalidRecord                ErrorCode = 87
	InvalidUpdateVersion         ErrorCode = 95
	UnknownTopicID               ErrorCode = 100
	InconsistentTopicID          ErrorCode = 103
	IneligibleReplica            ErrorCode = 107
	NewLeaderElected             ErrorCode = 108
)

var codeNames = map[ErrorCode]string{
	Unknown: "UNKNOWN_SERVER_ERROR", None: "NONE", OffsetOutOfRange: "OFFSET_OUT_OF_RANGE", CorruptMessage: "CORRUPT_MESSAGE",
	UnknownTopicOrPartition: "UNKNOWN_TOPIC_OR_PARTITION", LeaderNotAvailable: "LEADER_NOT_AVAILABLE",
	NotLeaderOrFollower: "NOT_LEADER_OR_FOLLOWER", RequestTimedOut: "REQUEST_TIMED_OUT", MessageTooLarge: "MESSAGE_TOO_LARGE",
	NetworkException: "NETWORK_EXCEPTION", InvalidTopic: "INVALID_TOPIC_EXCEPTION", RecordListTooLarge: "RECORD_LIST_TOO_LARGE",
	NotEnoughReplicas: "NOT_ENOUGH_REPLICAS", NotEnoughReplicasAfterAppend: "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
	InvalidRequiredAcks: "INVALID_REQUIRED_ACKS", InvalidTimestamp: "INVALID_TIMESTAMP", TopicAlreadyExists: "TOPIC_ALREADY_EXISTS",
	InvalidPartitions: "INVALID_PARTITIONS", InvalidReplicationFactor: "INVALID_REPLICATION_FACTOR",
	InvalidReplicaAssignment: "INVALID_REPLICA_ASSIGNMENT", InvalidConfig: "INVALID_CONFIG", NotController: "NOT_CONTROLLER",
	InvalidRequest: "INVALID_REQUEST", PolicyViolation: "POLICY_VIOLATION", OutOfOrderSequence: "OUT_OF_ORDER_SEQUENCE_NUMBER",
	InvalidProducerEpoch: "INVALID_PRODUCER_EPOCH", InvalidTxnState: "INVALID_TXN_STATE",
	TransactionCoordinatorFenced: "TRANSACTION_COORDINATOR_FENCED", OperationNotAttempted: "OPERATION_NOT_ATTEMPTED",
	KafkaStorageError: "KAFKA_STORAGE_ERROR", ReassignmentInProgress: "REASSIGNMENT_IN_PROGRESS",
	FencedLeaderEpoch: "FENCED_LEADER_EPOCH", UnknownLeaderEpoch: "UNKNOWN_LEADER_EPOCH",
	UnsupportedCompressionType: "UNSUPPORTED_COMPRESSION_TYPE", StaleBrokerEpoch: "STALE_BROKER_EPOCH",
	OffsetNotAvailable: "OFFSET_NOT_AVAILABLE", PreferredLeaderNotAvailable: "PREFERRED_LEADER_NOT_AVAILABLE",
	EligibleLeadersNotAvailable: "ELIGIBLE_LEADERS_NOT_AVAILABLE", ElectionNotNeeded: "ELECTION_NOT_NEEDED",
	NoReassignmentInProgress: "NO_REASSIGNMENT_IN_PROGRESS", InvalidRecord: "INVALID_RECORD",
	InvalidUpdateVersion: "INVALID_UPDATE_VERSION", UnknownTopicID: "UNKNOWN_TOPIC_ID", InconsistentTopicID: "INCONSISTENT_TOPIC_ID",
	IneligibleReplica: "INELIGIBLE_REPLICA", NewLeaderElected: "NEW_LEADER_ELECTED",
}

// String is Kafka's name of the code.
func (c ErrorCode) String() string {
	if name, ok := codeNames[c]; ok {
		return name
	}
	return "ERROR_" + strconv.Itoa(int(c))
}

// NotEnoughReplicasError says how many replicas are in sync. It is the Cause of a *RefusedError with NotEnoughReplicas, and stands
// in a *log.UnconfirmedError beside NotEnoughReplicasAfterAppend.
type NotEnoughReplicasError struct {
	InSync int // with the leader
	MinISR int // min.insync.replicas, no more than there are replicas
}

// Error is one sentence.
func (e *NotEnoughReplicasError) Error() string {
	return strconv.Itoa(e.InSync) + " in sync, min.insync.replicas is " + strconv.Itoa(e.MinISR)
}

// Error makes a code an error.
func (c ErrorCode) Error() string { return "replica: " + c.String() }
