package log

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/partlog/partlog/record"
)

// prepared is an append that passed every check that needs no lock.
type prepared struct {
	role        Role
	now         time.Time // the one reading of the clock that an append is worth
	raw         []byte    // whole batches, ready but for the leader's 12 bytes
	valid       record.Validated
	count       int64 // offsets taken: records of a leader's batch, batches of a follower's set
	first, last int64 // offsets; a leader's are known only under the lock
	maxTime     int64 // largest batch timestamp; -1 none
	appendTime  int64 // of a LogAppendTime log; else -1
	producers   bool  // some batch has a producer
	origin      record.Origin
	txnVersion  int              // of the coordinator that ends a transaction
	of          *Producer        // whose handle made it, under a sequence number that must still be the next one
	within      *OpenTransaction // what is written only while this one is open: the rest of it, its marker
	legacy      bool             // a follower's first batch is of an old format: its first offset is not known
	synced      bool             // what is in the log was made durable, so that the active segment may be rolled
	named       bool             // it is placed under Log.names, so that segments may be dropped for it
}

// encode builds one batch from records, straight into the encoder's buffer, and fills p, which is zero.
func (l *Log) encode(e *encoder, recs []record.Record, p *prepared) error {
	p.now, p.count, p.appendTime = l.now(), int64(len(recs)), -1
	now := p.now.UnixMilli()
	most, rules := l.maxUnpacked(), l.recordRules(now)
	for i := 0; i < len(recs); i++ {
		if i == 1 {
			if i += e.builder.AddRefs(recs[1:1+rules.kept(recs[1:], now)], now, most); i == len(recs) {
				break
			}
		}
		r := &recs[i]
		timestamp := r.Timestamp
		if timestamp == 0 {
			timestamp = now
		}
		if r.Key == nil && rules.keys || timestamp < rules.oldest || timestamp > rules.newest {
			if err := rules.check(r, timestamp, i); err != nil {
				return err
			}
		}
		if err := e.builder.AddRef(r, timestamp); err != nil {
			return refusedRecord(err)
		}
		if len(r.Headers) > record.DefaultMaxHeaders {
			return fmt.Errorf("%w: record %d has %d headers, readers take %d", ErrTooLarge, i, len(r.Headers), record.DefaultMaxHeaders)
		}
		if e.builder.Len() > most {
			return l.tooLarge(e.builder.Len(), i+1 < len(recs))
		}
	}
	batch, err := e.builder.Finish()
	if err != nil {
		return refusedRecord(err)
	}
	if batch.Size() > l.cfg().MaxMessageBytes {
		return fmt.Errorf("%w: a batch of %d bytes, max.message.bytes is %d", ErrTooLarge, batch.Size(), l.cfg().MaxMessageBytes)
	}
	if l.cfg().TimestampType == record.LogAppendTime {
		batch.SetAppendTime(now)
		p.appendTime = now
	}
	p.raw, p.maxTime = batch.Bytes(), batch.MaxTimestamp()
	p.valid = record.Validated{Batch: batch, Count: len(recs), MaxTimestamp: p.maxTime, AppendTime: p.appendTime}
	return nil
}

// kept is how many of the first records keep the rules.
func (r *recordRules) kept(recs []record.Record, now int64) int {
	for i := range recs {
		timestamp := recs[i].Timestamp
		if timestamp == 0 {
			timestamp = now
		}
		if recs[i].Key == nil && r.keys || timestamp < r.oldest || timestamp > r.newest {
			return i
		}
	}
	return len(recs)
}

// maxUnpacked bounds what Append buffers before compression may make it fit: what readers unpack.
func (l *Log) maxUnpacked() int {
	if l.cfg().codec.codec == record.None {
		return l.cfg().MaxMessageBytes
	}
	return record.DefaultMaxDecompressedBytes + record.HeaderSize
}

