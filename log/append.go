package log

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/segment"
)

// Role says who assigns offsets and epochs to encoded batches.
type Role uint8

const (
	Leader   Role = iota // the log assigns offsets and its leader epoch; one batch an append, checked record by record
	Follower             // batches keep offsets, epochs and timestamps; gaps are legal, going back is not
)

// AppendOptions of one AppendWith or AppendBatches call; the zero value is a leader's append with the log's own durability.
type AppendOptions struct {
	As Role // Leader, unless the batches come from one
	// LeaderEpoch, if given, fences: for a Leader it must be the log's current epoch, else ErrFenced; for a Follower
	// it is the newest epoch allowed (batches above it are left out, Kafka's rule), and one below the log's own is
	// ErrFenced.
	LeaderEpoch *int32
	// ExpectedOffset, if given, appends only if the log ends there, else ErrUnexpectedOffset.
	ExpectedOffset *int64
	// Durability of this append; Inherit takes the log's.
	Durability Durability
	// Verify is transaction.partition.verification.enable: a Leader refuses the first batch of a transaction, with
	// ErrTxnState, unless Guard is what VerifyTransaction gave out for its producer.
	Verify bool
	Guard  TxnGuard
}

// Appended says where an append landed. Beside an error that means "not in the log" all its fields are -1.
type Appended struct {
	Base, Last int64 // offsets of the first and last record; Last = Base-1 if there was nothing to append
	AppendTime int64 // Unix ms if the log stamps LogAppendTime, else -1
	LogStart   int64 // of the log when it was written
	// Duplicate says that the batch repeats one of the last five of its producer, and was not written again: Base and
	// Last are those of the first time, AppendTime is that batch's largest timestamp.
	Duplicate bool
}

var notAppended = Appended{Base: -1, Last: -1, AppendTime: -1, LogStart: -1}

// Append adds records as one batch and returns the offset of the first. Under the default Durable it returns once they
// are on the device; see Config.Durability. A zero Timestamp means now, record.NoTimestamp none. No records is no
// error: the log end comes back.
//
// ctx is heard until the records are written: what it ends before that is not in the log, and the error is ctx's. If it
// ends the wait for the device behind that, or if the sync fails, the error is an *UnconfirmedError: the records are in
// the log, and base is their offset.
//
// Of the appends that wait for the device one makes the sync itself, for all; a lone one does. No context ends a system
// call: who makes it returns when the device has answered, with base and no error if that went well, whatever became of ctx
// meanwhile. The others' contexts are heard at once. Whoever must not be held by a device that hangs calls from a goroutine of
// its own, which such a call then holds in its place: handing every sync to another goroutine would cost each append a tenth
// of what it takes, or more.
//
// Every other error means that they are not in the log, and base is -1: ErrInvalidRecord, ErrInvalidTimestamp and
// ErrTooLarge for what the log's configuration, or a reader with the default record.Limits, refuses; ErrFull for what
// Config.MaxBytes does; ErrNoSpace; ErrReadOnly; ErrFailed; ErrClosed; ErrTruncated if a truncation took them away again
// before they were confirmed.
func (l *Log) Append(ctx context.Context, recs ...record.Record) (base int64, err error) {
	if err := l.admit(ctx); err != nil {
		return -1, err
	}
	if len(recs) == 0 {
		return l.load().LogEnd, nil
	}
	e := l.encoder()
	defer encoders.Put(e)
	var p prepared
	if err := l.encode(e, recs, &p); err != nil {
		return -1, err
	}
	res, err := l.append(ctx, &p, &AppendOptions{})
	return res.Base, err
}

// AppendWith is Append with options: an ExpectedOffset, so that of several writers who decided by the same state only one gets its
// records in; a LeaderEpoch that fences; another Durability. It answers as AppendBatches does, and Appended.Base is -1 where the
// records are not in the log. Errors are Append's, ErrUnexpectedOffset and ErrFenced as the options say, and *ConfigError for options
// that are no constants, or As Follower: followers take encoded batches. Without records the options are judged, and nothing is
// written. Verify and Guard mean nothing here.
func (l *Log) AppendWith(ctx context.Context, o AppendOptions, recs ...record.Record) (Appended, error) {
	if err := l.admit(ctx); err != nil {
		return notAppended, err
	}
	if err := o.validate(); err != nil {
		return notAppended, err
	}
	if o.As == Follower {
		return notAppended, &ConfigError{Field: "AppendOptions.As", Value: "Follower", Reason: "a follower takes encoded batches: AppendBatches"}
	}
	if len(recs) == 0 {
		return l.nothing(ctx, &o)
	}
	e := l.encoder()
	defer encoders.Put(e)
	var p prepared
	if err := l.encode(e, recs, &p); err != nil {
		return notAppended, err
	}
	return l.append(ctx, &p, &o)
}

