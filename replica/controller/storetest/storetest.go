// Package storetest is what every replica.Store must do, as tests: for who binds one to ZooKeeper, etcd or anything else.
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func() replica.Store { return bind(t, emptyNamespace(t)) })
//	}
//
// Where a Store promises less than one in memory could, so do the tests: a watch may leave out intermediate values and tells
// changes of several keys in any order, List is no snapshot, versions need not begin at 1 or grow by 1.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/partlog/partlog/replica"
)

// patience is how long something may take that must happen.
const patience = 10 * time.Second

// Expirer is what a Store may be besides, so that the loss of sessions can be tested: Expire ends a session as if its holder
// had not been heard of for too long. replica.MemStore is one.
type Expirer interface{ Expire(replica.Session) }

// check is one test over an empty store.
type check struct {
	name string
	run  func(t testing.TB, s replica.Store)
}

// Run tests a Store. open gives an empty one for each test, and is called often; what it needs to be closed is the caller's to
// see to. It takes three to five seconds beside what the store does, and ten for each thing that should happen and does not.
func Run(t *testing.T, open func() replica.Store) {
	for _, c := range checks() {
		t.Run(c.name, func(t *testing.T) { c.run(t, open()) })
	}
}

func checks() []check {
	var all []check
	for _, part := range [][]check{versionChecks, commitChecks, listChecks, watchChecks, sessionChecks, ruleChecks} {
		all = append(all, part...)
	}
	return all
}

// limit is patience, but for a test that is to fail.
func limit(t testing.TB) time.Duration {
	if hasty, ok := t.(interface{ limit() time.Duration }); ok {
		return hasty.limit()
	}
	return patience
}

// within is a context for what must come to an end.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), limit(t))
	t.Cleanup(cancel)
	return ctx
}

// put writes one key whatever it holds, and returns its version.
func put(t testing.TB, s replica.Store, key, value string) int64 {
	t.Helper()
	version, err := replica.Put(within(t), s, key, []byte(value), replica.AnyVersion)
	if err != nil {
		t.Fatalf("put %s: %v", key, err)
	}
	return version
}

func remove(t testing.TB, s replica.Store, key string) {
	t.Helper()
	if _, err := replica.Put(within(t), s, key, nil, replica.AnyVersion); err != nil {
		t.Fatalf("delete %s: %v", key, err)
	}
}

func get(t testing.TB, s replica.Store, key string) replica.Versioned {
	t.Helper()
	v, err := s.Get(within(t), key)
	if err != nil {
		t.Fatalf("get %s: %v", key, err)
	}
	return v
}

// holds checks the value of a key; "-" is none.
func holds(t testing.TB, s replica.Store, key, want string) {
	t.Helper()
	if got := shown(get(t, s, key)); got != want {
		t.Fatalf("%s holds %q, not %q", key, got, want)
	}
}

func shown(v replica.Versioned) string {
	if v.Value == nil {
		return "-"
	}
	return string(v.Value)
}

// conflict checks that a transaction was refused for this condition.
func conflict(t testing.TB, what string, err error, want replica.ConflictError) {
	t.Helper()
	got := (*replica.ConflictError)(nil)
	switch {
	case !errors.Is(err, replica.ErrConflict):
		t.Fatalf("%s: %v, not ErrConflict", what, err)
	case !errors.As(err, &got):
		t.Fatalf("%s: %v is no *ConflictError", what, err)
	case got.Key != want.Key || got.Guard != want.Guard:
		t.Fatalf("%s: the conflict is at %s (guard: %v), not at %s (guard: %v)", what, got.Key, got.Guard, want.Key, want.Guard)
	}
}

// eventually waits for something to be so.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit(t)); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it does not happen: %s", what)
		}
	}
}

func keys(list []replica.Versioned) string {
	names := []string{}
	for _, v := range list {
		names = append(names, v.Key)
	}
	return fmt.Sprint(names)
}
