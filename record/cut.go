package record

import (
	"encoding/binary"
	"errors"
	"math"
)

// Peek reads the size of the batch at the start of b, header and all, and its magic from the first 17 bytes; fewer are
// ErrIncomplete. A length field below 14 or beyond what a file can hold is a *CorruptError. Magic is not judged. Offset,
// length and magic stand at the same place in all formats.
func Peek(b []byte) (size int, magic int8, err error) {
	if len(b) < peekSize {
		return 0, 0, ErrIncomplete
	}
	size, err = peekLength(b)
	return size, int8(b[posMagic]), err
}

// peekLength needs 12 bytes.
func peekLength(b []byte) (int, error) {
	length := int32(binary.BigEndian.Uint32(b[posLength:]))
	if length < minLength {
		return 0, &CorruptError{Field: "length", Reason: "is below the smallest message's"}
	}
	if length > math.MaxInt32-overhead {
		return 0, &CorruptError{Field: "length", Reason: "is beyond the largest file's"}
	}
	return int(length) + overhead, nil
}

// Next cuts the first batch off b. It looks at the header only, not at the CRC; it never panics and, but for an error,
// never allocates.
//
// ErrIncomplete means that b ends within the batch (or is empty). A *CorruptError means that no batch starts here: a length
// field too small for its format, or an unknown magic.
func Next(b []byte) (batch Batch, rest []byte, err error) {
	if len(b) < overhead {
		return Batch{}, b, ErrIncomplete
	}
	size, err := peekLength(b)
	if err != nil {
		return Batch{}, b, err
	}
	if len(b) < peekSize {
		return Batch{}, b, ErrIncomplete
	}
	if err := checkSize(size, int8(b[posMagic])); err != nil {
		return Batch{}, b, err
	}
	if len(b) < size {
		return Batch{}, b, ErrIncomplete
	}
	return Batch{b[:size:size]}, b[size:], nil
}

func checkSize(size int, magic int8) error {
	least := HeaderSize
	switch magic {
	case 0:
		least = overhead + minLength
	case 1:
		least = overhead + minLengthV1
	case 2:
	default:
		return &CorruptError{Field: "magic", Reason: "is unknown"}
	}
	if size < least {
		return &CorruptError{Field: "length", Reason: "is too small for the header"}
	}
	return nil
}

// View takes b as exactly one batch, by its header only. Bytes behind the batch are a *CorruptError, missing bytes
// ErrIncomplete.
func View(b []byte) (Batch, error) {
	batch, rest, err := Next(b)
	if err != nil {
		return Batch{}, err
	}
	if len(rest) > 0 {
		return Batch{}, &CorruptError{Field: "length", Reason: "bytes follow the batch"}
	}
	return batch, nil
}

// Info is what Split counted.
type Info struct {
	Batches, Records        int
	FirstOffset, LastOffset int64 // -1 if there is no batch
	MaxTimestamp            int64 // NoTimestamp if no batch has one
	Bytes                   int   // of whole batches; what follows is the start of one more
}

// Split checks every batch and every record of raw as it arrived from a peer or a file, decompressing where needed: sizes,
// CRC, header rules, the structure of each record. A partial batch at the end is not an error; Info.Bytes says where it
// starts.
//
// The errors are *CorruptError with the batch's position, ErrTooLarge for a batch beyond lim; Info then describes what
// comes before it.
func Split(raw []byte, lim Limits) (Info, error) {
	info := Info{FirstOffset: -1, LastOffset: -1, MaxTimestamp: NoTimestamp}
	lim = lim.withDefaults()
	d := takeDecoder(lim)
	defer releaseDecoder(d)
	for rest := raw; len(rest) > 0; {
		batch, after, err := Next(rest)
		if errors.Is(err, ErrIncomplete) {
			return info, nil
		}
		if err == nil {
			err = info.add(batch, d)
		}
		if err != nil {
			return info, at(err, len(raw)-len(rest))
		}
		rest = after
	}
	return info, nil
}

func (i *Info) add(batch Batch, d *Decoder) error {
	if batch.Size() > d.lim.MaxBatchBytes {
		return ErrTooLarge
	}
	if err := batch.Verify(); err != nil {
		return err
	}
	first, records := batch.BaseOffset(), 0
	for r, err := range batch.Records(d) {
		if err != nil {
			return err
		}
		if records == 0 && batch.legacy() {
			first = r.Offset
		}
		records++
	}
	if i.Batches == 0 {
		i.FirstOffset = first
	}
	i.Batches++
	i.Records += records
	i.LastOffset = batch.LastOffset()
	i.MaxTimestamp = max(i.MaxTimestamp, batch.MaxTimestamp())
	i.Bytes += batch.Size()
	return nil
}

// at tells a fresh *CorruptError where its batch starts.
func at(err error, pos int) error {
	if c, ok := errors.AsType[*CorruptError](err); ok {
		c.Pos = pos
	}
	return err
}
