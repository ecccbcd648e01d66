package record

import (
	"encoding/binary"
)

// frame is shape for writing: the bytes around key and value of records that differ in nothing but what they hold, their
// times and offsets, all of which take as much room.
//
//	length 1..2 | attributes | time delta 1..2 | offset delta 1..2 | key length 1..2 | key | value length 1..2 | value | 0
//	`----------------------- head, at most 8 bytes ---------------------------------´       `---- valueHead --´
type frame struct {
	size       int    // of a record
	head       uint64 // the first byte in the lowest; without time and offset
	valueHead  uint16
	headSize   int
	key, value int // lengths
	noKey      bool
	noValue    bool
	longTime   bool // of two bytes
	longOffset bool
	longValue  bool // its length
	time       int  // bit of head where the time delta begins
	offset     int  // bit of head where the offset delta begins
}

// frameOf is that of a record without headers whose numbers take one or two bytes; false where there is none.
func frameOf(r *Record, timeDelta, offsetDelta int64) (f frame, ok bool) {
	t, o := uint64(timeDelta)<<1^uint64(timeDelta>>63), uint64(offsetDelta)<<1
	k, v := uint64(len(r.Key))<<1, uint64(len(r.Value))<<1
	if t|o|k|v > quickMost || len(r.Headers) > 0 {
		return f, false
	}
	f = frame{key: len(r.Key), value: len(r.Value), noKey: r.Key == nil, noValue: r.Value == nil, longTime: t >= 0x80, longOffset: o >= 0x80, longValue: v >= 0x80}
	if f.noKey {
		k = 1
	}
	if f.noValue {
		v = 1
	}
	body := 1 + quickSize(t) + quickSize(o) + quickSize(k) + f.key + quickSize(v) + f.value + 1
	length := uint64(body) << 1
	if length > quickMost {
		return f, false
	}
	f.time = 8 * (quickSize(length) + 1)
	f.offset = f.time + 8*quickSize(t)
	keyAt := f.offset/8 + quickSize(o) // where its length stands
	f.headSize = keyAt + quickSize(k)
	f.size = quickSize(length) + body
	f.head = quickNumber(length) | quickNumber(k)<<(8*keyAt)
	f.valueHead = uint16(quickNumber(v))
	return f, f.headSize <= 8
}

// quickNumber is a number of one or two bytes, the first in the lowest.
func quickNumber(z uint64) uint64 {
	if z >= 0x80 {
		return quickTwo(z)
	}
	return z
}

// batchTimes are the timestamps of a batch in the making.
type batchTimes struct {
	now    int64 // stands for a zero timestamp
	base   int64
	latest int64
}

// appendTo encodes records as long as they fit the frame, the first with this offset delta; dst stays within most bytes. It
// says how many they are.
func (f *frame) appendTo(dst []byte, recs []Record, times *batchTimes, offsetDelta int64, most int) ([]byte, int) {
	left := 1<<6 - offsetDelta // until an offset takes one more byte
	if f.longOffset {
		left = 1<<13 - offsetDelta
	}
	recs = recs[:min(int(left), len(recs), max(0, most-len(dst))/f.size)]
	offset := uint64(offsetDelta)
	last, head := int64(0), uint64(0) // of the record before; a head is never 0
	for i := range recs {
		r := &recs[i]
		if len(r.Key) != f.key || len(r.Value) != f.value || len(r.Headers) > 0 {
			return dst, i
		}
		if f.key == 0 && (r.Key == nil) != f.noKey || f.value == 0 && (r.Value == nil) != f.noValue {
			return dst, i
		}
		timestamp := r.Timestamp
		if timestamp == 0 {
			timestamp = times.now
		}
		if timestamp != last || head == 0 {
			delta := timestamp - times.base
			t := uint64(delta)<<1 ^ uint64(delta>>63)
			if timestamp < 0 || t > quickMost || t >= 0x80 != f.longTime {
				return dst, i
			}
			last, head = timestamp, f.head|quickNumber(t)<<(f.time&63)
			times.latest = max(times.latest, timestamp)
		}
		o := offset << 1
		if f.longOffset {
			o = quickTwo(o)
		}
		offset++
		at := len(dst) + f.headSize
		dst = binary.LittleEndian.AppendUint64(dst, head|o<<(f.offset&63))[:at]
		dst = append(dst, r.Key...)
		if f.longValue {
			dst = binary.LittleEndian.AppendUint16(dst, f.valueHead)
		} else {
			dst = append(dst, byte(f.valueHead))
		}
		dst = append(dst, r.Value...)
		dst = append(dst, 0)
	}
	return dst, len(recs)
}
