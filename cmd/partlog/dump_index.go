package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"strings"

	"github.com/partlog/partlog/index"
	"github.com/partlog/partlog/internal/producerstate"
	"github.com/partlog/partlog/internal/txnindex"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/timeindex"
	"github.com/partlog/partlog/vfs"
)

// maxIndexBytes is the largest index file that is taken into memory: one entry for each of the smallest batches that fit
// into a segment.
const maxIndexBytes = 1 << 30

// readWhole is the content of an index file.
func (d *dumper) readWhole(name string) ([]byte, error) {
	f, err := d.fs.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > maxIndexBytes {
		return nil, unreadablef(-1, "%d bytes are more than an index can have", size)
	}
	b := make([]byte, size)
	n, err := io.ReadFull(io.NewSectionReader(f, 0, size), b)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && err != io.EOF {
		return nil, err
	}
	return b[:n], nil
}

// besides is the name of another file of the same segment: with the same suffix if there is one, else the live file.
func (d *dumper) besides(base int64, ext string) string {
	_, plain := kindOf(d.name)
	suffix := strings.TrimPrefix(d.name, plain)
	name := segment.FileName(base, ext)
	if _, err := d.fs.Stat(name + suffix); err == nil {
		return name + suffix
	}
	return name
}

// index dumps an offset index and checks each entry against the log beside it.
func (d *dumper) index(base int64) (err error) {
	b, err := d.readWhole(d.name)
	if err != nil {
		return err
	}
	entries := len(b) / index.EntrySize
	entry := func(i int) (offset, position int64) {
		e := b[i*index.EntrySize:]
		return base + int64(int32(binary.BigEndian.Uint32(e))), int64(int32(binary.BigEndian.Uint32(e[4:])))
	}
	if len(b) == 0 {
		d.line("%s is empty.", d.path)
		return nil
	}
	torn := partial(b, index.EntrySize)
	if d.o.sanityOnly {
		if torn != nil {
			return torn
		}
		if entries > 0 {
			if last, _ := entry(entries - 1); last < base {
				return unreadablef(int64(entries-1)*index.EntrySize, "the last entry, for offset %d, is below the base %d: a broker takes the index for corrupt", last, base)
			}
		}
		d.line("%s passed sanity check.", d.path)
		return nil
	}
	log, err := d.openLog(d.besides(base, ".log"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.f.Close()) }()
	for i := range entries {
		if err := d.ctx.Err(); err != nil {
			return err
		}
		offset, position := entry(i)
		if i > 0 && offset == base {
			break // zero padding
		}
		if position < 0 || position > log.size {
			return unreadablef(int64(i)*index.EntrySize, "entry for offset %d names byte %d, but the log has %d bytes", offset, position, log.size)
		}
		log.pos = position
		batch, err := log.next()
		if err == io.EOF {
			return unreadablef(int64(i)*index.EntrySize, "entry for offset %d names byte %d, where no whole batch begins", offset, position)
		}
		if err != nil {
			return err
		}
		if last := batch.LastOffset(); last != offset {
			d.findWith("mismatch", "Mismatches in :"+d.absolute(), fmt.Sprintf("  Index offset: %d, log offset: %d", offset, last),
				facts{{"position", int64(i) * index.EntrySize}, {"offset", offset}, {"logOffset", last}})
		}
		d.entry(facts{{"offset", offset}, {"position", position}}, "offset: %d position: %d", offset, position)
	}
	return torn
}

// partial is the error of an index that does not end with a whole entry.
func partial(b []byte, entry int) error {
	if rest := len(b) % entry; rest > 0 {
		return unreadablef(int64(len(b)-rest), "%s at the end, and an entry has %d", counted(rest, "byte"), entry)
	}
	return nil
}

