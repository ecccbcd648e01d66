package compaction

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/vfs"
)

// output writes the new segments of one group under the suffix .cleaned: one, unless an offset or the size would not be
// representable in it. Batches are gathered and written by the MiB, or by less while others wait for the disk.
type output struct {
	r     *run
	o     segment.Options
	base  int64 // of the first part
	buf   []byte
	parts []*segment.Segment
	bases []int64 // of parts, and of one that could not be made
	begun bool    // parts has one that takes batches
	last  int64   // base of the part at work
	size  int64   // of the part at work, with what is gathered
	bytes int64   // of all
}

const (
	cleaned  = ".cleaned"
	swapping = ".swap"
	deleted  = ".deleted"

	gather      = 1 << 20
	gatherAside = 256 << 10 // while others wait for the disk
)

var kinds = [...]string{".log", ".index", ".timeindex", txnKind}

const txnKind = ".txnindex"

func newOutput(r *run, base int64) *output {
	w := &output{r: r, o: r.in.Options, base: base}
	w.o.Suffix = cleaned
	w.buf = r.buf[:0]
	return w
}

// add takes whole batches that fit into one part together: one, or the entries that a legacy set became. They are copied.
func (w *output) add(raw []byte) error {
	if len(raw) == 0 {
		return nil
	}
	first, _, err := record.Next(raw)
	if err != nil {
		return err
	}
	last := first.LastOffset()
	if first.Magic() < 2 {
		if last, err = lastOf(raw); err != nil {
			return err
		}
	}
	if !w.begun || last-w.last > math.MaxInt32 || w.size+int64(len(raw)) > math.MaxInt32 {
		base := first.BaseOffset()
		if !w.begun {
			base = w.base
			if last-base > math.MaxInt32 { // an empty part at the base, then one that can tell the offset
				if err := w.part(base); err != nil {
					return err
				}
				base = first.BaseOffset()
			}
		}
		if err := w.part(base); err != nil {
			return err
		}
	}
	if len(w.buf)+len(raw) > w.gather() {
		if err := w.flush(); err != nil {
			return err
		}
	}
	w.size += int64(len(raw))
	w.bytes += int64(len(raw))
	if len(raw) >= w.gather() {
		return w.write(raw)
	}
	w.buf = append(w.buf, raw...)
	return nil
}

func lastOf(raw []byte) (last int64, err error) {
	for len(raw) > 0 {
		var b record.Batch
		if b, raw, err = record.Next(raw); err != nil {
			return 0, err
		}
		last = b.LastOffset()
	}
	return last, nil
}

// part begins a new segment.
func (w *output) part(base int64) error {
	if err := w.flush(); err != nil {
		return err
	}
	w.begun, w.last, w.size = true, base, 0
	if w.r.in.DryRun {
		return nil
	}
	for _, kind := range kinds { // of an earlier run that was killed
		if err := removeIfThere(w.o.FS, fileName(w.r.in.Dir, base, kind, cleaned)); err != nil {
			return err
		}
	}
	w.bases = append(w.bases, base)
	s, err := segment.Create(w.r.in.Dir, base, w.o)
	if err != nil {
		return err
	}
	w.parts = append(w.parts, s)
	return nil
}

func (w *output) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	err := w.write(w.buf)
	w.buf = w.buf[:0]
	return err
}

// gather is how many bytes are written at once.
func (w *output) gather() int {
	if w.r.t.others {
		return gatherAside
	}
	return gather
}

func (w *output) write(raw []byte) error {
	if !w.r.in.DryRun {
		part := w.parts[len(w.parts)-1]
		_, err := part.AppendAt(raw, w.r.in.Now)
		if bad, ok := errors.AsType[*segment.OrderError](err); ok {
			return &UncleanableError{File: fileName(w.r.in.Dir, w.r.t.p.Offset, ".log", ""), Position: -1, Offset: bad.Offset,
				Reason: "the batch begins below the segment, or below the end of the one before", Err: err}
		}
		if err == nil && w.r.t.others {
			err = part.SyncData()
		}
		if err != nil {
			return err
		}
	}
	return w.r.t.move(len(raw))
}

// finish completes all parts: transaction indexes, last time entries, the age of the newest data they hold, syncs.
func (w *output) finish(kept []segment.AbortedTxn, newest *segment.Segment) (bases []int64, bytes int64, err error) {
	if !w.begun {
		if err := w.part(w.base); err != nil {
			return nil, 0, err
		}
	}
	if err := w.flush(); err != nil {
		return nil, 0, err
	}
	w.r.buf = w.buf
	if w.r.in.DryRun {
		return nil, w.bytes, nil
	}
	age, err := modTime(w.o.FS, newest.File())
	if err != nil {
		return nil, 0, err
	}
	for i, s := range w.parts {
		n := len(kept)
		if i+1 < len(w.parts) {
			for n = 0; n < len(kept) && kept[n].LastOffset < w.parts[i+1].Base(); n++ {
			}
		}
		if err := w.end(s, kept[:n], age); err != nil {
			return nil, 0, err
		}
		kept = kept[n:]
	}
	return w.bases, w.bytes, nil
}

func (w *output) end(s *segment.Segment, kept []segment.AbortedTxn, age time.Time) error {
	for _, t := range kept {
		if err := s.AppendAborted(t); err != nil {
			return err
		}
	}
	if err := s.Seal(context.WithoutCancel(w.r.t.ctx)); err != nil {
		return err
	}
	for _, kind := range kinds[:3] {
		if err := w.o.FS.Chtimes(fileName(w.r.in.Dir, s.Base(), kind, cleaned), age); err != nil {
			return err
		}
	}
	if err := s.Sync(); err != nil {
		return err
	}
	return s.Close()
}

// discard removes what was written.
func (w *output) discard() (err error) {
	for _, s := range w.parts {
		err = errors.Join(err, s.Abandon())
	}
	for _, base := range w.bases {
		for _, kind := range kinds {
			err = errors.Join(err, removeIfThere(w.o.FS, fileName(w.r.in.Dir, base, kind, cleaned)))
		}
	}
	w.parts, w.bases = nil, nil
	return err
}

func fileName(dir string, base int64, kind, suffix string) string {
	n := segment.FileName(base, kind) + suffix
	if dir == "" || dir == "." {
		return n
	}
	return dir + "/" + n
}

func modTime(fsys vfs.FS, name string) (time.Time, error) {
	info, err := fsys.Stat(name)
	if err != nil {
		return time.Time{}, err
	}
	return info.ModTime(), nil
}
