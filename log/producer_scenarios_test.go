package log

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/internal/producerstate"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs/vfstest"
)

// stopUncleanly closes the root as if it had been killed with the recovery point at an offset.
func (b *bed) stopUncleanly(t *testing.T, recoveryPoint int64) {
	t.Helper()
	require.NoError(t, b.dir.Close())
	require.NoError(t, removeIfThere(b.fs, checkpoint.CleanMarker))
	require.NoError(t, checkpoint.WriteOffsets(b.fs, checkpoint.RecoveryPoints, map[checkpoint.Partition]int64{checkpoint.Partition(b.tp): recoveryPoint}))
}

func isGone(err error) bool { return errors.Is(err, ErrOffsetOutOfRange) }

// unless is nil if err is known.
func unless(err, known error) error {
	if errors.Is(err, known) {
		return nil
	}
	return err
}

// oneEach appends n batches of one record of producer 1, each in a segment of its own, and one more in the active segment.
func (b *bed) oneEach(n int32) {
	b.t.Helper()
	for i := range n {
		b.mustSend(as(1, 0, i), 1)
		require.NoError(b.t, b.Roll(ctx))
	}
	b.mustSend(as(1, 0, n), 1)
	require.NoError(b.t, b.Sync(ctx))
}

// Scenario: R002, R003. Where the newest snapshot lies decides how much a recovery reads for producers, and every segment it
// reads leaves its snapshot.
func TestARecoveryReadsForProducersWhatNoSnapshotCovers(t *testing.T) {
	for _, keep := range []int{0, 2, 6} { // of six snapshots, the last ones
		b := newBed(t, Config{})
		b.oneEach(6)
		size := b.SegmentInfos()[0].Bytes
		b.stopUncleanly(t, 3)
		all := b.snapshots()
		require.NoError(t, producerstate.Remove(b.fs, b.name, all[:len(all)-keep]))
		b.open()
		require.False(t, b.Recovery().Clean)
		read := 4 * size // from the recovery point on
		if keep < 5 {
			read += 3 * size // no snapshot is old enough to begin there
		}
		require.Equal(t, read, b.Recovery().Scanned, "%d kept", keep)
		require.Subset(t, b.snapshots(), []int64{4, 5, 6, 7})
		require.Equal(t, int32(6), b.entry(1).LastSequence)
		require.True(t, b.mustSend(as(1, 0, 6), 1).Duplicate)
		require.NoError(t, checkProducers(b.Log))
	}
}

// Scenario: R004
func TestAnEmptyLogHasNoSnapshots(t *testing.T) {
	b := newBed(t, Config{})
	for _, clean := range []bool{true, false} {
		if clean {
			b.reopen()
		} else {
			b.stopUncleanly(t, 0)
			b.open()
		}
		require.Empty(t, b.snapshots())
		require.Zero(t, b.producers.state.End())
		require.Zero(t, b.producers.state.Len())
	}
}

// Scenario: R006
func TestARecoveryTakesCoordinatorEpochsThatGoBack(t *testing.T) {
	b := newBed(t, Config{})
	_, err := b.follow(markerAt(0, true, as(1, 0, 0), 100), markerAt(1, true, as(1, 0, 0), 99))
	require.NoError(t, err)
	for range 2 {
		b.stopUncleanly(t, 0)
		require.NoError(t, producerstate.Remove(b.fs, b.name, b.snapshots()))
		b.open()
		require.Empty(t, b.Recovery().Findings)
		require.Equal(t, int64(2), b.Offsets().LogEnd)
		require.Equal(t, int32(99), b.entry(1).CoordinatorEpoch, "what came last counts")
	}
}

// Scenario: R009
func TestASnapshotThatBelongsToNoSegmentGoesAtTheOpen(t *testing.T) {
	for _, clean := range []bool{true, false} {
		b := newBed(t, Config{})
		for i := range int32(4) {
			b.mustSend(as(1, 0, i), 1)
			if i != 2 {
				require.NoError(t, b.Roll(ctx))
			}
		}
		require.Equal(t, []int64{0, 1, 2, 4}, b.bases())
		require.NoError(t, b.dir.Close())
		require.NoError(t, producerstate.WriteSnapshot(b.fs, b.path(producerstate.FileName(3)), nil))
		if !clean {
			require.NoError(t, b.fs.Remove(checkpoint.CleanMarker))
		}
		b.open()
		require.Equal(t, []int64{1, 2, 4}, b.snapshots())
		require.Equal(t, int32(3), b.entry(1).LastSequence)
	}
}

