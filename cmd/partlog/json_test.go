package main

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/partlog/partlog/internal/golden"
	"github.com/partlog/partlog/record"
)

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// someBytes draws null, empty or short bytes.
func someBytes() *rapid.Generator[[]byte] {
	return rapid.Custom(func(t *rapid.T) []byte {
		if rapid.IntRange(0, 3).Draw(t, "null") == 0 {
			return nil
		}
		return rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "bytes")
	})
}

func someRecord() *rapid.Generator[record.Record] {
	return rapid.Custom(func(t *rapid.T) record.Record {
		r := record.Record{
			Timestamp: rapid.SampledFrom([]int64{-1, 0, 1, 1_700_000_000_000, 1_700_000_000_001}).Draw(t, "timestamp"),
			Key:       someBytes().Draw(t, "key"),
			Value:     someBytes().Draw(t, "value"),
		}
		for range rapid.IntRange(0, 3).Draw(t, "headers") {
			r.Headers = append(r.Headers, record.Header{Key: rapid.String().Draw(t, "name"), Value: someBytes().Draw(t, "header")})
		}
		return r
	})
}

func TestALineReadsBackAsTheRecordItWasWrittenFrom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := someRecord().Draw(t, "record")
		r.Offset = rapid.Int64Min(0).Draw(t, "offset")
		line := appendRecord(nil, &r, "CreateTime", keepAll)
		require.True(t, json.Valid(line), "%s", line)
		got, stamped, err := parseRecord(line)
		require.NoError(t, err, "%s", line)
		require.True(t, stamped)
		got.Offset = r.Offset
		require.Equal(t, r, got, "%s", line)
		require.Equal(t, 1, strings.Count(string(line), "\n"))

		var asGolden golden.Record
		require.NoError(t, json.Unmarshal(line, &asGolden))
		require.Equal(t, r.Offset, asGolden.Offset)
		require.Equal(t, r.Key, asGolden.Key)
	})
}

func TestAHeaderNameThatIsNoUTF8BecomesReplacementCharacters(t *testing.T) {
	require.Equal(t, "\"a\uFFFDb\\\"\\\\\\u0001ü\"", string(appendString(nil, "a\xffb\"\\\x01ü")))
}

func TestOnlyBytesAboveTheLimitBecomeDigests(t *testing.T) {
	r := record.Record{Key: []byte("abc"), Value: []byte("abcd")}
	require.JSONEq(t, `{"offset":0,"timestamp":0,"timestampType":"CreateTime","key":"YWJj",
		"valueDigest":{"length":4,"sha256":"88d4266fd4e6338d13b845fcf289579d209c897823b9217da3e161936f031589"},"headers":[]}`,
		string(appendRecord(nil, &r, "CreateTime", 3)))
}

func TestALineIsRefusedWithTheReasonInPlainWords(t *testing.T) {
	for line, want := range map[string]string{
		`{`:                                      "not closed",
		`{"key":`:                                "not closed",
		`[]`:                                     "JSON array, not an object",
		`7`:                                      "JSON number, not an object",
		`{"key":5}`:                              "key cannot be a JSON number",
		`{"timestamp":"now"}`:                    "timestamp cannot be a JSON string",
		`{"timestamp":1.5}`:                      "timestamp cannot be a JSON number",
		`{"timestamp":-2}`:                       "below -1",
		`{"timestampType":"Sometime"}`:           "want one of CreateTime",
		`{"key":"a"}`:                            "key is not base64",
		`{"value":"!!!!"}`:                       "value is not base64",
		`{"headers":[["a"]]}`:                    "header 0 is not a list",
		`{"headers":[["a","eA=="],[null,null]]}`: "header 1 is not a list",
		`{"headers":[["a","x"]]}`:                "value of header 0 is not base64",
		`{"headers":{"a":"b"}}`:                  "headers cannot be a JSON object",
		`{"vlaue":null}`:                         `unknown field "vlaue"`,
		`{} {}`:                                  "something follows",
		`{"keyDigest":{"length":1}}`:             "digest",
		`{"valueDigest":{"length":1}}`:           "without --digest-over",
		`hello`:                                  "no JSON object as cat writes it",
	} {
		_, _, err := parseRecord([]byte(line))
		require.ErrorContains(t, err, want, "%s", line)
		require.NotContains(t, err.Error(), "\n")
	}
}

func TestEveryFieldOfALineMayBeMissing(t *testing.T) {
	for _, line := range []string{`{}`, `{"key":null,"value":null,"headers":null,"timestamp":null,"offset":null,"timestampType":null}`, "{\"headers\":[]}\r\n"} {
		r, stamped, err := parseRecord([]byte(line))
		require.NoError(t, err, line)
		require.False(t, stamped)
		require.Equal(t, record.Record{}, r)
	}
}

func FuzzParseRecord(f *testing.F) {
	for _, line := range []string{`{}`, `{"offset":1,"timestamp":2,"timestampType":"CreateTime","key":"aw==","value":null,"headers":[["a","eA=="],["b",null]]}`, `{"key":"\u0061a=="}`} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		r, _, err := parseRecord(line)
		if err != nil {
			return
		}
		again, _, err := parseRecord(appendRecord(nil, &r, "CreateTime", keepAll))
		require.NoError(t, err)
		require.Equal(t, r, again)
	})
}

func TestWritingALineAllocatesNothing(t *testing.T) {
	r := record.Record{Offset: 7, Timestamp: 1_700_000_000_000, Key: []byte("k"), Value: make([]byte, 1000), Headers: []record.Header{{Key: "a", Value: []byte("b")}}}
	buf := make([]byte, 0, 4096)
	require.Zero(t, testing.AllocsPerRun(100, func() { buf = appendRecord(buf[:0], &r, "CreateTime", 10) }))
}
