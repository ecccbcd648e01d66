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
	"slices"
	"strings"
	"sync"
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
	NoEvict     bool             // trust the page cache in recovery: faster, but blind to an earlier failed sync
}

// Dir is a Kafka log dir: one lock, the checkpoints and many partitions. It starts nothing by itself: partitions are
// loaded, and recovered where the last stop was not clean, when Open asks for them. All methods are safe for
// concurrent use.
type Dir struct {
	fs     vfs.FS
	cfg    DirConfig
	budget *index.Budget
	lock   io.Closer
	points *points
	hints  *hints
	clean  bool // the root carried the clean-shutdown marker
	epoch  int64

	// mu guards all below. Loading a partition and closing happen under it; appends and reads never take it. Order:
	// Dir.mu, Log.write, the round token, points.mu, marks.mu.
	mu     sync.Mutex
	logs   map[TopicPartition]*Log
	states map[TopicPartition]partitionState
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
// every affected log reports so in its Recovery.
func OpenDir(root string, c DirConfig) (*Dir, error) {
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
	d := &Dir{fs: c.FS, cfg: c, budget: index.NewBudget(c.MaxMappings), logs: map[TopicPartition]*Log{}, states: map[TopicPartition]partitionState{}}
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

// openError gives an error of opening its name in this package.
func openError(path string, err error) error {
	switch {
	case errors.Is(err, vfs.ErrLocked):
		return fmt.Errorf("%w: %s: %w", ErrLocked, path, err)
	case errors.Is(err, fs.ErrPermission), isReadOnlyFS(err):
		return fmt.Errorf("%w: %s: %w", ErrReadOnly, path, err)
	case isNoSpace(err):
		return fmt.Errorf("%w: open %s: %w", ErrNoSpace, path, err)
	}
	return fmt.Errorf("open %s: %w", path, err)
}

// Open loads a partition, creating it if absent, and recovers it if the last stop was not clean. A partition that is
// open already is returned as it is, whatever c says. Zero fields of c come from DirConfig.Defaults, then from Kafka.
func (d *Dir) Open(ctx context.Context, tp TopicPartition, c Config) (*Log, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, ErrClosed
	}
	if l, ok := d.logs[tp]; ok {
		return l, nil
	}
	l, err := d.newLog(tp, c)
	if err != nil {
		return nil, err
	}
	clean := d.startsClean(tp)
	d.states[tp] = opened
	if err := l.open(ctx, clean); err != nil {
		d.states[tp] = failed
		return nil, openError(l.name, err)
	}
	d.logs[tp] = l
	return l, nil
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
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ErrClosed
	}
	d.closed = true
	var errs []error
	for tp, l := range d.logs {
		errs = append(errs, d.shut(tp, l))
	}
	if err := d.writeRoot(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(append(errs, d.lock.Close())...)
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

// stoppedCleanly: the marker speaks for every partition of the root. The caller holds mu.
func (d *Dir) stoppedCleanly() (bool, error) {
	partitions, _, err := d.Folders()
	if err != nil {
		return false, err
	}
	for _, tp := range partitions {
		if !d.startsClean(tp) {
			return false, nil
		}
	}
	return true, nil
}

// shut ends one log and remembers how. The caller holds mu.
func (d *Dir) shut(tp TopicPartition, l *Log) error {
	if err := l.shut(); err != nil {
		d.states[tp] = failed
		return err
	}
	d.states[tp] = rested
	return nil
}
