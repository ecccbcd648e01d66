package log

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// Sizes of the crash worlds: a batch of one record takes about 100 bytes, so a segment holds three.
const (
	crashSegment = 330
	crashValue   = 24
)

var crashTP = TopicPartition{Topic: "t", Partition: 0}

func crashConfig(d Durability) Config {
	return Config{SegmentBytes: crashSegment, IndexIntervalBytes: EveryBatch, Durability: d}
}

// crashTime is before all records: producers must not expire.
const crashTime = 1_700_000_000_000

func crashClock() time.Time { return time.UnixMilli(crashTime) }

// world is a log on a disk that records, and what has to be true of it after a crash.
type world struct {
	fs     *vfstest.Crash
	fault  *vfstest.Fault // between the log and the disk
	seen   vfs.FS         // what the log is given: fault, or a mutant above it
	mode   Durability
	dir    *Dir
	log    *Log
	e      expect
	epoch  int32
	serial int64
}

// newWorld boots a copy of disk; wrap, if given, falsifies the file system.
func newWorld(disk *vfstest.Crash, mode Durability, e expect, wrap func(vfs.FS) vfs.FS) *world {
	w := &world{fs: disk.Kill(), mode: mode, e: *e.clone()}
	for _, b := range e.line {
		w.epoch, w.serial = max(w.epoch, b.epoch), max(w.serial, b.time-crashTime+1)
	}
	w.fault = vfstest.NewFault(w.fs)
	w.seen = w.fault
	if wrap != nil {
		w.seen = wrap(w.fault)
	}
	return w
}

func (w *world) note(call string) {
	w.e.call = call
	w.fs.Note(w.e.clone())
}

// settle narrows the expectation to the present state and takes the log's word for what is durable.
func (w *world) settle(call string) error {
	o := w.log.Offsets()
	if o.LogEnd != w.e.end() {
		return fmt.Errorf("%s: the log ends at %d, want %d", call, o.LogEnd, w.e.end())
	}
	w.e.floor = max(w.e.floor, o.Durable)
	if w.mode == Durable && w.e.floor < o.HighWatermark {
		return fmt.Errorf("%s: readers see up to %d, durable is %d", call, o.HighWatermark, o.Durable)
	}
	w.note(call + " returned")
	if err := checkProducers(w.log); err != nil {
		return fmt.Errorf("%s: %w", call, err)
	}
	return nil
}

func (w *world) open() error {
	w.note("open")
	if err := w.mount(); err != nil {
		return err
	}
	return w.settle("open")
}

func (w *world) mount() (err error) {
	if w.dir, err = OpenDir("root", DirConfig{Manual: true, FS: w.seen, Now: crashClock}); err != nil {
		return err
	}
	w.log, err = w.dir.Open(context.Background(), crashTP, crashConfig(w.mode))
	w.e.sparse++
	return err
}

// records makes n records nobody made before, with ascending times.
func (w *world) records(n int) []record.Record {
	value := fmt.Sprintf("v%05d", w.serial)
	value += strings.Repeat(".", crashValue-len(value))
	recs := make([]record.Record, n)
	for i := range recs {
		recs[i] = record.Record{Timestamp: crashTime + w.serial, Value: []byte(value)}
	}
	w.e.line = append(w.e.line, wrote{base: w.e.end(), last: w.e.end() + int64(n) - 1, epoch: w.epoch, time: crashTime + w.serial, value: value})
	w.serial++
	return recs
}

// append adds one batch. The expectation has it from the moment the call begins.
func (w *world) append(n int, d Durability) error {
	recs := w.records(n)
	w.note(fmt.Sprintf("append %d %v", n, d))
	return w.appendRecords(recs, d)
}

func (w *world) appendRecords(recs []record.Record, d Durability) error {
	if err := w.put(recs, d); err != nil {
		return err
	}
	return w.settle(fmt.Sprintf("append %d %v", len(recs), d))
}

func (w *world) put(recs []record.Record, d Durability) error {
	enc := w.log.encoder()
	defer encoders.Put(enc)
	var p prepared
	if err := w.log.encode(enc, recs, &p); err != nil {
		return err
	}
	_, err := w.log.append(context.Background(), &p, &AppendOptions{Durability: d})
	return err
}

// appendDuringSync appends a durable batch and, while its sync is about to run, a buffered one.
func (w *world) appendDuringSync() error {
	first := w.records(1)
	var inner error
	_, remove := w.fault.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpSyncData}, Name: "*.log", Hook: func(vfstest.Op) error {
		if w.log.list.Load().active().Size() > crashSegment*2/3 {
			return nil // it would roll, and a roll waits for the round
		}
		second := w.records(1)
		w.note("append while another one's sync runs")
		inner = w.put(second, Buffered)
		return nil
	}})
	defer remove()
	w.note("append, joined by another")
	return errors.Join(w.appendRecords(first, Durable), inner)
}

