package vfs

import (
	"fmt"
	"io"
	"io/fs"
	"math"
)

// pageSize is the unit in which file content is kept in memory, and copied from the file underneath before it is
// changed.
const pageSize = 64 << 10

// pages is the content of a file in memory: sparse, over an optional file underneath that is never written.
//
//	0              floor                size
//	├── underneath ──┤── zeros ───────────┤
//	    [page] [page]      [page]             a page in memory hides both
//
// A page may be shorter than pageSize; the rest of it is zeros. Not safe for concurrent use by itself.
type pages struct {
	size  int64
	floor int64 // bytes below it that no page hides are read from underneath; floor <= size
	page  map[int64][]byte
}

// source reads exactly len(b) bytes of the file underneath.
type source func(b []byte, off int64) error

func (p *pages) readAt(b []byte, off int64, under source) (int, error) {
	if off < 0 {
		return 0, errNegative
	}
	if len(b) == 0 {
		return 0, nil
	}
	if off >= p.size {
		return 0, io.EOF
	}
	var eof error
	if int64(len(b)) > p.size-off {
		b, eof = b[:p.size-off], io.EOF
	}
	done := 0
	for done < len(b) {
		pos := off + int64(done)
		in := int(pos % pageSize)
		chunk := b[done:min(len(b), done+pageSize-in)]
		if err := p.readPage(chunk, pos/pageSize, in, under); err != nil {
			return done, err
		}
		done += len(chunk)
	}
	return done, eof
}

func (p *pages) readPage(chunk []byte, i int64, in int, under source) error {
	n := 0
	if pg, ok := p.page[i]; ok {
		if in < len(pg) {
			n = copy(chunk, pg[in:])
		}
	} else if pos := i*pageSize + int64(in); pos < p.floor {
		n = int(min(int64(len(chunk)), p.floor-pos))
		if err := under(chunk[:n], pos); err != nil {
			return err
		}
	}
	clear(chunk[n:])
	return nil
}

func (p *pages) writeAt(b []byte, off int64, under source) (int, error) {
	if off < 0 {
		return 0, errNegative
	}
	if off > math.MaxInt64-int64(len(b)) {
		return 0, fmt.Errorf("%w: write beyond the largest file", fs.ErrInvalid)
	}
	done := 0
	for done < len(b) {
		pos := off + int64(done)
		in := int(pos % pageSize)
		chunk := b[done:min(len(b), done+pageSize-in)]
		if err := p.writePage(chunk, pos/pageSize, in, under); err != nil {
			return done, err
		}
		done += len(chunk)
		p.size = max(p.size, pos+int64(len(chunk)))
	}
	return done, nil
}

func (p *pages) writePage(chunk []byte, i int64, in int, under source) error {
	pg, ok := p.page[i]
	if start := i * pageSize; !ok && start < p.floor {
		n := int(min(pageSize, p.floor-start))
		if in > 0 || len(chunk) < n {
			pg = make([]byte, n)
			if err := under(pg, start); err != nil {
				return err
			}
		}
	}
	if p.page == nil {
		p.page = make(map[int64][]byte)
	}
	pg = grow(pg, in+len(chunk))
	copy(pg[in:], chunk)
	p.page[i] = pg
	return nil
}

// grow makes pg at least n bytes long; new bytes are zeros.
func grow(pg []byte, n int) []byte {
	old := len(pg)
	if n <= old {
		return pg
	}
	if n > cap(pg) {
		bigger := make([]byte, old, min(pageSize, max(n, 2*cap(pg))))
		copy(bigger, pg)
		pg = bigger
	}
	pg = pg[:n]
	clear(pg[old:])
	return pg
}

func (p *pages) truncate(n int64) {
	if n < p.size {
		for i, pg := range p.page {
			switch start := i * pageSize; {
			case start >= n:
				delete(p.page, i)
			case n-start < int64(len(pg)):
				p.page[i] = pg[:n-start]
			}
		}
		p.floor = min(p.floor, n)
	}
	p.size = n
}
