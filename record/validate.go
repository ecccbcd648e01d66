package record

import (
	"errors"
	"fmt"
	"math"
)

// ValidateOptions are the rules of a topic.
type ValidateOptions struct {
	Origin            Origin // Client or Coordinator
	Compacted         bool   // cleanup.policy has compact: every record needs a key
	TimestampType     TimestampType
	Codec             Codec // compression.type
	CodecFromProducer bool  // compression.type=producer: Codec is not looked at
	Level             int   // for batches that are compressed anew; 0 = the codec's default
	Now               int64 // Unix milliseconds, one reading per append
	// TimestampBefore and TimestampAfter are message.timestamp.before.max.ms and message.timestamp.after.max.ms: how far a
	// record's CreateTime may be from Now. Negative = no bound.
	TimestampBefore, TimestampAfter int64
	MaxBatchBytes                   int // of a batch that is compressed anew; 0 = 1 MiB + 12
}

// Validated is a batch that a leader may append, but for its place in the log.
type Validated struct {
	// Batch is the caller's batch changed in place or, if Rebuilt, one in the decoder's buffer, valid until its next use.
	Batch        Batch
	Count        int   // records, and offsets
	MaxTimestamp int64 // NoTimestamp if none has one
	AppendTime   int64 // -1 unless the topic has LogAppendTime
	Rebuilt      bool
}

// Place gives the batch its base offset, the log's end, and leader epoch. It writes 12 bytes and leaves the CRC alone. The
// largest timestamp is then found at v.Batch.LastOffset().
func (v Validated) Place(base int64, leaderEpoch int32) {
	v.Batch.SetBaseOffset(base)
	v.Batch.SetLeaderEpoch(leaderEpoch)
}

// Validate judges what a producer or a coordinator wants to append, and makes of it the batch that the log will hold. raw is
// the valid part of a set that Check has passed (the CRC is not checked again); it is changed only if there is no error. The
// offset is left open, so no lock is needed: Validated.Place comes under the log's.
//
// The set must be one batch of magic 2, or legacy entries, of which a compressed one must stand alone. A batch that has the
// topic's codec already stays as it is, byte for byte, but for timestamp type and largest timestamp, where they are not what
// the topic and the records say. Any other is built anew as one batch.
//
// Stricter than Kafka, whose own clients never send these: negative timestamps other than -1 are ErrInvalidTimestamp, and a
// coordinator's batch too must have as many records as offsets; and a transactional batch needs a producer id, that an epoch.
//
// Errors: *InvalidRecordError for the batch as a whole, *InvalidRecordsError for its records, ErrTooLarge, ErrCodec.
func (d *Decoder) Validate(raw []byte, o ValidateOptions) (Validated, error) {
	if o.Origin.keepsOffsets() {
		return Validated{}, errors.New("record: Validate is for producers' and coordinators' batches")
	}
	if o.MaxBatchBytes <= 0 {
		o.MaxBatchBytes = defaultMaxBatchBytes
	}
	first, rest, err := Next(raw)
	if err != nil {
		return Validated{}, invalidBatch("there is no whole batch: %v", err)
	}
	if first.legacy() {
		return d.validateLegacy(raw, &o)
	}
	if len(rest) > 0 {
		return Validated{}, invalidBatch("more than one batch")
	}
	return d.validateBatch(first, &o)
}

func (d *Decoder) validateBatch(b Batch, o *ValidateOptions) (Validated, error) {
	if err := o.checkHeader(b); err != nil {
		return Validated{}, err
	}
	v := validation{o: *o, appended: b.TimestampType() == LogAppendTime, max: NoTimestamp}
	source := b.Codec()
	target := o.target(source)
	if b.Control() && source == None {
		target = None // never compressed
	}
	rebuild := source != target
	if rebuild {
		d.startRebuild(b, o, target)
	} else if source == None && v.skim(b) {
		b.setMaxTimestamp(o.TimestampType, v.maxTimestamp())
		return v.result(b, b.Count()), nil
	}
	var s Steps
	err := s.Begin(b, d, math.MinInt64)
	for index := 0; err == nil && s.Next(); index++ {
		rec, reason := s.Record(), ""
		if source != None && !rebuild && rec.Offset-b.BaseOffset() != int64(index) {
			reason = "its offset is not the one that follows"
		}
		if v.check(index, rec, reason) && rebuild {
			rec.Offset = int64(index)
			err = d.build.add(rec, rec.Offset, rec.Timestamp)
		}
	}
	if err == nil {
		err = s.Err()
	}
	switch {
	case err != nil:
		return Validated{}, invalidContent(err)
	case v.errs != nil:
		return Validated{}, v.errs
	case rebuild:
		return d.finishRebuild(&v)
	}
	b.setMaxTimestamp(o.TimestampType, v.maxTimestamp())
	return v.result(b, b.Count()), nil
}

