package log

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// recovered opens what a crash left, with the real code.
func recovered(disk vfs.FS, mode Durability, noEvict bool) (*Dir, *Log, error) {
	d, err := OpenDir("root", DirConfig{Manual: true, FS: disk, Now: crashClock, NoEvict: noEvict})
	if err != nil {
		return nil, nil, err
	}
	l, err := d.Open(context.Background(), crashTP, crashConfig(mode))
	return d, l, err
}

// survivors reads the whole log, batch by batch.
func survivors(l *Log) (found []wrote, err error) {
	dec := decoders.Get().(*record.Decoder)
	defer decoders.Put(dec)
	for b, err := range l.Batches(context.Background(), l.Offsets().LogStart) {
		if err != nil {
			return nil, err
		}
		w := wrote{base: b.BaseOffset(), last: b.LastOffset(), epoch: b.LeaderEpoch(), time: b.MaxTimestamp()}
		for r, err := range b.Records(dec) {
			if err != nil {
				return nil, err
			}
			if w.value != "" && w.value != string(r.Value) {
				return nil, fmt.Errorf("record %d holds %q in a batch of %q", r.Offset, r.Value, w.value)
			}
			w.value = string(r.Value)
		}
		found = append(found, w)
	}
	return found, nil
}

// check recovers one disk and says what is wrong with the result. The log it returns is the recovered one.
func check(disk vfs.FS, mode Durability, e *expect, noEvict bool) (*Dir, *Log, error) {
	if err := checkSnapshots(disk); err != nil {
		return nil, nil, err
	}
	d, l, err := recovered(disk, mode, noEvict)
	if err != nil {
		return nil, nil, fmt.Errorf("open after a crash: %w", err)
	}
	found, err := survivors(l)
	if err != nil {
		return nil, nil, fmt.Errorf("read after a crash: %w", err)
	}
	if err := e.admits(l.Offsets(), found, l.Epochs()); err != nil {
		return nil, nil, err
	}
	if err := checkProducers(l); err != nil {
		return nil, nil, err
	}
	return d, l, checkIndexes(disk, l, e.sparse)
}

// checkIndexes compares the index files of all segments but the active one with their batches: under the recovery point
// nobody rebuilds them, so they must have survived. sparse is how many entries may be missing in all.
func checkIndexes(disk vfs.FS, l *Log, sparse int) error {
	segs := *l.list.Load()
	missing := 0
	for _, seg := range segs[:len(segs)-1] {
		got, err := vfs.ReadFile(disk, seg.IndexFile(), 1<<20)
		if err != nil {
			return err
		}
		times, err := vfs.ReadFile(disk, seg.TimeIndexFile(), 1<<20)
		if err != nil {
			return err
		}
		position := int64(0)
		left, leftTimes, last, newest := got, times, []byte(nil), int64(-1)
		for b, err := range seg.Batches(0) {
			if err != nil {
				return err
			}
			offset := binary.BigEndian.AppendUint32(nil, uint32(b.LastOffset()-seg.Base()))
			entry := binary.BigEndian.AppendUint32(slices.Clone(offset), uint32(position))
			if rest, ok := bytes.CutPrefix(left, entry); ok {
				left = rest
			} else if position > 0 {
				missing++
			}
			if b.MaxTimestamp() > newest { // a marker may have the time of the batch before it
				newest = b.MaxTimestamp()
				last = append(binary.BigEndian.AppendUint64(nil, uint64(newest)), offset...)
			}
			leftTimes = bytes.TrimPrefix(leftTimes, last)
			position += int64(b.Size())
		}
		if len(left) > 0 || len(leftTimes) > 0 || !bytes.HasSuffix(times, last) {
			return fmt.Errorf("%s does not fit its log: % x; times % x", seg.IndexFile(), got, times)
		}
	}
	if missing > sparse {
		return fmt.Errorf("%d index entries are missing, %d may be", missing, sparse)
	}
	return nil
}

// logBytes is every .log file of the partition.
func logBytes(disk vfs.FS) (map[string]string, error) {
	out := map[string]string{}
	bases, err := segment.List(disk, crashTP.String())
	if err != nil {
		return nil, err
	}
	for _, base := range bases {
		name := crashTP.String() + "/" + segment.FileName(base, ".log")
		b, err := vfs.ReadFile(disk, name, 1<<20)
		if err != nil {
			return nil, err
		}
		out[name] = string(b)
	}
	return out, nil
}