func (w *world) truncate(offset int64) error {
	if offset < 0 {
		return nil
	}
	if offset < w.log.list.Load().first().Base() {
		return w.reset(offset, func() error {
			end, err := w.log.Truncate(context.Background(), offset)
			if err == nil && end != offset {
				err = fmt.Errorf("truncated to %d, want %d", end, offset)
			}
			return err
		})
	}
	call := fmt.Sprintf("truncate %d", offset)
	w.e.sparse++
	w.e.part(offset)
	end, line := w.e.cut(offset)
	start := w.e.starts[0]
	w.e.floor = min(w.e.floor, lowest(line, end))
	w.e.starts = []int64{start, min(start, lowest(line, end)), min(start, end)}
	w.e.empties = []int64{start}
	w.note(call)
	got, err := w.log.Truncate(context.Background(), offset)
	if err != nil {
		return err
	}
	if got != end {
		return fmt.Errorf("%s: the log ends at %d, want %d", call, got, end)
	}
	if offset >= w.e.end() {
		w.e.starts, w.e.empties = []int64{start}, nil
	} else {
		w.e.line, w.e.starts, w.e.empties = line, []int64{min(start, end)}, nil
		if len(line) == 0 {
			w.e.base = end
		}
		w.e.floor = end
	}
	w.epoch = w.stamp()
	return w.settle(call)
}

func (w *world) reset(offset int64, do func() error) error {
	call := fmt.Sprintf("reset to %d", offset)
	w.e.empties = []int64{offset, w.e.starts[0], w.e.base}
	w.e.floor = min(w.e.floor, w.e.base, offset)
	w.note(call)
	if err := do(); err != nil {
		return err
	}
	w.e = expect{base: offset, floor: offset, starts: []int64{offset}, sparse: w.e.sparse + 1}
	w.epoch = w.stamp()
	return w.settle(call)
}

func (w *world) resetTo(offset int64) error {
	return w.reset(max(0, offset), func() error { return w.log.ResetTo(context.Background(), max(0, offset)) })
}

func (w *world) deleteRecords(before int64) error {
	start := w.e.starts[0]
	if hw := w.log.Offsets().HighWatermark; before > hw {
		before = hw
	}
	if before <= start {
		return nil
	}
	call := fmt.Sprintf("delete records below %d", before)
	w.e.starts = []int64{start, before}
	w.note(call)
	if err := w.log.DeleteRecords(context.Background(), before); err != nil {
		return err
	}
	w.e.starts = []int64{before}
	return w.settle(call)
}

// followEnd leaves a gap at the end of the log. A crash takes all of it or nothing.
func (w *world) followEnd(by int64) error {
	to := w.e.end() + by
	w.e.line = append(w.e.line, wrote{base: w.e.end(), last: to - 1, epoch: w.epoch, gap: true})
	call := fmt.Sprintf("follow the end to %d", to)
	w.note(call)
	if err := w.log.FollowEnd(context.Background(), to); err != nil {
		return err
	}
	return w.settle(call)
}

func (w *world) assignEpoch() error {
	w.epoch++
	w.note("assign epoch")
	if err := w.log.AssignEpoch(w.epoch); err != nil {
		return err
	}
	return w.settle("assign epoch")
}

func (w *world) roll() error {
	w.note("roll")
	if err := w.log.Roll(context.Background()); err != nil {
		return err
	}
	return w.settle("roll")
}

func (w *world) sync() error {
	w.note("sync")
	if err := w.log.Sync(context.Background()); err != nil {
		return err
	}
	if o := w.log.Offsets(); o.Durable != o.LogEnd || o.RecoveryPoint != o.LogEnd {
		return fmt.Errorf("synced, and yet %+v", o)
	}
	return w.settle("sync")
}

// reopen is a clean stop of the whole root and a start.
func (w *world) reopen() error {
	w.note("close")
	if err := w.dir.Close(); err != nil {
		return err
	}
	w.e.floor = w.e.end()
	w.note("closed")
	if err := w.mount(); err != nil {
		return err
	}
	if !w.log.Recovery().Clean {
		return errors.New("a clean stop was followed by an unclean start")
	}
	w.epoch = w.stamp()
	return w.settle("reopen")
}

// reopenLog is a clean stop of the log alone.
func (w *world) reopenLog() (err error) {
	w.note("close log")
	if err := w.log.Close(); err != nil {
		return err
	}
	w.e.floor = w.e.end()
	w.e.sparse++
	w.note("closed log")
	if w.log, err = w.dir.Open(context.Background(), crashTP, crashConfig(w.mode)); err != nil {
		return err
	}
	w.epoch = w.stamp()
	return w.settle("reopen log")
}

// stamp is the epoch that the next plain append gets.
func (w *world) stamp() int32 {
	epoch, _ := w.log.leaderEpoch(Leader, nil)
	return epoch
}

// verb is one operation of a workload. Offsets are relative to the log it is done on.
type verb struct {
	name string
	do   func(w *world) error
}

func (w *world) at(back int) int64 { return w.e.end() - int64(back) }

