package segment

import (
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/partlog/partlog/record"

	"github.com/stretchr/testify/require"
)

func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

func TestSteadyAppendsAllocateNothing(t *testing.T) {
	s := create(t, 0, Options{FS: osFS(t)})
	raw := batchOf(t, 0, 3, 1_700_000_000_000, strings.Repeat("x", 300))
	b, err := record.View(raw)
	require.NoError(t, err)
	next := int64(0)
	n := testing.AllocsPerRun(2000, func() {
		b.SetBaseOffset(next)
		next += 3
		if _, err := s.Append(raw); err != nil {
			t.Fatal(err)
		}
	})
	require.Zero(t, n)
}

func TestLookupsAllocateNothing(t *testing.T) {
	s := create(t, 0, Options{FS: osFS(t)})
	fill(t, s, 500)
	require.NoError(t, s.Seal(ctx))
	n := testing.AllocsPerRun(500, func() {
		r, err := s.Region(321, 1<<20, math.MaxInt64, true)
		if err != nil {
			t.Fatal(err)
		}
		if p := r.First(); p.Base != 321 {
			t.Fatal(p)
		}
		r.Close()
	})
	require.LessOrEqual(t, n, 1.0)
}

func TestIteratingAllocatesNothingPerBatch(t *testing.T) {
	s := create(t, 0, Options{FS: osFS(t)})
	fill(t, s, 2000)
	n := testing.AllocsPerRun(20, func() {
		for _, err := range s.Batches(0) {
			if err != nil {
				t.Fatal(err)
			}
		}
	})
	require.LessOrEqual(t, n, 10.0)
	n = testing.AllocsPerRun(20, func() {
		if _, err := s.Scan(ctx, ScanOptions{}); err != nil {
			t.Fatal(err)
		}
	})
	require.LessOrEqual(t, n, 40.0, "the index entries that are gathered")
}

func TestAThousandClosedSegmentsAreSmallAndOpenNothing(t *testing.T) {
	o := Options{FS: memFS(t)}
	const n = 1000
	for i := range int64(n) {
		setBytes(t, o.FS, file(i, ".log"), one(t, i))
	}
	o.FS = &countingFS{FS: o.FS}
	segs := make([]*Segment, 0, n)
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range int64(n) {
		s, err := Open(dir, i, o)
		require.NoError(t, err)
		segs = append(segs, s)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	per := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / n
	require.Less(t, per, int64(700), "bytes of heap a closed segment")
	require.Zero(t, o.FS.(*countingFS).opens)
	runtime.KeepAlive(segs)
	t.Logf("%d bytes each, the struct %d", per, unsafe.Sizeof(Segment{}))
}

func TestRollDecision(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	clock := func() time.Time { return now }
	type row struct {
		name  string
		o     Options
		first int64 // timestamp of the first batch
		next  Incoming
		after time.Duration
		want  RollReason
	}
	size := int64(len(batchOf(t, 0, 1, 1000, "v")))
	rows := []row{
		{"fits exactly", Options{MaxBytes: 2 * size}, 1000, Incoming{size, 1, 1000}, 0, NoRoll},
		{"one byte too many", Options{MaxBytes: 2*size - 1}, 1000, Incoming{size, 1, 1000}, 0, RollSize},
		{"message time reached exactly", Options{MaxAge: time.Second}, 1000, Incoming{size, 1, 2000}, 0, NoRoll},
		{"message time passed", Options{MaxAge: time.Second}, 1000, Incoming{size, 1, 2001}, 0, RollTime},
		{"wall clock does not count beside message time", Options{MaxAge: time.Second}, 1000, Incoming{size, 1, 1500}, time.Hour, NoRoll},
		{"no timestamps: wall clock", Options{MaxAge: time.Second}, -1, Incoming{size, 1, -1}, time.Second + time.Millisecond, RollTime},
		{"no timestamps, in time", Options{MaxAge: time.Second}, -1, Incoming{size, 1, -1}, time.Second, NoRoll},
		{"older messages never roll", Options{MaxAge: time.Second}, 1000, Incoming{size, 1, 1}, 0, NoRoll},
		{"no age limit", Options{MaxAge: Forever}, 1000, Incoming{size, 1, math.MaxInt64}, 0, NoRoll},
		{"offset out of range", Options{}, 1000, Incoming{size, math.MaxInt32 + 1, 1000}, 0, RollOffset},
		{"largest offset", Options{}, 1000, Incoming{size, math.MaxInt32, 1000}, 0, NoRoll},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			now = time.UnixMilli(1_000_000)
			r.o.Now, r.o.FS = clock, memFS(t)
			s := create(t, 0, r.o)
			add(t, s, batchOf(t, 0, 1, r.first, "v"))
			now = now.Add(r.after)
			roll, why := s.NeedsRoll(r.next, now)
			require.Equal(t, r.want, why)
			require.Equal(t, r.want != NoRoll, roll)
			require.NoError(t, s.Close())
			// The same again after a restart, for what does not depend on the wall clock.
			if s = open(t, 0, r.o); r.first >= 0 {
				_, why = s.NeedsRoll(r.next, now)
				require.Equal(t, r.want, why)
			}
		})
	}
}

