package log

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/partlog/partlog/record"
)

// The calls of a roots world. Each is a step, or several; on a partition that is not there it is nothing.

func (w *roots) open() error {
	return w.step("open", func() error {
		for _, name := range rootNames {
			if w.dirs[name] != nil {
				continue
			}
			d, err := OpenDir(name, DirConfig{FS: w.root(name), Manual: true, SyncParallelism: 1, Now: w.clock.now, InitialDelay: Immediately})
			if err != nil {
				return err
			}
			w.dirs[name] = d
		}
		for tp, f := range w.now {
			if _, err := w.dirs[f.root].Open(ctx, tp, rootsConfig(tp, false)); err != nil {
				return err
			}
		}
		return nil
	})
}

// close stops both roots. What they hold is durable then.
func (w *roots) close() error {
	return w.step("close", func() error {
		held := lives{}
		for tp, f := range w.now {
			g := *f
			g.floor = g.end
			held[tp] = &g
		}
		for _, name := range rootNames {
			if err := w.dirs[name].Close(); err != nil {
				return err
			}
		}
		w.now, w.dirs = held, map[string]*Dir{}
		return nil
	})
}

func (w *roots) closeLog(tp TopicPartition) error {
	l := w.log(tp)
	if l == nil {
		return nil
	}
	err := w.step("close "+tp.String()+" and open it", func() error {
		if err := l.Close(); err != nil {
			return err
		}
		_, d := w.dirOf(tp)
		_, err := d.Open(ctx, tp, rootsConfig(tp, false))
		return err
	})
	return err
}

func (w *roots) create(tp TopicPartition) error {
	if w.now[tp] != nil {
		return nil
	}
	return w.step("create "+tp.String(), func() error {
		l, err := w.dirs["a"].Open(ctx, tp, rootsConfig(tp, false))
		if err == nil && l.Offsets() != (Offsets{LeaderEpoch: -1}) {
			err = fmt.Errorf("a new partition has %+v", l.Offsets())
		}
		return err
	})
}

// put appends one batch.
func (w *roots) put(tp TopicPartition, keys ...string) error {
	l := w.log(tp)
	if l == nil {
		return nil
	}
	return w.step(fmt.Sprint("append to ", tp, keys), func() error {
		recs := w.records(keys)
		base, err := l.Append(ctx, recs...)
		w.wrote(tp, base, recs)
		return err
	})
}

// abort appends a record in a transaction and aborts it.
func (w *roots) abort(tp TopicPartition, key string) error {
	l := w.log(tp)
	if l == nil {
		return nil
	}
	return w.step("an aborted transaction in "+tp.String(), func() error {
		p := l.Producer(77, 0)
		if known, ok, _ := p.entry(ctx); ok {
			p = l.Producer(77, known.Epoch)
		}
		w.serial++
		recs := []record.Record{{Timestamp: w.clock.ms.Load(), Key: []byte(key), Value: fmt.Append(nil, aborted, w.serial)}}
		if err := p.Begin(); err != nil {
			return err
		}
		base, err := p.Append(ctx, recs...)
		w.wrote(tp, base, recs)
		return errors.Join(err, p.Abort(ctx))
	})
}

// roll begins a new segment, in a log that has something in its active one.
func (w *roots) roll(tp TopicPartition) error {
	l := w.log(tp)
	if l == nil {
		return nil
	}
	return w.step("roll "+tp.String(), func() error { return l.Roll(ctx) })
}

func (w *roots) compact(tp TopicPartition) error {
	l := w.log(tp)
	if l == nil {
		return nil
	}
	err := w.step("compact "+tp.String(), func() error {
		_, err := l.Compact(ctx, CompactOptions{Force: true})
		return err
	})
	if err != nil {
		return err
	}
	w.stamp(tp)
	last := map[string]int64{}
	recs := w.now[tp].within(0, l.segments().active().Base())
	for _, r := range recs {
		last[r.key] = r.offset
	}
	for _, r := range recs {
		if last[r.key] != r.offset {
			return fmt.Errorf("a compaction of %v left %v, which has a later one", tp, r)
		}
	}
	return nil
}

func (w *roots) retain(tp TopicPartition) error {
	l := w.log(tp)
	if l == nil {
		return nil
	}
	return w.step("retain "+tp.String(), func() error {
		_, err := l.Retain(ctx)
		return err
	})
}

// fill appends until the oldest segments must go.
func (w *roots) fill(tp TopicPartition) error {
	for range 20 {
		l := w.log(tp)
		if l == nil || l.cfg().MaxBytes == 0 {
			return nil
		}
		start := l.Offsets().LogStart
		if err := w.put(tp, "f", "g"); err != nil {
			return err
		}
		if l.Offsets().LogStart > start {
			return nil
		}
	}
	return errors.New("the log is not bounded")
}

// forget deletes records up to so many from the end.
func (w *roots) forget(tp TopicPartition, back int64) error {
	l := w.log(tp)
	if l == nil || !l.cfg().Cleanup.Has(Delete) {
		return nil
	}
	return w.step("delete records of "+tp.String(), func() error {
		return l.DeleteRecords(ctx, max(l.Offsets().HighWatermark-back, l.Offsets().LogStart))
	})
}

