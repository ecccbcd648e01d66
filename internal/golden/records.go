package golden

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"testing"
)

// Record is one line of records.jsonl or committed.jsonl.
type Record struct {
	Offset        int64    `json:"offset"`
	Timestamp     int64    `json:"timestamp"`
	TimestampType string   `json:"timestampType,omitempty"` // "CreateTime", "LogAppendTime" or "NoTimestampType"
	Key           []byte   `json:"key"`                     // nil for null, and when KeyDigest is set
	Value         []byte   `json:"value"`                   // nil for null, and when ValueDigest is set
	KeyDigest     *Digest  `json:"keyDigest,omitempty"`     // in place of a key above 4096 bytes
	ValueDigest   *Digest  `json:"valueDigest,omitempty"`   // in place of a value above 4096 bytes
	Headers       []Header `json:"headers"`
}

// Digest stands for bytes too long to be kept.
type Digest struct {
	Length int    `json:"length"`
	SHA256 string `json:"sha256"`
}

// Header is one record header; a nil Value is null.
type Header struct {
	Key   string
	Value []byte
}

// MarshalJSON writes what UnmarshalJSON reads.
func (h Header) MarshalJSON() ([]byte, error) { return json.Marshal([]any{h.Key, h.Value}) }

// UnmarshalJSON reads the two-element list ["name", "base64" or null].
func (h *Header) UnmarshalJSON(b []byte) error {
	var pair []json.RawMessage
	if err := json.Unmarshal(b, &pair); err != nil {
		return err
	}
	if len(pair) != 2 {
		return fmt.Errorf("golden: header of %d parts", len(pair))
	}
	if err := json.Unmarshal(pair[0], &h.Key); err != nil {
		return err
	}
	return json.Unmarshal(pair[1], &h.Value)
}

// Matches says whether b is the recorded field: null equals only null, and a digest stands for its bytes.
func Matches(want []byte, d *Digest, b []byte) bool {
	if d != nil {
		sum := sha256.Sum256(b)
		return b != nil && len(b) == d.Length && hex.EncodeToString(sum[:]) == d.SHA256
	}
	return (want == nil) == (b == nil) && bytes.Equal(want, b)
}

// MatchesKey says whether b is the record's key; nil is null.
func (r Record) MatchesKey(b []byte) bool { return Matches(r.Key, r.KeyDigest, b) }

// MatchesValue says whether b is the record's value; nil is null.
func (r Record) MatchesValue(b []byte) bool { return Matches(r.Value, r.ValueDigest, b) }

// Records is what a read_uncommitted consumer gets from the case, in offset order.
func Records(name string) ([]Record, error) { return records(name, "records.jsonl") }

// Committed is what a read_committed consumer gets from the case.
func Committed(name string) ([]Record, error) {
	rs, err := records(name, "committed.jsonl")
	if errors.Is(err, fs.ErrNotExist) {
		return Records(name)
	}
	return rs, err
}

// MustRecords is [Records] for tests.
func MustRecords(tb testing.TB, name string) []Record {
	tb.Helper()
	rs, err := Records(name)
	if err != nil {
		tb.Fatal(err)
	}
	return rs
}

// MustCommitted is [Committed] for tests.
func MustCommitted(tb testing.TB, name string) []Record {
	tb.Helper()
	rs, err := Committed(name)
	if err != nil {
		tb.Fatal(err)
	}
	return rs
}

func records(name, file string) ([]Record, error) {
	b, err := File(name, file)
	if err != nil {
		return nil, err
	}
	var out []Record
	for len(b) > 0 {
		line := b
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			line, b = b[:i], b[i+1:]
		} else {
			b = nil
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var r Record
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, fmt.Errorf("golden: %s line %d of %s: %w", file, len(out)+1, name, err)
		}
		out = append(out, r)
	}
	return out, nil
}
