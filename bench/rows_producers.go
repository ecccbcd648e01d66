package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/partlog/partlog/internal/producerstate"
	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/vfs"
)

const (
	committedBytes = 64 << 20 // of the log of committed transactions
	txnBatches     = 16       // of each
	manyProducers  = 100_000
)

// committedScan goes through a log of transactions that were all committed, as those see it who must not be shown aborted
// ones; the floor is the same scan by those who see all. Both pass over the markers.
func committedScan(f *fixtures) (_ pair, err error) {
	root := f.fresh()
	l, err := log.Open(root, log.Config{Durability: log.Buffered, SegmentBytes: bigSegments / 4})
	if err != nil {
		return pair{}, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}()
	records, err := commitAll(l)
	if err != nil {
		return pair{}, err
	}
	scan := func(isolation log.Isolation) func(int) (time.Duration, error) {
		return timed(func(int) error {
			n := 0
			for rec, err := range l.Records(background, 0, log.WithIsolation(isolation)) {
				if err != nil {
					return err
				}
				if len(rec.Value) == 100 {
					n++
				}
			}
			if n != records {
				return fmt.Errorf("%d records found, %d expected", n, records)
			}
			return nil
		})
	}
	return pair{floor: scan(log.ReadUncommitted), ours: scan(log.ReadCommitted), n: 1, close: l.Close}, nil
}

// commitAll fills a log with committed transactions and counts their records.
func commitAll(l *log.Log) (records int, err error) {
	p, recs := l.Producer(1, 0), hundred()
	for l.Stats().Bytes < committedBytes {
		if err := p.Begin(); err != nil {
			return 0, err
		}
		for range txnBatches {
			if _, err := p.Append(background, recs...); err != nil {
				return 0, err
			}
			records += len(recs)
		}
		if err := p.Commit(background); err != nil {
			return 0, err
		}
	}
	return records, nil
}

// loadProducers takes the state of very many producers from a snapshot; the floor reads its file.
func loadProducers(f *fixtures) (pair, error) {
	dir := f.fresh()
	fsys, err := vfs.OS(dir)
	if err != nil {
		return pair{}, err
	}
	const end = manyProducers
	all := make([]producerstate.Entry, manyProducers)
	for i := range all {
		all[i] = producerstate.Entry{ProducerID: int64(i) * 7, LastOffset: int64(i), Timestamp: math.MaxInt64, CoordinatorEpoch: -1, TxnFirstOffset: -1}
	}
	name := producerstate.FileName(end)
	if err := producerstate.WriteSnapshot(fsys, name, all); err != nil {
		return pair{}, err
	}
	return pair{
		floor: timed(func(int) error { _, err := os.ReadFile(filepath.Join(dir, name)); return err }),
		ours: timed(func(int) error {
			s := producerstate.New(producerstate.Config{}, 0)
			_, err := s.Reload(producerstate.Reload{FS: fsys, Folder: ".", End: end, ReadOnly: true})
			if err == nil && s.Len() != manyProducers {
				err = fmt.Errorf("%d producers, %d expected", s.Len(), manyProducers)
			}
			return err
		}),
		n: 1,
	}, nil
}