func (w *roots) truncate(tp TopicPartition, back int64) error {
	l := w.log(tp)
	if l == nil {
		return nil
	}
	err := w.step("truncate "+tp.String(), func() error {
		_, err := l.Truncate(ctx, max(l.Offsets().LogEnd-back, l.Offsets().LogStart))
		return err
	})
	maps.DeleteFunc(w.firstSeen[tp], func(offset, _ int64) bool { return offset >= w.now[tp].end })
	return err
}

func (w *roots) delete(tp TopicPartition) error {
	_, d := w.dirOf(tp)
	if d == nil {
		return nil
	}
	delete(w.firstSeen, tp)
	return w.step("delete "+tp.String(), func() error { return d.Delete(ctx, tp) })
}

func (w *roots) move(tp TopicPartition) error {
	name, d := w.dirOf(tp)
	if d == nil {
		return nil
	}
	return w.step("move "+tp.String(), func() error { return d.Move(ctx, tp, w.dirs[other(name)]) })
}

func other(root string) string { return rootNames[1-slices.Index(rootNames, root)] }

// background does what is due after a while.
func (w *roots) background(after time.Duration) error {
	w.clock.advance(after)
	err := w.step(fmt.Sprint("background after ", after), func() error {
		return errors.Join(w.dirs["a"].RunOnce(ctx, w.clock.now()), w.dirs["b"].RunOnce(ctx, w.clock.now()))
	})
	for tp := range w.now {
		w.stamp(tp)
	}
	return err
}

func (w *roots) backup(o BackupOptions) error {
	name := fmt.Sprint("backup", len(w.bk))
	return w.step("backup to "+name, func() error {
		o.FS = w.seen
		_, err := w.dirs["a"].Backup(ctx, name, o)
		w.bk[name] = w.in("a")
		return err
	})
}

// in are the partitions of an open root, as they are.
func (w *roots) in(root string) lives {
	held := lives{}
	for tp, f := range w.now {
		if f.root == root {
			held[tp] = f
		}
	}
	return held
}

// restore makes a root of the first backup.
func (w *roots) restore(link bool) error {
	from, to := "backup0", fmt.Sprint("restored", len(w.bk))
	if w.bk[from] == nil {
		return nil
	}
	return w.step("restore to "+to, func() error {
		_, err := Restore(ctx, from, to, RestoreOptions{From: w.seen, FS: w.seen, Link: link})
		w.bk[to] = w.bk[from]
		return err
	})
}

// deed is one operation of a workload.
type deed struct {
	name string
	do   func(w *roots) error
}

func each(errs ...func() error) error {
	for _, do := range errs {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

var deeds = []deed{
	{"append", func(w *roots) error { return w.put(tpC, "a", "-e", "f") }},
	{"append buffered", func(w *roots) error { return w.put(tpD, "x") }},
	{"append tombstones and roll", func(w *roots) error {
		return each(func() error { return w.put(tpC, "-a", "-c") }, func() error { return w.roll(tpC) })
	}},
	{"abort and roll", func(w *roots) error {
		return each(func() error { return w.abort(tpC, "a") }, func() error { return w.put(tpC, "a") }, func() error { return w.roll(tpC) })
	}},
	{"roll buffered", func(w *roots) error {
		return each(func() error { return w.put(tpD, "z") }, func() error { return w.roll(tpD) })
	}},
	{"compact", func(w *roots) error { return w.compact(tpC) }},
	{"compact and delete", func(w *roots) error { return w.compact(tpE) }},
	{"compact later", func(w *roots) error {
		w.clock.advance(2 * time.Hour)
		return w.compact(tpC)
	}},
	{"retain", func(w *roots) error { return w.retain(tpD) }},
	{"retain what is old", func(w *roots) error {
		w.clock.advance(time.Hour)
		return w.retain(tpE)
	}},
	{"drop the oldest", func(w *roots) error { return w.fill(tpD) }},
	{"delete records", func(w *roots) error { return w.forget(tpE, 2) }},
	{"delete all records", func(w *roots) error { return w.forget(tpD, 0) }},
	{"truncate", func(w *roots) error { return w.truncate(tpC, 4) }},
	{"truncate and write anew", func(w *roots) error {
		return each(func() error { return w.truncate(tpE, 3) }, func() error { return w.put(tpE, "k0", "-k1") })
	}},
	{"delete the partition", func(w *roots) error { return w.delete(tpE) }},
	{"delete the compacted one", func(w *roots) error { return w.delete(tpC) }},
	{"make it anew", func(w *roots) error {
		return each(func() error { return w.delete(tpE) }, func() error { return w.create(tpE) }, func() error { return w.put(tpE, "k9") })
	}},
	{"a new partition", func(w *roots) error {
		return each(func() error { return w.create(tpN) }, func() error { return w.put(tpN, "n") })
	}},
	{"move", func(w *roots) error { return w.move(tpE) }},
	{"move the compacted one", func(w *roots) error { return w.move(tpC) }},
	{"move the buffered one", func(w *roots) error { return w.move(tpD) }},
	{"background", func(w *roots) error { return w.background(time.Minute) }},
	{"background later", func(w *roots) error { return w.background(2 * time.Hour) }},
	{"back up", func(w *roots) error { return w.backup(BackupOptions{}) }},
	{"back up by copies", func(w *roots) error { return w.backup(BackupOptions{Copy: true}) }},
	{"restore", func(w *roots) error { return w.restore(len(w.bk)%2 == 0) }},
	{"stop and start", func(w *roots) error { return each(w.close, w.open) }},
	{"stop and start a log", func(w *roots) error { return w.closeLog(tpC) }},
}
