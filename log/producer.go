package log

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/partlog/partlog/internal/producerstate"
	"github.com/partlog/partlog/record"
)

// Producer writes to one log under a producer id. A handle of a newer epoch fences all older ones, in this process and in
// earlier ones (ErrFenced): a writer that was replaced cannot write any more, as long as the log knows the id
// (Config.ProducerExpiry). Between Begin and Commit or Abort its records belong to a transaction: read-committed readers see
// all of them, in their place, or none. A transaction is one log's. Over several logs it is a coordinator's, who decides,
// keeps the decision, and asks each of them for the marker (Log.EndTxn) until all have it.
//
// Give every writer an id of its own, and a new epoch each time it takes over: whoever hands out ids (a counter of yours, a
// transaction coordinator) keeps both; behind epoch 32767 comes a new id.
//
// Sequence numbers are the handle's concern: it goes on behind the last one, so a handle recognises its own repetitions, see
// Append, and none of those before it. A writer that was killed, and does not know what it got into the log, asks Log.Producers
// for the offset of its last record, reads that record and goes on behind it; in transactions it calls Abort first. Who numbers
// records anyway (one that forwards from a queue, say) can append encoded batches (Log.AppendBatches) under these numbers, and
// simply send the last ones again.
//
// All methods are safe for concurrent use; a handle does one call at a time, and the others wait, under their contexts. There
// is nothing to close.
type Producer struct {
	l     *Log
	id    int64
	epoch int16

	turn    gate // held for the whole of a call; Log.write comes after it
	begun   bool
	first   int64       // offset of the first record of the transaction that is begun; -1: none came yet
	tail    int64       // behind its last one, as long as there is a first
	cuts    uint64      // count of truncations when nothing below tail was known to be lost
	refused error       // why a record was refused for the whole of the transaction; nil: none was
	last    unconfirmed // what the last call left in the log without being sure; zero: nothing
}

// unconfirmed is a call that ended with an *UnconfirmedError, to recognise its repetition.
type unconfirmed struct {
	err  *UnconfirmedError
	what [sha256.Size]byte // of the records; of nothing for a marker
	end  ending
	tail int64 // Producer.tail before it
}

// ending says what a call was.
type ending uint8

const (
	goesOn ending = iota
	commits
	abandons
)

// Producer is a handle for writing under a producer id and epoch, neither of which may be negative (its Append is then
// ErrInvalidRecord). Nothing is written, and nobody fenced, before the first Append, or Abort of what an earlier holder left.
func (l *Log) Producer(id int64, epoch int16) *Producer {
	return &Producer{l: l, id: id, epoch: epoch, turn: newGate()}
}

// Append is Log.Append under the producer's id. Further errors: ErrFenced, a newer epoch has written; ErrTxnState, an
// earlier holder of the id left a transaction open and this one has not begun its own, or the one it has begun was ended by
// somebody else (AbortTransaction, EndTxn) or has lost records to a truncation, or one that is not this handle's is open
// since Begin: Abort, and begin anew. After any other error the transaction can go on, without what was refused.
//
// After an *UnconfirmedError call again with the same records: they are in the log already, so they are not written a second
// time, and what was missing is waited for. base is their first offset, as it was. This is forgotten with the next call of
// the handle that is another one.
func (p *Producer) Append(ctx context.Context, recs ...record.Record) (base int64, err error) {
	if err := p.take(ctx); err != nil {
		return -1, err
	}
	defer p.turn.unlock()
	if len(recs) > 0 {
		if base, done, err := p.again(ctx, goesOn, recs); done {
			return base, err
		}
	}
	if err := p.l.admit(ctx); err != nil {
		return -1, err
	}
	if p.id < 0 || p.epoch < 0 {
		return -1, fmt.Errorf("%w: producer %d, epoch %d: neither may be negative", ErrInvalidRecord, p.id, p.epoch)
	}
	if len(recs) == 0 {
		return p.l.load().LogEnd, nil
	}
	res, err := p.write(ctx, recs)
	for err == errOvertaken { // by another writer under the same id and epoch, which has got further
		res, err = p.write(ctx, recs)
	}
	p.note(err, goesOn, recs)
	p.joined(res, err)
	return res.Base, err
}

// errOvertaken is internal: a sequence number was taken by somebody else between Producer.write's look and the append. The batch
// would be taken for a repetition of another one, and not be written.
var errOvertaken = errors.New("log: the sequence number is not the next one any more")

// write appends one batch under the next sequence number.
func (p *Producer) write(ctx context.Context, recs []record.Record) (Appended, error) {
	e := p.l.encoder()
	defer func() {
		e.builder.SetProducer(nil)
		encoders.Put(e)
	}()
	if err := p.l.write.lock(ctx); err != nil {
		return notAppended, err
	}
	next := p.l.nextSequence(p.id, p.epoch)
	p.l.write.unlock()
	as := record.Producer{ID: p.id, Epoch: p.epoch, BaseSequence: next, Transactional: p.begun}
	e.builder.SetProducer(&as)
	var batch prepared
	if err := p.l.encode(e, recs, &batch); err != nil {
		return notAppended, err
	}
	batch.producers, batch.origin, batch.of = true, record.Client, p
	return p.l.append(ctx, &batch, &AppendOptions{})
}

