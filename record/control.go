package record

import (
	"encoding/binary"
	"time"
)

// ControlType is what the record of a control batch says.
type ControlType int16

// The control types. All but the first two belong to the metadata log.
const (
	Abort          ControlType = 0
	Commit         ControlType = 1
	LeaderChange   ControlType = 2
	SnapshotHeader ControlType = 3
	SnapshotFooter ControlType = 4
	KRaftVersion   ControlType = 5
	KRaftVoters    ControlType = 6
	// UnknownControl stands for every other type; readers ignore such records.
	UnknownControl ControlType = -1
)

var controlNames = [...]string{"ABORT", "COMMIT", "LEADER_CHANGE", "SNAPSHOT_HEADER", "SNAPSHOT_FOOTER", "KRAFT_VERSION", "KRAFT_VOTERS"}

func (t ControlType) String() string {
	if t < 0 || int(t) >= len(controlNames) {
		return "UNKNOWN"
	}
	return controlNames[t]
}

// ParseControl reads a control record's key. Versions above the known one are read like it. A key that is too short or has a
// negative version is an *InvalidRecordError.
func ParseControl(key []byte) (ControlType, error) {
	if len(key) < 4 {
		return UnknownControl, invalidBatch("the key of a control record has %d bytes, needs 4", len(key))
	}
	if v := int16(binary.BigEndian.Uint16(key)); v < 0 {
		return UnknownControl, invalidBatch("control record version %d is negative", v)
	}
	t := ControlType(binary.BigEndian.Uint16(key[2:]))
	if t < Abort || t > KRaftVoters {
		return UnknownControl, nil
	}
	return t, nil
}

// EndMarker is the content of a transaction's end marker.
type EndMarker struct {
	Type             ControlType // Commit or Abort
	CoordinatorEpoch int32
}

// ParseMarker reads the record of a control batch as a transaction's end marker. A record of another type gives its type and
// an *InvalidRecordError, as does a value that is too short or has a negative version.
func ParseMarker(rec Record) (EndMarker, error) {
	t, err := ParseControl(rec.Key)
	if err != nil {
		return EndMarker{Type: t, CoordinatorEpoch: -1}, err
	}
	m := EndMarker{Type: t, CoordinatorEpoch: -1}
	if t != Abort && t != Commit {
		return m, invalidBatch("control record %v is not a transaction's end", t)
	}
	if len(rec.Value) < 6 {
		return m, invalidBatch("the value of an end marker has %d bytes, needs 6", len(rec.Value))
	}
	if v := int16(binary.BigEndian.Uint16(rec.Value)); v < 0 {
		return m, invalidBatch("end marker version %d is negative", v)
	}
	m.CoordinatorEpoch = int32(binary.BigEndian.Uint32(rec.Value[2:]))
	return m, nil
}

// Marker builds the control batch that ends a transaction of p, with COMMIT or ABORT. Under transaction version 2 p.Epoch is
// the data's epoch plus one; p.BaseSequence is ignored. Offset and leader epoch are those of a fresh batch, 0 and NoEpoch.
// Its 78 bytes belong to the caller. A now before 1970 counts as 1970. A p without id or epoch makes a marker that
// Decoder.Validate refuses.
func Marker(commit bool, p Producer, coordinatorEpoch int32, now time.Time) Batch {
	var key [4]byte
	if commit {
		key[3] = byte(Commit)
	}
	var value [6]byte
	binary.BigEndian.PutUint32(value[2:], uint32(coordinatorEpoch))
	ms := max(now.UnixMilli(), 0)
	r := Record{Key: key[:], Value: value[:]}
	body := r.bodySize(0, 0)
	b := r.appendTo(make([]byte, HeaderSize, 78), body, 0, 0)
	h := header{leaderEpoch: NoEpoch, attributes: attrTransactional | attrControl, baseTime: ms, maxTime: ms,
		producerID: p.ID, epoch: p.Epoch, baseSequence: -1, count: 1}
	h.write(b, None)
	Batch{b}.stampChecksum()
	return Batch{b}
}
