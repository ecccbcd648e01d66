package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/partlog/partlog/log"
)

// A frame on the wire, all numbers big-endian:
//
//	+--------+------+-------+-----------+-------+--------------------------------+------------------+---------------+
//	| length | kind | topic | partition | topic | fields of the message, each of | Aborted of an    | Raw of        |
//	|   4    |  1   | len 2 |     4     | bytes | a fixed size, in a fixed order | Answer: 4 + 32 n | a Result: all |
//	+--------+------+-------+-----------+-------+--------------------------------+------------------+---------------+
//
// An Answer's fields end with the cause of a refusal: bits of wireErrors (4), the length of its text (2), the text. One with
// NOT_ENOUGH_REPLICAS has a *NotEnoughReplicasError where the end of an epoch stands in others: InSync as the epoch, MinISR as
// the end.
//
// length counts what comes behind it. A connection begins with a hello: the magic, the version, the sender's node and the
// node it means to reach. A client, which is no node, says NoNode, and is answered on the connection it made.
const (
	frameFetch    byte = 1
	frameResponse byte = 2
	frameEpoch    byte = 3
	frameEndTxn   byte = 4
	frameAnswer   byte = 5
	frameControl  byte = 6
	frameJudged   byte = 7
	frameAppend   byte = 8
	frameOffset   byte = 9
	framePing     byte = 10 // the sender is there; without a partition
	frameStatus   byte = 11

	frameHead    = 1 + 2 + 4
	fetchSize    = 8*8 + 16 + 4*2 + 2 // of the fields of a FetchRequest
	epochSize    = 8 + 4*2
	appendSize   = 8*3 + 4 + 1 // and the records
	offsetSize   = 8*2 + 4 + 1
	statusSize   = 8
	causeSize    = 4 + 2 // before the text
	endTxnSize   = 8*4 + 4*2 + 2 + 2
	abortedSize  = 8 * 4
	controlSize  = 8*2 + 16 + 4*2 + 2 + 2 // and 12 for each member of the set
	judgedSize   = 8 + 4*2 + 2 + 2        // and 4
	responseSize = 8*11 + 4*3 + 2 + 2 + 1
	maxTopic     = 249
	helloSize    = 16
	wireVersion  = 4
	helloMagic   = "plrp"
)

// ErrFrame: bytes that are no message.
var ErrFrame = errors.New("replica: malformed frame")

func appendHello(b []byte, from, to NodeID) []byte {
	b = append(b, helloMagic...)
	b = binary.BigEndian.AppendUint32(b, wireVersion)
	b = binary.BigEndian.AppendUint32(b, uint32(from))
	return binary.BigEndian.AppendUint32(b, uint32(to))
}

func decodeHello(b []byte) (from, to NodeID, err error) {
	if len(b) != helloSize || string(b[:4]) != helloMagic {
		return 0, 0, fmt.Errorf("%w: no hello", ErrFrame)
	}
	if v := binary.BigEndian.Uint32(b[4:]); v != wireVersion {
		return 0, 0, fmt.Errorf("%w: version %d, not %d", ErrFrame, v, wireVersion)
	}
	from, to = NodeID(binary.BigEndian.Uint32(b[8:])), NodeID(binary.BigEndian.Uint32(b[12:]))
	if from < NoNode {
		return 0, 0, fmt.Errorf("%w: node %d", ErrFrame, from)
	}
	return from, to, nil
}

