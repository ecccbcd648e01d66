package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/partlog/partlog/log"
)

const (
	partition = "log-0" // what log.Open calls it
	heapRow   = "heap of an open log of 1,000 segments"
)

func readRows() []row {
	return []row{
		{name: "scan, checked and decoded", floor: "pread of 256 KiB", atMost: 2, make: scan},
		{name: "scan, batches only", floor: "pread of 256 KiB", make: scanBatches},
		{name: "one random record", floor: "pread of 4 KiB, p50", atMost: 4, make: randomRead},
		{name: "scan, read committed, none aborted", floor: "scan, read uncommitted", atMost: 1.1, make: committedScan},
		{name: "recovery of an unclean log", floor: "the scan above", atLeast: 0.6, make: recovery},
		{name: "clean open of 10 segments", floor: "stat of each file", make: openSegments(10)},
		{name: "clean open of 100 segments", floor: "stat of each file", within: 5 * time.Millisecond, make: openSegments(100)},
		{name: "clean open of 1,000 segments", floor: "stat of each file", make: openSegments(1000)},
		{name: "clean open of 400 partitions", floor: "stat of each file", within: 80 * time.Millisecond, make: openPartitions(400)},
		{name: "snapshot of 100,000 producers, loaded", floor: "read of the file", within: 100 * time.Millisecond, make: loadProducers},
	}
}

// logFiles are the .log files of the partition in a root, opened.
func logFiles(root string) (files []*os.File, err error) {
	names, err := filepath.Glob(filepath.Join(root, partition, "*.log"))
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			return nil, errors.Join(err, closeAll(files))
		}
		files = append(files, f)
	}
	return files, nil
}

func closeAll(files []*os.File) error {
	var all error
	for _, f := range files {
		all = errors.Join(all, f.Close())
	}
	return all
}

