package record

import (
	"encoding/binary"
	"hash/crc32"
	"math"
)

// Where the fields of a batch stand; see the package comment. Offset, length and magic are at the same place in all
// formats.
const (
	posBaseOffset      = 0
	posLength          = 8
	posLeaderEpoch     = 12
	posMagic           = 16
	posCRC             = 17
	posAttributes      = 21
	posLastOffsetDelta = 23
	posBaseTimestamp   = 27
	posMaxTimestamp    = 35
	posProducerID      = 43
	posProducerEpoch   = 51
	posBaseSequence    = 53
	posCount           = 57

	posLegacyCRC        = 12
	posLegacyAttributes = 17
	posLegacyTimestamp  = 18 // magic 1 only

	overhead      = 12 // bytes that the length field does not count
	minLength     = 14 // the shortest message there ever was: magic 0, key and value null
	minLengthV1   = 22
	peekSize      = 17 // bytes up to and including magic
	legacyMinSize = overhead + minLength
)

// Batch is a view of one complete encoded batch: of magic 2, or one entry of a legacy message set (magic 0 and 1). Its
// methods read the header in place and allocate nothing. A Batch shares its bytes with whatever it was cut from, and the
// Set methods change them there. The zero Batch is no batch: only Bytes and Size may be called on it.
//
// Batches come from Next, View or a Builder, which guarantee that the whole header is there; nothing more is certain about
// the fields before Verify.
type Batch struct{ b []byte }

// Bytes are the encoded batch, shared.
func (b Batch) Bytes() []byte { return b.b }

// Size is the number of encoded bytes, header included.
func (b Batch) Size() int { return len(b.b) }

// Magic is the format: 2, or 0 and 1 for legacy entries.
func (b Batch) Magic() int8 { return int8(b.b[posMagic]) }

func (b Batch) legacy() bool { return b.b[posMagic] < 2 }

// BaseOffset is the offset of the first record the batch was written with; compaction keeps it. Of a legacy entry it is the
// entry's offset, which for a compressed one is that of its last record (see Decoder.FirstOffset).
func (b Batch) BaseOffset() int64 { return int64(binary.BigEndian.Uint64(b.b[posBaseOffset:])) }

// LastOffset is the offset of the last record the batch was written with; compaction keeps it.
func (b Batch) LastOffset() int64 {
	if b.legacy() {
		return b.BaseOffset()
	}
	return b.BaseOffset() + int64(b.lastOffsetDelta())
}

// NextOffset is LastOffset + 1: where a log that ends with this batch goes on.
func (b Batch) NextOffset() int64 { return b.LastOffset() + 1 }

func (b Batch) lastOffsetDelta() int32 {
	return int32(binary.BigEndian.Uint32(b.b[posLastOffsetDelta:]))
}

// LeaderEpoch is the epoch of the leader that appended the batch; NoEpoch in batches fresh from a producer and in legacy
// entries.
func (b Batch) LeaderEpoch() int32 {
	if b.legacy() {
		return NoEpoch
	}
	return int32(binary.BigEndian.Uint32(b.b[posLeaderEpoch:]))
}

// Count is the number of records the batch now holds; compaction lowers it, to 0 for a kept header. Of a legacy entry it is
// 1 if it is uncompressed, otherwise -1: unknown without decompressing.
func (b Batch) Count() int {
	if b.legacy() {
		if b.Codec() != None {
			return -1
		}
		return 1
	}
	return int(int32(binary.BigEndian.Uint32(b.b[posCount:])))
}

// Attributes are the raw attribute bits (of a legacy entry one byte).
func (b Batch) Attributes() uint16 {
	if b.legacy() {
		return uint16(b.b[posLegacyAttributes])
	}
	return binary.BigEndian.Uint16(b.b[posAttributes:])
}

// Codec is the compression of the records; a value above Zstd is illegal (Verify says so).
func (b Batch) Codec() Codec { return Codec(b.Attributes() & attrCodec) }

// TimestampType says what the records' timestamps mean; CreateTime for magic 0, which has none.
func (b Batch) TimestampType() TimestampType {
	if b.Magic() != 0 && b.Attributes()&attrLogAppendTime != 0 {
		return LogAppendTime
	}
	return CreateTime
}

// MaxTimestamp is the largest timestamp of the records in Unix milliseconds, NoTimestamp if none has one; with
// LogAppendTime it is the time of the append. Of a legacy entry it is the entry's own timestamp (NoTimestamp for magic 0).
func (b Batch) MaxTimestamp() int64 {
	switch b.Magic() {
	case 0:
		return NoTimestamp
	case 1:
		return int64(binary.BigEndian.Uint64(b.b[posLegacyTimestamp:]))
	}
	return int64(binary.BigEndian.Uint64(b.b[posMaxTimestamp:]))
}

// BaseTimestamp is what the records' timestamp deltas count from: the first record's timestamp, or the delete horizon. Of
// a legacy entry it is MaxTimestamp.
func (b Batch) BaseTimestamp() int64 {
	if b.legacy() {
		return b.MaxTimestamp()
	}
	return int64(binary.BigEndian.Uint64(b.b[posBaseTimestamp:]))
}

// DeleteHorizon is the time in Unix milliseconds from which compaction may drop the batch's tombstones or marker, if an
// earlier compaction has set one.
func (b Batch) DeleteHorizon() (ms int64, ok bool) {
	if b.legacy() || b.Attributes()&attrDeleteHorizon == 0 {
		return 0, false
	}
	return b.BaseTimestamp(), true
}