var verbs = []verb{
	{"append", func(w *world) error { return w.append(1, Durable) }},
	{"append buffered", func(w *world) error { return w.append(1, Buffered) }},
	{"append three", func(w *world) error { return w.append(3, Durable) }},
	{"append until it rolls", func(w *world) error {
		for n := len(*w.log.list.Load()); len(*w.log.list.Load()) == n; {
			if err := w.append(1, w.mode); err != nil {
				return err
			}
		}
		return nil
	}},
	{"append buffered until it rolls", func(w *world) error {
		for n := len(*w.log.list.Load()); len(*w.log.list.Load()) == n; {
			if err := w.append(2, Buffered); err != nil {
				return err
			}
		}
		return nil
	}},
	{"group", func(w *world) error {
		if err := w.append(1, Buffered); err != nil {
			return err
		}
		return w.append(1, Durable)
	}},
	{"joined", (*world).appendDuringSync},
	{"roll", (*world).roll},
	{"sync", (*world).sync},
	{"truncate the end", func(w *world) error { return w.truncate(w.at(0)) }},
	{"truncate one", func(w *world) error { return w.truncate(w.at(1)) }},
	{"truncate some", func(w *world) error { return w.truncate(w.at(4)) }},
	{"truncate inside the first segment", func(w *world) error { return w.truncate(w.e.base + 1) }},
	{"truncate to the first offset", func(w *world) error { return w.truncate(w.e.base) }},
	{"truncate below the first offset", func(w *world) error { return w.truncate(w.e.base - 2) }},
	{"truncate to a segment's base", func(w *world) error { return w.truncate(w.log.list.Load().active().Base()) }},
	{"reset far", func(w *world) error { return w.resetTo(w.at(-5)) }},
	{"reset to the end", func(w *world) error { return w.resetTo(w.at(0)) }},
	{"reset inside", func(w *world) error { return w.resetTo(w.at(3)) }},
	{"reset below", func(w *world) error { return w.resetTo(w.e.base - 3) }},
	{"delete some", func(w *world) error { return w.deleteRecords(w.e.starts[0] + 2) }},
	{"delete all", func(w *world) error { return w.deleteRecords(w.at(0)) }},
	{"epoch", (*world).assignEpoch},
	{"epoch and append", func(w *world) error {
		if err := w.assignEpoch(); err != nil {
			return err
		}
		return w.append(1, w.mode)
	}},
	{"reopen", (*world).reopen},
	{"reopen the log", (*world).reopenLog},
	{"follow the end", func(w *world) error { return w.followEnd(3) }},
	{"follow the end and append", func(w *world) error { return errors.Join(w.followEnd(2), w.append(1, w.mode)) }},
	{"epoch and follow the end", func(w *world) error {
		return errors.Join(w.assignEpoch(), w.followEnd(1), w.assignEpoch(), w.followEnd(2))
	}},
	{"append idempotent", func(w *world) error { return w.produce(5, false, w.mode) }},
	{"append idempotent until it rolls", func(w *world) error {
		for n := len(*w.log.list.Load()); len(*w.log.list.Load()) == n; {
			if err := w.produce(6, false, Buffered); err != nil {
				return err
			}
		}
		return nil
	}},
	{"begin", func(w *world) error { return w.produce(7, true, w.mode) }},
	{"begin another and abort the first", func(w *world) error {
		return errors.Join(w.produce(7, true, Buffered), w.produce(8, true, Buffered), w.end(7, false))
	}},
	{"commit", func(w *world) error { return errors.Join(w.produce(8, true, Buffered), w.end(8, true)) }},
	{"abort", func(w *world) error { return errors.Join(w.produce(8, true, Buffered), w.end(8, false)) }},
}

// prepare makes the disk that workloads start from: two epochs, three segments that start at offset 7, all durable.
func prepare(t testing.TB, mode Durability, clean bool) (*vfstest.Crash, expect) {
	t.Helper()
	w := newWorld(vfstest.NewCrash(vfstest.CrashOptions{Now: crashClock}), mode, expect{starts: []int64{0}}, nil)
	must := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	must(w.open())
	must(w.resetTo(7))
	for i := range 7 {
		if i == 4 {
			must(w.assignEpoch())
		}
		must(w.append(1+i%2, mode))
	}
	must(w.sync())
	if clean {
		must(w.dir.Close())
	}
	w.fs.Mark()
	return w.fs, *w.e.clone()
}

func namesOf(verbs []verb) string {
	names := make([]string, len(verbs))
	for i, v := range verbs {
		names[i] = v.name
	}
	return strings.Join(names, ", then ")
}

// tally counts disks, each once for what is asked of it.
type tally struct {
	seen  map[[2]uint64]struct{}
	disks int
	inner int // of them: crashes inside a recovery
}

func newTally() *tally { return &tally{seen: map[[2]uint64]struct{}{}} }

func (n *tally) first(hash uint64, e *expect, mode Durability) bool {
	k := [2]uint64{hash, e.key()*4 + uint64(mode)}
	if _, ok := n.seen[k]; ok {
		return false
	}
	n.seen[k] = struct{}{}
	n.disks++
	return true
}

// noted is the last expectation before the crash.
func noted(d *vfstest.Disk, start *expect) *expect {
	for _, n := range slices.Backward(d.Notes()) {
		if e, ok := n.(*expect); ok {
			return e
		}
	}
	return start
}
