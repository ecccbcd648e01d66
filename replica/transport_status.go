package replica

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/partlog/partlog/log"
)

// A Status goes over the wire as the records of an Answer, in this order, all numbers big-endian:
//
//	role 1, bits 2, topic id 16                          | bits: see bits
//	36 numbers                                           | 8 each: see fields
//	phase, pending                                       | length 1, text
//	replicas, adding, removing, in sync, maximal in sync | number of them 2, then 4 each
//	epochs                                               | number 4, then epoch 4 and start 8 each
//	followers                                            | number 2, then bits 1 and 7 numbers each
//	last error                                           | code 2, bits of wireErrors 4, length of the text 2, text
//
// Times are Unix nanoseconds, 0 for none. What comes behind is for later versions, and not looked at.

// maxStatus bounds what is taken for one. One of a hundred thousand leader epochs has 1.2 MB.
const maxStatus = 16 << 20

// StatusRequest asks for the Status of a replica; the answer is an Answer. A Partition is not given it.
type StatusRequest struct{ Tag uint64 }

func (StatusRequest) event()   {}
func (StatusRequest) message() {}

// Status is Handle.Status at the other node, by its clock. *UnansweredError; *RefusedError: UnknownTopicOrPartition if it has no such
// replica; ErrNodeClosed.
func (r *Remote) Status(ctx context.Context) (Status, error) {
	if r.none() {
		return noStatus, ErrNodeClosed
	}
	res, err := r.node.ask(ctx, r.at, r.tp, asking{once: r.once}, func(tag uint64) Message { return StatusRequest{tag} })
	if err != nil {
		return noStatus, err
	}
	if res.Err != None {
		return noStatus, by(r.at, refused(r.tp, statusOf, res))
	}
	s, err := decodeStatus(res.Raw)
	if err != nil {
		return noStatus, fmt.Errorf("status of %s at node %d: %w", r.tp, r.at, err)
	}
	return s, nil
}

// told is the answer to a StatusRequest.
func (r *runner) told() Result {
	s := (&Handle{r}).Status()
	res := refusal(None)
	res.Raw = appendStatus(nil, &s)
	res.Bytes = int64(len(res.Raw))
	return res
}

// bits are the fields of s that say yes or no, from the lowest bit on.
func (s *Status) bits() []*bool {
	return []*bool{&s.Active, &s.Recovering, &s.Proposing, &s.UncleanStop, &s.Deleting, &s.UnderMin, &s.AtMin, &s.Replicated}
}

func (f *FollowerStatus) bits() []*bool {
	return []*bool{&f.InSync, &f.CaughtUp, &f.Eligible, &f.UncleanStop}
}

// fields has each number of s carried over.
func (s *Status) fields(c *carrier) {
	o, n := &s.Offsets, &s.Counts
	carry32(c, &s.Node, &s.Leader)
	carry32(c, &s.LeaderEpoch, &s.PartitionEpoch, &o.LeaderEpoch)
	carry32(c, &s.MinISR, &s.Queued, &s.Waiting, &s.Fetches)
	c.times(&s.At, &s.NextTick, &s.Reopening)
	c.i64(&s.EpochStart, &o.LogStart, &o.LastStable, &o.HighWatermark, &o.LogEnd, &o.Durable, &o.RecoveryPoint,
		&s.HighWatermark, &s.Persisted, &s.LowWatermark, &s.Removal, &s.DeleteFailures, &s.LogFailures,
		&n.Shrinks, &n.Expands, &n.ISRFailures, &n.Truncations, &n.Elections, &n.Fetches, &n.Appends, &n.FetchErrors, &n.RecordsBelowHWCut,
		&n.ProduceTimeouts, &n.StaleEventsIgnored)
}

func (f *FollowerStatus) fields(c *carrier) {
	carry32(c, &f.Node)
	c.times(&f.LastFetch, &f.LastCaughtUp)
	c.i64(&f.LogStart, &f.LogEnd, &f.BrokerEpoch, &f.FetchedLeaderEnd)
}

// statusFields and followerFields are how many there are.
const statusFields, followerFields = 36, 7

// carrier puts numbers behind bytes, or takes them off. Whoever has it take them has seen that there are as many.
type carrier struct {
	b    []byte
	take bool
	bad  bool // a number was taken that cannot be
}

func (c *carrier) i64(list ...*int64) {
	for _, v := range list {
		if !c.take {
			c.b = binary.BigEndian.AppendUint64(c.b, uint64(*v))
			continue
		}
		*v, c.b = int64(binary.BigEndian.Uint64(c.b)), c.b[8:]
	}
}

func carry32[T ~int32 | ~int](c *carrier, list ...*T) {
	for _, f := range list {
		v := int64(*f)
		c.i64(&v)
		c.bad = c.bad || v < math.MinInt32 || v > math.MaxInt32
		*f = T(v)
	}
}

func (c *carrier) times(list ...*time.Time) {
	for _, f := range list {
		v := int64(0)
		if !f.IsZero() {
			v = f.UnixNano()
		}
		if c.i64(&v); !c.take {
			continue
		}
		if *f = (time.Time{}); v != 0 {
			*f = time.Unix(0, v)
		}
	}
}

