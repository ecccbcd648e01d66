package vfstest

import "slices"

// A fileChoice is what a power loss may make of one file that is not durable: one of its lengths, and for each dirty
// page one of its options. Choices are numbers; 0 is always "as on the device".
type fileChoice struct {
	e     *enum
	id    nodeID
	n     *node // frozen
	first int   // place of the length in pick.vals; the pages follow
	pages []*pageChoice
	byIdx map[int]*pageChoice
	rest  map[int]uint64 // by length, once known: hash of the length and the pages without a choice
}

// pageChoice has the device's page, then each version, then torn ones.
type pageChoice struct {
	idx      int
	versions []version
	options  []pageOption
	whole    int                  // options that are not torn
	table    map[int][]tableEntry // by length, then by option
}

// tableEntry is the page an option comes to under a length, once it is known.
type tableEntry struct {
	page  *page
	known bool
}

// pageOption is version ver, or that version torn over base: 0 = the device's, k = versions[k-1].
type pageOption struct {
	ver, base int
	tear      tear
	cut       int // sector within the page
}

type tear uint8

const (
	notTorn  tear = iota
	tornOld       // sectors before the cut are new, the others as in base
	tornHead      // sectors before the cut as in base, the others new
	tornZero      // sectors before the cut are new, what was being written behind it is zeros
	tornJunk      // the same with garbage
)

func (t tear) String() string {
	return [...]string{"", "the rest old", "the head old", "the rest zeros", "the rest garbage"}[t]
}

func (e *enum) newFileChoice(id nodeID, n *node, first int) *fileChoice {
	f := &fileChoice{e: e, id: id, n: n, first: first, byIdx: map[int]*pageChoice{}, rest: map[int]uint64{}}
	for _, v := range n.versions {
		u := f.byIdx[v.idx]
		if u == nil {
			u = &pageChoice{idx: v.idx, table: map[int][]tableEntry{}}
			f.byIdx[v.idx] = u
			f.pages = append(f.pages, u)
		}
		u.versions = append(u.versions, v)
	}
	for _, u := range f.pages {
		for k := range len(u.versions) + 1 {
			u.options = append(u.options, pageOption{ver: k})
		}
		u.whole = len(u.options)
		if !e.opt.NoTorn {
			last := len(u.versions)
			f.addTears(u, last, last-1)
			if last > 1 {
				f.addTears(u, last, 0)
			}
		}
	}
	return f
}

// restHash is the hash of everything that no page choice decides. e.mu is held.
func (f *fileChoice) restHash(m int) uint64 {
	h, ok := f.rest[m]
	if ok {
		return h
	}
	h = mix(uint64(f.sizeAt(m)), k1)
	for idx, p := range f.n.dpages {
		if f.byIdx[idx] == nil {
			h += f.view(p, 0, idx, m).sum(idx)
		}
	}
	f.rest[m] = h
	return h
}

// addTears adds the torn pages of version k over version base.
func (f *fileChoice) addTears(u *pageChoice, k, base int) {
	p, lo, hi := u.versions[k-1].page, PageSize, 0
	old := pageAt(f.n.dpages, u.idx)
	if base > 0 {
		old = u.versions[base-1].page
	}
	for _, v := range u.versions[base:k] {
		lo, hi = min(lo, v.lo), max(hi, v.hi)
	}
	for lo < hi && byteAt(p, lo) == byteAt(old, lo) {
		lo++
	}
	if lo >= hi {
		return
	}
	from, to := lo/SectorSize, (hi-1)/SectorSize
	for _, cut := range f.e.cuts(from+1, to) {
		u.options = append(u.options, pageOption{k, base, tornOld, cut}, pageOption{k, base, tornHead, cut})
	}
	for _, cut := range f.e.cuts(from, to) {
		u.options = append(u.options, pageOption{k, base, tornJunk, cut})
		if f.e.opt.Overwrites {
			u.options = append(u.options, pageOption{k, base, tornZero, cut})
		}
	}
}

func byteAt(p *page, i int) byte {
	if b := p.bytes(); i < len(b) {
		return b[i]
	}
	return 0
}

// cuts picks at most opt.Cuts sectors of from..to, always both ends.
func (e *enum) cuts(from, to int) []int {
	n := to - from + 1
	if n <= 0 {
		return nil
	}
	k := min(n, e.opt.Cuts)
	if k == 1 {
		return []int{to}
	}
	list := make([]int, k)
	for i := range list {
		list[i] = from + i*(n-1)/(k-1)
	}
	return list
}

func (f *fileChoice) sizeAt(m int) int64 {
	if m == 0 {
		return f.n.dsize
	}
	return f.n.lengths[m-1].size
}

func (f *fileChoice) seqAt(m int) int {
	if m == 0 {
		return -1
	}
	return f.n.lengths[m-1].seq
}

