package log

import (
	"fmt"
	"io/fs"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/internal/producerstate"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// as is a producer's next batch.
func as(id int64, epoch int16, sequence int32) record.Producer {
	return record.Producer{ID: id, Epoch: epoch, BaseSequence: sequence}
}

func inTxn(p record.Producer) record.Producer {
	p.Transactional = true
	return p
}

// send appends one batch of n records.
func (b *bed) send(p record.Producer, n int) (Appended, error) {
	return b.AppendBatches(ctx, produced(p, values(n, 10)...), AppendOptions{})
}

func (b *bed) mustSend(p record.Producer, n int) Appended {
	b.t.Helper()
	res, err := b.send(p, n)
	require.NoError(b.t, err)
	return res
}

func (b *bed) mustEnd(p record.Producer, commit bool, coordinator int32) Appended {
	b.t.Helper()
	res, err := b.EndTxn(ctx, p, commit, EndTxnOptions{CoordinatorEpoch: coordinator})
	require.NoError(b.t, err)
	return res
}

func (b *bed) snapshots() []int64 {
	b.t.Helper()
	all, err := producerstate.List(b.fs, b.name)
	require.NoError(b.t, err)
	return all
}

func (b *bed) entry(id int64) producerstate.Entry {
	b.t.Helper()
	e, ok := b.producers.state.Producer(id)
	require.True(b.t, ok)
	return e
}

func (b *bed) truncate(offset int64) {
	b.t.Helper()
	_, err := b.Truncate(ctx, offset)
	require.NoError(b.t, err)
}

// Scenario: U081, U082, U083
func TestSequencesAreCheckedAndRepetitionsAnsweredWithTheFirstOffsets(t *testing.T) {
	b := newBed(t, Config{})
	first := b.mustSend(as(1, 0, 0), 3)
	_, err := b.send(as(1, 0, 4), 1)
	require.ErrorIs(t, err, ErrOutOfOrder)
	for i := range int32(6) {
		b.mustSend(as(1, 0, 3+2*i), 2)
	}
	end := b.Offsets().LogEnd
	last := b.mustSend(as(1, 0, 13), 2)
	require.True(t, last.Duplicate)
	require.Equal(t, [2]int64{end - 2, end - 1}, [2]int64{last.Base, last.Last})
	require.Equal(t, int64(epoch2023), last.AppendTime)
	require.True(t, b.mustSend(as(1, 0, 5), 2).Duplicate, "the fifth from the end")
	for _, old := range []record.Producer{as(1, 0, 3), as(1, 0, 12)} { // the sixth; an overlap
		_, err = b.send(old, 2)
		require.ErrorIs(t, err, ErrOutOfOrder)
	}
	_, err = b.send(as(1, 0, 0), 3)
	require.ErrorIs(t, err, ErrOutOfOrder)
	b.mustSend(as(1, 2, 0), 1)
	_, err = b.send(as(1, 1, 0), 1)
	require.ErrorIs(t, err, ErrFenced)
	require.Equal(t, end+1, b.Offsets().LogEnd)
	require.Zero(t, first.Base)
}

func TestARepetitionChangesNothingAndNeverRolls(t *testing.T) {
	b := newBed(t, Config{SegmentBytes: 300})
	expected := int64(0)
	raw := produced(as(1, 0, 0), values(1, 150)...)
	_, err := b.AppendBatches(ctx, raw, AppendOptions{ExpectedOffset: &expected})
	require.NoError(t, err)
	again, err := b.AppendBatches(ctx, produced(as(1, 0, 0), values(1, 150)...), AppendOptions{ExpectedOffset: &expected})
	require.NoError(t, err)
	require.True(t, again.Duplicate)
	require.Equal(t, []int64{0}, b.bases())
	require.Equal(t, int64(1), b.Offsets().LogEnd)
}

// Scenario: U084, U085
func TestAFollowerRefusesNoSequence(t *testing.T) {
	b := newBed(t, Config{})
	at := func(base int64, p record.Producer, n int) []byte {
		v, err := record.View(produced(p, values(n, 10)...))
		require.NoError(t, err)
		v.SetBaseOffset(base)
		v.SetLeaderEpoch(0)
		return v.Bytes()
	}
	_, err := b.follow(at(0, as(1, 0, 0), 2), at(2, as(1, 0, 0), 2))
	require.NoError(t, err)
	_, err = b.follow(at(4, as(1, 0, 9), 1), at(5, as(2, 0, 3), 1), at(6, as(1, 0, 9), 1))
	require.NoError(t, err)
	require.Equal(t, int64(7), b.Offsets().LogEnd)
	require.Equal(t, int64(6), b.entry(1).LastOffset)
}

// Scenario: U086
func TestAnUnknownProducerMayBeginAnywhere(t *testing.T) {
	b := newBed(t, Config{})
	require.False(t, b.mustSend(as(9, 1, 3), 2).Duplicate)
	require.Equal(t, int32(4), b.entry(9).LastSequence)
}

// Scenario: U087, U090, U092, U098
func TestSnapshotsStandWhereSegmentsBeginAndFollowTruncations(t *testing.T) {
	b := newBed(t, Config{})
	for i := range int32(3) {
		b.mustSend(as(1, 0, i), 1)
		require.NoError(t, b.Roll(ctx))
	}
	b.mustSend(as(1, 0, 3), 1)
	require.NoError(t, b.Sync(ctx))
	require.Equal(t, []int64{1, 2, 3}, b.snapshots())
	b.mustSend(as(1, 0, 4), 1)
	require.NoError(t, b.Sync(ctx))
	require.Equal(t, []int64{1, 2, 3}, b.snapshots())
	for _, c := range []struct {
		end   int64
		left  []int64
		known int
	}{{2, []int64{1, 2}, 1}, {1, []int64{1}, 1}, {0, nil, 0}} {
		b.truncate(c.end)
		require.Equal(t, c.left, b.snapshots())
		require.Equal(t, c.end, b.producers.state.End())
		require.Equal(t, c.known, b.producers.state.Len())
		require.NoError(t, checkProducers(b.Log))
	}
	b.mustSend(as(1, 0, 0), 1)
	b.reopen()
	require.Equal(t, []int64{1}, b.snapshots())
	require.NoError(t, b.ResetTo(ctx, 29))
	require.Empty(t, b.snapshots())
	require.Equal(t, int64(29), b.producers.state.End())
	require.Zero(t, b.producers.state.Len())
}

// Scenario: U091, U093
func TestATruncationReadsTheLogWhereSnapshotsAreGone(t *testing.T) {
	b := newBed(t, Config{SegmentBytes: 200})
	for i := range int32(6) {
		b.mustSend(as(1, 0, i), 1)
	}
	require.NoError(t, b.Sync(ctx))
	require.Greater(t, len(b.bases()), 2)
	require.Equal(t, b.bases()[1:], b.snapshots())
	require.NoError(t, producerstate.Remove(b.fs, b.name, b.snapshots()))
	b.truncate(3)
	require.Equal(t, int32(2), b.entry(1).LastSequence)
	b.mustSend(as(1, 0, 3), 1)
	require.NoError(t, checkProducers(b.Log))
}

// Kafka reads nothing after a clean stop, and takes the log for one without producers.
// Scenario: U097, U103, R005
func TestLostSnapshotsAreMadeAnewFromTheLog(t *testing.T) {
	for _, clean := range []bool{true, false} {
		b := newBed(t, Config{})
		for i := range int32(4) {
			b.mustSend(as(1, 0, i), 1)
			require.NoError(t, b.Roll(ctx))
		}
		b.mustSend(inTxn(as(2, 0, 0)), 1)
		b.mustSend(as(1, 0, 4), 1)
		require.NoError(t, b.Sync(ctx))
		require.NoError(t, b.dir.Close())
		require.NoError(t, producerstate.Remove(b.fs, b.name, b.snapshots()))
		if !clean {
			require.NoError(t, b.fs.Remove(".kafka_cleanshutdown"))
		}
		b.open()
		require.Equal(t, clean, b.Recovery().Clean)
		require.Equal(t, []int64{3, 4, 6}, b.snapshots())
		require.Equal(t, int32(4), b.entry(1).LastSequence)
		require.Equal(t, int64(4), b.Offsets().LastStable)
		require.NoError(t, checkProducers(b.Log))
	}
}

func TestADamagedSnapshotIsReportedAndAnOlderOneTaken(t *testing.T) {
	b := newBed(t, Config{})
	b.mustSend(as(1, 0, 0), 1)
	require.NoError(t, b.Roll(ctx))
	b.mustSend(as(1, 0, 1), 1)
	require.NoError(t, b.dir.Close())
	require.Equal(t, []int64{1, 2}, b.snapshots())
	f, err := b.fs.OpenFile(b.name+"/"+producerstate.FileName(2), 2, 0)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte{99}, 20)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	b.open()
	require.Len(t, b.Recovery().Findings, 1)
	require.Equal(t, FindingSnapshot, b.Recovery().Findings[0].Kind)
	require.Equal(t, int32(1), b.entry(1).LastSequence)
	b.reopen()
	require.Empty(t, b.Recovery().Findings)
}

