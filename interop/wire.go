package interop

import (
	"encoding/json"
	"fmt"
)

// Record is one record as JSON, in the shape of records.jsonl of the golden folders. A nil Key or Value is null.
type Record struct {
	Offset        int64    `json:"offset"`
	Timestamp     int64    `json:"timestamp"`
	TimestampType string   `json:"timestampType,omitempty"`
	Key           []byte   `json:"key"`
	Value         []byte   `json:"value"`
	KeyDigest     *Digest  `json:"keyDigest,omitempty"`
	ValueDigest   *Digest  `json:"valueDigest,omitempty"`
	Headers       []Header `json:"headers"`
}

// Digest stands for a long key or value.
type Digest struct {
	Length int    `json:"length"`
	SHA256 string `json:"sha256"`
}

// Header is ["name", "base64" or null] on the wire; a nil Value is null.
type Header struct {
	Key   string
	Value []byte
}

func (h Header) MarshalJSON() ([]byte, error) { return json.Marshal([]any{h.Key, h.Value}) }

func (h *Header) UnmarshalJSON(b []byte) error {
	var pair []json.RawMessage
	if err := json.Unmarshal(b, &pair); err != nil {
		return err
	}
	if len(pair) != 2 {
		return fmt.Errorf("interop: header of %d parts", len(pair))
	}
	if err := json.Unmarshal(pair[0], &h.Key); err != nil {
		return err
	}
	return json.Unmarshal(pair[1], &h.Value)
}

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
