// Sim plays simulated clusters, many of them, and says what happened:
//
//	go run ./replica/replicatest/sim -seed 1 -seeds 10000
//	go run ./replica/replicatest/sim -seed 1 -duration 1h
//	go run ./replica/replicatest/sim -seed 42 -history
//	go run ./replica/replicatest/sim -seeds 2000 -mutant early-high-watermark
//
// It ends with status 1 if a run fails, after printing the smallest one it finds that does, and with 2 if it cannot do what the
// flags say.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/replica/replicatest"
)

func main() {
	var (
		seed       = flag.Uint64("seed", 1, "first seed")
		seeds      = flag.Uint64("seeds", 1, "how many seeds")
		duration   = flag.Duration("duration", 0, "go on for so long, whatever -seeds says")
		partitions = flag.Int("partitions", 0, "of each cluster; 0: 1 to 4, drawn from the seed")
		nodes      = flag.Int("nodes", 0, "of each cluster; 0: 3 to 5")
		replicas   = flag.Int("replicas", 0, "of each partition; 0: mostly 3")
		minISR     = flag.Int("min-isr", 0, "min.insync.replicas; 0: mostly 2")
		noELR      = flag.Bool("no-elr", false, "keep no eligible leader replicas")
		storm      = flag.Duration("storm", 0, "simulated time in which things go wrong, for each seed; 0: 1s")
		steps      = flag.Int("steps", 0, "end the storm after so many events; 0: no bound")
		truncation = flag.String("truncation", "epoch", "epoch, or hw: the classic description, which loses records")
		mutant     = flag.String("mutant", "", "break the code in a known way: "+strings.Join(replicatest.Mutants(), ", "))
		history    = flag.Bool("history", false, "print what happened")
		workers    = flag.Int("workers", runtime.GOMAXPROCS(0), "seeds at a time")
		runs       = flag.Int("shrink", 300, "runs to make a failure smaller")
		keep       = flag.Bool("keep-going", false, "count failures instead of stopping at the first")
	)
	flag.Parse()
	refuse := func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "sim: "+format+"\n", args...)
		os.Exit(2)
	}
	switch {
	case flag.NArg() > 0:
		refuse("%q is no flag; -h shows them", flag.Arg(0))
	case *truncation != "epoch" && *truncation != "hw":
		refuse("-truncation is epoch or hw, not %q", *truncation)
	case *workers < 1:
		refuse("-workers %d play nothing", *workers)
	}
	o := replicatest.Options{Nodes: *nodes, Partitions: *partitions, Replicas: *replicas, MinISR: *minISR, NoELR: *noELR, Storm: *storm, Steps: *steps, Mutant: *mutant, History: *history}
	if err := o.Check(); err != nil {
		refuse("%v", err)
	}
	if *truncation == "hw" {
		o.Truncation, o.Patient = replica.ByHighWatermark, true
	}
	began := time.Now()
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt)
	var (
		next   atomic.Uint64
		stop   atomic.Bool
		mu     sync.Mutex
		total  = replicatest.Counts{}
		played int64
		took   int64
		first  *replicatest.Outcome
		failed int
		wg     sync.WaitGroup
	)
	go func() {
		<-interrupted
		stop.Store(true) // what was played so far is told
		signal.Reset(os.Interrupt)
	}()
	for range *workers {
		wg.Go(func() {
			for !stop.Load() {
				i := next.Add(1) - 1
				if *duration == 0 && i >= *seeds || *duration > 0 && time.Since(began) > *duration {
					return
				}
				c := o
				c.Seed = *seed + i
				from := time.Now()
				r := replicatest.Run(c)
				mu.Lock()
				took += int64(time.Since(from))
				played += int64(r.Steps)
				total.Add(r.Counts)
				if r.Failed() {
					failed++
					if first == nil || r.Options.Seed < first.Options.Seed {
						first = &r
					}
					if *keep {
						fmt.Printf("seed %d: %s\n", r.Options.Seed, r.Failure)
					} else {
						stop.Store(true)
					}
				}
				if *history && !r.Failed() {
					fmt.Println(strings.Join(r.History, "\n"))
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	fmt.Print(total)
	fmt.Printf("%d runs in %v, %d steps, %.0f steps/s for each worker\n", total["runs"], time.Since(began).Round(time.Millisecond), played,
		float64(played)/(float64(took)/1e9))
	if first == nil {
		return
	}
	fmt.Printf("%d of them failed. Seed %d: %s\n", failed, first.Options.Seed, first.Failure)
	small := replicatest.Shrink(*first, *runs)
	fmt.Printf("\nThe smallest run found that fails: %s\n%d faults:\n", small.Failure, len(small.Options.Plan))
	for _, f := range small.Options.Plan {
		fmt.Printf("  %v\n", f)
	}
	fmt.Println(strings.Join(small.History, "\n"))
	os.Exit(1)
}
