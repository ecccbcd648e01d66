package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/partlog/partlog/internal/txnindex"
	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/vfs"
)

// partitionRepair is the work on one folder.
type partitionRepair struct {
	*repairer
	tp       log.TopicPartition
	folder   string
	interval int64 // index.interval.bytes; 0 not known
	known    int64 // log end as the root remembers it; 0 not known
	end      int64 // log end after mending
}

func (p *partitionRepair) path(name string) string { return p.folder + "/" + name }

// moveOut puts a file, or a folder of files, into the quarantine and takes it away.
func (p *partitionRepair) moveOut(name, why string) error {
	info, err := p.fs.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	p.say("move", "%s out: %s", name, why)
	if info.IsDir() {
		return p.moveOutTree(name)
	}
	return p.fs.Remove(name) // which keeps it
}

func (p *partitionRepair) moveOutTree(name string) error {
	entries, err := p.fs.ReadDir(name)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			err = p.moveOutTree(name + "/" + e.Name())
		} else {
			err = p.fs.Remove(name + "/" + e.Name())
		}
		if err != nil {
			return err
		}
	}
	return p.fs.FS.Remove(name)
}

// settle takes leftovers and foreign names out of the way, and completes swaps that were committed.
func (p *partitionRepair) settle() error {
	entries, err := p.fs.ReadDir(p.folder)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := e.Name()
		digits, ext, _ := strings.Cut(name, ".")
		base, bad := offsetArg(digits)
		bad2 := base < 0
		switch kind := "." + ext; {
		case kind == ".log.swap" && (bad != nil || bad2 || p.swapIsBad(name, base)):
			err = p.moveOut(p.path(name), "a rewrite that is damaged itself")
		case strings.HasSuffix(name, ".log") && (kind != ".log" || bad != nil || bad2 || name != segment.FileName(base, ".log")),
			slices.Contains([]string{".index", ".timeindex", ".txnindex", ".snapshot"}, kind) && (bad != nil || bad2):
			renamed := false
			if strings.HasSuffix(name, ".log") && !e.IsDir() {
				renamed, err = p.rename(name)
			}
			if err == nil && !renamed {
				err = p.moveOut(p.path(name), "a name that is no segment's")
			}
		case e.IsDir() && slices.Contains([]string{".log", ".index", ".timeindex", ".txnindex", ".snapshot"}, kind):
			err = p.moveOut(p.path(name), "a directory where a file of the log should be")
		}
		if err != nil {
			return err
		}
	}
	changed, err := log.Settle(p.fs, p.folder)
	for _, name := range changed {
		p.say("settle", "%s", name)
	}
	return err
}

// rename gives a .log that has lost its name the one that its batches ask for, if there is room for them between the
// segments that have theirs.
func (p *partitionRepair) rename(name string) (done bool, err error) {
	extents, err := log.Extents(p.ctx, p.fs, p.path(name), 0)
	if err != nil || len(extents) == 0 || extents[0].Batches == 0 {
		return false, err
	}
	first, next := extents[0].First, extents[0].Next
	for _, e := range extents {
		next = max(next, e.Next)
	}
	bases, err := segment.List(p.fs, p.folder)
	if err != nil {
		return false, err
	}
	bases = slices.DeleteFunc(bases, func(base int64) bool { // by the number alone
		_, err := p.fs.Stat(p.path(segment.FileName(base, ".log")))
		return err != nil
	})
	for i, base := range bases {
		if base >= first && base < next {
			return false, nil
		}
		if base > first || i+1 < len(bases) && bases[i+1] < first {
			continue
		}
		before, err := log.Extents(p.ctx, p.fs, p.path(segment.FileName(base, ".log")), base)
		if err != nil {
			return false, err
		}
		for _, e := range before {
			if e.Next > first {
				return false, nil
			}
		}
	}
	right := segment.FileName(first, ".log")
	p.say("rename", "%s to %s: it begins with offset %d, and no other segment has its offsets", p.path(name), right, first)
	if err := p.fs.Rename(p.path(name), p.path(right)); err != nil {
		return false, err
	}
	return true, syncDirs(p.fs, p.folder)
}

// swapIsBad says that a .log.swap does not hold what a rewrite leaves: whole batches.
func (p *partitionRepair) swapIsBad(name string, base int64) bool {
	extents, err := log.Extents(p.ctx, p.fs, p.path(name), base)
	if err != nil {
		return true
	}
	for _, e := range extents {
		if e.Batches == 0 {
			return true
		}
	}
	return false
}

