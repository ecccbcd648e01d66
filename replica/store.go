package replica

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"
)

// Store is the whole contract of a coordinator: a small, linearizable map from keys to values with versions, transactions,
// watches and sessions. Keys look like paths ("/brokers/topics/orders"). NewMemStore is one for tests and for a cluster
// inside one process. All methods may be called concurrently and block until ctx ends.
//
// What each part becomes where the data lives elsewhere:
//
//	here                  ZooKeeper                                   etcd
//	Get, List             getData; getChildren down the tree          range
//	Versioned.Version     dataVersion + 1                             version of the key, or mod revision
//	Versioned.Created     czxid                                       create revision
//	Commit                multi: check, create, setData, delete       txn: If(version = …).Then(put, delete)
//	Guard                 check                                       one more comparison of the If
//	without writes        multi of check alone                        txn: If(version = …).Then(get), not serializable
//	Watch                 watches set anew, the difference delivered  watch from the revision of a range
//	Session               the ZooKeeper session                       a lease that is kept alive
//	Write.Ephemeral       ephemeral znode                             put with the lease
//
// A transaction without writes is linearizable like any other. A txn of etcd that has no operation at all is answered by one
// member, which may not know yet what has been written: hence the get. Nor will ZooKeeper's getData do in place of the check.
//
// Three things follow from the weaker of the two and callers must live with them: a transaction has at most MaxWrites
// writes and 512 KiB of keys and values, a watch may leave out intermediate values, and versions may begin again when a key
// is deleted and created anew (Created tells the two apart). In ZooKeeper a key may have keys below it only if it is not
// ephemeral, and its parents must exist: a binding makes them as znodes without data, which count as absent here.
//
// # Ruling
//
// Having been elected never suffices to write: the election may be over by the time the write arrives. So whoever is
// elected raises the value of a key that is never deleted in the same transaction that creates the ephemeral one, keeps
// the version that came of it, and gives it as Guard to every transaction from then on. A successor's election changes
// that version, and from this moment no write of the predecessor can succeed, however late it arrives.
type Store interface {
	// Get is the value of a key. A key that does not exist has Version 0 and no error.
	Get(ctx context.Context, key string) (Versioned, error)
	// List is all keys that begin with prefix and their values, ascending.
	List(ctx context.Context, prefix string) ([]Versioned, error)
	// Commit applies a transaction whole or not at all and returns the new version of each write's key, 0 for a deleted one. One
	// without writes changes nothing, and says whether its guards hold at a moment between the call and the answer.
	// *ConflictError: a guard or a condition did not hold, nothing was written. *LimitError, ErrNoSession: it cannot be
	// written. After any other error it is unknown whether it was applied.
	Commit(ctx context.Context, tx Transaction) ([]int64, error)
	// Watch gives all keys that begin with prefix, then one Versioned without a Key, and then every key that changes, until
	// ctx ends or the caller stops; the last pair of a watch that ends by itself has the error. Several changes of a key may
	// come as one; its last value always comes.
	Watch(ctx context.Context, prefix string) iter.Seq2[Versioned, error]
	// Session begins a session that is lost when its holder does not reach the store for ttl, and is kept alive until then: by
	// itself, ctx bounds only its beginning.
	Session(ctx context.Context, ttl time.Duration) (Session, error)
}

// Session owns ephemeral keys: they vanish when it is closed or lost, the latter at the earliest ttl after its holder was
// last heard of.
type Session interface {
	// Commit is Store.Commit, in which writes may be Ephemeral. ErrSessionLost if the session is over, whatever the writes.
	Commit(ctx context.Context, tx Transaction) ([]int64, error)
	// Done is closed when the session is over or its holder can no longer be sure that it is not.
	Done() <-chan struct{}
	// Close ends the session and deletes what it owns. If it fails nothing keeps the session alive any more: it expires.
	Close() error
}

// Versioned is a key's value at one moment.
type Versioned struct {
	Key     string
	Value   []byte // the caller's to keep; nil: the key does not exist
	Version int64  // positive, grows with every write while the key exists; 0: it does not exist
	Created int64  // when it was created: grows through the whole store, across all keys
}

