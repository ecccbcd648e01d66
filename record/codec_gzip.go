package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"sync"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
)

// A gzip payload is one RFC 1952 member, written with the header Java writes; concatenated members are read as one stream.
//
//	1f 8b | 08 | 00 | 00 00 00 00 | 00 | ff | deflate ... | crc32 LE | size LE
//	magic   cm   flg  mtime         xfl  os                 of the uncompressed bytes

var gzipHeader = [10]byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff}

// gzipDeflaters holds one pool a level, 1 to 9.
var gzipDeflaters [10]sync.Pool

// gzipDeflater is a deflate compressor that writes to the end of a slice.
type gzipDeflater struct {
	w   *flate.Writer
	dst []byte
}

func (g *gzipDeflater) Write(p []byte) (int, error) {
	g.dst = append(g.dst, p...)
	return len(p), nil
}

func gzipCompress(dst, src []byte, level int) ([]byte, error) {
	if level == -1 {
		_, _, level = Gzip.Levels()
	}
	pool := &gzipDeflaters[level]
	g, _ := pool.Get().(*gzipDeflater)
	if g == nil {
		g = new(gzipDeflater)
		w, err := flate.NewWriter(g, level)
		if err != nil {
			return dst, err
		}
		g.w = w
	}
	g.dst = append(dst, gzipHeader[:]...)
	g.w.Reset(g)
	_, err := g.w.Write(src)
	if err == nil {
		err = g.w.Close()
	}
	out := g.dst
	g.dst = nil
	pool.Put(g)
	if err != nil {
		return dst, err
	}
	out = binary.LittleEndian.AppendUint32(out, crc32.ChecksumIEEE(src))
	return binary.LittleEndian.AppendUint32(out, uint32(len(src))), nil
}

// gzipInflater is a pooled member reader over bytes in memory. bytes.Reader is an io.ByteReader, so nothing behind a member is
// read ahead and the end of each is known exactly.
type gzipInflater struct {
	in  bytes.Reader
	z   gzip.Reader
	one [1]byte
}

var gzipInflaters = sync.Pool{New: func() any { return new(gzipInflater) }}

// maxDeflateRatio is the most one byte of deflate can unpack to.
const maxDeflateRatio = 1032

func (s *codecState) gunzip(src []byte, limit int) ([]byte, error) {
	g := gzipInflaters.Get().(*gzipInflater)
	g.in.Reset(src)
	out, err := s.gunzipMembers(g, src, limit)
	g.in.Reset(nil)
	gzipInflaters.Put(g)
	if cap(out) > cap(s.buf) {
		s.buf = out[:0]
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (s *codecState) gunzipMembers(g *gzipInflater, src []byte, limit int) ([]byte, error) {
	out := s.buffer(gzipGuess(src, limit))
	for g.in.Len() > 0 || len(src) == 0 {
		if err := g.z.Reset(&g.in); err != nil {
			return out, corruptStream(Gzip, "byte %d: %v", len(src)-g.in.Len(), noEOF(err))
		}
		g.z.Multistream(false)
		var err error
		if out, err = g.member(out, limit); err != nil {
			if errors.Is(err, ErrTooLarge) {
				return out, err
			}
			return out, corruptStream(Gzip, "byte %d: %v", len(src)-g.in.Len(), noEOF(err))
		}
	}
	return out, nil
}

// member appends one member to out, growing it in steps of two but never beyond limit.
func (g *gzipInflater) member(out []byte, limit int) ([]byte, error) {
	for {
		if len(out) == cap(out) || len(out) >= limit {
			n, err := g.z.Read(g.one[:])
			if err == io.EOF && n == 0 {
				return out, nil
			}
			if n == 0 {
				if err != nil {
					return out, err
				}
				continue
			}
			if len(out) >= limit {
				return out, tooLarge(Gzip, limit)
			}
			out = append(growTo(out, min(max(2*cap(out), 4096), limit)), g.one[0])
			if err == io.EOF {
				return out, nil
			}
			if err != nil {
				return out, err
			}
		}
		n, err := g.z.Read(out[len(out):min(cap(out), limit)])
		out = out[:len(out)+n]
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return out, err
		}
	}
}

// gzipGuess is the size the last member's trailer claims, as far as the payload's own size makes it credible.
func gzipGuess(src []byte, limit int) int {
	if len(src) < len(gzipHeader)+8 {
		return 0
	}
	claimed := uint64(binary.LittleEndian.Uint32(src[len(src)-4:]))
	return int(min(claimed, uint64(len(src))*maxDeflateRatio, uint64(limit)))
}

// growTo moves b into a buffer with capacity n.
func growTo(b []byte, n int) []byte {
	if n <= cap(b) {
		return b
	}
	return append(make([]byte, 0, n), b...)
}

// noEOF names a premature end as what it is.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
