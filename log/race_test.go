package log

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
)

// history remembers under which generation each offset was written: a record's value is "generation/offset", so that a
// reader can tell a record that is where it belongs from one that is not.
func stamped(gen, offset int64) record.Record {
	return record.Record{Value: []byte(fmt.Sprintf("%d/%d", gen, offset))}
}

func parseStamp(r record.Record) (gen, offset int64, err error) {
	g, o, _ := strings.Cut(string(r.Value), "/")
	gen, err = strconv.ParseInt(g, 10, 64)
	if err == nil {
		offset, err = strconv.ParseInt(o, 10, 64)
	}
	return gen, offset, err
}

// B047, B180, B194, D19, invariants R6, R7: readers of every kind beside appends, rolls and truncations. Whatever they get
// is in its place, in order and whole; nobody cries damage; a follower misses nothing and gets nothing twice.
func TestReadersBesideAppendsRollsAndTruncations(t *testing.T) {
	for name, c := range map[string]Config{
		"one segment":   {Durability: Buffered, IndexIntervalBytes: 200},
		"many segments": {Durability: Buffered, SegmentBytes: 4000, IndexIntervalBytes: EveryBatch},
	} {
		t.Run(name, func(t *testing.T) {
			b := diskBed(t)
			require.NoError(t, b.dir.Close())
			b.cfg = c
			b.open()
			stop, cancel := context.WithCancel(ctx)
			var wg sync.WaitGroup
			var reads atomic.Int64
			var failed atomic.Pointer[error]
			fail := func(format string, args ...any) {
				err := fmt.Errorf(format, args...)
				failed.CompareAndSwap(nil, &err)
				cancel()
			}
			for i := range 8 {
				wg.Go(func() { raceReader(stop, b, i, &reads, fail) })
			}
			r, err := OpenReader("t-0", ReaderOptions{FS: b.fs})
			require.NoError(t, err)
			wg.Go(func() { raceOutside(stop, r, &reads, fail) })
			gen := int64(1)
			for end := time.Now().Add(1500 * time.Millisecond); time.Now().Before(end) && stop.Err() == nil; {
				for range 40 {
					o := b.Offsets().LogEnd
					_, err := b.Append(ctx, stamped(gen, o), stamped(gen, o+1), stamped(gen, o+2))
					require.NoError(t, err)
				}
				switch gen % 4 {
				case 0:
					require.NoError(t, b.Roll(ctx))
				case 1, 2:
					_, err := b.Truncate(ctx, b.Offsets().LogEnd-gen%7*15)
					require.NoError(t, err)
				default:
					_, err := b.Truncate(ctx, b.Offsets().LogEnd/2)
					require.NoError(t, err)
				}
				gen++
			}
			cancel()
			wg.Wait()
			if err := failed.Load(); err != nil {
				t.Fatal(*err)
			}
			require.NoError(t, r.Close())
			require.Greater(t, reads.Load(), int64(1000))
			require.Zero(t, b.Stats().Pinned)
			for _, s := range b.SegmentInfos() {
				require.Zero(t, s.Pins)
			}
		})
	}
}

// raceReader reads in one of four ways until stop.
func raceReader(stop context.Context, b *bed, kind int, reads *atomic.Int64, fail func(string, ...any)) {
	isolation := []Isolation{ReadUncommitted, LogEnd}[kind/4]
	for stop.Err() == nil {
		o := b.Offsets()
		from := o.LogStart + (o.LogEnd-o.LogStart)*int64(kind%3)/3
		var err error
		switch kind % 4 {
		case 0:
			err = inPlace(b.Records(stop, from, WithIsolation(isolation)), from, reads, fail)
		case 1:
			err = inPlace(b.Follow(stop, from, WithIsolation(isolation)), from, reads, fail)
		case 2:
			err = raceFetch(stop, b, from, isolation, reads, fail)
		case 3:
			_, err = b.OffsetForTime(stop, time.UnixMilli(epoch2023))
			if errors.Is(err, ErrNotFound) {
				err = nil
			}
			reads.Add(1)
		}
		if err != nil && !errors.Is(err, ErrOffsetOutOfRange) && !errors.Is(err, ErrTruncated) && !errors.Is(err, context.Canceled) {
			fail("kind %d: %v", kind, err)
			return
		}
	}
}

