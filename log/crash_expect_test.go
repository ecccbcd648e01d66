package log

import (
	"fmt"
	"slices"
	"strings"
)

// wrote is one batch as the workload handed it in.
type wrote struct {
	base, last int64
	epoch      int32
	time       int64
	value      string // of every record
	gap        bool   // there is nothing, and yet the log goes on behind it
}

// expect says what a crash at this moment may leave. It is noted into the record of the crashing disk whenever a call
// begins (wider: the call may or may not have happened) and when it has returned (narrower).
type expect struct {
	call    string
	base    int64   // first offset of this line of history
	line    []wrote // what was written on it, oldest first; a crash keeps a prefix
	floor   int64   // everything below was said to be on the device
	starts  []int64 // log starts that may be found
	empties []int64 // an empty log may also be found that begins here
	sparse  int     // index entries that may be missing: the first append behind each open and truncation makes none
}

func (e *expect) end() int64 {
	if len(e.line) == 0 {
		return e.base
	}
	return e.line[len(e.line)-1].last + 1
}

func (e *expect) clone() *expect {
	c := *e
	c.line, c.starts, c.empties = slices.Clip(e.line), slices.Clone(e.starts), slices.Clone(e.empties)
	return &c
}

// cut is where a truncation to offset ends the line: before the batch that holds it.
func (e *expect) cut(offset int64) (end int64, line []wrote) {
	for i, w := range e.line {
		if w.last >= offset {
			return min(offset, w.base), slices.Clip(e.line[:i])
		}
	}
	return e.end(), e.line
}

// part makes two gaps of one that offset lies inside: a truncation may end the line there.
func (e *expect) part(offset int64) {
	for i, w := range e.line {
		if w.gap && w.base < offset && offset <= w.last {
			below, above := w, w
			below.last, above.base = offset-1, offset
			e.line = slices.Replace(slices.Clone(e.line), i, i+1, below, above)
			return
		}
	}
}

// lowest is where a log with this line may end while a truncation is at work that keeps the gap at its end.
func lowest(line []wrote, end int64) int64 {
	for i := len(line) - 1; i >= 0 && line[i].gap; i-- {
		end = line[i].base
	}
	return end
}

// key tells expectations apart.
func (e *expect) key() uint64 {
	h := uint64(14695981039346656037)
	add := func(v int64) { h = (h ^ uint64(v)) * 1099511628211 }
	add(e.base)
	add(e.floor)
	for _, w := range e.line {
		add(w.base)
		add(w.last)
		add(int64(w.epoch))
		add(w.time)
	}
	for _, s := range e.starts {
		add(s)
	}
	for _, s := range e.empties {
		add(s)
	}
	return h
}

func (e *expect) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "expected (%s): starts %v, durable below %d, empty at %v, line from %d:", e.call, e.starts, e.floor, e.empties, e.base)
	for _, w := range e.line {
		fmt.Fprintf(&b, " %d-%d(e%d)", w.base, w.last, w.epoch)
	}
	return b.String()
}

// admits compares what a recovered log says of itself and holds with the expectation.
func (e *expect) admits(o Offsets, found []wrote, epochs []EpochEntry) error {
	if o.LogStart > o.HighWatermark || o.HighWatermark > o.LogEnd || o.Durable > o.LogEnd || o.RecoveryPoint > o.LogEnd {
		return fmt.Errorf("marks do not agree: %+v", o)
	}
	empty := o.LogStart == o.LogEnd && len(found) == 0 && slices.Contains(e.empties, o.LogEnd)
	if !empty && !slices.Contains(e.starts, o.LogStart) {
		return fmt.Errorf("the log starts at %d", o.LogStart)
	}
	if err := epochsMatch(o, found, epochs, len(e.line) > 0); err != nil || empty {
		return err
	}
	if o.LogStart == o.LogEnd && o.LogEnd > e.floor && len(found) == 0 {
		return nil // everything below the start was lost before the start rose above it
	}
	if o.LogEnd < e.floor {
		return fmt.Errorf("the log ends at %d: durable records are lost", o.LogEnd)
	}
	return e.prefix(o, found)
}

func (e *expect) prefix(o Offsets, found []wrote) error {
	if o.LogEnd == e.base && len(found) == 0 {
		return nil
	}
	for i, w := range e.line {
		if w.last+1 != o.LogEnd {
			continue
		}
		first := 0
		for first <= i && e.line[first].last < o.LogStart {
			first++
		}
		want := slices.DeleteFunc(slices.Clone(e.line[first:i+1]), func(w wrote) bool { return w.gap })
		if !slices.Equal(want, found) {
			return fmt.Errorf("records %v, want %v", found, want)
		}
		return nil
	}
	return fmt.Errorf("the log ends at %d, where no batch ended", o.LogEnd)
}

// epochsMatch compares the epoch cache with a scan of the surviving batches. Where all records were deleted the cache may
// still know the epoch of the last one (Kafka keeps it at the log start), unless it went with the file that held them.
func epochsMatch(o Offsets, found []wrote, epochs []EpochEntry, had bool) error {
	if len(found) == 0 && len(epochs) == 1 && had && epochs[0].Start == o.LogEnd {
		return nil
	}
	var want []EpochEntry
	next := o.LogStart
	gap := func(to int64) { // in one epochs may begin that have no record
		for _, e := range epochs[min(len(want), len(epochs)):] {
			if e.Start >= next && e.Start < to {
				want = append(want, e)
			}
		}
		next = to
	}
	for _, w := range found {
		gap(w.base)
		if len(want) == 0 || w.epoch > want[len(want)-1].Epoch {
			want = append(want, EpochEntry{Epoch: w.epoch, Start: max(w.base, o.LogStart)})
		}
		next = w.last + 1
	}
	gap(o.LogEnd)
	if !slices.Equal(want, epochs) {
		return fmt.Errorf("epochs %v, the batches say %v", epochs, want)
	}
	return nil
}
