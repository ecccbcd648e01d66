package log

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"iter"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
)

// clock is a wall clock that tests move.
type clock struct{ ms atomic.Int64 }

const epoch2023 = 1_700_000_000_000

func (c *clock) now() time.Time          { return time.UnixMilli(c.ms.Load()) }
func (c *clock) advance(d time.Duration) { c.ms.Add(d.Milliseconds()) }

// bed is a log under test over a file system that survives closing it.
type bed struct {
	*Log
	t     tester
	fs    vfs.FS
	dir   *Dir
	cfg   Config
	clock *clock
}

// tester is what testing.TB and rapid.T have in common.
type tester interface {
	require.TestingT
	Helper()
	Fatal(args ...any)
}

// newBed opens a new log t-0 on a file system in memory.
func newBed(t testing.TB, c Config) *bed { return newBedOn(t, vfs.Mem(), c) }

func newBedOn(t testing.TB, fsys vfs.FS, c Config) *bed {
	b := &bed{t: t, fs: fsys, cfg: c, clock: &clock{}}
	b.clock.ms.Store(epoch2023)
	b.open()
	t.Cleanup(func() { _ = b.dir.Close() })
	return b
}

func (b *bed) open() {
	b.t.Helper()
	d, err := OpenDir("mem", DirConfig{Manual: true, FS: b.fs, Now: b.clock.now})
	require.NoError(b.t, err)
	l, err := d.Open(context.Background(), TopicPartition{"t", 0}, b.cfg)
	require.NoError(b.t, err)
	b.dir, b.Log = d, l
}

// reopen closes cleanly and opens again.
func (b *bed) reopen() {
	b.t.Helper()
	require.NoError(b.t, b.dir.Close())
	b.open()
}

// add appends one batch of records with these values and returns its base offset.
func (b *bed) add(values ...string) int64 {
	b.t.Helper()
	base, err := b.Append(context.Background(), values2records(values)...)
	require.NoError(b.t, err)
	return base
}

func values2records(values []string) []record.Record {
	recs := make([]record.Record, len(values))
	for i, v := range values {
		recs[i] = record.Record{Value: []byte(v)}
	}
	return recs
}

// follow appends encoded batches as a follower.
func (b *bed) follow(raw ...[]byte) (Appended, error) {
	return b.AppendBatches(context.Background(), bytes.Join(raw, nil), AppendOptions{As: Follower})
}

// batchOf encodes records with one value each at base, with a leader epoch and a timestamp (epoch2023 if 0).
func batchOf(base int64, epoch int32, codec record.Codec, values ...string) []byte {
	b := record.NewBuilder(record.BuilderOptions{Codec: codec})
	for _, v := range values {
		if err := b.Add(record.Record{Timestamp: epoch2023, Value: []byte(v)}); err != nil {
			panic(err)
		}
	}
	batch, err := b.Finish()
	if err != nil {
		panic(err)
	}
	batch.SetBaseOffset(base)
	batch.SetLeaderEpoch(epoch)
	return bytes.Clone(batch.Bytes())
}

// timed encodes one batch, not yet placed, of records with these timestamps.
func timed(times ...int64) []byte {
	b := record.NewBuilder(record.BuilderOptions{})
	for i, ts := range times {
		if err := b.AddAt(record.Record{Offset: int64(i), Timestamp: ts, Value: []byte(fmt.Sprint(ts))}); err != nil {
			panic(err)
		}
	}
	batch, err := b.Finish()
	if err != nil {
		panic(err)
	}
	return bytes.Clone(batch.Bytes())
}

// addTimes appends one leader's batch of records with these timestamps.
func (b *bed) addTimes(times ...int64) int64 {
	b.t.Helper()
	res, err := b.AppendBatches(context.Background(), timed(times...), AppendOptions{})
	require.NoError(b.t, err)
	return res.Base
}

// legacy is one uncompressed entry of an old format.
func legacy(magic int8, offset int64, value string) []byte {
	return legacyEntry(magic, 0, offset, []byte(value))
}

// legacyGzip wraps entries from base on in one compressed entry.
func legacyGzip(magic int8, base int64, values ...string) []byte {
	var inner []byte
	for i, v := range values {
		offset := base + int64(i)
		if magic == 1 {
			offset = int64(i)
		}
		inner = append(inner, legacy(magic, offset, v)...)
	}
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	if _, err := w.Write(inner); err != nil {
		panic(err)
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return legacyEntry(magic, 1, base+int64(len(values))-1, z.Bytes())
}

func legacyEntry(magic int8, attributes byte, offset int64, value []byte) []byte {
	body := []byte{byte(magic), attributes}
	if magic == 1 {
		body = binary.BigEndian.AppendUint64(body, epoch2023)
	}
	body = binary.BigEndian.AppendUint32(body, 0xffffffff) // no key
	body = binary.BigEndian.AppendUint32(body, uint32(len(value)))
	body = append(body, value...)
	b := binary.BigEndian.AppendUint64(nil, uint64(offset))
	b = binary.BigEndian.AppendUint32(b, uint32(4+len(body)))
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(body))
	return append(b, body...)
}

// offsetsOf drains an iterator of records: their offsets, and the error it ended with.
func offsetsOf(seq iter.Seq2[record.Record, error]) (offsets []int64, err error) {
	for r, e := range seq {
		if e != nil {
			return offsets, e
		}
		offsets = append(offsets, r.Offset)
	}
	return offsets, nil
}

// readAll is the offsets of the records of [from, bound).
func (b *bed) readAll(from int64, o ...ReadOption) []int64 {
	b.t.Helper()
	got, err := offsetsOf(b.Records(context.Background(), from, o...))
	require.NoError(b.t, err)
	return got
}

func offsetsIn(from, to int64) (all []int64) {
	for o := from; o < to; o++ {
		all = append(all, o)
	}
	return all
}

// bases lists the segments by base offset.
func (b *bed) bases() (all []int64) {
	for _, s := range b.SegmentInfos() {
		all = append(all, s.Base)
	}
	return all
}

func values(n, size int) []record.Record {
	recs := make([]record.Record, n)
	for i := range recs {
		recs[i] = record.Record{Timestamp: epoch2023, Value: bytes.Repeat([]byte{byte(i)}, size)}
	}
	return recs
}

var ctx = context.Background()