// inPlace drains an iterator and checks that each record follows the one before and is where it was written.
func inPlace(seq func(func(record.Record, error) bool), from int64, reads *atomic.Int64, fail func(string, ...any)) error {
	next, last := from, int64(0)
	for r, err := range seq {
		if err != nil {
			return err
		}
		gen, offset, err := parseStamp(r)
		switch {
		case err != nil:
			fail("offset %d: %v", r.Offset, err)
		case r.Offset != next || offset != next:
			fail("wanted offset %d, got %d stamped %d", next, r.Offset, offset)
		case gen < last:
			fail("offset %d of generation %d after generation %d", r.Offset, gen, last)
		}
		if err != nil || r.Offset != next || gen < last {
			return nil
		}
		next, last = next+1, gen
		reads.Add(1)
	}
	return nil
}

func raceFetch(stop context.Context, b *bed, from int64, isolation Isolation, reads *atomic.Int64, fail func(string, ...any)) error {
	f, err := b.Fetch(stop, from, FetchOptions{Isolation: isolation, MaxBytes: 2000, MinBytes: 1, MaxWait: time.Millisecond})
	if err != nil {
		return err
	}
	defer f.Close()
	return inPlace(f.Records(), from, reads, fail)
}

// raceOutside reads the folder as another process does, where a truncation can only be told by what is in the files.
func raceOutside(stop context.Context, r *Reader, reads *atomic.Int64, fail func(string, ...any)) {
	for stop.Err() == nil {
		for got, err := range r.Records(stop, 0) {
			if err != nil {
				if !errors.Is(err, ErrOffsetOutOfRange) && !errors.Is(err, context.Canceled) {
					fail("from outside: %v", err)
				}
				break
			}
			if _, offset, err := parseStamp(got); err != nil || offset != got.Offset {
				fail("from outside: offset %d holds %q", got.Offset, got.Value)
				return
			}
			reads.Add(1)
		}
	}
}

// B183, B188: every call beside every other, and Close in between.
func TestEveryCallBesideEveryOther(t *testing.T) {
	for round := range 8 {
		b := newBed(t, Config{SegmentBytes: 2000, Visibility: []Visibility{WhenAcknowledged, External}[round%2]})
		var wg sync.WaitGroup
		calls := []func() error{
			func() error { _, err := b.Append(ctx, record.Record{}); return err },
			func() error {
				_, err := b.AppendBatches(ctx, batchOf(0, -1, record.None, "x"), AppendOptions{Durability: Buffered})
				return err
			},
			func() error { _, err := offsetsOf(b.Records(ctx, b.Offsets().LogStart)); return err },
			func() error { return b.Roll(ctx) },
			func() error { return b.Sync(ctx) },
			func() error { _, err := b.Truncate(ctx, b.Offsets().LogEnd-3); return err },
			func() error { return b.DeleteRecords(ctx, b.Offsets().HighWatermark-5) },
			func() error { return b.AssignEpoch(b.Offsets().LeaderEpoch + 1) },
			func() error { _, err := b.OffsetOfMaxTime(ctx); return err },
			func() error {
				c, cancel := context.WithTimeout(ctx, time.Millisecond)
				defer cancel()
				return b.Wait(c, MarkDurable, b.Offsets().LogEnd+1)
			},
			func() error { _ = b.Stats(); _ = b.SegmentInfos(); _ = b.Epochs(); return b.Err() },
			func() error { _, err := b.SetHighWatermark(b.Offsets().LogEnd); return err },
			func() error {
				f, err := b.Fetch(ctx, b.Offsets().LogStart, FetchOptions{MinBytes: 500, MaxWait: time.Millisecond})
				if err == nil {
					err = f.Close()
				}
				return err
			},
		}
		for i, call := range calls {
			wg.Go(func() {
				for range 200 {
					switch err := call(); {
					case err == nil, errors.Is(err, ErrOffsetOutOfRange), errors.Is(err, ErrTruncated), errors.Is(err, ErrNotFound),
						errors.Is(err, ErrVisibility), errors.Is(err, context.DeadlineExceeded), errors.Is(err, ErrFenced):
					case errors.Is(err, ErrClosed):
						return
					default:
						t.Errorf("call %d: %v", i, err)
						return
					}
					o := b.Offsets()
					if o.LogStart > o.LastStable || o.LastStable > o.HighWatermark || o.HighWatermark > o.LogEnd || o.Durable > o.LogEnd {
						t.Errorf("%+v", o)
					}
				}
			})
		}
		time.Sleep(time.Duration(round) * 5 * time.Millisecond)
		done := make(chan error, 1)
		go func() { done <- b.dir.Close() }()
		select {
		case err := <-done:
			require.NoError(t, err)
		case <-time.After(10 * time.Second):
			t.Fatal("Close hangs")
		}
		wg.Wait()
		require.Zero(t, b.Stats().Pinned)
	}
}
