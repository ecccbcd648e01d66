package replicatest

import "slices"

// mutant is a known way to be wrong. It sits between the parts, in what they are told, so that the parts stay clean.
type mutant struct {
	noFence       bool // a leader looks neither at the epoch a fetch is made under nor at the epoch of what was fetched last
	early         bool // what was sent to a follower counts as being there
	forgetMark    bool // the checkpoint of the high watermark is not read
	countOutsider bool // a leader counts replicas as in sync that are not
	smallISR      bool // a leader counts fewer replicas than the controller can elect
	electOutside  bool // a leader is elected from outside the in-sync set
	noEpoch       bool // a new leader's epoch is not noted in its log
	keepEpochs    bool // epochs outlive the truncation of their records
	ackEarly      bool // acks=all is confirmed when the leader has it
	expandEarly   bool // whoever fetches is in sync
	anyLife       bool // broker epochs are not looked at
	trustUnclean  bool // a node that stopped uncleanly counts as complete
	markAtEnd     bool // a follower takes the leader's log end for its high watermark
	noGuard       bool // a controller writes without showing that it rules
	noDiverge     bool // a follower does not hear that it has diverged
	cutMore       bool // a truncation takes more than it should
	readOpen      bool // read_committed is not
	readPast      bool // consumers see what is not committed
	noMinISR      bool // min.insync.replicas is not looked at
	ownShrink     bool // a leader leaves members of its in-sync set out before the controller knows
}

var mutants = map[string]mutant{
	"skip-fetch-epochs":         {noFence: true},
	"early-high-watermark":      {early: true},
	"forget-mark":               {forgetMark: true},
	"count-non-members":         {countOutsider: true},
	"count-fewer":               {smallISR: true},
	"elect-outside-isr":         {electOutside: true},
	"no-epoch-at-election":      {noEpoch: true},
	"keep-epochs":               {keepEpochs: true},
	"ack-early":                 {ackEarly: true},
	"expand-early":              {expandEarly: true},
	"ignore-broker-epochs":      {anyLife: true},
	"trust-unclean-stop":        {trustUnclean: true},
	"follower-mark-at-end":      {markAtEnd: true},
	"stale-controller":          {noGuard: true},
	"ignore-divergence":         {noDiverge: true},
	"cut-too-much":              {cutMore: true},
	"read-open-transactions":    {readOpen: true},
	"read-past-high-watermark":  {readPast: true},
	"ignore-min-isr":            {noMinISR: true},
	"shrink-without-controller": {ownShrink: true},
}

// Mutants are the names for Options.Mutant, sorted.
func Mutants() []string {
	var names []string
	for name := range mutants {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// mutantByName is the zero one for a name that is not known.
func mutantByName(name string) mutant { return mutants[name] }
