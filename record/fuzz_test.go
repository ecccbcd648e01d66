package record

import (
	"bytes"
	"errors"
	"testing"

	"github.com/partlog/partlog/internal/golden"
)

// fuzzLimits keep a fuzzing process small.
var fuzzLimits = Limits{MaxDecompressedBytes: 1 << 20}

func seed(f *testing.F) {
	for _, sample := range [][]byte{sampleA, sampleB, sampleC, sampleD, sampleE, sampleF, sampleG, nil, make([]byte, 17)} {
		f.Add(sample)
	}
	f.Add(bytes.Join([][]byte{sampleF, sampleG, sampleA, sampleB[:40]}, nil))
	for _, c := range allCodecs {
		f.Add(bytes.Clone(buildAll(f, BuilderOptions{Codec: c}, 0, keyed(1, 2, 3)...).Bytes()))
		if c != Zstd {
			f.Add(oldSet(f, 1, c, keyed(1, 2, 3)...))
		}
	}
	for _, name := range golden.Cases() {
		for _, raw := range goldenLogs(f, name) {
			f.Add(raw[:min(len(raw), 4096)])
		}
	}
}

// stamped makes damaged content pass its checksum, so that fuzzing gets behind it.
func stamped(raw []byte) []byte {
	raw = bytes.Clone(raw)
	for rest := raw; ; {
		b, after, err := Next(rest)
		if err != nil {
			return raw
		}
		if !b.legacy() {
			b.stampChecksum()
		}
		rest = after
	}
}

func FuzzNext(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		b, rest, err := Next(raw)
		if err != nil {
			if !errors.Is(err, ErrIncomplete) && !errors.Is(err, ErrCorrupt) {
				t.Fatal(err)
			}
			if !bytes.Equal(rest, raw) {
				t.Fatal("bytes are gone")
			}
			return
		}
		size, magic, err := Peek(raw)
		if err != nil || size != b.Size() || magic != b.Magic() || b.Size()+len(rest) != len(raw) {
			t.Fatalf("Peek says %d, %d, %v", size, magic, err)
		}
		// every accessor answers
		_, _ = b.DeleteHorizon()
		_, _, _ = b.Producer()
		_, _ = b.LastSequence(), b.TimestampType()
		_, _ = b.Transactional(), b.Control()
		if b.Verify() == nil && (b.LastOffset() < b.BaseOffset() || b.Count() > 0 && int64(b.Count()) > b.LastOffset()-b.BaseOffset()+1) {
			t.Fatal("a verified header contradicts itself")
		}
	})
}

func FuzzSplit(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, raw := range [][]byte{raw, stamped(raw)} {
			info, err := Split(raw, fuzzLimits)
			if info.Bytes > len(raw) {
				t.Fatal("more bytes than there are")
			}
			again, err2 := Split(raw[:info.Bytes], fuzzLimits)
			if err2 != nil || again != info {
				t.Fatalf("the good part is not good: %v, then %v", err, err2)
			}
			for _, o := range []Origin{Client, Coordinator, Replication, RaftLeader} {
				set, err := Check(raw, CheckOptions{Origin: o})
				if err == nil && set.ValidBytes > len(raw) {
					t.Fatal("more bytes than there are")
				}
			}
		}
	})
}

func FuzzRecords(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		b, _, err := Next(raw)
		if err != nil {
			return
		}
		d := NewDecoder(fuzzLimits)
		n, failed := 0, false
		for r, err := range b.Records(d) {
			if failed {
				t.Fatal("something follows an error")
			}
			if failed = err != nil; failed {
				continue
			}
			n++
			_ = r.Clone()
			if _, err := ParseMarker(r); err != nil && !errors.Is(err, ErrInvalidRecord) {
				t.Fatal(err)
			}
		}
		if !failed && !b.legacy() && n != b.Count() {
			t.Fatalf("%d records, declared are %d", n, b.Count())
		}
		if _, err := d.FirstOffset(b); err != nil && b.Magic() == 2 {
			t.Fatal(err)
		}
	})
}

func FuzzValidate(f *testing.F) {
	seed(f)
	options := []ValidateOptions{
		{CodecFromProducer: true, TimestampBefore: -1, TimestampAfter: -1},
		{Codec: None, TimestampType: LogAppendTime, Now: now},
		{Codec: Gzip, Now: now, TimestampAfter: 1 << 62, TimestampBefore: 1 << 62, Origin: Coordinator},
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		d := NewDecoder(fuzzLimits)
		for _, o := range options {
			set := stamped(raw)
			before := bytes.Clone(set)
			v, err := d.Validate(set, o)
			if err != nil || v.Rebuilt {
				if !bytes.Equal(before, set) {
					t.Fatal("bytes changed that should not")
				}
			}
			if err != nil {
				continue
			}
			v.Place(77, 3)
			if err := v.Batch.Verify(); err != nil {
				t.Fatal(err)
			}
			if v.Batch.LastOffset() != 77+int64(v.Count)-1 || v.Batch.MaxTimestamp() != v.MaxTimestamp {
				t.Fatal("the batch is not what was promised")
			}
			n := 0
			for _, err := range v.Batch.Records(nil) {
				if err != nil {
					t.Fatal(err)
				}
				n++
			}
			if n != v.Count {
				t.Fatalf("%d records, counted were %d", n, v.Count)
			}
		}
	})
}
