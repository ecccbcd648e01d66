package record

import (
	"errors"
	"fmt"
	"testing"

	"github.com/partlog/partlog/internal/golden"
)

// What a real broker compressed, and the formats it no longer writes, read as its own consumer reads them.
func TestGoldenFoldersReadAsKafkasConsumerReadsThem(t *testing.T) {
	seen := map[string]int{}
	for _, name := range []string{"codec-gzip", "codec-snappy", "codec-lz4", "codec-zstd", "codec-mixed", "big-records", "log-append-time", "legacy-v1"} {
		want := golden.MustRecords(t, name)
		d := NewDecoder(Limits{})
		about := golden.About(t, name)
		for _, s := range about.AsOpened.Segments {
			log, err := golden.File(name, fmt.Sprintf("root/%s-%d/%020d.log", about.Topic, about.Partition, s.BaseOffset))
			if err != nil {
				t.Fatal(err)
			}
			for len(log) > 0 {
				batch, rest, err := Next(log)
				if err == nil {
					err = batch.Verify()
				}
				if err != nil {
					t.Fatalf("%s: %d bytes before the end: %v", name, len(log), err)
				}
				log = rest
				seen[fmt.Sprintf("%s in magic %d", batch.Codec(), batch.Magic())]++
				want = compareGolden(t, name, d, batch, want)
			}
		}
		if len(want) > 0 {
			t.Errorf("%s: %d records are missing", name, len(want))
		}
	}
	for _, kind := range []string{"gzip in magic 0", "snappy in magic 1", "lz4 in magic 1", "gzip in magic 2", "snappy in magic 2", "lz4 in magic 2", "zstd in magic 2"} {
		if seen[kind] == 0 {
			t.Errorf("no batch with %s was met: %v", kind, seen)
		}
	}
}

// compareGolden reads one batch against the records a consumer got and returns those that are left. A compressed payload
// without its last byte must not read.
func compareGolden(t *testing.T, name string, d *Decoder, batch Batch, want []golden.Record) []golden.Record {
	t.Helper()
	n := 0
	for r, err := range batch.Records(d) {
		if err != nil || len(want) == 0 {
			t.Fatalf("%s: batch at %d, record %d: %v, %d are left", name, batch.BaseOffset(), n, err, len(want))
		}
		w := want[0]
		if n == 0 {
			first, err := NewDecoder(Limits{}).FirstOffset(batch)
			if err != nil || first != w.Offset {
				t.Errorf("%s: first offset %d, %v, want %d", name, first, err, w.Offset)
			}
		}
		if r.Offset != w.Offset || r.Timestamp != w.Timestamp || !w.MatchesKey(r.Key) || !w.MatchesValue(r.Value) || len(r.Headers) != len(w.Headers) {
			t.Errorf("%s: record %+v, want offset %d, timestamp %d, key %q", name, r, w.Offset, w.Timestamp, w.Key)
		}
		want = want[1:]
		n++
	}
	if batch.Codec() != None && batch.Magic() == 2 {
		if _, err := new(codecState).decompress(batch.Bytes()[HeaderSize:batch.Size()-1], batch.Codec(), 2, 0); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: batch at %d without its last byte: %v", name, batch.BaseOffset(), err)
		}
	}
	return want
}
