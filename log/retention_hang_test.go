package log

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// deletion is something that deletes records, or files of records, of a log that others use.
type deletion struct {
	name   string
	config Config
	fill   func(b *bed)
	call   func(b *bed) error
	// own says of a call that whoever appends may wait for it: it makes a segment, as a roll of theirs would.
	own func(op vfstest.Op) bool
}

func never(vfstest.Op) bool { return false }

// withProducers makes n closed segments that may go, with producers, an aborted transaction and epochs in them, whose snapshots
// are not written yet, and one that stays.
func withProducers(n int) func(b *bed) {
	return func(b *bed) {
		for i := range n {
			require.NoError(b.t, b.AssignEpoch(int32(i)))
			b.mustSend(record.Producer{ID: 7, BaseSequence: int32(5 * i)}, 5)
			if i == 1 {
				p := b.Producer(8, 0)
				require.NoError(b.t, p.Begin())
				require.NoError(b.t, errOf(p.Append(ctx, record.Record{Value: []byte("aborted")})))
				require.NoError(b.t, p.Abort(ctx))
			}
			require.NoError(b.t, b.Roll(ctx))
		}
		b.clock.advance(time.Hour)
		b.add("stays")
	}
}

func retainOnce(b *bed) error { return errOf(b.Retain(ctx)) }

var deletions = []deletion{
	{"retention of some", Config{RetentionTime: time.Minute}, withProducers(3), retainOnce, never},
	{"retention of many", Config{RetentionTime: time.Minute}, withProducers(40), retainOnce, never},
	{"retention of a buffered log", Config{RetentionTime: time.Minute, Durability: Buffered}, withProducers(6), retainOnce, never},
	{"retention without a delay", Config{RetentionTime: time.Minute, FileDeleteDelay: Immediately}, withProducers(6), retainOnce, never},
	{"retention of what was deleted", Config{RetentionTime: Forever}, func(b *bed) {
		withProducers(6)(b)
		require.NoError(b.t, b.DeleteRecords(ctx, 22))
	}, retainOnce, never},
	{"retention of all", Config{RetentionTime: time.Minute}, func(b *bed) {
		withProducers(6)(b)
		b.clock.advance(time.Hour)
	}, retainOnce, func(op vfstest.Op) bool {
		return strings.Contains(op.Name, segment.FileName(33, "")) || strings.Contains(op.Name, segment.FileName(32, "")) && op.Kind != vfstest.OpRename
	}},
	{"the deletion of records", Config{RetentionTime: Forever}, withProducers(3), func(b *bed) error { return b.DeleteRecords(ctx, 8) }, never},
	{"a leader's log start", Config{RetentionTime: Forever, Cleanup: NoCleanup}, withProducers(3), func(b *bed) error { return b.FollowLogStart(ctx, 8) }, never},
	{"the deletion of another log", Config{RetentionTime: Forever}, withProducers(3), func(b *bed) error {
		return b.dir.Delete(ctx, TopicPartition{"other", 0})
	}, never},
	{"the removal of another log", Config{RetentionTime: Forever, FileDeleteDelay: Immediately}, withProducers(3), func(b *bed) error {
		if err := b.dir.Delete(ctx, TopicPartition{"other", 0}); err != nil {
			return err
		}
		return b.dir.RunOnce(ctx, b.clock.now().Add(time.Minute)) // which also tends the log that is appended to
	}, func(op vfstest.Op) bool { return strings.HasPrefix(op.Name, "t-0") }},
}

// newDeletion opens a log that d deletes from, beside another one.
func newDeletion(t *testing.T, d *deletion) (b *bed, disk *vfstest.Fault) {
	disk = vfstest.NewFault(vfs.Mem())
	b = newBedOn(t, disk, d.config)
	other, err := b.dir.Open(ctx, TopicPartition{"other", 0}, d.config)
	require.NoError(t, err)
	require.NoError(t, errOf(other.Append(ctx, record.Record{Value: []byte("goes")})))
	require.NoError(t, other.Roll(ctx))
	d.fill(b)
	require.NotEmpty(t, b.readAll(b.Offsets().LogStart))
	return b, disk
}

// steps lists the calls that a deletion makes.
func (d *deletion) steps(t *testing.T) (steps []vfstest.Op) {
	b, disk := newDeletion(t, d)
	disk.Add(vfstest.Rule{Times: vfstest.Always, Hook: func(op vfstest.Op) error {
		steps = append(steps, op)
		return nil
	}})
	require.NoError(t, d.call(b))
	disk.Clear()
	return steps
}

