package compaction

import (
	"github.com/partlog/partlog/index"
	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/timeindex"
)

// Measure collects the facts that Plan needs with this Config, and does no I/O that it can do without: timestamps are
// looked up only for the lags that are set (the last entry of the time index, the first header of the log, once in the life
// of a Segment), sizes of indexes only if groups asks for them, which opens the indexes nobody has used yet.
func (c Config) Measure(segs []*segment.Segment, groups bool) ([]Fact, error) {
	c = c.withDefaults()
	facts := make([]Fact, len(segs))
	for i, s := range segs {
		f := &facts[i]
		*f = Fact{Base: s.Base(), Bytes: s.Size(), LargestTimestamp: -1, FirstTimestamp: -1}
		var err error
		if c.MinLag > 0 {
			if f.LargestTimestamp, _, err = s.LargestTimestamp(); err != nil {
				return nil, err
			}
		}
		if c.MaxLag >= 0 {
			if f.FirstTimestamp, err = s.FirstTimestamp(); err != nil {
				return nil, err
			}
		}
		if groups {
			info := s.Info()
			f.IndexBytes = int64(info.IndexEntries) * index.EntrySize
			f.TimeIndexBytes = int64(info.TimeIndexEntries) * timeindex.EntrySize
		}
	}
	return facts, nil
}
