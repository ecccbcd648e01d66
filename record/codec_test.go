package record

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/snappy/xerial"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

var compressing = []Codec{Gzip, Snappy, LZ4, Zstd}

// payloads are inputs of every size class and compressibility.
func payloads() map[string][]byte {
	rng := rand.New(rand.NewPCG(1, 2))
	random := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return b
	}
	text := func(n int) []byte {
		var b bytes.Buffer
		for b.Len() < n {
			b.WriteString("key-" + string(rune('a'+rng.IntN(26))) + strings.Repeat("v", rng.IntN(20)))
		}
		return b.Bytes()[:n]
	}
	return map[string][]byte{
		"nothing": {}, "a byte": {7}, "a word": []byte("word"), "hundred": bytes.Repeat([]byte("a"), 100),
		"a block less one": text(snappyBlock - 1), "a block": text(snappyBlock), "a block and one": text(snappyBlock + 1),
		"lz4 block": text(lz4Block), "lz4 block and one": text(lz4Block + 1),
		"noise": random(150_000), "zeros": make([]byte, 1<<20), "text": text(100_000), "noise then text": append(random(70_000), text(70_000)...),
	}
}

func unpack(t testing.TB, c Codec, b []byte, limit int) ([]byte, error) {
	t.Helper()
	return new(codecState).decompress(b, c, 2, limit)
}

func TestWhatACodecPacksItUnpacksAtEveryLevel(t *testing.T) {
	for _, c := range []Codec{None, Gzip, Snappy, LZ4, Zstd} {
		levels := map[Codec][]int{Gzip: {-1, 0, 1, 6, 9}, LZ4: {0, 1, 5, 9, 10, 17}, Zstd: {-131072, -1, 0, 1, 3, 7, 12, 22}}[c]
		if levels == nil {
			levels = []int{0}
		}
		var state codecState
		for name, want := range payloads() {
			for i, level := range levels {
				if i > 1 && len(want) > 1<<17 {
					break // the window and block borders are below
				}
				prefix := []byte("before")
				packed, err := compress(prefix, want, c, level)
				if err != nil {
					t.Fatalf("%s, %s, level %d: %v", c, name, level, err)
				}
				if !bytes.HasPrefix(packed, prefix) {
					t.Fatalf("%s, %s, level %d: the buffer's own bytes are gone", c, name, level)
				}
				got, err := state.decompress(packed[len(prefix):], c, 2, max(len(want), 1))
				if err != nil || !bytes.Equal(got, want) {
					t.Fatalf("%s, %s, level %d: %d bytes of %d, %v", c, name, level, len(got), len(want), err)
				}
			}
		}
	}
}

// Other implementations read our streams and we read theirs. Scenario B165: raw and framed snappy.
func TestStreamsPassBetweenUsAndOtherEncoders(t *testing.T) {
	zr, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	defer zr.Close()
	zw, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	readers := map[Codec]func([]byte) ([]byte, error){
		Gzip: func(b []byte) ([]byte, error) {
			r, err := gzip.NewReader(bytes.NewReader(b))
			if err != nil {
				return nil, err
			}
			return io.ReadAll(r)
		},
		Snappy: func(b []byte) ([]byte, error) {
			if len(b) == len(snappyHeader) {
				return nil, nil
			}
			return xerial.Decode(b)
		},
		LZ4:  func(b []byte) ([]byte, error) { return io.ReadAll(lz4.NewReader(bytes.NewReader(b))) },
		Zstd: func(b []byte) ([]byte, error) { return zr.DecodeAll(b, nil) },
	}
	lz4With := func(o ...lz4.Option) func([]byte) []byte {
		return func(b []byte) []byte {
			var out bytes.Buffer
			w := lz4.NewWriter(&out)
			if err := w.Apply(append(o, lz4.ConcurrencyOption(1))...); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(b); err != nil {
				t.Fatal(err)
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			return out.Bytes()
		}
	}
	writers := map[string]func([]byte) []byte{
		"gzip": func(b []byte) []byte {
			var out bytes.Buffer
			w := gzip.NewWriter(&out)
			w.Name, w.Comment, w.Extra = "name", "comment", []byte("extra")
			w.Write(b)
			w.Close()
			return out.Bytes()
		},
		"snappy raw":    func(b []byte) []byte { return snappy.Encode(nil, b) },
		"snappy framed": func(b []byte) []byte { return xerial.Encode(nil, b) },
		"lz4":           lz4With(),
		"lz4 plain":     lz4With(lz4.ChecksumOption(false), lz4.BlockSizeOption(lz4.Block64Kb)),
		"lz4 all flags": lz4With(lz4.ChecksumOption(true), lz4.BlockChecksumOption(true), lz4.BlockSizeOption(lz4.Block256Kb), lz4.SizeOption(0)),
		"lz4 high":      lz4With(lz4.CompressionLevelOption(lz4.Level5), lz4.BlockSizeOption(lz4.Block1Mb), lz4.BlockChecksumOption(true)),
		"zstd":          func(b []byte) []byte { return zw.EncodeAll(b, nil) },
		"zstd streamed": func(b []byte) []byte {
			var out bytes.Buffer
			w, _ := zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedBestCompression))
			w.Write(b)
			w.Flush()
			w.Close()
			return out.Bytes()
		},
	}
	for name, want := range payloads() {
		for _, c := range compressing {
			packed, err := compress(nil, want, c, 0)
			if err != nil {
				t.Fatal(err)
			}
			got, err := readers[c](packed)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s, %s: another reader gets %d bytes of %d, %v", c, name, len(got), len(want), err)
			}
		}
		for writer, write := range writers {
			c, err := CodecByName(strings.Fields(writer)[0])
			if err != nil {
				t.Fatal(err)
			}
			if len(want) == 0 && writer != "gzip" {
				continue // the others write nothing at all
			}
			got, err := unpack(t, c, write(want), len(want))
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s, %s: we get %d bytes of %d, %v", writer, name, len(got), len(want), err)
			}
		}
	}
}

