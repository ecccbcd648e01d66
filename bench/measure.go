package main

import (
	"fmt"
	"runtime"
	"slices"
	"time"
)

// row is one figure: what the library takes for something beside the least that any program must take for it on this
// machine, in the same run.
type row struct {
	name  string
	floor string // what the floor does
	// Exactly one of these judges the row; none: the figure is only shown.
	atMost  float64       // ours / floor, times
	atLeast float64       // floor / ours, rates
	within  time.Duration // ours alone
	orRate  float64       // beside atMost: or that many MB a second
	noAlloc bool          // and ours allocates nothing
	rounds  int           // at most so many; 0: as many as are asked for
	make    func(f *fixtures) (pair, error)
}

// pair is a row ready to run. floor and ours do n operations and say what one took.
type pair struct {
	floor, ours func(n int) (time.Duration, error)
	between     func() error // before each of the two, untimed; nil: nothing
	n           int          // operations a round; 0: as many as fill roundTime
	bytes       int64        // that an operation goes through; 0: not told
	close       func() error
}

// roundTime is what one side of a round takes: long beside a scheduling hiccup, short beside the drift of a shared machine.
const roundTime = 4 * time.Millisecond

// timed makes one side of a pair from a function that does n operations.
func timed(f func(n int) error) func(n int) (time.Duration, error) {
	return func(n int) (time.Duration, error) {
		began := time.Now()
		err := f(n)
		return time.Since(began) / time.Duration(max(n, 1)), err
	}
}

// median50 makes one side from a single operation: the middle one of n counts, as a latency is quoted.
func median50(f func(i int) error) func(n int) (time.Duration, error) {
	return func(n int) (time.Duration, error) {
		took := make([]time.Duration, n)
		for i := range took {
			began := time.Now()
			if err := f(i); err != nil {
				return 0, err
			}
			took[i] = time.Since(began)
		}
		return median(took), nil
	}
}

// samples collects the rounds of a row.
type samples struct {
	floor, ours []time.Duration
	ratios      []float64 // ours / floor, round by round, so that both saw the same machine
	allocs      float64   // of ours, an operation
	bytes       int64     // of an operation
}

// calibrate chooses the operations of a round, once for both sides: what suits the slower one.
func (p *pair) calibrate() error {
	if p.n > 0 {
		return nil
	}
	const probe = 64
	slowest := time.Duration(1)
	for _, side := range []func(int) (time.Duration, error){p.floor, p.ours} {
		if err := p.prepare(); err != nil {
			return err
		}
		took, err := side(probe)
		if err != nil {
			return err
		}
		slowest = max(slowest, took)
	}
	p.n = int(min(max(roundTime/slowest, 16), 1<<20))
	return nil
}

func (p *pair) prepare() error {
	if p.between == nil {
		return nil
	}
	return p.between()
}

// round runs both sides once; who goes first changes from round to round.
func (p *pair) round(s *samples) error {
	var floor, ours time.Duration
	for i := range 2 {
		if err := p.prepare(); err != nil {
			return err
		}
		var err error
		if (i == 0) == (len(s.ours)%2 == 0) {
			floor, err = p.floor(p.n)
		} else {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			ours, err = p.ours(p.n)
			runtime.ReadMemStats(&after)
			s.allocs = float64(after.Mallocs-before.Mallocs) / float64(p.n)
		}
		if err != nil {
			return err
		}
	}
	s.floor, s.ours = append(s.floor, floor), append(s.ours, ours)
	s.ratios = append(s.ratios, float64(max(ours, 1))/float64(max(floor, 1)))
	return nil
}

func median[T time.Duration | float64](all []T) T {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Clone(all)
	slices.Sort(sorted)
	return sorted[len(sorted)/2]
}

// verdict says what the row promises and whether this run kept it; met is true where nothing is promised.
func (r *row) verdict(s *samples) (target string, met bool) {
	ratio := median(s.ratios)
	met = true
	switch {
	case r.atMost > 0:
		target, met = fmt.Sprintf("<= %.1fx", r.atMost), ratio <= r.atMost
		if r.orRate > 0 {
			target += fmt.Sprintf(" or >= %.0f MB/s", r.orRate)
			met = met || s.rate() >= r.orRate
		}
	case r.atLeast > 0:
		target, met = fmt.Sprintf(">= %.1fx rate", r.atLeast), 1/ratio >= r.atLeast
	case r.within > 0:
		target, met = fmt.Sprintf("<= %v", r.within), median(s.ours) <= r.within
	}
	if r.noAlloc {
		target += ", 0 allocs"
		met = met && s.allocs < 0.5
	}
	return target, met
}

// rate is in MB a second, of ours.
func (s *samples) rate() float64 {
	return float64(s.bytes) / 1e6 / max(median(s.ours), 1).Seconds()
}
