package log_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
)

// tempRoot stands for a directory of your own.
func tempRoot() (root string, remove func()) {
	root, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	return root, func() { _ = os.RemoveAll(root) }
}

// memory opens a log on a file system in memory: a test double of the real thing.
func memory(c log.Config) *log.Log {
	d, err := log.OpenDir("memory", log.DirConfig{FS: vfs.Mem()})
	if err != nil {
		panic(err)
	}
	l, err := d.Open(context.Background(), log.TopicPartition{Topic: "orders", Partition: 0}, c)
	if err != nil {
		panic(err)
	}
	return l
}

func ExampleOpen() {
	root, remove := tempRoot()
	defer remove()
	l, err := log.Open(root, log.Config{}) // Kafka's defaults, but durable
	if err != nil {
		panic(err)
	}
	base, err := l.Append(context.Background(), record.Record{Key: []byte("k"), Value: []byte("hello")})
	fmt.Println(l.TopicPartition(), base, err)
	_, err = log.Open(root, log.Config{})
	fmt.Println(errors.Is(err, log.ErrLocked))
	fmt.Println(l.Close())
	// Output:
	// log-0 0 <nil>
	// true
	// <nil>
}

func ExampleLog_Append() {
	l := memory(log.Config{})
	ctx := context.Background()
	base, err := l.Append(ctx,
		record.Record{Key: []byte("a"), Value: []byte("1")},
		record.Record{Key: []byte("b"), Value: []byte("2"), Headers: []record.Header{{Key: "trace", Value: []byte("x")}}},
	)
	fmt.Println(base, err)
	for r, err := range l.Records(ctx, 0) {
		fmt.Println(r.Offset, string(r.Key), string(r.Value), err)
	}
	o := l.Offsets()
	fmt.Println(o.LogEnd, o.Durable, o.HighWatermark)
	// Output:
	// 0 <nil>
	// 0 a 1 <nil>
	// 1 b 2 <nil>
	// 2 2 2
}

func ExampleLog_Follow() {
	l := memory(log.Config{})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	go func() {
		for i := range 3 {
			if _, err := l.Append(ctx, record.Record{Value: fmt.Appendf(nil, "event %d", i)}); err != nil {
				panic(err)
			}
		}
	}()
	for r, err := range l.Follow(ctx, 0) {
		if err != nil {
			panic(err)
		}
		fmt.Println(r.Offset, string(r.Value))
		if r.Offset == 2 {
			break
		}
	}
	// Output:
	// 0 event 0
	// 1 event 1
	// 2 event 2
}

func ExampleLog_Fetch() {
	l := memory(log.Config{})
	ctx := context.Background()
	for range 3 {
		if _, err := l.Append(ctx, record.Record{Value: []byte("x")}, record.Record{Value: []byte("y")}); err != nil {
			panic(err)
		}
	}
	for offset := int64(0); ; {
		f, err := l.Fetch(ctx, offset, log.FetchOptions{MaxBytes: 100}) // one batch at least
		if err != nil {
			panic(err)
		}
		if f.Len() == 0 {
			fmt.Println("end at", offset)
			_ = f.Close()
			break
		}
		next, err := f.NextOffset() // f.WriteTo(conn) would send the bytes
		fmt.Println(offset, "to", next, err)
		offset = next
		_ = f.Close()
	}
	// Output:
	// 0 to 2 <nil>
	// 2 to 4 <nil>
	// 4 to 6 <nil>
	// end at 6
}

func ExampleLog_OffsetForTime() {
	l := memory(log.Config{})
	ctx := context.Background()
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for i := range 4 {
		at := noon.Add(time.Duration(i) * time.Minute)
		if _, err := l.Append(ctx, record.Record{Timestamp: at.UnixMilli(), Value: []byte("x")}); err != nil {
			panic(err)
		}
	}
	at, err := l.OffsetForTime(ctx, noon.Add(90*time.Second))
	fmt.Println(at.Offset, time.UnixMilli(at.Timestamp).UTC().Format(time.TimeOnly), err)
	_, err = l.OffsetForTime(ctx, noon.Add(time.Hour))
	fmt.Println(errors.Is(err, log.ErrNotFound))
	// Output:
	// 2 12:02:00 <nil>
	// true
}

