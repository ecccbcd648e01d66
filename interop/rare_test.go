package interop

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
)

// someName is a topic's name, also of those a broker keeps for itself, and a partition.
func someName(r *rand.Rand) (topic string, partition int32) {
	topics := []string{"orders", "a.b-c_d", "0", strings.Repeat("long", 62), strings.Repeat("x", 249), "v1.2-7", "a--1", "-", "_", "...", "t-0-delete.x",
		"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata", "__remote_log_metadata"}
	topic, partition = topics[r.IntN(len(topics))], []int32{0, 0, 7, 10_000, math.MaxInt32}[r.IntN(5)]
	if len(topic) > 244 {
		partition %= 10
	}
	return topic, partition
}

// appendRare appends one of the things that few logs have.
func (f *kafkaFolder) appendRare() {
	r := f.r
	switch r.IntN(9) {
	case 0, 1:
		f.appendControl()
	case 7, 8:
		f.appendFetched()
	case 2: // its sequence wraps soon, or at once
		id, epoch := int64(1)<<40+r.Int64N(3), int16(r.IntN(3)+math.MaxInt16-3)
		sequence := int32(math.MaxInt32 - r.IntN(8))
		f.leadAs(id, epoch, sequence)
	case 3: // many producers
		for range 1 + r.IntN(150) {
			f.leadAs(1_000_000+r.Int64N(1<<50), int16(r.IntN(5)), int32(r.IntN(3)))
		}
	case 4: // times that no clock shows
		o := BuildOptions{LeaderEpoch: &f.epoch}
		for range 1 + r.IntN(4) {
			o.Records = append(o.Records, Record{Timestamp: []int64{0, f.now, 1 << 53, 253402300799000, math.MaxInt64 - 1, math.MaxInt64, -1}[r.IntN(7)], Key: []byte("k"), Headers: []Header{}})
		}
		f.follow("times", o)
	case 5:
		o := BuildOptions{}
		headers := make([]Header, 1+r.IntN(300))
		for i := range headers {
			headers[i] = Header{Key: []string{"", "same", "\u2028", strings.Repeat("h", 300), "a,b"}[r.IntN(5)], Value: someBytes(r, 300)}
		}
		o.Records = []Record{{Timestamp: f.now, Key: []byte("headers"), Headers: headers}, {Timestamp: f.now, Key: []byte{}, Value: []byte{}, Headers: []Header{}}}
		f.leadWith("headers", o)
	case 6:
		if r.IntN(4) > 0 {
			return
		}
		f.leadWith("large", BuildOptions{Codec: codecs[r.IntN(len(codecs))].String(), Records: []Record{{Timestamp: f.now, Key: []byte("large"), Value: make([]byte, 3_900_000), Headers: []Header{}}}})
	}
}

// appendFetched appends several batches at once, as a follower that was behind: transactions of two producers that nobody else uses,
// and plain records. All transactions but the last of the second producer end in it.
func (f *kafkaFolder) appendFetched() {
	next := f.seen().LogEndOffset
	var set []byte
	epochs := [2]int16{f.fetched, f.fetched}
	data := func(i int) {
		o := BuildOptions{BaseOffset: next, KeepOffsets: true, LeaderEpoch: &f.epoch}
		if id, sequence := int64(i)+880_000, int32(0); i >= 0 {
			o.ProducerID, o.ProducerEpoch, o.BaseSequence, o.Transactional = &id, &epochs[i], &sequence, true
		}
		for range 1 + f.r.IntN(3) {
			o.Records = append(o.Records, Record{Offset: next, Timestamp: f.now, Key: fmt.Appendf(nil, "key %d", f.r.IntN(20)), Value: someBytes(f.r, 20), Headers: []Header{}})
			next++
		}
		raw, err := f.d.Build(o)
		require.NoError(f.t, err)
		set = append(set, raw...)
	}
	for range 2 + f.r.IntN(4) {
		i := f.r.IntN(3) - 1
		if data(i); i < 0 {
			continue
		}
		raw, err := f.d.Marker(f.r.IntN(3) == 0, next, f.now, 880_000+int64(i), epochs[i], 0)
		require.NoError(f.t, err)
		binary.BigEndian.PutUint32(raw[12:], uint32(f.epoch))
		set = append(set, raw...)
		next++
		epochs[i]++
	}
	f.fetched = max(epochs[0], epochs[1])
	got, err := f.l.AppendAsFollower(set, f.epoch)
	f.noteResult(err, "fetched append of %d bytes: %d to %d", len(set), got.FirstOffset, got.LastOffset)
}

