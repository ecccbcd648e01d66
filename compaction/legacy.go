package compaction

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/partlog/partlog/record"
)

// legacyBatch is batch for an entry of magic 0 or 1: a record, or a compressed set of records. Of a set of which only some
// stay each becomes an entry of its own, not compressed, of the same magic: nothing that reads the one cannot read the
// other, and nobody writes compressed sets any more. They have no header that could stay without a record.
//
//	offset 8 | size 4 | crc 4 | magic | attributes | magic 1: timestamp 8 | key length 4, key | value length 4, value
func (f *filter) legacyBatch(b record.Batch) (out []byte, verbatim bool, err error) {
	f.legacy = f.legacy[:0]
	all, kept := 0, 0
	for rec, err := range b.Records(f.r.d) {
		if err != nil {
			return nil, false, err
		}
		if err := f.r.holds(b, rec.Offset); err != nil {
			return nil, false, err
		}
		all++
		if f.keepsLegacy(&rec) {
			kept++
			f.legacy = appendLegacy(f.legacy, b, &rec)
		}
	}
	f.r.out.Read.Records += int64(all)
	switch kept {
	case 0:
		return nil, false, nil
	case all:
		f.wrote(b.Size(), kept)
		return b.Bytes(), true, nil
	}
	f.wrote(len(f.legacy), kept)
	f.counts.written.Batches += int64(kept - 1) // an entry is a batch
	return f.legacy, false, nil
}

func (f *filter) keepsLegacy(rec *record.Record) bool {
	switch {
	case rec.Offset > f.r.keys.latest:
	case rec.Key == nil:
		f.counts.unkeyed++
		return false
	case rec.Offset < f.r.keys.get(rec.Key):
		f.counts.superseded++
		return false
	case rec.Value == nil && !f.keepLegacy && rec.Offset < f.removal:
		f.counts.tombstones++
		return false
	}
	return true
}

// appendLegacy writes a record as an entry of the magic and timestamp type of the batch it comes from.
func appendLegacy(dst []byte, b record.Batch, rec *record.Record) []byte {
	be := binary.BigEndian
	start := len(dst)
	dst = be.AppendUint64(dst, uint64(rec.Offset))
	dst = be.AppendUint64(dst, 0) // size and crc
	dst = append(dst, byte(b.Magic()), byte(b.TimestampType())<<3)
	if b.Magic() > 0 {
		dst = be.AppendUint64(dst, uint64(rec.Timestamp))
	}
	dst = appendLegacyBytes(dst, rec.Key)
	dst = appendLegacyBytes(dst, rec.Value)
	entry := dst[start:]
	be.PutUint32(entry[8:], uint32(len(entry)-12))
	be.PutUint32(entry[12:], crc32.ChecksumIEEE(entry[16:]))
	return dst
}

func appendLegacyBytes(dst, b []byte) []byte {
	if b == nil {
		return binary.BigEndian.AppendUint32(dst, 0xffffffff)
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(b)))
	return append(dst, b...)
}
