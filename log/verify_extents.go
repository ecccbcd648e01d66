package log

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/vfs"
)

// Extent is a piece of a .log file: a run of whole batches, or a hole between two of them.
//
//	| batch | batch | ?????????? | batch | batch | batch |
//	  run             hole         run
type Extent struct {
	Position int64  // first byte
	Bytes    int64  // length
	Batches  int    // whole batches in it; 0: a hole
	First    int64  // first offset of a run; -1 for a hole
	Next     int64  // offset behind the last one of a run; -1 for a hole
	Epoch    int32  // leader epoch of all batches of the run, -1 if they have none
	Reason   string // why nothing can be read at the start of a hole
	Zero     bool   // the hole is nothing but zeros
}

// Extents reads a whole .log file, also a damaged one, and says which of its bytes are batches with a right CRC, a sound
// header and records that can be read. base is the offset in the file's name. A run ends where the leader epoch changes,
// and offsets ascend in it: batches on both sides of a place where they do not are runs of their own, so that whoever
// repairs can choose which to believe. Memory is bounded by the largest intact batch.
func Extents(ctx context.Context, fsys vfs.FS, file string, base int64) (extents []Extent, err error) {
	r, err := openBatchFile(fsys, file, base)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	runs, decoder := runs{base: base}, record.NewDecoder(record.Limits{})
	for pos := int64(0); pos < r.size; {
		b, reason, err := r.batch(ctx, pos)
		if err != nil {
			return nil, err
		}
		to, zero := pos+int64(b.Size()), false
		if reason != "" {
			to, zero, err = r.resync(ctx, pos)
		} else if reason = unreadable(b, decoder); reason == "" {
			runs.add(pos, b)
		}
		if err != nil {
			return nil, err
		}
		if reason != "" {
			runs.list = append(runs.list, Extent{Position: pos, Bytes: to - pos, First: -1, Next: -1, Epoch: record.NoEpoch, Reason: reason, Zero: zero})
		}
		pos = to
	}
	return runs.list, nil
}

// unreadable says why the records of a batch with a right CRC cannot be used; "" if they can.
func unreadable(b record.Batch, d *record.Decoder) string {
	base, last, before := b.BaseOffset(), b.LastOffset(), int64(-1)
	for rec, err := range b.Records(d) {
		switch {
		case errors.Is(err, record.ErrCorrupt):
			return reasonOf(err)
		case err != nil: // too large to look at: not for that damaged
			return ""
		case rec.Offset <= before, rec.Offset > last, b.Magic() >= 2 && rec.Offset < base:
			return fmt.Sprintf("record offset %d in a batch of %d to %d", rec.Offset, base, last)
		}
		before = rec.Offset
	}
	return ""
}

// runs gathers batches into extents.
type runs struct {
	base   int64
	list   []Extent
	last   Extent // the last batch alone
	before int64  // end of the last run without it
	alone  bool   // the last run must not grow: its batch stands where offsets do not ascend, or below the base
}

func (r *runs) add(pos int64, b record.Batch) {
	one := Extent{Position: pos, Bytes: int64(b.Size()), Batches: 1, First: b.BaseOffset(), Next: b.NextOffset(), Epoch: b.LeaderEpoch()}
	defer func() { r.last = one }()
	if len(r.list) == 0 || r.list[len(r.list)-1].Batches == 0 {
		r.list, r.alone = append(r.list, one), one.First < r.base
		return
	}
	run := &r.list[len(r.list)-1]
	switch {
	case one.First < run.Next:
		if run.Batches > 1 { // the batch before may be the wrong one: it gets a run of its own
			run.Batches--
			run.Bytes -= r.last.Bytes
			run.Next = r.before
			r.list = append(r.list, r.last)
		}
		r.list, r.alone = append(r.list, one), true
	case r.alone || one.Epoch != run.Epoch:
		r.list, r.alone = append(r.list, one), one.First < r.base
	default:
		r.before = run.Next
		run.Batches++
		run.Bytes += one.Bytes
		run.Next = one.Next
	}
}

