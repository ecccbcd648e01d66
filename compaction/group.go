package compaction

import "math"

// GroupLimits bound the sum of the segments that become one. 0 = Kafka's defaults.
type GroupLimits struct {
	SegmentBytes int64 // segment.bytes; 0 = 1 GiB
	IndexBytes   int64 // segment.index.bytes, for each of both indexes; 0 = 10 MiB
}

func (l GroupLimits) withDefaults() GroupLimits {
	if l.SegmentBytes == 0 {
		l.SegmentBytes = 1 << 30
	}
	if l.IndexBytes == 0 {
		l.IndexBytes = 10 << 20
	}
	return l
}

// groups cuts the segments below end into runs that become one segment each: the sum of their logs and of each of their
// indexes stays within the limits, and the offsets within what an index can tell from the first base. A segment too
// large for that is a group of its own.
func groups(segs []Fact, end, uncleanable int64, l GroupLimits) (out []Range) {
	l = l.withDefaults()
	n := 0
	for n < len(segs) && segs[n].Base < end {
		n++
	}
	lastOf := func(i int) int64 { // as far as it can be known without reading
		if i+1 < n {
			return segs[i+1].Base - 1
		}
		return uncleanable - 1
	}
	for i := 0; i < n; {
		r := Range{First: i, Last: i, Base: segs[i].Base, Bytes: segs[i].Bytes}
		index, time := segs[i].IndexBytes, segs[i].TimeIndexBytes
		for i++; i < n; i++ {
			f := segs[i]
			if r.Bytes+f.Bytes > l.SegmentBytes || index+f.IndexBytes > l.IndexBytes || time+f.TimeIndexBytes > l.IndexBytes {
				break
			}
			if f.Bytes > 0 && lastOf(i)-r.Base > math.MaxInt32 {
				break
			}
			r.Last = i
			r.Bytes += f.Bytes
			index += f.IndexBytes
			time += f.TimeIndexBytes
		}
		out = append(out, r)
	}
	return out
}