// AppendBatches adds encoded record batches. As Leader, raw must hold exactly one batch with base offset 0; its base
// offset, leader epoch and, where the log's settings demand it, attributes and timestamps are rewritten IN PLACE, so
// the caller's slice changes (unless the batch had to be recompressed). After an error that means "not in the log" it
// is as it was, so that the call can be repeated. A batch that is in the log (behind an *UnconfirmedError, or if an answer was
// lost) is sent again from a copy, or after Batch.SetBaseOffset(0): with its place in the log it is ErrInvalidRecord. As
// Follower, raw holds any number of batches that are stored as they are, and is not written to, even after an error.
// Compressed batches are unpacked for checking, never kept.
//
// Batches of idempotent and transactional producers are judged as Kafka does (Leader): a repeated one is not written, see
// Appended.Duplicate; ErrOutOfOrder for a gap in the sequence, ErrFenced for an old epoch, ErrTxnState for a batch that the
// producer's transaction does not allow. A Follower's are only noted.
//
// Errors are Append's, and ErrFenced, ErrUnexpectedOffset, ErrOffsetsOutOfOrder (Follower), record.ErrCorrupt for bad
// bytes, *ConfigError for options that are no constants. max.message.bytes limits leaders, not followers; batches that
// no reader with the default record.Limits could read are ErrTooLarge for both. segment.bytes limits both, but a Follower's single
// batch is taken whatever its size, into a segment of its own: what the leader has committed must not keep a replica behind for
// good. Kafka refuses it (RecordBatchTooLargeException), and such a follower catches up only when its segment.bytes is raised.
func (l *Log) AppendBatches(ctx context.Context, raw []byte, o AppendOptions) (Appended, error) {
	if err := l.admit(ctx); err != nil {
		return notAppended, err
	}
	if err := o.validate(); err != nil {
		return notAppended, err
	}
	e := encoders.Get().(*encoder)
	defer encoders.Put(e)
	var head [record.HeaderSize]byte // all that is rewritten in place
	n := copy(head[:], raw)
	res, err := l.appendRaw(ctx, e.dec, raw, &o)
	if err != nil && res.Base < 0 && o.As == Leader { // a follower's is only read: others may read it too
		copy(raw, head[:n])
	}
	return res, err
}

func (l *Log) appendRaw(ctx context.Context, dec *record.Decoder, raw []byte, o *AppendOptions) (Appended, error) {
	var p prepared
	err := l.check(dec, raw, o, &p)
	switch {
	case err != nil:
		return notAppended, err
	case p.count == 0:
		return l.nothing(ctx, o)
	}
	return l.append(ctx, &p, o)
}

// validate refuses values that are no constants.
func (o *AppendOptions) validate() error {
	switch {
	case o.As > Follower:
		return &ConfigError{Field: "AppendOptions.As", Value: fmt.Sprint(uint8(o.As)), Reason: "not one of the constants"}
	case o.Durability > Buffered:
		return &ConfigError{Field: "AppendOptions.Durability", Value: o.Durability.String(), Reason: "not one of the constants"}
	}
	return nil
}

// expect is ErrUnexpectedOffset if the log does not end where the caller believes.
func (o *AppendOptions) expect(end int64) error {
	if o.ExpectedOffset == nil || *o.ExpectedOffset == end {
		return nil
	}
	return fmt.Errorf("%w: expected %d, the log ends at %d", ErrUnexpectedOffset, *o.ExpectedOffset, end)
}

// admit refuses early what can never succeed.
func (l *Log) admit(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return l.ended()
}

