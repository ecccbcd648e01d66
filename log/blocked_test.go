package log

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// stuck is a call that hangs in the operating system, and what hangs.
type stuck struct {
	name string
	rule vfstest.Rule
	call func(b *bed) error
	root bool // what hangs is a file of the root: whoever must write that too waits, but hears its context
}

var stuckCalls = []stuck{
	{"the write of an append", vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpWrite}, Name: "t-0/*.log"},
		func(b *bed) error { return errOf(b.Append(ctx, record.Record{})) }, false},
	{"the sync of an append", vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpSyncData}, Name: "t-0/*.log"},
		func(b *bed) error { return errOf(b.Append(ctx, record.Record{})) }, false},
	{"the sync of a log", vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpSync}, Name: "t-0/*.log"},
		func(b *bed) error { return b.Sync(ctx) }, false},
	{"the sync of an index", vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpSync}, Name: "t-0/*.index"},
		func(b *bed) error { return b.Sync(ctx) }, false},
	{"the sync of a time index", vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpSync}, Name: "t-0/*.timeindex"},
		func(b *bed) error { return b.Sync(ctx) }, false},
	{"the directory's sync", vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpSyncDir}, Name: "t-0"},
		func(b *bed) error { return b.Sync(ctx) }, false},
	{"the recovery point's sync", vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpSync}, Name: checkpoint.RecoveryPoints + ".tmp"},
		func(b *bed) error { return b.Sync(ctx) }, true},
	{"the sync before a roll", vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpSyncData}, Name: "t-0/*.log"},
		func(b *bed) error { return b.Roll(ctx) }, false},
	{"the creation of a segment", vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpCreate}, Name: "t-0/*.log"},
		func(b *bed) error { return b.Roll(ctx) }, false},
	{"the epoch file's sync", vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpSync}, Name: "t-0/leader-epoch-checkpoint.tmp"},
		func(b *bed) error { return b.AssignEpoch(9) }, false},
	{"the start offset's sync", vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpSync}, Name: checkpoint.LogStarts + ".tmp"},
		func(b *bed) error { return b.DeleteRecords(ctx, 1) }, true},
	{"the sync of a truncation", vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpSync}, Name: "t-0/*.log"},
		func(b *bed) error { return errOf(b.Truncate(ctx, 1)) }, false},
	{"the sync of Log.Close", vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpSync}, Name: "t-0/*.log"},
		func(b *bed) error { return b.Log.Close() }, false},
	{"the creation of a partition", vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpMkdir}, Name: "new-0"},
		func(b *bed) error { return errOf(b.dir.Open(ctx, TopicPartition{"new", 0}, Config{})) }, false},
}

func errOf[T any](_ T, err error) error { return err }

