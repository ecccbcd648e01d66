package replicatest

import (
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/partlog/partlog/compaction"
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

	up      bool
	life    int            // of the process
	paused  time.Duration  // until then nothing happens in it
	fast    time.Duration  // its steady clock is ahead; never falls
	skew    time.Duration  // its wall clock is off
	drag    time.Duration  // what each access of the disk takes longer
	trouble bool           // the disk is full, or was in this life
	gaps    bool           // a sync failed: the device lacks what the page cache may have
	rigged  *Fault         // what comes with the next start
	dying   *vfstest.Crash // the disk as it was when the process stopped inside an access of it
	end     Fault          // how it stops

	dir     *log.Dir
	clean   bool // the process before stopped cleanly
	session replica.Session
	broker  int64 // epoch of its registration; 0: none in this life
	last    int64 // and of the last life's
	heard   time.Duration
	ready   bool  // news are for this registration
	deaf    int   // the watches of the store tell nothing
	sizes   int64 // of segments and logs, other than the topics'; 0: the same
	since   int64 // news of older revisions are not
	peers   [10]neighbour
	mins    []setting // min.insync.replicas by topic
	seats   []*seat   // by slot
	acts    []replica.Action
}

func newNode(s *sim, id replica.NodeID) *node {
	n := &node{s: s, id: id, skew: s.skew[id-1]}
	n.disk = vfstest.NewCrash(vfstest.CrashOptions{NoMmap: true, Now: n.wall})
	return n
}

func (n *node) place() place { return place(n.id) }

// mono is the node's steady clock, wall what it believes the time to be.
func (n *node) mono() time.Time { return began.Add(n.s.now + n.ahead()) }
func (n *node) wall() time.Time { return began.Add(n.s.now + n.skew) }

// ahead is how far the clock is ahead that replicas are told.
func (n *node) ahead() time.Duration {
	if n.s.mutant.wallClock {
		return n.skew
	}
	return n.fast
}

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
	n.broker, n.ready, n.since, n.mins, n.peers = 0, false, 0, nil, [10]neighbour{}
	for _, at := range n.seats {
		at.rep, at.next, at.shut, at.asks = nil, nil, false, map[uint64]bool{}
	}
	n.heard = s.now
	n.full = vfstest.NewFault(n.disk)
	if n.rigged != nil {
		n.rig(*n.rigged)
		n.rigged = nil
	}
	var fsys vfs.FS = n.full
	saved := s.highWatermarks(fsys)
	dir, err := log.OpenDir("", log.DirConfig{
		FS: fsys, Manual: true, SyncParallelism: 1, Now: n.wall, Map: index.Never, HighWatermarkInterval: time.Millisecond,
		Events:            n.events(),
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

	for i, at := range n.seats {
		if n.dying != nil {
			return
		}
		if slices.Contains(there, at.part().tp) {
			at.load(saved[i])
		}
		s.lives(at.index, func(p *part) {
			if p.rep(n.id) == nil && n.dying == nil && !at.shut {
				p.model.vanished(n.id)
			}
		})
	}
	n.later(s.between(0, 2*time.Millisecond), n.beat)
}

// events are what logs do by themselves.
func (n *node) events() *log.Events {
	c := n.s.counts
	return &log.Events{
		Rolled:   func(log.TopicPartition, log.SegmentInfo) { c.add("segments rolled", 1) },
		Retained: func(log.TopicPartition, log.RetentionReport) { c.add("retentions", 1) },
		Cleaned: func(tp log.TopicPartition, res compaction.Result) {
			for _, at := range n.seats {
				if r := at.rep; r != nil && r.part.tp == tp {
					r.part.model.cleaned(r, res)
				}
			}
		},
	}
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
		if n.s.calm && n.dying == nil {
			return nil // what was to come is over
		}
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
	n.disk = disk
	s.all(func(p *part) { p.model.unfinished[n.id] = true })
	if n.end.Amount&1 == 0 {
		n.powerLost()
	}
	s.after(n.end.For, n.start)
}

func (s *sim) logConfig(p *part) log.Config {
	c := log.Config{
		Visibility: log.External, Durability: log.Buffered, SegmentBytes: s.segment, IndexIntervalBytes: log.EveryBatch,
		TimestampBefore: log.Forever, TimestampAfter: 100 * 365 * 24 * time.Hour, FileDeleteDelay: log.Immediately,
		MinInSyncReplicas: s.MinISR, RetentionTime: log.Forever,
	}
	if s.retention > 0 {
		c.RetentionBytes = s.retention
	}
	if s.aging {
		c.RetentionTime = time.Hour
	}
	if p.compacted {
		if c.Cleanup = log.Compact; s.retention > 0 {
			c.Cleanup |= log.Delete
		}
		c.SegmentBytes = min(c.SegmentBytes, 512)
		c.Compaction.MinDirtyRatio = 0.01
		c.Compaction.DeleteRetention = 30 * time.Millisecond
	}
	return c
}

// resize gives the logs of a node their sizes.
func (n *node) resize() {
	if !n.up || n.dir == nil {
		return
	}
	for _, at := range n.seats {
		if r := at.rep; r != nil && n.dying == nil && !r.leaving && !r.gaveUp {
			n.s.counts.add("logs of another size", 1)
			if err := r.log.SetConfig(n.s.ctx, n.sized(n.s.logConfig(r.part))); err != nil && !n.shaky() {
				r.part.fail("node %d: settings: %v", n.id, err)
			}
		}
	}
}

// sized is a configuration with the sizes that the node has at present.
func (n *node) sized(c log.Config) log.Config {
	if n.sizes > 0 {
		c.SegmentBytes = []int64{300, 600, 2 << 10, 64 << 10}[n.sizes%4]
		c.RetentionBytes = []int64{0, 0, 1 << 10}[n.sizes%3]
	}
	return c
}

func (r *rep) config() replica.Config {
	n := r.n
	c := replica.Config{
		Self: n.id, BrokerEpoch: n.broker, MinISR: n.minISR(r.part.topic), LagTimeMax: lagTime, Checkpoint: markTime, FetchWait: fetchWait,
		FetchLimit: fetchLimit, Backoff: backOff, Truncation: n.s.Truncation, CountSynced: n.s.synced, FetchBytes: 4 << 10,
	}
	if n.s.mutant.noMinISR {
		c.MinISR = 1
	}
	return c
}

// powerLost tells what is known of each partition that the disk may have lost what was not synced.
func (n *node) powerLost() {
	n.s.all(func(p *part) { p.model.powerLost(n.id) })
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
	n.powerLost()
}

// stop ends the process as it should: it asks the controller to be let go before.
func (n *node) stop() {
	if !n.up {
		return
	}
	s := n.s
	s.counts.add("clean stops", 1)
	s.note("node %d stops", n.id)
	for _, at := range n.seats {
		if r := at.rep; r != nil && r.p != nil && n.dying == nil {
			r.step(replica.Stop{LeaderEpoch: -1})
			r.drain()
		}
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
	for _, at := range n.seats {
		if at.rep != nil {
			at.rep.part.model.closed(at.rep)
			at.rep = nil
		}
	}
	if n.gaps {
		n.powerLost()
	}
	n.dir = nil
	if session := n.session; session != nil {
		n.session = nil
		n.s.after(n.s.between(0, sessionTime), func() { n.s.expire(session, n.id) })
	}
}

func (n *node) discard() { n.dir, n.seats = nil, nil }
