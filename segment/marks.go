package segment

import (
	"math"
	"sync"
	"sync/atomic"
)

// unknown stands in marks for a fact that is in the files but was not read yet.
const unknown int64 = -2

// marks are what readers may know of a segment. They change together, after the bytes they speak of are in the file.
type marks struct {
	size        int64 // bytes of whole batches
	next        int64 // offset behind the last batch; unknown after Open
	maxTs       int64 // largest timestamp of a batch, -1 none; unknown after Open
	maxTsOffset int64 // last offset of the earliest batch that has it; base if none
	firstTs     int64 // largest timestamp of the first batch, -1 none or empty; unknown after Open
	cuts        int64 // truncations so far: a reader that started under another count may have read other bytes
}

type published struct {
	mu   sync.Mutex // guards m; nothing is called under it
	m    marks
	cuts atomic.Int64 // m.cuts, for those who only look whether it has moved
}

func (p *published) load() marks {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.m
}

// grow publishes an append.
func (p *published) store(m marks) {
	p.mu.Lock()
	m.cuts = p.m.cuts
	p.m = m
	p.mu.Unlock()
}

// cut publishes a shorter segment, before the file is cut: readers that start later do not touch what goes away, readers
// that started earlier see that the count has moved.
func (p *published) cut(m marks) {
	p.mu.Lock()
	m.cuts = p.m.cuts + 1
	p.m = m
	p.cuts.Store(m.cuts)
	p.mu.Unlock()
}

// learn adds facts that were read from the files, if nothing was cut since.
func (p *published) learn(cuts int64, f func(m *marks)) {
	p.mu.Lock()
	if p.m.cuts == cuts {
		f(&p.m)
	}
	p.mu.Unlock()
}

func noFirst(ts int64) int64 {
	if ts < 0 {
		return math.MaxInt64
	}
	return ts
}
