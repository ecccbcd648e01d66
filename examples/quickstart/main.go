// Command quickstart does the library's main job twice, in temporary folders: with a partition that a Kafka 4.3 broker
// wrote (it ships in broker/), and with a log of its own.
//
//	go run ./examples/quickstart
package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
)

// broker is a log root exactly as a cleanly stopped broker left it: checkpoints, and the partition codec-mixed-0 with
// batches of every codec.
//
//go:embed all:broker
var broker embed.FS

func main() {
	if err := quickstart(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

func quickstart(ctx context.Context, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "partlog-quickstart-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	fmt.Fprintln(out, "1. A folder that a Kafka broker wrote")
	files, err := fs.Sub(broker, "broker")
	if err != nil {
		return err
	}
	root := filepath.Join(dir, "broker")
	if err := os.CopyFS(root, files); err != nil {
		return err
	}
	base, err := takeOver(ctx, out, root)
	if err != nil {
		return err
	}
	if err := goOn(ctx, out, root, base); err != nil {
		return err
	}

	fmt.Fprintln(out, "\n2. A log of our own")
	return ownLog(ctx, out, filepath.Join(dir, "own"))
}

// takeOver opens the broker's folder, reads its last records and appends behind them.
func takeOver(ctx context.Context, out io.Writer, root string) (base int64, err error) {
	l, err := log.Open(root, log.Config{}) // takes the root's lock, as a broker does
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()

	at := l.Offsets()
	fmt.Fprintf(out, "   %s holds offsets %d to %d in %d segments, leader epoch %d; the broker stopped cleanly: %t; its last:\n",
		l.TopicPartition(), at.LogStart, at.LogEnd-1, len(l.SegmentInfos()), at.LeaderEpoch, l.Recovery().Clean)
	if err := show(ctx, out, l, at.LogEnd-2); err != nil {
		return 0, err
	}
	base, err = l.Append(ctx,
		record.Record{Key: []byte("key-1"), Value: []byte("written by a Go program")},
		record.Record{Key: []byte("key-2"), Headers: []record.Header{{Key: "reason", Value: []byte("a null value is a tombstone")}}})
	if err != nil {
		return 0, err
	}
	fmt.Fprintf(out, "   appended two records at %d, then closed; a broker could open the folder now\n", base)
	return base, nil
}

// goOn opens the folder again, as any later run or broker would.
func goOn(ctx context.Context, out io.Writer, root string, base int64) error {
	l, err := log.Open(root, log.Config{})
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "   opened again, where the broker's records end and ours begin:")
	return errors.Join(show(ctx, out, l, base-1), l.Close())
}

// ownLog makes a log, follows it while it grows, and finds a record by its time.
func ownLog(ctx context.Context, out io.Writer, root string) (err error) {
	l, err := log.Open(root, log.Config{SegmentBytes: 64 << 20, CompressionType: "zstd"}) // zero fields are Kafka's defaults
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	seen := make(chan string, 3)
	go func() { // a reader at its own pace: it waits for what comes
		defer close(seen)
		for r, err := range l.Follow(ctx, 0) {
			if err != nil {
				return // stop, or the log was closed
			}
			seen <- fmt.Sprintf("%d %s", r.Offset, r.Value)
		}
	}()

	start := time.Now().Truncate(time.Millisecond).Add(-time.Minute)
	for i, word := range []string{"one", "two", "three"} {
		stamp := start.Add(time.Duration(i) * time.Second).UnixMilli()
		offset, err := l.Append(ctx, record.Record{Timestamp: stamp, Value: []byte(word)}) // returns once it is on the device
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "   durable at %d; the follower got %q\n", offset, <-seen)
	}

	found, err := l.OffsetForTime(ctx, start.Add(500*time.Millisecond))
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "   half a second after the first record, the next one is at offset %d\n", found.Offset)
	return nil
}

// show prints the records from an offset to the end.
func show(ctx context.Context, out io.Writer, l *log.Log, from int64) error {
	for r, err := range l.Records(ctx, from) {
		if err != nil {
			return err
		}
		value := "null"
		if r.Value != nil {
			value = fmt.Sprintf("%.40q", r.Value)
		}
		fmt.Fprintf(out, "     %d  %s  %s = %s\n", r.Offset, r.Time().UTC().Format(time.DateTime), r.Key, value)
	}
	return nil
}
