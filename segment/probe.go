package segment

import (
	"encoding/binary"

	"github.com/partlog/partlog/record"
)

// probed is what lies behind the first bad byte.
type probed struct {
	zero        bool  // nothing but zeros
	found       int   // batches that parse, pass their CRC and continue the offsets
	first, next int64 // offsets [first, next) they span
	tired       bool  // too many look-alikes: the search ended early
}

// probe looks for whole batches at every byte behind the first bad one. A look-alike costs a checksum over the bytes it
// claims; their sum is bounded, because hostile bytes could look like a batch at every place.
func (c *scanner) probe() (probed, error) {
	p := probed{zero: true, next: c.out.NextOffset}
	start := c.out.ValidBytes
	budget := 8*(c.end-start) + 64<<20
	buf := readBuffers.Get().(*[readBuffer]byte)
	defer readBuffers.Put(buf)
	for at := start; at < c.end; {
		if err := c.ctx.Err(); err != nil {
			return p, err
		}
		n, err := readFull(c.f, buf[:min(readBuffer, c.end-at)], at)
		if err != nil {
			return p, err
		}
		b := buf[:n]
		p.zero = p.zero && allZero(b)
		step, err := c.probeWindow(&p, b, at, &budget)
		if err != nil || p.tired {
			return p, err
		}
		if step <= 0 { // the window is the rest of the file
			break
		}
		at += step
		c.progress(at, false)
	}
	return p, nil
}

// probeWindow looks at the places of one window where a whole header can be seen, and returns how far to go on; 0 at the
// end of the file.
func (c *scanner) probeWindow(p *probed, b []byte, at int64, budget *int64) (int64, error) {
	last := at+int64(len(b)) >= c.end
	for i := 0; i+minHeader <= len(b); i++ {
		if !last && i+record.HeaderSize > len(b) {
			return int64(i), nil
		}
		pos := at + int64(i)
		if !c.mayStart(b[i:i+minHeader], p.next, c.end-pos) || pos == c.out.ValidBytes { // there the bad batch itself is
			continue
		}
		h, reason := parseHeader(b[i:min(i+record.HeaderSize, len(b))], c.end-pos)
		if reason != "" || h.last-c.s.base > maxRelative {
			continue
		}
		if *budget -= h.size; *budget < 0 {
			p.tired = true
			return 0, nil
		}
		ok, err := checksum(c.f, pos, h)
		if err != nil {
			return 0, err
		}
		if !ok {
			continue
		}
		if p.found == 0 {
			p.first = h.base
		}
		p.found++
		p.next = h.last + 1
		if next := int64(i) + h.size; next+record.HeaderSize > int64(len(b)) {
			if pos+h.size >= c.end {
				return 0, nil
			}
			return next, nil
		}
		i += int(h.size) - 1
	}
	if last {
		return 0, nil
	}
	return int64(max(len(b)-record.HeaderSize+1, 1)), nil
}

// mayStart is the cheap part of the question whether a batch begins with b: it is asked of every byte.
func (c *scanner) mayStart(b []byte, next, remaining int64) bool {
	base := int64(binary.BigEndian.Uint64(b))
	size := int64(int32(binary.BigEndian.Uint32(b[8:])))
	return b[16] <= 2 && base >= next && base-c.s.base <= maxRelative && size >= 14 && size+12 <= remaining
}

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
