package member

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/replica/controller"
)

var errDown = errors.New("the store cannot be reached")

// troubled is a store with faults, seen by one member.
type troubled struct {
	*replica.MemStore
	down  atomic.Bool  // nothing gets through; sessions do not end by that
	slow  atomic.Int64 // ns that everything takes
	deaf  atomic.Bool  // it does not learn that its sessions are over
	flaky atomic.Int64 // of a hundred calls so many fail; of commits, half of them after they were done
	hangs atomic.Int64 // of a hundred calls so many have no answer until their context ends; of commits, half of them are done
	loses atomic.Int64 // of a hundred commits so many lose to another writer: a conflict, and nothing is done
	lies  atomic.Int64 // of a hundred commits so many are done and called a conflict, as by a client that sends twice what was done
	mute  atomic.Bool  // watches tell nothing, and do not end
	again atomic.Bool  // watches tell everything twice, the second time late

	mu       sync.Mutex
	held     string          // the answer for this key
	hold     <-chan struct{} // comes when this is closed
	asked    chan<- struct{} // which is said here
	cuts     chan struct{}   // closed to end all watches
	sessions []*troubledSession
}

func newTroubled(s *replica.MemStore) *troubled {
	return &troubled{MemStore: s, cuts: make(chan struct{})}
}

// cut ends all watches, as a store does that cannot keep up with what they are to be told.
func (s *troubled) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.cuts)
	s.cuts = make(chan struct{})
}

// expire ends all sessions of the member.
func (s *troubled) expire() {
	s.mu.Lock()
	list := s.sessions
	s.sessions = nil
	s.mu.Unlock()
	for _, one := range list {
		s.MemStore.Expire(one.Session)
	}
}

func (s *troubled) call(ctx context.Context) error {
	if d := s.slow.Load(); d > 0 {
		select {
		case <-time.After(time.Duration(d)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if s.down.Load() || rand.Int64N(100) < s.flaky.Load() {
		return errDown
	}
	if rand.Int64N(100) < s.hangs.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (s *troubled) Get(ctx context.Context, key string) (replica.Versioned, error) {
	if err := s.call(ctx); err != nil {
		return replica.Versioned{}, err
	}
	s.mu.Lock()
	held, hold, asked := s.held, s.hold, s.asked
	s.mu.Unlock()
	v, err := s.MemStore.Get(ctx, key)
	if key == held {
		asked <- struct{}{}
		<-hold
	}
	return v, err
}

// holdReads keeps the answers for a partition's state back until hold is closed. What comes back tells of each.
func (s *troubled) holdReads(tp log.TopicPartition, hold <-chan struct{}) (asked <-chan struct{}) {
	return s.holdKey(fmt.Sprintf("%s%s/partitions/%d/state", controller.TopicsPrefix, tp.Topic, tp.Partition), hold)
}

// holdKey is holdReads for any key. A nil hold ends it.
func (s *troubled) holdKey(key string, hold <-chan struct{}) (asked <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ch := make(chan struct{}, 1)
	if s.held = ""; hold != nil {
		s.held = key
	}
	s.hold, s.asked = hold, ch
	return ch
}

func (s *troubled) List(ctx context.Context, prefix string) ([]replica.Versioned, error) {
	if err := s.call(ctx); err != nil {
		return nil, err
	}
	return s.MemStore.List(ctx, prefix)
}

func (s *troubled) commit(ctx context.Context, do func() ([]int64, error)) ([]int64, error) {
	conflict := &replica.ConflictError{Key: "/of/somebody/else", Want: 1, Have: 2}
	if rand.Int64N(100) < s.loses.Load() {
		return nil, conflict
	}
	if rand.Int64N(100) < s.lies.Load() {
		_, err := do()
		if err == nil {
			err = conflict
		}
		return nil, err
	}
	first := rand.Int64N(2) == 0
	if first && s.hangs.Load() > 0 {
		v, err := do()
		if e := s.call(ctx); e != nil {
			return nil, e // it is done, and nobody learns of it
		}
		return v, err
	}
	if err := s.call(ctx); err != nil {
		if !s.down.Load() && first {
			_, _ = do()
		}
		return nil, err
	}
	return do()
}

func (s *troubled) Commit(ctx context.Context, tx replica.Transaction) ([]int64, error) {
	return s.commit(ctx, func() ([]int64, error) { return s.MemStore.Commit(ctx, tx) })
}

func (s *troubled) Watch(ctx context.Context, prefix string) iter.Seq2[replica.Versioned, error] {
	return func(yield func(replica.Versioned, error) bool) {
		if err := s.call(ctx); err != nil {
			yield(replica.Versioned{}, err)
			return
		}
		s.mu.Lock()
		cut := s.cuts
		s.mu.Unlock()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() {
			select {
			case <-cut:
				cancel()
			case <-ctx.Done():
			}
		}()
		current := false
		for v, err := range s.MemStore.Watch(ctx, prefix) {
			select {
			case <-cut: // the goroutine may not have had its turn yet
				yield(replica.Versioned{}, context.Canceled)
				return
			default:
			}
			if err == nil && !current && rand.Int64N(100) < s.hangs.Load() {
				<-ctx.Done()
			}
			current = current || v.Key == ""
			if err == nil && v.Key != "" && current && s.mute.Load() {
				continue
			}
			if !yield(v, err) {
				return
			}
			if err == nil && v.Key != "" && s.again.Load() && !yield(v, nil) {
				return
			}
		}
	}
}

func (s *troubled) Session(ctx context.Context, ttl time.Duration) (replica.Session, error) {
	if err := s.call(ctx); err != nil {
		return nil, err
	}
	session, err := s.MemStore.Session(ctx, ttl)
	if err != nil {
		return nil, err
	}
	one := &troubledSession{session, s}
	s.mu.Lock()
	s.sessions = append(s.sessions, one)
	s.mu.Unlock()
	return one, nil
}

type troubledSession struct {
	replica.Session
	store *troubled
}

func (t *troubledSession) Done() <-chan struct{} {
	if t.store.deaf.Load() {
		return nil
	}
	return t.Session.Done()
}

func (t *troubledSession) Commit(ctx context.Context, tx replica.Transaction) ([]int64, error) {
	return t.store.commit(ctx, func() ([]int64, error) { return t.Session.Commit(ctx, tx) })
}
