package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/partlog/partlog/compaction"
	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
)

const (
	dirtyRecords   = 1_000_000
	dirtyKeys      = 100_000
	dropSegments   = 10_000
	besideSegments = 500      // that go while records are appended
	cleanMapBytes  = 16 << 20 // the keys take 2.4 MB of it
)

// cleanMemoryRow is what a compaction takes beside the open log: buffers, and the map that its keys fill.
const (
	cleanMemoryRow  = "memory of that compaction"
	mostCleanMemory = 64 << 20
)

func cleanRows() []row {
	return []row{
		{name: "compact 1,000,000 records of 100,000 keys", floor: "copy and sync of the log", atMost: 12, orRate: 300, rounds: 5, make: compactLog},
		{name: "retention drops 10,000 segments", floor: "two renames each", within: time.Second, rounds: 3, make: dropMany},
		{name: "append while compacting, p99", floor: "append, p99", atMost: 2, rounds: 5, make: appendBeside(log.Buffered, compacting)},
		{name: "append while compacting, p99, beside bare", floor: "pwrite while files are copied, p99", rounds: 5, make: appendBesideBare(log.Buffered, compacting, bareCopy)},
		{name: "durable append while compacting, p99", floor: "append, p99", atMost: 2, rounds: 5, make: appendBeside(log.Durable, compacting)},
		{name: "durable append while compacting, p99, beside bare", floor: "pwrite + fdatasync while files are copied, p99", rounds: 5, make: appendBesideBare(log.Durable, compacting, bareCopy)},
		{name: "append while retention drops 500 segments, p99", floor: "pwrite + fdatasync, p50", atMost: 1, rounds: 5, make: appendBeside(log.Buffered, dropping)},
		{name: "append while retention drops 500 segments, p99, beside bare", floor: "pwrite while files are renamed, p99", rounds: 5, make: appendBesideBare(log.Buffered, dropping, bareRenames)},
	}
}

// dirtyLog is a closed log root of a million records with values of 100 bytes, each of the keys about ten times.
func (f *fixtures) dirtyLog() (root string, err error) {
	if f.dirty != "" {
		return f.dirty, nil
	}
	root = f.fresh()
	l, err := log.Open(root, dirtyConfig(log.Buffered))
	if err != nil {
		return "", err
	}
	random, recs := rand.New(rand.NewPCG(1, 2)), hundred()
	for n := 0; n < dirtyRecords; n += len(recs) {
		for i := range recs {
			recs[i].Key = fmt.Appendf(recs[i].Key[:0], "key-%010d", random.IntN(dirtyKeys))
			binary.LittleEndian.PutUint64(recs[i].Value, random.Uint64())
		}
		if _, err := l.Append(background, recs...); err != nil {
			return "", errors.Join(err, l.Close())
		}
	}
	if err := l.Roll(background); err != nil {
		return "", errors.Join(err, l.Close())
	}
	f.dirty = root
	return root, l.Close()
}

func dirtyConfig(d log.Durability) log.Config {
	return log.Config{Durability: d, Cleanup: log.Compact, SegmentBytes: bigSegments, Compaction: compaction.Config{MapBytes: cleanMapBytes}}
}

