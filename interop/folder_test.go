package interop

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
)

// folder is a root with one partition of random content, written by us as a follower would: so it may hold all that a log can
// hold. Time in it is made up.
type folder struct {
	t      *testing.T
	r      *rand.Rand
	root   string
	now    int64 // of the clock
	config map[string]string

	producers [6]folderProducer
	epoch     int32
	keys      int
	unkeyed   bool // the log may have records without a key
	aged      bool // the files' own times follow the made-up clock
	story     []string
}

type folderProducer struct {
	epoch       int16
	sequence    int32
	open        bool
	coordinator int32
}

const folderTopic = "cleaned"

func newFolder(t *testing.T, r *rand.Rand, config map[string]string) *folder {
	f := &folder{t: t, r: r, root: t.TempDir(), now: 1_750_000_000_000, config: config, keys: 2 + r.IntN(30), unkeyed: r.IntN(4) == 0}
	if r.IntN(4) == 0 {
		f.keys = 200
	}
	return f
}

func (f *folder) note(format string, a ...any) { f.story = append(f.story, fmt.Sprintf(format, a...)) }

// open opens a root with the made-up clock.
func (f *folder) open(root string, change func(*log.Config)) (*log.Dir, *log.Log) {
	f.t.Helper()
	c, err := log.ParseConfig(f.config)
	require.NoError(f.t, err)
	c.Durability, c.ProducerExpiry = log.Buffered, expiry*time.Millisecond
	if change != nil {
		change(&c)
	}
	now := f.now
	d, err := log.OpenDir(root, log.DirConfig{Now: func() time.Time { return time.UnixMilli(now) }, Manual: true})
	require.NoError(f.t, err)
	l, err := d.Open(context.Background(), log.TopicPartition{Topic: folderTopic}, c)
	require.NoError(f.t, err)
	return d, l
}

// fill appends some batches, rolls now and then, and stops cleanly.
func (f *folder) fill(batches int) {
	t, ctx := f.t, context.Background()
	d, l := f.open(f.root, func(c *log.Config) { c.SegmentBytes = max(c.SegmentBytes, 20_000) })
	for range batches {
		f.now += f.r.Int64N(2000)
		o := l.Offsets()
		end := o.LogEnd
		switch f.r.IntN(16) {
		case 0:
			end += 1 + f.r.Int64N(40)
		case 1, 2:
			require.NoError(t, l.Roll(ctx))
			f.note("roll at %d", end)
			continue
		}
		if f.r.IntN(12) == 0 {
			f.epoch++
		}
		b := f.batch(end)
		b.SetLeaderEpoch(f.epoch)
		got, err := l.AppendBatches(ctx, b.Bytes(), log.AppendOptions{As: log.Follower})
		require.NoError(t, err)
		require.Equal(t, b.BaseOffset(), got.Base)
		id, epoch, sequence := b.Producer()
		f.note("%d to %d: %d records, %v, control %v, transactional %v, producer %d epoch %d sequence %d, time %d", got.Base, b.LastOffset(), b.Count(), b.Codec(), b.Control(), b.Transactional(), id, epoch, sequence, b.MaxTimestamp())
	}
	if f.r.IntN(4) > 0 { // or open transactions keep nearly everything from being cleaned
		f.endAll(l)
		require.NoError(t, l.Roll(ctx))
		f.note("roll at %d", l.Offsets().LogEnd)
	}
	require.NoError(t, d.Close())
	if f.aged {
		f.age()
	}
}

func (f *folder) endAll(l *log.Log) {
	for id := range f.producers {
		if !f.producers[id].open {
			continue
		}
		b := f.end(l.Offsets().LogEnd, int64(id))
		b.SetLeaderEpoch(f.epoch)
		_, err := l.AppendBatches(context.Background(), b.Bytes(), log.AppendOptions{As: log.Follower})
		require.NoError(f.t, err)
		f.note("%d: producer %d ends", b.BaseOffset(), id)
	}
}

// end is the end of a transaction.
func (f *folder) end(base, id int64) record.Batch {
	p := &f.producers[id]
	if f.r.IntN(4) == 0 {
		p.epoch++
		p.sequence = 0
	}
	p.coordinator += int32(f.r.IntN(2))
	p.open = false
	b := record.Marker(f.r.IntN(2) == 0, record.Producer{ID: id, Epoch: p.epoch}, p.coordinator, time.UnixMilli(f.now))
	b.SetBaseOffset(base)
	return b
}