// batchFile reads verified batches of a .log file at any position. It is not safe for concurrent use.
type batchFile struct {
	f      vfs.File
	size   int64
	base   int64
	buf    []byte // buf[:n] are the bytes from at on
	at     int64
	n      int
	budget int64 // bytes of look-alikes that resync may still check: hostile bytes could look like a batch everywhere
}

const (
	verifyWindow = 256 << 10
	streamAbove  = 8 << 20 // larger batches are checked in pieces before memory is taken for them
)

func openBatchFile(fsys vfs.FS, name string, base int64) (*batchFile, error) {
	f, err := fsys.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	size, err := f.Size()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	r := &batchFile{f: f, base: base, buf: make([]byte, verifyWindow)}
	r.limit(size)
	return r, nil
}

// limit reads only the first size bytes.
func (r *batchFile) limit(size int64) { r.size, r.budget = size, 8*size+64<<20 }

func (r *batchFile) close() error { return r.f.Close() }

// bytes are the n bytes at pos, fewer at the end of the file; they are valid until the next call.
func (r *batchFile) bytes(pos int64, n int) ([]byte, error) {
	n = int(min(int64(n), r.size-pos))
	if pos >= r.at && pos+int64(n) <= r.at+int64(r.n) {
		return r.buf[pos-r.at:][:n:n], nil
	}
	if n > len(r.buf) {
		r.buf = make([]byte, n)
	} else if len(r.buf) > streamAbove && n <= verifyWindow {
		r.buf = make([]byte, verifyWindow)
	}
	r.at, r.n = pos, 0
	got, err := readUpTo(r.f, r.buf[:min(int64(len(r.buf)), r.size-pos)], pos)
	if err != nil {
		return nil, err
	}
	r.n = got
	return r.buf[:min(n, got)], nil
}

// batch is the batch that starts at pos, or the reason why there is none. It is valid until the next call.
func (r *batchFile) batch(ctx context.Context, pos int64) (record.Batch, string, error) {
	if err := ctx.Err(); err != nil {
		return record.Batch{}, "", err
	}
	head, err := r.bytes(pos, record.HeaderSize)
	if err != nil {
		return record.Batch{}, "", err
	}
	size, magic, err := record.Peek(head)
	switch {
	case errors.Is(err, record.ErrIncomplete):
		return record.Batch{}, "the header is cut short", nil
	case err != nil:
		return record.Batch{}, reasonOf(err), nil
	case magic < 0 || magic > 2:
		return record.Batch{}, fmt.Sprintf("magic %d is unknown", magic), nil
	case int64(size) > r.size-pos:
		return record.Batch{}, fmt.Sprintf("the batch is cut short: %d bytes of %d", r.size-pos, size), nil
	}
	if size > streamAbove {
		if ok, err := r.checksum(ctx, pos, int64(size), magic); err != nil || !ok {
			return record.Batch{}, "crc: the checksum does not match the bytes", err
		}
	}
	raw, err := r.bytes(pos, size)
	if err != nil {
		return record.Batch{}, "", err
	}
	b, err := record.View(raw)
	if err == nil {
		err = b.Verify()
	}
	if err != nil {
		return record.Batch{}, reasonOf(err), nil
	}
	return b, "", nil
}

// torn says whether what stands at pos is the beginning of a batch that ends behind the file.
func (r *batchFile) torn(pos int64) bool {
	head, err := r.bytes(pos, record.HeaderSize)
	if err != nil {
		return false
	}
	size, magic, err := record.Peek(head)
	return errors.Is(err, record.ErrIncomplete) || err == nil && magic >= 0 && magic <= 2 && int64(size) > r.size-pos
}

// reasonOf is what a record's error says about the bytes.
func reasonOf(err error) string {
	if c, ok := errors.AsType[*record.CorruptError](err); ok {
		return c.Field + ": " + c.Reason
	}
	if errors.Is(err, record.ErrIncomplete) {
		return "the batch is cut short"
	}
	return err.Error()
}