// copyRoot copies a log root. Segments that are not written to any more may be links to those of the old one.
func copyRoot(from, to string, linked bool) error {
	dir := filepath.Join(from, partition)
	if err := os.MkdirAll(filepath.Join(to, partition), 0o755); err != nil {
		return err
	}
	for _, at := range []string{"", partition} {
		entries, err := os.ReadDir(filepath.Join(from, at))
		if err != nil {
			return err
		}
		last := "" // names of the active segment sort behind all others
		for _, e := range entries {
			if strings.HasSuffix(e.Name(), ".log") {
				last = strings.TrimSuffix(e.Name(), ".log")
			}
		}
		for _, e := range entries {
			if e.IsDir() || e.Name() == ".lock" {
				continue
			}
			src, dst := filepath.Join(from, at, e.Name()), filepath.Join(to, at, e.Name())
			if linked && at != "" && filepath.Dir(src) == dir && len(e.Name()) > 20 && !strings.HasPrefix(e.Name(), last) {
				err = os.Link(src, dst)
			} else {
				err = copyFile(src, dst, false)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func copyFile(from, to string, sync bool) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.CopyBuffer(struct{ io.Writer }{dst}, struct{ io.Reader }{src}, make([]byte, 1<<20))
	if err == nil && sync {
		err = dst.Sync()
	}
	return errors.Join(err, dst.Close())
}

// compactLog cleans a fresh copy of the dirty log; the floor copies its files once. An operation is one compaction.
func compactLog(f *fixtures) (pair, error) {
	from, err := f.dirtyLog()
	if err != nil {
		return pair{}, err
	}
	names, err := filepath.Glob(filepath.Join(from, partition, "*.log"))
	if err != nil {
		return pair{}, err
	}
	var bytes int64
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			return pair{}, err
		}
		bytes += info.Size()
	}
	to := f.fresh()
	return pair{
		floor: func(int) (took time.Duration, err error) {
			for _, name := range names {
				began := time.Now()
				if err := copyFile(name, to, true); err != nil {
					return 0, err
				}
				took += time.Since(began)
			}
			return took, os.Remove(to)
		},
		ours: func(int) (time.Duration, error) {
			took, _, err := f.compactOnce(from)
			return took, err
		},
		n:     1,
		bytes: bytes,
	}, nil
}

// compactOnce cleans a copy of a root and also says what memory it took at its height.
func (f *fixtures) compactOnce(from string) (took time.Duration, memory int64, err error) {
	root := f.fresh()
	defer os.RemoveAll(root)
	if err := copyRoot(from, root, false); err != nil {
		return 0, 0, err
	}
	l, err := log.Open(root, dirtyConfig(log.Buffered))
	if err != nil {
		return 0, 0, err
	}
	before := liveHeap()
	highest := watchHeap()
	began := time.Now()
	res, err := l.Compact(background, log.CompactOptions{Force: true})
	took = time.Since(began)
	memory = highest() - before
	if err == nil && (res.Keys < dirtyKeys*99/100 || res.Superseded < dirtyRecords*8/10 || res.MapFull) {
		err = fmt.Errorf("compacted: %+v", res)
	}
	return took, memory, errors.Join(err, l.Close())
}

// watchHeap looks at the heap every few milliseconds until it is asked for the most that was in use.
func watchHeap() (highest func() int64) {
	stop, most := make(chan struct{}), make(chan int64)
	go func() {
		var m runtime.MemStats
		top := int64(0)
		for {
			runtime.ReadMemStats(&m)
			top = max(top, int64(m.HeapAlloc))
			select {
			case <-stop:
				most <- top
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	return func() int64 { close(stop); return <-most }
}

// dropMany lets retention drop very many segments. The floor gives a log and an index file of each, in another folder, a new
// name.
func dropMany(f *fixtures) (pair, error) {
	from, err := f.multiplied(dropSegments)
	if err != nil {
		return pair{}, err
	}
	return pair{
		floor: func(int) (time.Duration, error) {
			root := f.fresh()
			defer os.RemoveAll(root)
			if err := copyRoot(from, root, true); err != nil {
				return 0, err
			}
			var names []string
			for _, kind := range []string{"*.log", "*.index"} {
				some, err := filepath.Glob(filepath.Join(root, partition, kind))
				if err != nil {
					return 0, err
				}
				names = append(names, some...)
			}
			return timed(func(int) error {
				for _, name := range names {
					if err := os.Rename(name, name+".deleted"); err != nil {
						return err
					}
				}
				return nil
			})(1)
		},
		ours: func(int) (time.Duration, error) {
			l, root, err := f.toBeDropped(dropSegments, log.Buffered)
			if err != nil {
				return 0, err
			}
			defer os.RemoveAll(root)
			began := time.Now()
			r, err := l.Retain(background)
			took := time.Since(began)
			if err == nil && r.Dropped < dropSegments-1 {
				err = fmt.Errorf("%d segments were dropped", r.Dropped)
			}
			return took, errors.Join(err, l.Close())
		},
		n: 1,
	}, nil
}

// toBeDropped opens a copy of a log of n segments that are to go, all or all but one.
func (f *fixtures) toBeDropped(n int, d log.Durability) (l *log.Log, root string, err error) {
	from, err := f.multiplied(n)
	if err != nil {
		return nil, "", err
	}
	root = f.fresh()
	if err := copyRoot(from, root, true); err != nil {
		return nil, root, err
	}
	l, err = log.Open(root, log.Config{Durability: d, RetentionBytes: 1})
	if err == nil && (l.Stats().Segments != n+1 || !l.Recovery().Clean) {
		err = errors.Join(fmt.Errorf("%d segments instead of %d, clean: %v", l.Stats().Segments, n+1, l.Recovery().Clean), l.Close())
	}
	return l, root, err
}

// work is something that goes on beside appends to a log that is made for it.
type work struct {
	open func(f *fixtures, d log.Durability) (l *log.Log, root string, err error)
	do   func(l *log.Log) error
	// The floor: appends while nothing goes on; or a sync, if that is what may be waited for.
	sync bool
}

var (
	compacting = work{
		open: func(f *fixtures, d log.Durability) (*log.Log, string, error) {
			from, err := f.dirtyLog()
			if err != nil {
				return nil, "", err
			}
			root := f.fresh()
			if err := copyRoot(from, root, false); err != nil {
				return nil, root, err
			}
			l, err := log.Open(root, dirtyConfig(d))
			return l, root, err
		},
		do: func(l *log.Log) error {
			res, err := l.Compact(background, log.CompactOptions{Force: true})
			if err == nil && res.Groups == 0 {
				err = errors.New("nothing was compacted")
			}
			return err
		},
	}
	dropping = work{
		open: func(f *fixtures, d log.Durability) (*log.Log, string, error) { return f.toBeDropped(besideSegments, d) },
		do: func(l *log.Log) error {
			r, err := l.Retain(background)
			if err == nil && r.Dropped < besideSegments-1 {
				err = fmt.Errorf("%d segments were dropped", r.Dropped)
			}
			return err
		},
		sync: true,
	}
)

// appendBeside is the time that 99 of 100 appends of one record stay within, one after the other, while the log is worked
// on. An operation is all appends during one such work.
func appendBeside(d log.Durability, w work) func(f *fixtures) (pair, error) {
	return func(f *fixtures) (pair, error) {
		recs := hundred()[:1]
		once := func(l *log.Log) error {
			_, err := l.Append(background, recs...)
			return err
		}
		file, err := os.Create(f.fresh())
		if err != nil {
			return pair{}, err
		}
		raw, err := encode(recs, time.Now().UnixMilli(), record.None)
		if err != nil {
			return pair{}, err
		}
		plain := bare{f: file}
		quiet := func(int) (time.Duration, error) {
			l, root, err := w.open(f, d)
			if err != nil {
				return 0, err
			}
			defer os.RemoveAll(root)
			until := time.Now().Add(time.Second / 2)
			took, err := percentile99(func() bool { return time.Now().Before(until) }, func() error { return once(l) })
			return took, errors.Join(err, l.Close())
		}
		if w.sync {
			quiet = func(int) (time.Duration, error) {
				return median50(func(int) error { return errors.Join(plain.write(raw), syncData(file)) })(50)
			}
		}
		return pair{floor: quiet, ours: workBeside(f, d, w), n: 1, close: file.Close}, nil
	}
}

// workBeside gives the 99th of 100 appends to a fresh log during one work on it.
func workBeside(f *fixtures, d log.Durability, w work) func(int) (time.Duration, error) {
	recs := hundred()[:1]
	return func(int) (time.Duration, error) {
		l, root, err := w.open(f, d)
		if err != nil {
			return 0, err
		}
		defer os.RemoveAll(root)
		took, err := during(func() error { return w.do(l) }, func() error {
			_, err := l.Append(background, recs...)
			return err
		})
		return took, errors.Join(err, l.Close())
	}
}

// during is percentile99 of what is done for as long as other runs beside it.
func during(other, do func() error) (time.Duration, error) {
	var ended atomic.Bool
	done := make(chan error, 1)
	go func() {
		err := other()
		ended.Store(true)
		done <- err
	}()
	took, err := percentile99(func() bool { return !ended.Load() }, do)
	return took, errors.Join(err, <-done)
}

// percentile99 does something for as long as it should, and gives the time that 99 of 100 stay within.
func percentile99(more func() bool, do func() error) (time.Duration, error) {
	var took []time.Duration
	for more() || len(took) == 0 {
		began := time.Now()
		if err := do(); err != nil {
			return 0, err
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took[len(took)*99/100], nil
}
