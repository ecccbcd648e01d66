package storetest

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/partlog/partlog/replica"
)

func TestMemStoreIsAStore(t *testing.T) {
	Run(t, func() replica.Store { return replica.NewMemStore() })
}

// record is a test whose failure is not this test's.
type record struct {
	testing.TB
	failed   bool
	what     string
	cleanups []func()
}

func (r *record) Helper()           {}
func (r *record) Cleanup(do func()) { r.cleanups = append(r.cleanups, do) }
func (r *record) Failed() bool      { return r.failed }
func (r *record) Error(args ...any) { r.fail(fmt.Sprint(args...)) }
func (r *record) Errorf(format string, args ...any) {
	r.fail(fmt.Sprintf(format, args...))
}
func (r *record) Fatal(args ...any) {
	r.fail(fmt.Sprint(args...))
	runtime.Goexit()
}
func (r *record) Fatalf(format string, args ...any) {
	r.fail(fmt.Sprintf(format, args...))
	runtime.Goexit()
}
func (r *record) FailNow()             { runtime.Goexit() }
func (r *record) Skip(args ...any)     { runtime.Goexit() }
func (r *record) limit() time.Duration { return 500 * time.Millisecond }
func (r *record) fail(what string) {
	if !r.failed {
		r.failed, r.what = true, what
	}
}

// try runs one check and says how it failed; "" if it did not.
func try(c check, s replica.Store) string {
	r := &record{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.run(r, s)
	}()
	<-done
	for _, do := range slices.Backward(r.cleanups) {
		do()
	}
	return r.what
}

// A store that breaks one promise each. Every one must be found out by the check named.
func TestABrokenStoreIsFoundOut(t *testing.T) {
	for _, b := range []struct {
		breaks, found string
		store         func() replica.Store
	}{
		{"guards are checked before the write, not with it", "a guard is checked in the moment of the write",
			func() replica.Store { return &guardsFirst{replica.NewMemStore()} }},
		{"conditions are not looked at", "a write is refused whose condition does not hold",
			func() replica.Store { return &anyVersion{replica.NewMemStore()} }},
		{"conditions are not looked at", "counting with conditions loses no count",
			func() replica.Store { return &anyVersion{replica.NewMemStore()} }},
		{"writes are done one by one", "a transaction is whole or not at all",
			func() replica.Store { return &oneByOne{replica.NewMemStore()} }},
		{"a transaction without writes is not sent", "a transaction without writes tells whether its guards hold",
			func() replica.Store { return &idle{replica.NewMemStore()} }},
		{"a transaction without writes is not sent, by sessions", "a transaction without writes tells whether its guards hold",
			func() replica.Store { return &idleSessions{replica.NewMemStore()} }},
		{"a transaction without writes is refused", "a transaction without writes tells whether its guards hold",
			func() replica.Store { return &something{replica.NewMemStore()} }},
		{"a watch begins with what is there, and misses what happens meanwhile", "what happens while a watch is busy comes afterwards",
			func() replica.Store { return &listThenWatch{replica.NewMemStore()} }},
		{"a watch drops what comes too fast", "the last value of each key always comes, and none goes back",
			func() replica.Store { return &dropping{replica.NewMemStore()} }},
		{"a watch does not end with its context", "a watch ends with its context, and says so last",
			func() replica.Store { return &endless{replica.NewMemStore()} }},
		{"the keys of a session outlive it", "ephemeral keys go when their session is closed, and nothing else",
			func() replica.Store { return &lasting{replica.NewMemStore()} }},
		{"a closed session still writes", "ephemeral keys go when their session is closed, and nothing else",
			func() replica.Store { return &undead{replica.NewMemStore()} }},
		{"nobody keeps a session alive", "a session whose holder is there outlives its ttl",
			func() replica.Store { return &forgotten{replica.NewMemStore()} }},
		{"List goes down a tree", "List is by prefix and ascending",
			func() replica.Store { return &tree{replica.NewMemStore()} }},
		{"an empty value is none", "an empty value is not none",
			func() replica.Store { return &noEmpty{replica.NewMemStore()} }},
		{"a context that has ended is not noticed", "a context that has ended does nothing",
			func() replica.Store { return &deaf{replica.NewMemStore()} }},
	} {
		t.Run(b.breaks, func(t *testing.T) {
			t.Parallel()
			i := slices.IndexFunc(checks(), func(c check) bool { return c.name == b.found })
			if i < 0 {
				t.Fatalf("there is no check %q", b.found)
			}
			what := ""
			for n := 0; n < 5 && what == ""; n++ { // some are broken only when two meet, which a busy machine may put off
				what = try(checks()[i], b.store())
			}
			if what == "" {
				t.Fatal("nobody noticed")
			}
			t.Log(what)
		})
	}
}

