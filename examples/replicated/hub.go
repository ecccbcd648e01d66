package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"net/rpc"
	"sync"
	"time"

	"github.com/partlog/partlog/replica"
)

// Hub serves a store in memory to other processes, by net/rpc. What watchers leave behind goes with it.
type Hub struct {
	ctx   context.Context
	store *replica.MemStore

	mu       sync.Mutex
	last     int64
	sessions map[int64]*lease
	watches  map[int64]chan seen
}

type lease struct {
	session replica.Session
	ttl     time.Duration
	timer   *time.Timer
}

type seen struct {
	V   replica.Versioned
	End string
}

// Calls and their answers; exported for gob.
type (
	Commit struct {
		Session int64 // 0: none
		Tx      replica.Transaction
		Empty   []int // writes whose value is empty: gob does not tell that from none
	}
	Answer struct {
		Values   []replica.Versioned
		Versions []int64
		ID       int64
		Failed   bool
		Conflict *replica.ConflictError // nil: none
		Lost     bool                   // the session is over
		Reason   string
	}
)

func (a *Answer) fail(err error) error {
	if err == nil {
		return nil
	}
	a.Failed, a.Reason, a.Lost = true, err.Error(), errors.Is(err, replica.ErrSessionLost)
	errors.As(err, &a.Conflict)
	return nil
}

func (a *Answer) err() error {
	switch {
	case !a.Failed:
		return nil
	case a.Conflict != nil:
		return a.Conflict
	case a.Lost:
		return replica.ErrSessionLost
	default:
		return errors.New(a.Reason)
	}
}

func (h *Hub) List(prefix string, a *Answer) (err error) {
	a.Values, err = h.store.List(h.ctx, prefix)
	return a.fail(err)
}

func (h *Hub) Get(key string, a *Answer) error {
	v, err := h.store.Get(h.ctx, key)
	a.Values = []replica.Versioned{v}
	return a.fail(err)
}

func (h *Hub) Commit(c Commit, a *Answer) (err error) {
	for _, i := range c.Empty {
		c.Tx.Writes[i].Value = []byte{}
	}
	if c.Session == 0 {
		a.Versions, err = h.store.Commit(h.ctx, c.Tx)
		return a.fail(err)
	}
	h.mu.Lock()
	l := h.sessions[c.Session]
	h.mu.Unlock()
	if l == nil {
		return a.fail(replica.ErrSessionLost)
	}
	a.Versions, err = l.session.Commit(h.ctx, c.Tx)
	return a.fail(err)
}

// Begin begins a session, which ends when Keep was not called for ttl.
func (h *Hub) Begin(ttl time.Duration, a *Answer) error {
	s, err := h.store.Session(h.ctx, ttl)
	if err != nil {
		return a.fail(err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last++
	id := h.last
	h.sessions[id] = &lease{s, ttl, time.AfterFunc(ttl, func() { h.End(id, new(Answer)) })}
	a.ID = id
	return nil
}

func (h *Hub) Keep(id int64, a *Answer) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.sessions[id]
	if l == nil {
		return a.fail(replica.ErrSessionLost)
	}
	l.timer.Reset(l.ttl)
	return nil
}

func (h *Hub) End(id int64, a *Answer) error {
	h.mu.Lock()
	l := h.sessions[id]
	delete(h.sessions, id)
	h.mu.Unlock()
	if l == nil {
		return nil
	}
	l.timer.Stop()
	return a.fail(l.session.Close())
}

func (h *Hub) Watch(prefix string, a *Answer) error {
	ch := make(chan seen, 64)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last++
	a.ID = h.last
	h.watches[a.ID] = ch
	go func() {
		for v, err := range h.store.Watch(h.ctx, prefix) {
			if err != nil {
				return
			}
			select {
			case ch <- seen{V: v}:
			case <-h.ctx.Done():
				return
			}
		}
	}()
	return nil
}

// Next gives what a watch has seen, at most a second later.
func (h *Hub) Next(id int64, a *Answer) error {
	h.mu.Lock()
	ch := h.watches[id]
	h.mu.Unlock()
	if ch == nil {
		return a.fail(errors.New("no such watch"))
	}
	select {
	case s := <-ch:
		a.Values = append(a.Values, s.V)
	case <-time.After(time.Second):
		return nil
	case <-h.ctx.Done():
		return a.fail(h.ctx.Err())
	}
	for {
		select {
		case s := <-ch:
			a.Values = append(a.Values, s.V)
		default:
			return nil
		}
	}
}

// serveHub serves until ctx ends and returns the address.
func serveHub(ctx context.Context, store *replica.MemStore) (string, error) {
	h := &Hub{ctx: ctx, store: store, sessions: map[int64]*lease{}, watches: map[int64]chan seen{}}
	return serveRPC(ctx, h)
}

// serveRPC serves the methods of v on a free port of this machine until ctx ends.
func serveRPC(ctx context.Context, v any) (string, error) {
	server := rpc.NewServer()
	if err := server.Register(v); err != nil {
		return "", err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	go func() {
		<-ctx.Done()
		l.Close()
	}()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go server.ServeConn(c)
		}
	}()
	return l.Addr().String(), nil
}

