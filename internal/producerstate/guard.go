package producerstate

import "sync/atomic"

// Guard proves that the coordinator was asked, and knows the transaction, before its first batch is appended
// (transaction verification of KIP-890). The zero Guard proves nothing.
type Guard struct{ id uint64 }

var guards atomic.Uint64

// verification is what is known of a producer that is about to begin a transaction here.
type verification struct {
	guard    Guard
	since    int64 // Unix ms
	sequence int32 // the lowest one seen
	epoch    int16 // of which
	bumps    bool  // transaction version 2: every transaction has an epoch of its own
}

// BeginVerification says that a producer wants to begin a transaction with a batch of this epoch and sequence, and that
// its coordinator is going to be asked. The Guard goes into Options when the coordinator has said yes; it is void once a
// transactional batch of the producer was appended, or after the producer expiry time. Repeated calls return the same
// Guard. The zero Guard comes back if the transaction is open already, and nothing needs to be verified; and for an epoch
// below the producer's last, whose batches are refused whatever the coordinator says: nothing is remembered of it.
//
// bumps says that the producer uses transaction version 2: the first call that gives out a guard decides. now is Unix
// milliseconds.
func (s *State) BeginVerification(id int64, epoch int16, sequence int32, bumps bool, now int64) Guard {
	if p := s.producers[id]; p != nil && (epoch < p.epoch || p.txnFirst >= 0 && p.epoch == epoch) {
		return Guard{}
	}
	v := s.verifying[id]
	if v == nil {
		if s.verifying == nil {
			s.verifying = map[int64]*verification{}
		}
		v = &verification{guard: Guard{guards.Add(1)}, since: now, sequence: sequence, epoch: epoch, bumps: bumps}
		s.verifying[id] = v
		return v.guard
	}
	switch {
	case epoch > v.epoch:
		v.epoch, v.sequence = epoch, sequence
	case epoch == v.epoch:
		v.sequence = min(v.sequence, sequence)
	}
	return v.guard
}

// verified says whether the guard is the one that BeginVerification gave out for the producer.
func (s *State) verified(id int64, g Guard) bool {
	v := s.verifying[id]
	return v != nil && v.guard == g
}
