package interop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/golden"
	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
)

// recordsOf collects what an iterator over a log of CreateTime gives.
func recordsOf(t *testing.T, records func(func(record.Record, error) bool)) (out []Record) {
	t.Helper()
	for r, err := range records {
		require.NoError(t, err)
		out = append(out, onWire(r.Clone(), r.Offset, "CreateTime"))
	}
	return out
}

// numbered are records whose values say which they are.
func numbered(what string, n int) []Record {
	rs := make([]Record, n)
	for i := range rs {
		rs[i] = Record{Timestamp: time.Now().UnixMilli(), Key: []byte(what), Value: fmt.Appendf(nil, "%s %d", what, i), Headers: []Header{}}
	}
	return rs
}

// encoded is one batch of n records under a producer's id.
func encoded(t *testing.T, p record.Producer, what string, n int) record.Batch {
	t.Helper()
	b := record.NewBuilder(record.BuilderOptions{Producer: &p})
	for _, r := range numbered(what, n) {
		require.NoError(t, b.Add(record.Record{Timestamp: r.Timestamp, Key: r.Key, Value: r.Value}))
	}
	batch, err := b.Finish()
	require.NoError(t, err)
	batch, err = record.View(bytes.Clone(batch.Bytes()))
	require.NoError(t, err)
	return batch
}

// asSeen compares what a real consumer met in both isolations with what a log or reader of ours shows.
func asSeen(t *testing.T, uncommitted, committed Consumed, o log.Offsets, ours func(log.Isolation) []Record) {
	t.Helper()
	require.Equal(t, uncommitted.EndOffset, o.LogEnd)
	require.Equal(t, committed.EndOffset, o.LastStable, "a read-committed consumer's end is the last stable offset")
	sameRecords(t, uncommitted.Records, ours(log.LogEnd))
	sameRecords(t, committed.Records, ours(log.ReadCommitted))
}

func consumeBoth(t *testing.T, b *Broker, topic string) (uncommitted, committed Consumed) {
	t.Helper()
	uncommitted, err := b.Consume(topic, "read_uncommitted", 0)
	require.NoError(t, err)
	committed, err = b.Consume(topic, "read_committed", 0)
	require.NoError(t, err)
	return uncommitted, committed
}

