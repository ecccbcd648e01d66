package storetest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/replica/controller"
)

func session(t testing.TB, s replica.Store) replica.Session {
	t.Helper()
	one, err := s.Session(within(t), patience)
	if err != nil {
		t.Fatal(err)
	}
	return one
}

// own makes an ephemeral key.
func own(t testing.TB, s replica.Session, key string) {
	t.Helper()
	if err := tryOwn(within(t), s, key); err != nil {
		t.Fatalf("own %s: %v", key, err)
	}
}

func tryOwn(ctx context.Context, s replica.Session, key string) error {
	_, err := s.Commit(ctx, replica.Transaction{Writes: []replica.Write{{Key: key, Value: []byte("x"), Ephemeral: true}}})
	return err
}

func over(s replica.Session) bool {
	select {
	case <-s.Done():
		return true
	default:
		return false
	}
}

// ended checks all that must be so when a session with the key /e is over.
func ended(t testing.TB, s replica.Store, one replica.Session, w *viewer) {
	t.Helper()
	eventually(t, "Done is closed", func() bool { return over(one) })
	eventually(t, "the ephemeral key goes", func() bool { return get(t, s, "/e").Value == nil })
	w.until("/e", "-")
	for _, ephemeral := range []bool{true, false} {
		_, err := one.Commit(within(t), replica.Transaction{Writes: []replica.Write{{Key: "/late", Value: []byte("x"), Ephemeral: ephemeral}}})
		if !errors.Is(err, replica.ErrSessionLost) {
			t.Fatalf("a commit of a session that is over: %v", err)
		}
	}
	holds(t, s, "/late", "-")
}

