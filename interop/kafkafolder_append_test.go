package interop

import (
	"fmt"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
)

// append is one of the many things that can be appended.
func (f *kafkaFolder) append() {
	kind := f.kind
	if kind == "old formats" && f.r.IntN(12) == 0 {
		f.modern = true
	}
	if kind == "everything" || f.r.IntN(8) == 0 {
		kind = folderKinds[f.r.IntN(len(folderKinds)-1)]
	}
	if kind == "old formats" && f.modern {
		kind = "plain"
	}
	f.modern = f.modern || kind != "old formats"
	if f.modern && f.r.IntN(25) == 0 {
		f.appendRare()
		return
	}
	switch kind {
	case "idempotent":
		f.appendProducer(false)
	case "transactional":
		f.appendProducer(true)
	case "old formats":
		f.appendOld()
	case "follower":
		f.appendFollower()
	default:
		if f.kind == "compacted" && f.r.IntN(3) == 0 {
			f.appendProducer(f.r.IntN(2) == 0)
			return
		}
		f.lead("plain", BuildOptions{})
	}
}

func (f *kafkaFolder) lead(what string, o BuildOptions) error {
	f.random(&o)
	raw, err := f.d.Build(o)
	require.NoError(f.t, err)
	got, err := f.l.AppendAsLeader(raw, f.epoch, "")
	f.noteResult(err, "%s append of %d records, %s, %d bytes: %d to %d", what, len(o.Records), o.Codec, len(raw), got.FirstOffset, got.LastOffset)
	return err
}

// random gives the batch a codec and records.
func (f *kafkaFolder) random(o *BuildOptions) {
	if f.r.IntN(2) == 0 {
		c := codecs[f.r.IntN(len(codecs))]
		o.Codec = c.String()
		if c == record.Zstd && o.Magic != nil {
			o.Codec = "gzip"
		}
	}
	n := 1 + f.r.IntN(12)
	switch f.r.IntN(150) {
	case 0:
		n = 300
	case 1:
		if o.Magic == nil {
			n = 66_000
		}
	}
	timeless := f.r.IntN(14) == 0
	for range n {
		rec := f.record()
		if n > 1000 {
			rec = Record{Timestamp: rec.Timestamp, Key: fmt.Appendf(nil, "k%d", f.r.IntN(9)), Headers: []Header{}}
		}
		if timeless {
			rec.Timestamp = -1
		}
		o.Records = append(o.Records, rec)
	}
}

func (f *kafkaFolder) record() Record {
	r := f.r
	rec := Record{Timestamp: f.now - r.Int64N(100_000), Key: fmt.Appendf(nil, "key %d", r.IntN(20)), Value: someBytes(r, 60), Headers: []Header{}}
	switch r.IntN(60) {
	case 0:
		rec.Timestamp = f.now + r.Int64N(1000*60*50)
	case 1:
		rec.Timestamp = r.Int64N(1000)
	case 2:
		rec.Value = make([]byte, 3000)
	case 3:
		rec.Key = []byte{}
	case 4, 5, 6, 7:
		rec.Value = nil
	case 8:
		if r.IntN(20) == 0 {
			rec.Value = make([]byte, 1<<20)
		}
	case 9:
		if !strings.Contains(f.config["cleanup.policy"], "compact") {
			rec.Key = nil
		}
	case 10:
		rec.Timestamp = -1
	}
	for range r.IntN(5) - 2 {
		rec.Headers = append(rec.Headers, Header{Key: []string{"", "h", "größe"}[r.IntN(3)], Value: someBytes(r, 10)})
	}
	return rec
}

