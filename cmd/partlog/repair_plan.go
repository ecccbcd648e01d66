package main

import (
	"context"
	"math"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/vfs"
)

// segmentPlan is what becomes of one .log.
type segmentPlan struct {
	base    int64
	file    string
	size    int64
	extents []log.Extent
	keep    []bool             // by extent; holes are never kept
	mends   map[int]headerMend // by extent: kept with another header
	after   int64              // end of what is kept before this segment
}

// planSegments reads every .log of a folder and chooses the batches to believe: those with right checksums whose offsets
// ascend and whose leader epochs do not go back, as many as possible. So one batch with a wrong offset in its header is
// set aside, and not all that follow it.
func planSegments(ctx context.Context, fsys vfs.FS, folder string) ([]*segmentPlan, error) {
	bases, err := segment.List(fsys, folder)
	if err != nil {
		return nil, err
	}
	var plans []*segmentPlan
	for _, base := range bases {
		p := &segmentPlan{base: base, file: folder + "/" + segment.FileName(base, ".log")}
		if p.extents, err = log.Extents(ctx, fsys, p.file, base); err != nil {
			return nil, err
		}
		for _, e := range p.extents {
			p.size += e.Bytes
		}
		p.keep = make([]bool, len(p.extents))
		plans = append(plans, p)
	}
	choose(plans)
	return plans, nil
}

// candidate is a run of batches that might be kept.
type candidate struct {
	plan   *segmentPlan
	extent int
	log.Extent
	best int // batches of the best chain that ends here
	from int // candidate before it in that chain; -1 none
}

// maxChain is how many runs are compared each with each; beyond it, in files that are nothing but damage, whatever fits
// is kept.
const maxChain = 5000

func choose(plans []*segmentPlan) {
	var all []candidate
	for _, p := range plans {
		for i, e := range p.extents {
			if e.Batches > 0 && e.Next > p.base {
				all = append(all, candidate{plan: p, extent: i, Extent: e, from: -1})
			}
		}
	}
	last := -1
	for i := range all {
		c := &all[i]
		c.best = c.Batches
		lowest := 0
		if len(all) > maxChain {
			lowest = max(0, i-1)
		}
		for j := lowest; j < i; j++ {
			if all[j].mayPrecede(c) && all[j].best+c.Batches > c.best {
				c.best, c.from = all[j].best+c.Batches, j
			}
		}
		// Of two as good the one that ends sooner: a jump ahead is rather an offset that was damaged.
		if last < 0 || c.best > all[last].best || c.best == all[last].best && c.Next < all[last].Next {
			last = i
		}
	}
	for i := last; i >= 0; i = all[i].from {
		all[i].plan.keep[all[i].extent] = true
	}
	setAfter(plans)
}

// setAfter tells each segment where what is kept before it ends.
func setAfter(plans []*segmentPlan) {
	end := int64(0)
	for _, p := range plans {
		p.after = end
		for i, e := range p.extents {
			if p.keep[i] {
				end = e.Next
			}
		}
	}
}

func (c *candidate) mayPrecede(next *candidate) bool {
	return c.Next <= next.First && (c.Epoch < 0 || next.Epoch < 0 || c.Epoch <= next.Epoch)
}

// prefix is how many bytes from the start are kept without a break, and whether that is all that is kept.
func (p *segmentPlan) prefix() (bytes int64, all bool) {
	i := 0
	for i < len(p.extents) && p.keep[i] {
		bytes += p.extents[i].Bytes
		i++
	}
	for ; i < len(p.extents); i++ {
		if p.keep[i] {
			return bytes, false
		}
	}
	return bytes, true
}

// whole says that the file can stay as it is.
func (p *segmentPlan) whole() bool {
	bytes, _ := p.prefix()
	return bytes == p.size && p.representable() && p.base >= p.after && len(p.mends) == 0
}

// representable: every kept offset can be named by an index of this base.
func (p *segmentPlan) representable() bool {
	for i, e := range p.extents {
		if p.keep[i] && (e.Next-1-p.base > math.MaxInt32) {
			return false
		}
	}
	return true
}

// kept counts the batches that stay.
func (p *segmentPlan) kept() (batches int) {
	for i, e := range p.extents {
		if p.keep[i] {
			batches += e.Batches
		}
	}
	return batches
}

// open says that the segment ends with something that is not kept.
func (p *segmentPlan) open() bool { return len(p.keep) > 0 && !p.keep[len(p.keep)-1] }

// lost are the offset ranges [from, to) that go with what is not kept, as far as that can be told; next is where the log
// goes on behind the segment, -1 if nothing tells.
func (p *segmentPlan) lost(next int64) (ranges [][2]int64) {
	at := max(p.base, p.after)
	open := false
	for i, e := range p.extents {
		if !p.keep[i] {
			open = true
			continue
		}
		if open && e.First > at {
			ranges = append(ranges, [2]int64{at, e.First})
		}
		at, open = e.Next, false
	}
	if open && next > at {
		ranges = append(ranges, [2]int64{at, next})
	}
	return ranges
}
