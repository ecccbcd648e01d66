package compaction

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/vfs"
)

const folder = "t-0"

// at0 is the clock of tests.
var at0 = time.UnixMilli(1_700_000_000_000)

// rec is a record in short: "k=v", "k" for a tombstone, "=v" without a key.
type rec struct {
	offset int64
	kv     string
	ts     int64
}

func (r rec) record() record.Record {
	out := record.Record{Offset: r.offset, Timestamp: r.ts}
	key, value, ok := bytes.Cut([]byte(r.kv), []byte("="))
	if len(key) > 0 {
		out.Key = key
	}
	if ok {
		out.Value = append([]byte{}, value...)
	}
	return out
}

// batchOf makes a batch of records at consecutive offsets from base.
func batchOf(base int64, o record.BuilderOptions, kvs ...string) []byte {
	b := record.NewBuilder(o)
	b.SetBaseOffset(base)
	for i, kv := range kvs {
		if err := b.AddAt(rec{base + int64(i), kv, at0.UnixMilli() + base + int64(i)}.record()); err != nil {
			panic(err)
		}
	}
	out, err := b.Finish()
	if err != nil {
		panic(err)
	}
	out.SetLeaderEpoch(3)
	return bytes.Clone(out.Bytes())
}

func plain(base int64, kvs ...string) []byte { return batchOf(base, record.BuilderOptions{}, kvs...) }

// by makes a batch of an idempotent producer, tx one of a transaction.
func by(id int64, seq int32, base int64, kvs ...string) []byte {
	return batchOf(base, record.BuilderOptions{Producer: &record.Producer{ID: id, BaseSequence: seq}}, kvs...)
}

func tx(id int64, seq int32, base int64, kvs ...string) []byte {
	return batchOf(base, record.BuilderOptions{Producer: &record.Producer{ID: id, BaseSequence: seq, Transactional: true}}, kvs...)
}

func end(commit bool, id, base int64) []byte {
	m := record.Marker(commit, record.Producer{ID: id}, 1, at0)
	m.SetBaseOffset(base)
	m.SetLeaderEpoch(3)
	return m.Bytes()
}

// world is one partition folder with its open segments.
type world struct {
	t    testing.TB
	fs   vfs.FS
	o    segment.Options
	segs []*segment.Segment
	// producers and horizon for the runs
	producers map[int64]LastBatch
	now       time.Time
	c         Config
	dirty     int64
	last      Result
}

func newWorld(t testing.TB, fsys vfs.FS) *world {
	require.NoError(t, fsys.MkdirAll(folder, 0o755))
	w := &world{t: t, fs: fsys, o: segment.Options{FS: fsys, Now: func() time.Time { return at0 }}, now: at0}
	t.Cleanup(w.close)
	return w
}

func (w *world) close() {
	for _, s := range w.segs {
		s.Abandon()
	}
	w.segs = nil
}

// add makes a segment of the batches; its base is that of the first one.
func (w *world) add(batches ...[]byte) *segment.Segment {
	b, err := record.View(batches[0])
	require.NoError(w.t, err)
	return w.addAt(b.BaseOffset(), batches...)
}

func (w *world) addAt(base int64, batches ...[]byte) *segment.Segment {
	s, err := segment.Create(folder, base, w.o)
	require.NoError(w.t, err)
	for _, raw := range batches {
		_, err := s.Append(raw)
		require.NoError(w.t, err)
	}
	if n := len(w.segs); n > 0 {
		require.NoError(w.t, w.segs[n-1].Seal(context.Background()))
		require.NoError(w.t, w.segs[n-1].Sync())
	}
	w.segs = append(w.segs, s)
	return s
}

func (w *world) aborted(i int, id, first, last, stable int64) {
	require.NoError(w.t, w.segs[i].AppendAborted(segment.AbortedTxn{ProducerID: id, FirstOffset: first, LastOffset: last, LastStable: stable}))
}

// sync makes all there is durable.
func (w *world) sync() {
	for _, s := range w.segs {
		require.NoError(w.t, s.Sync())
	}
	require.NoError(w.t, w.fs.SyncDir(folder))
}

func (w *world) input() Input {
	return Input{Dir: folder, Options: w.o, Segments: w.segs, Config: w.c, Now: w.now, Producers: w.producers,
		Bounds: Bounds{FirstDirty: w.dirty, Uncleanable: w.segs[len(w.segs)-1].Base()}}
}

// clean runs up to the active segment and takes the new segments up.
func (w *world) clean(change ...func(*Input)) (Result, error) {
	in := w.input()
	for _, f := range change {
		f(&in)
	}
	out, err := Run(context.Background(), in)
	w.last = out
	if err == nil {
		w.dirty = out.FirstDirty
	}
	w.reopen()
	return out, err
}

func (w *world) mustClean(change ...func(*Input)) Result {
	w.t.Helper()
	out, err := w.clean(change...)
	require.NoError(w.t, err)
	return out
}

func (w *world) reopen() {
	if n := len(w.segs); n > 0 {
		require.NoError(w.t, w.segs[n-1].Sync())
	}
	w.close()
	bases, err := segment.List(w.fs, folder)
	require.NoError(w.t, err)
	for _, base := range bases {
		s, err := segment.Open(folder, base, w.o)
		require.NoError(w.t, err)
		w.segs = append(w.segs, s)
	}
}

// view is all that can be read of a folder.
type view struct {
	batches []string // "base-last attributes count horizon"
	records []rec
}

func (w *world) view() view {
	w.t.Helper()
	v, err := viewOf(w.segs)
	require.NoError(w.t, err)
	return v
}

func viewOf(segs []*segment.Segment) (v view, err error) {
	d := record.NewDecoder(record.Limits{})
	for _, s := range segs {
		for b, err := range s.Batches(0) {
			if err != nil {
				return v, err
			}
			id, epoch, seq := b.Producer()
			line := fmt.Sprintf("%d-%d a=%#x n=%d", b.BaseOffset(), b.LastOffset(), b.Attributes(), b.Count())
			if id >= 0 {
				line += fmt.Sprintf(" p=%d/%d/%d", id, epoch, seq)
			}
			v.batches = append(v.batches, line)
			for r, err := range b.Records(d) {
				if err != nil {
					return v, err
				}
				if b.Control() {
					continue
				}
				kv := string(r.Key)
				if r.Value != nil {
					kv += "=" + string(r.Value)
				}
				v.records = append(v.records, rec{r.Offset, kv, r.Timestamp})
			}
		}
	}
	return v, nil
}

// kvs is the records as "offset:key=value".
func (w *world) kvs() []string {
	w.t.Helper()
	out := []string{}
	for _, r := range w.view().records {
		out = append(out, fmt.Sprintf("%d:%s", r.offset, r.kv))
	}
	return out
}

func (w *world) lines() []string { w.t.Helper(); return w.view().batches }

// lasts are the last offsets of all batches below the active segment.
func (w *world) lasts() (out []int64) {
	for _, s := range w.segs[:len(w.segs)-1] {
		for b, err := range s.Batches(0) {
			require.NoError(w.t, err)
			out = append(out, b.LastOffset())
		}
	}
	return out
}

func (w *world) indexed(i int) []segment.AbortedTxn {
	all, _, err := w.segs[i].Aborted(0, math.MaxInt64)
	require.NoError(w.t, err)
	return all
}

func (w *world) bases() (out []int64) {
	for _, s := range w.segs {
		out = append(out, s.Base())
	}
	return out
}

// files are the names in the folder.
func (w *world) files() (out []string) {
	entries, err := w.fs.ReadDir(folder)
	require.NoError(w.t, err)
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}
