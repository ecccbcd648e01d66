package compaction_test

import (
	"context"
	"fmt"
	"time"

	"github.com/partlog/partlog/compaction"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/vfs"
)

// fill makes a segment of one batch with a record for each pair of key and value.
func fill(o segment.Options, base int64, pairs ...string) *segment.Segment {
	s, err := segment.Create("prices-0", base, o)
	if err != nil {
		panic(err)
	}
	b := record.NewBuilder(record.BuilderOptions{})
	b.SetBaseOffset(base)
	for i := 0; i < len(pairs); i += 2 {
		b.AddAt(record.Record{Offset: base + int64(i/2), Timestamp: 1_700_000_000_000, Key: []byte(pairs[i]), Value: []byte(pairs[i+1])})
	}
	batch, err := b.Finish()
	if err != nil {
		panic(err)
	}
	if _, err := s.Append(batch.Bytes()); err != nil {
		panic(err)
	}
	return s
}

// A folder that nobody else has open is cleaned up to its active segment.
func ExampleRun() {
	fsys := vfs.Mem()
	fsys.MkdirAll("prices-0", 0o755)
	o := segment.Options{FS: fsys}
	segs := []*segment.Segment{
		fill(o, 0, "tea", "3.10", "milk", "0.99"),
		fill(o, 2, "tea", "3.25", "bread", "2.00"),
		fill(o, 4, "milk", "1.05"), // active: stays as it is
	}
	out, err := compaction.Run(context.Background(), compaction.Input{
		Dir: "prices-0", Options: o, Segments: segs, Now: time.Now(),
		Bounds: compaction.Bounds{FirstDirty: 0, Uncleanable: segs[2].Base()},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("clean below", out.FirstDirty, "superseded", out.Superseded)

	bases, _ := segment.List(fsys, "prices-0")
	for _, base := range bases {
		s, err := segment.Open("prices-0", base, o)
		if err != nil {
			fmt.Println(err)
			return
		}
		for b := range s.Batches(0) {
			for r := range b.Records(nil) {
				fmt.Println(r.Offset, string(r.Key), string(r.Value))
			}
		}
		s.Close()
	}
	// Output:
	// clean below 4 superseded 1
	// 1 milk 0.99
	// 2 tea 3.25
	// 3 bread 2.00
	// 4 milk 1.05
}

// Whether a log is worth cleaning, and what would be read and written, costs no look at its records.
func ExampleConfig_Plan() {
	checkpoint := int64(200)
	state := compaction.State{
		Checkpoint: &checkpoint, LogEnd: 1000, LastStable: 950,
		Segments: []compaction.Fact{
			{Base: 0, Bytes: 10 << 20}, {Base: 200, Bytes: 60 << 20}, {Base: 600, Bytes: 50 << 20}, {Base: 900, Bytes: 1 << 20},
		},
	}
	p := compaction.Config{}.Plan(state, compaction.GroupLimits{SegmentBytes: 100 << 20}, time.Now())
	fmt.Printf("offsets %d to %d, held by the %v\n", p.FirstDirty, p.Uncleanable, p.Hold)
	fmt.Printf("dirty %.0f%%, due %v\n", 100*p.DirtyRatio, p.Due)
	for _, g := range p.Groups {
		fmt.Printf("segments %d to %d become one of at most %d MiB\n", g.First, g.Last, g.Bytes>>20)
	}
	// Output:
	// offsets 200 to 900, held by the active segment
	// dirty 92%, due true
	// segments 0 to 1 become one of at most 70 MiB
	// segments 2 to 2 become one of at most 50 MiB
}
