package replica

import (
	"encoding/binary"
	"fmt"
	"math"
)

// The frames between a node and the controller. Each ends with the members of an in-sync set: their number (2), then of each the
// node (4) and, in a request, the broker epoch (8).

// maxMembers is how many members a set may have.
const maxMembers = math.MaxUint16

func (w *writer) control(m ControlRequest) {
	p := &m.Proposal
	w.i64(int64(m.Tag), m.BrokerEpoch)
	w.b = append(w.b, m.TopicID[:]...)
	w.i32(p.LeaderEpoch, p.PartitionEpoch)
	w.b = append(w.b, flag(m.Stopping), flag(p.Recovering)|flag(m.Settings)<<1)
	w.b = binary.BigEndian.AppendUint16(w.b, uint16(len(p.ISR)))
	for i, id := range p.ISR {
		epoch := int64(-1)
		if i < len(p.BrokerEpochs) {
			epoch = p.BrokerEpochs[i]
		}
		w.i32(int32(id))
		w.i64(epoch)
	}
}

func decodeControl(r reader) (Message, error) {
	m := ControlRequest{Tag: uint64(r.i64()), BrokerEpoch: r.i64()}
	p := &m.Proposal
	r.b = r.b[copy(m.TopicID[:], r.b):]
	p.LeaderEpoch, p.PartitionEpoch = r.i32(), r.i32()
	m.Stopping, p.Recovering = r.b[0] != 0, r.b[1]&1 != 0
	m.Settings = r.b[1]&2 != 0
	n := int(binary.BigEndian.Uint16(r.b[2:]))
	if r.b = r.b[4:]; len(r.b) != n*12 {
		return nil, fmt.Errorf("%w: %d members in %d bytes", ErrFrame, n, len(r.b))
	}
	for range n {
		p.ISR = append(p.ISR, NodeID(r.i32()))
		p.BrokerEpochs = append(p.BrokerEpochs, r.i64())
	}
	return m, nil
}

func (w *writer) judged(m ControlAnswer) {
	a := &m.Answer
	w.i64(int64(m.Tag))
	w.i32(a.LeaderEpoch, a.PartitionEpoch)
	w.b = binary.BigEndian.AppendUint16(w.b, uint16(a.Err))
	w.b = binary.BigEndian.AppendUint16(w.b, uint16(len(a.ISR)))
	for _, id := range a.ISR {
		w.i32(int32(id))
	}
}

func decodeJudged(r reader) (Message, error) {
	m := ControlAnswer{Tag: uint64(r.i64())}
	a := &m.Answer
	a.LeaderEpoch, a.PartitionEpoch = r.i32(), r.i32()
	a.Err = ErrorCode(binary.BigEndian.Uint16(r.b))
	n := int(binary.BigEndian.Uint16(r.b[2:]))
	if r.b = r.b[4:]; len(r.b) != n*4 {
		return nil, fmt.Errorf("%w: %d members in %d bytes", ErrFrame, n, len(r.b))
	}
	for range n {
		a.ISR = append(a.ISR, NodeID(r.i32()))
	}
	return m, nil
}