func TestAFullIndexRolls(t *testing.T) {
	s := create(t, 0, Options{IndexMaxBytes: 48, IndexIntervalBytes: EveryBatch}) // 6 offsets, 4 times of which one is kept
	n := 0
	for ; n < 20; n++ {
		if roll, why := s.NeedsRoll(Incoming{70, int64(n), int64(n + 1)}, time.Now()); roll {
			require.Equal(t, RollIndex, why)
			break
		}
		add(t, s, batchOf(t, int64(n), 1, int64(n+1), "v"))
	}
	require.Equal(t, 4, n, "three entries and the first batch, which has none")
	// One append of many batches does not fail for a full index.
	var many []byte
	for i := range int64(30) {
		many = append(many, batchOf(t, 4+i, 1, 100+i, "v")...)
	}
	add(t, s, many)
	require.NoError(t, s.Seal(ctx))
	ts, _, err := s.LargestTimestamp()
	require.NoError(t, err)
	require.EqualValues(t, 129, ts)
	_, err = s.Find(33)
	require.NoError(t, err)
}

func TestJitterIsDrawnOnceAndBelowTheAge(t *testing.T) {
	seen := map[int64]bool{}
	for range 50 {
		s := create(t, 0, Options{FS: memFS(t), JitterMax: time.Hour, MaxAge: time.Minute})
		require.Less(t, s.jitter, time.Minute.Milliseconds())
		require.GreaterOrEqual(t, s.jitter, int64(0))
		seen[s.jitter] = true
	}
	require.Greater(t, len(seen), 10)
}

func TestAppendRefusesWhatDoesNotContinueTheSegment(t *testing.T) {
	o := Options{FS: memFS(t)}
	s := create(t, 10, o)
	fill(t, s, 5)
	log := fileBytes(t, o.FS, file(10, ".log"))
	rows := map[string]struct {
		raw []byte
		is  error
	}{
		"an old offset":              {one(t, 14), nil},
		"below the base":             {one(t, 3), nil},
		"descending inside":          {append(one(t, 20), one(t, 18)...), nil},
		"half a batch":               {one(t, 15)[:30], record.ErrIncomplete},
		"a batch and a half":         {append(one(t, 15), one(t, 16)[:30]...), record.ErrIncomplete},
		"noise":                      {noise(100), record.ErrCorrupt},
		"an unrepresentable offset":  {one(t, 10+math.MaxInt32+1), ErrOverflow},
		"ends beyond representation": {batchOf(t, 10+math.MaxInt32, 2, 1, "v"), ErrOverflow},
	}
	for name, r := range rows {
		_, err := s.Append(r.raw)
		require.Error(t, err, name)
		if r.is != nil {
			require.ErrorIs(t, err, r.is, name)
		} else {
			var order *OrderError
			require.ErrorAs(t, err, &order, name)
			require.EqualValues(t, 15, min(order.Want, 15), name)
		}
		require.Equal(t, log, fileBytes(t, o.FS, file(10, ".log")), name)
	}
	fill(t, s, 1)
	require.Equal(t, span(10, 16), mustOffsets(t, s))
	add(t, s, one(t, 10+math.MaxInt32))
	require.NoError(t, s.Seal(ctx))
	_, err := s.Append(one(t, 17))
	require.ErrorIs(t, err, ErrSealed)
}

func TestListSeesOnlyLogs(t *testing.T) {
	fsys := memFS(t)
	for _, n := range []string{"00000000000000000000.log", "00000000000000000170.log", "00000000000000000009.log", "00000000000000000005.log.deleted",
		"00000000000000000007.index", "leader-epoch-checkpoint", ".log", "x.log", "99999999999999999999.log", "-5.log"} {
		setBytes(t, fsys, dir+"/"+n, nil)
	}
	bases, err := List(fsys, dir)
	require.NoError(t, err)
	require.Equal(t, []int64{0, 9, 170}, bases)
	require.Equal(t, "09223372036854775807.log", FileName(math.MaxInt64, ".log"))
	require.Equal(t, fmt.Sprintf("%020d.index", 170), FileName(170, ".index"))
}
