package vfstest

import (
	"sync"
	"time"

	"github.com/partlog/partlog/vfs"
)

// Always as Rule.Times makes a rule act on every matching call from the n-th on.
const Always = -1

// Rule says which calls are disturbed and how. Matching calls are counted; those from the Nth on, Times of them, are
// disturbed. The steps happen in this order: Hook, Delay, Block, then the failure.
type Rule struct {
	Ops  []Kind // kinds of calls; none = all
	Name string // pattern of names as in Op.Match; "" = all
	// Nth is the first matching call that is disturbed, counted from 1 since the rule was added; 0 = the first.
	Nth int
	// Times is how many calls are disturbed; 0 = one, Always = all from the Nth on.
	Times int

	// Hook runs before the call, outside every lock; it may use the file system itself. An error of it ends the call
	// with that error.
	Hook func(Op) error
	// Delay is waited before the call.
	Delay time.Duration
	// Block is received from before the call: close the channel, or send to it, to let the call go on.
	Block <-chan struct{}

	// Err is what the call returns, as it stands (wrap it in *fs.PathError if the code under test looks for one). Nil:
	// the call goes on undisturbed after the steps above.
	Err error
	// Short makes a read or write really move its first Keep bytes (all if it has fewer) before it returns Err. With
	// Err nil the count is short and the error io.EOF for a read, io.ErrShortWrite for a write.
	Short bool
	Keep  int
	// Done carries the call out in full before it returns Err, like an answer that got lost.
	Done bool
	// LosePages turns a failed Sync or SyncData into the failure Linux has: the dirty pages of the file count as clean
	// and read back as written until Evict, but the device did not get them; the length did reach it, and the next sync
	// succeeds. It needs a Crash below (Trace and Fault may lie between); over anything else it changes nothing.
	LosePages bool
	// Lost chooses the pages (file offset / PageSize) that LosePages loses; the others reach the device. Nil = all.
	Lost func(page int64) bool
}

// Fault is an FS that disturbs the calls its rules match. All methods are safe for concurrent use.
type Fault struct {
	inner vfs.FS

	mu     sync.Mutex // guards all below; nothing is called under it
	rules  []*ruleState
	counts [lastKind]int
	quota  int64 // bytes that may still be written; < 0 none
}

var _ vfs.FS = (*Fault)(nil)

type ruleState struct {
	Rule
	seen, hits int
}

// NewFault wraps fsys with the given rules and no quota.
func NewFault(fsys vfs.FS, rules ...Rule) *Fault {
	f := &Fault{inner: fsys, quota: -1}
	for _, r := range rules {
		f.Add(r)
	}
	return f
}

// Add adds a rule behind the others: of several that match and are due, the first acts, but all count the call. Hits
// says how many calls the rule has disturbed so far; Remove ends it.
func (f *Fault) Add(r Rule) (hits func() int, remove func()) {
	s := &ruleState{Rule: r}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = append(f.rules, s)
	hits = func() int {
		f.mu.Lock()
		defer f.mu.Unlock()
		return s.hits
	}
	remove = func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		for i, o := range f.rules {
			if o == s {
				f.rules = append(f.rules[:i:i], f.rules[i+1:]...)
				return
			}
		}
	}
	return hits, remove
}

// Clear removes every rule and the quota. Calls that wait in Block go on waiting.
func (f *Fault) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules, f.quota = nil, -1
}

// SetQuota lets n more bytes be written by WriteAt; then the disk is full: a write moves what still fits and returns
// ENOSPC, Allocate returns ENOSPC, Free says what is left. Overwriting counts, removing gives nothing back: call
// SetQuota again for that. n < 0 ends the quota.
func (f *Fault) SetQuota(n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.quota = max(n, -1)
}

// Count is how many calls of the given kinds (none = all) came in, disturbed or not.
func (f *Fault) Count(kinds ...Kind) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for k := range lastKind {
		if matchKind(k, kinds) {
			n += f.counts[k]
		}
	}
	return n
}

// due counts the call and returns the rule that disturbs it, if any.
func (f *Fault) due(op Op) (Rule, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts[op.Kind]++
	var acts *ruleState
	for _, s := range f.rules {
		if !op.Match(s.Name, s.Ops...) {
			continue
		}
		s.seen++
		first, times := max(s.Nth, 1), s.Times
		if times == 0 {
			times = 1
		}
		if acts == nil && s.seen >= first && (times < 0 || s.seen < first+times) {
			acts = s
		}
	}
	if acts == nil {
		return Rule{}, false
	}
	acts.hits++
	return acts.Rule, true
}

// do runs one call that has no bytes to shorten.
func (f *Fault) do(op Op, call func() error) error {
	r, ok := f.due(op)
	if !ok {
		return call()
	}
	if err := r.wait(op); err != nil {
		return err
	}
	if r.Err == nil {
		return call()
	}
	if r.Done {
		if err := call(); err != nil {
			return err
		}
	}
	return r.Err
}

func (r *Rule) wait(op Op) error {
	if r.Hook != nil {
		if err := r.Hook(op); err != nil {
			return err
		}
	}
	if r.Delay > 0 {
		time.Sleep(r.Delay)
	}
	if r.Block != nil {
		<-r.Block
	}
	return nil
}

// move runs a read or write: call gets the bytes it may move, short is the error of a short count without Err.
func (f *Fault) move(op Op, p []byte, call func([]byte) (int, error), short error) (int, error) {
	r, ok := f.due(op)
	if !ok {
		return call(p)
	}
	if err := r.wait(op); err != nil {
		return 0, err
	}
	failure := r.Err
	switch {
	case r.Short:
		if failure == nil {
			if len(p) <= r.Keep {
				return call(p)
			}
			failure = short
		}
		p = p[:min(max(r.Keep, 0), len(p))]
	case failure == nil:
		return call(p)
	case !r.Done:
		return 0, failure
	}
	n := 0
	if len(p) > 0 {
		var err error
		if n, err = call(p); err != nil {
			return n, err
		}
	}
	return n, failure
}

// take reserves up to n bytes of the quota.
func (f *Fault) take(n int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.quota < 0 {
		return n
	}
	n = int(min(int64(n), f.quota))
	f.quota -= int64(n)
	return n
}

func (f *Fault) left() (int64, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.quota, f.quota >= 0
}

// losePages makes the dirty pages below file count as clean, if there is a Crash below.
func losePages(file vfs.File, lost func(page int64) bool) bool {
	if l, ok := file.(interface {
		losePages(func(page int64) bool) bool
	}); ok {
		return l.losePages(lost)
	}
	return false
}
