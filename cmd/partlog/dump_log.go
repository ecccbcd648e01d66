package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// rawBatches reads the batches of a file as Kafka scans it: by their sizes, whatever they hold.
type rawBatches struct {
	f    vfs.File
	size int64 // bytes to look at
	pos  int64 // of the next batch
	buf  []byte
}

func (d *dumper) openLog(name string) (*rawBatches, error) {
	f, err := d.fs.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	size, err := f.Size()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &rawBatches{f: f, size: size}, nil
}

// rawBatch is a batch as it stands in the file. magic may be none that is known; the rest is then read as magic 2.
type rawBatch struct {
	record.Batch
	pos   int64
	magic int8
	valid bool // the CRC matches
}

// next is the next whole batch, io.EOF where a scan stops, *unreadableError where it breaks off.
func (r *rawBatches) next() (rawBatch, error) {
	pos := r.pos
	if pos >= r.size-17 {
		return rawBatch{}, io.EOF
	}
	var head [17]byte
	if err := r.read(head[:], pos); err != nil {
		return rawBatch{}, err
	}
	length := int64(int32(binary.BigEndian.Uint32(head[8:])))
	if length < 14 {
		return rawBatch{}, unreadablef(pos, "size %d is below the smallest batch's, 14", length)
	}
	size := length + 12
	if pos+size > r.size {
		return rawBatch{}, io.EOF
	}
	if int64(cap(r.buf)) < size {
		r.buf = make([]byte, size) // the file holds that many
	}
	b := r.buf[:size]
	if err := r.read(b, pos); err != nil {
		return rawBatch{}, err
	}
	out := rawBatch{pos: pos, magic: int8(b[16])}
	if out.magic < 0 || out.magic > 2 {
		b[16] = 2 // as Kafka reads it; the CRC does not cover the field
	}
	batch, err := record.View(b)
	if err != nil {
		return rawBatch{}, unreadablef(pos, "%v", err)
	}
	r.pos = pos + size
	out.Batch = batch
	if batch.Magic() < 2 {
		out.valid = crc32.ChecksumIEEE(b[16:]) == batch.Checksum()
	} else {
		out.valid = crc32.Checksum(b[21:], castagnoli) == batch.Checksum()
	}
	return out, nil
}

// read fills b; a file that is shorter than it was ends the scan.
func (r *rawBatches) read(b []byte, pos int64) error {
	for n := 0; n < len(b); {
		m, err := r.f.ReadAt(b[n:], pos+int64(n))
		if n += m; n < len(b) && err != nil {
			return err
		}
	}
	return nil
}

// log dumps a .log.
func (d *dumper) log() (err error) {
	r, err := d.openLog(d.name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.f.Close()) }()
	whole := r.size
	if d.o.maxBytes > 0 {
		r.size = min(r.size, d.o.maxBytes)
	}
	l := logDump{dumper: d, decoder: record.NewDecoder(record.Limits{}), last: -1}
	for {
		if err := d.ctx.Err(); err != nil {
			return err
		}
		b, err := r.next()
		if err == io.EOF {
			break
		}
		if err == nil {
			err = l.batch(b)
		}
		if err != nil {
			return err
		}
	}
	if rest := whole - r.pos; rest > 0 && d.o.maxBytes <= 0 {
		d.line("Found %d invalid bytes at the end of %s", rest, filepath.Base(d.path))
		if d.o.json {
			d.findWith("invalid bytes", fmt.Sprintf("Found %d invalid bytes at the end of %s", rest, filepath.Base(d.path)), "", facts{{"position", r.pos}})
		}
	}
	return nil
}

type logDump struct {
	*dumper
	decoder *record.Decoder
	last    int64    // offset of the record before
	sums    []uint32 // of the records that follow, in an old format
}

func (l *logDump) batch(b rawBatch) error {
	if b.Codec() > record.Zstd {
		return unreadablef(b.pos, "codec %d is unknown", b.Codec())
	}
	stamp := stampName(b.Batch)
	position := facts{{"position", b.pos}, {"timestampType", stamp}, {"timestamp", b.MaxTimestamp()}, {"size", b.Size()}, {"magic", b.magic},
		{"compresscodec", b.Codec().String()}, {"crc", b.Checksum()}, {"isvalid", b.valid}}
	var fields facts
	tail := fmt.Sprintf("position: %d %s: %d size: %d magic: %d compresscodec: %s crc: %d isvalid: %t",
		b.pos, stamp, b.MaxTimestamp(), b.Size(), b.magic, b.Codec(), b.Checksum(), b.valid)
	if b.Magic() < 2 {
		l.line("offset: %d %s", b.LastOffset(), tail)
		fields.set("offset", b.LastOffset())
		for _, name := range []string{"baseOffset", "lastOffset", "count", "baseSequence", "lastSequence", "producerId", "producerEpoch",
			"partitionLeaderEpoch", "isTransactional", "isControl", "deleteHorizonMs"} {
			fields.set(name, nil)
		}
	} else {
		id, epoch, sequence := b.Producer()
		horizon, horizonText := optional(b.DeleteHorizon())
		l.line("baseOffset: %d lastOffset: %d count: %d baseSequence: %d lastSequence: %d producerId: %d producerEpoch: %d partitionLeaderEpoch: %d isTransactional: %t isControl: %t deleteHorizonMs: %s %s",
			b.BaseOffset(), b.LastOffset(), b.Count(), sequence, b.LastSequence(), id, epoch, b.LeaderEpoch(), b.Transactional(), b.Control(), horizonText, tail)
		fields.set("baseOffset", b.BaseOffset())
		fields.set("lastOffset", b.LastOffset())
		fields.set("count", b.Count())
		fields.set("baseSequence", sequence)
		fields.set("lastSequence", b.LastSequence())
		fields.set("producerId", id)
		fields.set("producerEpoch", epoch)
		fields.set("partitionLeaderEpoch", b.LeaderEpoch())
		fields.set("isTransactional", b.Transactional())
		fields.set("isControl", b.Control())
		fields.set("deleteHorizonMs", horizon)
		fields.set("offset", nil) // of a legacy entry
	}
	l.object("batch", append(fields, position...))
	if !l.deep {
		return nil
	}
	sums, err := l.decoder.Checksums(b.Batch)
	if err != nil {
		return unreadablef(b.pos, "the records of offsets %d to %d: %v", b.BaseOffset(), b.LastOffset(), err)
	}
	l.sums = sums
	for rec, err := range b.Records(l.decoder) {
		if err != nil {
			return unreadablef(b.pos, "the records of offsets %d to %d: %v", b.BaseOffset(), b.LastOffset(), err)
		}
		if rec.Offset != l.last+1 {
			l.findWith("non-consecutive", "Non-consecutive offsets in "+l.absolute(), fmt.Sprintf("  %d is followed by %d", l.last, rec.Offset),
				facts{{"position", b.pos}, {"offset", rec.Offset}})
		}
		l.last = rec.Offset
		if err := l.record(b, rec); err != nil {
			return err
		}
	}
	return nil
}

