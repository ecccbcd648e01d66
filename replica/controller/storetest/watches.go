package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/partlog/partlog/replica"
)

// viewer collects what a watch gives.
type viewer struct {
	t    testing.TB
	seen chan replica.Versioned
	end  chan error // why the watch ended
	stop context.CancelFunc
}

func watch(t testing.TB, s replica.Store, prefix string) *viewer {
	ctx, cancel := context.WithCancel(within(t))
	w := &viewer{t, make(chan replica.Versioned), make(chan error, 1), cancel}
	t.Cleanup(cancel)
	go func() {
		for v, err := range s.Watch(ctx, prefix) {
			if err != nil {
				w.end <- err
				return
			}
			select {
			case w.seen <- v:
			case <-ctx.Done():
			}
		}
		w.end <- nil
	}()
	return w
}

func (w *viewer) next() replica.Versioned {
	w.t.Helper()
	select {
	case v := <-w.seen:
		return v
	case err := <-w.end:
		w.t.Fatalf("the watch ended: %v", err)
	case <-time.After(limit(w.t)):
		w.t.Fatal("the watch says nothing")
	}
	return replica.Versioned{}
}

// first is all up to the mark.
func (w *viewer) first() map[string]string {
	w.t.Helper()
	all := map[string]string{}
	for v := w.next(); v.Key != ""; v = w.next() {
		all[v.Key] = shown(v)
	}
	return all
}

// until reads on until a key has a value, and checks that no key goes back.
func (w *viewer) until(key, value string) {
	w.t.Helper()
	type stand struct{ created, version int64 }
	last := map[string]stand{}
	for {
		v := w.next()
		if v.Key == "" {
			w.t.Fatal("the mark came twice")
		}
		now := stand{v.Created, v.Version}
		if old := last[v.Key]; v.Value != nil {
			if now.created < old.created || now.created == old.created && now.version < old.version {
				w.t.Fatalf("%s went from %+v to %+v", v.Key, old, now)
			}
			last[v.Key] = now
		} else if v.Version != 0 {
			w.t.Fatalf("a deleted key has version %d", v.Version)
		}
		if v.Key == key && shown(v) == value {
			return
		}
	}
}

var watchChecks = []check{
	{"a watch gives what is there, the mark, and what changes", func(t testing.TB, s replica.Store) {
		put(t, s, "/w/b", "1")
		put(t, s, "/w/a", "1")
		put(t, s, "/other", "1")
		w := watch(t, s, "/w/")
		if all := fmt.Sprint(w.first()); all != "map[/w/a:1 /w/b:1]" {
			t.Fatalf("at first %s", all)
		}
		put(t, s, "/other", "2")
		put(t, s, "/w/a", "2")
		if v := w.next(); v.Key != "/w/a" || string(v.Value) != "2" || v.Version != get(t, s, "/w/a").Version || v.Created != get(t, s, "/w/a").Created {
			t.Fatalf("%+v", v)
		}
		remove(t, s, "/w/b")
		if v := w.next(); v.Key != "/w/b" || v.Value != nil || v.Version != 0 {
			t.Fatalf("a deletion came as %+v", v)
		}
		put(t, s, "/w/c", "")
		if v := w.next(); v.Key != "/w/c" || v.Value == nil || v.Version <= 0 {
			t.Fatalf("an empty value came as %+v", v)
		}
	}},
	{"a watch of nothing gives the mark at once", func(t testing.TB, s replica.Store) {
		w := watch(t, s, "/w/")
		if all := w.first(); len(all) > 0 {
			t.Fatal(all)
		}
		put(t, s, "/w/a", "1")
		w.until("/w/a", "1")
	}},
	{"what happens while a watch is busy comes afterwards", func(t testing.TB, s replica.Store) {
		put(t, s, "/w/a", "0")
		put(t, s, "/w/b", "0")
		w := watch(t, s, "/w/")
		if v := w.next(); v.Key == "" {
			t.Fatal("the mark came first")
		}
		// It stands between the first two values: nothing of this may be lost.
		put(t, s, "/w/a", "1")
		put(t, s, "/w/b", "1")
		put(t, s, "/w/c", "1")
		missing := map[string]bool{"/w/a": true, "/w/b": true, "/w/c": true}
		for len(missing) > 0 {
			if v := w.next(); string(v.Value) == "1" {
				delete(missing, v.Key)
			}
		}
	}},
	{"the last value of each key always comes, and none goes back", func(t testing.TB, s replica.Store) {
		w := watch(t, s, "/w/")
		w.first()
		done := make(chan error, 1)
		go func() {
			for i := range 60 {
				for _, key := range []string{"/w/a", "/w/b"} {
					value := fmt.Append(nil, i)
					if i%5 == 3 {
						value = nil
					}
					if _, err := replica.Put(within(t), s, key, value, replica.AnyVersion); err != nil {
						done <- err
						return
					}
				}
			}
			_, err := replica.Put(within(t), s, "/w/end", []byte("x"), 0)
			done <- err
		}()
		last := map[string]string{}
		for last["/w/a"] != "59" || last["/w/b"] != "59" || last["/w/end"] != "x" {
			v := w.next()
			last[v.Key] = shown(v)
			time.Sleep(100 * time.Microsecond)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}},
	{"versions of a key do not go back in a watch", func(t testing.TB, s replica.Store) {
		w := watch(t, s, "/w/")
		w.first()
		go func() {
			for i := range 50 {
				_, _ = replica.Put(within(t), s, "/w/a", fmt.Append(nil, i), replica.AnyVersion)
				if i%10 == 9 && i < 49 {
					_, _ = replica.Put(within(t), s, "/w/a", nil, replica.AnyVersion)
				}
			}
		}()
		w.until("/w/a", "49")
	}},
	{"a watch begun again gives everything again", func(t testing.TB, s replica.Store) {
		put(t, s, "/w/a", "1")
		put(t, s, "/w/b", "1")
		w := watch(t, s, "/w/")
		w.first()
		w.stop()
		put(t, s, "/w/a", "2")
		remove(t, s, "/w/b")
		if all := fmt.Sprint(watch(t, s, "/w/").first()); all != "map[/w/a:2]" {
			t.Fatal(all)
		}
	}},
	{"watches do not disturb each other", func(t testing.TB, s replica.Store) {
		one, two := watch(t, s, "/w/"), watch(t, s, "/w/a")
		one.first()
		two.first()
		for i := range 20 { // nobody looks at the first
			put(t, s, "/w/a", fmt.Sprint(i))
		}
		two.until("/w/a", "19")
		one.until("/w/a", "19")
	}},
	{"a watch ends with its context, and says so last", func(t testing.TB, s replica.Store) {
		w := watch(t, s, "/w/")
		w.first()
		w.stop()
		select {
		case err := <-w.end:
			if !errors.Is(err, context.Canceled) {
				t.Fatalf("it ended with %v", err)
			}
		case <-time.After(limit(t)):
			t.Fatal("it goes on")
		}
	}},
	{"a watch can be left at any value", func(t testing.TB, s replica.Store) {
		put(t, s, "/w/a", "1")
		for range s.Watch(within(t), "/w/") {
			break
		}
		n := 0
		for v := range s.Watch(within(t), "/w/") {
			if n++; v.Key == "" {
				break
			}
		}
		if n != 2 {
			t.Fatalf("%d values", n)
		}
	}},
}