// tooLarge is the error for a batch of size bytes before compression. more says that not all records are in it yet.
func (l *Log) tooLarge(size int, more bool) error {
	what := fmt.Sprintf("a batch of %d bytes", size)
	if more {
		what = fmt.Sprintf("a batch of more than %d bytes", size)
	}
	if l.cfg().codec.codec == record.None {
		return fmt.Errorf("%w: %s, max.message.bytes is %d", ErrTooLarge, what, l.cfg().MaxMessageBytes)
	}
	return fmt.Errorf("%w: %s before compression, readers unpack %d", ErrTooLarge, what, record.DefaultMaxDecompressedBytes)
}

// recordRules are those of a leader that Decoder.Validate applies to encoded batches.
type recordRules struct {
	keys           bool  // every record needs one
	oldest, newest int64 // no question is asked of timestamps within
	now            int64
}

func (l *Log) recordRules(now int64) recordRules {
	c := l.cfg()
	r := recordRules{keys: c.Cleanup.Has(Compact), newest: math.MaxInt64, now: now}
	if c.TimestampType == record.LogAppendTime {
		return r
	}
	if before := boundMillis(c.TimestampBefore); before >= 0 {
		r.oldest = max(0, now-before)
	}
	if after := boundMillis(c.TimestampAfter); after >= 0 && now < math.MaxInt64-after {
		r.newest = now + after
	}
	return r
}

// check says what is wrong with record i, nil if nothing is.
func (c *recordRules) check(r *record.Record, timestamp int64, i int) error {
	switch {
	case c.keys && r.Key == nil:
		return fmt.Errorf("%w: record %d has no key and the log is compacted", ErrInvalidRecord, i)
	case timestamp < record.NoTimestamp:
		return fmt.Errorf("%w: record %d has timestamp %d", ErrInvalidTimestamp, i, timestamp)
	case timestamp == record.NoTimestamp:
		return nil
	case timestamp < c.oldest:
		return fmt.Errorf("%w: record %d: the timestamp %d is %d ms before the clock, message.timestamp.before.max.ms is %d",
			ErrInvalidTimestamp, i, timestamp, c.now-timestamp, c.now-c.oldest)
	case timestamp > c.newest:
		return fmt.Errorf("%w: record %d: the timestamp %d is %d ms ahead of the clock, message.timestamp.after.max.ms is %d",
			ErrInvalidTimestamp, i, timestamp, timestamp-c.now, c.newest-c.now)
	}
	return nil
}

// boundMillis is a setting as a bound in milliseconds; negative for none.
func boundMillis(d time.Duration) int64 {
	switch d {
	case Forever:
		return -1
	case Immediately:
		return 0
	}
	return d.Milliseconds()
}

// check judges encoded batches by their role, and fills p, which is zero. What holds no whole batch has count 0.
func (l *Log) check(dec *record.Decoder, raw []byte, o *AppendOptions, p *prepared) error {
	if o.As == Follower {
		return l.checkFollower(dec, raw, o.LeaderEpoch, p)
	}
	return l.checkLeader(dec, raw, p)
}

// checkLeader validates one encoded batch as a leader does for a client.
func (l *Log) checkLeader(dec *record.Decoder, raw []byte, p *prepared) error {
	c := l.cfg()
	p.role, p.now, p.appendTime = Leader, l.now(), -1
	if c.MaxMessageBytes == NoMessages {
		return fmt.Errorf("%w: max.message.bytes is 0", ErrTooLarge)
	}
	set, err := record.Check(raw, record.CheckOptions{Origin: record.Client, MaxBatchBytes: c.MaxMessageBytes})
	if err != nil {
		return refusedRecord(err)
	}
	if set.ValidBytes == 0 {
		return nil
	}
	valid, err := dec.Validate(raw[:set.ValidBytes], record.ValidateOptions{
		Origin:            record.Client,
		Compacted:         c.Cleanup.Has(Compact),
		TimestampType:     c.TimestampType,
		Codec:             c.codec.codec,
		CodecFromProducer: c.codec.fromProducer,
		Level:             c.CompressionLevel,
		Now:               p.now.UnixMilli(),
		TimestampBefore:   boundMillis(c.TimestampBefore),
		TimestampAfter:    boundMillis(c.TimestampAfter),
		MaxBatchBytes:     c.MaxMessageBytes,
	})
	if err != nil {
		return refusedRecord(err)
	}
	if set.Codec == record.None && valid.Batch.Codec() != record.None && set.ValidBytes > record.DefaultMaxDecompressedBytes+record.HeaderSize {
		return fmt.Errorf("%w: a batch of %d bytes before compression, readers unpack %d", ErrTooLarge, set.ValidBytes, record.DefaultMaxDecompressedBytes)
	}
	p.valid, p.raw, p.count = valid, valid.Batch.Bytes(), int64(valid.Count)
	p.maxTime, p.appendTime = valid.MaxTimestamp, valid.AppendTime
	p.producers, p.origin = set.Producers, record.Client
	return nil
}

