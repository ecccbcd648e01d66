package record

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
)

// A legacy message set is a run of entries, each an offset, a size and a message. Brokers before 0.11 wrote them; Kafka 4 still
// reads them, and so does this library. All integers are big-endian; a length of -1 is null.
//
//	offset int64 | size int32 | crc int32 | magic 0 | attributes |                 | key length int32, key | value length int32, value
//	offset int64 | size int32 | crc int32 | magic 1 | attributes | timestamp int64 | key length int32, key | value length int32, value
//
// The CRC is CRC-32 (IEEE) of everything behind it. Attribute bits 0-2 are the codec, bit 3 (magic 1) is the timestamp type.
// An entry without codec is one record. An entry with a codec is a wrapper: its value is another message set, compressed.
//
//   - The wrapper's offset is that of its last inner message.
//   - Offsets inside a wrapper of magic 0 are absolute. Inside magic 1 they count from 0, and
//     absolute = wrapper - last inner + inner; a wrapper at 0 was never placed and its inner offsets are taken as they are.
//   - A magic 1 wrapper with LogAppendTime gives its timestamp to every inner message.
//   - Wrappers do not nest, are never empty or null, and know no zstd.

// legacyMessage is one parsed entry; key and value are views.
type legacyMessage struct {
	offset     int64
	crc        uint32
	magic      int8
	attributes byte
	timestamp  int64 // NoTimestamp for magic 0
	key, value []byte
}

func (m *legacyMessage) codec() Codec { return Codec(m.attributes & attrCodec) }

// cutLegacy parses the entry at the start of b and returns what follows. The CRC is not looked at. The second result is the
// reason why there is no entry, or "".
func cutLegacy(b []byte, m *legacyMessage) (rest []byte, reason string) {
	body, rest, reason := cutLegacyEntry(b)
	if reason != "" {
		return b, reason
	}
	m.offset = int64(binary.BigEndian.Uint64(b))
	m.crc = binary.BigEndian.Uint32(body)
	m.magic = int8(body[4])
	m.attributes = body[5]
	p := body[6:]
	m.timestamp = NoTimestamp
	switch m.magic {
	case 0:
	case 1:
		if len(p) < 8 {
			return b, "the message is too short for its timestamp"
		}
		m.timestamp = int64(binary.BigEndian.Uint64(p))
		p = p[8:]
	default:
		return b, fmt.Sprintf("the message has magic %d", m.magic)
	}
	var ok bool
	if m.key, p, ok = cutLegacyBytes(p); !ok {
		return b, "the key is longer than the message"
	}
	if m.value, p, ok = cutLegacyBytes(p); !ok {
		return b, "the value is longer than the message"
	}
	if len(p) > 0 {
		return b, "bytes follow the value"
	}
	return rest, ""
}

// cutLegacyEntry cuts one entry off b by its size alone; body starts at the CRC and has at least minLength bytes.
func cutLegacyEntry(b []byte) (body, rest []byte, reason string) {
	if len(b) < overhead {
		return nil, b, "an entry is cut short"
	}
	size := int32(binary.BigEndian.Uint32(b[posLength:]))
	if size < minLength {
		return nil, b, "the size is below the smallest message's"
	}
	if int64(size) > int64(len(b)-overhead) {
		return nil, b, "the message is cut short"
	}
	return b[overhead : overhead+int(size)], b[overhead+int(size):], ""
}

// cutLegacyBytes cuts a length and so many bytes off p; -1 is nil, any other negative length is not ok.
func cutLegacyBytes(p []byte) (b, rest []byte, ok bool) {
	if len(p) < 4 {
		return nil, p, false
	}
	n := int32(binary.BigEndian.Uint32(p))
	p = p[4:]
	if n == -1 {
		return nil, p, true
	}
	if n < 0 || int64(n) > int64(len(p)) {
		return nil, p, false
	}
	return p[:n:n], p[n:], true
}

// checkLegacy compares the CRC of a message that starts with it.
func checkLegacy(body []byte) error {
	if crc32.ChecksumIEEE(body[4:]) != binary.BigEndian.Uint32(body) {
		return &CorruptError{Field: "crc", Reason: "the checksum does not match the bytes"}
	}
	return nil
}

// legacyWrapper is a decompressed wrapper, ready to be walked.
type legacyWrapper struct {
	set   []byte // inner entries, each known to parse
	first int64  // absolute offset of the first inner message
	base  int64  // added to inner offsets
	stamp int64  // timestamp of every inner message, if stamped
	// stamped: the wrapper is LogAppendTime.
	stamped bool
}

// openLegacy decompresses the wrapper m and checks everything about its inner messages that makes offsets: they parse, their
// CRCs match, they are not compressed themselves, and no offset is negative or below the one before.
func (d *Decoder) openLegacy(m *legacyMessage) (legacyWrapper, error) {
	codec := m.codec()
	switch {
	case codec > Zstd:
		return legacyWrapper{}, &CorruptError{Field: "attributes", Reason: "the codec is unknown"}
	case codec == Zstd:
		return legacyWrapper{}, &CorruptError{Field: "attributes", Reason: "zstd is illegal before magic 2"}
	case m.value == nil:
		return legacyWrapper{}, &CorruptError{Field: "value", Reason: "a compressed message set is null"}
	}
	set, err := d.decompress(m.value, codec, m.magic)
	if err != nil {
		return legacyWrapper{}, err
	}
	w := legacyWrapper{set: set, first: -1, stamp: m.timestamp,
		stamped: m.magic > 0 && m.attributes&attrLogAppendTime != 0}
	first, last, err := scanLegacy(set)
	if err != nil {
		return legacyWrapper{}, err
	}
	if m.magic > 0 && m.offset != 0 {
		if m.offset < last {
			return legacyWrapper{}, &CorruptError{Field: "offset",
				Reason: fmt.Sprintf("the wrapper's, %d, is smaller than the last inner one, %d", m.offset, last)}
		}
		w.base = m.offset - last
	}
	if w.first, err = w.place(first); err != nil {
		return legacyWrapper{}, err
	}
	return w, nil
}

