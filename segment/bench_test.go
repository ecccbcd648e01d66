package segment

import (
	"fmt"
	"math"
	"os"
	"testing"

	"github.com/partlog/partlog/record"
)

// BenchmarkAppend against BenchmarkBarePwrite: what the segment costs beside the write it must make.
func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{1 << 10, 16 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			fsys := osFS(b)
			raw := batchOf(b, 0, 1, 1, string(noise(size)))
			v, _ := record.View(raw)
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			next, base := int64(0), int64(0)
			s, err := Create(dir, base, Options{FS: fsys})
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if s.Size() > 256<<20 { // stay within the page cache
					b.StopTimer()
					if err := s.Delete(); err != nil {
						b.Fatal(err)
					}
					s.Abandon()
					base = next
					if s, err = Create(dir, base, Options{FS: fsys}); err != nil {
						b.Fatal(err)
					}
					b.StartTimer()
				}
				v.SetBaseOffset(next)
				next++
				if _, err := s.Append(raw); err != nil {
					b.Fatal(err)
				}
			}
			s.Abandon()
		})
	}
}

func BenchmarkBarePwrite(b *testing.B) {
	for _, size := range []int{1 << 10, 16 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			f, err := os.CreateTemp(b.TempDir(), "")
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			raw := batchOf(b, 0, 1, 1, string(noise(size)))
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			off := int64(0)
			for b.Loop() {
				if off > 256<<20 {
					b.StopTimer()
					if err := f.Truncate(0); err != nil {
						b.Fatal(err)
					}
					off = 0
					b.StartTimer()
				}
				if _, err := f.WriteAt(raw, off); err != nil {
					b.Fatal(err)
				}
				off += int64(len(raw))
			}
		})
	}
}

// sealed64 is a sealed segment of 64 MiB in batches of 16 KiB.
func sealed64(b *testing.B) *Segment {
	s := create(b, 0, Options{FS: osFS(b)})
	raw := batchOf(b, 0, 1, 1, string(noise(16<<10)))
	v, _ := record.View(raw)
	for i := int64(0); s.Size() < 64<<20; i++ {
		v.SetBaseOffset(i)
		add(b, s, raw)
	}
	if err := s.Seal(ctx); err != nil {
		b.Fatal(err)
	}
	return s
}

func BenchmarkBatches(b *testing.B) {
	s := sealed64(b)
	b.SetBytes(s.Size())
	b.ReportAllocs()
	for b.Loop() {
		for _, err := range s.Batches(0) {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
}

func BenchmarkBarePread(b *testing.B) {
	s := sealed64(b)
	h, err := s.acquire()
	if err != nil {
		b.Fatal(err)
	}
	defer h.release()
	buf := make([]byte, readBuffer)
	b.SetBytes(s.Size())
	for b.Loop() {
		for off := int64(0); off < s.Size(); off += readBuffer {
			if _, err := readFull(h, buf, off); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func BenchmarkRecover(b *testing.B) {
	s := sealed64(b)
	b.SetBytes(s.Size())
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Recover(ctx, ScanOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFind(b *testing.B) {
	s := sealed64(b)
	n := s.Info().NextOffset
	b.ReportAllocs()
	for i := int64(0); b.Loop(); i++ {
		if _, err := s.Find(i * 7919 % n); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRegion(b *testing.B) {
	s := sealed64(b)
	b.ReportAllocs()
	for b.Loop() {
		r, err := s.Region(1234, 1<<20, math.MaxInt64, true)
		if err != nil {
			b.Fatal(err)
		}
		r.Close()
	}
}

// BenchmarkProbe is the search for good batches behind a tail of zeros, per byte of tail.
func BenchmarkProbe(b *testing.B) {
	o := Options{FS: memFS(b)}
	raw := append(one(b, 0), make([]byte, 16<<20)...)
	setBytes(b, o.FS, file(0, ".log"), raw)
	s := open(b, 0, o)
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		if scan, err := s.Scan(ctx, ScanOptions{}); err != nil || scan.Verdict != Torn {
			b.Fatal(scan, err)
		}
	}
}