// segments mends every .log, the last one first: a rewrite then never covers what comes behind it.
func (p *partitionRepair) segments() error {
	p.known = p.knownEnd()
	plans, err := planSegments(p.ctx, p.fs, p.folder)
	if err == nil {
		err = p.mendHeaders(plans)
	}
	if err == nil {
		err = p.loseOrphans(plans)
	}
	if err != nil {
		return err
	}
	next := int64(-1)
	for i := len(plans) - 1; i >= 0; i-- {
		if err := p.ctx.Err(); err != nil {
			return err
		}
		s := plans[i]
		if err := p.segment(s, i+1 == len(plans), next); err != nil {
			return err
		}
		if s.kept() > 0 || s.base >= s.after {
			next = s.base
		}
		p.end = max(p.end, s.ends())
	}
	if len(plans) == 0 && p.known > 0 {
		p.lose(0, p.known, byCheckpoints)
	}
	return nil
}

// ends is the offset behind what is kept.
func (p *segmentPlan) ends() int64 {
	end := int64(0)
	if p.base >= p.after {
		end = p.base
	}
	for i, e := range p.extents {
		if p.keep[i] {
			end = e.Next
		}
	}
	return end
}

func (p *partitionRepair) segment(s *segmentPlan, last bool, next int64) error {
	defer p.loseSegment(s, last, next)
	if s.whole() {
		return nil
	}
	for i, e := range s.extents {
		if !s.keep[i] && e.Batches > 0 {
			p.print("  %s byte %d: %s with %s: not kept, since others contradict", s.file, e.Position, counted(e.Batches, "batch"), span(e.First, e.Next))
		}
		if mend, ok := s.mends[i]; ok {
			p.say("mend", "the header of the batch at byte %d of %s: %s", e.Position, s.file, mend.what)
		}
	}
	prefix, all := s.prefix()
	switch {
	case s.kept() == 0 && (!last || s.base < s.after):
		return p.dropSegment(s)
	case all && s.representable() && s.base >= s.after && len(s.mends) == 0:
		return p.cut(s, prefix)
	}
	return p.rewrite(s)
}

// dropSegment moves all files of a segment out, the .log first: without it the others are nobody's.
func (p *partitionRepair) dropSegment(s *segmentPlan) error {
	for _, ext := range []string{".log", ".index", ".timeindex", ".txnindex"} {
		if err := p.moveOut(p.path(segment.FileName(s.base, ext)), "nothing in this segment can be kept"); err != nil {
			return err
		}
	}
	return syncDirs(p.fs, p.folder)
}

