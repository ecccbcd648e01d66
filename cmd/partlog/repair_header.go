package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"strings"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/internal/epoch"
	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
)

// The fields of a batch that its checksum does not cover, and which a repair can therefore mend without a doubt about
// the records, where the batches around say what must stand there:
//
//	 0  base offset   8
//	 8  length        4
//	12  leader epoch  4
//	16  magic         1
//	17  crc           4    of all from 21 on
const uncovered = 17

// headerMend is how the first bytes of a batch should read.
type headerMend struct {
	head [uncovered]byte
	what string // which fields change
}

// headerMender looks for batches that were not chosen and have a right checksum all the same.
type headerMender struct {
	ctx    context.Context
	fs     vfs.FS
	plans  []*segmentPlan
	epochs []epoch.Entry // of the epoch file, if it can be read
	end    int64         // where the log ended as far as the root remembers; 0 unknown
}

// mendHeaders takes batches in whose uncovered fields can have one value only: the offset that joins the batch before to
// the batch behind without a gap, and the leader epoch that both have, or that the epoch file names.
func (p *partitionRepair) mendHeaders(plans []*segmentPlan) error {
	m := &headerMender{ctx: p.ctx, fs: p.fs, plans: plans, end: p.known}
	if list, err := checkpoint.ReadEpochs(p.fs, p.path(checkpoint.LeaderEpochs)); err == nil {
		m.epochs = list
	}
	for i, s := range plans {
		for j := range s.extents {
			if s.keep[j] || s.extents[j].Batches > 1 || s.extents[j].Zero {
				continue
			}
			if err := m.look(i, j); err != nil {
				return err
			}
		}
	}
	if err := m.splitLast(); err != nil {
		return err
	}
	setAfter(plans)
	return nil
}

// splitLast looks at the very last batch of the log, which nothing behind it can contradict: where it leaves a gap and
// reaches beyond the end that the root remembers, but would end there without the gap, its offset is mended too.
func (m *headerMender) splitLast() error {
	i := len(m.plans) - 1
	if i < 0 || m.end <= 0 {
		return nil
	}
	s := m.plans[i]
	j := len(s.extents) - 1
	if j < 0 || !s.keep[j] || s.extents[j].Next <= m.end {
		return nil
	}
	run, err := m.batches(s, j)
	if err != nil || len(run) == 0 {
		return err
	}
	last, from := run[len(run)-1], m.room(i, j).from
	if len(run) > 1 {
		from = run[len(run)-2].Next
	}
	if last.First <= from || from+last.Next-last.First != m.end {
		return nil
	}
	if len(run) > 1 {
		before := &s.extents[j]
		before.Bytes -= last.Bytes
		before.Batches--
		before.Next = from
		s.extents = append(s.extents, last)
		s.keep = append(s.keep, false)
		j++
	}
	s.keep[j] = false
	if err := m.look(i, j); err != nil {
		return err
	}
	s.keep[j] = true // as it is, if it could not be mended after all
	return nil
}

