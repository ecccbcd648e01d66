// Command table is a key-value table that lives in this process and keeps itself in a compacted log: what Kafka Streams calls a
// KTable, and brokers their __consumer_offsets. Every change is a record, the table is what the last record of each key says, and
// compaction throws away the others. There is no snapshot: to open is to read the log.
//
//	go run ./examples/table
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
)

// Table is safe for concurrent use.
type Table struct {
	root *log.Dir // compacts in the background what has become more than half stale
	log  *log.Log

	mu   sync.RWMutex
	rows map[string]row
}

// row is what a key has since offset; a nil value says that it was deleted. The row stays then: a Put that was appended before
// the deletion may come later to this map.
type row struct {
	offset int64
	value  []byte
}

// Open makes a table in dir, or reads back the one that is there.
func Open(ctx context.Context, dir string) (*Table, error) {
	root, err := log.OpenDir(dir, log.DirConfig{Defaults: log.Config{
		Cleanup:      log.Compact, // a record must have a key then
		SegmentBytes: 64 << 10,    // small for show: only what is not being written any more can be compacted
	}})
	if err != nil {
		return nil, err
	}
	l, err := root.Open(ctx, log.TopicPartition{Topic: "table"}, log.Config{})
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	t := &Table{root: root, log: l, rows: map[string]row{}}
	for r, err := range l.Records(ctx, l.Offsets().LogStart) {
		if err != nil {
			return nil, errors.Join(err, root.Close())
		}
		t.apply(r.Clone()) // r is a view that the next step overwrites
	}
	return t, nil
}

// apply takes in a record unless the row is newer. Appends from several goroutines may get here in any order; the log's
// order, which every later Open sees, is the one that counts.
func (t *Table) apply(r record.Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if old, ok := t.rows[string(r.Key)]; !ok || r.Offset > old.offset {
		t.rows[string(r.Key)] = row{r.Offset, r.Value}
	}
}

// Put sets key to value. It is on the device when Put returns: goroutines that put together share one fsync.
func (t *Table) Put(ctx context.Context, key string, value []byte) error {
	if value == nil {
		value = []byte{} // nil would be a deletion
	}
	return t.write(ctx, record.Record{Key: []byte(key), Value: value})
}

// Delete removes key by a record without a value, a tombstone. Compaction keeps tombstones for a day (DeleteRetention), so that
// whoever follows the log sees them, and then drops these too.
func (t *Table) Delete(ctx context.Context, key string) error {
	return t.write(ctx, record.Record{Key: []byte(key)})
}

func (t *Table) write(ctx context.Context, r record.Record) (err error) {
	if r.Offset, err = t.log.Append(ctx, r); err != nil {
		return err // the table is as it was: an error means that it is not in the log
	}
	t.apply(r)
	return nil
}

// Get returns a key's value.
func (t *Table) Get(key string) (value []byte, ok bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	r := t.rows[key]
	return r.value, r.value != nil
}

// Close ends the table; a broker could open its folder now.
func (t *Table) Close() error { return t.root.Close() }

func main() {
	if err := show(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "table:", err)
		os.Exit(1)
	}
}

func show(ctx context.Context, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "partlog-table-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	t, err := Open(ctx, dir)
	if err != nil {
		return err
	}
	if err := churn(ctx, t); err != nil {
		return errors.Join(err, t.Close())
	}
	before := t.log.Stats()
	fmt.Fprintf(out, "2000 changes of 20 keys: the log has %d KiB in %d segments\n", before.Bytes>>10, before.Segments)
	err = t.root.RunOnce(ctx, time.Now().Add(time.Minute)) // what the background would have done a minute from now
	after := t.log.Stats()
	fmt.Fprintf(out, "compacted: %d records dropped, %d KiB left\n", after.Cleaner.Dropped, after.Bytes>>10)
	if err := errors.Join(err, t.Close()); err != nil {
		return err
	}

	if t, err = Open(ctx, dir); err != nil { // as the next run of the program would
		return err
	}
	five, _ := t.Get("sensor-5")
	_, found := t.Get("sensor-7")
	fmt.Fprintf(out, "opened again from %d records: sensor-5 is %.8q, sensor-7 is there: %t\n", len(t.rows), five, found)
	return t.Close()
}

// churn changes the same keys over and over, from twenty goroutines, and deletes one.
func churn(ctx context.Context, t *Table) error {
	errs := make(chan error)
	for k := range 20 {
		go func() {
			var err error
			for i := 0; i < 100 && err == nil; i++ {
				err = t.Put(ctx, fmt.Sprintf("sensor-%d", k), fmt.Appendf(nil, "value %02d of %d%256s", i, k, ""))
			}
			errs <- err
		}()
	}
	var err error
	for range 20 {
		err = errors.Join(err, <-errs)
	}
	return errors.Join(err, t.Delete(ctx, "sensor-7"))
}
