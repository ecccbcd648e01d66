package log

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/partlog/partlog/index"
	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/vfs"
)

// lockFile is Kafka's: a broker and this library exclude each other by it.
const lockFile = ".lock"

// DirConfig of a log root; the zero value is right for most.
type DirConfig struct {
	FS          vfs.FS           // the root itself; nil: the operating system's directory named in OpenDir
	Defaults    Config           // what Dir.Open fills zero fields of a log's Config from
	Logger      *slog.Logger     // nil: silent
	Now         func() time.Time // clock for timestamps, age and retention; nil: time.Now
	LockTimeout time.Duration    // how long to wait for another owner; 0: not at all
	MaxMappings int              // mapped index files over all logs; 0: a quarter of Linux' default vm.max_map_count
	Map         index.MapMode    // index.Never: read indexes without mapping them
	// Progress is called now and then while Open recovers a partition, from its goroutine: bytes read, of how many. It must
	// not call the Dir.
	Progress func(tp TopicPartition, done, total int64)
	NoEvict  bool // trust the page cache in recovery: faster, but blind to an earlier failed sync
}

// Dir is a Kafka log dir: one lock, the checkpoints and many partitions. It starts nothing by itself: partitions are
// loaded, and recovered where the last stop was not clean, when Open asks for them. All methods are safe for
// concurrent use.
type Dir struct {
	fs     vfs.FS
	own    vfs.FS // the same if OpenDir made it, else nil
	cfg    DirConfig
	budget *index.Budget
	lock   io.Closer
	points *points
	hints  *hints
	clean  bool // the root carried the clean-shutdown marker
	epoch  int64

	// mu guards all below, for an instant: no I/O, nothing else is locked under it. Order of the others: Log.write, the
	// round token, points.writing, points.mu, marks.mu.
	mu     sync.Mutex
	logs   map[TopicPartition]*Log
	states map[TopicPartition]partitionState
	busy   map[TopicPartition]chan struct{} // partitions being loaded or closed; the channel is closed when that is over
	closed bool
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

// OpenDir takes the lock of a log root, creating the root if it does not exist. ErrLocked (with *vfs.LockedError): a
// broker or another opener has it. A malformed checkpoint does not stop it: the marks fall back to the safe side and
// every affected log reports so in its Recovery. ErrNotLog: root is empty, or a file. *ConfigError: DirConfig.Defaults
// cannot be used; nothing was touched.
func OpenDir(root string, c DirConfig) (*Dir, error) {
	if root == "" && c.FS == nil {
		return nil, errNoPath
	}
	if err := c.Defaults.Validate(); err != nil {
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
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	d := &Dir{fs: c.FS, cfg: c, budget: index.NewBudget(c.MaxMappings), logs: map[TopicPartition]*Log{}, states: map[TopicPartition]partitionState{}, busy: map[TopicPartition]chan struct{}{}}
	d.own = own
	err := d.takeLock()
	if err == nil {
		if err = d.readRoot(); err != nil {
			err = errors.Join(err, d.lock.Close())
		}
	}
	if err != nil {
		return nil, openError(root, errors.Join(err, closeTree(own)))
	}
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

// readRoot reads marker and checkpoints. The marker is removed, durably, before any log is touched: a crash from here
// on is an unclean stop.
func (d *Dir) readRoot() error {
	epoch, clean, err := checkpoint.ReadCleanMarker(d.fs)
	if err != nil {
		return err
	}
	d.clean, d.epoch = clean, epoch
	if d.points, err = readPoints(d.fs); err != nil {
		return err
	}
	if d.hints, err = openHints(d.fs, clean); err != nil {
		return err
	}
	if !clean {
		return nil
	}
	return checkpoint.RemoveCleanMarker(d.fs)
}

var errNoPath = fmt.Errorf("%w: the path is empty", ErrNotLog)

// openError gives an error of opening its name in this package.
func openError(path string, err error) error {
	switch {
	case errors.Is(err, vfs.ErrLocked):
		return &openFailure{ErrLocked, path, err}
	case errors.Is(err, fs.ErrPermission), isReadOnlyFS(err):
		return &openFailure{ErrReadOnly, path, err}
	case isNoSpace(err):
		return &openFailure{ErrNoSpace, path, err}
	case errors.Is(err, syscall.ENOTDIR):
		return &openFailure{ErrNotLog, path, err}
	}
	return &openFailure{nil, path, err}
}

// openFailure is an error of opening a path, which it names once. kind may be nil.
type openFailure struct {
	kind error
	path string
	err  error
}

func (e *openFailure) Error() string {
	text := e.err.Error()
	if p, ok := e.err.(*fs.PathError); ok && filepath.Clean(p.Path) == filepath.Clean(e.path) {
		text = p.Err.Error()
	}
	text = e.path + ": " + text
	if e.kind == nil {
		return "open " + text
	}
	return e.kind.Error() + ": " + text
}

func (e *openFailure) Unwrap() []error {
	if e.kind == nil {
		return []error{e.err}
	}
	return []error{e.kind, e.err}
}

// Open loads a partition, creating it if absent, and recovers it if the last stop was not clean. A partition that is
// open already is returned as it is, whatever c says. Zero fields of c come from DirConfig.Defaults, then from Kafka.
//
// Different partitions may be opened at the same time. ctx ends the wait for another call that opens or closes this
// one, and a recovery.
func (d *Dir) Open(ctx context.Context, tp TopicPartition, c Config) (*Log, error) {
	return d.openListed(ctx, tp, c, nil)
}

// openListed is Open for a caller that has just read the partition's folder; nil: Open reads it.
func (d *Dir) openListed(ctx context.Context, tp TopicPartition, c Config, entries []fs.DirEntry) (*Log, error) {
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
	defer func() { d.end(tp, state, l) }()
	if err := l.open(ctx, clean, entries); err != nil {
		return nil, openError(l.name, err)
	}
	state = opened
	return l, nil
}

// beginOpen takes the partition for a call that loads it, or gives the log that is open. clean says how it was left.
func (d *Dir) beginOpen(ctx context.Context, tp TopicPartition) (there *Log, clean bool, err error) {
	for {
		d.mu.Lock()
		running := d.busy[tp]
		switch {
		case d.closed:
			err = ErrClosed
		case running != nil:
		case d.logs[tp] != nil:
			there = d.logs[tp]
		default:
			clean = d.startsClean(tp)
			d.states[tp], d.busy[tp] = opened, make(chan struct{})
		}
		d.mu.Unlock()
		if running == nil || err != nil {
			return there, clean, err
		}
		if err := waitRound(ctx, running); err != nil {
			return nil, false, err
		}
	}
}

// end gives the partition back after it was loaded or closed.
func (d *Dir) end(tp TopicPartition, state partitionState, l *Log) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.states[tp] = state; state == opened {
		d.logs[tp] = l
	}
	close(d.busy[tp])
	delete(d.busy, tp)
}

// beginClose takes an open partition out of the directory, for a call that closes it; false if it is not open any more.
func (d *Dir) beginClose(l *Log) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.logs[l.tp] != l {
		return false
	}
	delete(d.logs, l.tp)
	d.busy[l.tp] = make(chan struct{})
	return true
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
	d.mu.Lock()
	logs := maps.Clone(d.logs)
	d.mu.Unlock()
	tps := slices.SortedFunc(maps.Keys(logs), TopicPartition.compare)
	return func(yield func(TopicPartition, *Log) bool) {
		for _, tp := range tps {
			if !yield(tp, logs[tp]) {
				return
			}
		}
	}
}

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
	return name == "remote-log-index-cache" || name == "__cluster_metadata-0"
}