// leadAs appends some records of a producer whom nobody knows yet.
func (f *kafkaFolder) leadAs(id int64, epoch int16, sequence int32) {
	o := BuildOptions{ProducerID: &id, ProducerEpoch: &epoch, BaseSequence: &sequence}
	for range 1 + f.r.IntN(4) {
		o.Records = append(o.Records, Record{Timestamp: f.now, Key: fmt.Appendf(nil, "key %d", f.r.IntN(20)), Value: someBytes(f.r, 20), Headers: []Header{}})
	}
	f.leadWith(fmt.Sprintf("producer %d epoch %d sequence %d", id, epoch, sequence), o)
}

func (f *kafkaFolder) leadWith(what string, o BuildOptions) {
	raw, err := f.d.Build(o)
	require.NoError(f.t, err)
	got, err := f.l.AppendAsLeader(raw, f.epoch, "")
	f.noteResult(err, "%s append of %d records, %s, %d bytes: %d to %d", what, len(o.Records), o.Codec, len(raw), got.FirstOffset, got.LastOffset)
}

// appendControl appends what else than ends of transactions stands in control batches.
func (f *kafkaFolder) appendControl() {
	kind := 2 + f.r.IntN(6)
	id := "XreDC5vKRYqh8Nifn3SBJQ"
	var message any
	switch record.ControlType(kind) {
	case record.LeaderChange:
		voters := []args{{"voterId": 1}, {"voterId": 300}}
		message = args{"version": 0, "leaderId": 1, "voters": voters, "grantingVoters": voters[:f.r.IntN(2)]}
	case record.SnapshotHeader:
		message = args{"version": 0, "lastContainedLogTimestamp": f.now}
	case record.SnapshotFooter:
		message = args{"version": 0}
	case record.KRaftVersion:
		message = args{"version": 0, "kRaftVersion": 1}
	case record.KRaftVoters:
		message = args{"version": 0, "voters": []args{{"voterId": 1, "voterDirectoryId": id, "endpoints": []args{{"name": "CONTROLLER", "host": "größe", "port": 9093}},
			"kRaftVersionFeature": args{"minSupportedVersion": 0, "maxSupportedVersion": 1}}}}
	}
	end := f.seen().LogEndOffset
	if kind > int(record.KRaftVoters) {
		f.appendUnknownControl(kind, end)
		return
	}
	raw, err := f.d.Control(kind, end, f.now, f.epoch, message)
	require.NoError(f.t, err)
	got, err := f.l.AppendAsFollower(raw, f.epoch)
	f.noteResult(err, "control batch of type %d, %d bytes: %d", kind, len(raw), got.FirstOffset)
}

// appendUnknownControl appends a control batch of a type that nobody knows yet, made of the end of a transaction.
func (f *kafkaFolder) appendUnknownControl(kind int, end int64) {
	raw, err := f.d.Marker(true, end, f.now, 0, 0, 0)
	require.NoError(f.t, err)
	binary.BigEndian.PutUint32(raw[12:], uint32(f.epoch))
	binary.BigEndian.PutUint16(raw[21:], 1<<5)
	for i := range 10 {
		raw[43+i] = 0xff
	}
	raw[69] = byte(kind)
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	got, err := f.l.AppendAsFollower(raw, f.epoch)
	f.noteResult(err, "control batch of type %d, %d bytes: %d", kind, len(raw), got.FirstOffset)
}
