package record

import (
	"bytes"
	"errors"
	"testing"
)

// fuzzCodec unpacks anything; what unpacks is packed and unpacked again to the same bytes.
func fuzzCodec(f *testing.F, c Codec) {
	for name, p := range payloads() {
		if len(p) > 1<<17 && name != "zeros" {
			continue
		}
		packed, err := compress(nil, p[:min(len(p), 1<<17)], c, 0)
		if err != nil {
			f.Fatal(err)
		}
		if len(packed) < 1<<13 {
			f.Add(packed, int8(2), 1<<16)
			f.Add(packed[:len(packed)*2/3], int8(0), 1<<16)
			f.Add(append(packed, packed...), int8(1), 1<<18)
		}
	}
	f.Add([]byte{}, int8(2), 0)
	state := new(codecState)
	f.Fuzz(func(t *testing.T, b []byte, magic int8, limit int) {
		limit = limit&(1<<20-1) + 1
		got, err := state.decompress(b, c, magic, limit)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrTooLarge) {
				t.Fatalf("an error of no kind: %v", err)
			}
			return
		}
		if len(got) > limit {
			t.Fatalf("%d bytes, the limit is %d", len(got), limit)
		}
		want := bytes.Clone(got)
		packed, err := compress(nil, want, c, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got, err = state.decompress(packed, c, 2, limit); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("packed again: %d bytes of %d, %v", len(got), len(want), err)
		}
	})
}

func FuzzGzip(f *testing.F)   { fuzzCodec(f, Gzip) }
func FuzzSnappy(f *testing.F) { fuzzCodec(f, Snappy) }
func FuzzLZ4(f *testing.F)    { fuzzCodec(f, LZ4) }
func FuzzZstd(f *testing.F)   { fuzzCodec(f, Zstd) }
