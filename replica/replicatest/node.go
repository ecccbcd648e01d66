package replicatest

import (
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/partlog/partlog/index"
	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/replica/controller"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// node is a machine: a disk, and while it is up a process with a log root on it.
type node struct {
	s    *sim
	id   replica.NodeID
	disk *vfstest.Crash
	full *vfstest.Fault // above disk

	up         bool
	life       int            // of the process
	paused     time.Duration  // until then nothing happens in it
	fast       time.Duration  // its steady clock is ahead; never falls
	skew       time.Duration  // its wall clock is off
	drag       time.Duration  // what each access of the disk takes longer
	trouble    bool           // the disk is full, or was in this life
	gaps       bool           // a sync failed: the device lacks what the page cache may have
	rigged     *Fault         // what comes with the next start
	dying      *vfstest.Crash // the disk as it was when the process stopped inside an access of it
	end        Fault          // how it stops
	unfinished bool           // what its log was doing then
	lost       bool           // a part of its log, and has not caught up since

	dir     *log.Dir
	clean   bool // the process before stopped cleanly
	session replica.Session
	broker  int64 // epoch of its registration; 0: none in this life
	last    int64 // and of the last life's
	heard   time.Duration
	ready   bool  // news are for this registration
	since   int64 // news of older revisions are not
	newest  int64 // of the news of the partition that were heard
	rep     *rep
	asks    map[uint64]bool // proposals on their way
	acts    []replica.Action
}

func newNode(s *sim, id replica.NodeID) *node {
	n := &node{s: s, id: id}
	n.disk = vfstest.NewCrash(vfstest.CrashOptions{NoMmap: true, Now: n.wall})
	return n
}

func (n *node) place() place { return place(n.id) }

// mono is the node's steady clock, wall what it believes the time to be.
func (n *node) mono() time.Time { return began.Add(n.s.now + n.fast) }
func (n *node) wall() time.Time { return began.Add(n.s.now + n.skew) }

// later lets something happen in this life of the node.
func (n *node) later(d time.Duration, run func()) { n.s.schedule(n.s.now+d, n, n.life, run) }

// start begins a life.
func (n *node) start() {
	if n.up {
		return
	}
	s := n.s
	n.life++
	n.up, n.paused, n.trouble, n.gaps, n.drag = true, 0, false, false, 0
	n.broker, n.ready, n.rep, n.asks = 0, false, nil, map[uint64]bool{}
	n.heard = s.now
	n.full = vfstest.NewFault(n.disk)
	if n.rigged != nil {
		n.rig(*n.rigged)
		n.rigged = nil
	}
	var fsys vfs.FS = n.full
	saved, _ := highWatermarks(fsys)
	dir, err := log.OpenDir("", log.DirConfig{
		FS: fsys, Manual: true, Now: n.wall, Map: index.Never, HighWatermarkInterval: time.Millisecond,
		Events:            s.counts.events(),
		RetentionInterval: 20 * time.Millisecond, InitialDelay: time.Millisecond, CleanerBackoff: 50 * time.Millisecond,
	})
	if err != nil {
		if !n.shaky() {
			s.fail("node %d cannot open its root: %v", n.id, err)
		}
		return
	}
	n.dir = dir
	_, n.clean = dir.CleanShutdown()
	s.note("node %d starts, after a clean stop: %v", n.id, n.clean)
	there, _, err := dir.Folders()
	if err != nil {
		s.fail("node %d: %v", n.id, err)
		return
	}

	if slices.Contains(there, partition) {
		n.open(saved)
	} else {
		s.model.vanished(n)
	}
	n.later(s.between(0, 2*time.Millisecond), n.beat)
}

// shaky says that the disk may refuse what it is asked.
func (n *node) shaky() bool { return n.trouble || n.dying != nil }

// accesses are those that change the disk.
var accesses = []vfstest.Kind{vfstest.OpCreate, vfstest.OpWrite, vfstest.OpTruncate, vfstest.OpSync, vfstest.OpSyncData, vfstest.OpAllocate,
	vfstest.OpRename, vfstest.OpLink, vfstest.OpRemove, vfstest.OpMkdir, vfstest.OpSyncDir}

var errDying = errors.New("the process has ended")

// rig ends the process inside one of its next accesses of the disk. A node that is down stops in its recovery.
func (n *node) rig(f Fault) {
	if !n.up {
		n.rigged = &f
		return
	}
	power := f.Amount&1 == 0
	n.full.Add(vfstest.Rule{Ops: accesses, Nth: 1 + int((f.Amount>>1)%25), Times: vfstest.Always, Hook: func(vfstest.Op) error {
		if n.dying == nil {
			n.end = f
			n.s.dying++
			if power {
				n.dying = n.disk.PowerLoss(uint64(f.Amount))
			} else {
				n.dying = n.disk.Kill()
			}
		}
		return errDying
	}})
}

// die ends a process that stopped inside an access of the disk.
func (n *node) die() {
	s, disk := n.s, n.dying
	n.dying = nil
	s.dying--
	s.counts.add("stops inside an access of the disk", 1)
	s.note("node %d stops midway", n.id)
	if n.up {
		n.down()
	}
	n.disk, n.unfinished = disk, true
	if n.end.Amount&1 == 0 {
		s.model.powerLost(n)
	}
	s.after(n.end.For, n.start)
}

func (s *sim) logConfig() log.Config {
	c := log.Config{
		Visibility: log.External, Durability: log.Buffered, SegmentBytes: s.segment, IndexIntervalBytes: log.EveryBatch,
		TimestampBefore: log.Forever, TimestampAfter: 100 * 365 * 24 * time.Hour, FileDeleteDelay: log.Immediately,
		MinInSyncReplicas: s.MinISR, RetentionTime: log.Forever,
	}
	if s.retention > 0 {
		c.RetentionBytes = s.retention
	}
	if s.compacted {
		c.Cleanup = log.Compact
		c.SegmentBytes = min(c.SegmentBytes, 1<<10)
		c.Compaction.MinDirtyRatio = 0.01
		c.Compaction.DeleteRetention = 100 * time.Millisecond
	}
	return c
}

// open opens the log, but gives it no role yet.
func (n *node) open(saved int64) {
	l, err := n.dir.Open(n.s.ctx, partition, n.s.logConfig())
	if err != nil {
		if !n.shaky() {
			n.s.fail("node %d cannot open its log: %v", n.id, err)
		}
		return
	}
	n.rep = &rep{n: n, log: l, leads: -1, stash: map[uint64]stash{}}
	n.s.model.opened(n.rep, saved)
}

// beat is a node's word to the store: a session, a registration, and news.
func (n *node) beat() {
	s := n.s
	if !n.cutOff() {
		n.heard = s.now
		if n.session == nil {
			n.register()
		} else if over(n.session) {
			n.session = nil
			n.register()
		}
		if n.broker > 0 && !n.ready {
			n.readStore()
		}
	}
	if n.session == nil {
		n.later(s.between(time.Millisecond, 5*time.Millisecond), n.beat)
	} else {
		n.later(15*time.Millisecond, n.beat)
	}
}

func over(session replica.Session) bool {
	select {
	case <-session.Done():
		return true
	default:
		return false
	}
}

// cutOff says whether the store cannot be reached.
func (n *node) cutOff() bool {
	b := &n.s.net.blocked
	return b[n.place()][atStore] > 0 || b[atStore][n.place()] > 0
}

// register makes the node known to the controller, for the first time in this life or because its session was lost.
func (n *node) register() {
	s := n.s
	session, err := s.store.Session(s.ctx, sessionTime)
	if err != nil {
		s.fail("node %d: %v", n.id, err)
		return
	}
	previous := int64(-1)
	if n.broker > 0 {
		previous = n.broker // it lived on
	} else if n.clean {
		previous, _ = n.dir.CleanShutdown()
	} else if s.mutant.trustUnclean {
		previous = n.last
	}
	r, err := controller.Register(s.ctx, s.store, session, controller.Registration{Node: n.id, PreviousEpoch: previous})
	if err != nil {
		session.Close()
		if !errors.Is(err, controller.ErrNodeInUse) {
			s.fail("node %d: %v", n.id, err)
		}
		return
	}
	s.note("node %d registers as %d, before it was %d", n.id, r.Epoch(), previous)
	s.counts.add("registrations", 1)
	n.session, n.broker, n.last, n.ready = session, r.Epoch(), r.Epoch(), false
	n.dir.SetBrokerEpoch(n.broker)
	if n.rep != nil {
		if n.rep.p == nil {
			n.rep.begin(!n.clean && !s.mutant.trustUnclean)
		} else {
			n.step(replica.Reconfigure{Config: n.config()})
		}
	}
	s.published(controller.IDsPrefix + strconv.Itoa(int(n.id)))
}

func (n *node) config() replica.Config {
	c := replica.Config{
		Self: n.id, BrokerEpoch: n.broker, MinISR: n.s.MinISR, LagTimeMax: lagTime, Checkpoint: markTime, FetchWait: fetchWait,
		FetchLimit: fetchLimit, Backoff: backOff, Truncation: n.s.Truncation, CountSynced: n.s.synced, FetchBytes: 4 << 10,
	}
	if n.s.mutant.noMinISR {
		c.MinISR = 1
	}
	return c
}

// readStore takes in all there is, once the controller knows of this registration: what it decided before may be about
// an earlier life of the node.
func (n *node) readStore() {
	s := n.s
	if s.truth.registered[n.id] != n.broker && !s.mutant.anyLife {
		return
	}
	n.ready, n.since, n.newest = true, s.truth.revision, s.truth.revision
	for id, p := range s.truth.peers {
		if p.Node > 0 {
			n.step(replica.Peer{Node: replica.NodeID(id), BrokerEpoch: p.BrokerEpoch, Alive: p.Alive, ShuttingDown: p.ShuttingDown})
		}
	}
	if s.truth.known {
		n.assign(s.truth.assign)
	}
}

// hear takes news of the store, of a revision.
func (n *node) hear(revision int64, e replica.Event) {
	if !n.up {
		return
	}
	if n.cutOff() {
		n.later(10*time.Millisecond, func() { n.hear(revision, e) })
		return
	}
	if !n.ready || revision <= n.since {
		return
	}
	a, ok := e.(replica.Assign)
	switch {
	case !ok:
		n.step(e)
	case revision > n.newest:
		n.newest = revision
		n.assign(a)
	case slices.Contains(a.Replicas, n.id):
		n.step(a) // old news; the core knows
	}
}

// assign is what a process does with news of a partition: it makes a replica, moves it, or removes it.
func (n *node) assign(a replica.Assign) {
	s := n.s
	mine := slices.Contains(a.Replicas, n.id)
	a.BrokerEpoch = n.broker
	if s.mutant.anyLife {
		a.BrokerEpoch = 0
	}
	switch {
	case n.rep == nil && !mine:
		return
	case n.rep == nil:
		n.open(0)
		if n.rep == nil {
			n.later(20*time.Millisecond, func() {
				if n.rep == nil && n.ready {
					n.assign(s.truth.assign)
				}
			})
			return
		}
		n.rep.begin(!n.clean && n.life > 1)
	case !mine && n.rep.p != nil:
		s.note("node %d is to delete its replica", n.id)
		n.step(replica.Stop{Delete: true, LeaderEpoch: a.LeaderEpoch})
		return
	}
	if s.mutant.smallISR && a.Leader == n.id && len(a.ISR) > 1 {
		a.ISR = a.ISR[:0:0]
		for _, id := range s.truth.state.ISR {
			if id == n.id || len(a.ISR) == 0 {
				a.ISR = append(a.ISR, id)
			}
		}
	}
	if s.mutant.countOutsider && a.Leader == n.id {
		a.ISR = slices.Clone(a.Replicas)
	}
	n.step(a)
}

// step gives the replica an event.
func (n *node) step(e replica.Event) {
	r := n.rep
	if !n.up || r == nil || r.p == nil {
		return
	}
	acts := r.p.Step(n.mono(), e, n.acts[:0])
	n.acts = acts
	switch e.(type) {
	case replica.Assign, replica.Assigned, replica.Stop:
		r.refresh()
	case replica.Truncated, replica.Appended:
		if n.lost {
			r.refresh()
		}
	}
	for i := range acts {
		r.act(&acts[i])
		if n.s.failure != "" {
			return
		}
	}
	r.arm()
}

// kill ends the process at once. What it wrote is in the page cache.
func (n *node) kill() {
	if !n.up {
		return
	}
	n.s.note("node %d is killed", n.id)
	n.s.counts.add("kills", 1)
	n.down()
	old := n.disk
	n.disk = old.Kill()
}

// lose ends everything: of what was not synced, some is gone.
func (n *node) lose(seed uint64) {
	n.s.counts.add("power losses", 1)
	n.s.note("node %d loses power", n.id)
	if n.up {
		n.down()
	}
	n.disk = n.disk.PowerLoss(seed)
	n.s.model.powerLost(n)
}

// stop ends the process as it should: it asks the controller to be let go before.
func (n *node) stop() {
	if !n.up {
		return
	}
	s := n.s
	s.counts.add("clean stops", 1)
	s.note("node %d stops", n.id)
	if n.rep != nil && n.rep.p != nil {
		n.step(replica.Stop{LeaderEpoch: -1})
		n.rep.drain()
	}
	if s.failure != "" || n.dying != nil {
		return
	}
	err := n.dir.Close()
	if n.dying != nil {
		return
	}
	if err != nil && !n.shaky() {
		s.fail("node %d cannot close its root: %v", n.id, err)
	}
	if n.session != nil {
		n.session.Close()
		s.published(controller.IDsPrefix + strconv.Itoa(int(n.id)))
	}
	n.session = nil
	n.down()
	n.disk = n.disk.Kill()
}

func (n *node) down() {
	n.up, n.life, n.ready = false, n.life+1, false
	if n.rep != nil {
		n.s.model.closed(n.rep)
	}
	if n.gaps {
		n.s.model.powerLost(n)
	}
	n.rep, n.dir = nil, nil
	if session := n.session; session != nil {
		n.session = nil
		n.s.after(n.s.between(0, sessionTime), func() { n.s.expire(session, n.id) })
	}
}

// expire ends a session whose holder was not heard of.
func (s *sim) expire(session replica.Session, id replica.NodeID) {
	if over(session) {
		return
	}
	s.store.Expire(session)
	s.note("the session of node %d is over", id)
	s.counts.add("sessions lost", 1)
	s.published(controller.IDsPrefix + strconv.Itoa(int(id)))
}

// watchOver ends the sessions of those who cannot reach the store for too long.
func (s *sim) watchOver() {
	for _, n := range s.nodes {
		if n.up && n.session != nil && s.now-n.heard > sessionTime {
			s.expire(n.session, n.id)
		}
	}
	s.after(20*time.Millisecond, s.watchOver)
}

func (n *node) discard() { n.dir, n.rep = nil, nil }
