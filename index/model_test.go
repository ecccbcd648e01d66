package index

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/partlog/partlog/vfs"
)

// model is the index as a plain slice, searched from end to end.
type model []Entry

func (m model) lookup(base, offset int64) Entry {
	found := Entry{Offset: base}
	for _, e := range m {
		if e.Offset <= offset {
			found = e
		}
	}
	return found
}

func (m model) upperBound(position int64) (Entry, bool) {
	for _, e := range m {
		if e.Position >= position {
			return e, true
		}
	}
	return Entry{}, false
}

func (m model) compare(t *rapid.T, x *Index, base int64) {
	t.Helper()
	require.Equal(t, len(m), x.Len())
	probes := []int64{math.MinInt64, math.MaxInt64, base - 1, base, base + math.MaxInt32}
	positions := []int64{math.MinInt64, math.MaxInt64, -1, 0}
	for range 4 {
		if len(m) > 0 {
			e := m[rapid.IntRange(0, len(m)-1).Draw(t, "slot")]
			probes = append(probes, e.Offset-1, e.Offset, e.Offset+1)
			positions = append(positions, e.Position-1, e.Position, e.Position+1)
		}
	}
	if len(m) > 0 {
		last, ok := x.Last()
		require.True(t, ok)
		require.Equal(t, m[len(m)-1], last)
		probes = append(probes, last.Offset, m[0].Offset)
	}
	for _, p := range probes {
		got, err := x.Lookup(p)
		require.NoError(t, err)
		require.Equal(t, m.lookup(base, p), got, "lookup %d", p)
	}
	for _, p := range positions {
		got, ok, err := x.UpperBound(p)
		require.NoError(t, err)
		want, there := m.upperBound(p)
		require.Equal(t, there, ok, "upper bound %d", p)
		require.Equal(t, want, got, "upper bound %d", p)
	}
}

// Append, truncate, flush, seal and reopen in any order, against the model; every way of reading gives its answers.
func TestIndexEqualsTheModel(t *testing.T) {
	dir := t.TempDir()
	disk, err := vfs.OS(dir)
	require.NoError(t, err)
	rapid.Check(t, func(t *rapid.T) {
		o := Options{FS: disk, Budget: NewBudget(rapid.IntRange(1, 2).Draw(t, "budget"))}
		if rapid.Bool().Draw(t, "memory") {
			o.FS = vfs.Mem()
		}
		if rapid.Bool().Draw(t, "unmapped") {
			o.Map = Never
		}
		base := rapid.SampledFrom([]int64{0, 1000, 1<<31 - 5, 1 << 62}).Draw(t, "base")
		_ = o.FS.Remove(file)
		x, err := Create(file, base, o)
		require.NoError(t, err)
		m := model{}
		sealed := false
		last := func() Entry {
			if len(m) == 0 {
				return Entry{base, 0}
			}
			return m[len(m)-1]
		}
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				n := rapid.SampledFrom([]int{1, 2, 30, 511, 512, 600}).Draw(t, "n")
				step := rapid.Int64Range(1, 50).Draw(t, "step")
				for range n {
					e := Entry{last().Offset + step, last().Position + step*3}
					err := x.Append(e)
					if sealed {
						require.ErrorIs(t, err, ErrReadOnly)
						return
					}
					if err != nil {
						t.Fatal(err)
					}
					m = append(m, e)
				}
			},
			"truncate": func(t *rapid.T) {
				to := rapid.Int64Range(base-1, last().Offset+2).Draw(t, "offset")
				require.NoError(t, x.Truncate(to))
				i := slices.IndexFunc(m, func(e Entry) bool { return e.Offset >= to })
				if i >= 0 {
					m = m[:i:i]
				}
				sealed = false
			},
			"flush": func(t *rapid.T) { require.NoError(t, x.Flush()) },
			"seal": func(t *rapid.T) {
				require.NoError(t, x.Seal())
				sealed = true
			},
			"reopen": func(t *rapid.T) {
				require.NoError(t, x.Close())
				info, err := o.FS.Stat(file)
				require.NoError(t, err)
				require.EqualValues(t, len(m)*EntrySize, info.Size())
				sealed = rapid.Bool().Draw(t, "sealed")
				if sealed {
					x, err = OpenSealed(file, base, o)
				} else {
					x, err = Open(file, base, o)
				}
				require.NoError(t, err)
			},
			"": func(t *rapid.T) { m.compare(t, x, base) },
		})
		require.Equal(t, sealed, x.Full())
		got := model{}
		for e, err := range x.Entries() {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, e)
		}
		require.True(t, slices.Equal(m, got))
		if len(m) > 0 {
			require.NoError(t, x.Check(last().Position+1))
		}
		require.NoError(t, x.Close())
		require.Zero(t, o.Budget.Mappings()+o.Budget.Files())
	})
}