// CleanShutdown says whether the root was stopped cleanly before this open, and the broker epoch its marker names (-1
// if none): what a controller is told at registration (KIP-966).
func (d *Dir) CleanShutdown() (brokerEpoch int64, clean bool) { return d.epoch, d.clean }

// Close closes every partition and the root: all is synced, checkpoints and the clean-shutdown marker are written, and
// the lock is released. It waits for running appends, not for iterators. If a partition could not be flushed the
// marker is withheld, so that the next open (ours or a broker's) recovers. A second Close returns ErrClosed.
func (d *Dir) Close() error {
	logs, first := d.beginEnd()
	if !first {
		return ErrClosed
	}
	var errs []error
	for {
		for _, l := range logs {
			if _, err := d.shut(l, false); err != nil {
				errs = append(errs, err)
			}
		}
		running := d.running()
		if running == nil {
			break
		}
		<-running
		logs, _ = d.beginEnd() // what another call had begun to open
	}
	if err := d.writeRoot(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(append(errs, d.lock.Close(), closeTree(d.own))...)
}

// beginEnd refuses what comes from now on and gives the logs that are open.
func (d *Dir) beginEnd() (logs []*Log, first bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	first, d.closed = !d.closed && d.fs != nil, true
	return slices.Collect(maps.Values(d.logs)), first
}

// running is closed when one of the partitions that are being loaded or closed is done; nil if there is none.
func (d *Dir) running() chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, running := range d.busy {
		return running
	}
	return nil
}

// writeRoot leaves the root as a cleanly stopped broker does: checkpoints first, the marker last.
func (d *Dir) writeRoot() error {
	err := d.points.writeAll()
	stopped := false
	if err == nil {
		stopped, err = d.stoppedCleanly()
	}
	if err := errors.Join(err, d.hints.close(stopped)); err != nil || !stopped {
		return err
	}
	return checkpoint.WriteCleanMarker(d.fs, d.epoch)
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

// stoppedCleanly: the marker speaks for every partition of the root.
func (d *Dir) stoppedCleanly() (bool, error) {
	unclean, _, err := d.partitions(func(tp TopicPartition) bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.startsClean(tp)
	})
	return len(unclean) == 0, err
}

// shut ends one log and remembers how, in the checkpoints too if asked. It is false if another call did or does it.
func (d *Dir) shut(l *Log, write bool) (mine bool, err error) {
	if !d.beginClose(l) {
		return false, nil
	}
	state := failed
	defer func() { d.end(l.tp, state, nil) }()
	if err := l.shut(); err != nil {
		return true, err
	}
	state = rested
	if write {
		err = d.points.writeAll()
	}
	return true, err
}
