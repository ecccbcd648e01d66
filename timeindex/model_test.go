package timeindex

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/partlog/partlog/index"
	"github.com/partlog/partlog/vfs"
)

type model []Entry

func (m model) lookup(base, ts int64) Entry {
	found := Entry{NoTimestamp, base}
	for _, e := range m {
		if e.Timestamp <= ts {
			found = e
		}
	}
	return found
}

func TestIndexEqualsTheModelHoweverItIsRead(t *testing.T) {
	disk, err := vfs.OS(t.TempDir())
	require.NoError(t, err)
	rapid.Check(t, func(t *rapid.T) {
		o := index.Options{FS: rapid.SampledFrom([]vfs.FS{disk, vfs.Mem()}).Draw(t, "fs"), Budget: index.NewBudget(1)}
		if rapid.Bool().Draw(t, "unmapped") {
			o.Map = index.Never
		}
		base := rapid.SampledFrom([]int64{0, 1 << 40}).Draw(t, "base")
		_ = o.FS.Remove(file)
		x, err := Create(file, base, o)
		require.NoError(t, err)
		m := model{}
		last := func() Entry {
			if len(m) == 0 {
				return Entry{NoTimestamp, base}
			}
			return m[len(m)-1]
		}
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				for range rapid.SampledFrom([]int{1, 40, 340, 341, 400}).Draw(t, "n") {
					e := Entry{last().Timestamp + rapid.Int64Range(0, 3).Draw(t, "ms"), last().Offset + 1}
					added, err := x.Append(e)
					if x.Full() {
						return
					}
					if err != nil || added != (e.Timestamp > last().Timestamp) {
						t.Fatalf("append %+v after %+v: %v, %v", e, last(), added, err)
					}
					if added {
						m = append(m, e)
					}
				}
			},
			"truncate": func(t *rapid.T) {
				to := rapid.Int64Range(base-1, last().Offset+2).Draw(t, "offset")
				require.NoError(t, x.Truncate(to))
				for i, e := range m {
					if e.Offset >= to {
						m = m[:i:i]
						break
					}
				}
			},
			"flush": func(t *rapid.T) { require.NoError(t, x.Flush()) },
			"seal":  func(t *rapid.T) { require.NoError(t, x.Seal()) },
			"reopen": func(t *rapid.T) {
				require.NoError(t, x.Close())
				x, err = rapid.SampledFrom([]func(string, int64, index.Options) (*Index, error){Open, OpenSealed}).Draw(t, "how")(file, base, o)
				require.NoError(t, err)
			},
			"": func(t *rapid.T) {
				require.Equal(t, len(m), x.Len())
				got, _ := x.Last()
				require.Equal(t, last(), got)
				for range 8 {
					ts := rapid.Int64Range(-2, last().Timestamp+2).Draw(t, "timestamp")
					got, err := x.Lookup(ts)
					require.NoError(t, err)
					require.Equal(t, m.lookup(base, ts), got, "timestamp %d", ts)
				}
			},
		})
		require.NoError(t, x.Check(last().Offset))
		require.NoError(t, x.Close())
	})
}

func FuzzAnyBytesOpenCheckAndAnswerAlikeInEveryReader(f *testing.F) {
	f.Add([]byte{}, int64(0))
	f.Add(append(bytesOf(0, steps(0, 800)...), make([]byte, 100)...), int64(5000))
	f.Add(make([]byte, 9000), int64(0))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0}, int64(-1))
	f.Fuzz(func(t *testing.T, b []byte, ts int64) {
		o := memOptions()
		put(t, o, b)
		unmapped, readOnly := o, o
		unmapped.Map, readOnly.ReadOnly = index.Never, true
		var first string
		for i, open := range []func() (*Index, error){
			func() (*Index, error) { return OpenSealed(file, 3, o) },
			func() (*Index, error) { return OpenSealed(file, 3, unmapped) },
			func() (*Index, error) { return Open(file, 3, readOnly) },
			func() (*Index, error) { return Open(file, 3, o) },
		} {
			x, err := open()
			require.NoError(t, err)
			e, err := x.Lookup(ts)
			require.NoError(t, err)
			bad := x.Check(1 << 40)
			if bad != nil {
				require.ErrorIs(t, bad, index.ErrDamaged)
			}
			last, _ := x.Last()
			answer := describe(e, last, x.Len(), bad)
			if i == 0 {
				first = answer
			}
			require.Equal(t, first, answer)
			for _, err := range x.Entries() {
				if err != nil {
					t.Fatal(err)
				}
			}
			if i == 3 {
				require.NoError(t, x.Truncate(ts))
			}
			require.NoError(t, x.Close())
		}
	})
}

func describe(a ...any) string { return fmt.Sprint(a...) }