// place turns an inner offset into an absolute one.
func (w *legacyWrapper) place(inner int64) (int64, error) {
	if inner < 0 || inner > math.MaxInt64-1-w.base {
		return 0, &CorruptError{Field: "offset", Reason: fmt.Sprintf("inner offset %d counted from %d is no offset", inner, w.base)}
	}
	return w.base + inner, nil
}

// scanLegacy checks an inner message set and returns its first and last offset as they are written.
func scanLegacy(set []byte) (first, last int64, err error) {
	var m legacyMessage
	n := 0
	for p := set; len(p) > 0; n++ {
		rest, reason := cutLegacy(p, &m)
		switch {
		case reason != "":
		case m.codec() != None:
			reason = "a compressed message inside a compressed set"
		case m.offset < last:
			reason = fmt.Sprintf("%d is no offset behind %d", m.offset, last)
		}
		if reason != "" {
			return 0, 0, &CorruptError{Field: fmt.Sprintf("record %d", n), Reason: reason}
		}
		if err := checkLegacy(p[overhead : len(p)-len(rest)]); err != nil {
			return 0, 0, &CorruptError{Field: fmt.Sprintf("record %d", n), Reason: "its checksum does not match its bytes"}
		}
		if n == 0 {
			first = m.offset
		}
		last = m.offset
		p = rest
	}
	if n == 0 {
		return 0, 0, &CorruptError{Field: "value", Reason: "a compressed message set is empty"}
	}
	return first, last, nil
}

// legacyEach walks the records of a legacy batch: one, or those of a wrapper. An error comes once and last. yield gets views.
func (d *Decoder) legacyEach(b Batch, yield func(Record, error) bool) {
	var m legacyMessage
	if err := parseLegacy(b, &m); err != nil {
		yield(Record{}, err)
		return
	}
	if m.codec() == None {
		yield(Record{Offset: m.offset, Timestamp: m.timestamp, Key: m.key, Value: m.value}, nil)
		return
	}
	w, err := d.openLegacy(&m)
	if err != nil {
		yield(Record{}, err)
		return
	}
	for p := w.set; len(p) > 0; {
		entry := p
		p, _ = cutLegacy(p, &m)
		offset, err := w.place(m.offset)
		if err != nil {
			yield(Record{}, err)
			return
		}
		r := Record{Offset: offset, Timestamp: m.timestamp, Key: m.key, Value: m.value}
		if w.stamped {
			r.Timestamp = w.stamp
		}
		more := yield(r, nil)
		poison(entry[:len(entry)-len(p)])
		if !more {
			return
		}
	}
}

// parseLegacy parses the one entry that b is.
func parseLegacy(b Batch, m *legacyMessage) error {
	rest, reason := cutLegacy(b.b, m)
	if reason == "" && len(rest) > 0 {
		reason = "bytes follow the entry"
	}
	if reason != "" {
		return &CorruptError{Field: "message", Reason: reason}
	}
	return nil
}

// FirstOffset returns the offset of the first record b was written with. Only a compressed legacy batch must be decompressed
// for it: there the header holds the last offset alone. d may be nil. Errors are those of Batch.Records. Not safe for
// concurrent use, and a running iteration over d must not go on behind it.
func (d *Decoder) FirstOffset(b Batch) (int64, error) {
	if !b.legacy() || b.Codec() == None {
		return b.BaseOffset(), nil
	}
	if d == nil {
		d = takeDecoder(Limits{}.withDefaults())
		defer releaseDecoder(d)
	}
	var m legacyMessage
	if err := parseLegacy(b, &m); err != nil {
		return 0, err
	}
	w, err := d.openLegacy(&m)
	if err != nil {
		return 0, err
	}
	return w.first, nil
}

// Checksums returns the CRC that each record of a legacy batch carries, in their order; nil for format 2, whose records have none.
// d may be nil. Errors are those of Batch.Records. Not safe for concurrent use, and a running iteration over d must not go on
// behind it.
func (d *Decoder) Checksums(b Batch) ([]uint32, error) {
	if !b.legacy() {
		return nil, nil
	}
	var m legacyMessage
	if err := parseLegacy(b, &m); err != nil {
		return nil, err
	}
	if m.codec() == None {
		return []uint32{m.crc}, nil
	}
	if d == nil {
		d = takeDecoder(Limits{}.withDefaults())
		defer releaseDecoder(d)
	}
	w, err := d.openLegacy(&m)
	if err != nil {
		return nil, err
	}
	var all []uint32
	for p := w.set; len(p) > 0; {
		p, _ = cutLegacy(p, &m)
		all = append(all, m.crc)
	}
	return all, nil
}