type guardsFirst struct{ *replica.MemStore }

func (g *guardsFirst) Commit(ctx context.Context, tx replica.Transaction) ([]int64, error) {
	for _, guard := range tx.Guards {
		v, err := g.Get(ctx, guard.Key)
		if err != nil {
			return nil, err
		}
		if v.Version != guard.Version {
			return nil, &replica.ConflictError{Key: guard.Key, Want: guard.Version, Have: v.Version, Guard: true}
		}
	}
	time.Sleep(time.Millisecond)
	tx.Guards = nil
	return g.MemStore.Commit(ctx, tx)
}

type anyVersion struct{ *replica.MemStore }

func (a *anyVersion) Commit(ctx context.Context, tx replica.Transaction) ([]int64, error) {
	tx.Writes = slices.Clone(tx.Writes)
	for i := range tx.Writes {
		tx.Writes[i].IfVersion = replica.AnyVersion
	}
	time.Sleep(50 * time.Microsecond) // others read meanwhile
	return a.MemStore.Commit(ctx, tx)
}

// idle does nothing where there is nothing to write.
type idle struct{ *replica.MemStore }

func (i *idle) Commit(ctx context.Context, tx replica.Transaction) ([]int64, error) {
	if len(tx.Writes) == 0 {
		return nil, nil
	}
	return i.MemStore.Commit(ctx, tx)
}

type idleSessions struct{ *replica.MemStore }

func (i *idleSessions) Session(ctx context.Context, ttl time.Duration) (replica.Session, error) {
	s, err := i.MemStore.Session(ctx, ttl)
	return &idleSession{s}, err
}

type idleSession struct{ replica.Session }

func (i *idleSession) Commit(ctx context.Context, tx replica.Transaction) ([]int64, error) {
	if len(tx.Writes) == 0 {
		return nil, nil
	}
	return i.Session.Commit(ctx, tx)
}

// something wants something to do.
type something struct{ *replica.MemStore }

func (s *something) Commit(ctx context.Context, tx replica.Transaction) ([]int64, error) {
	if len(tx.Writes) == 0 {
		return nil, &replica.LimitError{Reason: "nothing to write"}
	}
	return s.MemStore.Commit(ctx, tx)
}

type oneByOne struct{ *replica.MemStore }

func (o *oneByOne) Commit(ctx context.Context, tx replica.Transaction) (versions []int64, err error) {
	for _, w := range tx.Writes {
		one, err := o.MemStore.Commit(ctx, replica.Transaction{Guards: tx.Guards, Writes: []replica.Write{w}})
		if err != nil {
			return nil, err
		}
		versions = append(versions, one...)
	}
	return versions, nil
}

type listThenWatch struct{ *replica.MemStore }

func (l *listThenWatch) Watch(ctx context.Context, prefix string) iter.Seq2[replica.Versioned, error] {
	return func(yield func(replica.Versioned, error) bool) {
		there, _ := l.List(ctx, prefix)
		for _, v := range there {
			if !yield(v, nil) {
				return
			}
		}
		begun := false
		for v, err := range l.MemStore.Watch(ctx, prefix) {
			if begun = begun || v.Key == "" || err != nil; begun && !yield(v, err) {
				return
			}
		}
	}
}

