package replica

// worker is a goroutine of a pool.
type worker struct {
	next chan task // of capacity 1, while it rests; nil ends it
	then *runner   // lent: what it runs now has woken this one, and it is next
}

// takeUp has r, which what runs now has just woken, run next on the same goroutine: it is called while messages are handed over
// within a process, and saves waking another goroutine. False if that cannot be.
func (w *worker) takeUp(r *runner) bool {
	if w == nil || w.then != nil || !r.node.fast.lend() {
		return false
	}
	w.then = r
	return true
}

// letGo has others run what was taken up: what runs now may wait for a disk before it ends, and no replica waits for another's disk.
func (w *worker) letGo() {
	if w != nil && w.then != nil {
		r := w.then
		w.then = nil
		r.node.fast.pass(r)
	}
}