// stampName is Kafka's word for the timestamps of a batch.
func stampName(b record.Batch) string {
	if b.Magic() == 0 {
		return "NoTimestampType"
	}
	return b.TimestampType().String()
}

// optional is a number that may be absent, for JSON and as Java prints it.
func optional(n int64, ok bool) (any, string) {
	if !ok {
		return nil, "OptionalLong.empty"
	}
	return n, fmt.Sprintf("OptionalLong[%d]", n)
}

func (l *logDump) record(b rawBatch, rec record.Record) error {
	if l.o.skipMetadata && (b.Control() || !l.data) {
		return nil
	}
	stamp := stampName(b.Batch)
	fields := facts{{"offset", rec.Offset}, {"timestampType", stamp}, {"timestamp", rec.Timestamp}, {"keySize", length(rec.Key)}, {"valueSize", length(rec.Value)},
		{"sequence", nil}, {"headerKeys", nil}, {"isValid", nil}, {"crc", nil}, {"endTxnMarker", nil}, {"coordinatorEpoch", nil}, {"controlType", nil}, {"key", nil}, {"payload", nil}}
	var line strings.Builder
	fmt.Fprintf(&line, "| offset: %d %s: %d keySize: %d valueSize: %d", rec.Offset, stamp, rec.Timestamp, length(rec.Key), length(rec.Value))
	if b.Magic() < 2 {
		crc := l.sums[0]
		l.sums = l.sums[1:]
		fmt.Fprintf(&line, " isValid: true crc: %d", crc) // the decoder refuses wrong ones
		fields.set("isValid", true)
		fields.set("crc", crc)
	} else {
		_, _, sequence := b.Producer()
		if sequence >= 0 {
			sequence = record.IncrementSequence(sequence, int32(rec.Offset-b.BaseOffset()))
		} else {
			sequence = -1
		}
		keys := headerKeys(rec)
		fmt.Fprintf(&line, " sequence: %d headerKeys: [%s]", sequence, javaText([]byte(strings.Join(keys, ","))))
		fields.set("sequence", sequence)
		fields.set("headerKeys", keys)
		if b.Control() {
			if err := control(&line, &fields, rec); err != nil {
				return unreadablef(b.pos, "the control record at offset %d: %v", rec.Offset, err)
			}
		}
	}
	text := line.String()
	if l.o.skipMetadata {
		text = "|"
	}
	if l.data {
		if rec.Key != nil {
			text += dataText(" key: ", rec.Key, b.Control())
			fields.set("key", rec.Key)
		}
		if rec.Value != nil {
			text += dataText(" payload: ", rec.Value, b.Control())
			fields.set("payload", rec.Value)
		}
	}
	l.line("%s", text)
	l.object("record", fields)
	return nil
}

// dataText is a key or payload as Java prints its bytes as UTF-8; control records show what they mean instead.
func dataText(label string, b []byte, control bool) string {
	if control {
		return ""
	}
	return label + javaText(b)
}

func length(b []byte) int {
	if b == nil {
		return -1
	}
	return len(b)
}

func headerKeys(rec record.Record) []string {
	keys := make([]string, len(rec.Headers))
	for i, h := range rec.Headers {
		keys[i] = h.Key
	}
	return keys
}

// control describes the record of a control batch.
func control(line *strings.Builder, fields *facts, rec record.Record) error {
	t, err := record.ParseControl(rec.Key)
	if err != nil {
		return err
	}
	fields.set("controlType", t.String())
	if text, ok, err := kraftText(t, rec.Value); ok || err != nil {
		line.WriteString(text)
		return err
	}
	if t != record.Abort && t != record.Commit {
		fmt.Fprintf(line, " controlType: %s(%s)", t, strconv.Itoa(int(int16(binary.BigEndian.Uint16(rec.Key[2:])))))
		return nil
	}
	m, err := record.ParseMarker(rec)
	if err != nil {
		return err
	}
	fmt.Fprintf(line, " endTxnMarker: %s coordinatorEpoch: %d", m.Type, m.CoordinatorEpoch)
	fields.set("endTxnMarker", m.Type.String())
	fields.set("coordinatorEpoch", m.CoordinatorEpoch)
	return nil
}