// Scenario: U099, U114, U115
func TestDeletedRecordsLeaveTheirProducersAndOpenTransactionsKnown(t *testing.T) {
	b := newBed(t, Config{})
	b.mustSend(inTxn(as(1, 0, 0)), 3)
	require.NoError(t, b.Roll(ctx))
	b.mustSend(as(2, 0, 0), 7)
	require.Equal(t, int64(0), b.Offsets().LastStable)
	require.NoError(t, b.DeleteRecords(ctx, 5))
	require.Equal(t, int64(5), b.Offsets().LastStable)
	require.NoError(t, b.DeleteRecords(ctx, 8))
	require.Equal(t, int64(8), b.Offsets().LastStable)
	require.Equal(t, int64(0), b.entry(1).TxnFirstOffset)
	b.mustEnd(as(1, 0, 0), true, 0)
	require.Equal(t, int64(11), b.Offsets().LastStable)
}

// Scenario: R007
func TestAKillForgetsNoProducerOfDeletedRecordsThatAreStillInTheSegmentOfTheStart(t *testing.T) {
	b := newBed(t, Config{})
	b.mustSend(as(3, 0, 0), 1)
	require.NoError(t, b.Roll(ctx))
	sent := b.mustSend(as(1, 0, 0), 3)
	b.mustSend(inTxn(as(2, 4, 0)), 2)
	b.mustEnd(as(2, 4, 0), true, 7)
	b.add("plain")
	require.NoError(t, b.Sync(ctx))
	require.NoError(t, b.DeleteRecords(ctx, b.Offsets().LogEnd-1))
	require.NoError(t, b.dir.Close())
	require.NoError(t, b.fs.Remove(".kafka_cleanshutdown"))
	b.open()
	require.False(t, b.Recovery().Clean)
	again := b.mustSend(as(1, 0, 0), 3)
	require.True(t, again.Duplicate)
	require.Equal(t, sent.Base, again.Base)
	_, err := b.EndTxn(ctx, as(2, 4, 0), true, EndTxnOptions{CoordinatorEpoch: 6})
	require.ErrorIs(t, err, ErrFenced)
	require.NoError(t, checkProducers(b.Log))
}

