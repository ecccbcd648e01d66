package producerstate

import (
	"encoding/binary"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
)

const many = 100_000

// stream is one batch that is renumbered for every append: the state does not look at the CRC.
type stream struct{ raw []byte }

func newStream(t require.TestingT, d spec) stream { return stream{d.bytes(t)} }

func (s stream) set(id int64, seq int32, at int64) []byte {
	binary.BigEndian.PutUint64(s.raw, uint64(at))
	binary.BigEndian.PutUint64(s.raw[43:], uint64(id))
	binary.BigEndian.PutUint32(s.raw[53:], uint32(seq))
	return s.raw
}

// crowd gives a state with many producers, each with five batches, and returns the next offset.
func crowd(t require.TestingT, s *State, batches int32) (at int64) {
	one := newStream(t, spec{id: 0, seq: 0, at: 0})
	for seq := range batches {
		for id := range int64(many) {
			p, err := s.Check(one.set(id, seq, at), Options{})
			if err != nil {
				require.NoError(t, err)
			}
			s.Commit(p)
			at++
		}
	}
	return at
}

func TestAnIdempotentAppendAllocatesNothing(t *testing.T) {
	s := New(Config{}, 0)
	one := newStream(t, spec{id: pid, seq: 0, at: 0})
	seq, at := int32(0), int64(0)
	appendOne := func() {
		p, err := s.Check(one.set(at%7, seq, at), Options{Verify: true})
		if err != nil {
			t.Fatal(err)
		}
		s.Commit(p)
		s.ExpireDue(1000)
		s.Unstable().LastStable(at, 0)
		at++
		seq = int32(at / 7)
	}
	for range 100 {
		appendOne()
	}
	require.Zero(t, testing.AllocsPerRun(1000, appendOne))
}

