package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/partlog/partlog/replica"
)

var versionChecks = []check{
	{"a key that is not there has version 0 and no error", func(t testing.TB, s replica.Store) {
		if v := get(t, s, "/none"); v.Version != 0 || v.Value != nil {
			t.Fatalf("%+v", v)
		}
	}},
	{"versions grow with every write, and are those that Get shows", func(t testing.TB, s replica.Store) {
		last := int64(0)
		for i := range 5 {
			version := put(t, s, "/k", fmt.Sprint(i))
			if version <= last {
				t.Fatalf("version %d after %d", version, last)
			}
			last = version
			if v := get(t, s, "/k"); v.Version != version || v.Key != "/k" || string(v.Value) != fmt.Sprint(i) {
				t.Fatalf("%+v after version %d was written", v, version)
			}
		}
		remove(t, s, "/k")
		if v := get(t, s, "/k"); v.Version != 0 || v.Value != nil {
			t.Fatalf("deleted, and yet %+v", v)
		}
		if version := put(t, s, "/k", "again"); version <= 0 {
			t.Fatalf("version %d of a key made anew", version)
		}
	}},
	{"when a key was created orders all keys, and stays", func(t testing.TB, s replica.Store) {
		last := int64(-1)
		for _, key := range []string{"/b", "/a", "/c", "/a"} {
			remove(t, s, key)
			put(t, s, key, "x")
			made := get(t, s, key).Created
			if made <= last {
				t.Fatalf("%s was created at %d, after %d", key, made, last)
			}
			last = made
			put(t, s, key, "y")
			if now := get(t, s, key).Created; now != made {
				t.Fatalf("%s was created at %d, and after a write at %d", key, made, now)
			}
		}
	}},
	{"an empty value is not none", func(t testing.TB, s replica.Store) {
		put(t, s, "/empty", "")
		if v := get(t, s, "/empty"); v.Version <= 0 || v.Value == nil || len(v.Value) != 0 {
			t.Fatalf("%+v", v)
		}
		list, err := s.List(within(t), "/")
		if err != nil || len(list) != 1 || list[0].Value == nil {
			t.Fatalf("%+v, %v", list, err)
		}
	}},
	{"values are copies", func(t testing.TB, s replica.Store) {
		b := []byte("abc")
		if _, err := replica.Put(within(t), s, "/k", b, 0); err != nil {
			t.Fatal(err)
		}
		b[0] = 'X'
		v := get(t, s, "/k")
		if v.Value[0] == 'X' {
			t.Fatal("the store holds the writer's slice")
		}
		v.Value[0] = 'Y'
		holds(t, s, "/k", "abc")
	}},
	{"a value is kept byte for byte", func(t testing.TB, s replica.Store) {
		all := make([]byte, 4096)
		for i := range all {
			all[i] = byte(i)
		}
		put(t, s, "/bytes", string(all))
		if !bytes.Equal(get(t, s, "/bytes").Value, all) {
			t.Fatal("it is another")
		}
	}},
}