// Scenario: R033
func TestSnapshotsOfARecoveryOutliveWhatItPutAside(t *testing.T) {
	b := newBed(t, Config{FileDeleteDelay: time.Minute})
	for i := range int32(10) {
		b.mustSend(inTxn(as(1, 0, i)), 1)
		b.mustEnd(as(1, 0, 0), i%2 == 0, 0)
		if i < 9 {
			require.NoError(t, b.Roll(ctx))
		}
	}
	require.NoError(t, b.Sync(ctx))
	b.stopUncleanly(t, 0)
	for _, name := range append(b.folder(".txnindex"), b.folder(".snapshot")...) {
		require.NoError(t, b.fs.Remove(inFolder(name)))
	}
	b.open()
	after := b.snapshots()
	require.NotEmpty(t, after)
	require.Contains(t, after, b.Offsets().LogEnd)
	b.clock.advance(time.Hour)
	b.retain()
	require.Equal(t, after, b.snapshots())
	require.Empty(t, b.folder(".deleted"))
	require.NoError(t, checkProducers(b.Log))
}

// Report: B097
func TestATruncationBelowTheNewestSnapshotKeepsTheProducerOverAKill(t *testing.T) {
	b := newBed(t, Config{})
	for i := range int32(10) {
		b.mustSend(as(1, 0, 10*i), 10)
		if i%4 == 3 {
			require.NoError(t, b.Roll(ctx))
		}
	}
	require.NoError(t, b.Sync(ctx))
	require.Equal(t, []int64{40, 80}, b.snapshots())
	b.truncate(70)
	for _, point := range []int64{70, 40, 0} {
		b.stopUncleanly(t, point)
		b.open()
		require.Equal(t, int64(70), b.Offsets().LogEnd)
		again := b.mustSend(as(1, 0, 60), 10)
		require.True(t, again.Duplicate)
		require.Equal(t, int64(60), again.Base)
		_, err := b.send(as(1, 0, 71), 1)
		require.ErrorIs(t, err, ErrOutOfOrder)
	}
	require.Equal(t, int64(70), b.mustSend(as(1, 0, 70), 10).Base)
}

// The records of a producer are gone and its marker is there. A running log knows the sequence, and so does the snapshot
// that stands where the log begins. Without it a marker leaves no sequence but 0, as in Kafka, and a producer goes on with a
// new epoch.
// Report: B098
func TestAProducerOfWhichOnlyAMarkerIsLeftGoesOn(t *testing.T) {
	for _, lost := range []string{"nothing", "memory", "the snapshots"} {
		b := newBed(t, Config{})
		b.mustSend(inTxn(as(1, 0, 0)), 5)
		require.NoError(t, b.Roll(ctx))
		b.mustEnd(as(1, 0, 0), true, 0)
		require.NoError(t, b.DeleteRecords(ctx, 5))
		b.retain()
		require.Equal(t, []int64{5}, b.bases())
		if lost != "nothing" {
			b.stopUncleanly(t, 5)
			if lost == "the snapshots" {
				require.NoError(t, producerstate.Remove(b.fs, b.name, b.snapshots()))
			}
			b.open()
		}
		res, err := b.send(as(1, 0, 5), 1)
		if lost == "the snapshots" {
			require.Equal(t, int32(-1), b.entry(1).LastSequence)
			require.ErrorIs(t, err, ErrOutOfOrder)
		} else {
			require.NoError(t, err)
			require.Equal(t, int64(6), res.Base)
		}
		require.Equal(t, b.Offsets().LogEnd, b.mustSend(as(1, 1, 0), 1).Base)
	}
}

