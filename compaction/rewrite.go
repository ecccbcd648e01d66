package compaction

import (
	"errors"
	"fmt"
	"io/fs"
	"math"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/vfs"
)

// rewriter takes the segments of a run, group by group, through the filter into new files.
type rewriter struct {
	r   *run
	f   filter
	t   *tracker
	out *output
	// kept are the aborted transactions of the group so far whose markers stay.
	kept []segment.AbortedTxn
	// A segment that is a group of its own is not written before something of it goes: until then same is true and
	// whole bytes of it are as they will be.
	same  bool
	whole int64
	src   *segment.Segment
}

func newRewriter(r *run) *rewriter {
	w := &rewriter{r: r}
	w.t = newTracker(func(t segment.AbortedTxn) { w.kept = append(w.kept, t) })
	w.f = newFilter(r)
	return w
}

// group rewrites one group and has it swapped in.
func (w *rewriter) group(g Range) (err error) {
	r := w.r
	w.out = newOutput(r, g.Base)
	w.kept = w.kept[:0]
	w.same, w.whole = g.First == g.Last, 0
	defer func() {
		if err != nil && !errors.Is(err, ErrUnsettled) {
			err = errors.Join(err, w.out.discard())
		}
	}()
	before := w.f.counts
	for i := g.First; i <= g.Last; i++ {
		if err := w.segment(i); err != nil {
			return err
		}
	}
	old := r.in.Segments[g.First : g.Last+1]
	if w.same {
		done, err := w.unchanged()
		if err != nil || done {
			w.f.counts = before // nothing was written, and nothing dropped
			return err
		}
	}
	bases, bytes, err := w.out.finish(w.kept, old[len(old)-1])
	if err != nil {
		return err
	}
	if err := w.keep(Group{Old: old, New: bases, NewBytes: bytes}); err != nil {
		return err
	}
	r.out.Groups++
	r.out.After += bytes
	w.f.counts.addTo(&r.out)
	w.f.counts = counts{}
	return nil
}

func (w *rewriter) keep(g Group) error {
	in := w.r.in
	switch {
	case in.DryRun:
		return nil
	case in.Keep != nil:
		if err := syncDir(in.Options.FS, in.Dir); err != nil {
			return err
		}
		return in.Keep(w.r.t.ctx, g)
	}
	live, err := Swap(in.Dir, in.Options, g.Old, g.New)
	if err != nil {
		return err
	}
	for _, s := range live {
		err = errors.Join(err, s.Close())
	}
	for _, s := range g.Old {
		err = errors.Join(err, s.Delete())
	}
	return errors.Join(err, syncDir(in.Options.FS, in.Dir))
}

// segment takes the batches of one segment through the filter.
func (w *rewriter) segment(i int) error {
	r := w.r
	w.src = r.in.Segments[i]
	r.t.p.Offset = w.src.Base()
	find := r.fate.beginning
	if i == 0 {
		find = r.fate.of
	}
	txns, err := find(i, w.src.Base(), min(r.endOf(i), r.in.Bounds.Uncleanable))
	if err != nil {
		return err
	}
	w.t.add(txns)
	if err := w.f.source(i); err != nil {
		return err
	}
	for b, err := range r.batches(i, w.src.Base()) {
		if err == nil {
			err = r.t.read(b.Size())
		}
		if err == nil {
			err = w.batch(b)
		}
		if err != nil {
			return r.blame(i, err)
		}
	}
	return nil
}

func (w *rewriter) batch(b record.Batch) error {
	count(&w.r.out.Read, b)
	discardable, err := w.t.take(b, w.r.d)
	if err != nil {
		return at(b, err)
	}
	out, verbatim, err := w.f.batch(b, discardable)
	if err != nil {
		return at(b, err)
	}
	if w.same {
		if verbatim {
			w.whole += int64(b.Size())
			return nil
		}
		// b and out are not touched by this: the one belongs to another walk of the segment, the other to the filter.
		if err := w.begin(); err != nil {
			return err
		}
	}
	return w.out.add(out)
}

// begin ends the hope that a segment stays as it is: what was passed over is copied.
func (w *rewriter) begin() error {
	w.same = false
	if w.whole == 0 {
		return nil
	}
	if w.r.in.DryRun {
		w.out.begun, w.out.last, w.out.bytes = true, w.out.base, w.whole
		return nil
	}
	left := w.whole
	for b, err := range w.src.Batches(0) {
		if err == nil {
			err = w.r.t.move(b.Size())
		}
		if err == nil {
			err = w.out.add(b.Bytes())
		}
		if err != nil {
			return err
		}
		if left -= int64(b.Size()); left <= 0 {
			return nil
		}
	}
	return nil
}

// unchanged ends a segment of which everything stays: it is left as it is, unless its transaction index says more than it
// should.
func (w *rewriter) unchanged() (done bool, err error) {
	all, _, err := w.src.Aborted(0, math.MaxInt64)
	if err != nil {
		return false, err
	}
	if !equalTxns(all, w.kept) {
		return false, w.begin()
	}
	w.r.out.Unchanged++
	w.r.out.After += w.whole
	return true, nil
}

func equalTxns(a, b []segment.AbortedTxn) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// syncDir makes the folder's entries durable, where the file system has a call for it.
func syncDir(fsys vfs.FS, dir string) error {
	if err := fsys.SyncDir(dirName(dir)); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return fmt.Errorf("sync directory %s: %w", dirName(dir), err)
	}
	return nil
}

func dirName(dir string) string {
	if dir == "" {
		return "."
	}
	return dir
}

// removeIfThere is Remove of a file that need not be there.
func removeIfThere(fsys interface{ Remove(string) error }, name string) error {
	if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
