package log

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/partlog/partlog/index"
	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/vfs"
)

// lockFile is Kafka's: a broker and this library exclude each other by it.
const lockFile = ".lock"

// Dir is a Kafka log dir: one lock, the checkpoints, many partitions, and the work that keeps them in order (flushing,
// checkpoints, retention, removal of deleted partitions), on a few goroutines whatever the number of logs. A partition is
// loaded, and recovered where the last stop was not clean, when Open asks for it, or OpenAll for all. All methods are safe
// for concurrent use.
type Dir struct {
	fs       vfs.FS
	own      vfs.FS // the same if OpenDir made it, else nil
	cfg      DirConfig
	budget   *index.Budget
	lock     io.Closer
	points   *points
	hints    *hints
	clean    bool // the root carried the clean-shutdown marker
	stopped  int64
	identity Identity
	reserve  reserve
	rounds   rounds

	misnamed map[TopicPartition]string // folders of live partitions whose number is written otherwise, as t-00; of OpenDir, not changed

	background  *background
	failures    failures // of the root, and of partitions that are not open
	out         outbox   // events that belong to no open log
	eventPanics atomic.Int64
	flushEvery  atomic.Int64 // the shortest Config.FlushInterval of the open logs, a time.Duration; 0 none
	loads       loads

	// mu guards all below, for an instant: no I/O, nothing else is locked under it but marks.mu. Order of the others:
	// Log.write, the round token, points.writing, points.mu, marks.mu.
	mu      sync.Mutex
	logs    map[TopicPartition]*Log
	states  map[TopicPartition]partitionState
	busy    map[TopicPartition]chan struct{} // partitions being loaded, closed, deleted; the channel is closed when that is over
	moves   map[TopicPartition]bool          // partitions that leave this Dir, or come to it
	marked  map[string]MarkedFolder          // by name: folders that are no live partition's
	futures map[TopicPartition]string        // of these, the copies of moves
	doomed  []doomed                         // of these, the ones to be removed
	epoch   int64                            // of the broker, for the clean-shutdown marker
	closed  bool
}

// partitionState is what has become of a partition folder since OpenDir.
type partitionState uint8

const (
	untouched partitionState = iota // as the last owner left it: clean if the root was
	opened                          // being loaded, or open
	rested                          // closed cleanly
	failed                          // could not be loaded or closed: only a recovery may trust it
)

// startsClean says whether a partition may be opened without looking for a torn tail. The caller holds mu.
func (d *Dir) startsClean(tp TopicPartition) bool {
	s := d.states[tp]
	return s == rested || s == untouched && d.clean
}

// OpenDir takes the lock of a log root, creating the root if it does not exist, and begins the background work unless
// c.Manual is set. No partition is loaded. ErrLocked (with *vfs.LockedError): a broker or another opener has it. A malformed
// checkpoint does not stop it: the marks fall back to the safe side and every affected log reports so in its Recovery.
// ErrNotLog: root is empty, or a file. ErrIdentity: the root is of another node or cluster. *ConfigError: c cannot be used,
// and nothing was touched.
func OpenDir(root string, c DirConfig) (*Dir, error) {
	if root == "" && c.FS == nil {
		return nil, errNoPath
	}
	if err := c.validate(); err != nil {
		return nil, err
	}
	var own vfs.FS // made here, so given back here
	if c.FS == nil {
		fsys, err := vfs.OS(root)
		if err != nil {
			return nil, openError(root, err)
		}
		own, c.FS = fsys, fsys
	}
	c = c.withDefaults()
	d := &Dir{fs: c.FS, own: own, cfg: c, budget: index.NewBudget(c.MaxMappings), reserve: reserve{fs: c.FS, min: c.MinFreeBytes},
		logs: map[TopicPartition]*Log{}, states: map[TopicPartition]partitionState{}, busy: map[TopicPartition]chan struct{}{},
		moves: map[TopicPartition]bool{}, marked: map[string]MarkedFolder{}, futures: map[TopicPartition]string{}, misnamed: map[TopicPartition]string{}}
	d.budget.LimitFiles(c.MaxOpenFiles)
	d.cfg.Progress = d.progressed(c.Progress)
	err := d.takeLock()
	if err == nil {
		if err = d.readRoot(); err != nil {
			err = errors.Join(err, d.lock.Close())
		}
	}
	if err != nil {
		err = errors.Join(err, closeTree(own))
		if config, ok := errors.AsType[*ConfigError](err); ok {
			return nil, config
		}
		return nil, openError(root, err)
	}
	d.background = newBackground(d)
	d.background.fillTable()
	d.background.start()
	return d, nil
}

