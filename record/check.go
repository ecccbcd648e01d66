package record

import (
	"errors"
	"fmt"
)

// Origin says who hands a set of batches to a log, and with that which rules it must keep.
type Origin uint8

const (
	// Client is a producer: one batch that starts at offset 0 and takes the next offsets of the log.
	Client Origin = iota
	// Coordinator is the broker itself, writing transaction markers, groups' offsets and the like: as Client, but
	// control batches are allowed.
	Coordinator
	// Replication is a leader's log on its way into a follower's: offsets and epochs are taken as they are.
	Replication
	// RaftLeader appends to the metadata log: offsets are taken as they are, the epoch must be the leader's own.
	RaftLeader
)

// keepsOffsets says whether the batches come with the offsets they will have.
func (o Origin) keepsOffsets() bool { return o == Replication || o == RaftLeader }

// CheckOptions are the facts Check needs. No lock protects them: what depends on the log's end is judged later.
type CheckOptions struct {
	Origin        Origin
	MaxBatchBytes int   // max.message.bytes; 0 = 1 MiB + 12; Replication has no limit
	LeaderEpoch   int32 // the caller's current leader epoch, for Replication and RaftLeader
}

// Set is what Check found out about a set of batches.
type Set struct {
	Batches              int
	FirstOffset          int64 // of the first batch; -1 if there is none, or it is a legacy entry (see Decoder.FirstOffset)
	LastOffset           int64 // of the last batch; -1 if there is none
	LastOffsetOfFirst    int64 // last offset of the first batch; -1 if there is none
	Monotonic            bool  // every batch begins behind the one before
	MaxTimestamp         int64 // NoTimestamp if none has one
	OffsetOfMaxTimestamp int64 // last offset of the first batch that has MaxTimestamp; -1 if there is none
	LastEpoch            int32 // leader epoch of the last batch
	ValidBytes           int   // bytes to append, from the start of the set; 0 = nothing to do
	Codec                Codec // the last one that is not None
	Magic                int8  // of the first batch; 2 if there is none
	Legacy               bool  // some batch has a magic below 2: a follower clears its epoch cache
	Producers            bool  // some batch has a producer id
}

// Check looks at a set of batches before it is appended, without decompressing and without a lock. It reads, and never
// changes, raw; it is safe for concurrent use. Only the first Set.ValidBytes of raw may be appended afterwards: a partial
// batch at the end is left out, as is, for Replication, everything from the first batch with a later leader epoch than
// LeaderEpoch's.
//
// Errors: *CorruptError (sizes, CRC, and for given offsets the header's rules), ErrTooLarge, *InvalidRecordError,
// ErrOffsetsOutOfOrder for given offsets that do not grow.
func Check(raw []byte, o CheckOptions) (Set, error) {
	set := Set{FirstOffset: -1, LastOffset: -1, LastOffsetOfFirst: -1, Monotonic: true, MaxTimestamp: NoTimestamp,
		OffsetOfMaxTimestamp: -1, LastEpoch: NoEpoch, Magic: 2}
	if o.MaxBatchBytes <= 0 {
		o.MaxBatchBytes = defaultMaxBatchBytes
	}
	for rest := raw; len(rest) > 0; {
		batch, after, err := Next(rest)
		if errors.Is(err, ErrIncomplete) {
			break
		}
		pos := len(raw) - len(rest)
		if err != nil {
			return set, at(err, pos)
		}
		if e := batch.LeaderEpoch(); o.Origin == Replication && e != NoEpoch && e > o.LeaderEpoch {
			break
		}
		if err := o.check(batch); err != nil {
			return set, at(err, pos)
		}
		set.add(batch)
		rest = after
	}
	if o.Origin.keepsOffsets() && !set.Monotonic {
		return set, fmt.Errorf("%w: a batch does not begin behind the one before, last offset of the set %d", ErrOffsetsOutOfOrder, set.LastOffset)
	}
	return set, nil
}

// check judges one batch on its own.
func (o *CheckOptions) check(b Batch) error {
	if o.Origin == RaftLeader && b.LeaderEpoch() != o.LeaderEpoch {
		return invalidBatch("the batch has leader epoch %d, the leader %d", b.LeaderEpoch(), o.LeaderEpoch)
	}
	if o.Origin == Client && !b.legacy() && b.BaseOffset() != 0 {
		return invalidBatch("the base offset of a producer's batch is %d, not 0", b.BaseOffset())
	}
	if o.Origin != Replication && b.Size() > o.MaxBatchBytes {
		return fmt.Errorf("%w: a batch of %d bytes, max.message.bytes is %d", ErrTooLarge, b.Size(), o.MaxBatchBytes)
	}
	// A producer's batch with an intact CRC and odd fields is its mistake, found by Validate; a replicated one is
	// damage, and nothing looks at it again.
	if o.Origin.keepsOffsets() {
		return b.Verify()
	}
	return b.verifyChecksum()
}

func (s *Set) add(b Batch) {
	last := b.LastOffset()
	if s.Batches == 0 {
		s.LastOffsetOfFirst = last
		s.Magic = b.Magic()
		if !b.legacy() {
			s.FirstOffset = b.BaseOffset()
		}
	}
	if b.BaseOffset() <= s.LastOffset || last <= s.LastOffset {
		s.Monotonic = false
	}
	if t := b.MaxTimestamp(); t > s.MaxTimestamp {
		s.MaxTimestamp, s.OffsetOfMaxTimestamp = t, last
	}
	if c := b.Codec(); c != None {
		s.Codec = c
	}
	id, _, _ := b.Producer()
	s.Producers = s.Producers || id >= 0
	s.Legacy = s.Legacy || b.legacy()
	s.LastOffset = last
	s.LastEpoch = b.LeaderEpoch()
	s.Batches++
	s.ValidBytes += b.Size()
}
