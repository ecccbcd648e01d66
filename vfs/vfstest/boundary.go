package vfstest

import "slices"

// maxSingles bounds how many single things of a sort boundaries go through at a point; the latest are taken.
const maxSingles = 256

// boundaries emits the picks that find most bugs, whatever the number of choices: all kept, all lost, each thing alone
// kept or lost, each file alone, the history cut after each operation, each page torn in each way.
func (p *point) boundaries(emit func(*pick) bool) bool {
	return p.extremes(emit) && p.singleEvents(emit) && p.singleValues(emit) && p.singleFiles(emit) &&
		p.prefixes(emit) && p.tears(emit)
}

func (p *point) extremes(emit func(*pick) bool) bool {
	lost, kept := p.all(false), p.all(true)
	return emit(kept) && emit(lost) &&
		emit(&pick{kept: kept.kept, vals: lost.vals}) && // names without content
		emit(&pick{kept: lost.kept, vals: kept.vals}) // content without names
}

func (p *point) singleEvents(emit func(*pick) bool) bool {
	for i := max(0, len(p.state.pending)-maxSingles); i < len(p.state.pending); i++ {
		for _, kept := range []bool{true, false} {
			one := p.all(!kept)
			one.kept[i] = kept
			if kept {
				openOver(p.state.pending, one.kept)
			} else {
				closeOver(p.state.pending, one.kept)
			}
			if !emit(&pick{kept: one.kept, vals: p.all(true).vals}) || !emit(&pick{kept: one.kept, vals: p.all(false).vals}) {
				return false
			}
		}
	}
	return true
}

func (p *point) singleValues(emit func(*pick) bool) bool {
	for v := max(0, len(p.top)-maxSingles); v < len(p.top); v++ {
		lost, kept := p.all(true), p.all(false)
		lost.vals[v], kept.vals[v] = 0, p.top[v]
		if !emit(lost) || !emit(kept) || !emit(&pick{kept: lost.kept, vals: kept.vals}) {
			return false
		}
	}
	return true
}

// singleFiles keeps or loses one file as a whole, or its data alone.
func (p *point) singleFiles(emit func(*pick) bool) bool {
	for _, f := range p.files {
		end := f.first + 1 + len(f.pages)
		lost, kept := p.all(true), p.all(true)
		clear(kept.vals)
		copy(kept.vals[f.first:end], p.top[f.first:end])
		clear(lost.vals[f.first+1 : end])
		if !emit(kept) || !emit(lost) {
			return false
		}
		lost.vals[f.first] = 0
		if !emit(lost) {
			return false
		}
	}
	return true
}

// prefixes keeps what was done up to some operation and loses what came later.
func (p *point) prefixes(emit func(*pick) bool) bool {
	var cuts []int
	for _, e := range p.state.pending {
		cuts = append(cuts, e.seq)
	}
	for _, s := range p.seqs {
		cuts = append(cuts, s...)
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	if len(cuts) > maxSingles {
		cuts = cuts[len(cuts)-maxSingles:]
	}
	for _, cut := range cuts {
		k := p.all(false)
		for i, e := range p.state.pending {
			k.kept[i] = e.seq <= cut
		}
		for v, seqs := range p.seqs {
			for _, s := range seqs {
				if s <= cut {
					k.vals[v]++
				}
			}
		}
		if !emit(k) {
			return false
		}
	}
	return true
}

// tears goes through the torn options of each page, with everything else kept, and with everything else but the length
// lost.
func (p *point) tears(emit func(*pick) bool) bool {
	budget := maxSingles * 8
	for _, f := range slices.Backward(p.files) {
		for i := len(f.pages) - 1; i >= 0; i-- {
			v := f.first + 1 + i
			kept, lost := p.all(true), p.all(true)
			clear(lost.vals)
			lost.vals[f.first] = p.top[f.first]
			for o := p.whole[v]; o < p.sizes[v]; o++ {
				kept.vals[v], lost.vals[v] = uint32(o), uint32(o)
				if !emit(kept) || !emit(lost) {
					return false
				}
				if budget--; budget == 0 {
					return true
				}
			}
		}
	}
	return true
}
