package replica

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestAPutHoldsItsConditionOrWritesNothing(t *testing.T) {
	ctx, s := t.Context(), NewMemStore()
	v, err := s.Get(ctx, "/a")
	require.NoError(t, err)
	require.Equal(t, Versioned{Key: "/a"}, v)

	one, err := Put(ctx, s, "/a", []byte("x"), 0)
	require.NoError(t, err)
	require.EqualValues(t, 1, one)
	_, err = Put(ctx, s, "/a", []byte("y"), 0)
	require.ErrorIs(t, err, ErrConflict)
	require.EqualError(t, err, "write of /a: version is 1, not 0")
	two, err := Put(ctx, s, "/a", []byte("y"), one)
	require.NoError(t, err)
	require.EqualValues(t, 2, two)
	_, err = Put(ctx, s, "/a", []byte("z"), one)
	require.ErrorIs(t, err, ErrConflict)
	_, err = Put(ctx, s, "/a", nil, two)
	require.NoError(t, err)
	_, err = Put(ctx, s, "/a", []byte{}, AnyVersion)
	require.NoError(t, err)
	v, err = s.Get(ctx, "/a")
	require.NoError(t, err)
	require.EqualValues(t, 1, v.Version, "a key made anew begins again")
	require.EqualValues(t, 4, v.Created)
	require.NotNil(t, v.Value, "empty is not absent")
}

// The writer's own key is as it expects, and yet the guard, changed by a successor, keeps it from writing.
func TestAGuardIsPartOfTheTransaction(t *testing.T) {
	ctx, s := t.Context(), NewMemStore()
	term, err := Put(ctx, s, "/epoch", []byte("1"), 0)
	require.NoError(t, err)
	old := Guard{"/epoch", term}
	_, err = Put(ctx, s, "/state", []byte("mine"), 0, old)
	require.NoError(t, err)
	term, err = Put(ctx, s, "/epoch", []byte("2"), term)
	require.NoError(t, err)

	_, err = s.Commit(ctx, Transaction{Guards: []Guard{old}, Writes: []Write{
		{Key: "/other", Value: []byte("late")}, {Key: "/state", Value: []byte("late"), IfVersion: 1},
	}})
	var conflict *ConflictError
	require.ErrorAs(t, err, &conflict)
	require.Equal(t, ConflictError{Key: "/epoch", Want: 1, Have: 2, Guard: true}, *conflict)
	all, err := s.List(ctx, "/")
	require.NoError(t, err)
	require.Len(t, all, 2)
	_, err = Put(ctx, s, "/state", []byte("theirs"), 1, Guard{"/epoch", term})
	require.NoError(t, err)
}

func TestEphemeralKeysGoWithTheirSession(t *testing.T) {
	ctx, s := t.Context(), NewMemStore()
	_, err := s.Commit(ctx, Transaction{Writes: []Write{{Key: "/e", Value: []byte("x"), Ephemeral: true}}})
	require.ErrorIs(t, err, ErrNoSession)
	session, err := s.Session(ctx, time.Second)
	require.NoError(t, err)
	_, err = session.Commit(ctx, Transaction{Writes: []Write{
		{Key: "/e", Value: []byte("x"), Ephemeral: true}, {Key: "/stays", Value: []byte("x")},
	}})
	require.NoError(t, err)
	s.Expire(session)
	<-session.Done()
	require.NoError(t, session.Close())
	all, err := s.List(ctx, "/")
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Equal(t, "/stays", all[0].Key)
	_, err = session.Commit(ctx, Transaction{Writes: []Write{{Key: "/late", Value: []byte("x")}}})
	require.ErrorIs(t, err, ErrSessionLost)
}

func TestAWatchGivesWhatIsThereAndThenWhatChanges(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := NewMemStore()
	put := func(key, value string) {
		var b []byte
		if value != "" {
			b = []byte(value)
		}
		_, err := Put(ctx, s, key, b, AnyVersion)
		require.NoError(t, err)
	}
	put("/w/b", "1")
	put("/w/a", "1")
	put("/other", "1")
	var got []string
	for v, err := range s.Watch(ctx, "/w/") {
		if err != nil {
			require.ErrorIs(t, err, context.Canceled)
			break
		}
		got = append(got, v.Key+"="+string(v.Value))
		switch len(got) {
		case 3:
			put("/w/a", "2")
			put("/w/a", "3")
			put("/other", "2")
			put("/w/b", "")
		case 5:
			cancel()
		}
	}
	require.Equal(t, []string{"/w/a=1", "/w/b=1", "=", "/w/a=3", "/w/b="}, got)
	require.Empty(t, s.watches)
}

