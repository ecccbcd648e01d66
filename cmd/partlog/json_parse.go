package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/partlog/partlog/record"
)

// jsonLine is a line as encoding/json reads it. Pointers tell null from empty.
type jsonLine struct {
	Offset        json.RawMessage `json:"offset"` // ignored: the log assigns its own
	Timestamp     *int64          `json:"timestamp"`
	TimestampType *string         `json:"timestampType"`
	Key           *string         `json:"key"`
	Value         *string         `json:"value"`
	Headers       [][]*string     `json:"headers"`
	KeyDigest     json.RawMessage `json:"keyDigest"`
	ValueDigest   json.RawMessage `json:"valueDigest"`
}

// timestampTypes are the words a line may have; all are ignored: the topic's own setting decides.
var timestampTypes = []string{"CreateTime", "LogAppendTime", "NoTimestampType"}

// parseRecord reads one line. Every field may be missing: no key, no value, no headers, and stamped is false where the
// line gives no timestamp.
func parseRecord(line []byte) (r record.Record, stamped bool, err error) {
	if string(bytes.TrimSpace(line)) == "null" {
		return r, false, errors.New("it is a JSON null, not an object")
	}
	var j jsonLine
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&j); err != nil {
		return r, false, plainJSON(err)
	}
	if rest := line[d.InputOffset():]; len(bytes.TrimSpace(rest)) > 0 {
		return r, false, errors.New("something follows the JSON object")
	}
	if given(j.KeyDigest) || given(j.ValueDigest) {
		return r, false, errors.New("it holds a digest in place of the bytes; make the lines with cat without --digest-over")
	}
	if j.TimestampType != nil && !slices.Contains(timestampTypes, *j.TimestampType) {
		return r, false, fmt.Errorf("timestampType is %q, want one of %s", *j.TimestampType, strings.Join(timestampTypes, ", "))
	}
	if j.Timestamp != nil {
		r.Timestamp, stamped = *j.Timestamp, true
		if r.Timestamp < record.NoTimestamp {
			return r, false, fmt.Errorf("timestamp %d is below -1", r.Timestamp)
		}
	}
	if r.Key, err = decodeField("key", j.Key); err != nil {
		return r, false, err
	}
	if r.Value, err = decodeField("value", j.Value); err != nil {
		return r, false, err
	}
	r.Headers, err = decodeHeaders(j.Headers)
	return r, stamped, err
}

func given(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

func decodeField(name string, text *string) ([]byte, error) {
	if text == nil {
		return nil, nil
	}
	b, err := base64.StdEncoding.AppendDecode(make([]byte, 0, base64.StdEncoding.DecodedLen(len(*text))), []byte(*text))
	if err != nil {
		return nil, fmt.Errorf("%s is not base64", name)
	}
	return b, nil
}

func decodeHeaders(pairs [][]*string) ([]record.Header, error) {
	if len(pairs) == 0 {
		return nil, nil
	}
	headers := make([]record.Header, len(pairs))
	for i, pair := range pairs {
		if len(pair) != 2 || pair[0] == nil {
			return nil, fmt.Errorf(`header %d is not a list ["name", "base64" or null]`, i)
		}
		value, err := decodeField(fmt.Sprintf("the value of header %d", i), pair[1])
		if err != nil {
			return nil, err
		}
		headers[i] = record.Header{Key: *pair[0], Value: value}
	}
	return headers, nil
}

// plainJSON says in plain words what encoding/json found.
func plainJSON(err error) error {
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &kind) && kind.Field == "":
		return fmt.Errorf("it is a JSON %s, not an object", kind.Value)
	case errors.As(err, &kind):
		return fmt.Errorf("%s cannot be a JSON %s", kind.Field, kind.Value)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return errors.New("the JSON object is not closed")
	}
	return fmt.Errorf("it is no JSON object as cat writes it: %s", strings.TrimPrefix(err.Error(), "json: "))
}
