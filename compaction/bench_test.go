package compaction

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/vfs"
)

// BenchmarkCompact cleans 1 M records of 100 k keys and says what copying the same bytes costs on the same disk in the
// same run: MB/s counts the bytes of the log once, floors says how many copies of it take as long.
func BenchmarkCompact(b *testing.B) {
	for _, row := range []struct {
		name    string
		records int
		keys    int64
		value   int
		batch   int
		codec   record.Codec
		exact   bool
	}{
		{"1M_100k_keys_100B", 1_000_000, 100_000, 100, 100, record.None, false},
		{"1M_100k_keys_100B_exact", 1_000_000, 100_000, 100, 100, record.None, true},
		{"1M_100k_keys_1KiB", 1_000_000, 100_000, 1024, 16, record.None, false},
		{"1M_100k_keys_100B_zstd", 1_000_000, 100_000, 100, 100, record.Zstd, false},
		{"1M_100k_keys_100B_lz4", 1_000_000, 100_000, 100, 100, record.LZ4, false},
		{"1M_all_keys_distinct", 1_000_000, 1 << 40, 100, 100, record.None, false},
	} {
		b.Run(row.name, func(b *testing.B) {
			root := b.TempDir()
			fsys, err := vfs.OS(root)
			if err != nil {
				b.Fatal(err)
			}
			var copied, cleaned time.Duration
			var size int64
			for b.Loop() {
				b.StopTimer()
				segs, o, total := benchLog(b, fsys, row.records, row.keys, row.value, row.batch, row.codec)
				size += total
				began := time.Now()
				for _, s := range segs[:len(segs)-1] {
					copyFile(b, root+"/"+s.File(), root+"/copy")
				}
				copied += time.Since(began)
				in := Input{Dir: folder, Options: o, Segments: segs, Now: time.Now(), Config: Config{ExactKeys: row.exact},
					Bounds: Bounds{Uncleanable: segs[len(segs)-1].Base()}}
				b.StartTimer()
				began = time.Now()
				out, err := Run(context.Background(), in)
				cleaned += time.Since(began)
				b.StopTimer()
				if err != nil || out.FirstDirty != in.Bounds.Uncleanable {
					b.Fatal(out, err)
				}
				for _, s := range segs {
					s.Abandon()
				}
				if err := os.RemoveAll(root + "/" + folder); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
			b.ReportMetric(float64(size)/1e6/cleaned.Seconds(), "MB/s")
			b.ReportMetric(float64(size)/1e6/copied.Seconds(), "copy-MB/s")
			b.ReportMetric(cleaned.Seconds()/copied.Seconds(), "floors")
			b.ReportMetric(float64(cleaned.Nanoseconds())/float64(b.N*row.records), "ns/record")
		})
	}
}

func benchLog(b *testing.B, fsys vfs.FS, records int, keys int64, value, batch int, codec record.Codec) ([]*segment.Segment, segment.Options, int64) {
	o := segment.Options{FS: fsys, MaxBytes: 64 << 20}
	if err := fsys.MkdirAll(folder, 0o755); err != nil {
		b.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	builder := record.NewBuilder(record.BuilderOptions{Codec: codec})
	val := make([]byte, value)
	var segs []*segment.Segment
	var total, size int64
	var buf []byte
	flush := func() {
		if len(buf) > 0 {
			if _, err := segs[len(segs)-1].Append(buf); err != nil {
				b.Fatal(err)
			}
			total += int64(len(buf))
			size += int64(len(buf))
			buf = buf[:0]
		}
	}
	roll := func(base int64) {
		flush()
		if n := len(segs); n > 0 {
			if err := segs[n-1].Seal(context.Background()); err != nil {
				b.Fatal(err)
			}
			if err := segs[n-1].Sync(); err != nil {
				b.Fatal(err)
			}
		}
		s, err := segment.Create(folder, base, o)
		if err != nil {
			b.Fatal(err)
		}
		segs, size = append(segs, s), 0
	}
	now := time.Now().UnixMilli()
	for i := 0; i < records; {
		builder.Reset()
		builder.SetBaseOffset(int64(i))
		for j := 0; j < batch && i < records; j++ {
			for k := 0; k+8 <= len(val); k += 8 {
				binary.LittleEndian.PutUint64(val[k:], rnd.Uint64()>>32*uint64(k/8%2))
			}
			k := rnd.Int64N(keys)
			if err := builder.AddAt(record.Record{Offset: int64(i), Timestamp: now, Key: fmt.Appendf(nil, "key-%010d", k), Value: val}); err != nil {
				b.Fatal(err)
			}
			i++
		}
		out, err := builder.Finish()
		if err != nil {
			b.Fatal(err)
		}
		if len(segs) == 0 || size+int64(len(buf)+out.Size()) > o.MaxBytes {
			roll(out.BaseOffset())
		}
		if buf = append(buf, out.Bytes()...); len(buf) > 1<<20 {
			flush()
		}
	}
	roll(int64(records))
	return segs, o, total
}

// copyFile is the floor: read, write, sync.
func copyFile(b *testing.B, from, to string) {
	src, err := os.Open(from)
	if err != nil {
		b.Fatal(err)
	}
	defer src.Close()
	dst, err := os.Create(to)
	if err != nil {
		b.Fatal(err)
	}
	defer dst.Close()
	buf := make([]byte, 1<<20)
	if _, err := io.CopyBuffer(struct{ io.Writer }{dst}, struct{ io.Reader }{src}, buf); err != nil {
		b.Fatal(err)
	}
	if err := dst.Sync(); err != nil {
		b.Fatal(err)
	}
}
