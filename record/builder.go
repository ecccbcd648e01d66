package record

import (
	"encoding/binary"
	"errors"
	"math"
	"time"
)

// ErrEmpty: a batch was finished without a record.
var ErrEmpty = errors.New("record: batch has no records")

// BuilderOptions say what kind of batches a Builder makes. The zero value makes plain CreateTime batches.
type BuilderOptions struct {
	Codec         Codec            // None: not compressed
	Level         int              // 0 = the codec's default
	TimestampType TimestampType    // LogAppendTime: Now is every record's
	Producer      *Producer        // idempotent or transactional; nil = neither
	Now           func() time.Time // nil = time.Now
}

// Producer identifies an idempotent or transactional producer in its batches.
type Producer struct {
	ID            int64
	Epoch         int16
	BaseSequence  int32 // of the batch's first record
	Transactional bool
}

// Builder encodes records straight into one buffer, which it keeps from batch to batch: in steady state an uncompressed
// batch allocates nothing. It is not safe for concurrent use.
//
// A Builder makes one batch after another: Add or AddAt, Finish, Reset. Batches have base offset 0 unless SetBaseOffset
// says otherwise, and leader epoch NoEpoch; the log patches both in place.
type Builder struct {
	opts BuilderOptions
	buf  []byte // header (written last) and records
	out  []byte // the compressed batch
	batchPlan
	producer Producer // a copy of the options', or of SetProducer's; none if ID < 0
	refused  error    // why the options and the producer make no batch
	misused  error    // why this batch cannot be finished
	idle     int      // batches in a row that needed little of a large buf

	h    header // of the batch in the making
	next int64  // offset of the next record that Add takes; -1 = no record yet
	done bool   // finished, Reset must come next
}

// batchPlan is what the batch in the making will be, from the options or from the batch it replaces.
type batchPlan struct {
	codec      Codec
	level      int
	last       int64 // last offset that it must have; -1 = that of its last record
	appendTime int64 // for LogAppendTime; NoTimestamp = now, when it is finished
	rebuilds   bool  // another batch: it may end up without a record, and takes time as it is
}

// header holds the fields of a magic 2 batch that a Builder knows before its end.
type header struct {
	base         int64
	leaderEpoch  int32
	attributes   uint16 // without the codec
	baseTime     int64
	maxTime      int64
	producerID   int64
	epoch        int16
	baseSequence int32
	count        int32
	lastDelta    int32
}

// NewBuilder makes a builder; o.Producer is copied. Options that no batch may have are reported by Add and Finish.
func NewBuilder(o BuilderOptions) *Builder {
	b := &Builder{opts: o, producer: noProducer}
	if o.Producer != nil {
		b.producer = *o.Producer
	}
	b.Reset()
	return b
}

var noProducer = Producer{ID: -1, Epoch: -1, BaseSequence: -1}

// Reset starts a new batch with the builder's options. The batch that Finish returned is invalid from now on.
func (b *Builder) Reset() {
	b.start(header{leaderEpoch: NoEpoch},
		batchPlan{codec: b.opts.Codec, level: b.opts.Level, last: -1, appendTime: NoTimestamp})
	if b.opts.TimestampType == LogAppendTime {
		b.h.attributes |= attrLogAppendTime
	}
	b.applyProducer()
}

func (b *Builder) start(h header, plan batchPlan) {
	h.baseTime = NoTimestamp
	b.h, b.batchPlan, b.next, b.refused, b.misused, b.done = h, plan, -1, nil, nil, false
	b.shrink()
	if cap(b.buf) < HeaderSize {
		b.buf = make([]byte, HeaderSize, 1024)
	}
	b.buf = b.buf[:HeaderSize]
}

// shrink gives up a buffer above 1 MiB that many batches in a row had no use for.
func (b *Builder) shrink() {
	b.idle++
	if cap(b.buf) <= keepBuffer || len(b.buf) > cap(b.buf)/8 {
		b.idle = 0
	}
	if b.idle > keepFor {
		b.buf, b.out, b.idle = nil, nil, 0
	}
}

// applyProducer puts the producer into the header and judges it.
func (b *Builder) applyProducer() {
	p := &b.producer
	b.h.producerID, b.h.epoch, b.h.baseSequence = p.ID, p.Epoch, p.BaseSequence
	b.h.attributes &^= attrTransactional
	if p.Transactional {
		b.h.attributes |= attrTransactional
	}
	b.refused = b.checkOptions()
}

