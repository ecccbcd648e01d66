package record

import (
	"errors"
	"testing"
)

// Whatever the bytes, iterating ends, within the limit, and FirstOffset agrees with the first record.
func FuzzLegacyRecords(f *testing.F) {
	inner := []legacyEntry{message(0, 1, 1, "a", "1"), message(1, 1, 2, "", "2"), {offset: 2, magic: 1}}
	f.Add(appendLegacy(nil, inner...))
	for _, codec := range []Codec{Gzip, Snappy, LZ4} {
		for magic := range int8(2) {
			b := appendLegacy(nil, legacyEntry{offset: 40, magic: magic, timestamp: 5, appendTime: magic == 1, codec: codec, inner: inner})
			f.Add(b)
			f.Add(append(b, b...))
		}
	}
	d := NewDecoder(Limits{MaxDecompressedBytes: 1 << 18})
	f.Fuzz(func(t *testing.T, b []byte) {
		for len(b) > 0 {
			if len(b) > posMagic && b[posMagic] > 1 {
				b[posMagic] &= 1
			}
			batch, rest, err := Next(b)
			if err != nil {
				return
			}
			b = rest
			if batch.Size() >= legacyMinSize {
				stampLegacy(batch.Bytes()) // so that damage inside is reached
			}
			first, firstErr := d.FirstOffset(batch)
			n := 0
			for r, err := range batch.Records(d) {
				if err != nil {
					if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrTooLarge) {
						t.Fatalf("an error of no kind: %v", err)
					}
					break
				}
				if n == 0 && (firstErr != nil || r.Offset != first) {
					t.Fatalf("first offset %d, %v; the first record has %d", first, firstErr, r.Offset)
				}
				n++
			}
			if n > 1<<18/legacyMinSize+1 {
				t.Fatalf("%d records", n)
			}
		}
	})
}