// Scenario B160: the limit acts while unpacking, whatever the payload says of itself.
func TestBombsAreRefusedWithinTheLimitsMemory(t *testing.T) {
	const limit = 2 << 20
	bombs := map[string][]byte{}
	zeros := make([]byte, 16<<20)
	for _, c := range compressing {
		packed, err := compress(nil, zeros, c, 0)
		if err != nil {
			t.Fatal(err)
		}
		bombs[c.String()] = packed
	}
	var members []byte
	for range 8 {
		members, _ = compress(members, zeros[:1<<20], Gzip, 0)
	}
	bombs["gzip members"] = members
	lying := bytes.Clone(bombs["gzip"])
	copy(lying[len(lying)-4:], []byte{1, 0, 0, 0})
	bombs["gzip with a small size in its trailer"] = lying
	bombs["snappy raw"] = snappy.Encode(nil, zeros[:8<<20])
	for name, window := range map[string]int{"zstd small window": 1 << 17, "zstd middle window": 4 << 20, "zstd window beyond the limit": 64 << 20} {
		var out bytes.Buffer
		w, err := zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(window), zstd.WithLowerEncoderMem(true))
		if err != nil {
			t.Fatal(err)
		}
		w.Write(zeros[:8<<20])
		w.Close()
		bombs[name] = out.Bytes()
	}
	// Repeat blocks after one short raw block: the block sizes add up to no multiple of anything.
	rle := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x58, 0x08, 0x00, 0x00, 'x'}
	for range 512 {
		rle = append(rle, 0x02, 0x00, 0x10, 0)
	}
	bombs["zstd repeat blocks"] = append(rle, 0x01, 0, 0)
	var frames []byte
	for range 40 {
		frames = append(frames, 0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x58, 0x02, 0x00, 0x10, 0, 0x02, 0x00, 0x10, 0, 0x03, 0x00, 0x10, 0)
	}
	bombs["zstd frames"] = frames
	zeros = nil

	for name, packed := range bombs {
		c, err := CodecByName(strings.Fields(name)[0])
		if err != nil {
			t.Fatal(err)
		}
		var state codecState
		_, err = state.decompress(packed, c, 2, limit) // warms the pools
		if !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		state = codecState{}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err = state.decompress(packed, c, 2, limit); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: %v the second time", name, err)
		}
		runtime.ReadMemStats(&after)
		// All that was ever allocated in the call: growing in steps may have made one buffer before the last.
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 2*limit+1<<20 {
			t.Errorf("%s: %d bytes were allocated for a limit of %d", name, grown, limit)
		}
		if cap(state.buf) > limit+limit/8+zstdSlack+8<<10 {
			t.Errorf("%s: the buffer has grown to %d", name, cap(state.buf))
		}
	}
}

func TestTheLimitItselfIsAllowedAndOneMoreIsNot(t *testing.T) {
	for name, want := range payloads() {
		if len(want) < 2 {
			continue
		}
		for _, c := range compressing {
			packed, err := compress(nil, want, c, 0)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := unpack(t, c, packed, len(want)); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s, %s: at the limit: %v", c, name, err)
			}
			if _, err := unpack(t, c, packed, len(want)-1); !errors.Is(err, ErrTooLarge) {
				t.Errorf("%s, %s: one byte beyond the limit: %v", c, name, err)
			}
		}
	}
}