// closeTree gives back what a file system of the operating system holds open; others hold nothing.
func closeTree(fsys vfs.FS) error {
	if c, ok := fsys.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

func (d *Dir) takeLock() (err error) {
	deadline := time.Now().Add(d.cfg.LockTimeout)
	for {
		if d.lock, err = d.fs.Lock(lockFile); err == nil {
			return nil
		}
		if !errors.Is(err, vfs.ErrLocked) || !time.Now().Before(deadline) {
			return err
		}
		time.Sleep(min(10*time.Millisecond, time.Until(deadline)))
	}
}

// readRoot reads identity, marker and checkpoints. The marker is removed before any log is touched: a crash from here on is
// an unclean stop. The names in the root are durable when it returns.
func (d *Dir) readRoot() (err error) {
	if err := d.reserve.check(); err != nil {
		return err
	}
	entries, err := d.fs.ReadDir(".")
	if err != nil {
		return err
	}
	if d.identity, err = readIdentity(d.fs, d.cfg, entries); err != nil {
		return err
	}
	d.readMarked(entries)
	if d.stopped, d.clean, err = checkpoint.ReadCleanMarker(d.fs); err != nil {
		return err
	}
	d.epoch = d.stopped
	if d.points, err = readPoints(d.fs, d.cfg.Now); err != nil {
		return err
	}
	d.points.keep(d.among(entries))
	if d.hints, err = openHints(d.fs, d.clean); err != nil {
		return err
	}
	if d.clean {
		return checkpoint.RemoveCleanMarker(d.fs)
	}
	// The last owner may have been killed between making or renaming a folder and syncing the root. What is done from here on
	// with what can be seen must not be lost with its name.
	return syncDir(d.fs, ".")
}

// among tells the partitions that have a folder, or are the copy of a move, from those that have none.
func (d *Dir) among(entries []fs.DirEntry) func(TopicPartition) bool {
	names := make(map[string]bool, len(entries))
	for _, e := range entries {
		names[e.Name()] = true
	}
	return func(tp TopicPartition) bool {
		_, moves := d.futures[tp]
		_, misnamed := d.misnamed[tp]
		return moves || misnamed || names[tp.String()]
	}
}

// Open loads a partition, creating it if absent, and recovers it if the last stop was not clean. A partition that is
// open already is returned as it is, whatever c says. Zero fields of c come from DirConfig.Defaults, then from Kafka.
// ErrMoving: the partition is on its way to this root, or a move of it was not finished (SettleMoves).
//
// Different partitions may be opened at the same time. ctx ends the wait for another call that opens or closes this
// one, and a recovery.
func (d *Dir) Open(ctx context.Context, tp TopicPartition, c Config) (*Log, error) {
	return d.openAs(ctx, tp, c, opening{})
}

// opening is what the caller of an open knows or wants.
type opening struct {
	entries  []fs.DirEntry // what the folder holds, just read with nobody else at it; nil: the open reads it
	onlyLogs bool          // a folder that is not a log's is errNoLog
}

func (d *Dir) openAs(ctx context.Context, tp TopicPartition, c Config, o opening) (*Log, error) {
	if d.fs == nil {
		return nil, ErrClosed
	}
	l, err := d.newLog(tp, c)
	if err != nil {
		return nil, err
	}
	there, clean, err := d.beginOpen(ctx, tp)
	if there != nil || err != nil {
		return there, err
	}
	state := failed
	defer func() {
		d.end(tp, state, l)
		l.deliver()
		d.deliver()
	}()
	if err := l.open(ctx, clean, o); err != nil {
		if err == errNoLog {
			state = untouched
			return nil, err
		}
		err = openError(l.name, err)
		if ctx.Err() == nil {
			d.note(&d.failures, tp, taskOpen, d.cfg.Now(), err)
		}
		return nil, err
	}
	d.opened(l)
	state = opened
	return l, nil
}

// taskOpen is Failure.Task of a partition that could not be opened.
const taskOpen = "open"

// opened follows a load that went well.
func (d *Dir) opened(l *Log) {
	d.failures.clearOf(l.tp, taskOpen)
	if folder, ok := d.futureOf(l.tp); ok {
		l.find(Finding{File: folder, Position: -1, Offset: -1, Kind: FindingFuture,
			Detail: "the copy of a move stands beside the partition it was made of, in one root: a broker would not start on it; it is not used here"})
	}
	l.tell(func(e *Events) {
		if e.Recovered != nil {
			e.Recovered(l.tp, l.recovery)
		}
	})
}

// beginOpen takes the partition for a call that loads it, or gives the log that is open. clean says how it was left.
func (d *Dir) beginOpen(ctx context.Context, tp TopicPartition) (there *Log, clean bool, err error) {
	was := untouched
	err = d.hold(ctx, tp, func() (take bool, err error) {
		if there = d.logs[tp]; there != nil {
			return false, nil
		}
		if d.moves[tp] {
			return false, fmt.Errorf("%w: %s", ErrMoving, tp)
		}
		clean, was = d.startsClean(tp), d.states[tp]
		d.states[tp] = opened
		return true, nil
	})
	if there != nil || err != nil {
		return there, false, err
	}
	if folder, ok := d.misnamed[tp]; ok && exists(d.fs, folder) {
		d.end(tp, was, nil)
		return nil, false, misnamed(folder, tp)
	}
	if folder, ok := d.futureOf(tp); ok && !exists(d.fs, tp.String()) {
		d.end(tp, was, nil)
		return nil, false, fmt.Errorf("%w: %s holds the copy of %s", ErrMoving, folder, tp)
	}
	return nil, clean, nil
}

// hold takes a partition for one call: until end nobody else opens, closes, deletes or moves it. Once it is free, look is
// called under mu to say whether to take it.
func (d *Dir) hold(ctx context.Context, tp TopicPartition, look func() (take bool, err error)) error {
	for {
		var err error
		d.mu.Lock()
		running := d.busy[tp]
		if running == nil {
			take := false
			if err = ErrClosed; !d.closed {
				take, err = look()
			}
			if take && err == nil {
				d.busy[tp] = make(chan struct{})
			}
		}
		closed := d.closed
		d.mu.Unlock()
		switch {
		case running == nil:
			return err
		case closed:
			return ErrClosed
		}
		if err := waitRound(ctx, running); err != nil {
			return err
		}
	}
}

// end gives the partition back after hold. With state opened, l is open from now on.
func (d *Dir) end(tp TopicPartition, state partitionState, l *Log) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch state {
	case untouched:
		delete(d.states, tp)
	case opened:
		d.logs[tp] = l
		d.flushWith(l)
	}
	if state != untouched {
		d.states[tp] = state
	}
	close(d.busy[tp])
	delete(d.busy, tp)
}

