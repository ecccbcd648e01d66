package log

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"testing"

	"github.com/partlog/partlog/vfs/vfstest"
)

// run does a workload in a fresh world and returns it with the number of operations before its last verb.
func run(disk *vfstest.Crash, mode Durability, start expect, work []verb) (*world, int, error) {
	w := newWorld(disk, mode, start, nil)
	if err := w.open(); err != nil {
		return w, 0, fmt.Errorf("open: %w", err)
	}
	last := 0
	for _, v := range work {
		last = w.fs.Len()
		if err := v.do(w); err != nil {
			return w, last, fmt.Errorf("%s: %w", v.name, err)
		}
	}
	return w, last, nil
}

// enumerate looks at every disk that a power loss or a kill leaves of the workload.
func (n *tally) enumerate(w *world, start *expect, o vfstest.DiskOptions, deep int) error {
	for d := range w.fs.Disks(o) {
		if err := n.inspect(d, w.mode, start, deep); err != nil {
			return err
		}
	}
	o.Kill = true
	for d := range w.fs.Disks(o) {
		if err := n.inspect(d, w.mode, start, deep); err != nil {
			return err
		}
	}
	return nil
}

// crashStart is one kind of log that workloads begin with.
type crashStart struct {
	mode  Durability
	clean bool
}

func (s crashStart) String() string { return fmt.Sprintf("%v, stopped cleanly %v", s.mode, s.clean) }

var crashStarts = []crashStart{{Durable, false}, {Durable, true}, {Buffered, false}, {Buffered, true}}

func TestEveryPairOfOperationsSurvivesEveryCrash(t *testing.T) {
	for n, s := range crashStarts {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			total, share := newTally(), crashShare()
			disk, start := prepare(t, s.mode, s.clean)
			for i, a := range verbs {
				for k, b := range verbs {
					if (i*(len(verbs)+1)+k+n)%share != 0 { // each pair from another start
						continue
					}
					w, last, err := run(disk, s.mode, start, []verb{a, b})
					if err == nil {
						err = total.enumerate(w, &start, vfstest.DiskOptions{From: last, Limit: 8, Samples: 2, Cuts: 1, NoTorn: s.mode == Buffered}, 1)
					}
					if err != nil {
						t.Errorf("%s, then %s: %v", a.name, b.name, err)
					}
					if t.Failed() && i*len(verbs)+k > 100 {
						return
					}
				}
			}
			t.Logf("%d disks, %d of them left by crashes inside recovery", total.disks, total.inner)
		})
	}
}

func TestLongWorkloadsSurviveEveryCrash(t *testing.T) {
	for n, s := range crashStarts {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			total := newTally()
			disk, start := prepare(t, s.mode, s.clean)
			for seed := range uint64(max(1, 12/crashShare())) {
				r := rand.New(rand.NewPCG(seed, uint64(n)))
				work := make([]verb, 3+r.IntN(6))
				for i := range work {
					work[i] = verbs[r.IntN(len(verbs))]
				}
				w, _, err := run(disk, s.mode, start, work)
				if err == nil {
					err = total.enumerate(w, &start, vfstest.DiskOptions{Limit: 8, Samples: 4, Cuts: 2, Seed: seed}, 1)
				}
				if err != nil {
					t.Fatalf("seed %d: %s: %v", seed, namesOf(work), err)
				}
			}
			t.Logf("%d disks, %d of them left by crashes inside recovery", total.disks, total.inner)
		})
	}
}

// TestEachOperationSurvivesCrashesInsideTheRecoveryOfEachCrash goes two crashes deep, from one disk in four.
func TestEachOperationSurvivesCrashesInsideTheRecoveryOfEachCrash(t *testing.T) {
	for n, s := range crashStarts {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			total := newTally()
			disk, start := prepare(t, s.mode, s.clean)
			for i, v := range verbs {
				if (i+n)%min(crashShare(), 5) != 0 {
					continue
				}
				w, last, err := run(disk, s.mode, start, []verb{v})
				if err == nil {
					err = total.enumerate(w, &start, vfstest.DiskOptions{From: last, Limit: 1, Samples: 1, Cuts: 1}, 2)
				}
				if err != nil {
					t.Errorf("%s: %v", v.name, err)
				}
			}
			t.Logf("%d disks, %d of them left by crashes inside recovery", total.disks, total.inner)
		})
	}
}

// TestANewRootSurvivesEveryCrash begins with an empty disk.
func TestANewRootSurvivesEveryCrash(t *testing.T) {
	total := newTally()
	start := expect{starts: []int64{0}, sparse: 1}
	for _, mode := range []Durability{Durable, Buffered} {
		for _, v := range verbs {
			w, _, err := run(vfstest.NewCrash(vfstest.CrashOptions{Now: crashClock}), mode, start, []verb{v})
			if err == nil {
				err = total.enumerate(w, &start, vfstest.DiskOptions{Limit: 64, Samples: 8, Cuts: 2}, 1)
			}
			if err != nil {
				t.Errorf("%v, %s: %v", mode, v.name, err)
			}
		}
	}
	t.Logf("%d disks, %d of them left by crashes inside recovery", total.disks, total.inner)
}

// everyCrash makes the tests look at all disks: about 600,000, instead of a share of them.
const everyCrash = "PARTLOG_TEST_EVERY_CRASH"

// crashShare says which share of the workloads is run: one in so many.
func crashShare() int {
	switch {
	case os.Getenv(everyCrash) != "":
		return 1
	case testing.Short():
		return max(raceShare, 12)
	}
	return raceShare
}

// The worlds are many and live for a moment: most of the collector's work would be to find that out.
func init() { debug.SetGCPercent(400) }