// Every proper prefix is an error, so is any byte behind the end, and what comes out of a garbled stream is never beyond
// the limit.
func TestAStreamEndsWhereThePayloadEnds(t *testing.T) {
	want := payloads()["text"][:100_000]
	for _, c := range compressing {
		packed, err := compress(nil, want, c, 0)
		if err != nil {
			t.Fatal(err)
		}
		var state codecState
		for n := 0; n < len(packed); n += 1 + n/20 {
			got, err := state.decompress(packed[:n], c, 2, 1<<20)
			if err == nil && !(c == Snappy && snappyBoundary(packed, n)) {
				t.Fatalf("%s: the first %d bytes of %d give %d bytes", c, n, len(packed), len(got))
			}
			if err != nil && !errors.Is(err, ErrCorrupt) {
				t.Fatalf("%s: the first %d bytes: %v", c, n, err)
			}
		}
		for _, tail := range [][]byte{{0}, {1}, {0, 0, 0, 0, 0, 0, 0, 0}, []byte("garbage behind the end"), {0x1f, 0x8b}, {0x28}} {
			if _, err := state.decompress(append(bytes.Clone(packed), tail...), c, 2, 1<<20); !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s: %x behind the end: %v", c, tail, err)
			}
		}
	}
}

// snappyBoundary: xerial streams have no end mark, a cut between blocks cannot be seen here (the record count sees it).
func snappyBoundary(packed []byte, n int) bool {
	at := len(snappyHeader)
	for at < n {
		at += 4 + int(uint32(packed[at])<<24|uint32(packed[at+1])<<16|uint32(packed[at+2])<<8|uint32(packed[at+3]))
	}
	return at == n
}

// Scenario B162: byte changes give an error or bytes, within the limit and without a fault.
func TestGarbledStreamsNeverFault(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	want := payloads()["text"][:5_000]
	for _, c := range compressing {
		packed, err := compress(nil, want, c, 0)
		if err != nil {
			t.Fatal(err)
		}
		var state codecState
		for range 1000 {
			b := bytes.Clone(packed)
			for range 1 + rng.IntN(16) {
				b[rng.IntN(len(b))] = byte(rng.Uint32())
			}
			got, err := state.decompress(b, c, 2, 1<<20)
			if err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrTooLarge) {
				t.Fatalf("%s: %v", c, err)
			}
			if len(got) > 1<<20 {
				t.Fatalf("%s: %d bytes", c, len(got))
			}
		}
	}
}

func TestNoGoroutineIsLeftBehind(t *testing.T) {
	before := runtime.NumGoroutine()
	for _, c := range compressing {
		packed, err := compress(nil, payloads()["text"], c, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := unpack(t, c, packed, 1<<20); err != nil {
			t.Fatal(err)
		}
		unpack(t, c, packed[:len(packed)/2], 1<<20)
	}
	if after := runtime.NumGoroutine(); after > before {
		t.Errorf("%d goroutines, %d before", after, before)
	}
}

func TestSteadyUseAllocatesNothing(t *testing.T) {
	want := payloads()["text"][:50_000]
	for _, c := range compressing {
		packed, err := compress(nil, want, c, 0)
		if err != nil {
			t.Fatal(err)
		}
		dst := make([]byte, 0, 200_000)
		var state codecState
		pack := testing.AllocsPerRun(50, func() { _, _ = compress(dst, want, c, 0) })
		read := testing.AllocsPerRun(50, func() { _, _ = state.decompress(packed, c, 2, 1<<20) })
		// A collection in the middle may empty the pools; one allocation a run is far above that.
		if poolsForget {
			continue
		}
		if pack >= 1 || (read >= 1 && c != Gzip) || read > 2 {
			t.Errorf("%s: %.1f allocations to compress, %.1f to decompress", c, pack, read)
		}
	}
}

func TestALargeBufferIsGivenBackWhenNoLongerNeeded(t *testing.T) {
	var s codecState
	s.buffer(32 << 20)
	for range keepFor + 1 {
		s.buffer(100)
	}
	if cap(s.buf) > 100 {
		t.Errorf("the buffer still has %d bytes", cap(s.buf))
	}
}

func TestCodecNamesReadBack(t *testing.T) {
	for c := None; c <= Zstd; c++ {
		if got, err := CodecByName(c.String()); err != nil || got != c {
			t.Errorf("%s reads back as %s, %v", c, got, err)
		}
	}
	if c, err := CodecByName("uncompressed"); err != nil || c != None {
		t.Errorf("uncompressed is %s, %v", c, err)
	}
	for _, name := range []string{"", "producer", "GZIP", "lzma", "codec(5)"} {
		if _, err := CodecByName(name); !errors.Is(err, ErrCodec) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if s := Codec(6).String(); s != "codec(6)" {
		t.Error(s)
	}
}

func TestUnknownCodecsAndLevelsAreErrors(t *testing.T) {
	for c := Codec(5); c < 8; c++ {
		if _, err := compress(nil, nil, c, 0); !errors.Is(err, ErrCodec) {
			t.Errorf("compress with %s: %v", c, err)
		}
		if _, err := unpack(t, c, nil, 0); !errors.Is(err, ErrCodec) {
			t.Errorf("decompress with %s: %v", c, err)
		}
	}
	for c, levels := range map[Codec][]int{Gzip: {-2, 10}, LZ4: {-1, 18}, Zstd: {-131073, 23}} {
		for _, level := range levels {
			if _, err := compress(nil, nil, c, level); err == nil {
				t.Errorf("%s takes level %d", c, level)
			}
		}
	}
}