// checkHeader judges a batch of magic 2 by its header.
func (o *ValidateOptions) checkHeader(b Batch) error {
	offsets, count := int64(b.lastOffsetDelta())+1, int64(b.Count())
	id, epoch, sequence := b.Producer()
	switch {
	case b.Codec() > Zstd || o.target(None) > Zstd:
		return fmt.Errorf("%w in attributes %#x", ErrCodec, b.Attributes())
	case offsets <= 0:
		return invalidBatch("the last offset delta is %d", offsets-1)
	case count <= 0:
		return invalidBatch("the record count is %d", count)
	case offsets != count:
		return invalidBatch("%d records for %d offsets", count, offsets)
	case b.Transactional() && id < 0:
		return invalidBatch("a transactional batch needs a producer id")
	case id >= 0 && epoch < 0:
		return invalidBatch("a batch with producer id %d has epoch %d", id, epoch)
	case o.Origin != Client:
		return nil
	case b.Control():
		return invalidBatch("a producer may not write control records")
	case id >= 0 && sequence < 0:
		return invalidBatch("a batch with producer id %d has base sequence %d", id, sequence)
	}
	return nil
}

func (o *ValidateOptions) target(source Codec) Codec {
	if o.CodecFromProducer {
		return source
	}
	return o.Codec
}

// startRebuild begins a batch like b, with another codec, in the decoder's buffer.
func (d *Decoder) startRebuild(b Batch, o *ValidateOptions, target Codec) {
	h := header{leaderEpoch: NoEpoch}
	h.producerID, h.epoch, h.baseSequence = b.Producer()
	if !b.legacy() {
		h.attributes = b.Attributes() & (attrTransactional | attrControl)
	}
	if o.TimestampType == LogAppendTime {
		h.attributes |= attrLogAppendTime
	}
	if d.build == nil {
		d.build = NewBuilder(BuilderOptions{})
	}
	d.build.start(h, batchPlan{codec: target, level: o.Level, last: -1, appendTime: o.Now})
}

func (d *Decoder) finishRebuild(v *validation) (Validated, error) {
	count := d.build.Count()
	b, err := d.build.Finish()
	if err != nil {
		return Validated{}, err
	}
	if b.Size() > v.o.MaxBatchBytes {
		return Validated{}, fmt.Errorf("%w: a batch of %d bytes as %v, max.message.bytes is %d", ErrTooLarge, b.Size(), b.Codec(), v.o.MaxBatchBytes)
	}
	result := v.result(b, count)
	result.Rebuilt = true
	return result, nil
}

// invalidContent makes of a reader's or builder's error the one that a producer is told.
func invalidContent(err error) error {
	if c, ok := errors.AsType[*CorruptError](err); ok {
		return invalidBatch("%s: %s", c.Field, c.Reason)
	}
	return err
}

// validation walks the records of one append.
type validation struct {
	o        ValidateOptions
	appended bool // the batch that is walked says LogAppendTime
	max      int64
	errs     *InvalidRecordsError // nil if there are none
}

// skim judges a plain batch of nothing but ordinary records, all sound: timestamps within the bounds, keys where they must
// be. False says nothing, and nothing is changed: the records have to be walked one by one.
func (v *validation) skim(b Batch) bool {
	o := &v.o
	if v.appended {
		return false
	}
	least, most := int64(0), int64(math.MaxInt64)
	if o.TimestampType != LogAppendTime {
		if o.TimestampBefore >= 0 {
			least = max(0, o.Now-o.TimestampBefore)
		}
		if o.TimestampAfter >= 0 {
			most = addSaturating(o.Now, o.TimestampAfter)
		}
	}
	first, last, keys, ok := skim(b.b[HeaderSize:], b.Count())
	base := b.BaseTimestamp()
	if !ok || base < 0 || base > math.MaxInt64-1<<40 || o.Compacted && !keys || base+first < least || base+last > most {
		return false
	}
	v.max = base + last
	return true
}

// check judges one record; a reason says that something is wrong with it already.
func (v *validation) check(index int, r *Record, reason string) bool {
	timestamp := false
	if reason == "" && v.o.Compacted && r.Key == nil {
		reason = "a compacted topic needs a key"
	}
	if reason == "" {
		reason = v.checkTimestamp(r.Timestamp)
		timestamp = reason != ""
	}
	if reason != "" {
		if v.errs == nil {
			v.errs = new(InvalidRecordsError)
		}
		v.errs.add(index, timestamp, reason)
		return false
	}
	v.max = max(v.max, r.Timestamp)
	return true
}

func (v *validation) checkTimestamp(ms int64) string {
	o := &v.o
	switch {
	case ms < NoTimestamp:
		return "the timestamp is negative"
	case o.TimestampType == LogAppendTime || ms == NoTimestamp:
		if v.appended {
			return "a producer may not send LogAppendTime"
		}
	case o.TimestampBefore >= 0 && ms < o.Now-o.TimestampBefore:
		return fmt.Sprintf("the timestamp %d is %d ms before the clock, message.timestamp.before.max.ms is %d", ms, o.Now-ms, o.TimestampBefore)
	case o.TimestampAfter >= 0 && ms > addSaturating(o.Now, o.TimestampAfter):
		return fmt.Sprintf("the timestamp %d is %d ms ahead of the clock, message.timestamp.after.max.ms is %d", ms, ms-o.Now, o.TimestampAfter)
	}
	return ""
}

// addSaturating adds two numbers that are not negative.
func addSaturating(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

func (v *validation) maxTimestamp() int64 {
	if v.o.TimestampType == LogAppendTime {
		return v.o.Now
	}
	return v.max
}

func (v *validation) result(b Batch, count int) Validated {
	r := Validated{Batch: b, Count: count, MaxTimestamp: v.maxTimestamp(), AppendTime: -1}
	if v.o.TimestampType == LogAppendTime {
		r.AppendTime = v.o.Now
	}
	return r
}