// flushWith counts the log in for how often to look for what is to be flushed. mu is held.
func (d *Dir) flushWith(l *Log) {
	every := l.cfg().FlushInterval
	if every <= 0 {
		return
	}
	if now := d.flushEvery.Load(); now == 0 || int64(every) < now {
		d.flushEvery.Store(int64(every))
		d.background.wake()
	}
}

// flushWithout takes it out again. mu is held.
func (d *Dir) flushWithout(l *Log) {
	if int64(l.cfg().FlushInterval) != d.flushEvery.Load() {
		return
	}
	d.flushEvery.Store(0)
	for _, other := range d.logs {
		d.flushWith(other)
	}
}

// beginClose takes an open partition out of the directory, for a call that closes it; false if it is not open any more.
func (d *Dir) beginClose(l *Log) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.logs[l.tp] != l {
		return false
	}
	d.takeOut(l)
	d.busy[l.tp] = make(chan struct{})
	return true
}

// takeOut makes a log one that is not open any more. mu is held.
func (d *Dir) takeOut(l *Log) {
	delete(d.logs, l.tp)
	d.flushWithout(l)
}

// Get returns a partition that is open.
func (d *Dir) Get(tp TopicPartition) (*Log, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l, ok := d.logs[tp]
	return l, ok
}