func TestATransactionAllocatesNothing(t *testing.T) {
	s := New(Config{}, 0)
	data := newStream(t, spec{id: pid, seq: 0, at: 0, txn: true})
	mark := stream{end{id: pid}.bytes()}
	seq, at := int32(0), int64(0)
	turn := func() {
		p, err := s.Check(data.set(pid, seq, at), Options{})
		if err != nil {
			t.Fatal(err)
		}
		s.Commit(p)
		binary.BigEndian.PutUint64(mark.raw, uint64(at+1))
		if p, err = s.Check(mark.raw, Options{Origin: record.Coordinator}); err != nil {
			t.Fatal(err)
		}
		s.Commit(p)
		if at%10 == 0 {
			s.OnHighWatermark(at)
		}
		at, seq = at+2, seq+1
	}
	for range 500 {
		turn()
	}
	require.LessOrEqual(t, testing.AllocsPerRun(1000, turn), 0.0)
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// The promise: at most 300 bytes for a producer, however the state came about, and almost nothing once they are gone.
func TestAProducerCostsAtMost300Bytes(t *testing.T) {
	fsys := folder(t)
	s := New(Config{}, 0)
	before := heap()
	crowd(t, s, 1)
	grown := int64(heap()-before) / many
	require.LessOrEqual(t, grown, int64(300))
	require.NoError(t, must(s.Take(fsys, "t-0")))

	before = heap()
	loaded := New(Config{}, 0)
	_, err := loaded.Reload(Reload{FS: fsys, Folder: "t-0", End: s.End(), Now: 2000})
	require.NoError(t, err)
	require.Equal(t, many, loaded.Len())
	after := int64(heap()-before) / many
	require.LessOrEqual(t, after, int64(300))
	runtime.KeepAlive(fsys)
	t.Logf("%d bytes a producer, %d after a reload", grown, after)

	before = heap()
	require.Equal(t, many, loaded.Expire(1<<60))
	require.Less(t, int64(heap())-int64(before), int64(-170*many), "given back")
	runtime.KeepAlive(loaded)
	runtime.KeepAlive(s)
}

func must(_ bool, err error) error { return err }

func TestManyProducersAreLoadedAtOnce(t *testing.T) {
	fsys := folder(t)
	s := New(Config{}, 0)
	crowd(t, s, 1)
	require.NoError(t, must(s.Take(fsys, "t-0")))
	best := time.Hour
	for range 5 {
		loaded := New(Config{}, 0)
		began := time.Now()
		_, err := loaded.Reload(Reload{FS: fsys, Folder: "t-0", End: s.End(), Now: 2000})
		best = min(best, time.Since(began))
		require.NoError(t, err)
		require.Equal(t, many, loaded.Len())
	}
	t.Logf("%d producers loaded in %v", many, best)
}

// A hostile number of producers or transactions in one append is held only as long as it lasts.
func TestAWideAppendIsNotKeptAround(t *testing.T) {
	s := New(Config{}, 0)
	one := newStream(t, spec{id: 0, seq: 0, at: 0, txn: true})
	var raw []byte
	for i := range int64(1000) {
		raw = append(raw, one.set(i, 0, i)...)
	}
	p, err := s.Check(raw, Options{Origin: record.Replication})
	require.NoError(t, err)
	s.Commit(p)
	require.Len(t, s.Open(), 1000)
	s.Replay(view(t, spec{id: -1, at: 1000}.bytes(t)))
	require.Zero(t, cap(s.pending.updates))
	require.Nil(t, s.pending.byID)
}

func benchmarkAppend(b *testing.B, producers int64, s *State, at int64, seq func(id int64) int32) {
	one := newStream(b, spec{id: 0, seq: 0, at: 0})
	next := make([]int32, producers)
	for id := range next {
		next[id] = seq(int64(id))
	}
	b.ReportAllocs()
	i := int64(0)
	for b.Loop() {
		id := i % producers
		p, err := s.Check(one.set(id, next[id], at), Options{})
		if err != nil {
			b.Fatal(err)
		}
		s.Commit(p)
		next[id]++
		at++
		i++
	}
}

func BenchmarkAppend(b *testing.B) {
	b.Run("plain", func(b *testing.B) {
		s := New(Config{}, 0)
		raw := spec{id: -1, at: 0}.bytes(b)
		b.ReportAllocs()
		for b.Loop() {
			p, err := s.Check(raw, Options{})
			if err != nil {
				b.Fatal(err)
			}
			s.Commit(p)
		}
	})
	b.Run("1 producer", func(b *testing.B) {
		benchmarkAppend(b, 1, New(Config{}, 0), 0, func(int64) int32 { return 0 })
	})
	b.Run("100000 producers", func(b *testing.B) {
		s := New(Config{}, 0)
		at := crowd(b, s, 5)
		benchmarkAppend(b, many, s, at, func(int64) int32 { return 5 })
	})
}

func BenchmarkSnapshot(b *testing.B) {
	s := New(Config{}, 0)
	end := crowd(b, s, 1)
	fsys := vfs.Mem()
	if err := fsys.MkdirAll("t-0", 0o755); err != nil {
		b.Fatal(err)
	}
	if _, err := s.Take(fsys, "t-0"); err != nil {
		b.Fatal(err)
	}
	b.Run("encode 100000", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.Snapshot(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("load 100000", func(b *testing.B) {
		for b.Loop() {
			if _, err := New(Config{}, 0).Reload(Reload{FS: fsys, Folder: "t-0", End: end, Now: 2000}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("expire none of 100000", func(b *testing.B) {
		for b.Loop() {
			s.Expire(2000)
		}
	})
}

func BenchmarkReplay(b *testing.B) {
	s := New(Config{}, 0)
	one := newStream(b, spec{id: 0, seq: 0, at: 0})
	at := int64(0)
	b.ReportAllocs()
	for b.Loop() {
		batch, _, err := record.Next(one.set(at%50, int32(at/50), at))
		if err != nil {
			b.Fatal(err)
		}
		s.Replay(batch)
		at++
	}
}
