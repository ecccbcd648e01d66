package record

import (
	"encoding/binary"
	"hash/crc32"
)

// legacyEntry is one entry to be written: a message, or with inner a wrapper around others. The library itself never writes
// these formats.
type legacyEntry struct {
	offset     int64
	magic      int8
	appendTime bool
	timestamp  int64
	key, value []byte

	codec Codec
	inner []legacyEntry
}

func appendLegacy(dst []byte, entries ...legacyEntry) []byte {
	for _, e := range entries {
		dst = e.append(dst)
	}
	return dst
}

func (e legacyEntry) append(dst []byte) []byte {
	if e.inner != nil {
		packed, err := compress(nil, appendLegacy(nil, e.inner...), e.codec, 0)
		if err != nil {
			panic(err)
		}
		if e.codec == LZ4 && e.magic == 0 {
			packed[6] = byte(xxh32(packed[:6]) >> 8) // as its writers computed it
		}
		e.value = packed
	}
	start := len(dst)
	dst = binary.BigEndian.AppendUint64(dst, uint64(e.offset))
	dst = append(dst, 0, 0, 0, 0) // size
	dst = append(dst, 0, 0, 0, 0) // crc
	attributes := byte(e.codec)
	if e.appendTime {
		attributes |= attrLogAppendTime
	}
	dst = append(dst, byte(e.magic), attributes)
	if e.magic == 1 {
		dst = binary.BigEndian.AppendUint64(dst, uint64(e.timestamp))
	}
	dst = appendLegacyBytes(dst, e.key)
	dst = appendLegacyBytes(dst, e.value)
	stampLegacy(dst[start:])
	return dst
}

func appendLegacyBytes(dst, b []byte) []byte {
	if b == nil {
		return append(dst, 0xff, 0xff, 0xff, 0xff)
	}
	return append(binary.BigEndian.AppendUint32(dst, uint32(len(b))), b...)
}

// stampLegacy sets size and CRC of the one entry that b is.
func stampLegacy(b []byte) {
	binary.BigEndian.PutUint32(b[posLength:], uint32(len(b)-overhead))
	binary.BigEndian.PutUint32(b[posLegacyCRC:], crc32.ChecksumIEEE(b[posMagic:]))
}
