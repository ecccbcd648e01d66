package compaction

import (
	"context"
	"testing"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/vfs"
)

// Whatever the bytes of a segment are, cleaning ends, with an error or with a log that is still in order.
func FuzzCleaningOfAnyBytes(f *testing.F) {
	f.Add(append(plain(0, "a=1", "b"), plain(2, "a=2")...), int64(0))
	f.Add(append(tx(1, 0, 0, "a=1"), end(false, 1, 1)...), int64(1))
	f.Add(batchOf(0, record.BuilderOptions{Codec: record.LZ4}, "a=1", "a=2"), int64(0))
	f.Add(wrapper(1, 1, 0, 0, entryAt(1, 0, 0, 0, "a=1"), entryAt(1, 1, 0, 0, "a=2")), int64(0))
	f.Add(badBatch(0, func(b []byte) { b[61] = 0x7e }), int64(0))
	f.Fuzz(func(t *testing.T, raw []byte, dirty int64) {
		fsys := vfs.Mem()
		if err := fsys.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		o := segment.Options{FS: fsys}
		if len(raw) > 1<<16 {
			return
		}
		// Checksums are made right where they can be, so that what is behind them is reached.
		for rest := raw; len(rest) > 0; {
			b, after, err := record.Next(rest)
			if err != nil {
				break
			}
			if b.Magic() == 2 {
				b.SetAppendTime(b.MaxTimestamp() ^ 1)
			}
			rest = after
		}
		file := must(fsys.OpenFile(fileName(folder, 0, ".log", ""), 0x42, 0o644))
		must(file.WriteAt(raw, 0))
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
		last := must(segment.Create(folder, 1<<40, o))
		defer last.Abandon()
		first, err := segment.Open(folder, 0, o)
		if err != nil {
			return
		}
		defer first.Abandon()
		_, err = Run(context.Background(), Input{Dir: folder, Options: o, Segments: []*segment.Segment{first, last}, Now: at0,
			Bounds: Bounds{FirstDirty: max(dirty, 0), Uncleanable: 1 << 40}, Producers: map[int64]LastBatch{1: {Offset: 1}}})
		if err != nil {
			return
		}
		for _, base := range must(segment.List(fsys, folder)) {
			s := must(segment.Open(folder, base, o))
			for _, err := range s.Batches(0) {
				if err != nil {
					t.Fatal(err)
				}
			}
			s.Abandon()
		}
	})
}