// timeIndex dumps a time index and checks each entry against the log beside it, found by the offset index.
func (d *dumper) timeIndex(base int64) (err error) {
	b, err := d.readWhole(d.name)
	if err != nil {
		return err
	}
	entries := len(b) / timeindex.EntrySize
	entry := func(i int) (timestamp, offset int64) {
		e := b[i*timeindex.EntrySize:]
		return int64(binary.BigEndian.Uint64(e)), base + int64(int32(binary.BigEndian.Uint32(e[8:])))
	}
	torn := partial(b, timeindex.EntrySize)
	if d.o.sanityOnly {
		if torn != nil {
			return torn
		}
		if entries > 0 {
			first, _ := entry(0)
			if ts, off := entry(entries - 1); ts < first || off < base {
				return unreadablef(int64(entries-1)*timeindex.EntrySize, "the last entry (%d, offset %d) is below the first: a broker takes the index for corrupt", ts, off)
			}
		}
		d.line("%s passed sanity check.", d.path)
		return nil
	}
	t := timeDump{dumper: d, decoder: record.NewDecoder(record.Limits{})}
	if t.log, err = d.openLog(d.besides(base, ".log")); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.log.f.Close()) }()
	if t.offsets, err = d.readWhole(d.besides(base, ".index")); err != nil {
		return err
	}
	t.before = -1
	for i := range entries {
		if err := d.ctx.Err(); err != nil {
			return err
		}
		ts, offset := entry(i)
		if i > 0 && offset == base {
			break // zero padding
		}
		if err := t.check(base, int64(i)*timeindex.EntrySize, ts, offset); err != nil {
			return err
		}
		t.before = ts
		d.entry(facts{{"timestamp", ts}, {"offset", offset}}, "timestamp: %d offset: %d", ts, offset)
	}
	return torn
}

type timeDump struct {
	*dumper
	decoder *record.Decoder
	log     *rawBatches
	offsets []byte // of the offset index
	before  int64  // the timestamp of the entry before
}

// lookup is the position of the last entry of the offset index at or below offset.
func (t *timeDump) lookup(base, offset int64) int64 {
	position := int64(0)
	for i := 0; i+index.EntrySize <= len(t.offsets); i += index.EntrySize {
		at := base + int64(int32(binary.BigEndian.Uint32(t.offsets[i:])))
		if i > 0 && at == base || at > offset {
			break
		}
		position = int64(int32(binary.BigEndian.Uint32(t.offsets[i+4:])))
	}
	return position
}

// check looks for the batch that an entry speaks of.
func (t *timeDump) check(base, at, ts, offset int64) error {
	t.log.pos = t.lookup(base, offset)
	if t.log.pos < 0 || t.log.pos > t.log.size {
		return unreadablef(at, "the offset index names byte %d for offset %d, but the log has %d bytes", t.log.pos, offset, t.log.size)
	}
	found := int64(-1)
	for {
		if err := t.ctx.Err(); err != nil {
			return err
		}
		b, err := t.log.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if b.LastOffset() < offset {
			continue
		}
		if b.LastOffset() > offset {
			found = b.LastOffset()
			break
		}
		largest := int64(-1)
		for rec, err := range b.Records(t.decoder) {
			if err != nil {
				return unreadablef(b.pos, "the records of offsets %d to %d: %v", b.BaseOffset(), b.LastOffset(), err)
			}
			largest = max(largest, rec.Timestamp)
		}
		if largest != ts {
			t.findWith("timestamp mismatch", "Found timestamp mismatch in :"+t.absolute(), fmt.Sprintf("  Index timestamp: %d, log timestamp: %d", ts, largest),
				facts{{"position", at}, {"offset", offset}, {"logTimestamp", largest}})
		}
		if ts <= t.before { // Kafka's tool does not look at the order of an entry whose batch it does not find
			t.findWith("out of order", "Found out of order timestamp in :"+t.absolute(), fmt.Sprintf("  Index timestamp: %d, Previously indexed timestamp: %d", ts, t.before),
				facts{{"position", at}, {"offset", offset}})
		}
		return nil
	}
	t.findWith("not found", "The following indexed offsets are not found in :"+t.absolute(), fmt.Sprintf("Indexed offset: %d, found log offset: %d", offset, found),
		facts{{"position", at}, {"offset", offset}, {"logOffset", found}})
	return nil
}

// txnIndex dumps an index of aborted transactions. Kafka's tool says nothing of entries that contradict each other, or of half
// an entry at the end.
func (d *dumper) txnIndex(base int64) error {
	b, err := d.readWhole(d.name)
	if err != nil {
		return err
	}
	if d.o.sanityOnly {
		d.line("%s passed sanity check.", d.path)
		return nil
	}
	for at := 0; at+txnindex.EntrySize <= len(b); at += txnindex.EntrySize {
		if err := d.ctx.Err(); err != nil {
			return err
		}
		e, version := txnindex.Decode(b[at:])
		if b[at] == 0 { // Kafka looks at no more of it
			version = 0
		}
		if version != 0 {
			return unreadablef(int64(at), "version %d is not known", version)
		}
		d.entry(facts{{"version", version}, {"producerId", e.ProducerID}, {"firstOffset", e.FirstOffset}, {"lastOffset", e.LastOffset}, {"lastStableOffset", e.LastStableOffset}},
			"version: %d producerId: %d firstOffset: %d lastOffset: %d lastStableOffset: %d", version, e.ProducerID, e.FirstOffset, e.LastOffset, e.LastStableOffset)
	}
	x := txnindex.New(d.fs, d.name, base)
	err = errors.Join(x.Check(), x.Close())
	if corrupt, ok := errors.AsType[*txnindex.CorruptError](err); ok {
		return unreadablef(corrupt.Position, "%s", corrupt.Reason)
	}
	if err != nil {
		return err
	}
	return partial(b, txnindex.EntrySize)
}