// Producer is the idempotent or transactional producer and the sequence number of the batch's first record: -1, -1, -1 if
// there is none.
func (b Batch) Producer() (id int64, epoch int16, baseSeq int32) {
	if b.legacy() {
		return -1, -1, -1
	}
	return int64(binary.BigEndian.Uint64(b.b[posProducerID:])),
		int16(binary.BigEndian.Uint16(b.b[posProducerEpoch:])),
		int32(binary.BigEndian.Uint32(b.b[posBaseSequence:]))
}

// LastSequence is the sequence number of the last record the batch was written with, -1 if it has none. It may be smaller
// than the base sequence: sequences wrap to 0.
func (b Batch) LastSequence() int32 {
	_, _, base := b.Producer()
	if base < 0 {
		return -1
	}
	return IncrementSequence(base, b.lastOffsetDelta())
}

// Transactional says whether the batch belongs to a transaction (its end marker does too).
func (b Batch) Transactional() bool { return !b.legacy() && b.Attributes()&attrTransactional != 0 }

// Control says whether the batch holds a control record, which consumers do not see; see ParseControl.
func (b Batch) Control() bool { return !b.legacy() && b.Attributes()&attrControl != 0 }

// Checksum is the stored CRC: CRC-32C for magic 2, CRC-32 (IEEE) for legacy entries.
func (b Batch) Checksum() uint32 {
	if b.legacy() {
		return binary.BigEndian.Uint32(b.b[posLegacyCRC:])
	}
	return binary.BigEndian.Uint32(b.b[posCRC:])
}

func (b Batch) computeChecksum() uint32 {
	if b.legacy() {
		return crc32.ChecksumIEEE(b.b[posMagic:])
	}
	return crc32c(b.b[posAttributes:])
}

func (b Batch) verifyChecksum() error {
	if b.computeChecksum() != b.Checksum() {
		return &CorruptError{Field: "crc", Reason: "the checksum does not match the bytes"}
	}
	return nil
}

// Verify checks the CRC and the rules of the header: a known codec, no negative offset or count, not more records than
// offsets. What the records hold is not looked at; see Records and Split. The error is a *CorruptError.
//
// Base offset, length, leader epoch and magic are outside the CRC: damage there is seen only as far as the rules go.
func (b Batch) Verify() error {
	if err := b.verifyChecksum(); err != nil {
		return err
	}
	return b.verifyHeader()
}

func (b Batch) verifyHeader() error {
	base := b.BaseOffset()
	switch {
	case base < 0:
		return &CorruptError{Field: "base offset", Reason: "is negative"}
	case b.Codec() > Zstd || b.legacy() && b.Codec() == Zstd:
		return &CorruptError{Field: "attributes", Reason: "the codec is unknown"}
	case b.legacy():
		return nil
	}
	delta, count := b.lastOffsetDelta(), b.Count()
	switch {
	case delta < 0:
		return &CorruptError{Field: "last offset delta", Reason: "is negative"}
	case base > math.MaxInt64-1-int64(delta):
		return &CorruptError{Field: "base offset", Reason: "the last offset is beyond 2^63-1"}
	case count < 0:
		return &CorruptError{Field: "count", Reason: "is negative"}
	case int64(count) > int64(delta)+1:
		return &CorruptError{Field: "count", Reason: "is larger than the number of offsets"}
	}
	return nil
}

// SetBaseOffset moves the batch to another offset, in place. The field is outside the CRC of magic 2 and of legacy entries.
func (b Batch) SetBaseOffset(off int64) { binary.BigEndian.PutUint64(b.b[posBaseOffset:], uint64(off)) }

// SetLeaderEpoch stamps the leader epoch, in place. The field is outside the CRC. Legacy entries have none and stay as they
// are.
func (b Batch) SetLeaderEpoch(e int32) {
	if !b.legacy() {
		binary.BigEndian.PutUint32(b.b[posLeaderEpoch:], uint32(e))
	}
}

// SetProducerID gives the batch another producer, in place, and re-stamps the CRC. Legacy entries have none and stay as they are.
func (b Batch) SetProducerID(id int64) {
	if !b.legacy() {
		binary.BigEndian.PutUint64(b.b[posProducerID:], uint64(id))
		b.stampChecksum()
	}
}

// SetAppendTime makes the batch a LogAppendTime batch of that time, in place: it sets attribute bit 3 and the max
// timestamp and re-stamps the CRC, unless both are so already. Legacy entries stay as they are.
func (b Batch) SetAppendTime(ms int64) { b.setMaxTimestamp(LogAppendTime, ms) }

// setMaxTimestamp sets timestamp type and max timestamp. Attributes that are written again lose their unknown bits.
func (b Batch) setMaxTimestamp(t TimestampType, ms int64) {
	if b.legacy() || b.TimestampType() == t && b.MaxTimestamp() == ms {
		return
	}
	attributes := b.Attributes() & attrKnown &^ attrLogAppendTime
	if t == LogAppendTime {
		attributes |= attrLogAppendTime
	}
	binary.BigEndian.PutUint16(b.b[posAttributes:], attributes)
	binary.BigEndian.PutUint64(b.b[posMaxTimestamp:], uint64(ms))
	b.stampChecksum()
}

func (b Batch) stampChecksum() {
	binary.BigEndian.PutUint32(b.b[posCRC:], b.computeChecksum())
}