// Logs ranges over the open partitions by topic and number, as they are when it is called.
func (d *Dir) Logs() iter.Seq2[TopicPartition, *Log] {
	logs := slices.SortedFunc(d.open(), byName)
	return func(yield func(TopicPartition, *Log) bool) {
		for _, l := range logs {
			if !yield(l.tp, l) {
				return
			}
		}
	}
}

// open ranges over the open partitions in no order, as they are when it is called.
func (d *Dir) open() iter.Seq[*Log] {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Values(slices.Collect(maps.Values(d.logs)))
}

func byName(a, b *Log) int { return a.tp.compare(b.tp) }

func (tp TopicPartition) compare(other TopicPartition) int {
	if c := strings.Compare(tp.Topic, other.Topic); c != 0 {
		return c
	}
	return int(tp.Partition) - int(other.Partition)
}

// Folders lists what the root holds: partition folders, open or not, and directories that are none. A broker refuses to
// start beside one of the latter.
func (d *Dir) Folders() (partitions []TopicPartition, foreign []string, err error) {
	if d.fs == nil {
		return nil, nil, ErrClosed
	}
	return Folders(d.fs)
}

// Folders is Dir.Folders for a root that is not open.
func Folders(fsys vfs.FS) (partitions []TopicPartition, foreign []string, err error) {
	entries, err := fsys.ReadDir(".")
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		if !e.IsDir() || ignoredFolder(e.Name()) {
			continue
		}
		tp, state, err := parseFolder(e.Name())
		switch {
		case err != nil:
			foreign = append(foreign, e.Name())
		case state == liveFolder:
			partitions = append(partitions, tp)
		}
	}
	return partitions, foreign, nil
}

// ignoredFolder: parts of a log root that belong to a broker's other subsystems.
func ignoredFolder(name string) bool {
	return name == "remote-log-index-cache" || name == clusterMetadata.String()
}

// deliver calls the events that belong to no open log. The caller holds no lock.
func (d *Dir) deliver() {
	if d.out.waiting.Load() > 0 {
		d.call(&d.out)
	}
}

// CleanShutdown says whether the root was stopped cleanly before this open, and the broker epoch its marker names (-1
// if none): what a controller is told at registration (KIP-966).
func (d *Dir) CleanShutdown() (brokerEpoch int64, clean bool) { return d.stopped, d.clean }

// SetBrokerEpoch says which epoch the marker of the next clean stop names: the one that the controller gave this node at
// its registration. Without a call it is the one that was found.
func (d *Dir) SetBrokerEpoch(epoch int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.epoch = epoch
}

// partitions lists the folders that are a log's not by their names alone: a photos-2024 with pictures in it is none. last is
// what the last of them holds. Those of which known says so are not looked into, and not listed.
func (d *Dir) partitions(known func(TopicPartition) bool) (logs []TopicPartition, last []fs.DirEntry, err error) {
	named, _, err := Folders(d.fs)
	if err != nil {
		return nil, nil, err
	}
	for _, tp := range named {
		if known(tp) {
			continue
		}
		entries, err := d.fs.ReadDir(tp.String())
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // the name may be another way to write the number
			return nil, nil, err
		}
		if !strangers(entries) {
			logs, last = append(logs, tp), entries
		}
	}
	return logs, last, nil
}