// appendProducer appends a batch of an idempotent or transactional producer, or ends its transaction.
func (f *kafkaFolder) appendProducer(transactional bool) {
	id := int64(f.r.IntN(len(f.producers)))
	p := &f.producers[id]
	if f.r.IntN(12) == 0 {
		p.epoch++
		p.sequence = 0
	}
	if transactional && p.open && f.r.IntN(3) == 0 || f.r.IntN(20) == 0 {
		f.endTransaction(id)
		return
	}
	transactional = transactional || p.open
	pid, epoch, seq := id*1000+7, p.epoch, p.sequence
	o := BuildOptions{ProducerID: &pid, ProducerEpoch: &epoch, BaseSequence: &seq, Transactional: transactional}
	if err := f.lead(fmt.Sprintf("producer %d epoch %d sequence %d transactional %v", pid, epoch, seq, transactional), o); err != nil {
		p.epoch++
		p.sequence = 0
		return
	}
	p.open = transactional
	s := f.seen()
	for _, known := range s.Producers {
		if known.ProducerID == pid {
			p.sequence = record.IncrementSequence(known.LastSequence, 1)
		}
	}
}

func (f *kafkaFolder) endTransaction(id int64) {
	p := &f.producers[id]
	version := f.r.IntN(3)
	if version == 2 || f.r.IntN(5) == 0 {
		p.epoch++
		p.sequence = 0
	}
	p.coordinator += int32(f.r.IntN(2))
	commit := f.r.IntN(2) == 0
	raw, err := f.d.Marker(commit, 0, f.now, id*1000+7, p.epoch, p.coordinator)
	require.NoError(f.t, err)
	got, err := f.l.AppendMarker(raw, f.epoch, version)
	f.noteResult(err, "marker of producer %d epoch %d coordinator %d version %d commit %v: %d", id*1000+7, p.epoch, p.coordinator, version, commit, got.FirstOffset)
	if err == nil {
		p.open = false
		if version < 2 && f.r.IntN(2) == 0 {
			p.epoch++ // the coordinator bumps it sometimes
			p.sequence = 0
		}
	}
}

// appendOld appends a message set of an old format.
func (f *kafkaFolder) appendOld() {
	magic := int8(f.r.IntN(2))
	o := BuildOptions{Magic: &magic}
	f.random(&o)
	if magic == 1 && f.r.IntN(4) == 0 {
		o.TimestampType = "LogAppendTime"
		at := f.now
		o.LogAppendTime = &at
	}
	for i := range o.Records {
		o.Records[i].Headers = nil
		if magic == 0 {
			o.Records[i].Timestamp = -1
		}
	}
	f.follow(fmt.Sprintf("format %d", magic), o)
}

func (f *kafkaFolder) appendFollower() {
	if f.r.IntN(8) == 0 {
		f.epoch++
	}
	epoch := f.epoch
	o := BuildOptions{LeaderEpoch: &epoch}
	if f.r.IntN(12) == 0 {
		o.LeaderEpoch = nil
	}
	f.random(&o)
	if f.r.IntN(6) == 0 {
		o.TimestampType = "LogAppendTime"
		at := f.now
		o.LogAppendTime = &at
	}
	if f.r.IntN(8) == 0 {
		horizon := f.now + 1000
		o.DeleteHorizonMs = &horizon
	}
	f.follow("follower", o)
}

// follow appends as a follower does, sometimes with offsets that are missing.
func (f *kafkaFolder) follow(what string, o BuildOptions) {
	end := f.seen().LogEndOffset
	if f.r.IntN(8) == 0 {
		end += f.r.Int64N(50)
	}
	o.BaseOffset, o.KeepOffsets = end, true
	for i := range o.Records {
		o.Records[i].Offset = end
		end++
		if f.r.IntN(20) == 0 && len(o.Records) < 1000 {
			end += f.r.Int64N(4)
		}
	}
	if last := end + 3; f.r.IntN(10) == 0 && o.Magic == nil {
		o.LastOffset = &last
	}
	raw, err := f.d.Build(o)
	require.NoError(f.t, err)
	if o.Magic == nil && f.r.IntN(25) == 0 {
		b, err := record.View(raw)
		require.NoError(f.t, err)
		raw = emptied(f.t, b).Bytes()
	}
	got, err := f.l.AppendAsFollower(raw, f.epoch)
	f.noteResult(err, "%s append of %d records, %s %s, %d bytes: %d to %d", what, len(o.Records), o.Codec, o.TimestampType, len(raw), got.FirstOffset, got.LastOffset)
}
