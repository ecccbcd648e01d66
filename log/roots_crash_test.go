package log

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// runDeeds does a workload on a copy of the start and returns the world with the number of operations before its last deed.
func runDeeds(start *roots, work []deed, wrap func(vfs.FS) vfs.FS) (w *roots, last int, err error) {
	if w, err = start.fork(wrap); err != nil {
		return w, 0, err
	}
	for _, v := range work {
		last = w.fs.Len()
		if err := v.do(w); err != nil {
			return w, last, fmt.Errorf("%s: %w", v.name, err)
		}
	}
	return w, last, nil
}

// rest is the moment before the first operation.
func (w *roots) rest() *moment {
	return &moment{change: &change{call: "start", was: w.now, is: w.now, backups: w.bk, made: w.bk}, over: true}
}

func TestEachDeedOnRootsSurvivesEveryCrash(t *testing.T) {
	start := prepareRoots(t)
	total := &rootsTally{share: rootsShare(4, 1), stride: int(rootsShare(5, 1))}
	for _, v := range deeds {
		w, last, err := runDeeds(start, []deed{v}, nil)
		if err == nil {
			err = total.enumerate(w, start.rest(), vfstest.DiskOptions{From: last, Limit: 8, Samples: 2, Cuts: 1}, 1)
		}
		require.NoError(t, err, v.name)
	}
	t.Logf("%+v", *total)
}

func TestPairsOfDeedsOnRootsSurviveEveryCrash(t *testing.T) {
	start := prepareRoots(t)
	total, share := &rootsTally{share: rootsShare(2, 16), stride: int(rootsShare(5, 3))}, int(rootsShare(64, 1))
	for i, a := range deeds {
		for k, b := range deeds {
			if (i*(len(deeds)+1)+k)%share != 0 {
				continue
			}
			w, last, err := runDeeds(start, []deed{a, b}, nil)
			if err == nil {
				err = total.enumerate(w, start.rest(), vfstest.DiskOptions{From: last, Limit: 4, Samples: 2, Cuts: 1, NoTorn: true}, 1)
			}
			require.NoError(t, err, "%s, then %s", a.name, b.name)
		}
	}
	t.Logf("%+v", *total)
}

func TestLongLivesOfRootsSurviveEveryCrash(t *testing.T) {
	start := prepareRoots(t)
	total := &rootsTally{share: rootsShare(4, 16), stride: int(rootsShare(5, 3))}
	for seed := range max(1, 128/rootsShare(64, 1)) {
		r := rand.New(rand.NewPCG(seed, 0))
		work := make([]deed, 3+r.IntN(8))
		names := []string{}
		for i := range work {
			work[i] = deeds[r.IntN(len(deeds))]
			names = append(names, work[i].name)
		}
		w, _, err := runDeeds(start, work, nil)
		if err == nil {
			err = total.enumerate(w, start.rest(), vfstest.DiskOptions{Limit: 1, Samples: 1, Cuts: 1, Seed: seed}, 1)
		}
		require.NoError(t, err, "seed %d: %s", seed, strings.Join(names, ", then "))
	}
	t.Logf("%+v", *total)
}

// rootsShare is how many disks, moments or workloads one stands for: usually, which the race detector has fewer of, and where
// everyCrash is set.
func rootsShare(usually, every uint64) uint64 {
	if crashShare() == 1 {
		return every
	}
	return usually * uint64(max(1, crashShare()/4))
}
