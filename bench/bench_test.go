package main

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// BenchmarkRows runs every row of the table: ns/op is one round of both sides, x-floor the median of ours/floor.
func BenchmarkRows(b *testing.B) {
	f, err := newFixtures(os.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { f.remove() })
	for _, r := range rows() {
		b.Run(r.name, func(b *testing.B) {
			p, err := r.make(f)
			if err != nil {
				b.Fatal(err)
			}
			if p.close != nil {
				defer p.close()
			}
			if err := p.calibrate(); err != nil {
				b.Fatal(err)
			}
			var s samples
			for b.Loop() {
				if err := p.round(&s); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(median(s.floor)), "floor-ns")
			b.ReportMetric(float64(median(s.ours)), "ours-ns")
			b.ReportMetric(median(s.ratios), "x-floor")
			b.ReportMetric(s.allocs, "allocs")
		})
	}
}

// A thousand closed segments must cost next to nothing while they lie idle, and little once all were read: then files and
// mappings are open, as many as the budgets allow.
func TestAnOpenLogOfAThousandSegmentsKeepsLessThanTwoMegabytes(t *testing.T) {
	f, err := newFixtures(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for read, most := range map[bool]int64{false: 2 << 20, true: 4 << 20} {
		bytes, err := heapOfOpenLog(f, 1000, read)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d bytes, read: %v", bytes, read)
		if bytes >= most {
			t.Errorf("%d bytes on the heap, read: %v", bytes, read)
		}
	}
}

// A compaction takes its map and a few buffers, however large the log is.
func TestACompactionKeepsToItsMemory(t *testing.T) {
	f, err := newFixtures(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	from, err := f.dirtyLog()
	if err != nil {
		t.Fatal(err)
	}
	_, memory, err := f.compactOnce(from)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes", memory)
	if memory > mostCleanMemory {
		t.Errorf("%d bytes on the heap", memory)
	}
}

// Every row runs, and the table prints; what it says of speed is no business of a test.
func TestEveryRowRunsAndAppendsAllocateNothing(t *testing.T) {
	f, err := newFixtures(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows() {
		t.Run(r.name, func(t *testing.T) {
			s, err := r.run(f, 1)
			if err != nil {
				t.Fatal(err)
			}
			if r.noAlloc && s.allocs >= 0.5 && !raceEnabled {
				t.Errorf("%.2f allocations", s.allocs)
			}
		})
	}
}

func TestVerdictsReadAsTheTargets(t *testing.T) {
	s := samples{floor: []time.Duration{10, 10, 10}, ours: []time.Duration{15, 20, 25}, ratios: []float64{1.5, 2, 2.5}}
	for _, c := range []struct {
		row    row
		target string
		met    bool
	}{
		{row{atMost: 2}, "<= 2.0x", true},
		{row{atMost: 1.9}, "<= 1.9x", false},
		{row{atLeast: 0.5}, ">= 0.5x rate", true},
		{row{atLeast: 0.6}, ">= 0.6x rate", false},
		{row{within: 20}, "<= 20ns", true},
		{row{within: 19}, "<= 19ns", false},
		{row{}, "", true},
	} {
		target, met := c.row.verdict(&s)
		if target != c.target || met != c.met {
			t.Errorf("%+v: %q, %v", c.row, target, met)
		}
	}
	if got := fmt.Sprint(short(1234567 * time.Nanosecond)); got != "1.23ms" {
		t.Error(got)
	}
}