// appendFrame encodes all of a message but its Raw, which goes behind it unchanged; the length counts both.
func appendFrame(b []byte, tp log.TopicPartition, m Message) (head, raw []byte) {
	begin := len(b)
	b = append(b, 0, 0, 0, 0)
	b = append(b, kindOf(m))
	b = binary.BigEndian.AppendUint16(b, uint16(len(tp.Topic)))
	b = binary.BigEndian.AppendUint32(b, uint32(tp.Partition))
	b = append(b, tp.Topic...)
	w := writer{b}
	switch m := m.(type) {
	case FetchRequest:
		w.i64(int64(m.Tag), m.Offset, m.LogStart, m.BrokerEpoch, m.MaxBytes, m.MinBytes, int64(m.MaxWait), m.Unsynced)
		w.b = append(w.b, m.TopicID[:]...)
		w.i32(m.LeaderEpoch, m.LastFetchedEpoch)
		w.b = append(w.b, byte(m.Isolation), flag(m.UncleanStop)|flag(m.From == NoNode)<<1)
	case FetchResponse:
		w.result(m.Tag, &m.Result)
		raw = m.Result.Raw
	case EpochRequest:
		w.i64(int64(m.Tag))
		w.i32(m.LeaderEpoch, m.Epoch)
	case EndTxn:
		w.i64(int64(m.Tag), m.ProducerID, m.BrokerEpoch, int64(m.Timeout))
		w.i32(m.CoordinatorEpoch, m.LeaderEpoch)
		w.b = binary.BigEndian.AppendUint16(w.b, uint16(m.ProducerEpoch))
		w.b = append(w.b, flag(m.Commit), byte(m.TransactionVersion))
	case AppendRequest:
		w.i64(int64(m.Tag), m.BrokerEpoch, int64(m.Timeout))
		w.i32(m.LeaderEpoch)
		w.b = append(w.b, byte(m.Acks))
		raw = m.Raw
	case ping:
		w.b = append(w.b, flag(m.lost))
	case OffsetRequest:
		w.i64(int64(m.Tag), m.At)
		w.i32(m.LeaderEpoch)
		w.b = append(w.b, byte(m.Isolation))
	case StatusRequest:
		w.i64(int64(m.Tag))
	case Answer:
		w.result(m.Tag, &m.Result)
		w.cause(m.Result.Cause)
		w.i32(int32(len(m.Result.Aborted)))
		for _, t := range m.Result.Aborted {
			w.i64(t.ProducerID, t.FirstOffset, t.LastOffset, t.LastStable)
		}
		raw = m.Result.Raw
	case ControlRequest:
		w.control(m)
	case ControlAnswer:
		w.judged(m)
	}
	binary.BigEndian.PutUint32(w.b[begin:], uint32(len(w.b)-begin-4+len(raw)))
	return w.b, raw
}

func kindOf(m Message) byte {
	switch m.(type) {
	case FetchRequest:
		return frameFetch
	case FetchResponse:
		return frameResponse
	case EpochRequest:
		return frameEpoch
	case EndTxn:
		return frameEndTxn
	case Answer:
		return frameAnswer
	case AppendRequest:
		return frameAppend
	case OffsetRequest:
		return frameOffset
	case ping:
		return framePing
	case StatusRequest:
		return frameStatus
	case ControlRequest:
		return frameControl
	case ControlAnswer:
		return frameJudged
	}
	return 0
}

// decodeFrame is the inverse, without the length. The message's Raw is part of b.
func decodeFrame(b []byte) (tp log.TopicPartition, m Message, err error) {
	if len(b) < frameHead {
		return tp, nil, fmt.Errorf("%w: %d bytes", ErrFrame, len(b))
	}
	kind, n := b[0], int(binary.BigEndian.Uint16(b[1:]))
	tp.Partition = int32(binary.BigEndian.Uint32(b[3:]))
	b = b[frameHead:]
	if n > maxTopic || n > len(b) {
		return tp, nil, fmt.Errorf("%w: a topic of %d bytes", ErrFrame, n)
	}
	tp.Topic, b = string(b[:n]), b[n:]
	if err := tp.Validate(); err != nil && !(tp == log.TopicPartition{} && (kind == frameControl || kind == frameJudged || kind == framePing)) {
		return tp, nil, fmt.Errorf("%w: %w", ErrFrame, err)
	}
	switch {
	case kind == frameFetch && len(b) == fetchSize:
		m, err = decodeFetch(reader{b})
	case kind == frameResponse && len(b) >= responseSize:
		m, err = decodeResponse(reader{b})
	case kind == frameEpoch && len(b) == epochSize:
		r := reader{b}
		m = EpochRequest{From: NoNode, Tag: uint64(r.i64()), LeaderEpoch: r.i32(), Epoch: r.i32()}
	case kind == frameEndTxn && len(b) == endTxnSize:
		m, err = decodeEndTxn(reader{b})
	case kind == frameControl && len(b) >= controlSize:
		m, err = decodeControl(reader{b})
	case kind == frameJudged && len(b) >= judgedSize:
		m, err = decodeJudged(reader{b})
	case kind == frameAppend && len(b) >= appendSize:
		m, err = decodeAppend(reader{b})
	case kind == frameOffset && len(b) == offsetSize:
		r := reader{b}
		q := OffsetRequest{From: NoNode, Tag: uint64(r.i64()), At: r.i64(), LeaderEpoch: r.i32()}
		if q.Isolation = log.Isolation(r.b[0]); q.Isolation > log.ReadCommitted || q.At < MaxTime {
			err = fmt.Errorf("%w: a question for an offset with an unknown field", ErrFrame)
		}
		m = q
	case kind == frameStatus && len(b) == statusSize:
		r := reader{b}
		m = StatusRequest{uint64(r.i64())}
	case kind == framePing && len(b) == 1:
		m = ping{lost: b[0] != 0}
	case kind == frameAnswer && len(b) >= responseSize+causeSize+4:
		m, err = decodeAnswer(reader{b})
	default:
		err = fmt.Errorf("%w: kind %d of %d bytes", ErrFrame, kind, len(b))
	}
	return tp, m, err
}