// checkAgain opens the recovered disk a second time, as after another kill: the same log must come out. Then it appends
// and reads.
func checkAgain(disk *vfstest.Crash, mode Durability, first Offsets) error {
	before, err := logBytes(disk)
	if err != nil {
		return err
	}
	next := disk.Kill()
	d, l, err := recovered(next, mode, false)
	if err != nil {
		return fmt.Errorf("second open: %w", err)
	}
	after, err := logBytes(next)
	if err != nil {
		return err
	}
	o := l.Offsets()
	if o.LogStart != first.LogStart || o.LogEnd != first.LogEnd || len(before) != len(after) {
		return fmt.Errorf("the second open gives %+v, the first gave %+v", o, first)
	}
	for name, b := range before {
		if after[name] != b {
			return fmt.Errorf("the second open changed %s", name)
		}
	}
	if cut := l.Recovery().Cut; cut != 0 {
		return fmt.Errorf("the second open cut %d bytes more", cut)
	}
	return appendAndClose(next, d, l, mode)
}

// appendAndClose goes on in a recovered log, stops it cleanly and finds everything again.
func appendAndClose(disk *vfstest.Crash, d *Dir, l *Log, mode Durability) error {
	had, err := survivors(l)
	if err != nil {
		return err
	}
	want := wrote{base: l.Offsets().LogEnd, epoch: max(0, l.Offsets().LeaderEpoch), time: crashTime + 1<<19, value: strings.Repeat("n", crashValue)}
	want.last = want.base
	if _, err := l.Append(context.Background(), record.Record{Timestamp: want.time, Value: []byte(want.value)}); err != nil {
		return fmt.Errorf("append after recovery: %w", err)
	}
	had = append(had, want)
	if err := d.Close(); err != nil {
		return fmt.Errorf("close after recovery: %w", err)
	}
	_, l, err = recovered(disk, mode, false)
	if err != nil {
		return fmt.Errorf("open after a clean stop: %w", err)
	}
	if !l.Recovery().Clean || len(l.Recovery().Findings) > 0 {
		return fmt.Errorf("a clean stop was followed by %+v", l.Recovery())
	}
	found, err := survivors(l)
	if err == nil && !slices.Equal(had, found) {
		err = errors.New("the log is another one after a clean stop")
	}
	return err
}

// inspect is everything that is asked of one disk: always the oracle, and of some of them a second recovery and
// crashes inside the first.
func (n *tally) inspect(d *vfstest.Disk, mode Durability, start *expect, deep int) error {
	e := noted(d, start)
	if !n.first(d.Hash(), e, mode) {
		return nil
	}
	disk := d.FS()
	_, l, err := check(disk, mode, e, false)
	if err != nil {
		return fmt.Errorf("%w\n%v\n%s", err, e, d.Describe())
	}
	sample := int((d.Hash() >> 7) % 128)
	if sample < 6 || deep > 1 && sample < 32 {
		if err := checkAgain(disk, mode, l.Offsets()); err != nil {
			return fmt.Errorf("%w\n%v\n%s", err, e, d.Describe())
		}
	}
	if sample < 1 && deep > 0 || sample < 32 && deep > 1 {
		return n.inspectRecovery(d, disk, mode, e, l)
	}
	return nil
}

// inspectRecovery crashes a recovery at each of its points. Once it has returned, what it showed must stay.
func (n *tally) inspectRecovery(d *vfstest.Disk, disk *vfstest.Crash, mode Durability, e *expect, l *Log) error {
	shown := e.clone()
	shown.call = "recovered"
	o := l.Offsets()
	shown.floor, shown.starts, shown.empties = o.LogEnd, []int64{o.LogStart}, nil
	if o.LogStart == o.LogEnd {
		shown.empties = []int64{o.LogEnd}
	}
	disk.Note(shown)
	for inner := range disk.Disks(vfstest.DiskOptions{Limit: 8, Samples: 2, Cuts: 1}) {
		e := noted(inner, e)
		if !n.first(inner.Hash(), e, mode) {
			continue
		}
		n.inner++
		again := inner.FS()
		if _, _, err := check(again, mode, e, false); err != nil {
			return fmt.Errorf("crash inside recovery: %w\n%v\n%s\nwhich was the recovery of\n%s", err, e, inner.Describe(), d.Describe())
		}
	}
	return nil
}