// nothing answers a set that holds nothing to append: only the leader epoch and the expected offset are judged.
func (l *Log) nothing(ctx context.Context, o *AppendOptions) (Appended, error) {
	if err := l.write.lock(ctx); err != nil {
		return notAppended, err
	}
	defer l.write.unlock()
	if _, err := l.leaderEpoch(o.As, o.LeaderEpoch); err != nil {
		return notAppended, err
	}
	at := l.load()
	if err := o.expect(at.LogEnd); err != nil {
		return notAppended, err
	}
	return Appended{Base: at.LogEnd, Last: at.LogEnd - 1, AppendTime: -1, LogStart: at.LogStart}, nil
}

// append writes what was prepared and waits as long as the durability asks.
func (l *Log) append(ctx context.Context, p *prepared, o *AppendOptions) (Appended, error) {
	res, cuts, err := l.place(ctx, p, o)
	for err == errSyncFirst || err == errNamesFirst { // each of them once at most
		if err = l.prepareFor(ctx, p, err); err != nil {
			return notAppended, err
		}
		res, cuts, err = l.place(ctx, p, o)
	}
	defer l.deliver()
	if err != nil {
		l.tellPressure(err)
		return res, err
	}
	return l.confirm(ctx, res, cuts, o.Durability)
}

// prepareFor does what an append was sent back for, without a lock.
func (l *Log) prepareFor(ctx context.Context, p *prepared, first error) error {
	if first == errNamesFirst {
		p.named = true
		return nil
	}
	p.synced = true
	return l.commitAll(ctx)
}

// confirm waits as long as the durability asks for what was written when cuts was the count of truncations.
func (l *Log) confirm(ctx context.Context, res Appended, cuts uint64, durability Durability) (Appended, error) {
	if durability == Inherit {
		durability = l.cfg().Durability
	}
	if durability != Buffered {
		switch err := l.commit(ctx, res.Last+1, cuts); {
		case err == ErrTruncated:
			return notAppended, fmt.Errorf("append to %s: %w", l.name, err) // somebody cut it off before it was confirmed
		case err != nil:
			return res, &UnconfirmedError{Base: res.Base, Last: res.Last, Err: err, cuts: cuts}
		}
		return res, nil
	}
	return res, l.flushIfDue(ctx, res, cuts)
}

// place places the batches at the log end and publishes them. cuts is the count of truncations they were written under.
func (l *Log) place(ctx context.Context, p *prepared, o *AppendOptions) (res Appended, cuts uint64, err error) {
	if p.named {
		if err := l.names.lock(ctx); err != nil {
			return notAppended, 0, err
		}
		defer l.names.unlock()
	}
	if err := l.write.lock(ctx); err != nil {
		return notAppended, 0, err
	}
	defer l.write.unlock() // in a function of its own: beside many returns a defer is slow
	return l.placeLocked(ctx, p, o)
}

// placeLocked is place for a caller that holds write.
func (l *Log) placeLocked(ctx context.Context, p *prepared, o *AppendOptions) (res Appended, cuts uint64, err error) {
	if err := l.ended(); err != nil {
		return notAppended, 0, err
	}
	at := l.ends()
	if p.role == Follower && p.first < at.LogEnd {
		return notAppended, 0, fmt.Errorf("%w: batches start at %d, the log ends at %d", ErrUnexpectedOffset, p.first, at.LogEnd)
	}
	epoch, err := l.leaderEpoch(p.role, o.LeaderEpoch)
	if err != nil {
		return notAppended, 0, err
	}
	if p.role == Leader {
		p.first, p.last = at.LogEnd, at.LogEnd+p.count-1
		p.valid.Place(p.first, epoch)
	}
	pending, err := l.judge(p, o)
	if err != nil {
		return notAppended, 0, err
	}
	if pending != nil {
		if d, repeats := pending.Duplicate(); repeats {
			_, cuts := l.loadCuts()
			return Appended{Base: d.FirstOffset, Last: d.LastOffset, AppendTime: d.Timestamp, LogStart: at.LogStart, Duplicate: true}, cuts, nil
		}
	}
	if err := o.expect(at.LogEnd); err != nil {
		return notAppended, 0, err
	}
	c := l.cfg()
	if n := int64(len(p.raw)); c.MaxBytes > 0 && n > c.MaxBytes {
		return notAppended, 0, fmt.Errorf("%w: the append has %d bytes, MaxBytes is %d", ErrFull, n, c.MaxBytes)
	}
	if int64(len(p.raw)) > c.SegmentBytes && (p.role == Leader || p.count > 1) { // else its leader has it: a segment of its own
		return notAppended, 0, fmt.Errorf("%w: %d bytes, segment.bytes is %d", ErrTooLarge, len(p.raw), c.SegmentBytes)
	}
	if p.last < p.first || p.last == math.MaxInt64 {
		return notAppended, 0, fmt.Errorf("%w: no offsets are left behind %d", ErrInvalidRecord, at.LogEnd)
	}
	if p.last-p.first > math.MaxInt32 {
		return notAppended, 0, fmt.Errorf("%w: offsets %d to %d do not fit into one segment", ErrTooLarge, p.first, p.last)
	}
	if err := l.makeRoom(ctx, int64(len(p.raw)), p.named); err != nil {
		return notAppended, 0, err
	}
	if err := l.rollIfNeeded(ctx, p); err != nil {
		return notAppended, 0, err
	}
	before, err := l.assignEpochs(p, epoch)
	if err != nil {
		return notAppended, 0, errors.Join(err, l.unroll())
	}
	if _, err := l.list.Load().active().AppendAt(p.raw, p.now); err != nil {
		l.restoreEpochs(before)
		return notAppended, 0, errors.Join(l.refused(err), l.unroll())
	}
	if err := l.take(pending, p.first, p.last+1); err != nil {
		l.restoreEpochs(before)
		return notAppended, 0, errors.Join(err, l.unroll())
	}
	l.stats.appends.Add(1)
	l.stats.bytes.Add(int64(len(p.raw)))
	cuts = l.published(p.last + 1)
	return Appended{Base: p.first, Last: p.last, AppendTime: p.appendTime, LogStart: at.LogStart}, cuts, nil
}