// readWhole reads the files from start to end, buffer by buffer.
func readWhole(files []*os.File, buf []byte) error {
	for _, f := range files {
		for at := int64(0); ; {
			n, err := f.ReadAt(buf, at)
			at += int64(n)
			if err == io.EOF {
				break
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// scanned pairs something that goes through the whole big log with bare reads of its files. An operation is a scan.
func scanned(f *fixtures, ours func(r *log.Reader) (batches int, err error)) (pair, error) {
	root, err := f.bigLog()
	if err != nil {
		return pair{}, err
	}
	files, err := logFiles(root)
	if err != nil {
		return pair{}, err
	}
	r, err := log.OpenReader(filepath.Join(root, partition), log.ReaderOptions{})
	if err != nil {
		return pair{}, err
	}
	buf := make([]byte, 256<<10)
	return pair{
		floor: timed(func(int) error { return readWhole(files, buf) }),
		ours: timed(func(int) error {
			found, err := ours(r)
			if want := int(r.Offsets().LogEnd); err == nil && found != want {
				err = fmt.Errorf("%d records found, %d expected", found, want)
			}
			return err
		}),
		n:     1,
		close: func() error { return errors.Join(r.Close(), closeAll(files)) },
	}, nil
}

func scan(f *fixtures) (pair, error)        { return scanned(f, scanRecords) }
func scanBatches(f *fixtures) (pair, error) { return scanned(f, countBatches) }

func scanRecords(r *log.Reader) (n int, err error) {
	for rec, err := range r.Records(background, 0) {
		if err != nil {
			return n, err
		}
		if len(rec.Value) == 100 {
			n++
		}
	}
	return n, nil
}

func countBatches(r *log.Reader) (n int, err error) {
	for b, err := range r.Batches(background, 0) {
		if err != nil {
			return n, err
		}
		n += b.Count()
	}
	return n, nil
}

// randomRead is one record out of a batch of a hundred, anywhere in the big log, open for writing as an application has
// it. An operation is the middle one of a thousand.
func randomRead(f *fixtures) (pair, error) {
	root, err := f.bigLog()
	if err != nil {
		return pair{}, err
	}
	files, err := logFiles(root)
	if err != nil {
		return pair{}, err
	}
	l, err := log.Open(root, log.Config{Durability: log.Buffered, SegmentBytes: bigSegments})
	if err != nil {
		return pair{}, err
	}
	end := l.Offsets().LogEnd
	const page = 4096
	buf := make([]byte, page)
	return pair{
		floor: median50(func(int) error {
			_, err := files[rand.IntN(len(files)-1)].ReadAt(buf, rand.Int64N(bigSegments*9/10/page)*page)
			return err
		}),
		ours: median50(func(int) error {
			want := rand.Int64N(end)
			for rec, err := range l.Records(background, want) {
				if err == nil && rec.Offset != want {
					err = fmt.Errorf("record %d came for %d", rec.Offset, want)
				}
				return err
			}
			return fmt.Errorf("no record at %d", want)
		}),
		n:     1000,
		close: func() error { return errors.Join(l.Close(), closeAll(files)) },
	}, nil
}

// recovery opens the big log as after a power cut before the first checkpoint. Cached pages are trusted, as are the
// scan's; an operation is one open, the close is not counted.
func recovery(f *fixtures) (pair, error) {
	root, err := f.bigLog()
	if err != nil {
		return pair{}, err
	}
	return pair{
		floor: func(int) (time.Duration, error) {
			r, err := log.OpenReader(filepath.Join(root, partition), log.ReaderOptions{})
			if err != nil {
				return 0, err
			}
			took, err := timed(func(int) error { _, err := scanRecords(r); return err })(1)
			return took, errors.Join(err, r.Close())
		},
		ours: func(int) (time.Duration, error) {
			if err := forgetCleanStop(root); err != nil {
				return 0, err
			}
			d, err := log.OpenDir(root, log.DirConfig{NoEvict: true})
			if err != nil {
				return 0, err
			}
			took, err := timed(func(int) error {
				l, err := d.Open(background, log.TopicPartition{Topic: "log"}, log.Config{SegmentBytes: bigSegments})
				if err == nil && l.Recovery().Scanned < bigBytes {
					err = fmt.Errorf("only %d bytes were scanned", l.Recovery().Scanned)
				}
				return err
			})(1)
			return took, errors.Join(err, d.Close())
		},
		n: 1,
	}, nil
}

// forgetCleanStop makes a closed root look as if its owner had been killed before any checkpoint.
func forgetCleanStop(root string) error {
	for _, name := range []string{".kafka_cleanshutdown", "recovery-point-offset-checkpoint"} {
		if err := os.Remove(filepath.Join(root, name)); err != nil {
			return err
		}
	}
	return nil
}

func openSegments(n int) func(f *fixtures) (pair, error) {
	return func(f *fixtures) (pair, error) {
		root, err := f.manySegments(n)
		if err != nil {
			return pair{}, err
		}
		return pair{
			floor: timed(func(int) error { return statAll(filepath.Join(root, partition)) }),
			ours: func(int) (time.Duration, error) {
				began := time.Now()
				l, err := log.Open(root, log.Config{})
				took := time.Since(began)
				if err != nil {
					return 0, err
				}
				if got := l.Stats().Segments; got != n+1 || !l.Recovery().Clean {
					err = fmt.Errorf("%d segments instead of %d, clean: %v", got, n+1, l.Recovery().Clean)
				}
				return took, errors.Join(err, l.Close())
			},
			n: 1,
		}, nil
	}
}

// openPartitions opens every partition of a root that was stopped cleanly, each with a record in it; the close is not counted.
func openPartitions(n int32) func(f *fixtures) (pair, error) {
	return func(f *fixtures) (pair, error) {
		root, err := f.manyPartitions(n)
		if err != nil {
			return pair{}, err
		}
		return pair{
			floor: timed(func(int) error {
				for i := range n {
					if err := statAll(filepath.Join(root, partitionOf(i).String())); err != nil {
						return err
					}
				}
				return nil
			}),
			ours: func(int) (time.Duration, error) {
				began := time.Now()
				d, err := log.OpenDir(root, log.DirConfig{})
				if err != nil {
					return 0, err
				}
				for i := range n {
					l, err := d.Open(background, partitionOf(i), log.Config{})
					if err == nil && (l.Offsets().LogEnd != 1 || !l.Recovery().Clean) {
						err = fmt.Errorf("partition %d ends at %d, clean: %v", i, l.Offsets().LogEnd, l.Recovery().Clean)
					}
					if err != nil {
						return 0, errors.Join(err, d.Close())
					}
				}
				took := time.Since(began)
				return took, d.Close()
			},
			n: 1,
		}, nil
	}
}

func partitionOf(i int32) log.TopicPartition { return log.TopicPartition{Topic: "t", Partition: i} }

// statAll asks for the length of every file of a folder: no open can know less.
func statAll(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if _, err := e.Info(); err != nil {
			return err
		}
	}
	return nil
}

// heapOfOpenLog is what an open log with n closed segments keeps on the heap, before or after each of them has been read.
func heapOfOpenLog(f *fixtures, n int, read bool) (int64, error) {
	root, err := f.manySegments(n)
	if err != nil {
		return 0, err
	}
	before := liveHeap()
	l, err := log.Open(root, log.Config{})
	if err != nil {
		return 0, err
	}
	if read {
		if err := readAll(l); err != nil {
			return 0, errors.Join(err, l.Close())
		}
	}
	bytes := liveHeap() - before
	return bytes, l.Close()
}

func readAll(l *log.Log) error {
	for _, err := range l.Batches(background, 0) {
		if err != nil {
			return err
		}
	}
	return nil
}

func liveHeap() int64 {
	runtime.GC() // twice: pools survive one
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
