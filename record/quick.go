package record

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
)

// The quick ways through the records of a batch that any client would write: every number in one or two bytes, no record
// shorter than quickBody. Whatever they meet that is not of this kind, or not right, they leave to the full parser, whose
// word is the only one on what is wrong. So they may only accept what it accepts, with the same outcome; tests hold them to
// that. The same goes for writing: the quick way must leave the same bytes.

// quickBody is what a record's body takes at least on the quick way: then its first numbers need no look at the end.
//
//	attributes | timestamp delta 1..5 | offset delta 1..2 | key length 1..2 | ...
const quickBody = 10

// quick is parse for as many such records as come next and have room in out, whose headers must be nil.
func (r *reader) quick(out []Record) (n int) {
	if r.like.size > 0 && r.left > 1 {
		n = r.like.fill(r, r.p, out[:min(len(out), r.left-1)])
		r.p = r.p[n*r.like.size:]
		r.left -= n
		r.index += n
		if n == len(out) {
			return n
		}
	}
	p, left, before := r.p, r.left, n
	for n < len(out) && left > 0 && len(p) >= quickBody+2 {
		size, i := int(p[0]), 1
		if size >= 0x80 {
			size, i = size&0x7f|int(p[1])<<7, 2
			if size >= 1<<14 {
				break
			}
		}
		end := i + size>>1
		if size&1 != 0 || size>>1 < quickBody || end > len(p) || left == 1 && end != len(p) {
			break
		}
		b := p[i:end:end]
		t, i := uint64(b[1]), 2
		if t >= 0x80 {
			if t, i = quickLong(b); i == 0 {
				break
			}
		}
		o := int32(b[i])
		if i++; o >= 0x80 {
			o = o&0x7f | int32(b[i])<<7
			if i++; o >= 1<<14 {
				break
			}
		}
		k := int(b[i])
		if i++; k >= 0x80 {
			k = k&0x7f | int(b[i])<<7
			if i++; k >= 1<<14 {
				break
			}
		}
		key := i + k>>1
		if k == 1 {
			key = i
		}
		if k&1 != 0 && k != 1 || key+2 > len(b) {
			break
		}
		v, at := int(b[key]), key+1
		if v >= 0x80 {
			if at >= len(b) {
				break
			}
			v = v&0x7f | int(b[at])<<7
			if at++; v >= 1<<14 {
				break
			}
		}
		after := at + v>>1
		if v == 1 {
			after = at
		}
		if v&1 != 0 && v != 1 || after+1 != len(b) || b[after] != 0 {
			break // the last byte says that there are no headers
		}
		rec := &out[n]
		if rec.Key = nil; k != 1 {
			rec.Key = b[i:key:key]
		}
		if rec.Value = nil; v != 1 {
			rec.Value = b[at:after:after]
		}
		rec.Offset = r.base + int64(o>>1^-(o&1))
		rec.Timestamp = r.baseTime + (int64(t>>1) ^ -int64(t&1))
		if r.appended {
			rec.Timestamp = r.appendTime
		}
		n++
		left--
		if t < 0x80 && k != 0 && v > 1 && left > 1 && n < len(out) && len(p) >= 2*end {
			r.like = shapeOf(p[:end], binary.LittleEndian.Uint64(p), end-len(b), end-len(b)+key)
			more := r.like.fill(r, p[end:], out[n:min(len(out), n+left-1)])
			n += more
			left -= more
			end += more * end
		}
		p = p[end:]
	}
	r.p, r.left = p, left
	r.index += n - before
	return n
}

// fill parses the records at the start of p that have the shape, as many as have room in out. No key is a null one here.
func (s *shape) fill(r *reader, p []byte, out []Record) int {
	size, mask, same, key, value := s.size, s.mask, s.same, s.key, s.value
	valueMask, valueSame, time, second := s.valueMask, s.valueSame, s.time&63, s.second
	long, body, after := value+1, value+1, size-1
	if valueMask == 0xffff {
		body++
	}
	if size < 8 || key < 0 || key > value || value >= long || long > body || body >= after || after >= size {
		return 0 // never so: now that this is said, no byte of a record below is looked at twice to be within it
	}
	base, baseTime := r.base, r.baseTime
	n := 0
	for ; n < len(out) && len(p) >= size; n++ {
		b := p[:size:size]
		w := binary.LittleEndian.Uint64(b)
		if w&mask != same || (uint16(b[value])|uint16(b[long])<<8)&valueMask != valueSame || b[after] != 0 {
			break
		}
		w >>= time
		t, o := w&0x7f, w>>8&0x7f|w>>9&second
		rec := &out[n]
		rec.Key = b[key:value:value]
		rec.Value = b[body:after:after]
		rec.Offset = base + (int64(o>>1) ^ -int64(o&1))
		rec.Timestamp = baseTime + (int64(t>>1) ^ -int64(t&1))
		p = p[size:]
	}
	if r.appended {
		for i := range out[:n] {
			out[i].Timestamp = r.appendTime
		}
	}
	if key == value {
		for i := range out[:n] {
			out[i].Key = nil
		}
	}
	return n
}

