// Command edge is the buffer of a device that measures all the time and has a network some of the time: readings go to the disk
// first and from there to the uplink. The disk it may take is bounded; if the network is away for too long the oldest readings
// go, not the newest. Neither a restart nor a power cut loses or repeats more than what was under way.
//
//	go run ./examples/edge
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
)

const maxBytes = 256 << 10 // for all records together

// Buffer holds readings between the sensor and the uplink, each of which has its own goroutine in a real program.
type Buffer struct {
	root    *log.Dir
	log     *log.Log
	sent    string // file with the offset that the uplink wants next
	Refused int    // readings for which the device had no room
	Lost    int64  // readings that were dropped before they were sent
}

// Open opens the buffer in dir, or on fsys if that is not nil, and recovers it if the power went.
func Open(dir string, fsys vfs.FS) (*Buffer, error) {
	d, err := log.OpenDir(filepath.Join(dir, "readings"), log.DirConfig{FS: fsys})
	if err != nil {
		return nil, err
	}
	l, err := d.Open(context.Background(), log.TopicPartition{Topic: "readings"}, log.Config{
		MaxBytes: maxBytes, WhenFull: log.DropOldest, // the bound holds at every append, not at the next clean-up
		SegmentBytes:  maxBytes / 8, // what goes at a time
		RetentionTime: log.Forever,  // age is no reason to drop a reading
	})
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return &Buffer{root: d, log: l, sent: filepath.Join(dir, "sent")}, nil
}

// Put keeps readings; they are on the device when it returns. That the device is full, by whatever else is on it, must not stop
// the sensor: nothing was appended then, the log is sound, and the next readings are welcome as soon as there is room.
func (b *Buffer) Put(ctx context.Context, readings ...record.Record) error {
	_, err := b.log.Append(ctx, readings...)
	if errors.Is(err, log.ErrNoSpace) {
		b.Refused += len(readings)
		return nil
	}
	return err
}

// Uplink sends everything from where it stopped the last time, then what comes, until ctx ends or send refuses. What was sent is
// noted every so many readings, so a crash in between repeats some: the far side drops those by their offset.
func (b *Buffer) Uplink(ctx context.Context, send func(record.Record) error) error {
	const noteEvery = 100
	next, err := b.resume()
	if err != nil {
		return err
	}
	for r, err := range b.log.Follow(ctx, next, log.WithReset(log.Earliest)) { // if next was dropped: from the oldest there is
		if err == nil {
			b.Lost += r.Offset - next // offsets have no holes here, but for what was dropped
			err = send(r)
		}
		if err != nil {
			return errors.Join(err, b.note(next))
		}
		if next = r.Offset + 1; next%noteEvery == 0 {
			if err := b.note(next); err != nil {
				return err
			}
		}
	}
	return b.note(next)
}

// resume is the offset that was noted last.
func (b *Buffer) resume() (int64, error) {
	text, err := os.ReadFile(b.sent)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
}

// note writes the offset aside and puts it in place, so that there is always a whole one.
func (b *Buffer) note(next int64) error {
	if err := os.WriteFile(b.sent+".new", fmt.Appendln(nil, next), 0o644); err != nil {
		return err
	}
	return os.Rename(b.sent+".new", b.sent)
}

// Close ends the buffer, Uplink too.
func (b *Buffer) Close() error { return b.root.Close() }

func main() {
	if err := show(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "edge:", err)
		os.Exit(1)
	}
}

func show(ctx context.Context, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "partlog-edge-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	for _, day := range []struct {
		name     string
		readings int
		online   bool
	}{{"a good day", 500, true}, {"no network", 1000, false}, {"still none", 9000, false}, {"back again", 500, true}} {
		if err := live(ctx, out, dir, day.name, day.readings, day.online); err != nil {
			return err
		}
	}
	return nil
}

// live is a day of the device, from when it is switched on to when it is switched off.
func live(ctx context.Context, out io.Writer, dir, name string, readings int, online bool) error {
	b, err := Open(dir, nil)
	if err != nil {
		return err
	}
	for i := 0; i < readings; i += 50 {
		if err := b.Put(ctx, measure(50)...); err != nil {
			return errors.Join(err, b.Close())
		}
	}
	sent, end := 0, b.log.Offsets().LogEnd
	if online {
		ctx, sunset := context.WithCancel(ctx) // a real uplink goes on; this one must let the day end
		err = b.Uplink(ctx, func(r record.Record) error {
			if sent++; r.Offset == end-1 {
				sunset()
			}
			return nil
		})
		if sunset(); errors.Is(err, context.Canceled) {
			err = nil
		}
	}
	at := b.log.Offsets()
	fmt.Fprintf(out, "%s: %4d readings; sent %4d, lost %4d; on disk %4d in %3d KiB of %d\n", name, readings, sent, b.Lost, at.LogEnd-at.LogStart, b.log.Stats().Bytes>>10, maxBytes>>10)
	return errors.Join(err, b.Close())
}

// measure makes readings.
func measure(n int) []record.Record {
	all := make([]record.Record, n)
	for i := range all {
		all[i] = record.Record{Key: []byte("temperature"), Value: fmt.Appendf(nil, "%40.2f °C", 20+float64(i%10)/10)}
	}
	return all
}