type dropping struct{ *replica.MemStore }

func (d *dropping) Watch(ctx context.Context, prefix string) iter.Seq2[replica.Versioned, error] {
	return func(yield func(replica.Versioned, error) bool) {
		n := 0
		for v, err := range d.MemStore.Watch(ctx, prefix) {
			if n++; n%3 == 2 && err == nil && v.Key != "" {
				continue
			}
			if !yield(v, err) {
				return
			}
		}
	}
}

type endless struct{ *replica.MemStore }

func (e *endless) Watch(ctx context.Context, prefix string) iter.Seq2[replica.Versioned, error] {
	return func(yield func(replica.Versioned, error) bool) {
		for v, err := range e.MemStore.Watch(ctx, prefix) {
			if err != nil || !yield(v, nil) {
				return
			}
		}
	}
}

type lasting struct{ *replica.MemStore }

func (l *lasting) Session(ctx context.Context, ttl time.Duration) (replica.Session, error) {
	s, err := l.MemStore.Session(ctx, ttl)
	return &lastingSession{s, l.MemStore}, err
}

type lastingSession struct {
	replica.Session
	store *replica.MemStore
}

func (l *lastingSession) Commit(ctx context.Context, tx replica.Transaction) ([]int64, error) {
	select {
	case <-l.Done():
		return nil, replica.ErrSessionLost
	default:
	}
	tx.Writes = slices.Clone(tx.Writes)
	for i := range tx.Writes {
		tx.Writes[i].Ephemeral = false
	}
	return l.store.Commit(ctx, tx)
}

type undead struct{ *replica.MemStore }

func (u *undead) Session(ctx context.Context, ttl time.Duration) (replica.Session, error) {
	s, err := u.MemStore.Session(ctx, ttl)
	return &undeadSession{s, u.MemStore}, err
}

type undeadSession struct {
	replica.Session
	store *replica.MemStore
}

func (u *undeadSession) Commit(ctx context.Context, tx replica.Transaction) ([]int64, error) {
	for _, w := range tx.Writes {
		if w.Ephemeral {
			return u.Session.Commit(ctx, tx)
		}
	}
	return u.store.Commit(ctx, tx)
}

type tree struct{ *replica.MemStore }

func (t *tree) List(ctx context.Context, prefix string) ([]replica.Versioned, error) {
	list, err := t.MemStore.List(ctx, prefix)
	slices.SortFunc(list, func(a, b replica.Versioned) int {
		return slices.Compare(parts(a.Key), parts(b.Key))
	})
	return list, err
}

// parts compares "/a/b" before "/a-b", as walking down a tree does.
func parts(key string) []byte {
	b := []byte(key)
	for i := range b {
		if b[i] == '/' {
			b[i] = 1
		}
	}
	return b
}

type noEmpty struct{ *replica.MemStore }

func (n *noEmpty) Commit(ctx context.Context, tx replica.Transaction) ([]int64, error) {
	tx.Writes = slices.Clone(tx.Writes)
	for i, w := range tx.Writes {
		if len(w.Value) == 0 {
			tx.Writes[i].Value = nil
		}
	}
	return n.MemStore.Commit(ctx, tx)
}

type deaf struct{ *replica.MemStore }

func (d *deaf) Commit(_ context.Context, tx replica.Transaction) ([]int64, error) {
	return d.MemStore.Commit(context.Background(), tx)
}

// forgotten ends sessions after their ttl, whether or not their holder is there.
type forgotten struct{ *replica.MemStore }

func (f *forgotten) Session(ctx context.Context, ttl time.Duration) (replica.Session, error) {
	one, err := f.MemStore.Session(ctx, ttl)
	if err == nil {
		time.AfterFunc(ttl, func() { f.Expire(one) })
	}
	return one, err
}