// view is a page that came to be at seq as it reads under length m: cuts that were kept and came later went through it,
// and nothing shows behind the length.
func (f *fileChoice) view(p *page, seq, idx, m int) *page {
	start := int64(idx) * PageSize
	for _, l := range f.n.lengths {
		if l.cut && l.seq > seq && l.seq <= f.seqAt(m) {
			p = p.head(l.size - start)
		}
	}
	return p.head(f.sizeAt(m) - start)
}

// version is version k of a page as it reads under length m. A page that was cut off as a whole and written again got
// a new place on the device; when the cut is lost, so is the way to that place.
func (f *fileChoice) version(u *pageChoice, k, m int) *page {
	for _, l := range f.n.lengths {
		if !l.cut || l.seq <= f.seqAt(m) || l.size > int64(u.idx)*PageSize {
			continue
		}
		for k > 0 && u.versions[k-1].seq > l.seq {
			k--
		}
	}
	if k == 0 {
		return f.view(pageAt(f.n.dpages, u.idx), 0, u.idx, m)
	}
	return f.view(u.versions[k-1].page, u.versions[k-1].seq, u.idx, m)
}

// content is the page of option o under length m. e.mu is held.
func (f *fileChoice) content(u *pageChoice, o, m int) *page {
	row := u.table[m]
	if row == nil {
		row = make([]tableEntry, len(u.options))
		u.table[m] = row
	}
	if row[o].known {
		return row[o].page
	}
	opt := u.options[o]
	p := f.version(u, opt.ver, m)
	if opt.tear != notTorn {
		p = f.torn(u, opt, m, p)
	}
	row[o] = tableEntry{p, true}
	return p
}

type tornKey struct {
	now, old   *page
	lo, hi     int
	cut        int
	tear       tear
	idx, limit int64
}

// torn makes the torn page, or finds it made before.
func (f *fileChoice) torn(u *pageChoice, opt pageOption, m int, now *page) *page {
	old := f.version(u, opt.base, m)
	start := int64(u.idx) * PageSize
	lo, hi := PageSize, 0
	for _, v := range u.versions[opt.base:opt.ver] {
		lo, hi = min(lo, v.lo), max(hi, v.hi)
	}
	durable := f.n.dsize
	for _, l := range f.n.lengths {
		if l.cut && l.seq <= f.seqAt(m) {
			durable = min(durable, l.size)
		}
	}
	if f.e.opt.Overwrites {
		durable = start
	}
	hi = int(min(int64(hi), f.sizeAt(m)-start))
	lo = max(lo, int(min(durable-start, PageSize)))
	key := tornKey{now, old, lo, hi, opt.cut, opt.tear, int64(u.idx), durable}
	if p, ok := f.e.torn[key]; ok {
		return p
	}
	p := tearPage(key)
	f.e.torn[key] = p
	return p
}

func tearPage(k tornKey) *page {
	now, old := make([]byte, PageSize), make([]byte, PageSize)
	copy(now, k.now.bytes())
	copy(old, k.old.bytes())
	at := k.cut * SectorSize
	switch k.tear {
	case tornOld:
		copy(now[at:], old[at:])
	case tornHead:
		copy(now[:at], old[:at])
	case tornZero, tornJunk:
		lo := k.lo
		for lo < k.hi && now[lo] == old[lo] {
			lo++ // what is written again as it was is not harmed
		}
		copy(now[at:], old[at:])
		for i := max(at, lo); i < k.hi; i++ {
			now[i] = 0
			if k.tear == tornJunk {
				now[i] = byte(mix(uint64(i)^uint64(k.idx)<<16, k1))
			}
		}
	}
	return newPage(now)
}

// hash of the file under the values chosen. e.mu is held.
func (f *fileChoice) hash(vals []uint32) uint64 {
	m := int(vals[f.first])
	h := f.restHash(m)
	for i, u := range f.pages {
		h += f.content(u, int(vals[f.first+1+i]), m).sum(u.idx)
	}
	return h
}

// node is the file under the values chosen, clean, owned by nobody. e.mu is held.
func (f *fileChoice) node(vals []uint32) *node {
	m := int(vals[f.first])
	pages := slices.Clone(f.n.dpages)
	for idx, p := range pages {
		pages[idx] = f.view(p, 0, idx, m)
	}
	for i, u := range f.pages {
		pages = setPage(pages, u.idx, f.content(u, int(vals[f.first+1+i]), m))
	}
	pages = slices.Clip(pages)
	// Cache and device share the slice: it belongs to nobody, so whoever changes one copies first.
	return &node{perm: f.n.perm, mtime: f.n.mtime, pages: pages, dpages: pages, size: f.sizeAt(m), dsize: f.sizeAt(m)}
}

// cleanHash is the hash of a file without choices.
func cleanHash(n *node) uint64 {
	h := mix(uint64(n.dsize), k1)
	for idx, p := range n.dpages {
		h += p.sum(idx)
	}
	return h
}