// readers opens the same bytes in every way there is.
func readers(t testing.TB, fsys vfs.FS, base int64, b []byte) map[string]*Index {
	t.Helper()
	put(t, Options{FS: fsys}, file, b)
	xs := map[string]*Index{}
	add := func(name string, x *Index, err error) {
		require.NoError(t, err, name)
		xs[name] = x
	}
	x, err := OpenSealed(file, base, Options{FS: fsys})
	add("mapped", x, err)
	x, err = OpenSealed(file, base, Options{FS: fsys, Map: Never})
	add("unmapped", x, err)
	x, err = Open(file, base, Options{FS: fsys, ReadOnly: true})
	add("active", x, err)
	return xs
}

// same compares all readers on one question, on any bytes.
func same(t testing.TB, xs map[string]*Index, offset, position int64) {
	t.Helper()
	type answer struct {
		at, bound Entry
		found     bool
		n         int
		last      Entry
		damaged   string
	}
	answers := map[string]answer{}
	for name, x := range xs {
		var a answer
		var err error
		a.at, err = x.Lookup(offset)
		require.NoError(t, err)
		a.bound, a.found, err = x.UpperBound(position)
		require.NoError(t, err)
		a.n = x.Len()
		a.last, _ = x.Last()
		if err := x.Check(1 << 30); err != nil {
			require.ErrorIs(t, err, ErrDamaged)
			a.damaged = err.Error()
		}
		answers[name] = a
	}
	for name, a := range answers {
		require.Equal(t, answers["mapped"], a, name)
	}
}

func TestMappedUnmappedAndActiveReadersAgreeOnSoundFiles(t *testing.T) {
	disk, err := vfs.OS(t.TempDir())
	require.NoError(t, err)
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.SampledFrom([]int{0, 1, 2, 511, 512, 513, 1023, 1024, 1025, 1536, 5000}).Draw(rt, "n")
		es := steps(9, n)
		fsys := rapid.SampledFrom([]vfs.FS{disk, vfs.Mem()}).Draw(rt, "fs")
		xs := readers(t, fsys, 9, bytesOf(9, es...))
		heap, err := Build(9, seq(es))
		require.NoError(rt, err)
		xs["heap"] = heap
		for _, x := range xs {
			model(es).compare(rt, x, 9)
			require.NoError(rt, x.Close())
		}
	})
}

func FuzzAnyBytesOpenCheckAndAnswerAlikeInEveryReader(f *testing.F) {
	f.Add([]byte{}, int64(0), int64(0))
	f.Add([]byte{0, 0, 0, 57, 0, 0, 0x10, 0x73}, int64(57), int64(4211))
	f.Add(append(bytesOf(0, steps(0, 1100)...), make([]byte, 100)...), int64(5000), int64(9000))
	f.Add(make([]byte, 9000), int64(1), int64(1))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, int64(-1), int64(-1))
	f.Fuzz(func(t *testing.T, b []byte, offset, position int64) {
		xs := readers(t, vfs.Mem(), 3, b)
		same(t, xs, offset, position)
		for _, x := range xs {
			n := 0
			for _, err := range x.Entries() {
				if err != nil {
					t.Fatal(err)
				}
				n++
			}
			require.Equal(t, x.Len(), n)
			require.NoError(t, x.Close())
		}
		fsys := vfs.Mem()
		put(t, Options{FS: fsys}, file, b)
		x, err := Open(file, 3, Options{FS: fsys})
		require.NoError(t, err)
		require.NoError(t, x.Truncate(offset))
		if err := x.Append(Entry{offset, position}); err != nil {
			require.True(t, errors.Is(err, ErrRange) || errors.Is(err, ErrOrder), err)
		}
		require.NoError(t, x.Close())
		info, err := fsys.Stat(file)
		require.NoError(t, err)
		require.Zero(t, info.Size()%EntrySize)
	})
}

// Garbage of many pages, where the order of probes decides the answer.
func TestReadersAgreeOnGarbage(t *testing.T) {
	disk, err := vfs.OS(t.TempDir())
	require.NoError(t, err)
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		b := make([]byte, rapid.IntRange(0, 20000).Draw(rt, "length"))
		for i := 0; i+8 <= len(b); i += 8 {
			seed = seed*6364136223846793005 + 1442695040888963407
			binary.LittleEndian.PutUint64(b[i:], seed)
		}
		xs := readers(t, disk, 0, b)
		same(t, xs, int64(int32(seed>>32)), int64(int32(seed)))
		for _, x := range xs {
			require.NoError(rt, x.Close())
		}
	})
}

