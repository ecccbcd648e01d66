package main

import (
	"encoding/binary"
	"path"
	"slices"
	"strings"

	"github.com/partlog/partlog/index"
	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/timeindex"
	"github.com/partlog/partlog/vfs"
)

// lose prints which offsets cannot be read any more; next is the offset behind them, -1 if nothing tells.
func (p *partitionRepair) lose(from, next int64, why string) {
	lead := "would lose"
	if p.apply {
		lead = "lost"
	}
	if next < 0 {
		p.print("%s offsets from %d on, if there were any, of %s%s", lead, from, p.folder, why)
		return
	}
	p.print("%s %s of %s%s", lead, span(from, next), p.folder, why)
}

// knownEnd is where the log ended as far as the root's checkpoints and the producer snapshots remember; 0 if they do not.
func (p *partitionRepair) knownEnd() (end int64) {
	for _, name := range []string{checkpoint.RecoveryPoints, checkpoint.HighWatermarks} {
		if offsets, err := checkpoint.ReadOffsets(p.fs, name); err == nil {
			end = max(end, offsets[checkpoint.Partition(p.tp)])
		}
	}
	return end
}

const byCheckpoints = ", up to which the root's checkpoints know it"

// loseSegment prints what is lost of one segment that ends before the next one begins: by the plan for it, and by index
// entries behind what it holds. Gaps alone are legal.
func (p *partitionRepair) loseSegment(s *segmentPlan, last bool, next int64) {
	why := ""
	if last && p.known > 0 {
		next, why = p.known, byCheckpoints
	}
	ranges := s.lost(next)
	end := max(s.ends(), s.after, s.base)
	if last && len(ranges) == 0 && p.known <= end && s.open() {
		p.lose(end, -1, "")
	}
	for i, r := range ranges {
		if i+1 < len(ranges) || r[1] != next {
			p.lose(r[0], r[1], "")
			continue
		}
		p.lose(r[0], r[1], why)
	}
	told := len(ranges) > 0 && ranges[len(ranges)-1][1] == next
	switch {
	case told || next <= end:
	case last:
		p.lose(end, next, why)
	case p.indexed(s.base) >= end:
		p.lose(end, next, ", by the index, which has entries for them")
	}
}

// loseOrphans prints what went with .log files that are missing beside their indexes.
func (p *partitionRepair) loseOrphans(plans []*segmentPlan) error {
	entries, err := p.fs.ReadDir(p.folder)
	if err != nil {
		return err
	}
	starts, err := checkpoint.ReadOffsets(p.fs, checkpoint.LogStarts)
	if err != nil {
		return err
	}
	done := map[int64]bool{}
	for _, e := range entries {
		digits, _, _ := strings.Cut(e.Name(), ".")
		base, bad := offsetArg(digits)
		if ext := path.Ext(e.Name()); bad != nil || base < 0 || done[base] || ext != ".index" && ext != ".timeindex" {
			continue
		}
		done[base] = true
		i := slices.IndexFunc(plans, func(s *segmentPlan) bool { return s.base >= base })
		if i < 0 || plans[i].base == base || plans[i].base <= starts[checkpoint.Partition(p.tp)] || plans[i].after > base {
			continue // nothing behind tells how far it went, or it is there, or was deleted
		}
		if p.indexed(base) >= base {
			p.lose(base, plans[i].base, ", whose .log is missing beside its index")
		}
	}
	return nil
}

// indexed is the largest offset that the indexes of a segment name, -1 if they are missing or empty.
func (p *partitionRepair) indexed(base int64) int64 {
	last := int64(-1)
	for _, x := range []struct {
		ext       string
		width, at int
	}{{".index", index.EntrySize, 0}, {".timeindex", timeindex.EntrySize, 8}} {
		b, err := vfs.ReadFile(p.fs, p.path(segment.FileName(base, x.ext)), maxIndexBytes)
		if err != nil {
			continue
		}
		for ; len(b) >= x.width; b = b[x.width:] {
			if rel := int32(binary.BigEndian.Uint32(b[x.at:])); rel > 0 {
				last = max(last, base+int64(rel))
			}
		}
	}
	return last
}
