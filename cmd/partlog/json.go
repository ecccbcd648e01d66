package main

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/partlog/partlog/record"
)

// A record as one line of JSON, the form that cat writes and append reads:
//
//	{"offset":7,"timestamp":1767225600000,"timestampType":"CreateTime","key":"aw==","value":null,"headers":[["a","eA=="],["b",null]]}
//
// Keys and values are base64 or null. With a limit, longer ones are replaced by what identifies them:
//
//	"valueDigest":{"length":150000,"sha256":"7bc40c…"}
//
// The timestamp is in Unix milliseconds, -1 for none.

// keepAll is the digest limit that replaces nothing.
const keepAll = -1

// lines collects output and writes it in large pieces.
type lines struct {
	w          io.Writer
	buf        []byte
	digestOver int // keys and values longer than this many bytes become digests; keepAll: none
}

const (
	flushAt   = 64 << 10
	keepLines = 4 << 20 // a larger buffer is given back
)

// record adds a line. timestampType is its batch's.
func (l *lines) record(r *record.Record, timestampType string) error {
	l.buf = appendRecord(l.buf, r, timestampType, l.digestOver)
	return l.flushIf(flushAt)
}

// text adds a line of plain text.
func (l *lines) text(line string) error {
	l.buf = append(append(l.buf, line...), '\n')
	return l.flushIf(flushAt)
}

func (l *lines) flushIf(size int) error {
	if len(l.buf) < size {
		return nil
	}
	return l.flush()
}

// flush writes out what was collected.
func (l *lines) flush() error {
	if len(l.buf) == 0 {
		return nil
	}
	_, err := l.w.Write(l.buf)
	l.buf = l.buf[:0]
	if cap(l.buf) > keepLines {
		l.buf = nil
	}
	return err
}

// timestampTypeOf is Kafka's word for the timestamps of a batch: format 0 has none at all.
func timestampTypeOf(b record.Batch) string {
	if b.Magic() == 0 {
		return "NoTimestampType"
	}
	return b.TimestampType().String()
}

func appendRecord(dst []byte, r *record.Record, timestampType string, digestOver int) []byte {
	dst = append(dst, `{"offset":`...)
	dst = strconv.AppendInt(dst, r.Offset, 10)
	dst = append(dst, `,"timestamp":`...)
	dst = strconv.AppendInt(dst, r.Timestamp, 10)
	dst = append(dst, `,"timestampType":"`...)
	dst = append(dst, timestampType...)
	dst = append(dst, '"', ',')
	dst = appendField(dst, "key", r.Key, digestOver)
	dst = append(dst, ',')
	dst = appendField(dst, "value", r.Value, digestOver)
	dst = append(dst, `,"headers":[`...)
	for i := range r.Headers {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, '[')
		dst = appendString(dst, r.Headers[i].Key)
		dst = append(dst, ',')
		dst = appendBase64(dst, r.Headers[i].Value)
		dst = append(dst, ']')
	}
	return append(dst, ']', '}', '\n')
}

// appendField writes a key or value, or its digest.
func appendField(dst []byte, name string, b []byte, digestOver int) []byte {
	dst = append(append(append(dst, '"'), name...), '"', ':')
	if digestOver < 0 || len(b) <= digestOver {
		return appendBase64(dst, b)
	}
	dst = append(dst[:len(dst)-2], `Digest":{"length":`...)
	dst = strconv.AppendInt(dst, int64(len(b)), 10)
	dst = append(dst, `,"sha256":"`...)
	sum := sha256.Sum256(b)
	dst = hex.AppendEncode(dst, sum[:])
	return append(dst, '"', '}')
}

func appendBase64(dst, b []byte) []byte {
	if b == nil {
		return append(dst, "null"...)
	}
	dst = append(dst, '"')
	dst = base64.StdEncoding.AppendEncode(dst, b)
	return append(dst, '"')
}

// appendString writes a JSON string. Bytes that are no UTF-8 become U+FFFD, as they do for a Kafka client.
func appendString(dst []byte, s string) []byte {
	const hexDigits = "0123456789abcdef"
	dst = append(dst, '"')
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c < ' ':
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		case c < utf8.RuneSelf:
			dst = append(dst, c)
		default:
			r, size := utf8.DecodeRuneInString(s[i:])
			dst = utf8.AppendRune(dst, r) // RuneError is U+FFFD
			i += size
			continue
		}
		i++
	}
	return append(dst, '"')
}
