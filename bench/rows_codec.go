package main

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/partlog/partlog/record"
	"github.com/pierrec/lz4/v4"
)

// codecRows show what a batch costs beside the bare compressor, given its working state again and again, on the same
// bytes. The record package's own framing, checksums and record encoding come on top.
func codecRows() []row {
	var all []row
	for _, c := range []record.Codec{record.Gzip, record.Snappy, record.LZ4, record.Zstd} {
		all = append(all,
			row{name: fmt.Sprint("encode a batch of 100, ", c), floor: fmt.Sprint(c, " alone"), make: encodeRow(c)},
			row{name: fmt.Sprint("decode a batch of 100, ", c), floor: fmt.Sprint(c, " alone"), make: decodeRow(c)})
	}
	return all
}

// readings are 100 records of JSON, as a device might send them: they compress as such data does.
func readings() []record.Record {
	recs := make([]record.Record, batchRecords)
	for i := range recs {
		recs[i] = record.Record{
			Key: fmt.Appendf(nil, "device-%09d", 1000+i%17),
			Value: fmt.Appendf(nil, `{"device":%d,"seq":%d,"celsius":%d.%02d,"humidity":%d,"state":"running","note":"line %02d"}`,
				1000+i%17, 77000+i, 15+i%9, i*37%100, 30+i*7%50, i%12),
		}
	}
	return recs
}

func encodeRow(c record.Codec) func(*fixtures) (pair, error) {
	return func(*fixtures) (pair, error) {
		recs := readings()
		plain, err := encode(recs, 1, record.None)
		if err != nil {
			return pair{}, err
		}
		pack, err := packer(c)
		if err != nil {
			return pair{}, err
		}
		b := record.NewBuilder(record.BuilderOptions{Codec: c})
		return pair{
			floor: repeat(func() error { return pack(plain[record.HeaderSize:]) }),
			ours: repeat(func() error {
				b.Reset()
				for i := range recs {
					r := recs[i]
					r.Timestamp = 1
					if err := b.Add(r); err != nil {
						return err
					}
				}
				_, err := b.Finish()
				return err
			}),
		}, nil
	}
}

func decodeRow(c record.Codec) func(*fixtures) (pair, error) {
	return func(*fixtures) (pair, error) {
		recs := readings()
		plain, err := encode(recs, 1, record.None)
		if err != nil {
			return pair{}, err
		}
		packed, err := encode(recs, 1, c)
		if err != nil {
			return pair{}, err
		}
		unpack, err := unpacker(c, plain[record.HeaderSize:])
		if err != nil {
			return pair{}, err
		}
		batch, err := record.View(packed)
		if err != nil {
			return pair{}, err
		}
		d := record.NewDecoder(record.Limits{})
		return pair{
			floor: repeat(unpack),
			ours: repeat(func() error {
				if err := batch.Verify(); err != nil {
					return err
				}
				for _, err := range batch.Records(d) {
					if err != nil {
						return err
					}
				}
				return nil
			}),
		}, nil
	}
}

// packer is the bare compressor with the level the library uses by default.
func packer(c record.Codec) (func(src []byte) error, error) {
	var out bytes.Buffer
	reset := func() io.Writer { out.Reset(); return &out }
	switch c {
	case record.Gzip:
		w := gzip.NewWriter(&out)
		return func(src []byte) error { w.Reset(reset()); return writeClose(w, src) }, nil
	case record.Snappy:
		var dst []byte
		return func(src []byte) error { dst = s2.EncodeSnappy(dst[:cap(dst)], src); return nil }, nil
	case record.LZ4:
		w := lz4.NewWriter(&out)
		if err := w.Apply(lz4.BlockSizeOption(lz4.Block64Kb), lz4.CompressionLevelOption(lz4.Fast)); err != nil {
			return nil, err
		}
		return func(src []byte) error { w.Reset(reset()); return writeClose(w, src) }, nil
	default:
		w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
		var dst []byte
		return func(src []byte) error { dst = w.EncodeAll(src, dst[:0]); return nil }, err
	}
}

func writeClose(w io.WriteCloser, src []byte) error {
	if _, err := w.Write(src); err != nil {
		return err
	}
	return w.Close()
}

// unpacker is the bare decompressor on plain as the bare compressor packed it.
func unpacker(c record.Codec, plain []byte) (func() error, error) {
	var packed bytes.Buffer
	dst := make([]byte, 0, 2*len(plain))
	in := bytes.NewReader(nil)
	switch c {
	case record.Gzip:
		if err := writeClose(gzip.NewWriter(&packed), plain); err != nil {
			return nil, err
		}
		r, err := gzip.NewReader(bytes.NewReader(packed.Bytes()))
		if err != nil {
			return nil, err
		}
		return func() error {
			in.Reset(packed.Bytes())
			if err := r.Reset(in); err != nil {
				return err
			}
			_, err := io.ReadFull(r, dst[:len(plain)])
			return err
		}, nil
	case record.Snappy:
		block := s2.EncodeSnappy(nil, plain)
		return func() error { _, err := s2.Decode(dst[:cap(dst)], block); return err }, nil
	case record.LZ4:
		if err := writeClose(lz4.NewWriter(&packed), plain); err != nil {
			return nil, err
		}
		r := lz4.NewReader(nil)
		return func() error {
			in.Reset(packed.Bytes())
			r.Reset(in)
			_, err := io.ReadFull(r, dst[:len(plain)])
			return err
		}, nil
	default:
		w, err := zstd.NewWriter(nil)
		if err != nil {
			return nil, err
		}
		block := w.EncodeAll(plain, nil)
		r, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
		return func() error { _, err := r.DecodeAll(block, dst[:0]); return err }, err
	}
}

// repeat makes one side of a pair from a single operation.
func repeat(f func() error) func(n int) (time.Duration, error) {
	return timed(func(n int) error {
		for range n {
			if err := f(); err != nil {
				return err
			}
		}
		return nil
	})
}

func rows() []row {
	return slices.Concat(appendRows(), replicaRows(), producerRows(), readRows(), cleanRows(), codecRows())
}