// joined notes a batch that was written, or refused, as part of the transaction that is begun.
func (p *Producer) joined(res Appended, err error) {
	switch {
	case !p.begun:
	case res.Base >= 0:
		if p.first < 0 {
			p.first = res.Base
		}
		p.tail = res.Last + 1
	case errors.Is(err, ErrTxnState) || errors.Is(err, ErrFenced):
		p.refused = err
	}
}

// judgeHandle asks whether a handle's batch is still what it was to be: the next one of its producer, the first of a new
// transaction where the handle has written nothing in its own, and otherwise, as its marker, the next of one that is whole.
// The caller holds write.
func (l *Log) judgeHandle(h *Producer, p *prepared) error {
	known, ok := l.producers.state.Producer(h.id)
	if ok && known.Epoch > h.epoch {
		return nil // it is fenced
	}
	if ok && h.begun && h.first < 0 && known.TxnFirstOffset >= 0 {
		return fmt.Errorf("%w: %s: producer %d has a transaction open since offset %d that is not this handle's", ErrTxnState, l.name, h.id, known.TxnFirstOffset)
	}
	if h.begun && h.first >= 0 {
		if !ok || known.TxnFirstOffset != h.first {
			return l.noTransaction(h.id, h.first)
		}
		_, cuts := l.loadCuts() // no truncation comes between, it needs write
		if _, lost := l.lost(h.cuts, h.tail); lost {
			return fmt.Errorf("%w: %s: the transaction of producer %d, open since offset %d, has lost records to a truncation", ErrTxnState, l.name, h.id, h.first)
		}
		h.cuts = cuts
	} else {
		_, h.cuts = l.loadCuts()
	}
	if p.valid.Batch.Control() {
		return nil
	}
	if _, _, sequence := p.valid.Batch.Producer(); sequence != l.nextSequence(h.id, h.epoch) {
		return errOvertaken
	}
	return nil
}

// noTransaction is the answer to what is to be part of a transaction that is over.
func (l *Log) noTransaction(id, first int64) error {
	return fmt.Errorf("%w: %s: producer %d has no transaction open since offset %d", ErrTxnState, l.name, id, first)
}

// take waits until no other call of the handle runs. Its error is ctx's, or ErrClosed for a handle that no log gave out.
func (p *Producer) take(ctx context.Context) error {
	if p.l == nil {
		return ErrClosed
	}
	return p.turn.lock(ctx)
}

// note keeps what is needed to recognise a repetition.
func (p *Producer) note(err error, end ending, recs []record.Record) {
	p.last = unconfirmed{}
	if u, ok := errors.AsType[*UnconfirmedError](err); ok {
		p.last = unconfirmed{err: u, what: sumOf(recs), end: end, tail: p.tail}
	}
}

// again finishes the call before this one if this one repeats it, and what it wrote is still in the log.
func (p *Producer) again(ctx context.Context, end ending, recs []record.Record) (base int64, done bool, err error) {
	last := p.last
	if last.err == nil || last.end != end || last.what != sumOf(recs) {
		return -1, false, nil
	}
	if _, lost := p.l.lost(last.err.cuts, last.err.Last+1); lost {
		p.last = unconfirmed{}
		if p.first == last.err.Base {
			p.first = -1
		}
		p.tail = last.tail // it is written anew
		return -1, false, nil
	}
	res, err := p.l.confirm(ctx, Appended{Base: last.err.Base, Last: last.err.Last}, last.err.cuts, Inherit)
	if !isUnconfirmed(err) {
		p.last = unconfirmed{}
	}
	return res.Base, true, err
}

// sumOf is a digest of records as a caller gave them.
func sumOf(recs []record.Record) (sum [sha256.Size]byte) {
	if len(recs) == 0 {
		return sum
	}
	h, buf := sha256.New(), make([]byte, 0, 8)
	number := func(n int64) { h.Write(binary.BigEndian.AppendUint64(buf, uint64(n))) }
	bytes := func(b []byte) {
		if number(int64(len(b))); b == nil {
			number(-1)
		}
		h.Write(b)
	}
	for _, r := range recs {
		number(r.Timestamp)
		bytes(r.Key)
		bytes(r.Value)
		number(int64(len(r.Headers)))
		for _, header := range r.Headers {
			bytes([]byte(header.Key))
			bytes(header.Value)
		}
	}
	h.Sum(sum[:0])
	return sum
}

// nextSequence is that of a producer's next record. The caller holds write.
func (l *Log) nextSequence(id int64, epoch int16) int32 {
	known, ok := l.producers.state.Producer(id)
	if !ok || known.Epoch != epoch {
		return 0
	}
	return record.IncrementSequence(known.LastSequence, 1)
}

func (p *Producer) entry(ctx context.Context) (known producerstate.Entry, ok bool, err error) {
	if err := p.l.write.lock(ctx); err != nil {
		return known, false, err
	}
	defer p.l.write.unlock()
	known, ok = p.l.producers.state.Producer(p.id)
	return known, ok, nil
}

