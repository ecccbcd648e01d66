package replicatest_test

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/replica/replicatest"
)

// play runs seeds side by side, until done says so. There is no limit of time: on a slow machine it takes longer, and finds the same.
func play(t *testing.T, o replicatest.Options, first, seeds uint64, done func(replicatest.Outcome) bool) replicatest.Counts {
	t.Helper()
	var (
		next  atomic.Uint64
		stop  atomic.Bool
		mu    sync.Mutex
		wg    sync.WaitGroup
		total = replicatest.Counts{}
	)
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for !stop.Load() {
				i := next.Add(1) - 1
				if i >= seeds {
					return
				}
				c := o
				c.Seed = first + i
				r := replicatest.Run(c)
				mu.Lock()
				total.Add(r.Counts)
				if done(r) {
					stop.Store(true)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return total
}

func report(t *testing.T, o replicatest.Outcome) {
	t.Helper()
	small := replicatest.Shrink(o, 200)
	t.Errorf("seed %d: %s\nsmallest: %s, %d faults: %v\n%s", o.Options.Seed, o.Failure, small.Failure, len(small.Options.Plan), small.Options.Plan,
		strings.Join(small.History, "\n"))
}

// seedsVariable names how many clusters the test plays, all of them, however long it takes: 10,000 take minutes.
const seedsVariable = "PARTLOG_TEST_SEEDS"

// Clusters with lost messages, partitions, pauses, crashes, power losses, moves and rival controllers keep what they
// committed, and recover. Invariants L1, L2, R5, R6.
func TestClustersKeepWhatTheyCommit(t *testing.T) {
	seeds := uint64(220)
	if testing.Short() {
		seeds = 120
	}
	if n, err := strconv.ParseUint(os.Getenv(seedsVariable), 10, 64); err == nil {
		seeds = n
	}
	total := play(t, replicatest.Options{}, 1, seeds, func(o replicatest.Outcome) bool {
		if o.Failed() {
			report(t, o)
		}
		return o.Failed()
	})
	if t.Failed() {
		return
	}
	t.Logf("\n%v", total)
	for _, what := range []string{"kills", "tails lost", "elections", "truncations", "isr shrinks", "isr expands", "messages lost", "messages repeated",
		"moves that ended", "leaders that went home", "controllers elected", "transactions aborted", "records acknowledged by all", "records consumed",
		"tombstones removed", "markers removed", "partitions deleted", "partitions made in the storm", "changes of min.insync.replicas",
		"aborted transactions compared", "producers compared", "ends of transactions asked for again",
		"calls of the store that failed", "calls of the store done without an answer", "news lost", "news repeated", "clock jumps",
		"logs of another size", "gaps skipped", "reads cut to nothing"} {
		if total[what] == 0 {
			t.Errorf("too quiet: no %s in %d runs", what, total["runs"])
		}
	}
}

// What is drawn is mostly three replicas, two of which must be in sync, and eligible leader replicas. Every other number of replicas,
// and each min.insync.replicas that it allows, keeps what was committed as well; without eligible leader replicas but for what who was
// in sync last has lost.
func TestClustersOfEveryNumberOfReplicasKeepWhatTheyCommit(t *testing.T) {
	const lastInSync = "leaders that were in sync last and lost their tail"
	for _, without := range []bool{false, true} {
		total := replicatest.Counts{}
		for replicas := 1; replicas <= 5; replicas++ {
			for min := 1; min <= replicas; min++ {
				o := replicatest.Options{Nodes: replicas + min%2, Replicas: replicas, MinISR: min, NoELR: without}
				total.Add(play(t, o, uint64(100*replicas), 4, func(o replicatest.Outcome) bool {
					if o.Failed() {
						report(t, o)
					}
					return o.Failed()
				}))
			}
		}
		if total["records acknowledged by all"] == 0 || total["elections"] == 0 || total["tails lost"] == 0 || without != (total[lastInSync] > 0) {
			t.Errorf("without ELR %v:\n%v", without, total)
		}
	}
}

// Of three replicas, two of which must confirm, one loses power and with it what was not synced, while the others stop for a
// moment one after the other. It comes back with no more than its disk has, leads nobody who has more, and what was confirmed
// is there once.
//
// Report: B127.
func TestALostTailAndPausesLoseNothingThatWasConfirmed(t *testing.T) {
	total := replicatest.Counts{}
	for seed := range uint64(20) {
		plan := []replicatest.Fault{
			{Kind: replicatest.PowerLoss, At: 100e6, For: 60e6, Node: 3, Amount: int64(seed)},
			{Kind: replicatest.Pause, At: 110e6, For: 250e6, Node: 1},
			{Kind: replicatest.Pause, At: 400e6, For: 150e6, Node: 2},
			{Kind: replicatest.PowerLoss, At: 600e6, For: 1e6, Node: 3, Amount: int64(seed)},
			{Kind: replicatest.Pause, At: 601e6, For: 200e6, Node: 2},
		}
		o := replicatest.Run(replicatest.Options{Seed: seed, Nodes: 3, Replicas: 3, MinISR: 2, Plan: plan})
		if o.Failed() {
			t.Fatalf("seed %d: %s", seed, o.Failure)
		}
		total.Add(o.Counts)
	}
	if total["tails lost"] == 0 || total["elections"] == 0 || total["records acknowledged by all"] == 0 || total["committed records lost"] != 0 {
		t.Errorf("\n%v", total)
	}
}

// A replica that is added reads an old value from the leader, whose compaction then takes the tombstone behind it, for the sake
// of a newer value that the replica is still to come upon. That another node had removed the tombstone for good, when all
// replicas of that time had it, does not make that a deletion that was missed.
func TestATombstoneThatGoesForANewerValueIsNotMissed(t *testing.T) {
	plan := []replicatest.Fault{
		{Kind: replicatest.MinISR, At: 261104e3, For: 48630e3, Node: 4, Other: 2, Amount: 309896374792},
		{Kind: replicatest.Reassign, At: 487671e3, For: 7099e3, Node: 4, Other: 1, Amount: 783296257244},
	}
	o := replicatest.Run(replicatest.Options{Seed: 8060742, Plan: plan})
	if o.Failed() || o.Counts["tombstones removed"] == 0 {
		t.Errorf("%s\n%v", o.Failure, o.Counts)
	}
}

// A log that a full disk did not let a node make waits for room. What it waits with is forgotten when newer news come: else the
// partition, moved away later, would come back under the older ones and stay.
func TestNewsThatWaitForADiskAreForgottenForNewerOnes(t *testing.T) {
	if o := replicatest.Run(replicatest.Options{Seed: 8219545}); o.Failed() || o.Counts["replicas deleted"] == 0 {
		t.Errorf("%s\n%v", o.Failure, o.Counts)
	}
}

// Another min.insync.replicas that comes while nobody leads has the controller forget who may. It takes an election by hand, and then all
// comes right.
func TestAPartitionWhoseLeadersWereForgottenIsElectedByHand(t *testing.T) {
	plan := []replicatest.Fault{
		{Kind: replicatest.Blackout, At: 711441e3, For: 4275e3, Node: 3, Other: 2, Amount: 680763338574},
		{Kind: replicatest.Pause, At: 742858e3, For: 297028e3, Node: 3, Other: 3, Amount: 323742598766},
		{Kind: replicatest.MinISR, At: 955888e3, For: 250571e3, Node: 1, Other: 3, Amount: 243264621611},
	}
	o := replicatest.Run(replicatest.Options{Seed: 9700088, Plan: plan})
	if o.Failed() || o.Counts["elections by hand"] == 0 {
		t.Errorf("%s\n%v", o.Failure, o.Counts)
	}
}

// The same options play the same run, to the last event.
func TestARunIsDetermined(t *testing.T) {
	for seed := range uint64(20) {
		a, b := replicatest.Run(replicatest.Options{Seed: seed}), replicatest.Run(replicatest.Options{Seed: seed, History: true})
		if a.Digest != b.Digest || a.Steps != b.Steps {
			t.Fatalf("seed %d: %d steps and %x, then %d and %x", seed, a.Steps, a.Digest, b.Steps, b.Digest)
		}
	}
}

// near are seeds shortly before the first that finds a mutant, where that is not among the first few: it saves minutes, and
// from anywhere else it takes a few hundred more.
var near = map[string]uint64{"trust-unclean-stop": 905, "refuse-out-of-memory": 186, "ignore-broker-epochs": 196, "ignore-topic-ids": 181, "take-late-answers": 97, "ceiling-of-members": 80,
	"ignore-min-isr": 76, "expand-early": 63, "keep-epochs": 45}

// deposed is a plan in which a controller is cut off from the store and does not learn that another rules, while a topic is made
// anew and replicas come and go.
var deposed = []replicatest.Fault{
	{Kind: replicatest.CutRuler, At: 100e6, For: 900e6},
	{Kind: replicatest.Remake, At: 250e6},
	{Kind: replicatest.Pause, At: 400e6, For: 150e6, Node: 1},
	{Kind: replicatest.Pause, At: 600e6, For: 150e6, Node: 2},
	{Kind: replicatest.Pause, At: 800e6, For: 150e6, Node: 3},
}

// twice is a plan in which everything is heard once more, late, while partitions move and move again.
var twice = []replicatest.Fault{
	{Kind: replicatest.NewsTwice, At: 0, For: 950e6, Amount: 100},
	{Kind: replicatest.Reassign, At: 200e6, Amount: 1088668750276},
	{Kind: replicatest.Reassign, At: 400e6, Amount: 1037025404553},
	{Kind: replicatest.Reassign, At: 600e6, Amount: 759896267408},
	{Kind: replicatest.Remake, At: 700e6},
	{Kind: replicatest.Reassign, At: 800e6, Amount: 416178666962341},
}

// plans are for mutants that a plan drawn from the seed finds once in some thousand, or a hundred thousand.
var plans = map[string][]replicatest.Fault{"refuse-out-of-memory": deposed, "take-old-news-of-the-gone": twice}

// The bound is the storm's: with one that is smaller than what it takes to bring a cluster up, no run came to an end.
func TestAStormOfAFewStepsEnds(t *testing.T) {
	for _, steps := range []int{1, 17} {
		r := replicatest.Run(replicatest.Options{Seed: 101, Storm: 20e6, Nodes: 3, Still: true, Steps: steps})
		if r.Failed() || r.Options.Steps != steps {
			t.Fatalf("%d steps: %+v: %s", steps, r.Options, r.Failure)
		}
	}
}

// A leader that asks a deposed controller, which does not know the topic, is not told so: once all is well the in-sync set is whole.
func TestADeposedControllerKeepsNobodyOutOfTheInSyncSet(t *testing.T) {
	total := play(t, replicatest.Options{Plan: deposed}, near["refuse-out-of-memory"], 12, func(o replicatest.Outcome) bool {
		if o.Failed() {
			report(t, o)
		}
		return o.Failed()
	})
	if total["controllers resigned"] == 0 || total["isr expands"] == 0 {
		t.Errorf("too quiet: %v", total)
	}
}

// News that come once more when a replica has gone do not bring it back, nor do late ones of a move end a newer one.
func TestNewsThatComeTwiceBringNobodyBack(t *testing.T) {
	total := play(t, replicatest.Options{Plan: twice}, 1, 40, func(o replicatest.Outcome) bool {
		if o.Failed() {
			report(t, o)
		}
		return o.Failed()
	})
	if total["news repeated"] == 0 || total["moves that ended"] == 0 || total["replicas deleted"] == 0 {
		t.Errorf("too quiet: %v", total)
	}
}

// Each known way to be wrong is found within 2,000 seeds.
func TestEachMutantIsCaught(t *testing.T) {
	if testing.Short() {
		t.Skip("plays hundreds of clusters for each mutant; without -short it is run")
	}
	for _, name := range replicatest.Mutants() {
		t.Run(name, func(t *testing.T) {
			caught, runs, first := "", 0, max(near[name], 1)
			play(t, replicatest.Options{Mutant: name, Plan: plans[name]}, first, 2000, func(o replicatest.Outcome) bool {
				runs++
				if o.Failed() {
					caught = o.Failure
				}
				return o.Failed()
			})
			if caught == "" {
				t.Errorf("not caught in %d runs", runs)
			}
			t.Logf("after %d runs: %s", runs, caught)
		})
	}
}

// A run that fails is made smaller, and tells its story.
func TestAFailureIsMadeSmaller(t *testing.T) {
	o := replicatest.Options{Mutant: "cut-too-much"}
	for o.Seed = 1; ; o.Seed++ {
		r := replicatest.Run(o)
		if !r.Failed() {
			continue
		}
		small := replicatest.Shrink(r, 100)
		if !small.Failed() || len(small.Options.Plan) >= len(r.Options.Plan) || len(small.History) == 0 {
			t.Errorf("%d faults, then %d: %q", len(r.Options.Plan), len(small.Options.Plan), small.Failure)
		}
		if again := replicatest.Run(small.Options); again.Digest != small.Digest || again.Failure != small.Failure {
			t.Errorf("it failed with %q, and then with %q", small.Failure, again.Failure)
		}
		return
	}
}

// A follower that truncates to its high watermark, as the classic description has it, loses committed records, and logs
// that differ: the simulator finds both.
func TestTruncationToTheHighWatermarkLosesAndDiverges(t *testing.T) {
	for _, losses := range []bool{false, true} {
		found, runs := "", 0
		o := replicatest.Options{Truncation: replica.ByHighWatermark, Patient: true, Losses: losses}
		first := uint64(1)
		if losses {
			first = 175 // as near is
		}
		play(t, o, first, 2000, func(o replicatest.Outcome) bool {
			runs++
			if strings.Contains(o.Failure, " leads epoch ") && !losses || strings.Contains(o.Failure, "in sync in the calm and has") && losses {
				found = o.Failure
			}
			return found != ""
		})
		if found == "" {
			t.Errorf("not found in %d runs", runs)
		}
		t.Logf("after %d runs: %s", runs, found)
	}
}