func TestWhatNoStoreTakesIsRefused(t *testing.T) {
	many := make([]Write, MaxWrites+1)
	for i := range many {
		many[i] = Write{Key: fmt.Sprint("/", i), Value: []byte("x")}
	}
	for _, c := range []struct {
		what   string
		writes []Write
		large  bool
		say    string
	}{
		{"too many writes", many, true, "transaction refused: 101 writes and guards, more than 100"},
		{"too many bytes", []Write{{Key: "/a", Value: make([]byte, MaxTxBytes)}}, true, "transaction refused: 524290 bytes, more than 524288"},
		{"no key", []Write{{Value: []byte("x")}}, false, "transaction refused: a write without a key"},
		{"a key twice", []Write{{Key: "/a"}, {Key: "/a"}}, false, "transaction refused: two writes of /a"},
		{"a senseless condition", []Write{{Key: "/a", IfVersion: -2}}, false, "transaction refused: a condition of version -2 on /a"},
	} {
		_, err := NewMemStore().Commit(t.Context(), Transaction{Writes: c.writes})
		require.EqualError(t, err, c.say, c.what)
		require.Equal(t, c.large, errors.Is(err, ErrTooLarge), c.what)
	}
}

// Counting from many goroutines with put-if-version loses no count, and a watch sees the last one.
func TestConcurrentPutsAreOneAfterTheOther(t *testing.T) {
	ctx, s := t.Context(), NewMemStore()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for done := 0; done < 50; {
				v, _ := s.Get(ctx, "/n")
				if _, err := Put(ctx, s, "/n", append(v.Value, 'x'), v.Version); err == nil {
					done++
				}
			}
		})
	}
	for v, err := range s.Watch(ctx, "/n") {
		require.NoError(t, err)
		if len(v.Value) == 400 {
			require.EqualValues(t, 400, v.Version)
			break
		}
	}
	all.Wait()
}

// Against a plain map that checks conditions itself.
func TestTransactionsAreWholeOrNothing(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		ctx, s := context.Background(), NewMemStore()
		type entry struct {
			value   string
			version int64
		}
		model := map[string]entry{}
		key := rapid.SampledFrom([]string{"/a", "/b", "/c"})
		version := rapid.Int64Range(-1, 3)
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			var tx Transaction
			ok := true
			next := map[string]entry{}
			for k, e := range model {
				next[k] = e
			}
			for range rapid.IntRange(0, 1).Draw(rt, "guards") {
				g := Guard{key.Draw(rt, "guard"), max(version.Draw(rt, "at"), 0)}
				tx.Guards = append(tx.Guards, g)
				ok = ok && model[g.Key].version == g.Version
			}
			for _, k := range rapid.SliceOfNDistinct(key, 1, 3, strings.ToUpper).Draw(rt, "keys") {
				w := Write{Key: k, IfVersion: version.Draw(rt, "if")}
				if rapid.Bool().Draw(rt, "put") {
					w.Value = []byte(rapid.StringN(0, 3, 3).Draw(rt, "value"))
					next[k] = entry{string(w.Value), model[k].version + 1}
				} else {
					delete(next, k)
				}
				tx.Writes = append(tx.Writes, w)
				ok = ok && (w.IfVersion == AnyVersion || model[k].version == w.IfVersion)
			}
			versions, err := s.Commit(ctx, tx)
			if ok != (err == nil) {
				rt.Fatalf("%+v: %v", tx, err)
			}
			if ok {
				model = next
				for i, w := range tx.Writes {
					if versions[i] != model[w.Key].version {
						rt.Fatalf("version %d of %s", versions[i], w.Key)
					}
				}
			} else if !errors.Is(err, ErrConflict) {
				rt.Fatal(err)
			}
			all, _ := s.List(ctx, "/")
			if len(all) != len(model) {
				rt.Fatalf("%d keys, not %d", len(all), len(model))
			}
			for _, v := range all {
				if model[v.Key] != (entry{string(v.Value), v.Version}) {
					rt.Fatalf("%+v, not %+v", v, model[v.Key])
				}
			}
		}
	})
}

// A store that is restored is what it was, and everybody who leans on it notices.
func TestARestoredMemStoreIsWhatItWas(t *testing.T) {
	m := NewMemStore()
	put := func(key, value string) {
		_, err := Put(t.Context(), m, key, []byte(value), AnyVersion)
		require.NoError(t, err)
	}
	put("/a", "1")
	s, err := m.Session(t.Context(), time.Second)
	require.NoError(t, err)
	_, err = s.Commit(t.Context(), Transaction{Writes: []Write{{Key: "/mine", Value: []byte("x"), Ephemeral: true}}})
	require.NoError(t, err)
	backup := m.Snapshot()
	put("/a", "2")
	put("/b", "1")
	var last error
	for v, err := range m.Watch(t.Context(), "/") {
		if last = err; err == nil && v.Key == "" {
			m.Restore(backup)
		}
	}
	require.ErrorIs(t, last, ErrRestored)
	<-s.Done()
	require.NoError(t, s.Close())
	all, err := m.List(t.Context(), "/")
	require.NoError(t, err)
	require.Equal(t, []Versioned{{Key: "/a", Value: []byte("1"), Version: 1, Created: 1}}, all)
	put("/c", "1")
	v, err := m.Get(t.Context(), "/c")
	require.NoError(t, err)
	require.EqualValues(t, 3, v.Created, "given out a second time")
	put("/a", "3")
	m.Restore(backup)
	v, err = m.Get(t.Context(), "/a")
	require.NoError(t, err)
	require.Equal(t, "1", string(v.Value), "a backup can be used again")
}