// skip passes over ordinary records below offset; never over the last one of the batch, so that the parser sees its end.
func (r *reader) skip(offset int64) {
	p, below, left := r.p, offset-r.base, r.left
	if below < 0 { // wrapped: what is wanted is farther than any delta
		below = math.MaxInt64
	}
	at, size, body, length := 0, 0, 0, uint16(1) // an odd length is none
	for ; left > 1 && at+quickBody+2 <= len(p); left-- {
		w := binary.LittleEndian.Uint64(p[at:]) // the length to the offset delta, if that of time takes one byte
		again := uint16(w) == length
		if !again { // most often it is the one before, and the next record is found without waiting for it
			n, i := int(w&0x7f), 1
			if w&0x80 != 0 {
				n, i = n|int(w>>1&0x7f80), 2
			}
			if n&1 != 0 || n < 2*quickBody || n >= 1<<14 {
				break
			}
			length, size, body = uint16(w), i+n>>1, i
		}
		end, i := at+size, at+body
		w >>= body * 8 & 63
		if end > len(p) {
			break
		}
		short := w&0x8000 == 0
		if w >>= 8; short {
			w >>= 8
		} else {
			_, j := longDelta(w)
			if j == 0 {
				break
			}
			w = uint64(binary.LittleEndian.Uint16(p[i+1+j:])) // a body has that much behind its times
		}
		second := w & 0x80 // whether the offset delta has a second byte
		if second == 0 {
			w &= 0x7f
		} else {
			w = w&0x7f | w>>1&0x7f80
		}
		if w >= 1<<14 || int64(w>>1)^-int64(w&1) >= below {
			break
		}
		if at = end; again && short {
			like := behind{size: size, body: body, length: length, second: second}
			n := like.count(p[at:], uint64(min(below, 1<<13)), left-2)
			at += n * size
			left -= n
		}
	}
	r.p = p[at:]
	r.index += r.left - left
	r.left = left
}

// behind is what the next records have in common with one that was passed over: their length, and a time delta of one byte.
type behind struct {
	size, body int
	length     uint16
	second     uint64 // 0x80 if the offset delta takes two bytes, 0 if it takes one
}

// count is how many of them stand at the start of p with offset deltas below a bound, most of them at most.
func (s *behind) count(p []byte, below uint64, most int) (n int) {
	size, offset := s.size, 8*(s.body+2)&63
	mask, same := uint64(0x80)<<offset|0x80<<(offset-8)|0xffff, s.second<<offset|uint64(s.length)
	second := s.second >> 7 * (0x7f << 7)
	if second != 0 {
		mask |= 0x8000 << offset
	}
	below *= 2 // as they are written; one from below 0 is odd
	p = p[:len(p):len(p)]
	for n < most && len(p) >= size && len(p) >= 8 {
		w := binary.LittleEndian.Uint64(p)
		o := w >> offset
		if w&mask != same || o&0x7f|o>>1&second >= below {
			break
		}
		p = p[size:]
		n++
	}
	return n
}

// quickLong reads a timestamp delta of two to five bytes at b[1]; it takes up b[1:next], and next is 0 if it is longer.
func quickLong(b []byte) (t uint64, next int) {
	b = b[:quickBody]
	for i := 1; i <= 5; i++ {
		t |= uint64(b[i]&0x7f) << (7 * (i - 1))
		if b[i] < 0x80 {
			return t, i + 1
		}
	}
	return 0, 0
}