// TestWhatARealTransactionalProducerWroteReadsTheSameHere interleaves the transactions of Kafka's producers, commits some, aborts
// some, leaves one open, and reads the folder.
func TestWhatARealTransactionalProducerWroteReadsTheSameHere(t *testing.T) {
	const topic = "transactions"
	ctx := context.Background()
	b := newBroker(t, nil)
	require.NoError(t, b.Start())
	_, err := b.CreateTopic(topic, tiny())
	require.NoError(t, err)
	plain, err := b.NewProducer(nil)
	require.NoError(t, err)
	var all []*LiveProducer
	for i := range 3 {
		p, err := b.NewProducer(map[string]string{"transactional.id": fmt.Sprint("writer-", i), "transaction.timeout.ms": "600000"})
		require.NoError(t, err)
		all = append(all, p)
	}
	r := rand.New(rand.NewPCG(21, uint64(rounds(t, "PARTLOG_INTEROP_SEED", 5))))
	begun := make([]bool, len(all))
	for step := range 60 {
		i := r.IntN(len(all) + 1)
		switch {
		case i == len(all):
			_, err = plain.Send(topic, numbered(fmt.Sprint("plain ", step), 1+r.IntN(4)))
		case begun[i] && r.IntN(3) == 0:
			err = all[i].End(r.IntN(2) == 0)
			begun[i] = false
		default:
			if !begun[i] {
				require.NoError(t, all[i].Begin())
				begun[i] = true
			}
			_, err = all[i].Send(topic, numbered(fmt.Sprint("writer ", i, " ", step), 1+r.IntN(4)))
		}
		require.NoError(t, err)
	}
	for i, p := range all { // the last one's stays open
		if i < len(all)-1 && begun[i] {
			require.NoError(t, p.End(i == 0))
		}
	}
	if !begun[len(all)-1] {
		require.NoError(t, all[len(all)-1].Begin())
	}
	_, err = all[len(all)-1].Send(topic, numbered("left open", 3))
	require.NoError(t, err)
	_, err = plain.Send(topic, numbered("behind", 5))
	require.NoError(t, err)
	uncommitted, committed := consumeBoth(t, b, topic)
	require.Less(t, committed.EndOffset, uncommitted.EndOffset)
	known, err := b.DescribeProducers(topic)
	require.NoError(t, err)
	for _, p := range append(all, plain) {
		require.NoError(t, p.Close())
	}
	require.NoError(t, b.Stop())

	folder := filepath.Join(b.Root, topic+"-0")
	reader, err := log.OpenReader(folder, log.ReaderOptions{})
	require.NoError(t, err)
	asSeen(t, uncommitted, committed, reader.Offsets(), func(i log.Isolation) []Record {
		return recordsOf(t, reader.Records(ctx, 0, log.WithIsolation(i)))
	})
	require.NoError(t, reader.Close())

	// Ours ends the transaction that was left open, as nobody else may.
	dir, l, err := openOurs(ctx, ourOpen{Root: b.Root, Topic: topic, Config: tiny()})
	require.NoError(t, err)
	require.True(t, l.Recovery().Clean)
	require.Empty(t, l.Recovery().Rebuilt)
	asSeen(t, uncommitted, committed, l.Offsets(), func(i log.Isolation) []Record {
		return recordsOf(t, l.Records(ctx, 0, log.WithIsolation(i)))
	})
	require.Equal(t, known, described(l.Producers()))
	open := l.OpenTransactions()
	require.Len(t, open, 1)
	require.Equal(t, committed.EndOffset, open[0].FirstOffset)
	_, err = l.AbortTransaction(ctx, open[0])
	require.NoError(t, err)
	want := recordsOf(t, l.Records(ctx, 0, log.WithIsolation(log.ReadCommitted)))
	require.Equal(t, l.Offsets().LogEnd, l.Offsets().LastStable)
	require.NoError(t, dir.Close())
	require.NoError(t, b.Start())
	got, err := b.Consume(topic, "read_committed", 0)
	require.NoError(t, err)
	sameRecords(t, want, got.Records)
	require.Equal(t, []byte("behind 4"), want[len(want)-1].Value)
	require.NoError(t, b.Stop())
}

// described are our producers as Kafka describes them to administrators.
func described(all []log.ProducerInfo) (out []golden.ProducerFacts) {
	for _, f := range all {
		out = append(out, golden.ProducerFacts{ProducerID: f.ID, Epoch: f.Epoch, LastSequence: f.LastSequence, LastOffset: -1,
			LastTimestamp: f.LastTimestamp, CoordinatorEpoch: f.CoordinatorEpoch, TxnFirstOffset: f.TxnStart, CachedBatches: -1})
	}
	return out
}

