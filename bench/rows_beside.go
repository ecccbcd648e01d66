package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
)

// These rows set appends beside a work of the log against plain writes beside plain calls that do to the disk what the work
// does: what is left is what the library makes of it, and what two programs that share a disk cost each other is not.

// traffic is what a work does to the disk, by plain calls. make readies one that is run once.
type traffic func(f *fixtures) (make func() (run func() error, remove func(), err error), err error)

// appendBesideBare is appendBeside against writes of the same bytes, synced if the appends are, beside bare traffic.
func appendBesideBare(d log.Durability, w work, bareWork traffic) func(f *fixtures) (pair, error) {
	return func(f *fixtures) (pair, error) {
		file, err := os.Create(f.fresh())
		if err != nil {
			return pair{}, err
		}
		raw, err := encode(hundred()[:1], time.Now().UnixMilli(), record.None)
		if err != nil {
			return pair{}, err
		}
		next, err := bareWork(f)
		if err != nil {
			return pair{}, err
		}
		plain := bare{f: file}
		write := func() error {
			if err := plain.write(raw); err != nil || d == log.Buffered {
				return err
			}
			return syncData(file)
		}
		floor := func(int) (time.Duration, error) {
			run, remove, err := next()
			if err != nil {
				return 0, err
			}
			defer remove()
			return during(run, write)
		}
		return pair{floor: floor, ours: workBeside(f, d, w), n: 1, close: file.Close}, nil
	}
}

// bareCopy reads the dirty log twice, writes as much as a compaction leaves of it and syncs that, in the time that a
// compaction takes.
func bareCopy(f *fixtures) (func() (func() error, func(), error), error) {
	from, err := f.dirtyLog()
	if err != nil {
		return nil, err
	}
	names, err := filepath.Glob(filepath.Join(from, partition, "*.log"))
	if err != nil {
		return nil, err
	}
	whole, _, err := f.compactOnce(from)
	if err != nil {
		return nil, err
	}
	total := int64(0)
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			return nil, err
		}
		total += info.Size()
	}
	return func() (func() error, func(), error) {
		to, err := os.Create(f.fresh())
		if err != nil {
			return nil, nil, err
		}
		run := func() error {
			began, seen, buf := time.Now(), int64(0), make([]byte, 1<<20)
			for pass := range 2 {
				for _, name := range names {
					err := eachBlock(name, buf, func(block []byte) error {
						seen += int64(len(block))
						time.Sleep(time.Until(began.Add(time.Duration(float64(whole) * float64(seen) / float64(2*total)))))
						if pass == 0 {
							return nil
						}
						_, err := to.Write(block[:len(block)*dirtyKeys/dirtyRecords])
						return err
					})
					if err != nil {
						return err
					}
				}
			}
			return to.Sync()
		}
		return run, func() { _ = errors.Join(to.Close(), os.Remove(to.Name())) }, nil
	}, nil
}

// eachBlock reads a file block by block.
func eachBlock(name string, buf []byte, do func(block []byte) error) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	for {
		n, err := file.Read(buf)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := do(buf[:n]); err != nil {
			return err
		}
	}
}

// bareRenames writes a small file and gives it its name, durably, as the new log start is, renames the files of the segments,
// and syncs their folder.
func bareRenames(f *fixtures) (func() (func() error, func(), error), error) {
	from, err := f.multiplied(besideSegments)
	if err != nil {
		return nil, err
	}
	return func() (func() error, func(), error) {
		root := f.fresh()
		remove := func() { _ = os.RemoveAll(root) }
		if err := copyRoot(from, root, true); err != nil {
			remove()
			return nil, nil, err
		}
		names, err := filepath.Glob(filepath.Join(root, partition, "*"))
		if err != nil {
			remove()
			return nil, nil, err
		}
		run := func() error {
			start := filepath.Join(root, "start")
			err := writeSynced(start + ".tmp")
			if err == nil {
				err = errors.Join(os.Rename(start+".tmp", start), syncFolder(root))
			}
			for _, name := range names {
				if err == nil {
					err = os.Rename(name, name+".deleted")
				}
			}
			if err == nil {
				err = syncFolder(filepath.Join(root, partition))
			}
			return err
		}
		return run, remove, nil
	}, nil
}

func writeSynced(name string) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(file, "0")
	return errors.Join(err, file.Sync(), file.Close())
}

func syncFolder(name string) error {
	folder, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
