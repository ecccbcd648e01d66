package record

import "slices"

// The quick ways through the records of a batch that any client would write: every number in one or two bytes, no record
// shorter than quickBody. Whatever they meet that is not of this kind, or not right, they leave to the full parser, whose
// word is the only one on what is wrong. So they may only accept what it accepts, with the same outcome; tests hold them to
// that. The same goes for writing: the quick way must leave the same bytes.

// quickBody is what a record's body takes at least on the quick way: then its first numbers need no look at the end.
//
//	attributes | timestamp delta 1..5 | offset delta 1..2 | key length 1..2 | ...
const quickBody = 10

// quick is parse for one such record.
func (r *reader) quick(rec *Record) bool {
	p := r.p
	if len(p) < quickBody+2 {
		return false
	}
	n, i := int(p[0]), 1
	if n >= 0x80 {
		n, i = n&0x7f|int(p[1])<<7, 2
		if n >= 1<<14 {
			return false
		}
	}
	end := i + n>>1
	if n&1 != 0 || n>>1 < quickBody || end > len(p) || r.left == 1 && end != len(p) {
		return false
	}
	b := p[i:end:end]
	t, i := uint64(b[1]), 2
	if t >= 0x80 {
		if t, i = quickLong(b); i == 0 {
			return false
		}
	}
	o := int32(b[i])
	if i++; o >= 0x80 {
		o = o&0x7f | int32(b[i])<<7
		if i++; o >= 1<<14 {
			return false
		}
	}
	k := int(b[i])
	if i++; k >= 0x80 {
		k = k&0x7f | int(b[i])<<7
		if i++; k >= 1<<14 {
			return false
		}
	}
	key := i + k>>1
	if k == 1 {
		key = i
	}
	if k&1 != 0 && k != 1 || key+2 > len(b) {
		return false
	}
	if rec.Key = nil; k != 1 {
		rec.Key = b[i:key:key]
	}
	v := int(b[key])
	if i = key + 1; v >= 0x80 {
		if i >= len(b) {
			return false
		}
		v = v&0x7f | int(b[i])<<7
		if i++; v >= 1<<14 {
			return false
		}
	}
	after := i + v>>1
	if v == 1 {
		after = i
	}
	if v&1 != 0 && v != 1 || after+1 != len(b) || b[after] != 0 {
		return false // the last byte says that there are no headers
	}
	if rec.Value = nil; v != 1 {
		rec.Value = b[i:after:after]
	}
	rec.Headers = nil
	rec.Offset = r.base + int64(o>>1^-(o&1))
	rec.Timestamp = r.baseTime + (int64(t>>1) ^ -int64(t&1))
	if r.appended {
		rec.Timestamp = r.appendTime
	}
	r.p = p[end:]
	return true
}

// skip passes over ordinary records below offset; never over the last one of the batch, so that the parser sees its end.
func (r *reader) skip(offset int64) {
	for ; r.left > 1; r.left-- {
		p := r.p
		if len(p) < quickBody+2 {
			return
		}
		n, i := int(p[0]), 1
		if n >= 0x80 {
			n, i = n&0x7f|int(p[1])<<7, 2
		}
		end := i + n>>1
		if n&1 != 0 || n < 2*quickBody || n >= 1<<14 || end > len(p) {
			return
		}
		b := p[i:end]
		if i = 2; b[1] >= 0x80 {
			if _, i = quickLong(b); i == 0 {
				return
			}
		}
		o := int64(b[i])
		if o >= 0x80 {
			o = o&0x7f | int64(b[i+1])<<7
		}
		if o >= 1<<14 || r.base+(o>>1^-(o&1)) >= offset {
			return
		}
		r.p = p[end:]
		r.index++
	}
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

// skim goes through the records of a plain batch without making any of them: what they say of time, and whether all have
// keys. ok is false where quick would not read them all.
func skim(p []byte, left int) (least, most int64, keys, ok bool) {
	least, most, keys = 1<<62, -1<<62, true
	at := 0
	for ; left > 0; left-- {
		if at+quickBody+2 > len(p) {
			return 0, 0, false, false
		}
		n := int(p[at])
		if at++; n >= 0x80 {
			n = n&0x7f | int(p[at])<<7
			at++
		}
		end := at + n>>1
		if n&1 != 0 || n < 2*quickBody || n >= 1<<14 || end > len(p) {
			return 0, 0, false, false
		}
		b := p[at:end]
		t, i := uint64(b[1]), 2
		if t >= 0x80 {
			if t, i = quickLong(b); i == 0 {
				return 0, 0, false, false
			}
		}
		if b[i] >= 0x80 { // the offset delta
			if i++; b[i] >= 0x80 {
				return 0, 0, false, false
			}
		}
		i++
		k := int(b[i])
		if i++; k >= 0x80 {
			k = k&0x7f | int(b[i])<<7
			i++
		}
		if k&1 != 0 {
			if k != 1 {
				return 0, 0, false, false
			}
			k, keys = 0, false
		}
		i += k >> 1
		if i+2 > len(b) { // a length of more than two bytes is beyond the end
			return 0, 0, false, false
		}
		v := int(b[i])
		if i++; v >= 0x80 {
			v = v&0x7f | int(b[i])<<7
			i++
		}
		if v&1 != 0 {
			if v != 1 {
				return 0, 0, false, false
			}
			v = 0
		}
		i += v >> 1
		if i+1 != len(b) || b[i] != 0 {
			return 0, 0, false, false
		}
		delta := int64(t>>1) ^ -int64(t&1)
		least, most = min(least, delta), max(most, delta)
		at = end
	}
	return least, most, keys, at == len(p)
}

// quickMost is the most that a number of one or two bytes may be, in zig-zag form.
const quickMost = 1<<14 - 1

// appendQuick is appendTo for a record without headers whose numbers take one or two bytes each.
func (r *Record) appendQuick(dst []byte, timestampDelta, offsetDelta int64) ([]byte, bool) {
	t, o := uint64(timestampDelta)<<1^uint64(timestampDelta>>63), uint64(offsetDelta)<<1
	k, v := uint64(len(r.Key))<<1, uint64(len(r.Value))<<1
	if r.Key == nil {
		k = 1
	}
	if r.Value == nil {
		v = 1
	}
	body := uint64(2 + quickSize(t) + quickSize(o) + quickSize(k) + quickSize(v) + len(r.Key) + len(r.Value))
	if t|o|k|v|body<<1 > quickMost || len(r.Headers) > 0 {
		return dst, false
	}
	total := quickSize(body<<1) + int(body)
	if cap(dst)-len(dst) < total {
		dst = slices.Grow(dst, total)
	}
	d := dst[len(dst) : len(dst)+total]
	i := putQuick(d, 0, body<<1)
	d[i] = 0 // attributes, unused
	i = putQuick(d, i+1, t)
	i = putQuick(d, i, o)
	i = putQuick(d, i, k)
	i += copy(d[i:], r.Key)
	i = putQuick(d, i, v)
	i += copy(d[i:], r.Value)
	d[i] = 0 // headers
	return dst[:len(dst)+total], true
}

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