func ExampleOpenReader() {
	root, remove := tempRoot()
	defer remove()
	l, err := log.Open(root, log.Config{})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	if _, err := l.Append(ctx, record.Record{Value: []byte("seen from outside")}); err != nil {
		panic(err)
	}
	// Another process may do this while the writer, or a broker, is at work. Nothing is locked or written.
	r, err := log.OpenReader(filepath.Join(root, "log-0"), log.ReaderOptions{})
	if err != nil {
		panic(err)
	}
	for rec, err := range r.Records(ctx, 0) {
		fmt.Println(rec.Offset, string(rec.Value), err)
	}
	fmt.Println(r.Close(), l.Close())
	// Output:
	// 0 seen from outside <nil>
	// <nil> <nil>
}

// A ctx that ends while an append waits for the device leaves the records in the log.
func ExampleUnconfirmedError() {
	l := memory(log.Config{})
	appendOnce := func(ctx context.Context, r record.Record) error {
		_, err := l.Append(ctx, r)
		if u, ok := errors.AsType[*log.UnconfirmedError](err); ok {
			// It is in the log: appending again would double it. Wait until it is durable.
			return l.Wait(context.Background(), log.MarkDurable, u.Last+1)
		}
		return err // nil, or not in the log
	}
	fmt.Println(appendOnce(context.Background(), record.Record{Value: []byte("once")}))
	// Output: <nil>
}

func ExampleLog_Wait() {
	l := memory(log.Config{})
	done := make(chan error)
	go func() { done <- l.Wait(context.Background(), log.MarkDurable, 1) }() // the first record, which is not there yet
	if _, err := l.Append(context.Background(), record.Record{}); err != nil {
		panic(err)
	}
	fmt.Println(<-done)
	// Output: <nil>
}

// An append that succeeds only if nobody else appended since: optimistic concurrency for event sourcing.
func ExampleLog_AppendWith() {
	l := memory(log.Config{})
	ctx := context.Background()
	seen := l.Offsets().LogEnd // what the decision rests on
	res, err := l.AppendWith(ctx, log.AppendOptions{ExpectedOffset: &seen}, record.Record{Value: []byte("created")})
	fmt.Println(res.Base, res.Last, err)
	_, err = l.AppendWith(ctx, log.AppendOptions{ExpectedOffset: &seen}, record.Record{Value: []byte("created, too")})
	fmt.Println(errors.Is(err, log.ErrUnexpectedOffset)) // read what came, decide anew
	// Output:
	// 0 0 <nil>
	// true
}

// Encoded batches, as a server has them from its clients or an archive from another log, are appended without being unpacked.
func ExampleLog_AppendBatches() {
	l := memory(log.Config{})
	b := record.NewBuilder(record.BuilderOptions{Codec: record.Zstd})
	for _, value := range []string{"one", "two"} {
		if err := b.Add(record.Record{Value: []byte(value)}); err != nil {
			panic(err)
		}
	}
	batch, err := b.Finish()
	if err != nil {
		panic(err)
	}
	res, err := l.AppendBatches(context.Background(), batch.Bytes(), log.AppendOptions{})
	fmt.Println(res.Base, res.Last, err)
	// Output: 0 1 <nil>
}

func ExampleLog_Truncate() {
	l := memory(log.Config{})
	ctx := context.Background()
	if _, err := l.Append(ctx, record.Record{}, record.Record{}, record.Record{}); err != nil {
		panic(err)
	}
	end, err := l.Truncate(ctx, 2) // batches go as a whole
	fmt.Println(end, err)
	// Output: 0 <nil>
}

func ExampleParseConfig() {
	c, err := log.ParseConfig(map[string]string{"segment.bytes": "1073741824", "retention.ms": "-1", "compression.type": "zstd"})
	fmt.Println(c.SegmentBytes, c.RetentionTime == log.Forever, c.CompressionType, err)
	_, err = log.ParseConfig(map[string]string{"segment.bytes": "5"})
	setting, _ := errors.AsType[*log.ConfigError](err)
	fmt.Println(setting.Key, setting.Field)
	// Output:
	// 1073741824 true zstd <nil>
	// segment.bytes SegmentBytes
}