// TestARealReadCommittedConsumerSeesWhatOursDoes hands a broker a folder that we wrote: interleaved transactions through our
// handle and through EndTxn under all transaction versions, over several epochs and segments, some of them open.
func TestARealReadCommittedConsumerSeesWhatOursDoes(t *testing.T) {
	const topic = "ours"
	ctx := context.Background()
	b := newBroker(t, nil)
	require.NoError(t, b.Start())
	id, err := b.CreateTopic(topic, tiny())
	require.NoError(t, err)
	require.NoError(t, b.Stop())

	root := t.TempDir()
	r := rand.New(rand.NewPCG(22, uint64(rounds(t, "PARTLOG_INTEROP_SEED", 5))))
	dir, l, err := openOurs(ctx, ourOpen{Root: root, Topic: topic, Config: tiny(), Durability: log.Buffered})
	require.NoError(t, err)
	const handles, raws = 3, 3
	var byHandle [handles]*log.Producer
	var begun [handles]bool
	var byHand [raws]record.Producer
	for i := range byHandle {
		byHandle[i] = l.Producer(int64(7000+i), 0)
	}
	for i := range byHand {
		byHand[i] = record.Producer{ID: int64(8000 + i), Transactional: true}
	}
	for step := range 300 {
		if step%60 == 0 {
			require.NoError(t, l.AssignEpoch(int32(step/60)))
		}
		switch i := r.IntN(handles + raws + 1); {
		case i == 0:
			_, err = l.Append(ctx, record.Record{Value: fmt.Appendf(nil, "plain %d", step)})
		case i <= handles:
			i--
			p := byHandle[i]
			switch {
			case begun[i] && r.IntN(3) == 0:
				begun[i] = false
				if r.IntN(2) == 0 {
					err = p.Commit(ctx)
				} else {
					err = p.Abort(ctx)
				}
			default:
				if !begun[i] && r.IntN(3) > 0 {
					require.NoError(t, p.Begin())
					begun[i] = true
				}
				_, err = p.Append(ctx, record.Record{Value: fmt.Appendf(nil, "handle %d %d", i, step)}, record.Record{Value: bytes.Repeat([]byte("x"), r.IntN(300))})
			}
		default:
			p := &byHand[i-handles-1]
			if r.IntN(3) > 0 {
				n := 1 + r.IntN(4)
				_, err = l.AppendBatches(ctx, encoded(t, *p, fmt.Sprint("by hand ", p.ID, " ", step), n).Bytes(), log.AppendOptions{})
				p.BaseSequence = record.IncrementSequence(p.BaseSequence, int32(n))
				break
			}
			version := r.IntN(3)
			if version == 2 || r.IntN(4) == 0 {
				p.Epoch, p.BaseSequence = p.Epoch+1, 0
			}
			_, err = l.EndTxn(ctx, *p, r.IntN(2) == 0, log.EndTxnOptions{CoordinatorEpoch: int32(step / 100), TransactionVersion: version})
		}
		require.NoError(t, err)
	}
	if !begun[0] {
		require.NoError(t, byHandle[0].Begin())
	}
	_, err = byHandle[0].Append(ctx, record.Record{Value: []byte("left open")})
	require.NoError(t, err)
	_, err = l.AppendBatches(ctx, encoded(t, byHand[0], "left open by hand", 2).Bytes(), log.AppendOptions{})
	require.NoError(t, err)
	_, err = l.Append(ctx, record.Record{Value: []byte("behind")})
	require.NoError(t, err)
	require.Greater(t, len(l.SegmentInfos()), 2)
	at, known := l.Offsets(), described(l.Producers())
	seen := map[log.Isolation][]Record{}
	for _, i := range []log.Isolation{log.LogEnd, log.ReadCommitted} {
		seen[i] = recordsOf(t, l.Records(ctx, 0, log.WithIsolation(i)))
	}
	require.NoError(t, dir.Close())
	require.NoError(t, Place(root, b.Root, topic+"-0", id))
	require.NoError(t, SetCleanMarker(b.Root, true))

	require.NoError(t, b.Start())
	require.Empty(t, rebuilding(b.LogLines("partition="+topic+"-0")))
	uncommitted, committed := consumeBoth(t, b, topic)
	asSeen(t, uncommitted, committed, at, func(i log.Isolation) []Record { return seen[i] })
	got, err := b.DescribeProducers(topic)
	require.NoError(t, err)
	require.Equal(t, known, got)

	// Kafka's tool ends our open transactions, the broker goes on, and we read all of it.
	for _, p := range got {
		if p.TxnFirstOffset >= 0 {
			require.NoError(t, b.AbortTransaction(topic, p))
		}
	}
	_, err = b.ProduceTransaction(topic, "theirs", "commit", numbered("theirs, committed", 4))
	require.NoError(t, err)
	_, err = b.ProduceTransaction(topic, "theirs", "abort", numbered("theirs, aborted", 4))
	require.NoError(t, err)
	uncommitted, committed = consumeBoth(t, b, topic)
	require.Equal(t, uncommitted.EndOffset, committed.EndOffset, "no transaction is open")
	require.NoError(t, b.Stop())
	reader, err := log.OpenReader(filepath.Join(b.Root, topic+"-0"), log.ReaderOptions{})
	require.NoError(t, err)
	asSeen(t, uncommitted, committed, reader.Offsets(), func(i log.Isolation) []Record {
		return recordsOf(t, reader.Records(ctx, 0, log.WithIsolation(i)))
	})
	require.NoError(t, reader.Close())
}

