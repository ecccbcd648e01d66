package log

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// LoadProgress is how far OpenAll has come.
type LoadProgress struct {
	Partitions int            // to be opened, those that were open already included
	Done       int            // opened, or failed
	Failed     int            // of these
	Last       TopicPartition // the one that was done last; zero before the first
	Read       int64          // bytes read in recovering what was not stopped cleanly, of those that are done and of those at work
	ToRead     int64          // bytes that are known to be read; it grows while more partitions are begun
}

// PartitionError is the failure of one partition among many.
type PartitionError struct {
	TopicPartition TopicPartition
	Err            error
}

func (e *PartitionError) Error() string { return fmt.Sprintf("%s: %v", e.TopicPartition, e.Err) }

// Unwrap gives the reason.
func (e *PartitionError) Unwrap() error { return e.Err }

// LoadError lists the partitions that OpenAll could not open, by topic and number; all others are open.
type LoadError struct{ Failed []*PartitionError }

func (e *LoadError) Error() string {
	if len(e.Failed) == 1 {
		return fmt.Sprintf("log: a partition could not be opened: %v", e.Failed[0])
	}
	return fmt.Sprintf("log: %d partitions could not be opened, the first is %v", len(e.Failed), e.Failed[0])
}

// Unwrap gives the *PartitionErrors.
func (e *LoadError) Unwrap() []error {
	all := make([]error, len(e.Failed))
	for i, f := range e.Failed {
		all[i] = f
	}
	return all
}

// OpenAllOptions of OpenAll; the zero value opens everything with DirConfig.Defaults.
type OpenAllOptions struct {
	// Config is what Open is given for a partition; nil: the zero Config.
	Config func(TopicPartition) Config
	// Progress is called when a partition is done and now and then in between, one call at a time, from the goroutines that
	// load. It must not call the Dir.
	Progress func(LoadProgress)
}

// OpenAll opens every partition of the root, RecoveryThreads at a time. After a clean stop that reads a few small files for
// each; otherwise each is recovered. Afterwards no partition holds a file open that it does not use.
//
// One that cannot be opened does not stop the others: the error is then a *LoadError that lists all such, and they are in
// Stats until they are opened. If ctx ends, the error is ctx's, and what was opened stays open.
func (d *Dir) OpenAll(ctx context.Context, o OpenAllOptions) error {
	if d.fs == nil {
		return ErrClosed
	}
	partitions, _, err := Folders(d.fs)
	if err != nil {
		return err
	}
	run := &loadRun{o: o, at: LoadProgress{Partitions: len(partitions)}, reading: map[TopicPartition]LoadProgress{}}
	d.loads.begin(run)
	defer d.loads.end(run)
	failed := make([]*PartitionError, len(partitions))
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(d.cfg.RecoveryThreads, len(partitions)) {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(partitions)) && ctx.Err() == nil; i = next.Add(1) - 1 {
				switch err := d.load(ctx, partitions[i], o); {
				case err == errNoLog:
					run.passOver()
				case err != nil:
					failed[i] = &PartitionError{partitions[i], err}
					run.done(partitions[i], true)
				default:
					run.done(partitions[i], false)
				}
			}
		})
	}
	all.Wait()
	if err := ctx.Err(); err != nil {
		return err
	}
	report := &LoadError{}
	for _, f := range failed {
		switch {
		case f == nil:
		case errors.Is(f, ErrClosed):
			return ErrClosed
		default:
			report.Failed = append(report.Failed, f)
		}
	}
	if len(report.Failed) == 0 {
		return nil
	}
	return report
}

// errNoLog: the folder is not a log's, whatever its name; see Dir.partitions.
var errNoLog = errors.New("not a log's folder")

func (d *Dir) load(ctx context.Context, tp TopicPartition, o OpenAllOptions) error {
	if _, ok := d.Get(tp); ok {
		return nil
	}
	var c Config
	if o.Config != nil {
		c = o.Config(tp)
	}
	l, err := d.openAs(ctx, tp, c, opening{onlyLogs: true})
	if err != nil {
		return err
	}
	for _, seg := range l.segments() {
		if err := seg.Park(); err != nil {
			return err
		}
	}
	return nil
}

// loads are the calls of OpenAll under way, for those who report what they read.
type loads struct {
	// mu guards runs; it is held for an instant.
	mu   sync.Mutex
	runs map[*loadRun]bool
}

func (g *loads) begin(r *loadRun) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.runs == nil {
		g.runs = map[*loadRun]bool{}
	}
	g.runs[r] = true
}

func (g *loads) end(r *loadRun) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.runs, r)
}

func (g *loads) list() (all []*loadRun) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for r := range g.runs {
		all = append(all, r)
	}
	return all
}

// loadRun is one call of OpenAll.
type loadRun struct {
	o OpenAllOptions

	// mu guards all below; it is held while the host's function runs.
	mu      sync.Mutex
	at      LoadProgress
	reading map[TopicPartition]LoadProgress // Read and ToRead of each partition
}

// passOver takes a partition that is none out of the account.
func (r *loadRun) passOver() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at.Partitions--
	r.tell()
}

func (r *loadRun) done(tp TopicPartition, failed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at.Done++
	r.at.Last = tp
	if failed {
		r.at.Failed++
	}
	if p, ok := r.reading[tp]; ok && !failed {
		r.read(tp, p.ToRead, p.ToRead)
	}
	r.tell()
}

// read notes how far a recovery is. mu is held.
func (r *loadRun) read(tp TopicPartition, done, total int64) {
	p := r.reading[tp]
	r.at.Read += done - p.Read
	r.at.ToRead += total - p.ToRead
	r.reading[tp] = LoadProgress{Read: done, ToRead: total}
}

func (r *loadRun) tell() {
	if r.o.Progress != nil {
		r.o.Progress(r.at)
	}
}

// progressed is DirConfig.Progress of every recovery in this Dir.
func (d *Dir) progressed(host func(tp TopicPartition, done, total int64)) func(TopicPartition, int64, int64) {
	return func(tp TopicPartition, done, total int64) {
		if host != nil {
			host(tp, done, total)
		}
		for _, r := range d.loads.list() {
			r.mu.Lock()
			r.read(tp, done, total)
			r.tell()
			r.mu.Unlock()
		}
	}
}