// longDelta reads a number of one to five bytes off a word, the first in the lowest; n is 0 if it is longer.
func longDelta(w uint64) (z uint64, n int) {
	last := ^w & 0x80_80_80_80_80
	if last == 0 {
		return 0, 0
	}
	w &= last ^ (last - 1)
	return w&0x7f | w>>1&(0x7f<<7) | w>>2&(0x7f<<14) | w>>3&(0x7f<<21) | w>>4&(0x7f<<28), bits.TrailingZeros64(last)/8 + 1
}

// skim goes through the records of a plain batch without making any of them: what they say of time, and whether all have
// keys. ok is false where quick would not read them all.
func skim(p []byte, left int) (least, most int64, keys, ok bool) {
	least, most, keys = 1<<62, -1<<62, true
	at, size, body, length := 0, 0, 0, uint16(1) // an odd length is none
	for ; left > 0; left-- {
		if at+quickBody+2 > len(p) {
			return 0, 0, false, false
		}
		w := binary.LittleEndian.Uint64(p[at:]) // the length to the key's, if the time delta takes one byte
		whole, again := w, uint16(w) == length
		if !again { // most often it is the one before, and the next record is found without waiting for it
			n, i := int(w&0x7f), 1
			if w&0x80 != 0 {
				n, i = n|int(w>>1&0x7f80), 2
			}
			if n&1 != 0 || n < 2*quickBody || n >= 1<<14 {
				return 0, 0, false, false
			}
			length, size, body = uint16(w), i+n>>1, i
		}
		end, i := at+size, at+body
		w >>= body * 8 & 63
		if end > len(p) {
			return 0, 0, false, false
		}
		t := w >> 8 & 0xff
		if t < 0x80 {
			w >>= 16
			i += 2
		} else {
			long, j := longDelta(w >> 8)
			if j == 0 {
				return 0, 0, false, false
			}
			t, i = long, i+1+j
			w = uint64(binary.LittleEndian.Uint32(p[i:])) // a body has that much behind its times
		}
		if w&0x80 != 0 { // the offset delta
			if w&0x8000 != 0 {
				return 0, 0, false, false
			}
			w >>= 8
			i++
		}
		k := int(w >> 8 & 0xff)
		if i += 2; k >= 0x80 {
			k = k&0x7f | int(w>>16&0xff)<<7
			i++
		}
		if k&1 != 0 {
			if k != 1 {
				return 0, 0, false, false
			}
			k, keys = 0, false
		}
		i += k >> 1
		if i+2 > end { // a length of more than two bytes is beyond the end
			return 0, 0, false, false
		}
		value := i
		v := int(p[i])
		if i++; v >= 0x80 {
			v = v&0x7f | int(p[i])<<7
			i++
		}
		if v&1 != 0 {
			if v != 1 {
				return 0, 0, false, false
			}
			v = 0
		}
		i += v >> 1
		if i+1 != end || p[i] != 0 {
			return 0, 0, false, false
		}
		delta := int64(t>>1) ^ -int64(t&1)
		least, most = min(least, delta), max(most, delta)
		if again && t < 0x80 {
			like := shapeOf(p[at:end], whole, body, value-at)
			n, first, last := like.run(p[end:], left-1)
			least, most = min(least, first), max(most, last)
			left -= n
			end += n * size
		}
		at = end
	}
	return least, most, keys, at == len(p)
}

// shape is what records have in common that differ in nothing but their bytes, their times and offsets, all of which take
// as much room: one that has the shape of a sound record is sound.
type shape struct {
	size                 int
	mask, same           uint64 // of the first eight bytes
	time                 int    // bit where the time delta begins
	key, value           int    // where the key begins, and the value's length
	second               uint64 // bits of an offset delta's second byte
	valueMask, valueSame uint16
}

// shapeOf is the shape of a sound record b with a time delta of one byte. first are its first eight bytes, body begins
// behind its length.
func shapeOf(b []byte, first uint64, body, value int) shape {
	s := shape{size: len(b), time: 8 * (body + 1), value: value, valueMask: 0xff}
	key := body + 3 // where its length begins
	if b[key-1] >= 0x80 {
		key++
	}
	behind := key + 1
	if b[key] >= 0x80 {
		behind++
	}
	if b[value] >= 0x80 {
		s.valueMask = 0xffff
	}
	s.mask = ^uint64(0) >> (64 - 8*behind) &^ (0x7f_7f_ff << (8 * body))
	s.key = behind
	if key > body+3 {
		s.mask &^= 0x7f << (8 * (body + 3))
		s.second = 0x7f << 7
	}
	s.same = first & s.mask
	s.valueSame = binary.LittleEndian.Uint16(b[value:]) & s.valueMask
	return s
}