func decodeFetch(r reader) (Message, error) {
	m := FetchRequest{Tag: uint64(r.i64()), Offset: r.i64(), LogStart: r.i64(), BrokerEpoch: r.i64(), MaxBytes: r.i64(), MinBytes: r.i64()}
	m.MaxWait, m.Unsynced = time.Duration(r.i64()), r.i64()
	r.b = r.b[copy(m.TopicID[:], r.b):]
	m.LeaderEpoch, m.LastFetchedEpoch = r.i32(), r.i32()
	m.Isolation, m.UncleanStop = log.Isolation(r.b[0]), r.b[1]&1 != 0
	furthest := log.LogEnd
	if r.b[1]&2 != 0 {
		m.From, furthest = NoNode, log.ReadCommitted
	}
	if m.Offset < 0 || m.MaxBytes < 0 || m.MinBytes < 0 || m.MaxWait < 0 || m.Unsynced < 0 || m.Isolation > furthest {
		return nil, fmt.Errorf("%w: a fetch with a negative or unknown field", ErrFrame)
	}
	return m, nil
}

func decodeResponse(r reader) (Message, error) {
	m := FetchResponse{}
	m.Tag = r.result(&m.Result)
	return m, r.raw(&m.Result)
}

func decodeAnswer(r reader) (Message, error) {
	m := Answer{}
	m.Tag = r.result(&m.Result)
	if err := r.cause(&m.Result); err != nil {
		return nil, err
	}
	n := r.i32()
	if n < 0 || int64(n)*abortedSize > int64(len(r.b)) {
		return nil, fmt.Errorf("%w: %d aborted transactions in %d bytes", ErrFrame, n, len(r.b))
	}
	for range n {
		m.Result.Aborted = append(m.Result.Aborted, log.AbortedTxn{ProducerID: r.i64(), FirstOffset: r.i64(), LastOffset: r.i64(), LastStable: r.i64()})
	}
	return m, r.raw(&m.Result)
}

func decodeEndTxn(r reader) (Message, error) {
	m := EndTxn{Tag: uint64(r.i64()), ProducerID: r.i64(), BrokerEpoch: r.i64(), Timeout: time.Duration(r.i64()), CoordinatorEpoch: r.i32(), LeaderEpoch: r.i32()}
	m.ProducerEpoch = int16(binary.BigEndian.Uint16(r.b))
	m.Commit, m.TransactionVersion = r.b[2] != 0, int8(r.b[3])
	o := log.EndTxnOptions{CoordinatorEpoch: m.CoordinatorEpoch, TransactionVersion: int(m.TransactionVersion)}
	if err := o.Validate(); err != nil || m.Timeout < 0 {
		return nil, fmt.Errorf("%w: an end of a transaction with a negative or unknown field", ErrFrame)
	}
	return m, nil
}

func decodeAppend(r reader) (Message, error) {
	m := AppendRequest{From: NoNode, Tag: uint64(r.i64()), BrokerEpoch: r.i64(), Timeout: time.Duration(r.i64()), LeaderEpoch: r.i32()}
	m.Acks, m.Raw = int8(r.b[0]), r.b[1:]
	if m.Timeout < 0 {
		return nil, fmt.Errorf("%w: an append with a negative timeout", ErrFrame)
	}
	return m, nil
}

