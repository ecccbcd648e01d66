package record

import (
	"fmt"
	"math"
)

// The five codecs Kafka writes, by the name `compression.type` uses.
//
//	attribute bits 0-2   0        1      2        3     4      5, 6, 7
//	codec                none     gzip   snappy   lz4   zstd   illegal
//
// What each payload looks like stands above its own code: codec_gzip.go, codec_snappy.go, codec_lz4.go, codec_zstd.go. All of
// them share two rules. Compressing appends to the caller's buffer and takes its working state from a pool. Decompressing never
// allocates more than the caller's limit and a small constant, whatever the payload claims, and wants the stream to end exactly
// where the payload does: a short stream, bytes behind it, or a wrong checksum is a *CorruptError.

// String returns Kafka's name of c ("none", "gzip", "snappy", "lz4", "zstd"); CodecByName reads it back.
func (c Codec) String() string {
	switch c {
	case None:
		return "none"
	case Gzip:
		return "gzip"
	case Snappy:
		return "snappy"
	case LZ4:
		return "lz4"
	case Zstd:
		return "zstd"
	}
	return fmt.Sprintf("codec(%d)", uint8(c))
}

// CodecByName returns the codec Kafka's `compression.type` calls name; "uncompressed" and "none" are the same. Any other name,
// "producer" included, is ErrCodec: it names no codec.
func CodecByName(name string) (Codec, error) {
	switch name {
	case "none", "uncompressed":
		return None, nil
	case "gzip":
		return Gzip, nil
	case "snappy":
		return Snappy, nil
	case "lz4":
		return LZ4, nil
	case "zstd":
		return Zstd, nil
	}
	return None, fmt.Errorf("%w: %q", ErrCodec, name)
}

// Levels returns the least, greatest and default compression level of c, as Kafka's `compression.gzip.level`,
// `compression.lz4.level` and `compression.zstd.level` accept them. All are 0 for codecs without levels. For gzip -1 also
// means the default; a level of 0 means the default everywhere in this library.
func (c Codec) Levels() (least, greatest, normal int) {
	switch c {
	case Gzip:
		return -1, 9, 6
	case LZ4:
		return 1, 17, 9
	case Zstd:
		return -131072, 22, 3
	}
	return 0, 0, 0
}

// compress appends src, compressed with c, to dst. Level 0 is the codec's default; a level outside Codec.Levels is an error.
// None appends src as it is. Safe for concurrent use.
func compress(dst, src []byte, c Codec, level int) ([]byte, error) {
	if c > Zstd {
		return dst, fmt.Errorf("%w: %d", ErrCodec, uint8(c))
	}
	least, greatest, normal := c.Levels()
	if level == 0 || c == None || c == Snappy {
		level = normal
	}
	if level < least || level > greatest {
		return dst, fmt.Errorf("record: %s level %d is outside %d to %d", c, level, least, greatest)
	}
	switch c {
	case Gzip:
		return gzipCompress(dst, src, level)
	case Snappy:
		return snappyCompress(dst, src), nil
	case LZ4:
		return lz4Compress(dst, src, level)
	case Zstd:
		return zstdCompress(dst, src, level)
	}
	return append(dst, src...), nil
}

// codecState is the part of a Decoder that owns decompressed bytes: one buffer, reused by every call.
type codecState struct {
	buf  []byte
	idle int // calls in a row that needed little of a large buf
}

const (
	defaultDecompressed = 64 << 20
	keepBuffer          = 1 << 20 // a larger buffer is given back once keepFor calls in a row had no use for it
	keepFor             = 64
)

// decompress returns src decompressed with c: a view that is valid until the next call, or src itself for None. More than limit
// bytes (64 MiB if limit is not positive) is ErrTooLarge. The magic of the enclosing batch matters for lz4 only.
func (s *codecState) decompress(src []byte, c Codec, magic int8, limit int) ([]byte, error) {
	if limit <= 0 {
		limit = defaultDecompressed
	}
	limit = min(limit, math.MaxInt-1<<20) // room for slack in sums on 32 bits
	switch c {
	case None:
		return src, nil
	case Gzip:
		return s.gunzip(src, limit)
	case Snappy:
		return s.unsnappy(src, limit)
	case LZ4:
		return s.unlz4(src, limit, magic > 0)
	case Zstd:
		return s.unzstd(src, limit)
	}
	return nil, fmt.Errorf("%w: %d", ErrCodec, uint8(c))
}

// decompress is codecState.decompress within the decoder's limits: src unpacked into a buffer of d.
func (d *Decoder) decompress(src []byte, c Codec, magic int8) ([]byte, error) {
	return d.codecs.decompress(src, c, magic, d.lim.MaxDecompressedBytes)
}

// buffer returns the empty reusable buffer with a capacity of at least n. The content of earlier calls is given up.
func (s *codecState) buffer(n int) []byte {
	if cap(s.buf) > keepBuffer && n < cap(s.buf)/8 {
		s.idle++
	} else {
		s.idle = 0
	}
	if cap(s.buf) < n || s.idle > keepFor {
		s.buf, s.idle = nil, 0 // collectable before its successor is made
		s.buf = make([]byte, 0, n)
	}
	return s.buf[:0]
}

// corruptStream describes a payload that is not what its codec says.
func corruptStream(c Codec, format string, args ...any) error {
	return &CorruptError{Field: c.String() + " payload", Reason: fmt.Sprintf(format, args...)}
}

// tooLarge describes a payload that unpacks to more than limit bytes.
func tooLarge(c Codec, limit int) error {
	return fmt.Errorf("%w: the %s payload unpacks to more than %d bytes", ErrTooLarge, c, limit)
}