// batches are the last two batches of a kept run, one if it has no more.
func (m *headerMender) batches(s *segmentPlan, j int) (last []log.Extent, err error) {
	f, err := m.fs.OpenFile(s.file, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	e := s.extents[j]
	for pos := e.Position; pos < e.Position+e.Bytes; {
		var head [record.HeaderSize]byte
		n, err := f.ReadAt(head[:min(int64(len(head)), e.Position+e.Bytes-pos)], pos)
		if err != nil && err != io.EOF {
			return nil, err
		}
		size, magic, err := record.Peek(head[:n])
		if err != nil || magic != 2 || n < len(head) {
			return nil, nil // older formats cover their offset no better, but count otherwise
		}
		base := int64(binary.BigEndian.Uint64(head[:]))
		one := log.Extent{Position: pos, Bytes: int64(size), Batches: 1, First: base, Next: base + int64(int32(binary.BigEndian.Uint32(head[23:]))) + 1, Epoch: int32(binary.BigEndian.Uint32(head[12:]))}
		if len(last) > 1 {
			last = last[1:]
		}
		last = append(last, one)
		pos += int64(size)
	}
	return last, m.ctx.Err()
}

// room is the place of a batch between those that are kept.
type room struct {
	from, to  int64 // offsets
	low, high int32 // leader epochs; NoEpoch and MaxInt32 where nothing bounds them
}

func (m *headerMender) room(i, j int) room {
	r := room{from: m.plans[i].base, to: math.MaxInt64, low: record.NoEpoch, high: math.MaxInt32}
	for k := 0; k <= i; k++ {
		for n, e := range m.plans[k].extents {
			if m.plans[k].keep[n] && (k < i || n < j) {
				r.from, r.low = max(m.plans[i].base, e.Next), e.Epoch
			}
		}
	}
	for k := i; k < len(m.plans); k++ {
		if k > i && m.plans[k].kept() > 0 {
			r.to = min(r.to, m.plans[k].base)
		}
		for n, e := range m.plans[k].extents {
			if m.plans[k].keep[n] && (k > i || n > j) {
				r.to, r.high = min(r.to, e.First), e.Epoch
				return r
			}
		}
	}
	if m.end > r.from { // nothing that is kept follows
		r.to = m.end
	}
	return r
}

// offset is the base offset of a batch of so many offsets: its own if there is room for it, else the one that leaves no
// gap.
func (r room) offset(own, count int64) (int64, bool) {
	if own >= r.from && own <= math.MaxInt64-count && own+count <= r.to {
		return own, true
	}
	return r.from, r.to-r.from == count
}

// epoch is the leader epoch of a batch there.
func (r room) epoch(own int32, base int64, file []epoch.Entry) (int32, bool) {
	if own >= record.NoEpoch && own >= r.low && own <= r.high {
		return own, true
	}
	if r.low == r.high {
		return r.low, true
	}
	named, found := record.NoEpoch, false
	for _, e := range file {
		if e.StartOffset <= base {
			named, found = e.Epoch, true
		}
	}
	return named, found && named >= r.low && named <= r.high
}

// look takes in extent j of segment i if it is a batch with a damaged header.
func (m *headerMender) look(i, j int) (err error) {
	s := m.plans[i]
	e := s.extents[j]
	if e.Bytes < record.HeaderSize || e.Bytes > math.MaxInt32 {
		return nil
	}
	f, err := m.fs.OpenFile(s.file, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	section := io.NewSectionReader(f, e.Position, e.Bytes)
	var now [record.HeaderSize]byte
	if _, err := section.ReadAt(now[:], 0); err != nil {
		return err
	}
	right, err := m.checksum(section)
	if err != nil || right != binary.BigEndian.Uint32(now[17:]) {
		return err
	}
	count := int64(int32(binary.BigEndian.Uint32(now[23:]))) + 1
	room := m.room(i, j)
	base, ok := room.offset(int64(binary.BigEndian.Uint64(now[:])), count)
	if count < 1 || !ok {
		return nil
	}
	leader, ok := room.epoch(int32(binary.BigEndian.Uint32(now[12:])), base, m.epochs)
	if !ok {
		return nil
	}
	mend := headerMend{}
	binary.BigEndian.PutUint64(mend.head[0:], uint64(base))
	binary.BigEndian.PutUint32(mend.head[8:], uint32(e.Bytes-12))
	binary.BigEndian.PutUint32(mend.head[12:], uint32(leader))
	mend.head[16] = 2
	mend.what = changes(now[:uncovered], mend.head[:])
	if mend.what == "" {
		return nil
	}
	if good, err := readable(section, mend.head); err != nil || !good {
		return err
	}
	s.extents[j] = log.Extent{Position: e.Position, Bytes: e.Bytes, Batches: 1, First: base, Next: base + count, Epoch: leader}
	s.keep[j] = true
	if s.mends == nil {
		s.mends = map[int]headerMend{}
	}
	s.mends[j] = mend
	return nil
}

// checksum is the CRC that a batch of these bytes has, taken without holding them.
func (m *headerMender) checksum(section *io.SectionReader) (sum uint32, err error) {
	buf := make([]byte, 256<<10)
	for at := int64(21); at < section.Size(); {
		if err := m.ctx.Err(); err != nil {
			return 0, err
		}
		n, err := section.ReadAt(buf[:min(int64(len(buf)), section.Size()-at)], at)
		if n == 0 {
			return 0, err
		}
		sum = crc32.Update(sum, castagnoli, buf[:n])
		at += int64(n)
	}
	return sum, nil
}

// changes names the fields in which two headers differ.
func changes(now, then []byte) string {
	var list []string
	for _, f := range []struct {
		name     string
		at, size int
	}{{"base offset", 0, 8}, {"length", 8, 4}, {"leader epoch", 12, 4}, {"magic", 16, 1}} {
		a, b := field(now[f.at:f.at+f.size]), field(then[f.at:f.at+f.size])
		if a != b {
			list = append(list, fmt.Sprintf("%s %d becomes %d", f.name, a, b))
		}
	}
	return strings.Join(list, ", ")
}

// field is a signed number of 1, 4 or 8 bytes.
func field(b []byte) int64 {
	switch len(b) {
	case 1:
		return int64(int8(b[0]))
	case 4:
		return int64(int32(binary.BigEndian.Uint32(b)))
	}
	return int64(binary.BigEndian.Uint64(b))
}

// readable says whether the batch is sound with another head, its records included.
func readable(section *io.SectionReader, head [uncovered]byte) (bool, error) {
	raw, err := mended(section, head)
	if err != nil {
		return false, err
	}
	b, err := record.View(raw)
	if err != nil || b.Verify() != nil {
		return false, nil
	}
	for _, err := range b.Records(record.NewDecoder(record.Limits{})) {
		if errors.Is(err, record.ErrCorrupt) {
			return false, nil
		}
	}
	return true, nil
}

// mended are the bytes of a batch with another head.
func mended(section *io.SectionReader, head [uncovered]byte) ([]byte, error) {
	raw := make([]byte, section.Size())
	if _, err := section.ReadAt(raw, 0); err != nil && err != io.EOF {
		return nil, err
	}
	copy(raw, head[:])
	return raw, nil
}