// Kafka keeps only those above the start. Scenario: R008
func TestAKillForgetsNoProducerOfSegmentsThatAreGone(t *testing.T) {
	b := newBed(t, Config{})
	sent := b.mustSend(as(1, 2, 0), 3)
	require.NoError(t, b.Roll(ctx))
	b.add("plain")
	require.NoError(t, b.Sync(ctx))
	require.NoError(t, b.DeleteRecords(ctx, 3))
	b.retain()
	require.Len(t, b.SegmentInfos(), 1)
	require.NoError(t, b.dir.Close())
	require.NoError(t, b.fs.Remove(".kafka_cleanshutdown"))
	b.open()
	require.False(t, b.Recovery().Clean)
	again := b.mustSend(as(1, 2, 0), 3)
	require.True(t, again.Duplicate, "the snapshot at the first segment's base knows it")
	require.Equal(t, sent.Base, again.Base)
}

// Kafka forgets whoever has no record above the start. Here the records go, what they say of their producer stays: it repeats
// them, or writes on; an older epoch stays fenced, a transaction open.
func TestAStopBehindDeletedRecordsForgetsNoProducer(t *testing.T) {
	for _, behind := range []string{"nothing", "plain records", "plain records and a roll"} {
		for before := int64(3); before <= 6; before++ {
			for _, stop := range []string{"clean", "killed", "killed before anything was synced", "truncated"} {
				t.Run(fmt.Sprint(behind, ", start ", before, ", ", stop), func(t *testing.T) {
					b := newBed(t, Config{})
					sent := b.mustSend(as(1, 2, 0), 2)
					b.mustSend(inTxn(as(2, 4, 7)), 1)
					if behind != "nothing" {
						require.NoError(t, b.Roll(ctx))
						b.add("plain", "plain", "plain")
					}
					if behind == "plain records and a roll" {
						require.NoError(t, b.Roll(ctx))
						b.add("plain")
					}
					if before > b.Offsets().LogEnd {
						return
					}
					require.NoError(t, b.Sync(ctx))
					require.NoError(t, b.DeleteRecords(ctx, before))
					for range 3 {
						b.stop(stop)
						require.Equal(t, before, b.Offsets().LogStart)
						again := b.mustSend(as(1, 2, 0), 2)
						require.True(t, again.Duplicate)
						require.Equal(t, sent.Base, again.Base)
						_, err := b.send(as(1, 1, 0), 1)
						require.ErrorIs(t, err, ErrFenced)
						require.Equal(t, int64(2), b.OpenTransactions()[0].FirstOffset)
						require.Equal(t, before, b.Offsets().LastStable)
						r, err := OpenReader("t-0", ReaderOptions{FS: b.fs})
						require.NoError(t, err)
						require.Equal(t, before, r.Offsets().LastStable)
						require.NoError(t, r.Close())
						b.noFindings()
					}
					b.mustEnd(as(2, 4, 0), false, 0)
					b.mustSend(as(1, 2, 2), 1)
				})
			}
		}
	}
}

