package record

// Codec is a compression codec, as in attribute bits 0-2 of a batch.
type Codec uint8

// The codecs of magic 2; magic 0 and 1 know all but Zstd.
const (
	None Codec = iota
	Gzip
	Snappy
	LZ4
	Zstd
)

// TimestampType says what a batch's timestamps mean, as in attribute bit 3.
type TimestampType uint8

const (
	// CreateTime: each record carries the time its producer gave it.
	CreateTime TimestampType = iota
	// LogAppendTime: every record of the batch has the batch's MaxTimestamp, set by the leader.
	LogAppendTime
)

// String is Kafka's name of the type, as in message.timestamp.type.
func (t TimestampType) String() string {
	if t == LogAppendTime {
		return "LogAppendTime"
	}
	return "CreateTime"
}

// Attribute bits of a batch. Bits 7-15 are unused.
const (
	attrCodec         = 0x07
	attrLogAppendTime = 0x08
	attrTransactional = 0x10
	attrControl       = 0x20
	attrDeleteHorizon = 0x40
	attrKnown         = 0x7f
)
