package patience

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/replica"
)

// deaf is a store that answers nothing, or whose watches tell nothing new.
type deaf struct {
	*replica.MemStore
	silent, lossy atomic.Bool
	said          [][]replica.Versioned // by round: what watches tell in place of what there is
}

func (d *deaf) wait(ctx context.Context) error {
	if d.silent.Load() {
		<-ctx.Done()
	}
	return ctx.Err()
}

func (d *deaf) Get(ctx context.Context, key string) (replica.Versioned, error) {
	if err := d.wait(ctx); err != nil {
		return replica.Versioned{}, err
	}
	return d.MemStore.Get(ctx, key)
}

func (d *deaf) List(ctx context.Context, prefix string) ([]replica.Versioned, error) {
	if err := d.wait(ctx); err != nil {
		return nil, err
	}
	return d.MemStore.List(ctx, prefix)
}

func (d *deaf) Commit(ctx context.Context, tx replica.Transaction) ([]int64, error) {
	versions, _ := d.MemStore.Commit(ctx, tx)
	return versions, d.wait(ctx)
}

func (d *deaf) Session(ctx context.Context, ttl time.Duration) (replica.Session, error) {
	if err := d.wait(ctx); err != nil {
		return nil, err
	}
	s, err := d.MemStore.Session(ctx, ttl)
	return stuck{s, d}, err
}

func (d *deaf) Watch(ctx context.Context, prefix string) iter.Seq2[replica.Versioned, error] {
	return func(yield func(replica.Versioned, error) bool) {
		if len(d.said) > 0 {
			now := d.said[0]
			d.said = d.said[1:]
			for _, v := range now {
				if !yield(v, nil) {
					return
				}
			}
			<-ctx.Done()
			yield(replica.Versioned{}, ctx.Err())
			return
		}
		current := false
		for v, err := range d.MemStore.Watch(ctx, prefix) {
			if d.silent.Load() && d.wait(ctx) != nil {
				yield(replica.Versioned{}, ctx.Err())
				return
			}
			if current && d.lossy.Load() && err == nil {
				continue
			}
			current = current || v.Key == ""
			if !yield(v, err) {
				return
			}
		}
	}
}

type stuck struct {
	replica.Session
	d *deaf
}

func (s stuck) Commit(ctx context.Context, tx replica.Transaction) ([]int64, error) {
	if err := s.d.wait(ctx); err != nil {
		return nil, err
	}
	return s.Session.Commit(ctx, tx)
}

func (s stuck) Close() error {
	for s.d.silent.Load() {
		time.Sleep(time.Second)
	}
	return s.Session.Close()
}

func TestEachCallEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &deaf{MemStore: replica.NewMemStore()}
		s, ctx := Store(d, 3*time.Second), t.Context()
		one, err := s.Session(ctx, time.Minute)
		require.NoError(t, err)
		_, err = replica.Put(ctx, s, "/a", []byte("1"), 0)
		require.NoError(t, err)
		d.silent.Store(true)
		tx := replica.Transaction{Writes: []replica.Write{{Key: "/a", Value: []byte("2"), IfVersion: 1}}}
		for name, call := range map[string]func(ctx context.Context) error{
			"get":     func(ctx context.Context) error { _, err := s.Get(ctx, "/a"); return err },
			"list":    func(ctx context.Context) error { _, err := s.List(ctx, "/"); return err },
			"commit":  func(ctx context.Context) error { _, err := s.Commit(ctx, tx); return err },
			"session": func(ctx context.Context) error { _, err := s.Session(ctx, time.Minute); return err },
			"of one":  func(ctx context.Context) error { _, err := one.Commit(ctx, tx); return err },
			"watch": func(ctx context.Context) (last error) {
				for _, last = range s.Watch(ctx, "/") {
				}
				return last
			},
		} {
			began := time.Now()
			require.ErrorIs(t, call(ctx), ErrNoAnswer, name)
			require.Equal(t, 3*time.Second, time.Since(began), name)
			short, cancel := context.WithTimeout(ctx, time.Second)
			require.ErrorIs(t, call(short), context.DeadlineExceeded, "%s: the caller's own limit comes first", name)
			cancel()
		}
		require.ErrorIs(t, one.Close(), ErrNoAnswer)
		d.silent.Store(false)
		time.Sleep(2 * time.Second)
		_, err = one.Commit(ctx, tx)
		require.ErrorIs(t, err, replica.ErrSessionLost, "it is closed all the same")
		v, err := s.Get(ctx, "/a")
		require.NoError(t, err)
		require.Equal(t, "2", string(v.Value), "without an answer, and done")
	})
}

// A watch that loses changes is found out. What is there is told again, what is not is told as deleted, and once only where
// everything begins.
func TestWhatAWatchHasLostIsToldLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &deaf{MemStore: replica.NewMemStore()}
		d.lossy.Store(true)
		put := func(key, value string) {
			var b []byte
			if value != "" {
				b = []byte(value)
			}
			_, err := replica.Put(t.Context(), d, key, b, replica.AnyVersion)
			require.NoError(t, err)
		}
		put("/a", "1")
		put("/b", "1")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var mu sync.Mutex
		var list []string
		got := func() []string {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(list)
		}
		done := make(chan error)
		go func() {
			var last error
			for v, err := range Store(d, time.Second).Watch(ctx, "/") {
				if last = err; err == nil {
					mu.Lock()
					list = append(list, v.Key+"="+string(v.Value))
					mu.Unlock()
				}
			}
			done <- last
		}()
		require.Equal(t, []string{"/a=1", "/b=1", "="}, got())
		put("/a", "")
		put("/b", "2")
		put("/c", "1")
		time.Sleep(time.Minute - time.Second)
		require.Len(t, got(), 3)
		time.Sleep(2 * time.Second)
		require.Equal(t, []string{"/b=2", "/c=1", "/a="}, got()[3:])
		d.lossy.Store(false)
		put("/c", "")
		put("/d", "1")
		require.Equal(t, []string{"/c=", "/d=1"}, got()[6:])
		time.Sleep(time.Minute + time.Second)
		require.Equal(t, []string{"/b=2", "/d=1"}, got()[8:])
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
	})
}

// A change that comes late, behind a later one of its key, is not told; in a store that was restored from a backup an older
// value is what there is.
func TestAWatchTellsNoOlderValueBehindALaterOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := func(key string, created, version int64) replica.Versioned {
			return replica.Versioned{Key: key, Value: fmt.Appendf(nil, "%d.%d", created, version), Created: created, Version: version}
		}
		d := &deaf{said: [][]replica.Versioned{
			{v("/a", 3, 2), {}, v("/a", 3, 3), v("/a", 3, 2), v("/a", 3, 3), {Key: "/a"}, v("/a", 3, 4), {}, v("/a", 9, 1), v("/a", 3, 9)},
			{v("/a", 2, 1), {}},
		}}
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		var got []string
		for v, err := range Store(d, time.Second).Watch(ctx, "/") {
			if err != nil {
				require.True(t, errors.Is(err, context.DeadlineExceeded))
				break
			}
			got = append(got, string(v.Value))
		}
		require.Equal(t, []string{"3.2", "", "3.3", "", "9.1", "2.1"}, got)
	})
}
