package replicatest

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/replica/controller"
)

// mutant is a known way to be wrong. It sits between the parts, in what they are told, so that the parts stay clean.
type mutant struct {
	noFence         bool // a leader looks neither at the epoch a fetch is made under nor at the epoch of what was fetched last
	early           bool // what was sent to a follower counts as being there
	forgetMark      bool // the checkpoint of the high watermark is not read
	countOutsider   bool // a leader counts replicas as in sync that are not
	smallISR        bool // a leader counts fewer replicas than the controller can elect
	electOutside    bool // a leader is elected from outside the in-sync set
	noEpoch         bool // a new leader's epoch is not noted in its log
	keepEpochs      bool // epochs outlive the truncation of their records
	ackEarly        bool // acks=all is confirmed when the leader has it
	expandEarly     bool // whoever fetches is in sync
	anyLife         bool // broker epochs are not looked at
	trustUnclean    bool // a node that stopped uncleanly counts as complete
	markAtEnd       bool // a follower takes the leader's log end for its high watermark
	noGuard         bool // a controller writes without showing that it rules
	noDiverge       bool // a follower does not hear that it has diverged
	cutMore         bool // a truncation takes more than it should
	readOpen        bool // read_committed is not
	readPast        bool // consumers see what is not committed
	noMinISR        bool // min.insync.replicas is not looked at
	ownShrink       bool // a leader leaves members of its in-sync set out before the controller knows
	oldNews         bool // the in-sync set of the news before counts
	cutLess         bool // a truncation leaves a record that should go
	ackTimeouts     bool // time that is up counts as confirmed
	keepLeading     bool // a leader does not hear that another one leads
	mixed           bool // answers reach another partition's replica
	lateAnswers     bool // an answer counts whoever gave it, to whichever request
	adding          bool // who is to become a replica is in sync from the beginning
	noTicks         bool // a controller looks at nothing by itself
	noCeiling       bool // compaction does not wait for slow replicas
	inSyncCeiling   bool // or only for those in sync
	keepOld         bool // a topic that was made anew goes on with the logs of the one before
	unsynced        bool // followers do not say what a power loss may take from them
	anyTopic        bool // fetches do not say of which topic they are
	mixLives        bool // an answer of the topic that had the name before counts
	forgetProducers bool // followers do not know whose batches they have
	forgetAborted   bool // nor what of it is aborted
	mixedMarks      bool // of two partitions, each begins with the other's high watermark
	unanswered      bool // a controller takes a write without an answer for done
	staysDeaf       bool // a watch that has lost news is not begun anew
	wallClock       bool // replicas are told the time of the wall clock
	gapWhereEmpty   bool // a follower skips up to the leader's end on any empty answer
	outOfMemory     bool // a controller refuses without a look whether it still rules
	revive          bool // older news make a replica anew that was deleted
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
	"take-old-news":             {oldNews: true},
	"cut-too-little":            {cutLess: true},
	"confirm-timeouts":          {ackTimeouts: true},
	"keep-leading":              {keepLeading: true},
	"mix-partitions":            {mixed: true},
	"take-late-answers":         {lateAnswers: true},
	"join-when-assigned":        {adding: true},
	"controller-without-ticks":  {noTicks: true},
	"mix-marks":                 {mixedMarks: true},
	"keep-old-topic":            {keepOld: true},
	"forget-unsynced":           {unsynced: true},
	"ignore-topic-ids":          {anyTopic: true},
	"take-answers-of-the-dead":  {mixLives: true},
	"forget-producers":          {forgetProducers: true},
	"forget-aborted":            {forgetAborted: true},
	"compact-above-ceiling":     {noCeiling: true},
	"ceiling-of-members":        {inSyncCeiling: true},
	"believe-in-writes":         {unanswered: true},
	"stay-deaf":                 {staysDeaf: true},
	"wall-clock":                {wallClock: true},
	"skip-without-gap":          {gapWhereEmpty: true},
	"refuse-out-of-memory":      {outOfMemory: true},
	"take-old-news-of-the-gone": {revive: true},
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

// electOutside changes a write that elects: another live replica, not in sync, leads.
func (s *sim) electOutside(writes []replica.Write) {
	s.change(writes, func(p *part, v map[string]any) {
		if v["leader"] == json.Number("-1") || v["leader_epoch"] == json.Number(itoa(int(p.state.LeaderEpoch))) {
			return
		}
		for _, id := range p.state.Replicas {
			if s.node(id).up && !slices.Contains(p.state.ISR, id) && !slices.Contains(p.state.ELR, id) {
				v["leader"], v["isr"] = id, []replica.NodeID{id}
				return
			}
		}
	})
}

// joinWhenAssigned changes a write that begins a move: who is to come is in sync already.
func (s *sim) joinWhenAssigned(writes []replica.Write) {
	s.change(writes, func(_ *part, v map[string]any) {
		if v["adding_replicas"] != nil {
			v["isr"] = v["replicas"]
		}
	})
}

// change lets f change what is written about partitions that are known.
func (s *sim) change(writes []replica.Write, f func(p *part, v map[string]any)) {
	for i, w := range writes {
		p := s.partOf(w.Key)
		if p == nil || !p.known {
			continue
		}
		var v map[string]any
		d := json.NewDecoder(bytes.NewReader(w.Value))
		d.UseNumber()
		if d.Decode(&v) != nil {
			continue
		}
		f(p, v)
		writes[i].Value, _ = json.Marshal(v)
	}
}

// partOf is the partition whose state stands under a key, nil if none.
func (s *sim) partOf(key string) *part {
	for _, p := range s.parts {
		if key == controller.TopicsPrefix+p.tp.Topic+"/partitions/"+itoa(int(p.tp.Partition))+"/state" {
			return p
		}
	}
	return nil
}