// A broker's own file configures a log root; Kafka's names and ranges hold.
func ExampleParseDirConfig() {
	properties := []byte("node.id=1\nlisteners=PLAINTEXT://:9092\nlog.segment.bytes=67108864\nlog.retention.hours=48\nlog.cleaner.threads=2\n")
	c, err := log.ParseDirConfig(log.ParseProperties(properties))
	fmt.Println(c.Defaults.SegmentBytes, c.Defaults.RetentionTime, c.CleanerThreads, err)
	for _, n := range log.ConfigNotes(log.ParseProperties(properties)) { // what a log alone does not heed
		fmt.Println(n.Key, "-", n.Text)
	}
	_, err = log.ParseDirConfig(map[string]string{"log.cleaner.threads": "two"})
	fmt.Println(err)
	// Output:
	// 67108864 48h0m0s 2 <nil>
	// listeners - a setting of the broker's network
	// log.cleaner.threads - DirConfig.CleanerThreads
	// node.id - replica.Config.Self, and DirConfig.NodeID
	// log: setting log.cleaner.threads = "two": not a whole number of 64 bits
}

func ExampleLog_Producer() {
	l := memory(log.Config{})
	ctx := context.Background()
	p := l.Producer(1, 0) // id and epoch are yours to hand out
	_ = p.Begin()
	_, _ = p.Append(ctx, record.Record{Value: []byte("debit")})
	_, _ = p.Append(ctx, record.Record{Value: []byte("credit")})
	count := func() (n int) {
		for range l.Records(ctx, 0, log.WithIsolation(log.ReadCommitted)) {
			n++
		}
		return n
	}
	fmt.Println(count())
	fmt.Println(p.Commit(ctx))
	fmt.Println(count())
	_, _ = l.Producer(1, 1).Append(ctx, record.Record{Value: []byte("a newer writer took over")})
	_, err := p.Append(ctx, record.Record{Value: []byte("too late")})
	fmt.Println(errors.Is(err, log.ErrFenced))
	// Output:
	// 0
	// <nil>
	// 2
	// true
}

// A writer that was killed goes on behind the last record it got into the log, acknowledged or not.
func ExampleLog_Producers() {
	l := memory(log.Config{})
	ctx := context.Background()
	const id = 7
	start := func() (p *log.Producer, next int) {
		var epoch int16
		for _, known := range l.Producers() {
			if known.ID != id {
				continue
			}
			epoch = known.Epoch + 1 // fences the one before
			for last, err := range l.Records(ctx, known.LastOffset) {
				if err != nil {
					panic(err)
				}
				next, _ = strconv.Atoi(string(last.Value))
				next++
				break
			}
		}
		return l.Producer(id, epoch), next
	}
	p, next := start()
	for ; next < 3; next++ {
		_, _ = p.Append(ctx, record.Record{Value: []byte(strconv.Itoa(next))})
	}
	// the process is killed, and started again
	p, next = start()
	_, err := p.Append(ctx, record.Record{Value: []byte(strconv.Itoa(next))})
	fmt.Println(next, l.Offsets().LogEnd, err)
	// Output: 3 4 <nil>
}

func ExampleLog_OpenTransactions() {
	l := memory(log.Config{})
	ctx := context.Background()
	p := l.Producer(1, 0)
	_ = p.Begin()
	_, _ = p.Append(ctx, record.Record{Timestamp: time.Now().Add(-time.Hour).UnixMilli(), Value: []byte("and then the host died")})
	for _, t := range l.OpenTransactions() {
		if t.Hangs(15 * time.Minute) {
			_, err := l.AbortTransaction(ctx, t)
			fmt.Println("producer", t.ProducerID, "hangs since offset", t.FirstOffset, err)
		}
	}
	fmt.Println(l.Offsets().LastStable)
	// Output:
	// producer 1 hangs since offset 0 <nil>
	// 2
}
