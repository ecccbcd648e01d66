package log

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// kept is a record as a reader finds it. Values are told apart by a number in them, no two are the same.
type kept struct {
	offset     int64
	key, value string // value "" is a tombstone
}

// life is what there is of a partition at one moment. It is never changed.
type life struct {
	root  string // which one has it
	start int64
	end   int64
	floor int64   // everything below was said to be on the device
	ends  []int64 // where the log may end: batches do, segments begin
	recs  []kept  // from start to end
}

// find is the place of an offset in recs.
func (f *life) find(offset int64) (int, bool) {
	return slices.BinarySearchFunc(f.recs, offset, func(r kept, o int64) int { return int(r.offset - o) })
}

func (f *life) has(offset int64) bool {
	_, ok := f.find(offset)
	return ok
}

// within are the records of [start, end).
func (f *life) within(start, end int64) []kept {
	lo, _ := f.find(start)
	hi, _ := f.find(end)
	return f.recs[min(lo, hi):hi]
}

// aborted: the value of a record whose transaction was aborted; a compaction may drop it, whatever its key.
const aborted = "aborted"

// tableOf is what a reader makes of records: the last value of each key.
func tableOf(recs []kept) map[string]string {
	m := map[string]string{}
	for _, r := range recs {
		switch {
		case strings.HasPrefix(r.value, aborted):
		case r.value == "":
			delete(m, r.key)
		default:
			m[r.key] = r.value
		}
	}
	return m
}

func (f *life) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "in %s, [%d, %d), durable below %d:", f.root, f.start, f.end, f.floor)
	for _, r := range f.recs {
		fmt.Fprintf(&b, " %d:%s=%s", r.offset, r.key, r.value)
	}
	return b.String()
}

// lives are all partitions of all roots that are open.
type lives map[TopicPartition]*life

// change is one call: what was there when it began, and what is there when it has returned. A crash between leaves either
// of it, or, where several files change, what lies between; see between.
type change struct {
	call    string
	was, is lives            // is: nil until it has returned
	backups map[string]lives // that must be there: by root
	made    map[string]lives // that may be there, and are there when it has returned
}

// moment is what is noted into the record of the disk.
type moment struct {
	*change
	over bool // the call has returned
	// settled: the groups of a compaction below that offset were swapped for good.
	settled map[TopicPartition]int64
}

func (m *moment) String() string {
	return fmt.Sprintf("%s, returned %v, swapped for good %v", m.call, m.over, m.settled)
}

// describe is for a failing test.
func (m *moment) describe() string {
	var b strings.Builder
	b.WriteString(m.String() + "\n")
	for _, list := range []lives{m.was, m.is} {
		for _, tp := range slices.SortedFunc(maps.Keys(list), TopicPartition.compare) {
			fmt.Fprintf(&b, "  %v %v\n", tp, list[tp])
		}
		b.WriteString("and then\n")
	}
	return b.String()
}

// between says whether found is a state that a crash may leave of a change from was to is:
//
//	log start   from the old one to the new one
//	log end     where a batch ended, nothing that is durable lost; what is cut is cut
//	records     what neither of the two lacks is there; of what only the old one has (superseded records, those that a
//	            compaction drops) some may still be there: all above some offset, which is not below settled
//
// The last line is Kafka's swap: groups of segments change places one after the other, the lowest first; and within the one
// that a crash interrupts, the new segment may end below old ones that it stands for, which settling cannot know: these come
// back, whole. What was swapped for good never does.
func between(was, is *life, settled int64, found *life) error {
	if found.start < was.start || found.start > is.start {
		return fmt.Errorf("it starts at %d", found.start)
	}
	floor := min(was.floor, is.end) // a truncation takes durable records
	if is.start > was.start && found.start == found.end && len(found.recs) == 0 && found.end > floor {
		return nil // what lay below the start was lost before the start rose above it
	}
	switch {
	case found.end < floor:
		return fmt.Errorf("it ends at %d: durable records are lost", found.end)
	case found.end > max(was.end, is.end):
		return fmt.Errorf("it ends at %d", found.end)
	case !slices.Contains(was.ends, found.end) && !slices.Contains(is.ends, found.end):
		return fmt.Errorf("it ends at %d, where no batch ended", found.end)
	}
	must, may := map[int64]kept{}, map[int64]kept{}
	for _, r := range was.within(found.start, found.end) {
		if is.has(r.offset) || r.offset >= is.end {
			must[r.offset] = r
		} else {
			may[r.offset] = r
		}
	}
	for _, r := range is.within(found.start, found.end) {
		if r.offset >= was.end {
			must[r.offset] = r
		} else if !was.has(r.offset) {
			return fmt.Errorf("the model has record %d come from nowhere", r.offset)
		}
	}
	gone := settled // below that nothing may have come back
	for offset := range may {
		if !found.has(offset) {
			gone = max(gone, offset+1)
		}
	}
	for _, r := range found.recs {
		want, ok := must[r.offset]
		if !ok {
			if want, ok = may[r.offset]; ok && r.offset < gone {
				return fmt.Errorf("record %d=%s was compacted away, and is back", r.offset, r.value)
			}
		}
		if !ok || r != want {
			return fmt.Errorf("record %v was never there, want %v", r, want)
		}
		delete(must, r.offset)
	}
	for _, r := range must {
		return fmt.Errorf("record %v is lost", r)
	}
	if want, got := tableOf(was.within(found.start, min(found.end, was.end))), tableOf(found.within(found.start, was.end)); found.end <= is.end && !maps.Equal(want, got) {
		return fmt.Errorf("the last values are %v, want %v", got, want)
	}
	return nil
}