// Scenario: B047: readers go on while the writer appends, truncates, seals and reopens.
func TestReadersSeeOnlyWholeEntriesWhileTheWriterWorks(t *testing.T) {
	for _, mode := range []MapMode{Auto, Never} {
		o, _ := osOptions(t)
		o.Map = mode
		o.Budget = NewBudget(1)
		x := create(t, 0, o)
		other := o
		y, err := Create("other.index", 0, other) // takes the budget from x again and again
		require.NoError(t, err)
		defer y.Close()
		var stop atomic.Bool
		var wg sync.WaitGroup
		var lookups atomic.Int64
		for range 4 {
			wg.Go(func() {
				for i := int64(0); !stop.Load(); i++ {
					e, err := x.Lookup(i * 37 % 20000)
					switch {
					case err != nil:
						t.Errorf("lookup: %v", err)
						return
					case e.Offset > i*37%20000 || e.Position != e.Offset*3:
						t.Errorf("lookup %d: %+v", i*37%20000, e)
						return
					}
					b, ok, err := x.UpperBound(i * 41 % 60000)
					if err != nil || ok && (b.Position < i*41%60000 || b.Position != b.Offset*3) {
						t.Errorf("upper bound %d: %+v, %v", i*41%60000, b, err)
						return
					}
					if e, ok := x.Last(); ok && e.Position != e.Offset*3 {
						t.Errorf("last: %+v", e)
						return
					}
					lookups.Add(1)
				}
			})
		}
		last := int64(0)
		for round := range int64(30) {
			for range 200 + round*7%400 {
				last += 7
				if err := x.Append(Entry{last, last * 3}); err != nil {
					t.Fatal(err)
				}
			}
			if round%3 == 0 {
				require.NoError(t, x.Seal())
				runtime.Gosched()
			}
			_ = y.Append(Entry{round + 1, round + 1})
			require.NoError(t, y.Flush())
			require.NoError(t, x.Truncate(last*(round%5)/5))
			last = max(0, x.LastOffset())
		}
		stop.Store(true)
		wg.Wait()
		require.NotZero(t, lookups.Load())
		require.NoError(t, x.Check(math.MaxInt64))
	}
}

func TestLookupsMeetingCloseAreClosedErrors(t *testing.T) {
	o, _ := osOptions(t)
	for range 30 {
		_ = o.FS.Remove(file)
		x, err := Create(file, 0, o)
		require.NoError(t, err)
		for _, e := range steps(0, 600) {
			require.NoError(t, x.Append(e))
		}
		require.NoError(t, x.Seal())
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				for {
					if _, err := x.Lookup(50); err != nil {
						if !errors.Is(err, fs.ErrClosed) {
							t.Error(err)
						}
						return
					}
				}
			})
		}
		runtime.Gosched()
		require.NoError(t, x.Close())
		wg.Wait()
	}
}

func TestLookupsAndAppendsAllocateNothing(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector makes sync.Pool forget")
	}
	o, _ := osOptions(t)
	const n = 20000
	active := create(t, 0, o, steps(0, n)...)
	off := int64(0)
	check := func(name string, x *Index) {
		require.NoError(t, x.Load())
		allocs := testing.AllocsPerRun(1000, func() {
			off = (off + 12347) % (n * 10)
			_, _ = x.Lookup(off)
			_, _, _ = x.UpperBound(off * 400)
			x.Last()
		})
		require.Zero(t, allocs, name)
	}
	check("active", active)
	next := active.LastOffset()
	require.Zero(t, testing.AllocsPerRun(2000, func() {
		next++
		_ = active.Append(Entry{next, n*4096 + next})
	}), "append")
	require.NoError(t, active.Seal())
	check("mapped", active)
	require.Equal(t, 1, o.Budget.Mappings()+o.Budget.Files(), "a file where the platform has no mappings")
	o.Map = Never
	x, err := OpenSealed(file, 0, o)
	require.NoError(t, err)
	defer x.Close()
	check("unmapped", x)
	heap, err := Build(0, seq(steps(0, n)))
	require.NoError(t, err)
	check("heap", heap)
}

func BenchmarkLookup(b *testing.B) {
	o, _ := osOptions(b)
	const n = 262144 // 1 GiB of log
	es := steps(0, n)
	active, err := Create(file, 0, o)
	require.NoError(b, err)
	defer active.Close()
	for _, e := range es {
		require.NoError(b, active.Append(e))
	}
	require.NoError(b, active.Flush())
	mapped, err := OpenSealed(file, 0, o)
	require.NoError(b, err)
	defer mapped.Close()
	o.Map = Never
	unmapped, err := OpenSealed(file, 0, o)
	require.NoError(b, err)
	defer unmapped.Close()
	heap, err := Build(0, seq(es))
	require.NoError(b, err)
	for _, r := range []struct {
		name string
		x    *Index
	}{{"mapped", mapped}, {"readat", unmapped}, {"heap", heap}, {"active", active}} {
		for _, at := range []string{"anywhere", "end"} {
			b.Run(r.name+"/"+at, func(b *testing.B) {
				b.ReportAllocs()
				off := int64(0)
				for range b.N {
					off = (off + 1234577) % (n * 10)
					if at == "end" {
						off = n*10 - off%2000
					}
					if _, err := r.x.Lookup(off); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkAppend(b *testing.B) {
	o, _ := osOptions(b)
	x, err := Create(file, 0, o)
	require.NoError(b, err)
	defer x.Close()
	b.ReportAllocs()
	i := int64(0)
	for range b.N {
		if i++; x.Full() {
			b.StopTimer()
			require.NoError(b, x.Truncate(0))
			i = 1
			b.StartTimer()
		}
		if err := x.Append(Entry{i, i}); err != nil {
			b.Fatal(err)
		}
	}
}