// ends is LogStart and LogEnd, no more, without marks.mu: whoever changes them holds write, as the caller does.
func (l *Log) ends() (o Offsets) {
	o.LogStart, o.LogEnd = l.o.LogStart, l.o.LogEnd
	return o
}

// published moves the log end. Not update with a closure: this is the path that must not allocate.
func (l *Log) published(end int64) (cuts uint64) {
	l.marks.mu.Lock()
	defer l.marks.mu.Unlock()
	l.o.LogEnd = end
	l.raiseVisible(&l.o)
	l.wakeLocked()
	return l.cuts
}

// refused turns a failed write into the caller's error. The segment has cut its file back, or is broken for good. The
// caller holds write.
func (l *Log) refused(err error) error {
	if errors.Is(err, segment.ErrBroken) {
		return l.fail(err)
	}
	if isNoSpace(err) {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return fmt.Errorf("append to %s: %w", l.name, err)
}

// flushIfDue does for a buffered log what flush.messages and flush.ms ask. A lone log has no timer: it looks when it
// is called. An error leaves the records in the log.
func (l *Log) flushIfDue(ctx context.Context, res Appended, cuts uint64) error {
	c := l.cfg()
	interval := boundMillis(c.FlushInterval)
	if c.FlushMessages == math.MaxInt64 && interval < 0 {
		return nil
	}
	o := l.load()
	due := o.LogEnd-o.RecoveryPoint >= c.FlushMessages
	if !due && interval >= 0 {
		waited := l.now().UnixMilli() - l.stats.lastFlush.Load()
		due = waited >= interval || waited < 0 // the clock went back: how long it is nobody knows
	}
	if !due {
		return nil
	}
	if err := l.Sync(ctx); err != nil {
		return &UnconfirmedError{Base: res.Base, Last: res.Last, Err: err, cuts: cuts}
	}
	return nil
}

// encoder is what an append needs of its own while it prepares: buffers that grow to the batches they see.
type encoder struct {
	builder *record.Builder
	opts    record.BuilderOptions
	dec     *record.Decoder
}

var encoders = sync.Pool{New: func() any { return &encoder{dec: record.NewDecoder(record.Limits{})} }}

// encoder takes one from the pool and fits its builder to this log's settings.
func (l *Log) encoder() *encoder {
	e, c := encoders.Get().(*encoder), l.cfg()
	want := record.BuilderOptions{Codec: c.codec.codec, Level: c.CompressionLevel, TimestampType: c.TimestampType}
	if e.builder == nil || e.opts.Codec != want.Codec || e.opts.Level != want.Level || e.opts.TimestampType != want.TimestampType {
		e.builder, e.opts = record.NewBuilder(want), want
	}
	e.builder.Reset()
	return e
}
