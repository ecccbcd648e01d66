package interop

import (
	"cmp"
	"slices"

	"github.com/partlog/partlog/internal/golden"
	"github.com/partlog/partlog/record"
)

// LiveProducer is a producer of Kafka's clients that lives until Close, or as long as the driver.
type LiveProducer struct {
	b  *Broker
	id int
}

// NewProducer starts a producer with the given client settings; with a transactional.id it takes that id over.
func (b *Broker) NewProducer(config map[string]string) (*LiveProducer, error) {
	var r struct{ Producer int }
	_, err := b.d.call("producerOpen", args{"bootstrap": b.Bootstrap, "config": config}, &r)
	return &LiveProducer{b: b, id: r.Producer}, err
}

func (p *LiveProducer) Begin() error { return p.call("producerBegin", args{}, nil) }

// Send sends records in order and returns their offsets once all are acknowledged.
func (p *LiveProducer) Send(topic string, rs []Record) (offsets []int64, err error) {
	err = p.call("producerSend", args{"topic": topic, "records": rs}, &offsets)
	return offsets, err
}

func (p *LiveProducer) End(commit bool) error {
	return p.call("producerEnd", args{"commit": commit}, nil)
}

// Close ends it at once: a transaction stays open.
func (p *LiveProducer) Close() error { return p.call("producerClose", args{}, nil) }

func (p *LiveProducer) call(cmd string, a args, out any) error {
	a["producer"] = p.id
	_, err := p.b.d.call(cmd, a, out)
	return err
}

// ProduceRaw sends one batch as it is, in a produce request of its own, and returns the base offset of the answer. A refusal is
// a *KafkaError.
func (b *Broker) ProduceRaw(topic string, batch record.Batch) (base int64, err error) {
	var r struct{ BaseOffset int64 }
	_, err = b.d.call("rawProduce", args{"bootstrap": b.Bootstrap, "topic": topic, "raw": batch.Bytes(), "transactional": batch.Transactional()}, &r)
	return r.BaseOffset, err
}

// WriteMarker ends a transaction as a coordinator asks for it.
func (b *Broker) WriteMarker(topic string, p record.Producer, commit bool, coordinatorEpoch int32, transactionVersion int) error {
	_, err := b.d.call("writeMarker", args{"bootstrap": b.Bootstrap, "topic": topic, "producerId": p.ID, "producerEpoch": p.Epoch,
		"commit": commit, "coordinatorEpoch": coordinatorEpoch, "transactionVersion": transactionVersion}, nil)
	return err
}

// DescribeProducers is what Kafka tells its administrators: without offsets and counts of batches, which are -1.
func (b *Broker) DescribeProducers(topic string) (all []golden.ProducerFacts, err error) {
	_, err = b.d.call("describeProducers", args{"bootstrap": b.Bootstrap, "topic": topic}, &all)
	for i := range all {
		all[i].LastOffset, all[i].CachedBatches = -1, -1
	}
	slices.SortFunc(all, func(a, b golden.ProducerFacts) int { return cmp.Compare(a.ProducerID, b.ProducerID) })
	return all, err
}

// AbortTransaction does what Kafka's tool for hanging transactions does.
func (b *Broker) AbortTransaction(topic string, t golden.ProducerFacts) error {
	_, err := b.d.call("abortTransaction", args{"bootstrap": b.Bootstrap, "topic": topic, "producerId": t.ProducerID,
		"producerEpoch": t.Epoch, "coordinatorEpoch": max(0, t.CoordinatorEpoch)}, nil)
	return err
}