// snapshot dumps the producers of a snapshot: all or none, since one checksum speaks for all of it. Of a corrupt one it says
// what Kafka's tool says, and that it is unreadable.
func (d *dumper) snapshot() error {
	entries, err := producerstate.ReadSnapshot(d.fs, d.name)
	if corrupt, ok := errors.AsType[*producerstate.CorruptError](err); ok {
		b, err := vfs.ReadFile(d.fs, d.name, maxSnapshot)
		words := corrupt.Reason
		if err == nil {
			words = snapshotWords(b)
		}
		d.findWith("corrupt snapshot", words, "", facts{{"position", corrupt.Position}})
		return unreadablef(corrupt.Position, "%s", corrupt.Reason)
	}
	if err != nil {
		return err
	}
	for _, p := range entries {
		txn, txnText := optional(p.TxnFirstOffset, p.TxnFirstOffset >= 0)
		text := fmt.Sprintf("producerId: %d producerEpoch: %d coordinatorEpoch: %d currentTxnFirstOffset: %s lastTimestamp: %d",
			p.ProducerID, p.Epoch, p.CoordinatorEpoch, txnText, p.Timestamp)
		v := facts{{"producerId", p.ProducerID}, {"producerEpoch", p.Epoch}, {"coordinatorEpoch", p.CoordinatorEpoch}, {"currentTxnFirstOffset", txn}, {"lastTimestamp", p.Timestamp},
			{"firstSequence", nil}, {"lastSequence", nil}, {"lastOffset", nil}, {"offsetDelta", nil}, {"timestamp", nil}}
		if p.LastOffset >= 0 {
			first := decrement(p.LastSequence, p.OffsetDelta)
			text += fmt.Sprintf(" firstSequence: %d lastSequence: %d lastOffset: %d offsetDelta: %d timestamp: %d", first, p.LastSequence, p.LastOffset, p.OffsetDelta, p.Timestamp)
			v.set("firstSequence", first)
			v.set("lastSequence", p.LastSequence)
			v.set("lastOffset", p.LastOffset)
			v.set("offsetDelta", p.OffsetDelta)
			v.set("timestamp", p.Timestamp)
		}
		d.entry(v, "%s", text)
	}
	return nil
}

// maxSnapshot bounds what is read of a snapshot.
const maxSnapshot = 256 << 20

// snapshotWords are what Kafka's tool says of a snapshot that cannot be used: where nothing but bytes is missing, "null".
func snapshotWords(b []byte) string {
	const invalid, header, entry = "Snapshot failed schema validation: ", 10, 46
	if len(b) >= 2 {
		if version := int16(binary.BigEndian.Uint16(b)); version != 1 {
			return fmt.Sprintf("%sSnapshot contained an unknown file version %d", invalid, version)
		}
	}
	if len(b) < header {
		return invalid + "null"
	}
	count, rest := int32(binary.BigEndian.Uint32(b[6:])), len(b)-header
	switch {
	case count < 0:
		return invalid + "non-nullable field producerEntries was serialized as null"
	case int64(count) > int64(rest):
		return fmt.Sprintf("%sTried to allocate a collection of size %d, but there are only %d bytes remaining.", invalid, count, rest)
	case int64(count)*entry > int64(rest):
		return invalid + "null"
	}
	return fmt.Sprintf("Snapshot is corrupt (CRC is no longer valid). Stored crc: %d. Computed crc: %d", binary.BigEndian.Uint32(b[2:]), crc32.Checksum(b[6:], castagnoli))
}

// decrement goes back in a producer's sequence, which wraps at 2^31-1.
func decrement(sequence, by int32) int32 {
	if sequence >= by {
		return sequence - by
	}
	return int32(int64(1<<31-1) - (int64(by) - int64(sequence)) + 1)
}
