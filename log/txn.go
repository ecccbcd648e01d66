package log

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/partlog/partlog/internal/producerstate"
	"github.com/partlog/partlog/record"
)

// EndTxnOptions of one EndTxn; the zero value is a first coordinator's, before KIP-890.
type EndTxnOptions struct {
	// CoordinatorEpoch fences: a marker of an older coordinator than the producer's last one is ErrFenced. Not negative.
	CoordinatorEpoch int32
	// TransactionVersion is the coordinator's (transaction.version), 0 to 2: from 2 on the producer's epoch must be above that
	// of the data.
	TransactionVersion int
	// LeaderEpoch, if given, must be the log's current epoch, else ErrFenced.
	LeaderEpoch *int32
	// Durability of the marker; Inherit takes the log's.
	Durability Durability
}

// Validate is a *ConfigError for what has no meaning.
func (o EndTxnOptions) Validate() error {
	switch {
	case o.CoordinatorEpoch < 0:
		return &ConfigError{Field: "EndTxnOptions.CoordinatorEpoch", Value: fmt.Sprint(o.CoordinatorEpoch), Reason: "negative"}
	case o.TransactionVersion < 0 || o.TransactionVersion > 2:
		return &ConfigError{Field: "EndTxnOptions.TransactionVersion", Value: fmt.Sprint(o.TransactionVersion), Reason: "not 0, 1 or 2"}
	case o.Durability > Buffered:
		return &ConfigError{Field: "EndTxnOptions.Durability", Value: o.Durability.String(), Reason: "not one of the constants"}
	}
	return nil
}

// EndTxn writes the marker that commits or aborts the open transaction of a producer, as a transaction coordinator asks
// for; p.BaseSequence is ignored. Without an open transaction, and for a producer that the log does not know, only the marker is
// written: a repeated call does no harm.
//
// Errors are Append's, *ConfigError for options that have no meaning, and ErrFenced: the producer's epoch, or the
// coordinator's, is older than the last one seen, or the log is in another leader epoch.
func (l *Log) EndTxn(ctx context.Context, p record.Producer, commit bool, o EndTxnOptions) (Appended, error) {
	if err := l.admit(ctx); err != nil {
		return notAppended, err
	}
	if err := o.Validate(); err != nil {
		return notAppended, err
	}
	if p.ID < 0 || p.Epoch < 0 {
		return notAppended, fmt.Errorf("%w: a marker of producer %d, epoch %d: neither may be negative", ErrInvalidRecord, p.ID, p.Epoch)
	}
	m := l.marker(p, commit, o.CoordinatorEpoch)
	m.txnVersion = o.TransactionVersion
	return l.append(ctx, &m, &AppendOptions{LeaderEpoch: o.LeaderEpoch, Durability: o.Durability})
}

// marker prepares the end of a transaction.
func (l *Log) marker(p record.Producer, commit bool, coordinatorEpoch int32) prepared {
	now := l.now()
	m := prepared{role: Leader, now: now, count: 1, appendTime: -1, producers: true, origin: record.Coordinator}
	marker := record.Marker(commit, p, coordinatorEpoch, now)
	if l.cfg().TimestampType == record.LogAppendTime {
		marker.SetAppendTime(now.UnixMilli())
		m.appendTime = now.UnixMilli()
	}
	m.raw, m.maxTime = marker.Bytes(), marker.MaxTimestamp()
	m.valid = record.Validated{Batch: marker, Count: 1, MaxTimestamp: m.maxTime, AppendTime: m.appendTime}
	return m
}

// OpenTransaction is a transaction that has records and no marker yet. The oldest one holds the last stable offset back,
// and with it every read-committed reader.
type OpenTransaction struct {
	ProducerID    int64
	Epoch         int16
	FirstOffset   int64
	LastOffset    int64         // of its last batch; -1 unknown
	LastTimestamp int64         // Unix ms of its last record; -1 none
	Age           time.Duration // since its last record, by the log's clock; -1 if that has no time
}

