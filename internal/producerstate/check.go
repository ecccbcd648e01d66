package producerstate

import (
	"errors"
	"fmt"
	"math"

	"github.com/partlog/partlog/record"
)

// Options of a Check; the zero value is a client's append without transaction verification.
type Options struct {
	// Origin decides what is judged. Client: everything, and repeated batches are recognised. Coordinator and
	// RaftLeader: epochs and transactions, not sequences. Replication: nothing, see Pending.Notes.
	Origin record.Origin
	// TransactionVersion of the coordinator that writes a marker: from 2 on its producer epoch must be above that of
	// the data. Nothing in the log says which version was meant, so Replication ignores it.
	TransactionVersion int
	// Verify is transaction.partition.verification.enable: the first batch of a transaction needs Guard.
	Verify bool
	Guard  Guard
}

// Check judges the batches of one append, which have their offsets already. Nothing is changed before Commit. Between
// the two a roll may call SetEnd, Snapshot and Taken, and nothing else may change the State. An append that is given up
// needs no call.
//
// raw must hold whole batches that passed record.Check. Errors: *SequenceError, *EpochError, *CoordinatorError,
// *TxnStateError; record's own for a marker that cannot be read. Replication gives none of them. A Pending that is a
// Duplicate must not be written.
func (s *State) Check(raw []byte, o Options) (*Pending, error) {
	p := s.begin()
	for len(raw) > 0 {
		b, rest, err := record.Next(raw)
		if err != nil {
			return nil, err
		}
		if err := p.add(b, o); err != nil {
			return nil, err
		}
		if p.repeats {
			return p, nil
		}
		raw = rest
	}
	return p, nil
}

func (p *Pending) add(b record.Batch, o Options) error {
	p.end = b.NextOffset()
	id, epoch, sequence := producerOf(b)
	if id < 0 {
		return nil
	}
	p.last = b.LastOffset()
	if o.Origin == record.Client && p.repeated(b, id, epoch, sequence) {
		return nil
	}
	if o.Verify && b.Transactional() && !b.Control() && o.Origin != record.Replication {
		if err := p.verify(b, id, epoch, o.Guard); err != nil {
			return err
		}
	}
	if b.Control() {
		return p.control(b, o)
	}
	return p.data(b, o)
}

// producerOf is Producer of a batch, where what a leader would not take, but a follower does, is none: a snapshot that says
// otherwise would be believed by nobody.
func producerOf(b record.Batch) (id int64, epoch int16, sequence int32) {
	id, epoch, sequence = b.Producer()
	return id, max(epoch, -1), sequence
}

// repeated looks for an earlier batch of the same epoch and sequences. Those of the append itself do not count.
func (p *Pending) repeated(b record.Batch, id int64, epoch int16, sequence int32) bool {
	c := p.state.producers[id]
	if c == nil || c.epoch != epoch {
		return false
	}
	found, ok := c.find(sequence, b.LastSequence())
	if ok {
		p.repeats = true
		p.duplicate = Duplicate{FirstOffset: found.last - int64(found.delta), LastOffset: found.last, Timestamp: found.timestamp}
	}
	return ok
}

// verify demands the guard for a batch that would begin a transaction.
func (p *Pending) verify(b record.Batch, id int64, epoch int16, g Guard) error {
	c := p.state.producers[id]
	if c != nil && c.txnFirst >= 0 && c.epoch == epoch || p.state.verified(id, g) {
		return nil
	}
	if c != nil && epoch < c.epoch {
		return &EpochError{ProducerID: id, Offset: b.BaseOffset(), Got: epoch, Want: c.epoch}
	}
	return &TxnStateError{ProducerID: id, Epoch: epoch, Offset: b.BaseOffset(), TxnFirstOffset: -1, Reason: "no guard, or one that is void or another producer's, shows that the coordinator was asked whether the transaction may begin here"}
}

func (p *Pending) data(b record.Batch, o Options) error {
	id, epoch, sequence := producerOf(b)
	u := p.update(id)
	if epoch < u.epoch {
		if err := p.refuse(o, b, id, &EpochError{ProducerID: id, Offset: b.BaseOffset(), Got: epoch, Want: u.epoch}); err != nil {
			return err
		}
	}
	if o.Origin == record.Client {
		if err := p.sequence(u, b, epoch, sequence); err != nil {
			return err
		}
	}
	u.setEpoch(epoch)
	u.push(batch{last: b.LastOffset(), timestamp: b.MaxTimestamp(), sequence: b.LastSequence(), delta: int32(b.LastOffset() - b.BaseOffset())})
	u.timestamp = b.MaxTimestamp()
	switch transactional := b.Transactional(); {
	case u.txnFirst >= 0 && !transactional:
		return p.refuse(o, b, id, &TxnStateError{ProducerID: id, Epoch: epoch, Offset: b.BaseOffset(), TxnFirstOffset: u.txnFirst,
			Reason: fmt.Sprintf("it is not transactional, and a transaction is open since offset %d", u.txnFirst)})
	case transactional:
		u.transactional = true
		if u.txnFirst < 0 {
			p.start(u, b.BaseOffset())
		}
	}
	return nil
}

