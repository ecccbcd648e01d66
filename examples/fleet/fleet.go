// Command fleet opens many partitions in one directory and says what they cost: time, memory, goroutines, descriptors and
// mappings. It creates them, appends to each, stops cleanly, and opens the whole root again.
//
//	go run ./examples/fleet -logs 10000 -nofile 4096
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
)

type options struct {
	logs    int
	nofile  int
	appends int
	workers int
	dir     string
	keep    bool
}

func main() {
	var o options
	flag.IntVar(&o.logs, "logs", 10000, "how many partitions")
	flag.IntVar(&o.nofile, "nofile", 0, "descriptors that this process may have (RLIMIT_NOFILE); 0: leave it")
	flag.IntVar(&o.appends, "appends", 0, "durable appends to random partitions; 0: two for each")
	flag.IntVar(&o.workers, "workers", 64, "goroutines that append, at most an eighth of -nofile: each holds a few descriptors while it is at work")
	flag.StringVar(&o.dir, "dir", "", "the log root, which must not exist yet; empty: a temporary one")
	flag.BoolVar(&o.keep, "keep", false, "leave the root behind")
	flag.Parse()
	if _, err := o.run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(1)
	}
}

// outcome is what a run found, for its test.
type outcome struct {
	idle, busy figures
}

func (o options) run(ctx context.Context, out io.Writer) (found outcome, err error) {
	if o.logs < 1 || o.workers < 1 {
		return found, errors.New("-logs and -workers are 1 or more")
	}
	if o.nofile > 0 {
		if err := limitFiles(uint64(o.nofile)); err != nil {
			return found, fmt.Errorf("-nofile %d: %w", o.nofile, err)
		}
		o.workers = min(o.workers, max(1, o.nofile/8))
	}
	if o.appends == 0 {
		o.appends = 2 * o.logs
	}
	dir, err := o.makeRoot()
	if err != nil {
		return found, err
	}
	if !o.keep {
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}
	fmt.Fprintf(out, "%d partitions in %s, at most %s descriptors for the process\n", o.logs, dir, limitText())
	p := printer{out}
	if err := o.create(ctx, p, dir); err != nil {
		return found, err
	}

	p.head("Opened again after the clean stop")
	d, took, err := reopen(ctx, dir)
	if err != nil {
		return found, err
	}
	p.row("open", took)
	found.idle = measure(d)
	p.figures(found.idle)
	if took, err = timed(d.Close); err != nil {
		return found, err
	}
	p.row("close, nothing written", took)

	p.head(fmt.Sprintf("Durable appends to random partitions, %d at a time", o.workers))
	if d, _, err = reopen(ctx, dir); err != nil {
		return found, err
	}
	if took, err = timed(func() error { return o.appendRandom(ctx, d, record.Record{Value: make([]byte, 100)}) }); err != nil {
		return found, errors.Join(err, d.Close())
	}
	p.rate("appends", o.appends, took)
	found.busy = measure(d)
	p.figures(found.busy)
	if took, err = timed(d.Close); err != nil {
		return found, err
	}
	p.row("close, most written to", took)
	if o.keep {
		fmt.Fprintf(out, "\nleft behind: %s\n", dir)
	}
	return found, nil
}

func (o options) makeRoot() (string, error) {
	if o.dir == "" {
		return os.MkdirTemp("", "partlog-fleet-")
	}
	return o.dir, os.Mkdir(o.dir, 0o755)
}

// create makes the partitions, with one record in each.
func (o options) create(ctx context.Context, p printer, dir string) error {
	p.head("Created, one durable record in each")
	d, err := log.OpenDir(dir, log.DirConfig{})
	if err != nil {
		return err
	}
	took, err := timed(func() error {
		return o.parallel(o.logs, func(i int) error {
			l, err := d.Open(ctx, partition(i), log.Config{})
			if err != nil {
				return err
			}
			_, err = l.Append(ctx, record.Record{Value: []byte("the first one")})
			return err
		})
	})
	if err != nil {
		return errors.Join(err, d.Close())
	}
	p.rate("partitions", o.logs, took)
	p.figures(measure(d))
	took, err = timed(d.Close)
	p.row("close, all written to", took)
	return err
}

// reopen opens the root and every partition in it, as a service does when it starts.
func reopen(ctx context.Context, dir string) (d *log.Dir, took cost, err error) {
	took, err = timed(func() error {
		if d, err = log.OpenDir(dir, log.DirConfig{}); err != nil {
			return err
		}
		if err := d.OpenAll(ctx, log.OpenAllOptions{}); err != nil {
			return errors.Join(err, d.Close())
		}
		return nil
	})
	return d, took, err
}

func (o options) appendRandom(ctx context.Context, d *log.Dir, r record.Record) error {
	return o.parallel(o.appends, func(int) error {
		tp := partition(rand.IntN(o.logs))
		l, ok := d.Get(tp)
		if !ok {
			return fmt.Errorf("%s is not open", tp)
		}
		_, err := l.Append(ctx, r)
		return err
	})
}

// parallel does work for 0 to n-1 on several goroutines, until one fails.
func (o options) parallel(n int, work func(i int) error) error {
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var all sync.WaitGroup
	for range min(o.workers, n) {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(n) && failed.Load() == nil; i = next.Add(1) - 1 {
				if err := work(int(i)); err != nil {
					failed.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	all.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// partition spreads the logs over topics of a hundred partitions.
func partition(i int) log.TopicPartition {
	return log.TopicPartition{Topic: fmt.Sprintf("fleet-%03d", i/100), Partition: int32(i % 100)}
}

// timed also tells what the whole process used of the processors meanwhile: the time alone is that of a busy machine, too.
func timed(do func() error) (cost, error) {
	began, used := time.Now(), processorTime()
	err := do()
	return cost{time.Since(began), processorTime() - used}, err
}