var sessionChecks = []check{
	{"an ephemeral key needs a session", func(t testing.TB, s replica.Store) {
		_, err := s.Commit(within(t), replica.Transaction{Writes: []replica.Write{{Key: "/e", Value: []byte("x"), Ephemeral: true}}})
		if !errors.Is(err, replica.ErrNoSession) {
			t.Fatal(err)
		}
		holds(t, s, "/e", "-")
	}},
	{"ephemeral keys go when their session is closed, and nothing else", func(t testing.TB, s replica.Store) {
		one, two := session(t, s), session(t, s)
		own(t, one, "/e")
		own(t, two, "/theirs")
		if _, err := one.Commit(within(t), replica.Transaction{Writes: []replica.Write{{Key: "/stays", Value: []byte("x")}}}); err != nil {
			t.Fatal(err)
		}
		w := watch(t, s, "/e")
		w.first()
		if over(one) || over(two) {
			t.Fatal("Done is closed while the session lasts")
		}
		if err := one.Close(); err != nil {
			t.Fatal(err)
		}
		ended(t, s, one, w)
		holds(t, s, "/stays", "x")
		holds(t, s, "/theirs", "x")
		if over(two) {
			t.Fatal("another session is over")
		}
		if err := two.Close(); err != nil {
			t.Fatal(err)
		}
	}},
	{"ephemeral keys go when their session is lost", func(t testing.TB, s replica.Store) {
		e, ok := s.(Expirer)
		if !ok {
			t.Skip("the store is no Expirer")
		}
		one := session(t, s)
		own(t, one, "/e")
		w := watch(t, s, "/e")
		w.first()
		e.Expire(one)
		ended(t, s, one, w)
	}},
	{"a session whose holder is there outlives its ttl", func(t testing.TB, s replica.Store) {
		const ttl = time.Second
		one, err := s.Session(within(t), ttl)
		if err != nil {
			t.Fatal(err)
		}
		own(t, one, "/e")
		select { // nobody but the session itself keeps it alive
		case <-one.Done():
			t.Fatal("the session was lost while its holder was there")
		case <-time.After(ttl * 5 / 2):
		}
		holds(t, s, "/e", "x")
		own(t, one, "/f")
		if err := one.Close(); err != nil {
			t.Fatal(err)
		}
	}},
	{"a key that another session made anew is its own", func(t testing.TB, s replica.Store) {
		one, two := session(t, s), session(t, s)
		own(t, one, "/e")
		remove(t, s, "/e")
		own(t, two, "/e")
		if err := one.Close(); err != nil {
			t.Fatal(err)
		}
		put(t, s, "/later", "x")
		holds(t, s, "/e", "x")
		if err := two.Close(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the key goes", func() bool { return get(t, s, "/e").Value == nil })
	}},
	{"a session's transactions have conditions and guards", func(t testing.TB, s replica.Store) {
		one := session(t, s)
		own(t, one, "/e")
		conflict(t, "made twice", tryOwn(within(t), one, "/e"), replica.ConflictError{Key: "/e"})
		_, err := one.Commit(within(t), replica.Transaction{Guards: []replica.Guard{{Key: "/none", Version: 1}}, Writes: []replica.Write{{Key: "/k", Value: []byte("x")}}})
		conflict(t, "a guard", err, replica.ConflictError{Key: "/none", Guard: true})
		versions, err := one.Commit(within(t), replica.Transaction{Writes: []replica.Write{{Key: "/e", Value: []byte("y"), IfVersion: get(t, s, "/e").Version, Ephemeral: true}}})
		if err != nil || versions[0] != get(t, s, "/e").Version {
			t.Fatal(versions, err)
		}
		holds(t, s, "/e", "y")
		if err := one.Close(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "a key that was written twice goes", func() bool { return get(t, s, "/e").Value == nil })
	}},
	{"of many who claim a key one has it", func(t testing.TB, s replica.Store) {
		ctx := within(t)
		var all sync.WaitGroup
		var mu sync.Mutex
		var winners []replica.Session
		for range 6 {
			one := session(t, s)
			all.Go(func() {
				err := tryOwn(ctx, one, "/claim")
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					winners = append(winners, one)
				} else if !errors.Is(err, replica.ErrConflict) {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if len(winners) != 1 {
			t.Fatalf("%d have it", len(winners))
		}
		if err := winners[0].Close(); err != nil {
			t.Fatal(err)
		}
		two := session(t, s)
		eventually(t, "another can have it", func() bool { return tryOwn(ctx, two, "/claim") == nil })
	}},
}

var ruleChecks = []check{
	{"controllers rule over it one after the other", func(t testing.TB, s replica.Store) {
		ctx := within(t)
		node := session(t, s)
		registered, err := controller.Register(ctx, s, node, controller.Registration{Node: 1, PreviousEpoch: -1})
		if err != nil {
			t.Fatal(err)
		}
		for rule := int32(1); rule <= 2; rule++ {
			ruling, depose := context.WithCancel(ctx)
			ruled := make(chan int32, 16)
			c := controller.NewController(s, controller.Options{Node: replica.NodeID(rule), SessionTTL: patience, Retry: time.Millisecond,
				Rule: func(epoch int32, rules bool, _ error) {
					if rules {
						ruled <- epoch
					}
				}})
			over := make(chan struct{})
			go func() {
				defer close(over)
				_ = c.Run(ruling)
			}()
			select {
			case epoch := <-ruled:
				if epoch != rule {
					t.Errorf("rule %d has epoch %d", rule, epoch)
				}
			case <-ctx.Done():
				t.Error("nobody rules")
			}
			if rule == 1 {
				if _, err := c.CreateTopic(ctx, controller.CreateTopic{Topic: "t", Assignment: [][]replica.NodeID{{1}}}); err != nil {
					t.Error(err)
				}
			}
			if topics, err := c.Describe(ctx, "t"); err != nil || topics[0].Partitions[0].Leader != 1 {
				t.Errorf("rule %d: %+v, %v", rule, topics, err)
			}
			depose()
			<-over
			if t.Failed() {
				t.FailNow()
			}
		}
		n, err := controller.Lookup(ctx, s, log.TopicPartition{Topic: "t"})
		if err != nil || n.State.Leader != 1 {
			t.Fatalf("%+v, %v", n, err)
		}
		epoch, err := controller.LastRegistration(ctx, s, 1)
		if err != nil || epoch != registered.Epoch() {
			t.Fatalf("the node is registered under %d, not %d; %v", epoch, registered.Epoch(), err)
		}
	}},
}