// Appends, buffered and durable, rolls and reads go on while a deletion hangs at any of its calls, and what they did is there
// behind it, and after a crash at that moment.
//
// Report: B185
func TestAppendsAndReadsGoOnWhileADeletionHangs(t *testing.T) {
	for _, d := range deletions {
		t.Run(d.name, func(t *testing.T) {
			steps := d.steps(t)
			require.NotEmpty(t, steps)
			for n, step := range steps {
				epochs := strings.Contains(step.Name+steps[max(0, n-1)].Name, checkpoint.LeaderEpochs) // the directory is synced behind it
				if !d.own(step) && (n < 40 || n%17 == 0 || n > len(steps)-15) && (n%5 == 0 || !testing.Short()) {
					t.Run(fmt.Sprint(n, " ", step), func(t *testing.T) { hangIn(t, &d, n, epochs) })
				}
			}
		})
	}
}

// hangIn hangs in the call n. A new epoch waits for who writes the epochs.
func hangIn(t *testing.T, d *deletion, n int, epochs bool) {
	t.Parallel()
	b, disk := newDeletion(t, d)
	gate, reached := make(chan struct{}), make(chan struct{})
	goOn := sync.OnceFunc(func() { close(gate) })
	t.Cleanup(goOn)
	_, remove := disk.Add(vfstest.Rule{Nth: n + 1, Hook: func(vfstest.Op) error {
		close(reached)
		<-gate
		return nil
	}})
	end := b.Offsets().LogEnd
	ended := make(chan error, 1)
	go func() { ended <- d.call(b) }()
	select {
	case <-reached:
	case err := <-ended:
		t.Fatalf("it made no such call: %v", err)
	}
	var want []int64
	for i := range int64(3) {
		for _, mode := range []Durability{Buffered, Durable} {
			require.NoError(t, soon(t, "an append", func() error {
				res, err := b.AppendBatches(ctx, timed(b.clock.now().UnixMilli()), AppendOptions{Durability: mode})
				want = append(want, res.Base)
				return err
			}))
		}
		if i == 1 {
			require.NoError(t, soon(t, "a roll", func() error { return b.Roll(ctx) }))
			if !epochs {
				require.NoError(t, soon(t, "a new epoch", func() error { return b.AssignEpoch(1000) }))
			}
		}
		require.NoError(t, soon(t, "reading what was appended", func() error {
			require.Equal(t, want, b.readAll(end))
			return nil
		}))
	}
	require.NoError(t, soon(t, "a look", func() error {
		b.Offsets()
		b.Epochs()
		return b.Err()
	}))
	crashed := &bed{t: t, fs: vfs.Overlay(disk), cfg: b.cfg, clock: b.clock}
	crashed.open()
	require.Equal(t, want, crashed.readAll(end))

	goOn()
	require.NoError(t, within(t, ended))
	remove()
	require.Equal(t, want, b.readAll(end))
	b.silent()
	o, all := b.Offsets(), b.readAll(b.Offsets().LogStart)
	b.reopen()
	require.Equal(t, o.LogStart, b.Offsets().LogStart)
	require.Equal(t, all, b.readAll(o.LogStart))
	if !strings.Contains(d.name, "another log") { // which leaves its folder for a while
		b.silentAtRest()
		b.open()
	}
}

// Who changes the log's start or its end waits for a deletion that hangs, under its own context.
func TestWhoNeedsTheLogStartWaitsForADeletionUnderItsContext(t *testing.T) {
	for _, d := range deletions[:2] {
		for n, step := range d.steps(t) {
			if step.Kind != vfstest.OpSyncDir && step.Kind != vfstest.OpSync || n > 100 || strings.Contains(step.Name, ".txnindex") { // a backup syncs that itself
				continue
			}
			t.Run(fmt.Sprint(d.name, ": ", n, " ", step), func(t *testing.T) {
				b, disk := newDeletion(t, &d)
				gate, reached := make(chan struct{}), make(chan struct{})
				goOn := sync.OnceFunc(func() { close(gate) })
				t.Cleanup(goOn)
				disk.Add(vfstest.Rule{Nth: n + 1, Hook: func(vfstest.Op) error {
					close(reached)
					<-gate
					return nil
				}})
				ended := make(chan error, 1)
				go func() { ended <- d.call(b) }()
				<-reached
				limited, stop := context.WithTimeout(ctx, 5*time.Millisecond)
				defer stop()
				end := b.Offsets().LogEnd
				for what, call := range map[string]func() error{
					"a truncation":     func() error { return errOf(b.Truncate(limited, end-1)) },
					"a reset":          func() error { return b.ResetTo(limited, 1000) },
					"a deletion":       func() error { return b.dir.Delete(limited, b.TopicPartition()) },
					"more retention":   func() error { return errOf(b.Retain(limited)) },
					"a backup":         func() error { return errOf(b.Backup(limited, "backup", BackupOptions{FS: vfs.Mem()})) },
					"deleting records": func() error { return b.DeleteRecords(limited, end) },
				} {
					err := soon(t, what, call)
					if what != "deleting records" { // it waits only for who writes the checkpoint
						require.ErrorIs(t, err, context.DeadlineExceeded, what)
					}
				}
				require.NoError(t, b.Err())
				goOn()
				require.NoError(t, within(t, ended))
				require.NoError(t, errOf(b.Truncate(ctx, end-1)))
			})
		}
	}
}