// stop stops the log in one of these ways and opens it again, or cuts a record off.
func (b *bed) stop(how string) {
	if how == "truncated" {
		b.truncate(b.add("cut off"))
		return
	}
	require.NoError(b.t, b.dir.Close())
	if how != "clean" {
		require.NoError(b.t, b.fs.Remove(".kafka_cleanshutdown"))
	}
	if how == "killed before anything was synced" {
		require.NoError(b.t, b.fs.Remove(checkpoint.RecoveryPoints))
		require.NoError(b.t, producerstate.Remove(b.fs, b.name, b.snapshots()))
	}
	b.open()
}

func (b *bed) noFindings() {
	b.t.Helper()
	for f, err := range b.Verify(ctx) {
		require.NoError(b.t, err)
		require.Fail(b.t, "a finding", "%+v", f)
	}
}

// Scenario: U101
func TestAProducerIsForgottenWhenItsRecordsAreOld(t *testing.T) {
	b := newBed(t, Config{ProducerExpiry: 20 * time.Minute})
	b.mustSend(as(1, 0, 0), 1)
	b.mustSend(inTxn(as(2, 0, 0)), 1)
	b.clock.advance(11 * time.Minute)
	b.add("an append looks")
	require.Equal(t, 2, b.producers.state.Len())
	b.clock.advance(11 * time.Minute)
	b.add("again")
	require.Equal(t, 1, b.producers.state.Len())
	b.reopen()
	require.Equal(t, 1, b.producers.state.Len())
	b.mustSend(as(1, 0, 7), 1)
}

// Scenario: U104
func TestTheRecoveryPointWaitsForTheSnapshot(t *testing.T) {
	fault := vfstest.NewFault(vfs.Mem())
	b := newBedOn(t, fault, Config{})
	b.mustSend(as(1, 0, 0), 1)
	require.NoError(t, b.Roll(ctx))
	fault.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpSync}, Name: "*.snapshot*", Err: &fs.PathError{Op: "sync", Path: "x", Err: syscall.EIO}})
	require.ErrorIs(t, b.Sync(ctx), ErrFailed)
	require.Zero(t, b.Offsets().RecoveryPoint)
	require.Empty(t, b.snapshots())
}

// Scenario: U105, U106, U107
func TestTheLastStableOffsetStaysBelowWhatIsOpenOrNotReplicated(t *testing.T) {
	b := newBed(t, Config{Visibility: External})
	hw := func() { _, err := b.SetHighWatermark(b.Offsets().LogEnd); require.NoError(t, err) }
	b.add("plain")
	hw()
	require.Equal(t, int64(1), b.Offsets().LastStable)
	b.mustSend(inTxn(as(1, 0, 0)), 2)
	b.add("between")
	b.mustSend(inTxn(as(2, 0, 0)), 1)
	hw()
	require.Equal(t, int64(1), b.Offsets().LastStable)
	b.mustEnd(as(1, 0, 0), false, 0)
	require.Equal(t, int64(1), b.Offsets().LastStable, "the marker is not replicated")
	hw()
	require.Equal(t, int64(4), b.Offsets().LastStable)
	b.mustEnd(as(2, 0, 0), true, 0)
	hw()
	require.Equal(t, int64(7), b.Offsets().LastStable)
	require.NoError(t, checkProducers(b.Log))
}