// Transaction is what happens together.
type Transaction struct {
	Guards []Guard // must hold, though nothing is written there
	Writes []Write // each key once; none: it is only asked whether the guards hold
}

// Guard is a key that must have this version at the moment of the writes; 0: must not exist.
type Guard struct {
	Key     string
	Version int64
}

// Write sets or deletes a key.
type Write struct {
	Key       string
	Value     []byte // nil deletes
	IfVersion int64  // the version it must have; 0: must not exist, AnyVersion: no condition
	// Ephemeral: it belongs to the session that commits it; only a session can. Whose a key is that is ephemeral and then written
	// without it is the store's to say: nobody should.
	Ephemeral bool
}

const (
	AnyVersion int64 = -1        // Write.IfVersion: whatever is there
	MaxWrites        = 100       // writes and guards of one transaction (etcd refuses more than 128)
	MaxTxBytes       = 512 << 10 // keys and values of one transaction (ZooKeeper refuses a packet of 1 MiB)
)

// Errors of a Store.
var (
	// ErrConflict: a guard or a condition did not hold, nothing was written. It comes as a *ConflictError.
	ErrConflict = errors.New("a condition of the transaction does not hold")
	// ErrSessionLost: what a session is asked for after its end.
	ErrSessionLost = errors.New("session is over")
	// ErrNoSession: an ephemeral write outside a session.
	ErrNoSession = errors.New("an ephemeral key needs a session")
	// ErrTooLarge: more than MaxWrites or MaxTxBytes. It comes as a *LimitError.
	ErrTooLarge = errors.New("transaction is too large")
)

// ConflictError says which condition did not hold. errors.Is(err, ErrConflict).
type ConflictError struct {
	Key        string
	Want, Have int64 // versions; 0: does not exist
	Guard      bool  // the condition was a guard: who writes does not rule any more
}

// Error is one sentence with key and versions.
func (e *ConflictError) Error() string {
	what := "write"
	if e.Guard {
		what = "guard"
	}
	return fmt.Sprintf("%s of %s: version is %d, not %d", what, e.Key, e.Have, e.Want)
}

// Is makes it an ErrConflict.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// LimitError says how a transaction breaks the rules every store has. errors.Is(err, ErrTooLarge) if it is its size.
type LimitError struct {
	Reason string
	Large  bool
}

// Error is one sentence.
func (e *LimitError) Error() string { return "transaction refused: " + e.Reason }

// Is makes it an ErrTooLarge where it is one.
func (e *LimitError) Is(target error) bool { return e.Large && target == ErrTooLarge }

// Check finds what no store accepts: too many writes or bytes, no key, a key twice, an ephemeral write without session.
// Bindings call it first.
func (tx Transaction) Check(session bool) error {
	if n := len(tx.Writes) + len(tx.Guards); n > MaxWrites {
		return &LimitError{fmt.Sprintf("%d writes and guards, more than %d", n, MaxWrites), true}
	}
	bytes := 0
	seen := make(map[string]bool, len(tx.Writes))
	for _, w := range tx.Writes {
		switch {
		case w.Key == "":
			return &LimitError{"a write without a key", false}
		case seen[w.Key]:
			return &LimitError{"two writes of " + w.Key, false}
		case w.IfVersion < AnyVersion:
			return &LimitError{fmt.Sprintf("a condition of version %d on %s", w.IfVersion, w.Key), false}
		case w.Ephemeral && !session:
			return fmt.Errorf("%s: %w", w.Key, ErrNoSession)
		}
		seen[w.Key] = true
		bytes += len(w.Key) + len(w.Value)
	}
	if bytes > MaxTxBytes {
		return &LimitError{fmt.Sprintf("%d bytes, more than %d", bytes, MaxTxBytes), true}
	}
	return nil
}

// Put is a transaction of one write: value under key if its version is ifVersion and all guards hold. A nil value deletes.
func Put(ctx context.Context, s Store, key string, value []byte, ifVersion int64, guards ...Guard) (version int64, err error) {
	versions, err := s.Commit(ctx, Transaction{Guards: guards, Writes: []Write{{Key: key, Value: value, IfVersion: ifVersion}}})
	if err != nil {
		return 0, err
	}
	return versions[0], nil
}
