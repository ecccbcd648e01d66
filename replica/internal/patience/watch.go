package patience

import (
	"context"
	"iter"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/partlog/partlog/replica"
)

// A watch is renewed after the first of these, and later if there is much to be told anew: the store is asked for no more than a
// hundred keys a second for that.
const (
	renewal     = time.Minute
	renewalEach = 10 * time.Millisecond
)

// Watch begins the watch of the store anew now and then, and tells once more what there is: a change that was not told, because
// the store, or what lies between, has lost it, is found in a few minutes. What has vanished meanwhile is told as deleted. While
// nothing is lost the caller sees values again that it knows. A value that comes behind a later one of its key is left out.
func (s store) Watch(ctx context.Context, prefix string) iter.Seq2[replica.Versioned, error] {
	return func(yield func(replica.Versioned, error) bool) {
		w := watch{store: s, prefix: prefix, yield: yield}
		for w.round(ctx) {
		}
	}
}

type watch struct {
	store
	prefix string
	yield  func(replica.Versioned, error) bool
	told   map[string]told // by key, of this round; nil before the first is complete
}

// told is what was told last of a key.
type told struct {
	created, version int64
	gone             bool
}

// round is one watch of the store; false if the caller has had enough, or an error.
func (w *watch) round(ctx context.Context) (more bool) {
	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(w.limit, func() { cancel(ErrNoAnswer) })
	defer func() { timer.Stop() }()
	seen, current := map[string]told{}, false
	for v, err := range w.under.Watch(inner, w.prefix) {
		switch {
		case err != nil && ctx.Err() == nil && context.Cause(inner) == errRenew:
			return true
		case err != nil:
			if ctx.Err() == nil && context.Cause(inner) == ErrNoAnswer {
				err = ErrNoAnswer
			}
			w.yield(replica.Versioned{}, err)
			return false
		case v.Key == "" && current:
		case v.Key == "":
			timer.Stop()
			if !w.settle(seen) {
				return false
			}
			current = true
			timer = time.AfterFunc(renewal+time.Duration(len(seen))*renewalEach, func() { cancel(errRenew) })
		case !note(seen, v):
		default:
			if !current {
				timer.Stop() // how long the caller takes is not the store's fault
			}
			if !w.yield(v, nil) {
				return false
			}
			if !current {
				timer.Reset(w.limit)
			}
		}
	}
	return ctx.Err() == nil && context.Cause(inner) == errRenew
}

// note takes down what is going to be told; false if that, or a later value, was.
func note(seen map[string]told, v replica.Versioned) bool {
	last, known := seen[v.Key]
	if v.Value == nil {
		last.version, last.gone = math.MaxInt64, true
		seen[v.Key] = last
		return true
	}
	if known && (v.Created < last.created || v.Created == last.created && v.Version <= last.version) {
		return false
	}
	seen[v.Key] = told{created: v.Created, version: v.Version}
	return true
}

// settle ends the beginning of a round: what there is has been told.
func (w *watch) settle(seen map[string]told) (more bool) {
	first := w.told == nil
	for _, key := range slices.Sorted(maps.Keys(w.told)) {
		if _, there := seen[key]; !there && !w.told[key].gone && !w.yield(replica.Versioned{Key: key}, nil) {
			return false
		}
	}
	w.told = seen
	return !first || w.yield(replica.Versioned{}, nil)
}