func (b *Builder) checkOptions() error {
	switch p := &b.producer; {
	case b.opts.Codec > Zstd:
		return ErrCodec
	case *p == noProducer:
		return nil
	case p.ID < 0 && p.Transactional:
		return invalidBatch("a transactional batch needs a producer id")
	case p.ID < 0:
		return invalidBatch("producer id %d is negative", p.ID)
	case p.Epoch < 0:
		return invalidBatch("producer epoch %d is negative", p.Epoch)
	case p.BaseSequence < 0:
		return invalidBatch("base sequence %d is negative", p.BaseSequence)
	}
	return nil
}

// SetProducer changes the producer of this batch, at any time before Finish, and of the following ones; nil = none. A batch
// needs its own base sequence, so an idempotent producer calls it for each.
func (b *Builder) SetProducer(p *Producer) {
	b.producer = noProducer
	if p != nil {
		b.producer = *p
	}
	b.applyProducer()
}

// SetBaseOffset says which offset the batch starts at, before the first record, which need not have that offset. A
// negative one, and a call after Add, are reported by Add and Finish.
func (b *Builder) SetBaseOffset(off int64) {
	if off < 0 {
		b.misuse(invalidBatch("base offset %d is negative", off))
	}
	if b.early("SetBaseOffset") {
		b.h.base = off
	}
}

// SetDeleteHorizon makes timestamps count from a delete horizon in Unix milliseconds, which the batch then carries, before
// the first record. A negative one, and a call after Add, are reported by Add and Finish.
func (b *Builder) SetDeleteHorizon(ms int64) {
	if ms < 0 {
		b.misuse(invalidBatch("delete horizon %d is negative", ms))
	}
	if b.early("SetDeleteHorizon") {
		b.h.attributes |= attrDeleteHorizon
		b.h.baseTime = ms
	}
}

// early says that no record counts from the header yet; a later call is the batch's end.
func (b *Builder) early(call string) bool {
	if b.h.count == 0 && !b.done {
		return true
	}
	b.misuse(errors.New("record: " + call + " after Add"))
	return false
}

func (b *Builder) misuse(err error) {
	if b.misused == nil {
		b.misused = err
	}
}

// broken is why the batch in the making cannot be made.
func (b *Builder) broken() error {
	if b.misused != nil {
		return b.misused
	}
	return b.refused
}

// Rebuild starts a new batch in place of src, which must be of magic 2, with fewer records: same codec at its default level,
// timestamp type, producer, flags and leader epoch, same base and last offset, whichever records AddAt gives it, whatever
// their timestamps. A horizon other than NoTimestamp is the batch's delete horizon; otherwise an existing one is kept unless
// it is negative (a producer can set the bit without a horizon). With LogAppendTime the time is kept.
//
// If no record is added Finish makes the 61-byte header that stands for an emptied batch: no codec, no horizon, the old
// largest timestamp.
//
// Only this batch is affected; Reset goes back to the builder's options.
func (b *Builder) Rebuild(src Batch, horizon int64) error {
	if src.legacy() {
		return &CorruptError{Field: "magic", Reason: "a legacy entry cannot be rebuilt as magic 2"}
	}
	if err := src.verifyHeader(); err != nil {
		return err
	}
	id, epoch, sequence := src.Producer()
	b.start(header{
		base: src.BaseOffset(), leaderEpoch: src.LeaderEpoch(), attributes: src.Attributes() & attrKnown,
		producerID: id, epoch: epoch, baseSequence: sequence, maxTime: src.MaxTimestamp(),
	}, batchPlan{codec: src.Codec(), last: src.LastOffset(), appendTime: src.MaxTimestamp(), rebuilds: true})
	old, ok := src.DeleteHorizon()
	switch {
	case horizon != NoTimestamp:
		b.SetDeleteHorizon(horizon)
	case ok && old >= 0:
		b.SetDeleteHorizon(old)
	default:
		b.h.attributes &^= attrDeleteHorizon
	}
	return nil
}

// Add encodes a record at the next offset. A zero timestamp is replaced by now. After an error the batch is as before.
func (b *Builder) Add(r Record) error {
	if r.Timestamp == 0 {
		r.Timestamp = b.now()
	}
	return b.add(&r, b.nextOffset(), r.Timestamp)
}