// A follower takes what its leader sends. A negative epoch in it made snapshots that no open believed, so that each read the
// log and reported damage.
func TestNegativeEpochsOfALeaderAreNone(t *testing.T) {
	b := newBed(t, Config{})
	batch := produced(as(5, 1, 3), values(3, 10)...)
	binary.BigEndian.PutUint16(batch[51:], 0x8005) // its producer epoch; the CRC covers all from byte 21 on
	binary.BigEndian.PutUint32(batch[17:], crc32.Checksum(batch[21:], crc32.MakeTable(crc32.Castagnoli)))
	marker := record.Marker(true, as(6, 3, 0), -9, b.clock.now())
	marker.SetBaseOffset(3)
	_, err := b.follow(batch, marker.Bytes())
	require.NoError(t, err)
	require.Equal(t, int16(-1), b.entry(5).Epoch)
	require.Equal(t, int32(-1), b.entry(6).CoordinatorEpoch)
	b.noFindings()
	b.reopen()
	require.Empty(t, b.Recovery().Findings)
	require.Zero(t, b.Recovery().Scanned)
	require.Len(t, b.Producers(), 2)
	b.noFindings()
}

// As by Kafka, the time of its records decides when a producer is forgotten, also while the log is open: whoever sends an old
// one is new at the next look, and may go on with any sequence. Append time, which the log gives, is always young. One that
// sends no time is as old as its append, or the open since: its older epochs stay fenced. Report: B102
func TestAProducerIsAsOldAsItsRecordsSayAndStaysWhereTheLogGivesTheTime(t *testing.T) {
	for _, given := range []record.TimestampType{record.CreateTime, record.LogAppendTime} {
		b := newBed(t, Config{TimestampType: given})
		for id, ts := range []int64{record.NoTimestamp, 1, epoch2023 - 1000*24*time.Hour.Milliseconds()} {
			at := func(epoch int16, seq int32) []byte {
				return produced(as(int64(id), epoch, seq), record.Record{Timestamp: ts, Value: []byte("v")})
			}
			_, err := b.AppendBatches(ctx, at(1, 0), AppendOptions{})
			require.NoError(t, err)
			b.clock.advance(11 * time.Minute)
			b.add("an append looks who is idle")
			_, known := b.producers.state.Producer(int64(id))
			require.Equal(t, given == record.LogAppendTime || ts < 0, known, "timestamp %d", ts)
			_, err = b.AppendBatches(ctx, at(1, 1), AppendOptions{})
			require.NoError(t, err)
		}
	}
	for _, stop := range []string{"clean", "killed", "killed before anything was synced", "truncated"} {
		b := newBed(t, Config{})
		at := func(epoch int16) error {
			_, err := b.AppendBatches(ctx, produced(as(7, epoch, 0), record.Record{Timestamp: record.NoTimestamp, Value: []byte("v")}), AppendOptions{})
			return err
		}
		require.NoError(t, at(1))
		b.clock.advance(23 * time.Hour)
		b.stop(stop)
		require.ErrorIs(t, at(0), ErrFenced, stop)
		require.Equal(t, int64(-1), b.entry(7).Timestamp, "as Kafka has it in a snapshot")
		b.clock.advance(23 * time.Hour)
		if stop != "truncated" { // there nothing was loaded
			require.ErrorIs(t, at(0), ErrFenced, stop)
		}
		b.clock.advance(2 * time.Hour)
		require.NoError(t, at(0), stop)
	}
}

// The snapshot of a roll waits for the recovery point to move. Where retention takes the segment in front of it before that,
// nothing else tells of the producers there.
func TestAKillRightBehindADropForgetsNoProducer(t *testing.T) {
	for _, segments := range []int32{1, 3} {
		disk := vfstest.NewCrash(vfstest.CrashOptions{})
		b := newBedOn(t, disk, Config{RetentionBytes: 1, RetentionTime: Forever})
		for i := range segments {
			b.mustSend(as(1, 0, 3*i), 3)
			require.NoError(t, b.Roll(ctx))
		}
		last := as(1, 0, 3*segments-3)
		b.add("plain")
		require.Equal(t, int(segments), b.retain().Dropped)
		b.fs = disk.Kill()
		b.open()
		again := b.mustSend(last, 3)
		require.True(t, again.Duplicate, "%d segments", segments)
		require.Equal(t, int64(3*segments)-3, again.Base)
	}
}