// Hangs says whether nobody can be expected to end the transaction: its last record is older than a coordinator lets one
// run (transaction.max.timeout.ms; Kafka's default is 15 minutes) and five minutes more, as Kafka's metric
// partitions-with-late-transactions counts.
func (t OpenTransaction) Hangs(maxTimeout time.Duration) bool {
	return t.Age >= 0 && t.Age-5*time.Minute > maxTimeout
}

// OpenTransactions lists the open transactions, the oldest first. AbortTransaction ends one that hangs.
func (l *Log) OpenTransactions() []OpenTransaction {
	if l.producers == nil {
		return nil
	}
	_ = l.write.lock(context.Background())
	defer l.write.unlock()
	now := l.now().UnixMilli()
	open := l.producers.state.Open()
	all := make([]OpenTransaction, 0, len(open))
	for _, t := range open {
		age := time.Duration(-1)
		if t.LastTimestamp >= 0 {
			age = time.Duration(max(0, now-t.LastTimestamp)) * time.Millisecond
		}
		all = append(all, OpenTransaction{ProducerID: t.ProducerID, Epoch: t.Epoch, FirstOffset: t.FirstOffset, LastOffset: t.LastOffset,
			LastTimestamp: t.LastTimestamp, Age: age})
	}
	return all
}

// AbortTransaction ends a transaction that OpenTransactions listed, and that nobody else will end, with an ABORT marker under
// the producer's own epoch and the coordinator epoch it saw last. Read-committed readers go on behind it. A producer that is
// alive after all keeps its epoch, but must begin anew. ErrTxnState: that transaction is over.
func (l *Log) AbortTransaction(ctx context.Context, t OpenTransaction) (Appended, error) {
	if err := l.admit(ctx); err != nil {
		return notAppended, err
	}
	if err := l.write.lock(ctx); err != nil {
		return notAppended, err
	}
	known, ok := l.producers.state.Producer(t.ProducerID)
	l.write.unlock()
	if !ok || known.TxnFirstOffset < 0 || known.TxnFirstOffset != t.FirstOffset {
		return notAppended, l.noTransaction(t.ProducerID, t.FirstOffset)
	}
	m := l.marker(record.Producer{ID: t.ProducerID, Epoch: known.Epoch}, false, max(0, known.CoordinatorEpoch))
	m.within = &t
	return l.append(ctx, &m, &AppendOptions{})
}

// AbortedTxns lists the aborted transactions that the indexes have: all whose data is still there, and maybe others.
func (l *Log) AbortedTxns() ([]AbortedTxn, error) {
	if l.over() {
		return nil, ErrClosed
	}
	all, err := l.view.aborted(*l.list.Load(), 0, l.load().LogEnd)
	slices.SortFunc(all, func(a, b AbortedTxn) int { return cmp.Compare(a.LastOffset, b.LastOffset) })
	return all, err
}

// TxnGuard proves that the coordinator was asked about a transaction; the zero value proves nothing.
type TxnGuard = producerstate.Guard

// VerifyTransaction says that a producer is about to begin a transaction here with a batch of this epoch and sequence, and
// that its coordinator is going to be asked whether it may (KIP-890). The guard goes into AppendOptions once the coordinator
// has said yes; it is of this log and producer, and void once a transactional batch or a marker of the producer was appended,
// or after Config.ProducerExpiry. Repeated calls return the same one; the zero guard means that the transaction is open and
// needs none, or that the epoch is stale and will be refused. bumps: the producer uses transaction version 2.
func (l *Log) VerifyTransaction(id int64, epoch int16, sequence int32, bumps bool) TxnGuard {
	if l.producers == nil {
		return TxnGuard{}
	}
	_ = l.write.lock(context.Background())
	defer l.write.unlock()
	now := l.now().UnixMilli()
	l.producers.state.ExpireDue(now)
	return l.producers.state.BeginVerification(id, epoch, sequence, bumps, now)
}