// Begin makes the records from now on a transaction, which comes into being with the first of them. ErrTxnState: one is
// begun, or an earlier holder of the id left one open; Abort ends both.
func (p *Producer) Begin() error {
	if err := p.take(context.Background()); err != nil {
		return err
	}
	defer p.turn.unlock()
	if err := p.l.admit(context.Background()); err != nil {
		return err
	}
	if p.begun {
		return fmt.Errorf("%w: producer %d has begun a transaction that is neither committed nor aborted", ErrTxnState, p.id)
	}
	if known, ok, _ := p.entry(context.Background()); ok && known.TxnFirstOffset >= 0 {
		return fmt.Errorf("%w: %s: producer %d has a transaction open since offset %d that an earlier holder of the id has left; Abort ends it", ErrTxnState, p.l.name, p.id, known.TxnFirstOffset)
	}
	p.begun, p.first, p.refused, p.last = true, -1, nil, unconfirmed{}
	return nil
}

// Commit ends the transaction: read-committed readers see its records from now on. One without records leaves no marker.
// ErrTxnState: none is begun; or it was ended by somebody else, who knows how (AbortTransaction: its records are not committed);
// or it has lost records to a truncation; or Append had that error, or ErrFenced, in it: Abort, and begin anew. After any other
// error the transaction is still open: try again, or Abort. After an *UnconfirmedError it is over, only not for sure on the
// device: call Commit again until it is.
func (p *Producer) Commit(ctx context.Context) error {
	if err := p.take(ctx); err != nil {
		return err
	}
	defer p.turn.unlock()
	if _, done, err := p.again(ctx, commits, nil); done {
		return err
	}
	if !p.begun {
		return fmt.Errorf("%w: producer %d has begun no transaction", ErrTxnState, p.id)
	}
	if p.refused != nil {
		return fmt.Errorf("records of the transaction were refused: %w", p.refused)
	}
	return p.end(ctx, commits)
}

// Abort ends the transaction that this handle has begun, or that an earlier holder of the id left open: no read-committed
// reader sees its records. Without one it does nothing. Errors as Commit; ErrTxnState: the transaction is committed, which
// an *UnconfirmedError of Commit did not undo.
func (p *Producer) Abort(ctx context.Context) error {
	if err := p.take(ctx); err != nil {
		return err
	}
	defer p.turn.unlock()
	if _, done, err := p.again(ctx, abandons, nil); done {
		return err
	}
	if u := p.last; u.err != nil && u.end == commits {
		if _, lost := p.l.lost(u.err.cuts, u.err.Last+1); !lost {
			return fmt.Errorf("%w: producer %d has committed its transaction with the marker at offset %d", ErrTxnState, p.id, u.err.Last)
		}
	}
	return p.end(ctx, abandons)
}

func (p *Producer) end(ctx context.Context, how ending) error {
	if err := p.l.admit(ctx); err != nil {
		return err
	}
	known, ok, err := p.entry(ctx)
	if err != nil {
		return err
	}
	open := ok && known.TxnFirstOffset >= 0
	if how == commits && p.first < 0 || how == abandons && !open {
		p.begun = false // no record of its own came, or none is left to be abandoned
		return nil
	}
	m := p.l.marker(record.Producer{ID: p.id, Epoch: p.epoch}, how == commits, max(0, known.CoordinatorEpoch))
	if how == commits {
		m.of = p
	}
	_, err = p.l.append(ctx, &m, &AppendOptions{})
	p.note(err, how, nil)
	p.begun = p.begun && err != nil && !isUnconfirmed(err)
	return err
}

func isUnconfirmed(err error) bool {
	_, ok := errors.AsType[*UnconfirmedError](err)
	return ok
}

// ProducerInfo is what a log knows of one producer.
type ProducerInfo struct {
	ID               int64
	Epoch            int16
	LastSequence     int32 // of the last record of its last batch; -1 none in this epoch
	LastOffset       int64 // of the last record of its last batch, also of an aborted transaction; -1 likewise
	LastTimestamp    int64 // Unix ms of its last record or marker; -1 none
	CoordinatorEpoch int32 // of its last marker; -1 none
	TxnStart         int64 // first offset of its open transaction; -1 none
	Batches          int   // how many of its batches are remembered, at most five: repetitions of these are recognised
}

// Producers lists the producers that are not forgotten yet (Config.ProducerExpiry says when, and what they cost), by id.
func (l *Log) Producers() []ProducerInfo {
	if l.producers == nil {
		return nil
	}
	_ = l.write.lock(context.Background())
	defer l.write.unlock()
	s := l.producers.state
	all := make([]ProducerInfo, 0, s.Len())
	for _, e := range s.Producers() {
		all = append(all, ProducerInfo{ID: e.ProducerID, Epoch: e.Epoch, LastSequence: e.LastSequence, LastOffset: e.LastOffset, LastTimestamp: e.Timestamp,
			CoordinatorEpoch: e.CoordinatorEpoch, TxnStart: e.TxnFirstOffset, Batches: s.Batches(e.ProducerID)})
	}
	return all
}