func appendStatus(b []byte, s *Status) []byte {
	w := writer{append(b, byte(s.Role))}
	w.b = binary.BigEndian.AppendUint16(w.b, packed(s.bits()))
	w.b = append(w.b, s.TopicID[:]...)
	c := carrier{b: w.b}
	s.fields(&c)
	w.b = c.b
	for _, text := range []string{s.Phase, s.Pending} {
		text = text[:min(len(text), math.MaxUint8)]
		w.b = append(append(w.b, byte(len(text))), text...)
	}
	for _, list := range [][]NodeID{s.Replicas, s.Adding, s.Removing, s.ISR, s.MaximalISR} {
		list = list[:min(len(list), math.MaxUint16)]
		w.b = binary.BigEndian.AppendUint16(w.b, uint16(len(list)))
		for _, id := range list {
			w.i32(int32(id))
		}
	}
	epochs := s.Epochs[max(0, len(s.Epochs)-maxStatus/2/12):] // the latest
	w.i32(int32(len(epochs)))
	for _, e := range epochs {
		w.i32(e.Epoch)
		w.i64(e.Start)
	}
	followers := s.Followers[:min(len(s.Followers), math.MaxUint16)]
	w.b = binary.BigEndian.AppendUint16(w.b, uint16(len(followers)))
	for i := range followers {
		f := followers[i]
		c := carrier{b: append(w.b, byte(packed(f.bits())))}
		f.fields(&c)
		w.b = c.b
	}
	code := None
	if e, ok := s.LastError.(ErrorCode); ok {
		code = e
	}
	w.b = binary.BigEndian.AppendUint16(w.b, uint16(code))
	if code != None {
		w.cause(nil)
	} else {
		w.cause(s.LastError)
	}
	return w.b
}

func packed(bits []*bool) (set uint16) {
	for i, b := range bits {
		set |= uint16(flag(*b)) << i
	}
	return set
}

func unpack(set uint16, bits []*bool) {
	for i, b := range bits {
		*b = set>>i&1 == 1
	}
}

func decodeStatus(b []byte) (s Status, err error) {
	r := wary{b: b}
	if len(b) > maxStatus {
		r.short = true
	}
	s.Role = Role(r.take(1)[0])
	unpack(r.u16(), s.bits())
	copy(s.TopicID[:], r.take(16))
	r.numbers(statusFields, s.fields)
	s.Phase, s.Pending = string(r.take(int(r.take(1)[0]))), string(r.take(int(r.take(1)[0])))
	for _, list := range []*[]NodeID{&s.Replicas, &s.Adding, &s.Removing, &s.ISR, &s.MaximalISR} {
		for part := range slices.Chunk(r.list(int64(r.u16()), 4), 4) {
			*list = append(*list, NodeID(binary.BigEndian.Uint32(part)))
		}
	}
	for part := range slices.Chunk(r.list(int64(r.u32()), 12), 12) {
		s.Epochs = append(s.Epochs, log.EpochEntry{Epoch: int32(binary.BigEndian.Uint32(part)), Start: int64(binary.BigEndian.Uint64(part[4:]))})
	}
	for n := r.u16(); n > 0 && !r.short; n-- {
		var f FollowerStatus
		unpack(uint16(r.take(1)[0]), f.bits())
		r.numbers(followerFields, f.fields)
		s.Followers = append(s.Followers, f)
	}
	code, kinds := ErrorCode(r.u16()), r.u32()
	text := string(r.take(int(r.u16())))
	switch {
	case r.short || s.Role > Deleted || len(text) > maxErrorText:
		return noStatus, fmt.Errorf("%w: %d bytes that are no status", ErrFrame, len(b))
	case code != None:
		s.LastError = code
	case kinds != 0 || text != "":
		s.LastError = &RemoteError{text, kinds}
	}
	return s, nil
}

// wary takes fields off bytes that may be too few; then it is short, and gives zeros.
type wary struct {
	b     []byte
	short bool
}

// nothingMore is as long as the longest number.
var nothingMore [8]byte

func (r *wary) take(n int) []byte {
	if r.short || n > len(r.b) {
		r.short = true
		return nothingMore[:min(n, len(nothingMore))]
	}
	taken := r.b[:n]
	r.b = r.b[n:]
	return taken
}

func (r *wary) u16() uint16 { return binary.BigEndian.Uint16(r.take(2)) }
func (r *wary) u32() uint32 { return binary.BigEndian.Uint32(r.take(4)) }

// list takes n pieces.
func (r *wary) list(n, size int64) []byte {
	if r.short || n*size > int64(len(r.b)) {
		r.short = true
		return nil
	}
	return r.take(int(n * size))
}

func (r *wary) numbers(n int, fields func(*carrier)) {
	if len(r.b) < 8*n {
		r.short = true
	}
	if r.short {
		return
	}
	c := carrier{b: r.b, take: true}
	fields(&c)
	r.b, r.short = c.b, c.bad
}
