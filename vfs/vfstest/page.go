package vfstest

import (
	"encoding/binary"
	"math/bits"
)

const (
	// PageSize is the unit in which Crash keeps or loses data, in bytes.
	PageSize = 4096
	// SectorSize is the unit that Crash never tears, in bytes.
	SectorSize = 512
)

// page is the immutable content of one page; zeros at the end are not kept and a page of zeros is nil. Pages are shared
// between files, disks and file systems, so making a disk copies no data.
type page struct {
	b []byte
	h uint64
}

// newPage takes b over.
func newPage(b []byte) *page {
	n := len(b)
	for n > 0 && b[n-1] == 0 {
		n--
	}
	if n == 0 {
		return nil
	}
	b = b[:n:n]
	return &page{b: b, h: hashBytes(b)}
}

func (p *page) bytes() []byte {
	if p == nil {
		return nil
	}
	return p.b
}

// sum is the page's share of its file's hash; a page of zeros adds nothing, present or not.
func (p *page) sum(idx int) uint64 {
	if p == nil {
		return 0
	}
	return mix(p.h, uint64(idx)+1)
}

// head is the page with everything from n on zero.
func (p *page) head(n int64) *page {
	if p == nil || n >= int64(len(p.b)) {
		return p
	}
	if n <= 0 {
		return nil
	}
	return newPage(p.b[:n])
}

// with is the page with data written at off.
func (p *page) with(off int, data []byte) *page {
	old := p.bytes()
	b := make([]byte, max(len(old), off+len(data)))
	copy(b, old)
	copy(b[off:], data)
	return newPage(b)
}

func pageAt(pages []*page, idx int) *page {
	if idx >= len(pages) {
		return nil
	}
	return pages[idx]
}

func setPage(pages []*page, idx int, p *page) []*page {
	if idx >= len(pages) {
		if p == nil {
			return pages
		}
		pages = append(pages, make([]*page, idx+1-len(pages))...)
	}
	pages[idx] = p
	return pages
}

// cutPages drops everything from byte n on.
func cutPages(pages []*page, n int64) []*page {
	last := int(n / PageSize)
	if last >= len(pages) {
		return pages
	}
	if p := pages[last].head(n % PageSize); p != nil {
		pages[last] = p
		last++
	}
	clear(pages[last:])
	return pages[:last]
}

// The hash only has to tell different disks apart; the same disk has the same hash in every run and on every platform.
const (
	k0 = 0xa0761d6478bd642f
	k1 = 0xe7037ed1a0b428db
	k2 = 0xd6e8feb86659fd93
)

// mix hashes two numbers, in this order; it has no value that swallows the other.
func mix(a, b uint64) uint64 {
	x := a ^ (b*k0 + k1)
	x ^= x >> 32
	x *= k2
	x ^= x >> 29
	x *= k2
	return x ^ x>>32
}

func hashBytes(b []byte) uint64 {
	h := uint64(len(b))*k1 + k0
	for len(b) >= 16 {
		hi, lo := bits.Mul64(binary.LittleEndian.Uint64(b)^h, binary.LittleEndian.Uint64(b[8:])^k1)
		h = hi ^ lo
		b = b[16:]
	}
	if len(b) > 0 {
		var tail [16]byte
		copy(tail[:], b)
		h = mix(h^binary.LittleEndian.Uint64(tail[:]), binary.LittleEndian.Uint64(tail[8:]))
	}
	return mix(h, k0)
}

func hashString(s string) uint64 { return hashBytes([]byte(s)) }
