package main

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/partlog/partlog/record"
)

// snapshotOf says which snapshot of a cluster's metadata a file is, by its name:
//
//	<end offset, 20 digits>-<epoch, 10 digits>.checkpoint
//
// and the one that a new cluster begins with has a name of its own.
func snapshotOf(name string) (string, error) {
	if name == "bootstrap.checkpoint" {
		return "KRaft bootstrap snapshot", nil
	}
	digits, epochDigits, ok := strings.Cut(strings.TrimSuffix(name, ".checkpoint"), "-")
	offset, err := strconv.ParseUint(digits, 10, 63)
	epoch, epochErr := strconv.ParseUint(epochDigits, 10, 31)
	if !ok || err != nil || epochErr != nil || len(digits) != 20 || len(epochDigits) != 10 {
		return "", unreadablef(-1, "the name is not that of a snapshot, <end offset>-<epoch>.checkpoint in 20 and 10 digits")
	}
	return fmt.Sprintf("Snapshot end offset: %d, epoch: %d", offset, epoch), nil
}

// kraftText is the control record of a metadata log as Kafka's tool prints it: the message as JSON. ok is false for other types.
func kraftText(t record.ControlType, value []byte) (text string, ok bool, err error) {
	m := kraftMessage{rest: value}
	switch t {
	case record.LeaderChange:
		text = " LeaderChange: " + m.leaderChange()
	case record.SnapshotHeader:
		text = fmt.Sprintf(` SnapshotHeader {"version":%d,"lastContainedLogTimestamp":%d}`, m.int16(), m.int64())
	case record.SnapshotFooter:
		text = fmt.Sprintf(` SnapshotFooter {"version":%d}`, m.int16())
	case record.KRaftVersion:
		text = fmt.Sprintf(` KRaftVersion {"version":%d,"kRaftVersion":%d}`, m.int16(), m.int16())
	case record.KRaftVoters:
		text = " KRaftVoters " + m.voters()
	default:
		return "", false, nil
	}
	m.tags()
	return text, true, m.err
}

// kraftMessage reads a message in Kafka's flexible encoding: numbers big-endian, lengths and counts as unsigned varints one above
// the number, tagged fields at the end of every structure. After an error everything it reads is zero.
type kraftMessage struct {
	rest []byte
	err  error
}

// leaderChange is
//
//	version int16 | leader int32 | voters []{ id int32 } | granting voters []{ id int32 }
//
// The directory ids that version 1 of the message has are never written.
func (m *kraftMessage) leaderChange() string {
	version, leader := m.int16(), m.int32()
	noID := ""
	if version > 0 {
		noID = `,"voterDirectoryId":"` + base64.RawURLEncoding.EncodeToString(make([]byte, 16)) + `"`
	}
	voter := func() string {
		defer m.tags()
		return fmt.Sprintf(`{"voterId":%d%s}`, m.int32(), noID)
	}
	return fmt.Sprintf(`{"version":%d,"leaderId":%d,"voters":%s,"grantingVoters":%s}`, version, leader, m.list(voter), m.list(voter))
}

// voters is
//
//	version int16 | voters []{ id int32 | directory 16 bytes | endpoints []{ name string | host string | port uint16 } | lowest, highest version int16 }
func (m *kraftMessage) voters() string {
	endpoint := func() string {
		defer m.tags()
		return fmt.Sprintf(`{"name":%s,"host":%s,"port":%d}`, m.string(), m.string(), uint16(m.int16()))
	}
	voter := func() string {
		defer m.tags()
		text := fmt.Sprintf(`{"voterId":%d,"voterDirectoryId":"%s","endpoints":%s,`, m.int32(), base64.RawURLEncoding.EncodeToString(m.take(16)), m.list(endpoint))
		text += fmt.Sprintf(`"kRaftVersionFeature":{"minSupportedVersion":%d,"maxSupportedVersion":%d}}`, m.int16(), m.int16())
		m.tags() // of the range of versions
		return text
	}
	return fmt.Sprintf(`{"version":%d,"voters":%s}`, m.int16(), m.list(voter))
}

func (m *kraftMessage) list(one func() string) string {
	n := m.uvarint()
	if n == 0 {
		m.fail()
	}
	var all []string
	for i := uint64(1); i < n && m.err == nil; i++ {
		all = append(all, one())
	}
	return "[" + strings.Join(all, ",") + "]"
}

// string is quoted as Kafka's JSON is: only what must be is escaped.
func (m *kraftMessage) string() string {
	n := m.uvarint()
	if n == 0 {
		m.fail()
		return ""
	}
	var out strings.Builder
	out.WriteByte('"')
	for _, r := range javaText(m.take(n - 1)) {
		switch {
		case r == '"' || r == '\\':
			out.WriteByte('\\')
			out.WriteRune(r)
		case strings.ContainsRune("\b\t\n\f\r", r):
			out.WriteString(strings.Trim(strconv.Quote(string(r)), `"`))
		case r < ' ':
			fmt.Fprintf(&out, `\u%04X`, r)
		default:
			out.WriteRune(r)
		}
	}
	out.WriteByte('"')
	return out.String()
}

// tags passes over tagged fields: nobody has defined any.
func (m *kraftMessage) tags() {
	for n := m.uvarint(); n > 0 && m.err == nil; n-- {
		m.uvarint()
		m.take(m.uvarint())
	}
}

func (m *kraftMessage) int16() int16 { return int16(binary.BigEndian.Uint16(m.take(2))) }
func (m *kraftMessage) int32() int32 { return int32(binary.BigEndian.Uint32(m.take(4))) }
func (m *kraftMessage) int64() int64 { return int64(binary.BigEndian.Uint64(m.take(8))) }

func (m *kraftMessage) uvarint() uint64 {
	n, size := binary.Uvarint(m.rest)
	if size <= 0 || n > 1<<31 {
		m.fail()
		return 0
	}
	m.rest = m.rest[size:]
	return n
}

// take is the next n bytes; of none the message has, at most 16 zeros.
func (m *kraftMessage) take(n uint64) []byte {
	if m.err == nil && n > uint64(len(m.rest)) {
		m.fail()
	}
	if m.err != nil {
		return make([]byte, min(n, 16))
	}
	b := m.rest[:n]
	m.rest = m.rest[n:]
	return b
}

func (m *kraftMessage) fail() {
	if m.err == nil {
		m.err = errors.New("its message is none of its type")
	}
	m.rest = nil
}