// A blocked system call holds only the call that waits for it: contexts are heard, other logs and readers go on.
func TestABlockedSystemCallHoldsOnlyItsCaller(t *testing.T) {
	for _, s := range stuckCalls {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			fault := vfstest.NewFault(vfs.Mem())
			b := newBedOn(t, fault, Config{})
			other, err := b.dir.Open(ctx, TopicPartition{"other", 0}, Config{})
			require.NoError(t, err)
			for _, l := range []*Log{b.Log, other} {
				for range 3 {
					require.NoError(t, errOf(l.Append(ctx, values(3, 5000)...)))
				}
				require.NoError(t, l.Roll(ctx))
				require.NoError(t, errOf(l.Append(ctx, record.Record{Timestamp: epoch2023 + 5})))
			}
			raw := timed(epoch2023 + 9) // something is unsynced
			require.NoError(t, errOf(b.AppendBatches(ctx, raw, AppendOptions{Durability: Buffered})))

			gate := make(chan struct{})
			open := sync.OnceFunc(func() { close(gate) })
			t.Cleanup(open)
			s.rule.Block = gate
			hits, _ := fault.Add(s.rule)
			ended := make(chan error, 1)
			go func() { ended <- s.call(b) }()
			require.Eventually(t, func() bool { return hits() > 0 }, 5*time.Second, time.Millisecond)
			soon := func(what string, call func(ctx context.Context) error) error {
				t.Helper()
				limited, stop := context.WithTimeout(ctx, 20*time.Millisecond)
				defer stop()
				done := make(chan error, 1)
				go func() { done <- call(limited) }()
				select {
				case err := <-done:
					return err
				case <-time.After(5 * time.Second):
					t.Fatalf("%s hangs, too", what)
					return nil
				}
			}
			for what, call := range map[string]func(ctx context.Context) error{
				"Append":        func(c context.Context) error { return errOf(b.Append(c, record.Record{})) },
				"AppendBatches": func(c context.Context) error { return errOf(b.AppendBatches(c, timed(1), AppendOptions{})) },
				"no batches":    func(c context.Context) error { return errOf(b.AppendBatches(c, nil, AppendOptions{})) },
				"Sync":          func(c context.Context) error { return b.Sync(c) },
				"Roll":          func(c context.Context) error { return b.Roll(c) },
				"Truncate":      func(c context.Context) error { return errOf(b.Truncate(c, 2)) },
				"ResetTo":       func(c context.Context) error { return b.ResetTo(c, 200) },
				"DeleteRecords": func(c context.Context) error { return b.DeleteRecords(c, 2) },
				"Wait":          func(c context.Context) error { return b.Wait(c, MarkDurable, 100) },
				"Records":       func(c context.Context) error { return errOf(offsetsOf(b.Records(c, 9))) },
				"Follow":        func(c context.Context) error { return errOf(offsetsOf(b.Follow(c, 9))) },
				"Fetch":         func(c context.Context) error { return errOf(b.Fetch(c, 9, FetchOptions{})) },
				"looking": func(context.Context) error {
					b.Offsets()
					b.Stats()
					b.SegmentInfos()
					b.Epochs()
					b.EndOfEpoch(0)
					b.dir.Get(TopicPartition{"t", 0})
					b.dir.Logs()
					b.Recovery()
					return b.Err()
				},
				"opening it again": func(c context.Context) error { return errOf(b.dir.Open(c, TopicPartition{"t", 0}, Config{})) },
			} {
				_ = soon(what, call)
			}
			// The other log works as if nothing were.
			require.NoError(t, errOf(other.Append(ctx, record.Record{})))
			require.NoError(t, other.Roll(ctx))
			require.NoError(t, errOf(offsetsOf(other.Records(ctx, 0))))
			if !s.root {
				require.NoError(t, soon("another log's Sync", other.Sync))
				require.NoError(t, soon("another log's truncation", func(c context.Context) error { return errOf(other.Truncate(c, 1)) }))
				require.NoError(t, soon("another log's Close", func(context.Context) error { return other.Close() }))
				require.NoError(t, soon("opening another log", func(c context.Context) error { return errOf(b.dir.Open(c, TopicPartition{"other", 0}, Config{})) }))
			} else {
				_ = soon("another log's Sync", other.Sync)
				_ = soon("another log's truncation", func(c context.Context) error { return errOf(other.Truncate(c, 1)) })
				_ = soon("another log's deletion", func(c context.Context) error { return other.DeleteRecords(c, 1) })
			}
			closed := make(chan error, 1)
			go func() { closed <- b.dir.Close() }()
			select {
			case err := <-closed:
				t.Fatalf("Close did not wait for the running call: %v", err)
			case <-time.After(20 * time.Millisecond):
			}
			open()
			if err := within(t, ended); err != ErrClosed { // it had not begun to change anything
				require.NoError(t, err)
			}
			require.NoError(t, within(t, closed))
			b.open()
			require.True(t, b.Recovery().Clean)
		})
	}
}

func within(t *testing.T, ended <-chan error) error {
	t.Helper()
	select {
	case err := <-ended:
		return err
	case <-time.After(10 * time.Second):
		t.Fatal("hangs")
		return nil
	}
}

// Of appends that wait for the device one makes the sync: its context cannot end that, those of the others are heard.
func TestTheAppendThatMakesTheSyncIsConfirmedThoughItsContextEnded(t *testing.T) {
	fault := vfstest.NewFault(vfs.Mem())
	b := newBedOn(t, fault, Config{})
	gate := make(chan struct{})
	hits, _ := fault.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpSyncData}, Name: "t-0/*.log", Block: gate})
	limited, stop := context.WithCancel(ctx)
	first := make(chan error, 1)
	go func() { first <- errOf(b.Append(limited, record.Record{})) }()
	require.Eventually(t, func() bool { return hits() > 0 }, 5*time.Second, time.Millisecond)
	second := make(chan error, 1)
	go func() { second <- errOf(b.Append(limited, record.Record{})) }()
	require.Eventually(t, func() bool { return b.Offsets().LogEnd == 2 }, 5*time.Second, time.Millisecond)
	stop()
	var unconfirmed *UnconfirmedError
	require.ErrorAs(t, <-second, &unconfirmed)
	require.Equal(t, int64(1), unconfirmed.Base)
	require.Empty(t, first, "it is in the system call")
	close(gate)
	require.NoError(t, <-first)
	require.Equal(t, int64(1), b.Offsets().Durable)
	require.NoError(t, b.Wait(ctx, MarkDurable, 2))
}
