package interop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/golden"
	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
)

// sent is a batch that was tried.
type sent struct {
	p record.Producer
	n int
}

// someBatch is the next one of a producer that is known, or something close to it.
func (p *pair) someBatch() sent {
	r := p.r
	if len(p.sent) > 0 && r.IntN(6) == 0 {
		return p.sent[max(0, len(p.sent)-1-r.IntN(25))]
	}
	f := p.known(1 + r.Int64N(6))
	s := sent{record.Producer{ID: f.ProducerID, Epoch: f.Epoch, BaseSequence: record.IncrementSequence(f.LastSequence, 1), Transactional: f.TxnFirstOffset >= 0}, 1 + r.IntN(4)}
	if f.Epoch < 0 {
		s.p.Epoch, s.p.BaseSequence = int16(r.IntN(3)), []int32{0, 0, 7, math.MaxInt32 - int32(r.IntN(5))}[r.IntN(4)]
	}
	if f.TxnFirstOffset < 0 {
		s.p.Transactional = r.IntN(2) == 0
	}
	switch r.IntN(24) {
	case 0:
		s.p.BaseSequence = record.IncrementSequence(s.p.BaseSequence, int32(1+r.IntN(4)))
	case 1:
		s.p.BaseSequence = record.DecrementSequence(max(0, s.p.BaseSequence), int32(1+r.IntN(6)))
	case 2:
		s.p.Epoch = max(0, s.p.Epoch-1)
	case 3, 4:
		s.p.Epoch, s.p.BaseSequence = s.p.Epoch+1, 0
	case 5:
		s.p.Epoch++
	case 6:
		s.p.Transactional = !s.p.Transactional
	case 7:
		s.p.BaseSequence = 0
	case 8:
		s.p.Epoch, s.p.BaseSequence = s.p.Epoch+1, math.MaxInt32-int32(r.IntN(4))
	}
	return s
}

// build encodes a batch of which both get a copy.
func (p *pair) build(s sent) record.Batch {
	o := record.BuilderOptions{Codec: []record.Codec{record.None, record.None, record.Zstd}[p.r.IntN(3)]}
	if s.p.ID >= 0 {
		o.Producer = &s.p
	}
	b := record.NewBuilder(o)
	for i := range s.n {
		require.NoError(p.t, b.Add(record.Record{Timestamp: p.now - p.r.Int64N(1000), Value: fmt.Appendf(nil, "%d %d", p.at, i)}))
	}
	batch, err := b.Finish()
	require.NoError(p.t, err)
	batch, err = record.View(bytes.Clone(batch.Bytes()))
	require.NoError(p.t, err)
	return batch
}

func (p *pair) send(s sent) {
	if s.p.ID >= 0 {
		s.p.Epoch = p.renewed(s.p.ID, s.p.Epoch)
		p.sent = append(p.sent, s)
	}
	g := p.guard(s)
	raw := p.build(s).Bytes()
	theirs, kafka := p.theirs.AppendVerified(raw, p.epoch, g.theirs)
	ours, err := p.ours.AppendBatches(context.Background(), raw, log.AppendOptions{Verify: p.verify, Guard: g.ours})
	what := "batch"
	if ours.Duplicate {
		what = "repeated batch"
	}
	p.same(fmt.Sprintf("%s %+v × %d, guard %d, verified %v", what, s.p, s.n, g.theirs, p.verify), what, ours, err, theirs, kafka)
}

