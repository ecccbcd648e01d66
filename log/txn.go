package log

import (
	"context"
	"fmt"

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
// for; p.BaseSequence is ignored. Without an open transaction only the marker is written: a repeated call does no harm.
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
		return notAppended, fmt.Errorf("%w: a marker of producer %d, epoch %d", ErrInvalidRecord, p.ID, p.Epoch)
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
	if l.cfg.TimestampType == record.LogAppendTime {
		marker.SetAppendTime(now.UnixMilli())
		m.appendTime = now.UnixMilli()
	}
	m.raw, m.maxTime = marker.Bytes(), marker.MaxTimestamp()
	m.valid = record.Validated{Batch: marker, Count: 1, MaxTimestamp: m.maxTime, AppendTime: m.appendTime}
	return m
}
