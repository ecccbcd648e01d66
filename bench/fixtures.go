package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
)

const (
	batchRecords = 100
	bigBytes     = 256 << 20 // of the log that is read
	bigSegments  = 64 << 20
	freshBytes   = 192 << 20 // an appended file is emptied at this size, to stay within the page cache
)

var background = context.Background()

// fixtures makes and remembers the logs that rows share, all in one folder that goes away at the end.
type fixtures struct {
	dir   string
	used  int
	big   string
	dirty string
	segs  map[int]string
}

func newFixtures(parent string) (*fixtures, error) {
	dir, err := os.MkdirTemp(parent, "partlog-bench-")
	return &fixtures{dir: dir, segs: map[int]string{}}, err
}

func (f *fixtures) remove() error { return os.RemoveAll(f.dir) }

// fresh names a folder or file that is not there yet.
func (f *fixtures) fresh() string {
	f.used++
	return filepath.Join(f.dir, fmt.Sprint("f", f.used))
}

// hundred is 100 records of 16 + 100 bytes that do not compress.
func hundred() []record.Record {
	random := rand.New(rand.NewPCG(1, 2))
	recs := make([]record.Record, batchRecords)
	for i := range recs {
		b := make([]byte, 116)
		for j := range b {
			b[j] = byte(random.Uint32())
		}
		recs[i] = record.Record{Key: b[:16], Value: b[16:]}
	}
	return recs
}

// encode makes one batch of records, all stamped ms.
func encode(recs []record.Record, ms int64, codec record.Codec) ([]byte, error) {
	b := record.NewBuilder(record.BuilderOptions{Codec: codec})
	for _, r := range recs {
		r.Timestamp = ms
		if err := b.Add(r); err != nil {
			return nil, err
		}
	}
	batch, err := b.Finish()
	return batch.Bytes(), err
}

// bigLog is a closed log root of bigBytes in batches of a hundred records.
func (f *fixtures) bigLog() (root string, err error) {
	if f.big != "" {
		return f.big, nil
	}
	root = f.fresh()
	l, err := log.Open(root, log.Config{Durability: log.Buffered, SegmentBytes: bigSegments})
	if err != nil {
		return "", err
	}
	recs := hundred()
	for l.Stats().Bytes < bigBytes {
		for range 256 {
			if _, err := l.Append(background, recs...); err != nil {
				return "", errors.Join(err, l.Close())
			}
		}
	}
	f.big = root
	return root, l.Close()
}

// manySegments is a closed log root with n sealed segments of one batch each and an empty active one.
func (f *fixtures) manySegments(n int) (root string, err error) {
	if root, ok := f.segs[n]; ok {
		return root, nil
	}
	root = f.fresh()
	l, err := log.Open(root, log.Config{Durability: log.Buffered})
	if err != nil {
		return "", err
	}
	recs := hundred()
	for range n {
		_, err := l.Append(background, recs...)
		if err == nil {
			err = l.Roll(background)
		}
		if err != nil {
			return "", errors.Join(err, l.Close())
		}
	}
	f.segs[n] = root
	return root, l.Close()
}

// multiplied is manySegments for very many, made from one: each segment is that of its base offset, at another.
func (f *fixtures) multiplied(n int) (root string, err error) {
	if root, ok := f.segs[n]; ok {
		return root, nil
	}
	from, err := f.manySegments(1)
	if err != nil {
		return "", err
	}
	root = f.fresh()
	if err := copyRoot(from, root, false); err != nil {
		return "", err
	}
	end := int64(n) * batchRecords
	name := func(offset int64, kind string) string {
		return filepath.Join(root, partition, fmt.Sprintf("%020d", offset)+kind)
	}
	for _, kind := range []string{".log", ".index", ".timeindex", ".snapshot"} { // of the active segment
		if err := os.Rename(name(batchRecords, kind), name(end, kind)); err != nil {
			return "", err
		}
	}
	raw, err := os.ReadFile(name(0, ".log"))
	if err != nil {
		return "", err
	}
	batch, err := record.View(raw)
	if err != nil {
		return "", err
	}
	for base := int64(batchRecords); base < end; base += batchRecords {
		batch.SetBaseOffset(base)
		err := os.WriteFile(name(base, ".log"), raw, 0o644)
		for _, kind := range []string{".index", ".timeindex"} {
			err = errors.Join(err, copyFile(name(0, kind), name(base, kind), false))
		}
		if err != nil {
			return "", err
		}
	}
	for _, checkpoint := range []string{"recovery-point-offset-checkpoint", "replication-offset-checkpoint"} {
		text := fmt.Sprintf("0\n1\nlog 0 %d\n", end)
		if err := os.WriteFile(filepath.Join(root, checkpoint), []byte(text), 0o644); err != nil {
			return "", err
		}
	}
	f.segs[n] = root
	return root, nil
}

// manyPartitions is a closed log root with n partitions of one record each.
func (f *fixtures) manyPartitions(n int32) (root string, err error) {
	root = f.fresh()
	d, err := log.OpenDir(root, log.DirConfig{Defaults: log.Config{Durability: log.Buffered}})
	if err != nil {
		return "", err
	}
	for i := range n {
		l, err := d.Open(background, partitionOf(i), log.Config{})
		if err == nil {
			_, err = l.Append(background, record.Record{Value: []byte("v")})
		}
		if err != nil {
			return "", errors.Join(err, d.Close())
		}
	}
	return root, d.Close()
}