// cause takes the error behind a refusal.
func (r *reader) cause(res *Result) error {
	kinds := uint32(r.i32())
	n := int(binary.BigEndian.Uint16(r.b))
	if r.b = r.b[2:]; n > maxErrorText || n+4 > len(r.b) {
		return fmt.Errorf("%w: an error of %d bytes", ErrFrame, n)
	}
	few := res.Err == NotEnoughReplicas || res.Err == NotEnoughReplicasAfterAppend
	switch e := res.EpochEnd; {
	case few && e.Epoch >= 0 && e.End >= 0 && e.End <= math.MaxInt32:
		res.Cause, res.EpochEnd = &NotEnoughReplicasError{int(e.Epoch), int(e.End)}, log.EpochEnd{Epoch: -1, End: -1}
	case n > 0 || kinds != 0:
		res.Cause = &RemoteError{string(r.b[:n]), kinds}
	}
	r.b = r.b[n:]
	return nil
}

func (w *writer) cause(err error) {
	e, ok := farError(err).(*RemoteError)
	if !ok { // there is none, or its numbers stand elsewhere
		e = &RemoteError{}
	}
	w.i32(int32(e.kinds))
	w.b = binary.BigEndian.AppendUint16(w.b, uint16(len(e.Text)))
	w.b = append(w.b, e.Text...)
}

// ping is what a connection says when there is nothing to say, so that its end is noticed.
type ping struct {
	lost bool // messages from it were, and who waits for an answer asks again
}

func (ping) event()   {}
func (ping) message() {}

// result takes the fields of a Result and the tag before them.
func (r *reader) result(res *Result) (tag uint64) {
	tag = uint64(r.i64())
	res.Base, res.Last, res.AppendTime, res.Bytes = r.i64(), r.i64(), r.i64(), r.i64()
	res.HighWatermark, res.LastStable, res.LogStart, res.LogEnd, res.Removal = r.i64(), r.i64(), r.i64(), r.i64(), r.i64()
	res.EpochEnd.End = r.i64()
	res.EpochEnd.Epoch, res.Leader, res.LeaderEpoch = r.i32(), NodeID(r.i32()), r.i32()
	res.Err = ErrorCode(binary.BigEndian.Uint16(r.b))
	res.Diverged, res.Duplicate, res.Gap = r.b[2] != 0, r.b[3] != 0, r.b[4] != 0
	r.b = r.b[5:]
	return tag
}

// raw takes the rest.
func (r *reader) raw(res *Result) error {
	if len(r.b) > 0 {
		res.Raw = r.b
	}
	if res.Bytes != int64(len(res.Raw)) {
		return fmt.Errorf("%w: %d bytes of records, not %d", ErrFrame, len(res.Raw), res.Bytes)
	}
	return nil
}

func flag(b bool) byte {
	if b {
		return 1
	}
	return 0
}

type writer struct{ b []byte }

func (w *writer) i64(list ...int64) {
	for _, v := range list {
		w.b = binary.BigEndian.AppendUint64(w.b, uint64(v))
	}
}

// result is all of a Result but its Raw.
func (w *writer) result(tag uint64, r *Result) {
	end := r.EpochEnd
	if few := (*NotEnoughReplicasError)(nil); r.Cause != nil && errors.As(r.Cause, &few) {
		end = log.EpochEnd{Epoch: int32(few.InSync), End: int64(few.MinISR)}
	}
	w.i64(int64(tag), r.Base, r.Last, r.AppendTime, r.Bytes, r.HighWatermark, r.LastStable, r.LogStart, r.LogEnd, r.Removal, end.End)
	w.i32(end.Epoch, int32(r.Leader), r.LeaderEpoch)
	w.b = binary.BigEndian.AppendUint16(w.b, uint16(r.Err))
	w.b = append(w.b, flag(r.Diverged), flag(r.Duplicate), flag(r.Gap))
}

func (w *writer) i32(list ...int32) {
	for _, v := range list {
		w.b = binary.BigEndian.AppendUint32(w.b, uint32(v))
	}
}

// reader takes fields off bytes that are long enough.
type reader struct{ b []byte }

func (r *reader) i64() int64 {
	v := binary.BigEndian.Uint64(r.b)
	r.b = r.b[8:]
	return int64(v)
}

func (r *reader) i32() int32 {
	v := binary.BigEndian.Uint32(r.b)
	r.b = r.b[4:]
	return int32(v)
}
