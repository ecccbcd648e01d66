package main

import (
	"errors"
	"os"
	"sync"
	"time"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
)

const writers = 16

func appendRows() []row {
	return []row{
		{name: "append 100 records of 116 bytes", floor: "pwrite of the batch", atMost: 1.6, noAlloc: true, make: appendRecords},
		{name: "append an encoded batch of 100", floor: "pwrite of the batch", atMost: 1.3, noAlloc: true, make: appendEncoded},
		{name: "append a batch as follower", floor: "pwrite of the batch", make: appendFollower},
		{name: "append 1 record of 116 bytes", floor: "pwrite of the batch", make: appendOne},
		{name: "16 durable writers together", floor: "pwrite + fdatasync, one by one", atLeast: 4, make: appendTogether},
		{name: "1 durable writer", floor: "pwrite + fdatasync, one by one", make: appendDurable},
		{name: "append seen by a waiting Follow", floor: "pwrite, channel there and back", make: followWakeup},
	}
}

// bare is a file that is only appended to.
type bare struct {
	f  *os.File
	at int64
}

func (b *bare) write(raw []byte) error {
	_, err := b.f.WriteAt(raw, b.at)
	b.at += int64(len(raw))
	return err
}

// appended is a log beside a bare file, both emptied when they have grown enough. Their sizes grow alike, so both are
// always about as far in the file system's good graces.
type appended struct {
	l    *log.Log
	bare bare
}

func newAppended(f *fixtures) (*appended, error) {
	file, err := os.Create(f.fresh())
	if err != nil {
		return nil, err
	}
	l, err := log.Open(f.fresh(), log.Config{Durability: log.Buffered})
	return &appended{l: l, bare: bare{f: file}}, err
}

func (a *appended) between() error {
	if a.l.Stats().Bytes > freshBytes {
		if _, err := a.l.Truncate(background, 0); err != nil {
			return err
		}
	}
	if a.bare.at > freshBytes {
		a.bare.at = 0
		return a.bare.f.Truncate(0)
	}
	return nil
}

func (a *appended) close() error {
	_, err := a.l.Truncate(background, 0) // nothing of it has to reach the device
	return errors.Join(err, a.l.Close(), a.bare.f.Truncate(0), a.bare.f.Close())
}

// against pairs n calls of ours with as many bare writes of raw.
func (a *appended) against(raw []byte, ours func() error) pair {
	return pair{
		floor: timed(func(n int) error {
			for range n {
				if err := a.bare.write(raw); err != nil {
					return err
				}
			}
			return nil
		}),
		ours: timed(func(n int) error {
			for range n {
				if err := ours(); err != nil {
					return err
				}
			}
			return nil
		}),
		between: a.between,
		close:   a.close,
	}
}

func appendRecords(f *fixtures) (pair, error) { return appendPlain(f, hundred()) }
func appendOne(f *fixtures) (pair, error)     { return appendPlain(f, hundred()[:1]) }

func appendPlain(f *fixtures, recs []record.Record) (pair, error) {
	a, err := newAppended(f)
	if err != nil {
		return pair{}, err
	}
	raw, err := encode(recs, time.Now().UnixMilli(), record.None)
	if err != nil {
		return pair{}, err
	}
	return a.against(raw, func() error {
		_, err := a.l.Append(background, recs...)
		return err
	}), nil
}

func appendEncoded(f *fixtures) (pair, error) {
	return appendBatch(f, func(a *appended, batch record.Batch) error {
		batch.SetBaseOffset(0) // the log wrote its own there
		_, err := a.l.AppendBatches(background, batch.Bytes(), log.AppendOptions{})
		return err
	})
}

func appendFollower(f *fixtures) (pair, error) {
	epoch := int32(0)
	return appendBatch(f, func(a *appended, batch record.Batch) error {
		batch.SetBaseOffset(a.l.Offsets().LogEnd)
		batch.SetLeaderEpoch(epoch)
		_, err := a.l.AppendBatches(background, batch.Bytes(), log.AppendOptions{As: log.Follower, LeaderEpoch: &epoch})
		return err
	})
}

func appendBatch(f *fixtures, ours func(*appended, record.Batch) error) (pair, error) {
	a, err := newAppended(f)
	if err != nil {
		return pair{}, err
	}
	raw, err := encode(hundred(), time.Now().UnixMilli(), record.None)
	if err != nil {
		return pair{}, err
	}
	batch, err := record.View(raw)
	if err != nil {
		return pair{}, err
	}
	return a.against(raw, func() error { return ours(a, batch) }), nil
}

// durable pairs a log whose appends are fsynced with a file that is.
func durable(f *fixtures, writers int) (pair, error) {
	file, err := os.Create(f.fresh())
	if err != nil {
		return pair{}, err
	}
	l, err := log.Open(f.fresh(), log.Config{})
	if err != nil {
		return pair{}, err
	}
	recs := hundred()[:1]
	raw, err := encode(recs, time.Now().UnixMilli(), record.None)
	if err != nil {
		return pair{}, err
	}
	plain := bare{f: file}
	return pair{
		floor: timed(func(n int) error {
			for range n {
				if err := plain.write(raw); err != nil {
					return err
				}
				if err := syncData(file); err != nil {
					return err
				}
			}
			return nil
		}),
		ours: timed(func(n int) error {
			return together(writers, n, func() error {
				_, err := l.Append(background, recs...)
				return err
			})
		}),
		n:     160,
		close: func() error { return errors.Join(l.Close(), file.Close()) },
	}, nil
}

func appendTogether(f *fixtures) (pair, error) { return durable(f, writers) }
func appendDurable(f *fixtures) (pair, error)  { return durable(f, 1) }

// together makes n calls of do from several goroutines.
func together(goroutines, n int, do func() error) error {
	errs := make([]error, goroutines)
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			for range n / goroutines {
				if errs[g] = do(); errs[g] != nil {
					return
				}
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// followWakeup is the way of a record from an append to a reader in another goroutine that waits for it, and a word back.
func followWakeup(f *fixtures) (pair, error) {
	a, err := newAppended(f)
	if err != nil {
		return pair{}, err
	}
	recs := hundred()[:1]
	raw, err := encode(recs, time.Now().UnixMilli(), record.None)
	if err != nil {
		return pair{}, err
	}
	there, back, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		for range there {
			back <- struct{}{}
		}
	}()
	seen := make(chan error)
	go func() {
		defer close(done)
		for _, err := range a.l.Follow(background, 0, log.WithIsolation(log.LogEnd)) {
			seen <- err
			if err != nil {
				return
			}
		}
	}()
	p := a.against(raw, func() error {
		if _, err := a.l.Append(background, recs...); err != nil {
			return err
		}
		return <-seen
	})
	p.floor = timed(func(n int) error {
		for range n {
			if err := a.bare.write(raw); err != nil {
				return err
			}
			there <- struct{}{}
			<-back
		}
		return nil
	})
	p.between = nil
	p.close = func() error {
		close(there)
		err := a.l.Close()
		<-seen // ErrClosed
		<-done
		return errors.Join(err, a.bare.f.Close())
	}
	return p, nil
}