var commitChecks = []check{
	{"a write is refused whose condition does not hold", func(t testing.TB, s replica.Store) {
		ctx := within(t)
		one, err := replica.Put(ctx, s, "/k", []byte("1"), 0)
		if err != nil {
			t.Fatal(err)
		}
		at := replica.ConflictError{Key: "/k"}
		_, err = replica.Put(ctx, s, "/k", []byte("x"), 0)
		conflict(t, "create what is there", err, at)
		_, err = replica.Put(ctx, s, "/k", []byte("x"), one+1)
		conflict(t, "a version to come", err, at)
		two, err := replica.Put(ctx, s, "/k", []byte("2"), one)
		if err != nil {
			t.Fatal(err)
		}
		_, err = replica.Put(ctx, s, "/k", []byte("x"), one)
		conflict(t, "a version that is past", err, at)
		_, err = replica.Put(ctx, s, "/k", nil, one)
		conflict(t, "delete a version that is past", err, at)
		_, err = replica.Put(ctx, s, "/none", []byte("x"), one)
		conflict(t, "a version of what is not there", err, replica.ConflictError{Key: "/none"})
		holds(t, s, "/k", "2")
		holds(t, s, "/none", "-")
		if version, err := replica.Put(ctx, s, "/k", nil, two); err != nil || version != 0 {
			t.Fatalf("delete: version %d, %v", version, err)
		}
		if version, err := replica.Put(ctx, s, "/k", nil, replica.AnyVersion); err != nil || version != 0 {
			t.Fatalf("delete what is not there, whatever is: version %d, %v", version, err)
		}
	}},
	{"a transaction is whole or not at all", func(t testing.TB, s replica.Store) {
		ctx := within(t)
		put(t, s, "/b", "old")
		_, err := s.Commit(ctx, replica.Transaction{Writes: []replica.Write{
			{Key: "/a", Value: []byte("new")}, {Key: "/b", Value: []byte("new")}, {Key: "/c", Value: []byte("new"), IfVersion: replica.AnyVersion}}})
		conflict(t, "one of three", err, replica.ConflictError{Key: "/b"})
		holds(t, s, "/a", "-")
		holds(t, s, "/b", "old")
		holds(t, s, "/c", "-")
		versions, err := s.Commit(ctx, replica.Transaction{Writes: []replica.Write{
			{Key: "/c", Value: []byte("new")}, {Key: "/b", IfVersion: replica.AnyVersion}, {Key: "/a", Value: []byte("new")}}})
		if err != nil || len(versions) != 3 || versions[0] != get(t, s, "/c").Version || versions[1] != 0 || versions[2] != get(t, s, "/a").Version {
			t.Fatalf("versions %v, %v", versions, err)
		}
		holds(t, s, "/b", "-")
	}},
	{"a guard must hold though nothing is written there", func(t testing.TB, s replica.Store) {
		ctx := within(t)
		term := put(t, s, "/epoch", "1")
		write := func(g ...replica.Guard) error {
			_, err := s.Commit(ctx, replica.Transaction{Guards: g, Writes: []replica.Write{{Key: "/state", Value: []byte("x"), IfVersion: replica.AnyVersion}}})
			return err
		}
		if err := write(replica.Guard{Key: "/epoch", Version: term}, replica.Guard{Key: "/none"}); err != nil {
			t.Fatal(err)
		}
		if now := get(t, s, "/epoch").Version; now != term {
			t.Fatalf("a guard changed the version from %d to %d", term, now)
		}
		put(t, s, "/epoch", "2")
		put(t, s, "/state", "theirs")
		conflict(t, "a guard that is past", write(replica.Guard{Key: "/epoch", Version: term}), replica.ConflictError{Key: "/epoch", Guard: true})
		conflict(t, "a guard of what is there", write(replica.Guard{Key: "/epoch"}), replica.ConflictError{Key: "/epoch", Guard: true})
		conflict(t, "a guard of what is not there", write(replica.Guard{Key: "/none", Version: 1}), replica.ConflictError{Key: "/none", Guard: true})
		holds(t, s, "/state", "theirs")
	}},
	{"a transaction without writes tells whether its guards hold", func(t testing.TB, s replica.Store) {
		ctx := within(t)
		one := session(t, s)
		term := put(t, s, "/epoch", "1")
		for by, commit := range map[string]func(context.Context, replica.Transaction) ([]int64, error){"the store": s.Commit, "a session": one.Commit} {
			ask := func(g ...replica.Guard) error {
				versions, err := commit(ctx, replica.Transaction{Guards: g})
				if err == nil && len(versions) != 0 {
					t.Fatalf("%s: versions %v of no writes", by, versions)
				}
				return err
			}
			if err := ask(replica.Guard{Key: "/epoch", Version: term}, replica.Guard{Key: "/none"}); err != nil {
				t.Fatalf("%s: guards that hold: %v", by, err)
			}
			if now := get(t, s, "/epoch"); now.Version != term || shown(now) != "1" {
				t.Fatalf("%s: a guard changed the version from %d to %d, the value is %q", by, term, now.Version, now.Value)
			}
			holds(t, s, "/none", "-")
			last := term
			term = put(t, s, "/epoch", "1")
			at := replica.ConflictError{Key: "/epoch", Guard: true}
			conflict(t, by+": a guard that is past", ask(replica.Guard{Key: "/epoch", Version: last}), at)
			conflict(t, by+": a guard of what is there", ask(replica.Guard{Key: "/none"}, replica.Guard{Key: "/epoch"}), at)
			conflict(t, by+": a guard of what is not there", ask(replica.Guard{Key: "/none", Version: 1}), replica.ConflictError{Key: "/none", Guard: true})
		}
		if err := one.Close(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "Done is closed", func() bool { return over(one) })
		if _, err := one.Commit(ctx, replica.Transaction{Guards: []replica.Guard{{Key: "/epoch", Version: term}}}); !errors.Is(err, replica.ErrSessionLost) {
			t.Fatalf("a session that is over, with a guard that holds: %v", err)
		}
	}},
	{"a guard is checked in the moment of the write", guardsInside},
	{"counting with conditions loses no count", counting},
	{"what no store takes is refused", func(t testing.TB, s replica.Store) {
		many := make([]replica.Write, replica.MaxWrites+1)
		for i := range many {
			many[i] = replica.Write{Key: fmt.Sprintf("/many/%03d", i), Value: []byte("x")}
		}
		for what, writes := range map[string][]replica.Write{"too many": many, "too large": {{Key: "/a", Value: make([]byte, replica.MaxTxBytes)}}} {
			if _, err := s.Commit(within(t), replica.Transaction{Writes: writes}); !errors.Is(err, replica.ErrTooLarge) {
				t.Fatalf("%s: %v", what, err)
			}
		}
		for what, writes := range map[string][]replica.Write{"no key": {{Value: []byte("x")}}, "a key twice": {{Key: "/a", Value: []byte("x")}, {Key: "/a", Value: []byte("y")}}} {
			if _, err := s.Commit(within(t), replica.Transaction{Writes: writes}); !errors.As(err, new(*replica.LimitError)) {
				t.Fatalf("%s: %v", what, err)
			}
		}
		if _, err := s.Commit(within(t), replica.Transaction{Writes: many[1:]}); err != nil {
			t.Fatalf("as many as may be: %v", err)
		}
		put(t, s, "/large", string(make([]byte, replica.MaxTxBytes-len("/large"))))
	}},
	{"a context that has ended does nothing", func(t testing.TB, s replica.Store) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_, errPut := replica.Put(ctx, s, "/k", []byte("x"), 0)
		_, errGet := s.Get(ctx, "/k")
		_, errList := s.List(ctx, "/")
		_, errSession := s.Session(ctx, patience)
		for what, err := range map[string]error{"Commit": errPut, "Get": errGet, "List": errList, "Session": errSession} {
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", what, err)
			}
		}
		holds(t, s, "/k", "-")
	}},
}

