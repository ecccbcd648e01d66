package record

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"strings"
	"time"
)

const (
	// NoTimestamp (-1) is Kafka's "no timestamp".
	NoTimestamp int64 = -1
	// NoEpoch (-1) is Kafka's "no leader epoch".
	NoEpoch int32 = -1
	// HeaderSize is the size in bytes of the header of a magic 2 batch; a batch emptied by compaction is only that.
	HeaderSize = 61
)

// Record is one record. Read from an iterator its slices are views, valid until the next step of the iteration; Clone
// keeps one longer.
type Record struct {
	// Offset is assigned by the log; Builder.Add ignores it.
	Offset int64
	// Timestamp is in Unix milliseconds; NoTimestamp = none. Given to Builder.Add, zero means "now": the very first
	// millisecond of 1970 can only be appended as a ready batch (or with Builder.AddAt).
	Timestamp int64
	Key       []byte   // nil = null; []byte{} = empty
	Value     []byte   // nil = tombstone; []byte{} = empty
	Headers   []Header // order is kept, keys may repeat

	_ [8]byte // 96 bytes are copied in six steps of which none overlaps another
}

// Header is one record header.
type Header struct {
	Key   string
	Value []byte // nil = null
}

// Header is the value of the last header of that name, which is the one that counts in Kafka where a name stands twice, and
// whether there is one: a null value is nil, too. It belongs to the record, see Record.
func (r Record) Header(key string) (value []byte, ok bool) {
	for i := len(r.Headers) - 1; i >= 0; i-- {
		if r.Headers[i].Key == key {
			return r.Headers[i].Value, true
		}
	}
	return nil, false
}

// Time is the record's timestamp, or the zero Time if it has none.
func (r Record) Time() time.Time {
	if r.Timestamp == NoTimestamp {
		return time.Time{}
	}
	return time.UnixMilli(r.Timestamp)
}

// Clone is a deep copy that outlives the iteration step. Null and empty stay distinct.
func (r Record) Clone() Record {
	r.Key = slices.Clone(r.Key)
	r.Value = slices.Clone(r.Value)
	if r.Headers != nil {
		headers := make([]Header, len(r.Headers))
		for i, h := range r.Headers {
			headers[i] = Header{Key: strings.Clone(h.Key), Value: slices.Clone(h.Value)}
		}
		r.Headers = headers
	}
	return r
}

// EncodedSize is the number of bytes the record takes in an uncompressed magic 2 batch as its first record, that is with
// both deltas zero. A later record can take up to 13 bytes more.
func (r Record) EncodedSize() int {
	body := r.bodySize(0, 0)
	return int(body) + varintSize(body)
}

// bodySize is the encoded size without the leading length.
func (r *Record) bodySize(timestampDelta, offsetDelta int64) int64 {
	size := 1 + int64(varintSize(timestampDelta)) + int64(varintSize(offsetDelta)) +
		bytesSize(r.Key) + bytesSize(r.Value) + int64(varintSize(int64(len(r.Headers))))
	for i := range r.Headers {
		n := int64(len(r.Headers[i].Key))
		size += int64(varintSize(n)) + n + bytesSize(r.Headers[i].Value)
	}
	return size
}

// appendTo encodes the record; body is its bodySize with the same deltas.
func (r *Record) appendTo(dst []byte, body, timestampDelta, offsetDelta int64) []byte {
	dst = binary.AppendVarint(dst, body)
	dst = append(dst, 0) // attributes, unused
	dst = binary.AppendVarint(dst, timestampDelta)
	dst = binary.AppendVarint(dst, offsetDelta)
	dst = appendBytes(dst, r.Key)
	dst = appendBytes(dst, r.Value)
	dst = binary.AppendVarint(dst, int64(len(r.Headers)))
	for i := range r.Headers {
		dst = binary.AppendVarint(dst, int64(len(r.Headers[i].Key)))
		dst = append(dst, r.Headers[i].Key...)
		dst = appendBytes(dst, r.Headers[i].Value)
	}
	return dst
}

func bytesSize(b []byte) int64 {
	if b == nil {
		return 1
	}
	n := int64(len(b))
	return int64(varintSize(n)) + n
}

func appendBytes(dst, b []byte) []byte {
	if b == nil {
		return append(dst, 1) // -1
	}
	dst = binary.AppendVarint(dst, int64(len(b)))
	return append(dst, b...)
}

func varintSize(v int64) int {
	zigzag := uint64(v)<<1 ^ uint64(v>>63)
	return (bits.Len64(zigzag|1) + 6) / 7
}