// age gives every .log a time of its own near the made-up clock.
func (f *folder) age() {
	names, err := filepath.Glob(filepath.Join(f.root, folderTopic+"-0", "*.log"))
	require.NoError(f.t, err)
	for _, name := range names {
		at := time.UnixMilli(f.now - f.r.Int64N(4*60*60*1000))
		require.NoError(f.t, os.Chtimes(name, at, at))
	}
}

// batch is what comes next.
func (f *folder) batch(base int64) record.Batch {
	r := f.r
	id := r.Int64N(int64(len(f.producers)))
	p := &f.producers[id]
	producer := &record.Producer{ID: id, Epoch: p.epoch, BaseSequence: p.sequence, Transactional: p.open || r.IntN(2) == 0}
	kind := r.IntN(10)
	if kind < 2 && !p.open && r.IntN(6) > 0 {
		kind = 9
	}
	switch {
	case kind < 2: // at times of a transaction that has nothing in this log
		return f.end(base, id)
	case kind < 5:
		producer = nil
	}
	o := record.BuilderOptions{Codec: codecs[r.IntN(len(codecs))], Producer: producer, Now: func() time.Time { return time.UnixMilli(f.now) }}
	if r.IntN(2) == 0 {
		o.Codec = record.None
	}
	if r.IntN(6) == 0 {
		o.TimestampType = record.LogAppendTime
	}
	b := record.NewBuilder(o)
	b.SetBaseOffset(base)
	n := 1 + r.IntN(8)
	offset, timeless := base, r.IntN(14) == 0
	for range n {
		rec := f.record()
		if timeless {
			rec.Timestamp = record.NoTimestamp
		}
		if rec.Offset = offset; producer == nil && r.IntN(20) == 0 { // as cleaned
			rec.Offset += r.Int64N(4)
		}
		offset = rec.Offset + 1
		require.NoError(f.t, b.AddAt(rec))
	}
	out, err := b.Finish()
	require.NoError(f.t, err)
	if producer != nil {
		p.sequence = record.IncrementSequence(p.sequence, int32(out.LastOffset()-base+1))
		p.open = producer.Transactional
	}
	if r.IntN(25) == 0 {
		out = emptied(f.t, out)
	}
	return out
}

func (f *folder) record() record.Record {
	r := f.r
	rec := record.Record{Timestamp: f.now - r.Int64N(100_000), Key: fmt.Appendf(nil, "key %d", r.IntN(f.keys)), Value: someBytes(r, 200)}
	switch r.IntN(30) {
	case 0:
		rec.Timestamp = f.now + r.Int64N(8*60*60*1000)
	case 1:
		rec.Timestamp = r.Int64N(1000)
	case 2:
		rec.Value = make([]byte, 3000)
	case 3:
		rec.Key = []byte{}
	case 4, 5, 6, 7, 8:
		rec.Value = nil
	case 9, 10:
		if f.unkeyed {
			rec.Key = nil
		}
	}
	for range r.IntN(5) - 2 {
		rec.Headers = append(rec.Headers, record.Header{Key: "h", Value: someBytes(r, 10)})
	}
	return rec
}

// emptied is the header of a batch that was cleaned of all its records.
func emptied(t *testing.T, b record.Batch) record.Batch {
	raw := append([]byte(nil), b.Bytes()[:61]...)
	binary.BigEndian.PutUint32(raw[8:], 61-12)
	binary.BigEndian.PutUint16(raw[21:], b.Attributes()&^7)
	binary.BigEndian.PutUint64(raw[27:], ^uint64(0))
	binary.BigEndian.PutUint32(raw[57:], 0)
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	out, err := record.View(raw)
	require.NoError(t, err)
	require.NoError(t, out.Verify())
	return out
}

// copyRoot copies a root with the times of its files.
func copyRoot(t *testing.T, from string) string {
	t.Helper()
	to := t.TempDir()
	require.NoError(t, os.CopyFS(to, os.DirFS(from)))
	require.NoError(t, filepath.WalkDir(from, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		return os.Chtimes(filepath.Join(to, strings.TrimPrefix(name, from)), info.ModTime(), info.ModTime())
	}))
	return to
}