// run passes over the records at the start of p that have the shape, most of them at most, and says what they say of time.
func (s *shape) run(p []byte, most int) (n int, first, last int64) {
	first, last = 1<<62, -1<<62
	for n < most && s.size <= len(p) {
		t := binary.LittleEndian.Uint64(p) >> (s.time & 63) & 0x7f
		k := s.alike(p, t, most-n)
		if k == 0 {
			break
		}
		delta := int64(t>>1) ^ -int64(t&1)
		first, last = min(first, delta), max(last, delta)
		n += k
		p = p[k*s.size:]
	}
	return n, first, last
}

// alike counts those that have the same time delta, too. It is apart so that the loop stays within the registers.
func (s *shape) alike(p []byte, time uint64, most int) (n int) {
	size, value, valueMask, valueSame := s.size, s.value, s.valueMask, s.valueSame
	mask := s.mask | 0x7f<<(s.time&63)
	same := s.same | time<<(s.time&63)
	long, after := value+1, size-1
	if size < 8 || value < 0 || value >= long || long > after || after >= size {
		return 0 // as in fill
	}
	p = p[:len(p):len(p)]
	for n < most && len(p) >= size {
		b := p[:size:size]
		v := uint16(b[value]) | uint16(b[long])<<8
		if binary.LittleEndian.Uint64(b)&mask != same || v&valueMask != valueSame || b[after] != 0 {
			break
		}
		p = p[size:]
		n++
	}
	return n
}

// quickMost is the most that a number of one or two bytes may be, in zig-zag form.
const quickMost = 1<<14 - 1

// quickRoom is what a record takes at most on the quick way beside key and value, and eight more that may be written.
const quickRoom = 12 + 8

// appendQuick is appendTo for a record without headers whose numbers take one or two bytes each.
func (r *Record) appendQuick(dst []byte, timestampDelta, offsetDelta int64) ([]byte, bool) {
	t, o := uint64(timestampDelta)<<1^uint64(timestampDelta>>63), uint64(offsetDelta)<<1
	k, v := uint64(len(r.Key))<<1, uint64(len(r.Value))<<1
	if t|o|k|v > quickMost || len(r.Headers) > 0 {
		return dst, false
	}
	if cap(dst)-len(dst) < len(r.Key)+len(r.Value)+quickRoom {
		dst = slices.Grow(dst, len(r.Key)+len(r.Value)+quickRoom)
	}
	if r.Key == nil {
		k = 1
	}
	if r.Value == nil {
		v = 1
	}
	// The numbers up to the key's length are put together in one word, the first in its lowest byte.
	w, head := k, 2 // with the attributes, unused
	if k >= 0x80 {
		w, head = quickTwo(k), 3
	}
	if o < 0x80 {
		w, head = w<<8|o, head+1
	} else {
		w, head = w<<16|quickTwo(o), head+2
	}
	if t < 0x80 {
		w, head = w<<8|t, head+1
	} else {
		w, head = w<<16|quickTwo(t), head+2
	}
	body := uint64(head + len(r.Key) + quickSize(v) + len(r.Value) + 1)
	if body<<1 > quickMost {
		return dst, false
	}
	d := dst[len(dst):cap(dst)]
	i := putQuick(d, 0, body<<1)
	binary.LittleEndian.PutUint64(d[i:], w<<8)
	i += head
	i += copy(d[i:], r.Key)
	i = putQuick(d, i, v)
	i += copy(d[i:], r.Value)
	d[i] = 0 // headers
	return dst[:len(dst)+i+1], true
}

// quickTwo is a number of two bytes, the first in the lowest.
func quickTwo(z uint64) uint64 { return z&0x7f | 0x80 | z>>7<<8 }

func quickSize(z uint64) int {
	if z >= 0x80 {
		return 2
	}
	return 1
}

// putQuick writes a number of one or two bytes at d[i] and returns where the next byte goes.
func putQuick(d []byte, i int, z uint64) int {
	if z < 0x80 {
		d[i] = byte(z)
		return i + 1
	}
	d[i], d[i+1] = byte(z)|0x80, byte(z>>7)
	return i + 2
}