// guardsInside lets one write as fast as it can under a guard that another then raises. Once the raise is done, nothing of the
// first may arrive any more.
func guardsInside(t testing.TB, s replica.Store) {
	ctx := within(t)
	for round := range 30 {
		term := put(t, s, "/epoch", fmt.Sprint(round))
		begun, over := make(chan struct{}), make(chan error, 1)
		go func() {
			for n := 0; ; n++ {
				_, err := s.Commit(ctx, replica.Transaction{Guards: []replica.Guard{{Key: "/epoch", Version: term}},
					Writes: []replica.Write{{Key: "/state", Value: fmt.Append(nil, round, n), IfVersion: replica.AnyVersion}}})
				if err != nil {
					over <- err
					return
				}
				if n == 0 {
					close(begun)
				}
			}
		}()
		select {
		case <-begun:
		case err := <-over:
			t.Fatalf("a write whose guard holds: %v", err)
		}
		if _, err := replica.Put(ctx, s, "/epoch", []byte("raised"), term); err != nil {
			t.Fatal(err)
		}
		last := shown(get(t, s, "/state"))
		conflict(t, "after the guard was raised", <-over, replica.ConflictError{Key: "/epoch", Guard: true})
		holds(t, s, "/state", last)
	}
}

func counting(t testing.TB, s replica.Store) {
	ctx := within(t)
	const writers, each = 6, 10
	var all sync.WaitGroup
	errs := make(chan error, writers)
	for range writers {
		all.Go(func() {
			for done := 0; done < each; {
				v, err := s.Get(ctx, "/n")
				if err == nil {
					_, err = replica.Put(ctx, s, "/n", append(v.Value, 'x'), v.Version)
				}
				switch {
				case err == nil:
					done++
				case !errors.Is(err, replica.ErrConflict):
					errs <- err
					return
				}
			}
		})
	}
	all.Wait()
	select {
	case err := <-errs:
		t.Fatal(err)
	default:
	}
	if n := len(get(t, s, "/n").Value); n != writers*each {
		t.Fatalf("%d writes succeeded, %d are there", writers*each, n)
	}
}

var listChecks = []check{
	{"List is by prefix and ascending", func(t testing.TB, s replica.Store) {
		for _, key := range []string{"/b", "/a/b/c", "/ab", "/a", "/a/b", "/a-b", "/a/10", "/a/9"} {
			put(t, s, key, key)
		}
		for prefix, want := range map[string]string{
			"/a":    "[/a /a-b /a/10 /a/9 /a/b /a/b/c /ab]",
			"/a/":   "[/a/10 /a/9 /a/b /a/b/c]",
			"/a/b/": "[/a/b/c]",
			"/ab":   "[/ab]",
			"/c":    "[]",
			"/":     "[/a /a-b /a/10 /a/9 /a/b /a/b/c /ab /b]",
		} {
			list, err := s.List(within(t), prefix)
			if err != nil || keys(list) != want {
				t.Errorf("%s: %s, not %s; %v", prefix, keys(list), want, err)
			}
			for _, v := range list {
				if one := get(t, s, v.Key); string(v.Value) != v.Key || v.Version != one.Version || v.Created != one.Created {
					t.Errorf("List shows %+v, Get %+v", v, one)
				}
			}
		}
		remove(t, s, "/a/b")
		if list, err := s.List(within(t), "/a/b"); err != nil || keys(list) != "[/a/b/c]" {
			t.Errorf("after a deletion: %s, %v", keys(list), err)
		}
	}},
}