// AddRef is Add for a record that stays where it is, with a timestamp that is taken as given instead of its own: what a
// caller uses that has read the clock already and adds many. r is not changed and not kept.
func (b *Builder) AddRef(r *Record, timestamp int64) error {
	// Behind a first record an ordinary one needs none of add's questions: they were answered, or are answered by these.
	if b.h.count > 0 && !b.done && b.misused == nil && b.refused == nil && b.last < 0 && timestamp >= 0 && len(b.buf) < keepBuffer {
		if offset := b.next - b.h.base; offset <= quickMost && b.next < math.MaxInt64 {
			if buf, ok := r.appendQuick(b.buf, timestamp-b.h.baseTime, offset); ok {
				b.buf = buf
				b.h.count++
				b.h.lastDelta = int32(offset)
				b.next++
				if b.h.attributes&attrLogAppendTime == 0 && timestamp > b.h.maxTime {
					b.h.maxTime = timestamp
				}
				return nil
			}
		}
	}
	return b.add(r, b.nextOffset(), timestamp)
}

// AddRefs is AddRef for the ordinary ones among the first of many records, as long as Len stays within most: it says how
// many it took. A zero timestamp is replaced by now. The batch must have a record already, else it takes none.
func (b *Builder) AddRefs(recs []Record, now int64, most int) (n int) {
	if b.h.count == 0 || b.done || b.misused != nil || b.refused != nil || b.last >= 0 || b.next > math.MaxInt64-quickMost {
		return 0
	}
	buf, offset := b.buf, b.next-b.h.base
	times := batchTimes{now: now, base: b.h.baseTime, latest: b.h.maxTime}
	most = min(most, keepBuffer)
	for tries := 8; n < len(recs) && offset <= quickMost; {
		r := &recs[n]
		timestamp := r.Timestamp
		if timestamp == 0 {
			timestamp = now
		}
		delta := timestamp - times.base
		grown, ok := r.appendQuick(buf, delta, offset)
		if !ok || timestamp < 0 || len(grown) > most {
			break
		}
		times.latest = max(times.latest, timestamp)
		buf, offset, n = grown, offset+1, n+1
		if tries <= 0 {
			continue
		}
		tries--
		if like, ok := frameOf(r, delta, offset); ok {
			var more int
			buf, more = like.appendTo(buf, recs[n:], &times, offset, most)
			offset, n = offset+int64(more), n+more
			if more >= 8 {
				tries = 8
			}
		}
	}
	if n == 0 {
		return 0
	}
	b.buf, b.next = buf, b.h.base+offset
	b.h.count += int32(n)
	b.h.lastDelta = int32(offset - 1)
	if b.h.attributes&attrLogAppendTime == 0 {
		b.h.maxTime = times.latest
	}
	return n
}

// AddAt encodes a record at its own offset, which must be larger than the one before, with its own timestamp, 0 included.
// After an error the batch is as before.
func (b *Builder) AddAt(r Record) error { return b.add(&r, r.Offset, r.Timestamp) }

func (b *Builder) nextOffset() int64 {
	if b.next < 0 {
		return b.h.base
	}
	return b.next
}

func (b *Builder) now() int64 {
	if b.opts.Now != nil {
		return b.opts.Now().UnixMilli()
	}
	return time.Now().UnixMilli()
}

func (b *Builder) add(r *Record, offset, timestamp int64) error {
	switch {
	case b.done:
		return errors.New("record: Add to a finished batch")
	case b.misused != nil || b.refused != nil:
		return b.broken()
	case timestamp < NoTimestamp && !b.rebuilds:
		return &InvalidRecordError{Index: int(b.h.count), Reason: "the timestamp is negative", Timestamp: true}
	case offset < b.nextOffset():
		return &InvalidRecordError{Index: int(b.h.count), Reason: "the offset does not grow"}
	case offset-b.h.base > math.MaxInt32 || offset == math.MaxInt64:
		return &InvalidRecordError{Index: int(b.h.count), Reason: "the offset is too far from the batch's first"}
	case b.last >= 0 && offset > b.last:
		return &InvalidRecordError{Index: int(b.h.count), Reason: "the offset is beyond the last of the batch it replaces"}
	case b.h.count == math.MaxInt32:
		return ErrTooLarge
	}
	baseTime := b.h.baseTime
	if b.h.count == 0 && b.h.attributes&attrDeleteHorizon == 0 {
		baseTime = timestamp
	}
	timeDelta, offsetDelta := timestamp-baseTime, offset-b.h.base
	if err := b.encode(r, timeDelta, offsetDelta); err != nil {
		return err
	}
	b.h.baseTime = baseTime
	switch {
	case b.h.attributes&attrLogAppendTime != 0: // Finish sets it
	case b.h.count == 0: // until now that of the batch it replaces
		b.h.maxTime = timestamp
	default:
		b.h.maxTime = max(b.h.maxTime, timestamp)
	}
	b.h.count++
	b.h.lastDelta = int32(offsetDelta)
	b.next = offset + 1
	return nil
}