// checkFollower checks batches that keep their offsets. A set that is left with nothing has count 0.
func (l *Log) checkFollower(dec *record.Decoder, raw []byte, newest *int32, p *prepared) error {
	p.role, p.now, p.appendTime = Follower, l.now(), -1
	o := record.CheckOptions{Origin: record.Replication, LeaderEpoch: math.MaxInt32}
	if newest != nil {
		o.LeaderEpoch = *newest
	}
	set, err := record.Check(raw, o)
	if err != nil {
		return refusedRecord(err)
	}
	if set.Batches == 0 {
		return nil
	}
	if !set.Monotonic {
		return fmt.Errorf("%w: the batches of one append must ascend", ErrOffsetsOutOfOrder)
	}
	p.raw, p.count, p.maxTime = raw[:set.ValidBytes], int64(set.Batches), set.MaxTimestamp
	for rest := p.raw; len(rest) > 0; {
		b, next, err := record.Next(rest)
		if err == nil {
			err = dec.Fits(b)
		}
		if err != nil {
			return refusedRecord(err)
		}
		rest = next
	}
	p.first, p.last = set.FirstOffset, set.LastOffset
	p.producers, p.origin = set.Producers, record.Replication
	if p.first < 0 { // a legacy wrapper's first offset is inside it
		p.legacy, p.first = true, set.LastOffsetOfFirst
	}
	if p.first < 0 || p.last < p.first {
		return fmt.Errorf("%w: offsets %d to %d", ErrInvalidRecord, p.first, p.last)
	}
	return nil
}

// refusedRecord gives the record package's refusals this package's names; the cause stays reachable.
func refusedRecord(err error) error {
	switch {
	case errors.Is(err, record.ErrTooLarge):
		return &refusal{ErrTooLarge, err}
	case errors.Is(err, record.ErrInvalidTimestamp):
		return &refusal{ErrInvalidTimestamp, err}
	case errors.Is(err, record.ErrOffsetsOutOfOrder):
		return &refusal{ErrOffsetsOutOfOrder, err}
	case errors.Is(err, record.ErrCorrupt), errors.Is(err, record.ErrInvalidRecord), errors.Is(err, record.ErrCodec), errors.Is(err, record.ErrIncomplete):
		return &refusal{ErrInvalidRecord, err}
	}
	return err
}

// refusal is an error of this package with its cause in package record.
type refusal struct{ kind, cause error }

// Error says each thing once: the cause begins with the words of the kind.
func (e *refusal) Error() string {
	text := strings.TrimPrefix(e.cause.Error(), "record: ")
	for _, kind := range [...]error{record.ErrTooLarge, record.ErrInvalidRecord, record.ErrInvalidTimestamp, record.ErrOffsetsOutOfOrder} {
		same := strings.TrimPrefix(kind.Error(), "record: ")
		rest, ok := strings.CutPrefix(text, same)
		switch {
		case !ok:
		case rest == "":
			return e.kind.Error()
		case strings.HasPrefix(rest, ": "):
			text = rest[2:]
		case strings.HasPrefix(rest, " "): // "invalid record 3: ..."
			text = "record" + rest
		}
	}
	return e.kind.Error() + ": " + text
}

func (e *refusal) Unwrap() []error { return []error{e.kind, e.cause} }
