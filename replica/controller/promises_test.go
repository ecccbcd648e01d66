package controller

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/replica"
)

// When a rule ends, who waits is told that surely nothing was done only if that is so. A topic of 250 partitions takes three
// transactions to be made, and four to be deleted, the first of which is the mark.
func TestWhatMayHaveBeenDoneIsNotCalledUndone(t *testing.T) {
	guard := &replica.ConflictError{Key: EpochKey, Want: 1, Have: 2, Guard: true}
	self := &replica.ConflictError{Key: TopicsPrefix + "t"}
	lost := errors.New("no answer")
	create := func(tag uint64) Event {
		lists := make([]ids, 250)
		for i := range lists {
			lists[i] = ids{1}
		}
		return CreateTopic{Tag: tag, Topic: "t", Assignment: lists, ID: [16]byte{1}}
	}
	remove := func(tag uint64) Event { return DeleteTopic{tag, "t"} }
	const undone, unknown = "NOT_CONTROLLER", "REQUEST_TIMED_OUT"
	for _, c := range []struct {
		name   string
		first  Event // before the request, if any
		ask    func(tag uint64) Event
		landed int // transactions that are committed
		err    error
		said   string
	}{
		{"not one is written", nil, create, 0, guard, undone},
		{"the first has no answer", nil, create, 0, lost, unknown},
		{"the first conflicts with itself", nil, create, 0, self, unknown},
		{"the first of three is written", nil, create, 1, guard, unknown},
		{"two of three are written", nil, create, 2, guard, unknown},
		{"the mark is not written", create(9), remove, 3, guard, undone},
		{"the mark has no answer", create(9), remove, 3, lost, unknown},
		{"the mark is written", create(9), remove, 4, guard, unknown},
		{"the mark and a third of the rest are written", create(9), remove, 5, guard, unknown},
		{"it waits for what has no answer", create(9), func(tag uint64) Event { return DeleteTopic{tag, "none"} }, 0, lost, undone},
		{"what is shown waits for what has no answer", create(9), func(tag uint64) Event { return Describe{tag, nil} }, 0, lost, undone},
		{"it waits for what is being made", create(9), func(tag uint64) Event {
			return SetConfig{tag, "t", map[string]string{"retention.ms": "1000"}}
		}, 0, lost, undone},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, Config{}, 1)
			said := map[uint64]string{}
			left := c.landed
			var todo []Event
			do := func(in Event) {
				for todo = append(todo, in); len(todo) > 0; {
					acts := w.core.Step(w.now, todo[0], nil)
					todo = todo[1:]
					for _, a := range acts {
						switch a := a.(type) {
						case Commit:
							if left--; left >= 0 {
								versions, err := w.store.Commit(t.Context(), a.Transaction)
								require.NoError(t, err)
								todo = append(todo, Committed{a.Tag, versions, nil})
							}
						case Reply:
							said[a.Tag] = code(a.Err)
						}
					}
				}
			}
			if c.first != nil {
				do(c.first)
			}
			do(c.ask(1))
			require.Empty(t, said[1])
			do(Committed{Tag: w.core.book.tag, Err: c.err})
			require.Equal(t, c.said, said[1])
			_, rules := w.core.Ruling()
			require.False(t, rules)
		})
	}
}
