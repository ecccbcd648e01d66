package replica

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// MemStore is a Store in memory: for tests, and for clusters that live in one process. It promises no more than a Store
// must: versions begin again when a key is deleted and created anew, and watches join changes. It starts no goroutine.
// Sessions have no clock: they end by Close or Expire. The zero value is an empty one.
type MemStore struct {
	mu       sync.Mutex // guards everything below and in sessions and watches; never held across a yield
	entries  map[string]memEntry
	revision int64
	watches  map[*memWatch]bool
	sessions map[*memSession]bool // that are not over
}

type memEntry struct {
	value            []byte
	version, created int64
	owner            *memSession // nil: not ephemeral
}

// NewMemStore makes an empty one.
func NewMemStore() *MemStore { return new(MemStore) }

// put sets an entry of a map that may not have been made yet.
func put[K comparable, V any](m *map[K]V, key K, value V) {
	if *m == nil {
		*m = make(map[K]V)
	}
	(*m)[key] = value
}

func (e memEntry) versioned(key string) Versioned {
	return Versioned{Key: key, Value: bytes.Clone(e.value), Version: e.version, Created: e.created}
}

// Get is Store.Get.
func (m *MemStore) Get(ctx context.Context, key string) (Versioned, error) {
	if err := ctx.Err(); err != nil {
		return Versioned{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.entries[key].versioned(key), nil
}

// List is Store.List.
func (m *MemStore) List(ctx context.Context, prefix string) ([]Versioned, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Versioned
	for _, key := range m.keys(prefix) {
		out = append(out, m.entries[key].versioned(key))
	}
	return out, nil
}

// keys are those below prefix, ascending. Under m.mu.
func (m *MemStore) keys(prefix string) []string {
	var keys []string
	for key := range m.entries {
		if strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// Commit is Store.Commit.
func (m *MemStore) Commit(ctx context.Context, tx Transaction) ([]int64, error) {
	return m.commit(ctx, tx, nil)
}

func (m *MemStore) commit(ctx context.Context, tx Transaction, s *memSession) ([]int64, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := tx.Check(s != nil); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if s != nil && s.over {
		return nil, ErrSessionLost
	}
	for _, g := range tx.Guards {
		if have := m.entries[g.Key].version; have != g.Version {
			return nil, &ConflictError{Key: g.Key, Want: g.Version, Have: have, Guard: true}
		}
	}
	for _, w := range tx.Writes {
		if have := m.entries[w.Key].version; w.IfVersion != AnyVersion && have != w.IfVersion {
			return nil, &ConflictError{Key: w.Key, Want: w.IfVersion, Have: have}
		}
	}
	m.revision++
	versions := make([]int64, len(tx.Writes))
	for i, w := range tx.Writes {
		versions[i] = m.write(w, s)
	}
	return versions, nil
}

// write sets or deletes one key and tells the watches. Under m.mu.
func (m *MemStore) write(w Write, s *memSession) int64 {
	e, exists := m.entries[w.Key]
	if w.Value == nil {
		if exists {
			delete(m.entries, w.Key)
			m.changed(w.Key)
		}
		return 0
	}
	if !exists {
		e.created = m.revision
	}
	e.value = bytes.Clone(w.Value)
	e.version++
	e.owner = nil
	if w.Ephemeral {
		e.owner = s
	}
	put(&m.entries, w.Key, e)
	m.changed(w.Key)
	return e.version
}

func (m *MemStore) changed(key string) {
	for w := range m.watches {
		if strings.HasPrefix(key, w.prefix) {
			w.pending[key] = true
			select {
			case w.wake <- struct{}{}:
			default:
			}
		}
	}
}

type memWatch struct {
	prefix  string
	pending map[string]bool // keys that changed since they were last given; guarded by MemStore.mu
	over    bool            // the store was restored; guarded by MemStore.mu
	wake    chan struct{}   // holds one token while pending is not empty
}

// Watch is Store.Watch. What happens while the caller works on a value is given afterwards.
func (m *MemStore) Watch(ctx context.Context, prefix string) iter.Seq2[Versioned, error] {
	return func(yield func(Versioned, error) bool) {
		w := &memWatch{prefix: prefix, pending: make(map[string]bool), wake: make(chan struct{}, 1)}
		m.mu.Lock()
		for _, key := range m.keys(prefix) {
			w.pending[key] = true
		}
		put(&m.watches, w, true)
		m.mu.Unlock()
		defer func() {
			m.mu.Lock()
			delete(m.watches, w)
			m.mu.Unlock()
		}()

		for first := true; ; first = false {
			for _, v := range m.take(w) {
				if !yield(v, nil) {
					return
				}
			}
			if first && !yield(Versioned{}, nil) {
				return
			}
			select {
			case <-ctx.Done():
				yield(Versioned{}, ctx.Err())
				return
			case <-w.wake:
			}
			m.mu.Lock()
			over := w.over
			m.mu.Unlock()
			if over {
				yield(Versioned{}, ErrRestored)
				return
			}
		}
	}
}

// take is the present state of all keys that changed.
func (m *MemStore) take(w *memWatch) []Versioned {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]Versioned, 0, len(w.pending))
	for _, key := range slices.Sorted(maps.Keys(w.pending)) {
		out = append(out, m.entries[key].versioned(key))
	}
	clear(w.pending)
	return out
}

type memSession struct {
	store *MemStore
	done  chan struct{}
	over  bool // guarded by MemStore.mu
}

// Session is Store.Session; ttl is not looked at.
func (m *MemStore) Session(ctx context.Context, _ time.Duration) (Session, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s := &memSession{store: m, done: make(chan struct{})}
	m.mu.Lock()
	put(&m.sessions, s, true)
	m.mu.Unlock()
	return s, nil
}

func (s *memSession) Commit(ctx context.Context, tx Transaction) ([]int64, error) {
	return s.store.commit(ctx, tx, s)
}

func (s *memSession) Done() <-chan struct{} { return s.done }

func (s *memSession) Close() error {
	s.store.Expire(s)
	return nil
}

// Expire ends a session as if its holder had not been heard of for too long. Sessions of other stores are left alone.
func (m *MemStore) Expire(session Session) {
	s, ok := session.(*memSession)
	if !ok || s.store != m {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.over {
		return
	}
	m.end(s)
	m.revision++
	for key, e := range m.entries {
		if e.owner == s {
			m.write(Write{Key: key}, nil)
		}
	}
}

// end marks a session as over. Under m.mu.
func (m *MemStore) end(s *memSession) {
	s.over = true
	close(s.done)
	delete(m.sessions, s)
}

// ErrRestored ends the watches of a MemStore that was restored.
var ErrRestored = errors.New("replica: the store was restored from a snapshot")

// MemSnapshot is what a MemStore held at a moment.
type MemSnapshot struct {
	entries  map[string]memEntry
	revision int64
}

// Snapshot is a backup, without what sessions own.
func (m *MemStore) Snapshot() MemSnapshot {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := MemSnapshot{entries: make(map[string]memEntry), revision: m.revision}
	for key, e := range m.entries {
		if e.owner == nil {
			s.entries[key] = e
		}
	}
	return s
}

// Restore makes the store what it was: all that was written since is lost, versions and Created begin again from there, sessions
// are over and watches end.
func (m *MemStore) Restore(s MemSnapshot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.entries, m.revision = maps.Clone(s.entries), s.revision
	for one := range m.sessions {
		m.end(one)
	}
	for w := range m.watches {
		w.over = true
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}
