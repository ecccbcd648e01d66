package interop

import "github.com/partlog/partlog/internal/golden"

// Record, Digest and Header are one record as JSON, in the shape of records.jsonl of the golden folders.
type (
	Record = golden.Record
	Digest = golden.Digest
	Header = golden.Header
)

// Batch is one batch as Kafka parses it.
type Batch struct {
	Magic           int8     `json:"magic"`
	BaseOffset      int64    `json:"baseOffset"`
	LastOffset      int64    `json:"lastOffset"`
	Size            int      `json:"size"`
	Codec           string   `json:"codec"`
	TimestampType   string   `json:"timestampType"`
	MaxTimestamp    int64    `json:"maxTimestamp"`
	LeaderEpoch     int32    `json:"leaderEpoch"`
	ProducerID      int64    `json:"producerId"`
	ProducerEpoch   int16    `json:"producerEpoch"`
	BaseSequence    int32    `json:"baseSequence"`
	Transactional   bool     `json:"transactional"`
	Control         bool     `json:"control"`
	Checksum        uint32   `json:"checksum"`
	DeleteHorizonMs *int64   `json:"deleteHorizonMs"`
	Records         []Record `json:"records"`
}

// BuildOptions say how Kafka shall encode a batch; pointers are optional, nil means absent.
type BuildOptions struct {
	Magic           *int8    `json:"magic,omitempty"` // nil: 2
	Codec           string   `json:"codec,omitempty"` // "": none
	Level           int      `json:"level,omitempty"` // 0: the codec's default
	TimestampType   string   `json:"timestampType,omitempty"`
	BaseOffset      int64    `json:"baseOffset"`
	LogAppendTime   *int64   `json:"logAppendTime,omitempty"`
	ProducerID      *int64   `json:"producerId,omitempty"`
	ProducerEpoch   *int16   `json:"producerEpoch,omitempty"`
	BaseSequence    *int32   `json:"baseSequence,omitempty"`
	Transactional   bool     `json:"transactional,omitempty"`
	LeaderEpoch     *int32   `json:"leaderEpoch,omitempty"`
	DeleteHorizonMs *int64   `json:"deleteHorizonMs,omitempty"`
	LastOffset      *int64   `json:"lastOffset,omitempty"`
	KeepOffsets     bool     `json:"keepOffsets,omitempty"` // take each record's own offset
	Records         []Record `json:"records"`
}