// batchesOf are copies of the batches of a producer in the order of the log, as a client would send them.
func batchesOf(t *testing.T, l *log.Log, id int64) (out []record.Batch) {
	t.Helper()
	for b, err := range l.Batches(context.Background(), 0, log.WithIsolation(log.LogEnd)) {
		require.NoError(t, err)
		if got, _, _ := b.Producer(); got == id {
			b, err = record.View(bytes.Clone(b.Bytes()))
			require.NoError(t, err)
			out = append(out, b)
		}
	}
	return out
}

// again is the batch as its client sends it once more.
func again(t *testing.T, b record.Batch) record.Batch {
	t.Helper()
	b, err := record.View(bytes.Clone(b.Bytes()))
	require.NoError(t, err)
	b.SetBaseOffset(0)
	b.SetLeaderEpoch(-1)
	return b
}

// TestRepetitionsAreRecognisedAcrossTheHandOver sends batches of real idempotent producers to us again, and ours to a broker.
func TestRepetitionsAreRecognisedAcrossTheHandOver(t *testing.T) {
	const topic = "repeated"
	ctx := context.Background()
	b := newBroker(t, map[string]string{"transaction.partition.verification.enable": "false"}) // no coordinator knows our transactions
	_, d := kafka(t)
	require.NoError(t, b.Start())
	_, err := b.CreateTopic(topic, nil)
	require.NoError(t, err)
	lives, err := b.NewProducer(nil)
	require.NoError(t, err)
	defer lives.Close()
	gone, err := b.NewProducer(map[string]string{"compression.type": "lz4"})
	require.NoError(t, err)
	for i := range 7 {
		for _, p := range []*LiveProducer{lives, gone} {
			_, err = p.Send(topic, numbered(fmt.Sprint("real ", i), 2+i%3))
			require.NoError(t, err)
		}
	}
	require.NoError(t, gone.Close())
	known, err := b.DescribeProducers(topic)
	require.NoError(t, err)
	require.Len(t, known, 2)
	require.NoError(t, b.Stop())

	// To us, and to Kafka's UnifiedLog: the last batch is known, older ones are not any more, and both answer the same.
	copied := t.TempDir()
	require.NoError(t, os.CopyFS(copied, os.DirFS(b.Root)))
	theirs, err := d.Open(OpenOptions{Root: copied, Topic: topic, NowMs: -1})
	require.NoError(t, err)
	dir, l, err := openOurs(ctx, ourOpen{Root: b.Root, Topic: topic})
	require.NoError(t, err)
	end := l.Offsets().LogEnd
	for _, p := range known {
		all := batchesOf(t, l, p.ProducerID)
		require.NotEmpty(t, all)
		for i, batch := range all {
			want, kafka := theirs.AppendAsLeader(again(t, batch).Bytes(), 0, "")
			got, err := l.AppendBatches(ctx, again(t, batch).Bytes(), log.AppendOptions{})
			if i < len(all)-1 {
				var k *KafkaError
				require.True(t, errors.As(kafka, &k), "%v", kafka)
				require.Equal(t, k.Class, refusal(err))
				continue
			}
			require.NoError(t, kafka)
			require.NoError(t, err)
			require.True(t, got.Duplicate)
			require.Equal(t, [2]int64{batch.BaseOffset(), batch.LastOffset()}, [2]int64{got.Base, got.Last})
			require.Equal(t, [2]int64{want.FirstOffset, want.LastOffset}, [2]int64{got.Base, got.Last})
		}
	}
	require.Equal(t, end, l.Offsets().LogEnd)
	require.NoError(t, theirs.Abandon())

	// Batches that we took: of a real producer that is gone, of our handle, by hand, and of a transaction.
	last := batchesOf(t, l, known[1].ProducerID)
	_, epoch, _ := last[0].Producer()
	var sent []record.Batch
	next := record.Producer{ID: known[1].ProducerID, Epoch: epoch, BaseSequence: record.IncrementSequence(known[1].LastSequence, 1)}
	if string(last[0].Codec().String()) != "lz4" {
		next.ID, next.BaseSequence = known[0].ProducerID, record.IncrementSequence(known[0].LastSequence, 1)
	}
	for _, p := range []record.Producer{next, {ID: 5000, Epoch: 3}, {ID: 5001, Epoch: 1, BaseSequence: 1<<31 - 2}, {ID: 5002, Transactional: true}} {
		batch := encoded(t, p, "ours", 3)
		_, err = l.AppendBatches(ctx, again(t, batch).Bytes(), log.AppendOptions{})
		require.NoError(t, err)
		sent = append(sent, batchesOf(t, l, p.ID)[len(batchesOf(t, l, p.ID))-1])
	}
	_, err = l.Producer(5003, 0).Append(ctx, record.Record{Value: []byte("handle")})
	require.NoError(t, err)
	sent = append(sent, batchesOf(t, l, 5003)[0])
	_, err = l.EndTxn(ctx, record.Producer{ID: 5002}, true, log.EndTxnOptions{TransactionVersion: 1}) // an equal epoch: its batch stays known
	require.NoError(t, err)
	end = l.Offsets().LogEnd
	require.NoError(t, dir.Close())

	require.NoError(t, b.Start())
	for _, batch := range sent {
		base, err := b.ProduceRaw(topic, again(t, batch))
		require.NoError(t, err)
		id, _, _ := batch.Producer()
		require.Equal(t, batch.BaseOffset(), base, "producer %d", id)
	}
	latest, err := b.ListOffset(topic, "latest", 0)
	require.NoError(t, err)
	require.Equal(t, end, latest.Offset, "nothing was written")

	// What leaves a gap is refused, what continues is not, and the producer that lived through all of it notices nothing.
	for _, row := range []struct {
		p       record.Producer
		refused string
	}{
		{record.Producer{ID: 5000, Epoch: 3, BaseSequence: 4}, "OutOfOrderSequenceException"},
		{record.Producer{ID: 5000, Epoch: 2, BaseSequence: 0}, "InvalidProducerEpochException"},
		{record.Producer{ID: 5000, Epoch: 3, BaseSequence: 3}, ""},
		{record.Producer{ID: 5001, Epoch: 1, BaseSequence: 1}, ""}, // 2^31-2, 2^31-1, 0, 1
	} {
		_, err := b.ProduceRaw(topic, encoded(t, row.p, "on", 1))
		if row.refused == "" {
			require.NoError(t, err, "%+v", row.p)
			continue
		}
		var k *KafkaError
		require.True(t, errors.As(err, &k), "%v", err)
		require.Equal(t, row.refused, k.Class)
	}
	offsets, err := lives.Send(topic, numbered("still here", 1))
	require.NoError(t, err)
	require.Equal(t, end+2, offsets[0])
	require.NoError(t, b.Stop())
	reader, err := log.OpenReader(filepath.Join(b.Root, topic+"-0"), log.ReaderOptions{})
	require.NoError(t, err)
	defer reader.Close()
	for batch, err := range reader.Batches(ctx, offsets[0], log.WithIsolation(log.LogEnd)) {
		require.NoError(t, err)
		id, _, sequence := batch.Producer()
		before := known[0]
		if id != before.ProducerID {
			before = known[1]
		}
		require.Equal(t, before.ProducerID, id, "it kept its id")
		require.Equal(t, before.LastSequence+1, sequence, "and went on in its sequence")
	}
}