// cut shortens a segment to its good batches.
func (p *partitionRepair) cut(s *segmentPlan, size int64) (err error) {
	p.say("cut", "%s off the end of %s, from byte %d on", counted(s.size-size, "byte"), s.file, size)
	if err := p.q.keep(p.fs.FS, s.file, fmt.Sprintf("%s.from-%d", s.file, size), size, s.size-size); err != nil {
		return err
	}
	if _, err := vfs.Own(p.fs, s.file); err != nil { // a backup may be a link to it
		return err
	}
	f, err := p.fs.OpenFile(s.file, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := f.Truncate(size); err != nil {
		return err
	}
	return f.Sync()
}

// rewrite makes a segment anew from what is kept of it:
//
//	N.log.cleaned   written with its indexes, synced       a crash: dropped by whoever opens
//	N.log.swap      renamed, the directory synced          a crash: completed by whoever opens
//	N.log           what it replaces goes into the quarantine, then it gets its name
func (p *partitionRepair) rewrite(s *segmentPlan) error {
	aborted := p.abortedOf(s)
	w := &rewriter{p: p, s: s}
	for i, e := range s.extents {
		if s.keep[i] {
			if err := w.copy(i, e); err != nil {
				return errors.Join(err, w.abandon())
			}
		}
	}
	if err := w.finish(aborted); err != nil {
		return errors.Join(err, w.abandon())
	}
	p.say("rewrite", "%s from its %s: %d of %s", s.file, counted(s.kept(), "good batch"), w.bytes, counted(s.size, "byte"))
	named := false
	for i := len(w.parts) - 1; i >= 0; i-- {
		part := w.parts[i]
		named = named || part.Base() == s.base
		if err := errors.Join(part.Rename(".swap"), part.Close()); err != nil {
			return err
		}
	}
	if err := syncDirs(p.fs, p.folder); err != nil {
		return err
	}
	if !named {
		if err := p.dropSegment(s); err != nil {
			return err
		}
	}
	changed, err := log.Settle(p.fs, p.folder)
	for _, name := range changed {
		if strings.HasSuffix(name, ".snapshot") {
			p.say("move", "%s out: it lay within the rewritten segment; the state of producers is read from the log", name)
		}
	}
	return err
}

// abortedOf are the aborted transactions that the segment's index knows, if it can be read.
func (p *partitionRepair) abortedOf(s *segmentPlan) (list []segment.AbortedTxn) {
	x := txnindex.New(p.fs, p.path(segment.FileName(s.base, ".txnindex")), s.base)
	defer x.Close()
	if x.Check() != nil {
		return nil
	}
	for e, err := range x.All() {
		if err != nil {
			return nil
		}
		list = append(list, segment.AbortedTxn{ProducerID: e.ProducerID, FirstOffset: e.FirstOffset, LastOffset: e.LastOffset, LastStable: e.LastStableOffset})
	}
	return list
}

// rewriter copies kept batches into new segments, more than one only where offsets demand it.
type rewriter struct {
	p     *partitionRepair
	s     *segmentPlan
	parts []*segment.Segment
	bytes int64
}

const copyChunk = 1 << 20

// copy appends the batches of a run.
func (w *rewriter) copy(i int, e log.Extent) (err error) {
	f, err := w.p.fs.OpenFile(w.s.file, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if mend, ok := w.s.mends[i]; ok {
		raw, err := mended(io.NewSectionReader(f, e.Position, e.Bytes), mend.head)
		if err == nil {
			_, err = w.append(raw)
		}
		return err
	}
	buf := make([]byte, copyChunk)
	for pos, end := e.Position, e.Position+e.Bytes; pos < end; {
		if err := w.p.ctx.Err(); err != nil {
			return err
		}
		n := int(min(int64(len(buf)), end-pos))
		if _, err := f.ReadAt(buf[:n], pos); err != nil && err != io.EOF {
			return err
		}
		used, err := w.append(buf[:n])
		if err != nil {
			return err
		}
		if used == 0 { // a batch larger than the buffer
			size, _, err := record.Peek(buf[:n])
			if err != nil || int64(size) > end-pos {
				return fmt.Errorf("%s changed while it was read: %w", w.s.file, io.ErrUnexpectedEOF)
			}
			buf = make([]byte, size)
		}
		pos += int64(used)
	}
	return nil
}

// append adds the whole batches at the start of b and says how many bytes they are.
func (w *rewriter) append(b []byte) (used int, err error) {
	start := 0
	flush := func() error {
		if used == start {
			return nil
		}
		_, err := w.parts[len(w.parts)-1].Append(b[start:used])
		w.bytes += int64(used - start)
		start = used
		return err
	}
	for {
		batch, _, err := record.Next(b[used:])
		if errors.Is(err, record.ErrIncomplete) {
			return used, flush()
		}
		if err != nil {
			return used, err
		}
		if n := len(w.parts); n == 0 || batch.LastOffset()-w.parts[n-1].Base() > math.MaxInt32 {
			if err := flush(); err != nil {
				return used, err
			}
			if err := w.begin(batch.BaseOffset()); err != nil {
				return used, err
			}
		}
		used += batch.Size()
	}
}

// begin makes a new part. The first one keeps the segment's name where that is possible.
func (w *rewriter) begin(first int64) error {
	base := first
	if len(w.parts) == 0 && w.s.base >= w.s.after && w.s.base <= first && first-w.s.base <= math.MaxInt32 {
		base = w.s.base
	}
	part, err := segment.Create(w.p.folder, base, w.p.segmentOptions(".cleaned"))
	if err == nil {
		w.parts = append(w.parts, part)
	}
	return err
}

// finish seals and syncs the parts and gives each its aborted transactions.
func (w *rewriter) finish(aborted []segment.AbortedTxn) error {
	for i, part := range w.parts {
		next := int64(math.MaxInt64)
		if i+1 < len(w.parts) {
			next = w.parts[i+1].Base()
		}
		var mine []segment.AbortedTxn
		for _, a := range aborted {
			if a.LastOffset >= part.Base() && a.LastOffset < next {
				mine = append(mine, a)
			}
		}
		if len(mine) > 0 {
			if err := part.SetAborted(mine); err != nil {
				return err
			}
		}
		if err := errors.Join(part.Seal(w.p.ctx), part.Sync()); err != nil {
			return err
		}
	}
	return syncDirs(w.p.fs, w.p.folder)
}

// abandon removes parts that are not finished; nothing of them counts yet.
func (w *rewriter) abandon() (err error) {
	for _, part := range w.parts {
		err = errors.Join(err, part.Abandon())
	}
	return err
}

func (p *partitionRepair) segmentOptions(suffix string) segment.Options {
	return segment.Options{FS: p.fs, Suffix: suffix, IndexMaxBytes: p.c.IndexBytes, IndexIntervalBytes: p.interval}
}
