package segment

import (
	"math"
	"testing"

	"github.com/partlog/partlog/vfs"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// modelBatch is what the model knows of one batch.
type modelBatch struct {
	base, last, ts int64
	raw            []byte
}

// machine drives a segment and a plain list side by side.
type machine struct {
	t       *testing.T
	o       Options
	s       *Segment
	base    int64
	batches []modelBatch
	sealed  bool
	nextTS  int64
}

func (m *machine) next() int64 {
	if n := len(m.batches); n > 0 {
		return m.batches[n-1].last + 1
	}
	return m.base
}

func (m *machine) append(t *rapid.T) {
	if m.sealed {
		_, err := m.s.Append(one(m.t, m.next()))
		require.ErrorIs(t, err, ErrSealed)
		return
	}
	var raw []byte
	var added []modelBatch
	next := m.next()
	for range rapid.IntRange(1, 4).Draw(t, "batches") {
		base := next + rapid.Int64Range(0, 3).Draw(t, "gap")
		n := rapid.IntRange(1, 4).Draw(t, "records")
		ts := rapid.SampledFrom([]int64{-1, m.nextTS, m.nextTS + 5, m.nextTS - 20}).Draw(t, "ts")
		if ts <= 0 {
			ts = -1
		}
		m.nextTS += 3
		b := batchOf(m.t, base, n, ts, rapid.StringN(0, 60, -1).Draw(t, "value"))
		maxTS := int64(-1)
		if ts >= 0 {
			maxTS = ts + int64(n) - 1
		}
		added = append(added, modelBatch{base, base + int64(n) - 1, maxTS, b})
		next = base + int64(n)
		raw = append(raw, b...)
	}
	_, err := m.s.Append(raw)
	require.NoError(t, err)
	m.batches = append(m.batches, added...)
}

func (m *machine) truncate(t *rapid.T) {
	offset := rapid.Int64Range(m.base-1, m.next()+2).Draw(t, "offset")
	before := m.bytes()
	for i, b := range m.batches {
		if b.last >= offset {
			m.batches = m.batches[:i]
			break
		}
	}
	cut, err := m.s.Truncate(offset)
	require.NoError(t, err)
	require.Equal(t, before-m.bytes(), cut)
	m.sealed = false
}

func (m *machine) bytes() (n int64) {
	for _, b := range m.batches {
		n += int64(len(b.raw))
	}
	return n
}

func (m *machine) largest() (ts, offset int64) {
	ts, offset = -1, m.base
	for _, b := range m.batches {
		if b.ts > ts {
			ts, offset = b.ts, b.last
		}
	}
	return ts, offset
}

func (m *machine) seal(t *rapid.T) {
	require.NoError(t, m.s.Seal(ctx))
	m.sealed = true
}

func (m *machine) reopen(t *rapid.T) {
	clean := rapid.Bool().Draw(t, "clean")
	if clean {
		require.NoError(t, m.s.Close())
	}
	if !clean && rapid.Bool().Draw(t, "lose indexes") {
		for _, kind := range []string{".index", ".timeindex"} {
			_ = m.o.FS.Remove(file(m.base, kind))
		}
	}
	s, err := Open(dir, m.base, m.o)
	require.NoError(t, err)
	if !clean {
		scan, err := s.Recover(ctx, ScanOptions{})
		require.NoError(t, err)
		require.Equal(t, Clean, scan.Verdict)
		m.s.Abandon()
	}
	m.s, m.sealed = s, false
}

func (m *machine) recover(t *rapid.T) {
	scan, err := m.s.Recover(ctx, ScanOptions{})
	require.NoError(t, err)
	require.Equal(t, Clean, scan.Verdict)
	require.Equal(t, len(m.batches), scan.Batches)
	require.Equal(t, m.next(), scan.NextOffset)
}

func (m *machine) park(t *rapid.T) { require.NoError(t, m.s.Park()) }

func (m *machine) sync(t *rapid.T) {
	require.NoError(t, m.s.Sync())
	require.NoError(t, m.s.SyncData())
}

// check compares everything a reader can ask.
func (m *machine) check(t *rapid.T) {
	next, err := m.s.NextOffset()
	require.NoError(t, err)
	require.Equal(t, m.next(), next)
	info := m.s.Info()
	require.Equal(t, m.bytes(), info.Bytes)
	wantTS, wantOff := m.largest()
	if wantTS >= 0 {
		ts, off, err := m.s.LargestTimestamp()
		require.NoError(t, err)
		require.Equal(t, [2]int64{wantTS, wantOff}, [2]int64{ts, off})
	}
	var got [][]byte
	for b, err := range m.s.Batches(0) {
		require.NoError(t, err)
		got = append(got, append([]byte(nil), b.Bytes()...))
	}
	require.Len(t, got, len(m.batches))
	for i := range got {
		require.Equal(t, m.batches[i].raw, got[i])
	}
	offset := rapid.Int64Range(m.base-1, m.next()+1).Draw(t, "find")
	m.checkFind(t, offset)
	m.checkBelow(t, offset)
	m.checkTime(t, rapid.Int64Range(0, m.nextTS+10).Draw(t, "time"), offset)
}

func (m *machine) checkFind(t *rapid.T, offset int64) {
	pos := int64(0)
	p, err := m.s.Find(offset)
	for _, b := range m.batches {
		if b.last >= offset {
			require.NoError(t, err)
			require.Equal(t, Position{Base: b.base, LastOffset: b.last, Pos: pos, Size: int64(len(b.raw)), MaxTimestamp: b.ts, Magic: 2}, p)
			m.checkRegion(t, offset, pos)
			return
		}
		pos += int64(len(b.raw))
	}
	require.ErrorIs(t, err, ErrNotFound)
}

func (m *machine) checkBelow(t *rapid.T, offset int64) {
	p, err := m.s.Below(offset)
	pos, want := int64(0), Position{}
	for _, b := range m.batches {
		if b.base >= offset {
			break
		}
		want = Position{Base: b.base, LastOffset: b.last, Pos: pos, Size: int64(len(b.raw)), MaxTimestamp: b.ts, Magic: 2}
		pos += int64(len(b.raw))
	}
	if want.Size == 0 {
		require.ErrorIs(t, err, ErrNotFound)
		return
	}
	require.NoError(t, err)
	require.Equal(t, want, p)
}

func (m *machine) checkRegion(t *rapid.T, offset, pos int64) {
	bound := rapid.Int64Range(offset, m.next()+2).Draw(t, "bound")
	limit := int64(0)
	for _, b := range m.batches {
		if b.last >= bound {
			break
		}
		limit += int64(len(b.raw))
	}
	r, err := m.s.Region(offset, math.MaxInt64, bound, true)
	require.NoError(t, err)
	require.Equal(t, max(limit-pos, 0), r.Len())
	require.NoError(t, r.Close())
}

func (m *machine) checkTime(t *rapid.T, ts, from int64) {
	got, err := m.s.FindTime(ts, from)
	for _, b := range m.batches {
		if b.ts < ts || b.ts < 0 {
			continue
		}
		for o := b.base; o <= b.last; o++ {
			if at := b.ts - (b.last - o); at >= ts && o >= from {
				require.NoError(t, err)
				require.Equal(t, TimePosition{at, o, 0}, got)
				return
			}
		}
	}
	require.ErrorIs(t, err, ErrNotFound)
}

func TestASegmentBehavesLikeAList(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &machine{t: t, base: rapid.SampledFrom([]int64{0, 40, 1 << 40}).Draw(rt, "base"), nextTS: 100}
		m.o = Options{FS: vfs.Mem(), IndexIntervalBytes: rapid.SampledFrom([]int64{EveryBatch, 150, 0}).Draw(rt, "interval"),
			ReadOnly: false, Preallocate: false}
		require.NoError(rt, m.o.FS.MkdirAll(dir, 0o755))
		s, err := Create(dir, m.base, m.o)
		require.NoError(rt, err)
		m.s = s
		rt.Repeat(map[string]func(*rapid.T){
			"append": m.append, "more": m.append, "truncate": m.truncate, "seal": m.seal, "reopen": m.reopen,
			"recover": m.recover, "park": m.park, "sync": m.sync, "": m.check,
		})
		require.NoError(rt, m.s.Close())
	})
}

// Appending in any portions, with a seal at the end, leaves the indexes that recovery builds.
func TestAppendingBuildsTheIndexesThatRecoveryBuilds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		o := Options{FS: vfs.Mem(), IndexIntervalBytes: rapid.SampledFrom([]int64{EveryBatch, 1, 150, 1000}).Draw(rt, "interval")}
		require.NoError(rt, o.FS.MkdirAll(dir, 0o755))
		s, err := Create(dir, 5, o)
		require.NoError(rt, err)
		m := &machine{t: t, base: 5, s: s, o: o, nextTS: 100}
		for range rapid.IntRange(1, 30).Draw(rt, "appends") {
			m.append(rt)
		}
		require.NoError(rt, s.Close())
		read := func() (out [2]string) {
			for i, kind := range []string{".index", ".timeindex"} {
				out[i] = string(fileBytes(t, o.FS, file(5, kind)))
			}
			return out
		}
		before := read()
		s, err = Open(dir, 5, o)
		require.NoError(rt, err)
		_, err = s.Recover(ctx, ScanOptions{})
		require.NoError(rt, err)
		require.NoError(rt, s.Close())
		require.Equal(rt, before, read())
	})
}
