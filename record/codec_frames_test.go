package record

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
)

func streamBytes(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.NewReplacer(" ", "", "|", "", "\n", "", "\t", "").Replace(s))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func joined(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// stream is one payload and what must come of it: bytes, or an error that says a certain thing.
type stream struct {
	name  string
	b     []byte
	want  string
	fault string
}

func (s stream) check(t *testing.T, c Codec, magic int8) {
	t.Helper()
	got, err := new(codecState).decompress(s.b, c, magic, 1<<20)
	if s.fault == "" {
		if err != nil || string(got) != s.want {
			t.Errorf("%s: %q, %v", s.name, got, err)
		}
		return
	}
	var corrupt *CorruptError
	if !errors.As(err, &corrupt) || !strings.Contains(err.Error(), s.fault) {
		t.Errorf("%s: %v, want %q", s.name, err, s.fault)
	}
}

func TestXXH32(t *testing.T) {
	for in, want := range map[string]uint32{"": 0x02cc5d05, "a": 0x550d7456, "abc": 0x32d153ff, "Nobody inspects the spammish repetition": 0xe2293b2f} {
		if got := xxh32([]byte(in)); got != want {
			t.Errorf("%q: %08x, want %08x", in, got, want)
		}
	}
	if got := byte(xxh32(lz4Header[4:6]) >> 8); got != lz4Header[6] {
		t.Errorf("checksum of the header we write: %02x", got)
	}
}

func TestWrittenFramesBeginAsKafkaWritesThem(t *testing.T) {
	text := bytes.Repeat([]byte("a"), 100)
	for c, want := range map[Codec]string{
		Gzip:   "1f 8b 08 00 00000000 00 ff",
		Snappy: "82 53 4e 41 50 50 59 00 | 00 00 00 01 | 00 00 00 01",
		LZ4:    "04 22 4d 18 60 40 82",
		Zstd:   "28 b5 2f fd",
	} {
		levels := []int{0, 1}
		if c == Gzip || c == Zstd {
			levels = append(levels, 9)
		}
		for _, level := range levels {
			got, err := compress(nil, text, c, level)
			if err != nil || !bytes.HasPrefix(got, streamBytes(t, want)) {
				t.Errorf("%s, level %d: %x, %v", c, level, got, err)
			}
			if c == Zstd && got[4]&0x04 != 0 {
				t.Errorf("zstd, level %d: a content checksum is flagged", level)
			}
		}
	}
}

func TestIncompressibleLZ4BlocksAreStored(t *testing.T) {
	noise := payloads()["noise"][:lz4Block+10]
	got, err := compress(nil, noise, LZ4, 0)
	if err != nil {
		t.Fatal(err)
	}
	if want := len(lz4Header) + 4 + lz4Block + 4 + 10 + 4; len(got) != want {
		t.Errorf("%d bytes, want %d", len(got), want)
	}
	if n := binary.LittleEndian.Uint32(got[len(lz4Header):]); n != lz4Stored|lz4Block {
		t.Errorf("block length %08x", n)
	}
}

// lz4Frame builds a frame from descriptor bytes and blocks; the header checksum is computed.
func lz4FrameOf(descriptor []byte, blocks ...[]byte) []byte {
	b := joined([]byte{0x04, 0x22, 0x4d, 0x18}, descriptor, []byte{byte(xxh32(descriptor) >> 8)})
	return append(b, joined(blocks...)...)
}

func TestLZ4Frames(t *testing.T) {
	hundred := strings.Repeat("a", 100)
	sample := streamBytes(t, "04 22 4d 18 60 40 82 14 00 00 00 1f 61 01 00 41 00 02 00 b0 6161616161616161616161 00 00 00 00")
	stored := streamBytes(t, "02 00 00 80 68 69") // "hi"
	end := make([]byte, 4)
	sum := binary.LittleEndian.AppendUint32(nil, xxh32([]byte("hi")))
	plain := []byte{0x60, 0x40}
	size := make([]byte, 8)
	wrong := bytes.Clone(sample)
	wrong[6] = byte(xxh32(sample[:6]) >> 8) // the frame's magic hashed too
	for _, s := range []stream{
		{"sample I of another encoder", sample, hundred, ""},
		{"stored block", lz4FrameOf(plain, stored, end), "hi", ""},
		{"no block", lz4FrameOf(plain, end), "", ""},
		{"content size is skipped", lz4FrameOf(append([]byte{0x68, 0x40}, size...), stored, end), "hi", ""},
		{"content checksum is not looked at", lz4FrameOf([]byte{0x64, 0x70}, stored, end, []byte("what")), "hi", ""},
		{"block checksum", lz4FrameOf([]byte{0x70, 0x50}, stored, sum, end), "hi", ""},
		{"wrong block checksum", lz4FrameOf([]byte{0x70, 0x50}, stored, []byte("what"), end), "", "block checksum does not match"},
		{"short block checksum", lz4FrameOf([]byte{0x70, 0x50}, stored, sum[:3]), "", "checksum is cut short"},
		{"missing content checksum", lz4FrameOf([]byte{0x64, 0x40}, stored, end), "", "0 bytes follow the end mark, 4 are due"},
		{"bytes behind the end", lz4FrameOf(plain, stored, end, end), "", "4 bytes follow"},
		{"a second frame", joined(sample, sample), "", "follow the end mark"},
		{"no end mark", lz4FrameOf(plain, stored), "", "no end mark"},
		{"no bytes", nil, "", "cut short"},
		{"header only", lz4Header, "", "no end mark"},
		{"content size cut short", []byte{0x04, 0x22, 0x4d, 0x18, 0x68, 0x40, 0, 0, 0, 0}, "", "cut short"},
		{"other magic", joined([]byte{0x02, 0x21, 0x4c, 0x18}, sample[4:]), "", "no frame"},
		{"wrong header checksum", wrong, "", "header checksum"},
		{"version 0", lz4FrameOf([]byte{0x20, 0x40}, end), "", "version 0"},
		{"version 2", lz4FrameOf([]byte{0xa0, 0x40}, end), "", "version 2"},
		{"dependent blocks", lz4FrameOf([]byte{0x40, 0x40}, end), "", "depend"},
		{"reserved flag", lz4FrameOf([]byte{0x62, 0x40}, end), "", "reserved"},
		{"dictionary", lz4FrameOf([]byte{0x61, 0x40}, end), "", "reserved"},
		{"reserved low bits", lz4FrameOf([]byte{0x60, 0x41}, end), "", "reserved"},
		{"reserved high bit", lz4FrameOf([]byte{0x60, 0xc0}, end), "", "reserved"},
		{"block size code 3", lz4FrameOf([]byte{0x60, 0x30}, end), "", "size code 3"},
		{"block beyond the payload", lz4FrameOf(plain, []byte{9, 0, 0, 0x80, 'h'}), "", "a block of 9 bytes, 1 are left"},
		{"block beyond its size code", lz4FrameOf(plain, []byte{1, 0, 1, 0}, make([]byte, 65537), end), "", "65536 are allowed"},
		{"block that unpacks beyond its size code", lz4FrameOf(plain, []byte{8, 1, 0, 0, 0x1f, 'a', 1, 0}, bytes.Repeat([]byte{255}, 258), []byte{0, 0}, end), "", "does not decode"},
		{"stored block of nothing", lz4FrameOf(plain, []byte{0, 0, 0, 0x80}, end), "", "no bytes"},
		{"offset before the start", lz4FrameOf(plain, []byte{8, 0, 0, 0, 0x10, 'a', 9, 0, 0x30, 'b', 'c', 'd'}, end), "", "does not decode"},
		{"offset zero", lz4FrameOf(plain, []byte{8, 0, 0, 0, 0x10, 'a', 0, 0, 0x30, 'b', 'c', 'd'}, end), "", "does not decode"},
		{"ends after a match", lz4FrameOf(plain, []byte{4, 0, 0, 0, 0x10, 'a', 1, 0}, end), "", "does not decode"},
		{"literals beyond the block", lz4FrameOf(plain, []byte{2, 0, 0, 0, 0x50, 'a'}, end), "", "does not decode"},
	} {
		s.check(t, LZ4, 1)
	}
	// Magic 0 carries the old wrong checksum, and the right one just as well.
	stream{"magic 0", wrong, hundred, ""}.check(t, LZ4, 0)
	stream{"magic 0 with the right checksum", sample, hundred, ""}.check(t, LZ4, 0)
}

// Scenarios B164, B165: raw and framed; no claimed length is believed before the bytes make it possible.
func TestSnappyStreams(t *testing.T) {
	raw := func(s string) []byte { return snappy.Encode(nil, []byte(s)) }
	framed := func(blocks ...[]byte) []byte {
		b := bytes.Clone(snappyHeader)
		for _, p := range blocks {
			b = append(binary.BigEndian.AppendUint32(b, uint32(len(p))), p...)
		}
		return b
	}
	huge := []byte{0xff, 0xff, 0xff, 0xff, 0x07} // 2^31 - 1
	old := framed(raw("abc"))
	old[11] = 0
	newer := framed(raw("abc"))
	newer[11] = 2
	long := strings.Repeat("abcd", 500)
	s2only := s2.Encode(nil, bytes.Repeat([]byte("0123456789abcdefXYZ"), 500))
	for _, s := range []stream{
		{"raw", raw("abc"), "abc", ""},
		{"raw of nothing", raw(""), "", ""},
		{"framed", framed(raw("abc")), "abc", ""},
		{"several blocks", framed(raw("abc"), raw(""), raw(long)), "abc" + long, ""},
		{"no block", framed(), "", ""},
		{"begun anew in the middle", joined(framed(raw("abc")), framed(raw("def"))), "abcdef", ""},
		{"newer version", newer, "abc", ""},
		{"version 0", old, "", "version 0"},
		{"no bytes", nil, "", "no bytes"},
		{"header cut short", snappyHeader[:12], "", "cut short"},
		{"length cut short", append(framed(raw("abc")), 0, 0), "", "cut short"},
		{"block beyond the payload", framed(raw("abc"))[:21], "", "are left"},
		{"negative block length", append(bytes.Clone(snappyHeader), 0xff, 0xff, 0xff, 0xff, 1), "", "are left"},
		{"block of no bytes", framed(nil), "", "without a length"},
		{"raw, claims 2 GiB", append(huge, 0, 'a'), "", "claims to hold 2147483647"},
		{"framed, claims 2 GiB", framed(append(huge, 0, 'a')), "", "claims to hold 2147483647"},
		{"claims beyond 32 bits", []byte{0xff, 0xff, 0xff, 0xff, 0x7f, 0}, "", "without a length"},
		{"claims one more than it holds", []byte{4, 8, 'a', 'b', 'c'}, "", "corrupt"},
		{"claims one less than it holds", []byte{2, 8, 'a', 'b', 'c'}, "", "corrupt"},
		{"copy from before the start", []byte{5, 0, 'a', 1, 9}, "", "corrupt"},
		{"an extension Kafka's library does not know", s2only, "", ""},
	} {
		if s.name == "an extension Kafka's library does not know" {
			s.fault = "record"
		}
		s.check(t, Snappy, 2)
	}
}

func TestGzipStreams(t *testing.T) {
	member := func(s string) []byte {
		b, err := compress(nil, []byte(s), Gzip, 0)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	abc := member("abc")
	broken := func(at int) []byte {
		b := bytes.Clone(abc)
		b[at] ^= 0x41
		return b
	}
	for _, s := range []stream{
		{"one member", abc, "abc", ""},
		{"members one behind the other", joined(abc, member(""), member("def")), "abcdef", ""},
		{"no bytes", nil, "", "unexpected EOF"},
		{"no member", []byte("not gzip at all"), "", "invalid header"},
		{"a member and half of another", joined(abc, abc[:14]), "", "unexpected EOF"},
		{"half a header behind a member", joined(abc, abc[:4]), "", "unexpected EOF"},
		{"other crc", broken(len(abc) - 8), "", "checksum"},
		{"other size", broken(len(abc) - 1), "", "checksum"},
		{"no trailer", abc[:len(abc)-8], "", "unexpected EOF"},
	} {
		s.check(t, Gzip, 2)
	}
}

func TestZstdFrames(t *testing.T) {
	kafka := streamBytes(t, "28 b5 2f fd 00 58 | 18 00 00 616263 | 01 00 00") // window, no size, an empty last block
	skippable := streamBytes(t, "50 2a 4d 18 | 03 00 00 00 | 78 78 78")
	repeat := streamBytes(t, "28 b5 2f fd 00 58 | 53 00 00 61") // ten times a
	w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(true))
	if err != nil {
		t.Fatal(err)
	}
	summed := w.EncodeAll([]byte("abcabc"), nil)
	wrong := bytes.Clone(summed)
	wrong[len(wrong)-1] ^= 1
	for _, s := range []stream{
		{"as Kafka frames it", kafka, "abc", ""},
		{"frames one behind the other", joined(kafka, repeat, kafka), "abc" + strings.Repeat("a", 10) + "abc", ""},
		{"skippable frames", joined(skippable, kafka, skippable), "abc", ""},
		{"largest window Kafka reads", streamBytes(t, "28 b5 2f fd 00 88 | 19 00 00 616263"), "abc", ""},
		{"stated size", streamBytes(t, "28 b5 2f fd 20 03 | 19 00 00 616263"), "abc", ""},
		{"checksum", summed, "abcabc", ""},
		{"wrong checksum", wrong, "", "CRC"},
		{"checksum cut short", summed[:len(summed)-1], "", "cut short"},
		{"no bytes", nil, "", "no bytes"},
		{"no frame", []byte("no frame"), "", "no frame"},
		{"one byte behind", append(bytes.Clone(kafka), 0x28), "", "cut short"},
		{"skippable frame cut short", skippable[:10], "", "cut short"},
		{"no window", streamBytes(t, "28 b5 2f fd 00"), "", "cut short"},
		{"no block", streamBytes(t, "28 b5 2f fd 00 58"), "", "cut short"},
		{"no last block", streamBytes(t, "28 b5 2f fd 00 58 | 18 00 00 616263"), "", "cut short"},
		{"reserved bit", streamBytes(t, "28 b5 2f fd 08 58 | 19 00 00 616263"), "", "reserved"},
		{"reserved block type", streamBytes(t, "28 b5 2f fd 00 58 | 1f 00 00 616263"), "", "reserved"},
		{"dictionary", streamBytes(t, "28 b5 2f fd 01 58 07 | 19 00 00 616263"), "", "dictionary"},
		{"block beyond 128 KiB", streamBytes(t, "28 b5 2f fd 00 58 | 0b 00 10 61"), "", "128 KiB"},
		{"block beyond the window", streamBytes(t, "28 b5 2f fd 00 00 | 0b 20 00 61"), "", "window"},
		{"stated size too small", streamBytes(t, "28 b5 2f fd 20 02 | 19 00 00 616263"), "", "size"},
		{"stated size too large", streamBytes(t, "28 b5 2f fd 20 04 | 19 00 00 616263"), "", "more than the blocks can hold"},
		{"stated size of 2^64", streamBytes(t, "28 b5 2f fd c0 58 ffffffffffffffff | 03 00 10 61"), "", ""},
	} {
		if s.name == "stated size of 2^64" {
			s.fault = "more than the blocks"
		}
		s.check(t, Zstd, 2)
	}
	_, err = unpack(t, Zstd, streamBytes(t, "28 b5 2f fd 00 89 | 19 00 00 616263"), 1<<20)
	if !errors.Is(err, ErrTooLarge) {
		t.Errorf("a window above 128 MiB: %v", err)
	}
}

// A limit below the window is no reason to refuse what stays within the limit.
func TestZstdWindowsBeyondTheLimitAreReadWithinTheLimit(t *testing.T) {
	for _, size := range []int{100, 1024, 300_000} {
		want := payloads()["zeros"][:size]
		copy(want, payloads()["text"])
		var out bytes.Buffer
		w, err := zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(8<<20), zstd.WithLowerEncoderMem(true))
		if err != nil {
			t.Fatal(err)
		}
		for p := want; len(p) > 0; { // a block for every few bytes: the blocks' bound is far above the content
			n := min(len(p), size/7+1)
			w.Write(p[:n])
			w.Flush()
			p = p[n:]
		}
		w.Close()
		got, err := unpack(t, Zstd, out.Bytes(), size)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes: %d, %v", size, len(got), err)
		}
		if _, err := unpack(t, Zstd, out.Bytes(), size-1); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%d bytes, one too many: %v", size, err)
		}
		two := joined(out.Bytes(), out.Bytes())
		if got, err := unpack(t, Zstd, two, 2*size); err != nil || !bytes.Equal(got, joined(want, want)) {
			t.Errorf("two frames of %d bytes: %d, %v", size, len(got), err)
		}
		if _, err := unpack(t, Zstd, two, 2*size-1); !errors.Is(err, ErrTooLarge) {
			t.Errorf("two frames of %d bytes, one too many: %v", size, err)
		}
	}
}
