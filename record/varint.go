package record

// The integers of magic 2 records: zig-zag, then seven bits a byte, the lowest first. Bits beyond the 32nd (or 64th) are
// dropped, as Kafka does; a fifth (tenth) byte that says that more follow is an error.

// cutVarint reads an int32 off p.
func cutVarint(p []byte) (int32, []byte, bool) {
	if len(p) > 0 && p[0] < 0x80 { // the common case, small enough to inline
		return int32(p[0]>>1) ^ -int32(p[0]&1), p[1:], true
	}
	return cutLongVarint(p)
}

func cutLongVarint(p []byte) (int32, []byte, bool) {
	var u uint32
	for i := 0; i < 5 && i < len(p); i++ {
		u |= uint32(p[i]&0x7f) << (7 * i)
		if p[i] < 0x80 {
			return int32(u>>1) ^ -int32(u&1), p[i+1:], true
		}
	}
	return 0, p, false
}

// cutVarlong reads an int64 off p.
func cutVarlong(p []byte) (int64, []byte, bool) {
	var u uint64
	for i := 0; i < 10 && i < len(p); i++ {
		u |= uint64(p[i]&0x7f) << (7 * i)
		if p[i] < 0x80 {
			return int64(u>>1) ^ -int64(u&1), p[i+1:], true
		}
	}
	return 0, p, false
}

// cutBytes reads a length and as many bytes off p; nil for a negative length, of which writers use only -1.
func cutBytes(p []byte) ([]byte, []byte, bool) {
	n, p, ok := cutVarint(p)
	if !ok || int64(n) > int64(len(p)) {
		return nil, p, false
	}
	if n < 0 {
		return nil, p, true
	}
	return p[:n:n], p[n:], true
}