// end ends a transaction, or tries to.
func (p *pair) end() {
	r := p.r
	f := p.known(1 + r.Int64N(6))
	if open := slices.DeleteFunc(slices.Clone(p.seen.Producers), func(f golden.ProducerFacts) bool { return f.TxnFirstOffset < 0 }); len(open) > 0 && r.IntN(3) > 0 {
		f = open[r.IntN(len(open))]
	}
	version := r.IntN(3)
	m := record.Producer{ID: f.ProducerID, Epoch: max(0, f.Epoch)}
	if version == 2 && r.IntN(6) > 0 {
		m.Epoch++
	}
	switch r.IntN(12) {
	case 0:
		m.Epoch = max(0, m.Epoch-1)
	case 1:
		m.Epoch++
	}
	coordinator := max(0, f.CoordinatorEpoch)
	switch r.IntN(8) {
	case 0:
		coordinator = max(0, coordinator-1)
	case 1:
		coordinator++
	}
	m.Epoch = p.renewed(m.ID, m.Epoch)
	commit := r.IntN(2) == 0
	raw := record.Marker(commit, m, coordinator, time.UnixMilli(p.now)).Bytes()
	theirs, kafka := p.theirs.AppendMarker(raw, p.epoch, version)
	ours, err := p.ours.EndTxn(context.Background(), m, commit, log.EndTxnOptions{CoordinatorEpoch: coordinator, TransactionVersion: version})
	p.same(fmt.Sprintf("marker %v %+v coordinator %d version %d", commit, m, coordinator, version), "marker", ours, err, theirs, kafka)
}

// follow appends a few batches as a follower, which judges neither sequences nor epochs. At most the last one is a marker:
// of more than one, each side writes another last stable offset into the index of aborted transactions. No batch inside of a
// transaction is without it, which no leader lets pass: Kafka's follower stops there, ours goes on. Nor does a producer's
// epoch go back, see renewed: a set is like a segment.
func (p *pair) follow() {
	var raw []byte
	var what []string
	last := map[int64]record.Producer{}
	next := p.seen.LogEndOffset
	add := func(b record.Batch) {
		b.SetBaseOffset(next)
		b.SetLeaderEpoch(p.epoch)
		next = b.NextOffset()
		raw = append(raw, b.Bytes()...)
	}
	for range 1 + p.r.IntN(3) {
		s := p.someBatch()
		before := last[s.p.ID]
		s.p.Transactional = s.p.Transactional || before.Transactional || p.known(s.p.ID).TxnFirstOffset >= 0
		s.p.Epoch = max(p.renewed(s.p.ID, s.p.Epoch), before.Epoch, p.known(s.p.ID).Epoch)
		last[s.p.ID] = s.p
		add(p.build(s))
		what = append(what, fmt.Sprintf("%+v × %d", s.p, s.n))
		if p.r.IntN(4) == 0 {
			next += p.r.Int64N(3)
		}
	}
	if p.r.IntN(2) == 0 {
		f := p.known(1 + p.r.Int64N(6))
		epoch := max(0, p.renewed(f.ProducerID, f.Epoch+int16(p.r.IntN(2))), last[f.ProducerID].Epoch)
		add(record.Marker(p.r.IntN(2) == 0, record.Producer{ID: f.ProducerID, Epoch: epoch},
			max(0, f.CoordinatorEpoch+int32(p.r.IntN(3))-1), time.UnixMilli(p.now)))
		what = append(what, fmt.Sprintf("marker of %d", f.ProducerID))
	}
	theirs, kafka := p.theirs.AppendAsFollower(raw, p.epoch)
	ours, err := p.ours.AppendBatches(context.Background(), raw, log.AppendOptions{As: log.Follower, LeaderEpoch: &p.epoch})
	p.same("followed "+strings.Join(what, ", "), "followed", ours, err, theirs, kafka)
}

// same compares the two answers to an append.
func (p *pair) same(what, kind string, ours log.Appended, err error, theirs Appended, kafka error) {
	p.t.Helper()
	p.note("%s: %d to %d, %v", what, ours.Base, ours.Last, err)
	class := refusal(err)
	var k *KafkaError
	if kafka != nil && !errors.As(kafka, &k) {
		p.t.Fatal(kafka)
	}
	p.answers[strings.TrimSpace(kind+" "+class)]++
	if k != nil {
		require.Equal(p.t, k.Class, class, "ours: %v; Kafka's: %v", err, kafka)
		return
	}
	require.NoError(p.t, err)
	require.Equal(p.t, [3]int64{theirs.FirstOffset, theirs.LastOffset, theirs.LogAppendTime}, [3]int64{ours.Base, ours.Last, ours.AppendTime})
}
