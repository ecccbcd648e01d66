package compaction

import "encoding/binary"

// arena keeps the bytes of exact keys, one behind the other in chunks, each behind its length. Where a key is takes 64
// bits: the chunk above, the byte below.
type arena struct {
	chunks [][]byte
	most   int64 // bytes that keys and slots may take together
	used   int64 // taken, chunks by their capacity
}

const chunkBytes = 1 << 20

// take counts n bytes; false if they are too many.
func (a *arena) take(n int64) bool {
	if a.used+n > a.most {
		return false
	}
	a.used += n
	return true
}

// keep copies the key; false if there is no memory left for it.
func (a *arena) keep(key []byte) (at uint64, ok bool) {
	need := len(key) + binary.MaxVarintLen64
	if n := len(a.chunks); n == 0 || cap(a.chunks[n-1])-len(a.chunks[n-1]) < need {
		size := max(need, int(min(chunkBytes, a.most/16)))
		if !a.take(int64(size)) {
			return 0, false
		}
		a.chunks = append(a.chunks, make([]byte, 0, size))
	}
	i := len(a.chunks) - 1
	c := a.chunks[i]
	at = uint64(i)<<32 | uint64(len(c))
	c = binary.AppendUvarint(c, uint64(len(key)))
	a.chunks[i] = append(c, key...)
	return at, true
}

// is says whether the key at a place is this one.
func (a *arena) is(at uint64, key []byte) bool {
	c := a.chunks[at>>32][uint32(at):]
	n, size := binary.Uvarint(c)
	return n == uint64(len(key)) && string(c[size:size+len(key)]) == string(key)
}

func (a *arena) reset() {
	for _, c := range a.chunks {
		a.used -= int64(cap(c))
	}
	a.chunks = nil
}