// sequence applies the rules of a client's first sequence number.
func (p *Pending) sequence(u *update, b record.Batch, epoch int16, sequence int32) error {
	bad := func(want int32, reason string) error {
		return &SequenceError{ProducerID: u.id, Epoch: epoch, Offset: b.BaseOffset(), Got: sequence, Want: want, Reason: reason}
	}
	if v := p.state.verifying[u.id]; v != nil {
		if sequence > v.sequence {
			return bad(v.sequence, "its transaction was to begin with a lower one")
		}
		if v.bumps && sequence != 0 && (u.known == nil || u.known.n == 0) {
			return bad(0, "under transaction version 2 each epoch begins anew")
		}
	}
	if u.epoch != epoch {
		if sequence != 0 && u.epoch != -1 {
			return bad(0, fmt.Sprintf("the epoch is new, it was %d", u.epoch))
		}
		return nil
	}
	if u.known == nil || u.known.epoch == -1 {
		return nil // its records may be gone: any sequence continues
	}
	last := int32(-1)
	switch {
	case u.n > 0:
		last = u.lastSequence()
	case u.known.epoch == epoch:
		last = u.known.lastSequence()
	}
	if want := record.IncrementSequence(last, 1); sequence != want {
		return bad(want, fmt.Sprintf("the last one was %d", last))
	}
	return nil
}

// control applies a transaction marker. A batch whose record was compacted away says nothing.
func (p *Pending) control(b record.Batch, o Options) error {
	if b.Count() == 0 {
		return nil
	}
	id, epoch, _ := producerOf(b)
	offset := b.BaseOffset()
	marker, timestamp, err := p.state.marker(b)
	if err != nil {
		return p.refuse(o, b, id, fmt.Errorf("producer %d: the transaction marker at offset %d cannot be read: %w", id, offset, err))
	}
	u := p.update(id)
	if want, ok := markerEpoch(u, epoch, o); !ok {
		if err := p.refuse(o, b, id, &EpochError{ProducerID: id, Offset: offset, Got: epoch, Want: want, Marker: true}); err != nil {
			return err
		}
	}
	if marker.CoordinatorEpoch < u.coordinator {
		if err := p.refuse(o, b, id, &CoordinatorError{ProducerID: id, Offset: offset, Got: marker.CoordinatorEpoch, Want: u.coordinator}); err != nil {
			return err
		}
	}
	if u.txnFirst >= 0 {
		p.complete(u, b.LastOffset(), marker.Type == record.Commit)
	}
	u.setEpoch(epoch)
	u.coordinator, u.timestamp = max(marker.CoordinatorEpoch, -1), timestamp
	u.transactional = u.transactional || !p.endsEarlier(id, epoch)
	return nil
}

// endsEarlier says that a marker ends the transaction before the one that is being verified: under transaction version 2 it
// has the epoch that the next transaction begins with.
func (p *Pending) endsEarlier(id int64, epoch int16) bool {
	v := p.state.verifying[id]
	return v != nil && v.bumps && v.epoch == epoch
}

// markerEpoch says whether a marker's epoch is allowed, and the smallest that is. Under transaction version 2 it must be
// above the data's; an equal one is the retry of a marker if no transaction is open.
func markerEpoch(u *update, epoch int16, o Options) (want int16, ok bool) {
	if o.TransactionVersion >= 2 && o.Origin != record.Replication && u.txnFirst >= 0 && epoch == u.epoch {
		return int16(min(int32(u.epoch)+1, math.MaxInt16)), false
	}
	return u.epoch, epoch >= u.epoch
}

// refuse is err for everybody but a follower and recovery, who only note it.
func (p *Pending) refuse(o Options, b record.Batch, id int64, err error) error {
	if o.Origin != record.Replication {
		return err
	}
	p.notes = append(p.notes, Note{ProducerID: id, Offset: b.BaseOffset(), Err: err})
	return nil
}

var errNoMarker = errors.New("the batch holds no record")

func (s *State) marker(b record.Batch) (record.EndMarker, int64, error) {
	if s.dec == nil {
		s.dec = record.NewDecoder(record.Limits{})
	}
	for r, err := range b.Records(s.dec) {
		if err != nil {
			return record.EndMarker{}, 0, err
		}
		m, err := record.ParseMarker(r)
		return m, r.Timestamp, err
	}
	return record.EndMarker{}, 0, errNoMarker
}
