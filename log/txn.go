package log

import (
	"context"
	"fmt"

	"github.com/partlog/partlog/record"
)

// EndTxn writes the marker that commits or aborts the open transaction of a producer, as a transaction coordinator asks
// for; p.BaseSequence is ignored. Without an open transaction only the marker is written: a repeated call does no harm.
// transactionVersion is the coordinator's (transaction.version): from 2 on p.Epoch must be above the epoch of the data.
//
// Errors are Append's, and ErrFenced: the producer's epoch, or the coordinator's, is older than the last one seen.
func (l *Log) EndTxn(ctx context.Context, p record.Producer, commit bool, coordinatorEpoch int32, transactionVersion int) (Appended, error) {
	if err := l.admit(ctx); err != nil {
		return notAppended, err
	}
	if p.ID < 0 || p.Epoch < 0 || coordinatorEpoch < 0 {
		return notAppended, fmt.Errorf("%w: a marker of producer %d, epoch %d, from coordinator epoch %d", ErrInvalidRecord, p.ID, p.Epoch, coordinatorEpoch)
	}
	m := l.marker(p, commit, coordinatorEpoch)
	m.txnVersion = transactionVersion
	return l.append(ctx, &m, &AppendOptions{})
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