// hubClient is the hub seen from another process: a replica.Store.
type hubClient struct{ c *rpc.Client }

func (h hubClient) call(ctx context.Context, method string, args any) (*Answer, error) {
	a := new(Answer)
	if err := call(ctx, h.c, "Hub."+method, args, a); err != nil {
		return a, err
	}
	for i, v := range a.Values {
		if v.Version > 0 && v.Value == nil {
			a.Values[i].Value = []byte{} // gob does not tell empty from nil
		}
	}
	return a, a.err()
}

// call is a remote call that heeds ctx.
func call(ctx context.Context, c *rpc.Client, method string, args, answer any) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	done := c.Go(method, args, answer, make(chan *rpc.Call, 1))
	select {
	case <-done.Done:
		return done.Error
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (h hubClient) Get(ctx context.Context, key string) (replica.Versioned, error) {
	a, err := h.call(ctx, "Get", key)
	if err != nil {
		return replica.Versioned{}, err
	}
	return a.Values[0], nil
}

func (h hubClient) List(ctx context.Context, prefix string) ([]replica.Versioned, error) {
	a, err := h.call(ctx, "List", prefix)
	return a.Values, err
}

func (h hubClient) Commit(ctx context.Context, tx replica.Transaction) ([]int64, error) {
	return h.commit(ctx, 0, tx)
}

func (h hubClient) commit(ctx context.Context, session int64, tx replica.Transaction) ([]int64, error) {
	if err := tx.Check(session != 0); err != nil {
		return nil, err
	}
	c := Commit{Session: session, Tx: tx}
	for i, w := range tx.Writes {
		if w.Value != nil && len(w.Value) == 0 {
			c.Empty = append(c.Empty, i)
		}
	}
	a, err := h.call(ctx, "Commit", c)
	return a.Versions, err
}

func (h hubClient) Watch(ctx context.Context, prefix string) iter.Seq2[replica.Versioned, error] {
	return func(yield func(replica.Versioned, error) bool) {
		watch, err := h.call(ctx, "Watch", prefix)
		for err == nil {
			var a *Answer
			if a, err = h.call(ctx, "Next", watch.ID); err != nil {
				break
			}
			for _, v := range a.Values {
				if !yield(v, nil) {
					return
				}
			}
		}
		yield(replica.Versioned{}, fmt.Errorf("watch %s: %w", prefix, err))
	}
}

// remoteSession is kept alive from here.
type remoteSession struct {
	h      hubClient
	id     int64
	done   chan struct{}
	cancel context.CancelFunc
}

func (h hubClient) Session(ctx context.Context, ttl time.Duration) (replica.Session, error) {
	a, err := h.call(ctx, "Begin", ttl)
	if err != nil {
		return nil, err
	}
	keep, cancel := context.WithCancel(context.Background())
	s := &remoteSession{h, a.ID, make(chan struct{}), cancel}
	go func() {
		defer close(s.done)
		for keep.Err() == nil {
			asked, end := context.WithTimeout(keep, ttl/2)
			_, err := h.call(asked, "Keep", s.id)
			end()
			if err != nil {
				return // it may be over: whoever relies on it must not any more
			}
			select {
			case <-time.After(ttl / 4):
			case <-keep.Done():
			}
		}
	}()
	return s, nil
}

func (s *remoteSession) Commit(ctx context.Context, tx replica.Transaction) ([]int64, error) {
	return s.h.commit(ctx, s.id, tx)
}

func (s *remoteSession) Done() <-chan struct{} { return s.done }

func (s *remoteSession) Close() error {
	s.cancel()
	<-s.done
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, err := s.h.call(ctx, "End", s.id)
	return err
}
