package main

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDumpSaysOfACorruptSnapshotWhatKafkasToolSays has the words of the tool of Kafka 4.3.1 for the same files.
func TestDumpSaysOfACorruptSnapshotWhatKafkasToolSays(t *testing.T) {
	snapshot := func(version, count, rest int) []byte {
		b := binary.BigEndian.AppendUint16(nil, uint16(version))
		b = append(b, 0, 0, 0, 0)
		b = binary.BigEndian.AppendUint32(b, uint32(count))
		b = append(b, make([]byte, rest)...)
		binary.BigEndian.PutUint32(b[2:], crc32.Checksum(b[6:], castagnoli))
		return b
	}
	flipped := snapshot(1, 1, 46)
	flipped[20] ^= 1
	for _, row := range []struct {
		content []byte
		want    string
	}{
		{nil, "Snapshot failed schema validation: null"},
		{[]byte{0}, "Snapshot failed schema validation: null"},
		{snapshot(1, 0, 0)[:9], "Snapshot failed schema validation: null"},
		{snapshot(-1, 0, 0), "Snapshot failed schema validation: Snapshot contained an unknown file version -1"},
		{snapshot(2, 1, 45), "Snapshot failed schema validation: Snapshot contained an unknown file version 2"},
		{snapshot(1, -5, 0), "Snapshot failed schema validation: non-nullable field producerEntries was serialized as null"},
		{snapshot(1, 1, 0), "Snapshot failed schema validation: Tried to allocate a collection of size 1, but there are only 0 bytes remaining."},
		{snapshot(1, 46, 46), "Snapshot failed schema validation: null"},
		{snapshot(1, 1, 45), "Snapshot failed schema validation: null"},
		{flipped, fmt.Sprintf("Snapshot is corrupt (CRC is no longer valid). Stored crc: %d. Computed crc: %d", binary.BigEndian.Uint32(flipped[2:]), crc32.Checksum(flipped[6:], castagnoli))},
		{snapshot(1, 1, 60), ""}, // bytes behind the entries are covered by the checksum
	} {
		name := filepath.Join(t.TempDir(), "00000000000000000009.snapshot")
		if err := os.WriteFile(name, row.content, 0o644); err != nil {
			t.Fatal(err)
		}
		got := call("dump", name)
		if row.want == "" {
			if got.code != exitOK || got.err != "" {
				t.Errorf("%x: code %d, %q", row.content, got.code, got.err)
			}
			continue
		}
		ours := "\nUnreadable: " + name + "\n  byte "
		if words, _, ok := strings.Cut(got.err, ours); got.code != exitFound || words != row.want || !ok {
			t.Errorf("%x: code %d, %q, want %q and %q", row.content, got.code, got.err, row.want, ours)
		}
	}
}

func TestDumpNamesTheFileWithInvalidBytesWithoutItsFolder(t *testing.T) {
	_, dir := goldenFolder(t, "killed-torn-body")
	files := goldenFiles(t, dir, ".log")
	last := files[len(files)-1]
	got := call("dump", last)
	if !strings.Contains(got.out, " invalid bytes at the end of "+filepath.Base(last)+"\n") {
		t.Error(got.out)
	}
}

func TestDumpPrintsWhatIsNoTextAsJavaDoes(t *testing.T) {
	for in, want := range map[string]string{
		"plain":                    "plain",
		"größe":                    "größe",
		"\xff\xfe":                 "\ufffd\ufffd",
		"a\xc3":                    "a\ufffd",
		"a\xc3b":                   "a\ufffdb",
		"\xe2\x82b":                "\ufffdb",
		"\xe2\x82":                 "\ufffd",
		"\xe2b\x82":                "\ufffdb\ufffd",
		"\xe0\x80\x80":             "\ufffd\ufffd\ufffd",
		"\xed\xa0\x80x":            "\ufffdx",
		"\xf0\x9f\x98":             "\ufffd",
		"\xf0\x9f\x98x":            "\ufffdx",
		"\xf0\x9fx":                "\ufffdx",
		"\xf0\x80\x80\x80":         "\ufffd\ufffd\ufffd\ufffd",
		"\xf4\x90\x80\x80":         "\ufffd\ufffd\ufffd\ufffd",
		"\xf5\x80":                 "\ufffd\ufffd",
		"\xc0\x80":                 "\ufffd\ufffd",
		"\xf0\x9f\x98\x80\x80\xe2": "😀\ufffd\ufffd",
	} {
		if got := javaText([]byte(in)); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
