// Command bench prints what the library costs beside the physical floor of the same work, measured in turns in the same
// run: a bare pwrite, a bare pread, a bare fdatasync, the compressor alone.
//
//	go run .                    the table
//	go run . -run append        some rows
//	go test -bench .            the same rows as Go benchmarks; x-floor is the ratio
//	go test .                   the gates: allocations, memory, system calls
//
// Quote ratios, not times: machines differ and drift, the ratio of a round was taken on one machine within some
// hundredths of a second.
package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"text/tabwriter"
	"time"
)

func main() {
	only := flag.String("run", "", "regular expression: rows to run")
	rounds := flag.Int("rounds", 21, "rounds of each row")
	dir := flag.String("dir", os.TempDir(), "where to write: a folder on the device to be measured")
	flag.Parse()
	if err := table(*only, *rounds, *dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// table runs the rows and prints one line each.
func table(only string, rounds int, dir string) error {
	want, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	f, err := newFixtures(dir)
	if err != nil {
		return err
	}
	defer f.remove()
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "row\tfloor\tfloor takes\tours takes\tratio\tallocs\ttarget\t")
	for _, r := range rows() {
		if !want.MatchString(r.name) {
			continue
		}
		s, err := r.run(f, rounds)
		if err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		target, met := r.verdict(s)
		if !met {
			target += " MISSED"
		}
		fmt.Fprintf(w, "%s\t%s\t%v\t%v\t%s\t%.1f\t%s\t\n", r.name, r.floor, short(median(s.floor)), short(median(s.ours)), r.ratio(s), s.allocs, target)
	}
	if want.MatchString(heapRow) {
		opened, err := heapOfOpenLog(f, 1000, false)
		if err != nil {
			return err
		}
		read, err := heapOfOpenLog(f, 1000, true)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%s\t\t\t%d KiB\t\t\t< 2048 KiB\t\n", heapRow, opened>>10)
		fmt.Fprintf(w, "%s, all read\t\t\t%d KiB\t\t\t\t\n", heapRow, read>>10)
	}
	if want.MatchString(cleanMemoryRow) {
		from, err := f.dirtyLog()
		if err != nil {
			return err
		}
		_, memory, err := f.compactOnce(from)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%s\t\t\t%d KiB\t\t\t< %d KiB\t\n", cleanMemoryRow, memory>>10, mostCleanMemory>>10)
	}
	return w.Flush()
}

// ratio is printed the way the target reads.
func (r *row) ratio(s *samples) string {
	if r.atLeast > 0 {
		return fmt.Sprintf("%.2fx rate", 1/median(s.ratios))
	}
	if s.bytes > 0 {
		return fmt.Sprintf("%.2fx, %.0f MB/s", median(s.ratios), s.rate())
	}
	return fmt.Sprintf("%.2fx", median(s.ratios))
}

func (r *row) run(f *fixtures, rounds int) (_ *samples, err error) {
	p, err := r.make(f)
	if err != nil {
		return nil, err
	}
	defer func() {
		if p.close != nil {
			if e := p.close(); err == nil {
				err = e
			}
		}
	}()
	if err := p.calibrate(); err != nil {
		return nil, err
	}
	if r.rounds > 0 {
		rounds = min(rounds, r.rounds)
	}
	s, warm := samples{bytes: p.bytes}, samples{}
	if err := p.round(&warm); err != nil {
		return nil, err
	}
	for range rounds {
		if err := p.round(&s); err != nil {
			return nil, err
		}
	}
	return &s, nil
}

// short rounds to three digits or so.
func short(d time.Duration) time.Duration {
	for unit := time.Nanosecond; ; unit *= 10 {
		if d < 1000*unit {
			return d.Round(unit)
		}
	}
}
