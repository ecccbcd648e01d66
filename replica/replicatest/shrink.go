package replicatest

import "time"

// Shrink looks for a smaller run that fails too: with fewer faults, a quiet network, a shorter storm. It plays at most
// runs of them, and answers the smallest that fails, with history.
func Shrink(o Outcome, runs int) Outcome {
	best := o
	try := func(c Options) bool {
		if runs <= 0 {
			return false
		}
		runs--
		c.History = false
		if r := Run(c); r.Failed() {
			best = r
			return true
		}
		return false
	}
	still := best.Options
	still.Still = true
	try(still)
	for best.Options.Storm > 50*time.Millisecond {
		shorter := best.Options
		shorter.Storm = shorter.Storm * 2 / 3
		if !try(shorter) {
			break
		}
	}
	for size := max(len(best.Options.Plan)/2, 1); ; {
		smaller := false
		for from := 0; from < len(best.Options.Plan); {
			c := best.Options
			c.Plan = append(append([]Fault{}, c.Plan[:from]...), c.Plan[min(from+size, len(c.Plan)):]...)
			if try(c) {
				smaller = true
			} else {
				from += size
			}
		}
		if size == 1 && !smaller || runs <= 0 {
			break
		}
		if size > 1 {
			size /= 2
		}
	}
	last := best.Options
	last.History = true
	return Run(last)
}