// Scenario: U111, U112, U113
func TestStaleMarkersAreFenced(t *testing.T) {
	b := newBed(t, Config{})
	b.mustSend(inTxn(as(1, 5, 0)), 1)
	b.mustEnd(as(1, 5, 0), true, 2)
	_, err := b.EndTxn(ctx, as(1, 5, 0), true, EndTxnOptions{CoordinatorEpoch: 1})
	require.ErrorIs(t, err, ErrFenced)
	_, err = b.EndTxn(ctx, as(1, 4, 0), true, EndTxnOptions{CoordinatorEpoch: 2})
	require.ErrorIs(t, err, ErrFenced)
	b.mustSend(inTxn(as(1, 5, 1)), 1)
	_, err = b.send(as(1, 5, 2), 1)
	require.ErrorIs(t, err, ErrTxnState)
	_, err = b.EndTxn(ctx, as(1, 5, 0), true, EndTxnOptions{CoordinatorEpoch: 2, TransactionVersion: 2})
	require.ErrorIs(t, err, ErrFenced, "under version 2 the marker has an epoch of its own")
	_, err = b.EndTxn(ctx, as(-1, 5, 0), true, EndTxnOptions{CoordinatorEpoch: 2, TransactionVersion: 2})
	require.ErrorIs(t, err, ErrInvalidRecord)
	b.mustEnd(as(1, 6, 0), true, 2)
	require.Equal(t, b.Offsets().LogEnd, b.Offsets().LastStable)
}

// Scenario: U116, U119
func TestAnAbortWhoseIndexCannotBeWrittenIsNotInTheLog(t *testing.T) {
	for _, broken := range []bool{false, true} {
		fault := vfstest.NewFault(vfs.Mem())
		b := newBedOn(t, fault, Config{})
		b.mustSend(inTxn(as(1, 0, 0)), 10)
		ops := []vfstest.Kind{vfstest.OpWrite, vfstest.OpCreate}
		fault.Add(vfstest.Rule{Ops: ops, Name: "*.txnindex", Err: &fs.PathError{Op: "write", Path: "x", Err: syscall.EIO}})
		if broken { // the marker cannot be taken back either
			fault.Add(vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpTruncate}, Name: "*.log", Err: &fs.PathError{Op: "truncate", Path: "x", Err: syscall.EIO}})
		}
		_, err := b.EndTxn(ctx, as(1, 0, 0), false, EndTxnOptions{})
		require.Error(t, err)
		require.Equal(t, int64(10), b.Offsets().LogEnd)
		require.Equal(t, int64(0), b.Offsets().LastStable)
		require.Equal(t, broken, b.Err() != nil)
		fault.Clear()
		if broken {
			_, err = b.Append(ctx, values(1, 1)...)
			require.ErrorIs(t, err, ErrFailed)
			require.ErrorIs(t, b.dir.Close(), ErrFailed)
			b.open()
			require.Equal(t, b.Offsets().LogEnd == 10, b.Offsets().LastStable == 0)
		} else {
			b.mustEnd(as(1, 0, 0), false, 0)
			require.Equal(t, int64(11), b.Offsets().LastStable)
		}
		require.NoError(t, checkProducers(b.Log))
	}
}

func TestADamagedIndexOfAbortedTransactionsIsRebuiltByAnOpen(t *testing.T) {
	b := newBed(t, Config{})
	b.mustSend(inTxn(as(1, 0, 0)), 2)
	require.NoError(t, b.Roll(ctx))
	b.mustEnd(as(1, 0, 0), false, 0)
	b.mustSend(inTxn(as(1, 0, 2)), 2)
	b.mustEnd(as(1, 0, 0), false, 0)
	require.NoError(t, b.dir.Close())
	f, err := b.fs.OpenFile(b.name+"/"+segment.FileName(2, ".txnindex"), 2, 0)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte{9}, 0)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	b.open()
	require.Equal(t, FindingTxnIndex, b.Recovery().Findings[0].Kind)
	require.NoError(t, checkProducers(b.Log))
	b.reopen()
	require.Empty(t, b.Recovery().Findings)
}