func (b *Builder) encode(r *Record, timeDelta, offsetDelta int64) error {
	if len(b.buf) < math.MaxInt32-quickMost {
		buf, ok := r.appendQuick(b.buf, timeDelta, offsetDelta)
		if ok {
			b.buf = buf
			return nil
		}
	}
	body := r.bodySize(timeDelta, offsetDelta)
	if int64(len(b.buf))+int64(varintSize(body))+body > math.MaxInt32 {
		return ErrTooLarge
	}
	b.buf = r.appendTo(b.buf, body, timeDelta, offsetDelta)
	return nil
}

// Len is the number of bytes encoded so far, header included, before compression.
func (b *Builder) Len() int { return len(b.buf) }

// Count is the number of records added so far.
func (b *Builder) Count() int { return int(b.h.count) }

// Finish completes the batch, compressing it if the options say so. It is valid until the next Reset or Rebuild. With
// LogAppendTime its time is now. A batch without a record is ErrEmpty, unless Rebuild started it.
func (b *Builder) Finish() (Batch, error) {
	if b.done {
		return Batch{}, errors.New("record: Finish of a finished batch")
	}
	if err := b.broken(); err != nil {
		return Batch{}, err
	}
	if b.h.count == 0 && !b.rebuilds {
		return Batch{}, ErrEmpty
	}
	out, codec, err := b.payload()
	if err != nil {
		return Batch{}, err
	}
	b.done = true
	if b.last >= 0 {
		b.h.lastDelta = int32(b.last - b.h.base)
	}
	if b.h.count == 0 {
		b.h.attributes &^= attrDeleteHorizon
		b.h.baseTime = NoTimestamp
	}
	if b.h.attributes&attrLogAppendTime != 0 {
		if b.h.maxTime = b.appendTime; b.appendTime == NoTimestamp && !b.rebuilds {
			b.h.maxTime = b.now()
		}
	}
	b.h.write(out, codec)
	batch := Batch{out}
	batch.stampChecksum()
	return batch, nil
}

// payload is the batch with its records, compressed or not, behind room for the header.
func (b *Builder) payload() ([]byte, Codec, error) {
	codec := b.codec
	if codec == None || b.h.count == 0 {
		return b.buf, None, nil
	}
	if cap(b.out) < HeaderSize {
		b.out = make([]byte, HeaderSize, HeaderSize+len(b.buf)/2)
	}
	out, err := compress(b.out[:HeaderSize], b.buf[HeaderSize:], codec, b.level)
	if err != nil {
		return nil, codec, err
	}
	b.out = out
	if int64(len(out)) > math.MaxInt32 {
		return nil, codec, ErrTooLarge
	}
	return out, codec, nil
}

// write puts the header in front of the batch; the CRC is stamped afterwards.
func (h *header) write(b []byte, codec Codec) {
	be := binary.BigEndian
	be.PutUint64(b[posBaseOffset:], uint64(h.base))
	be.PutUint32(b[posLength:], uint32(len(b)-overhead))
	be.PutUint32(b[posLeaderEpoch:], uint32(h.leaderEpoch))
	b[posMagic] = 2
	be.PutUint16(b[posAttributes:], h.attributes&^attrCodec|uint16(codec))
	be.PutUint32(b[posLastOffsetDelta:], uint32(h.lastDelta))
	be.PutUint64(b[posBaseTimestamp:], uint64(h.baseTime))
	be.PutUint64(b[posMaxTimestamp:], uint64(h.maxTime))
	be.PutUint64(b[posProducerID:], uint64(h.producerID))
	be.PutUint16(b[posProducerEpoch:], uint16(h.epoch))
	be.PutUint32(b[posBaseSequence:], uint32(h.baseSequence))
	be.PutUint32(b[posCount:], uint32(h.count))
}
