package log

import (
	"fmt"
	"testing"

	"github.com/partlog/partlog/vfs/vfstest"
)

// run does a workload in a fresh world and returns it with the number of operations before each verb.
func run(disk *vfstest.Crash, mode Durability, start expect, work []verb) (*world, []int, error) {
	w := newWorld(disk, mode, start, nil)
	if err := w.open(); err != nil {
		return w, nil, fmt.Errorf("open: %w", err)
	}
	var at []int
	for _, v := range work {
		at = append(at, w.fs.Len())
		if err := v.do(w); err != nil {
			return w, at, fmt.Errorf("%s: %w", v.name, err)
		}
	}
	return w, at, nil
}

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

func TestEveryPairOfOperationsSurvivesEveryCrash(t *testing.T) {
	total := newTally()
	for _, mode := range []Durability{Durable, Buffered} {
		for _, clean := range []bool{false, true} {
			disk, start := prepare(t, mode, clean)
			for _, a := range verbs {
				for _, b := range verbs {
					if !t.Run(fmt.Sprintf("%v/clean=%v/%s, then %s", mode, clean, a.name, b.name), func(t *testing.T) {
						w, at, err := run(disk, mode, start, []verb{a, b})
						if err != nil {
							t.Fatal(err)
						}
						if err := total.enumerate(w, &start, vfstest.DiskOptions{From: at[1], Limit: 24, Samples: 6, Cuts: 2}, 1); err != nil {
							t.Fatal(err)
						}
					}) && testing.Short() {
						return
					}
				}
			}
		}
	}
	t.Logf("%d disks, %d of them left by crashes inside recovery", total.disks, total.inner)
}
