package main

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"time"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
)

func producerRows() []row {
	return []row{
		{name: "append as an idempotent producer", floor: "the same without a producer", atMost: 1.1, noAlloc: true, make: appendIdempotent},
		{name: "append an encoded batch of an idempotent producer", floor: "the same without a producer", atMost: 1.1, noAlloc: true, make: appendIdempotentEncoded},
	}
}

// beside pairs calls on one log with calls on another, both emptied when they have grown enough.
func beside(f *fixtures, make func(l *log.Log) (floor, ours func() error, err error)) (pair, error) {
	var logs [2]*log.Log
	var calls [2]func() error
	for i := range logs {
		l, err := log.Open(f.fresh(), log.Config{Durability: log.Buffered})
		if err != nil {
			return pair{}, err
		}
		floor, ours, err := make(l)
		if err != nil {
			return pair{}, err
		}
		logs[i], calls[i] = l, [2]func() error{floor, ours}[i]
	}
	side := func(call func() error) func(int) (time.Duration, error) {
		return timed(func(n int) error {
			for range n {
				if err := call(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	empty := func(above int64) error {
		for _, l := range logs {
			if l.Stats().Bytes > above {
				if _, err := l.Truncate(background, 0); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return pair{
		floor:   side(calls[0]),
		ours:    side(calls[1]),
		between: func() error { return empty(freshBytes) },
		close:   func() error { return errors.Join(empty(0), logs[0].Close(), logs[1].Close()) },
	}, nil
}

func appendIdempotent(f *fixtures) (pair, error) {
	recs := hundred()
	return beside(f, func(l *log.Log) (floor, ours func() error, err error) {
		p := l.Producer(1, 0)
		return func() error {
				_, err := l.Append(background, recs...)
				return err
			}, func() error {
				_, err := p.Append(background, recs...)
				return err
			}, nil
	})
}

// The header of each batch is written anew on both sides, checksum and all: a producer's has a sequence of its own.
func appendIdempotentEncoded(f *fixtures) (pair, error) {
	castagnoli := crc32.MakeTable(crc32.Castagnoli)
	encoded := func(l *log.Log, p *record.Producer) (func() error, error) {
		b := record.NewBuilder(record.BuilderOptions{Producer: p})
		for _, r := range hundred() {
			if err := b.Add(r); err != nil {
				return nil, err
			}
		}
		batch, err := b.Finish()
		if err != nil {
			return nil, err
		}
		raw := batch.Bytes()
		_, _, sequence := batch.Producer()
		return func() error {
			batch.SetBaseOffset(0) // the log wrote its own there
			binary.BigEndian.PutUint32(raw[53:], uint32(sequence))
			binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], castagnoli))
			if sequence >= 0 {
				sequence = record.IncrementSequence(sequence, batchRecords)
			}
			_, err := l.AppendBatches(background, raw, log.AppendOptions{})
			return err
		}, nil
	}
	return beside(f, func(l *log.Log) (floor, ours func() error, err error) {
		if floor, err = encoded(l, nil); err == nil {
			ours, err = encoded(l, &record.Producer{ID: 1})
		}
		return floor, ours, err
	})
}