// checksum compares a large batch's CRC without holding the batch.
func (r *batchFile) checksum(ctx context.Context, pos, size int64, magic int8) (bool, error) {
	table, field := castagnoli, int64(17)
	if magic < 2 {
		table, field = crc32.IEEETable, 12
	}
	buf := make([]byte, verifyWindow)
	if n, err := readUpTo(r.f, buf[:4], pos+field); err != nil || n < 4 {
		return false, err
	}
	want, got := binary.BigEndian.Uint32(buf), uint32(0)
	for at := field + 4; at < size; {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		n, err := readUpTo(r.f, buf[:min(verifyWindow, size-at)], pos+at)
		if err != nil || n == 0 {
			return false, err
		}
		got = crc32.Update(got, table, buf[:n])
		at += int64(n)
	}
	return got == want, nil
}

// resync is the position of the first whole batch behind the bad byte at pos; the end of the file if there is none.
// zero says that nothing but zeros lies between.
func (r *batchFile) resync(ctx context.Context, pos int64) (to int64, zero bool, err error) {
	window := make([]byte, verifyWindow)
	zero = true
	for at := pos; at < r.size; {
		if err := ctx.Err(); err != nil {
			return 0, false, err
		}
		n, err := readUpTo(r.f, window[:min(verifyWindow, r.size-at)], at)
		if err != nil {
			return 0, false, err
		}
		b := window[:n]
		last := n < verifyWindow || at+int64(n) >= r.size
		i := 0
		for ; i < len(b) && (last || i+17 <= len(b)); i++ {
			if at+int64(i) > pos && i+17 <= len(b) && r.mayStart(b[i:i+17], r.size-at-int64(i)) {
				batch, reason, err := r.candidate(ctx, at+int64(i), b[i:])
				if err != nil {
					return 0, false, err
				}
				if reason == "" && batch.LastOffset()-r.base <= math.MaxInt32 {
					return at + int64(i), zero, nil
				}
			}
			zero = zero && b[i] == 0
		}
		if last {
			break
		}
		at += int64(i)
	}
	return r.size, zero, nil
}

// mayStart is the cheap part of the question whether a batch begins with b: it is asked of every byte.
func (r *batchFile) mayStart(b []byte, remaining int64) bool {
	base := int64(binary.BigEndian.Uint64(b))
	size := int64(int32(binary.BigEndian.Uint32(b[8:])))
	return b[16] <= 2 && base >= r.base && base-r.base <= math.MaxInt32 && size >= 14 && size+12 <= remaining
}

// candidate is batch for a look-alike, as long as the budget for them lasts.
func (r *batchFile) candidate(ctx context.Context, pos int64, head []byte) (record.Batch, string, error) {
	size := int64(int32(binary.BigEndian.Uint32(head[8:]))) + 12
	if r.budget -= size; r.budget < 0 {
		return record.Batch{}, "too many look-alikes", nil
	}
	return r.batch(ctx, pos)
}

// readUpTo fills p from off on, less at the end of the file.
func readUpTo(f io.ReaderAt, p []byte, off int64) (int, error) {
	n := 0
	for n < len(p) {
		m, err := f.ReadAt(p[n:], off+int64(n))
		n += m
		switch {
		case err == io.EOF:
			return n, nil
		case err != nil:
			return n, err
		case m == 0:
			return n, io.ErrNoProgress
		}
	}
	return n, nil
}

// Settle finishes or undoes what an interrupted deletion, rewrite or replacement left in a partition folder, as opening
// the log does first, and says which files came and went. The caller owns the root.
func Settle(fsys vfs.FS, folder string) (changed []string, err error) {
	l := &Log{}
	l.tuned.Store(&tuning{segOpts: segment.Options{FS: fsys}})
	l.fs, l.name = fsys, folder
	err = l.settle()
	return append(l.recovery.Removed, l.recovery.Rebuilt...), err
}
