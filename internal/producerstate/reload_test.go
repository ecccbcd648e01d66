package producerstate

import (
	"io/fs"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/vfs"
)

// taken is a log of one-record batches of one producer, with a snapshot behind each of the given offsets.
func taken(t *testing.T, fsys vfs.FS, n int64, at ...int64) log {
	l := newLog(t)
	for i := range n {
		for _, a := range at {
			if a == i {
				l.take(fsys)
			}
		}
		l.client(spec{id: pid, seq: int32(i), at: i})
	}
	if len(at) > 0 && at[len(at)-1] == n {
		l.take(fsys)
	}
	return l
}

func garble(t *testing.T, fsys vfs.FS, offset int64, change func(b []byte) []byte) {
	name := "t-0/" + FileName(offset)
	b, err := vfs.ReadFile(fsys, name, 1<<20)
	require.NoError(t, err)
	b = change(b)
	f, err := fsys.OpenFile(name, os.O_RDWR|os.O_TRUNC, 0o644)
	require.NoError(t, err)
	_, err = f.WriteAt(b, 0)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

func TestSnapshotsOfWhatTheLogDoesNotHoldGo(t *testing.T) {
	// Scenario: P011, U090
	fsys := folder(t)
	l := taken(t, fsys, 5, 1, 2, 3, 4, 5)
	res := l.reload(fsys, 1, 3)
	require.Equal(t, []int64{1, 2, 3}, snapshots(t, fsys), "the one at the start tells of what was deleted")
	require.Equal(t, Reloaded{From: 3, Snapshot: 3, Removed: []int64{4, 5}}, res)
	require.Equal(t, int64(3), l.End())
	require.Equal(t, int32(2), l.entry(pid).LastSequence)

	l = log{New(Config{}, 0), t}
	res = l.reload(fsys, 2, 2)
	require.Equal(t, Reloaded{From: 2, Snapshot: 2, Removed: []int64{1, 3}}, res)
	require.Equal(t, int32(1), l.entry(pid).LastSequence, "all of its records are deleted")

	l = log{New(Config{}, 0), t}
	res = l.reload(fsys, 0, 1)
	require.Equal(t, Reloaded{From: 0, Snapshot: -1, Removed: []int64{2}, Missing: true}, res)
	require.Empty(t, snapshots(t, fsys))
	res = newLog(t).reload(fsys, 0, 0)
	require.Equal(t, Reloaded{From: 0, Snapshot: -1, Kept: true}, res)
	res = l.reload(fsys, 0, 0)
	require.Equal(t, Reloaded{From: 0, Snapshot: -1}, res, "the one before was not finished")
	require.Zero(t, l.End())
}

func TestASnapshotIsTakenOnlyWhenTheStateWentOn(t *testing.T) {
	// Scenario: P012, U087, P019, U098
	fsys := folder(t)
	l := newLog(t)
	written, err := l.Take(fsys, "t-0")
	require.NoError(t, err)
	require.False(t, written, "an empty log at 0 has none")
	l.client(spec{id: -1, at: 0})
	l.take(fsys)
	require.Equal(t, []int64{1}, snapshots(t, fsys))
	b, err := vfs.ReadFile(fsys, "t-0/"+FileName(1), 100)
	require.NoError(t, err)
	require.Equal(t, unhex(t, "00 01 48 67 4b c7 00 00 00 00"), b)
	written, err = l.Take(fsys, "t-0")
	require.NoError(t, err)
	require.False(t, written)
	l.SetEnd(7) // a roll over a gap
	l.take(fsys)
	require.Equal(t, []int64{1, 7}, snapshots(t, fsys))
	require.NoError(t, Remove(fsys, "t-0", []int64{1, 7, 9}))
	require.Empty(t, snapshots(t, fsys))
	l.Reset(29)
	require.Equal(t, int64(29), l.End())
	require.Zero(t, l.Len())
	l.Reset(0)
	l.client(spec{id: pid, seq: 0, at: 0})
	require.Equal(t, int64(1), l.End())
}

func TestADamagedSnapshotIsSkippedForAnOlderOne(t *testing.T) {
	// Scenario: P029
	resealed := func(change func(e []byte)) func(b []byte) []byte {
		return func(b []byte) []byte { change(b[headerSize:]); return reseal(b) }
	}
	for name, change := range map[string]func(b []byte) []byte{
		"empty":                     func([]byte) []byte { return nil },
		"cut":                       func(b []byte) []byte { return b[:30] },
		"overwritten":               func(b []byte) []byte { copy(b[10:], "garbage"); return b },
		"zeros":                     func(b []byte) []byte { clear(b); return b },
		"another version":           func(b []byte) []byte { b[1] = 2; return b },
		"a producer without id":     resealed(func(e []byte) { e[0] = 0xff }),
		"a batch beyond the end":    resealed(func(e []byte) { e[21] = 4 }),
		"a transaction from beyond": resealed(func(e []byte) { copy(e[38:], []byte{0, 0, 0, 0, 0, 0, 0, 4}) }),
		"a negative delta":          resealed(func(e []byte) { e[22] = 0x80 }),
		"a batch before offset 0":   resealed(func(e []byte) { e[25] = 9 }),
		"a producer twice":          func(b []byte) []byte { b = append(b, b[headerSize:]...); b[9] = 2; return reseal(b) },
	} {
		t.Run(name, func(t *testing.T) {
			fsys := folder(t)
			taken(t, fsys, 4, 2, 4)
			garble(t, fsys, 4, change)
			l := newLog(t)
			res := l.reload(fsys, 0, 4)
			require.Equal(t, int64(2), res.From)
			require.Equal(t, int64(2), res.Snapshot)
			require.Equal(t, []int64{4}, res.Removed)
			require.Len(t, res.Damaged, 1)
			require.ErrorIs(t, res.Damaged[0], ErrCorrupt)
			require.Equal(t, []int64{2}, snapshots(t, fsys))
			require.Equal(t, int32(1), l.entry(pid).LastSequence)

			garble(t, fsys, 2, func([]byte) []byte { return []byte{7} })
			res = l.reload(fsys, 0, 4)
			require.True(t, res.Missing, "the whole log must be read")
			require.Zero(t, res.From)
			require.Zero(t, l.Len())
		})
	}
}

func TestALogWithoutSnapshotsIsReadNotBelieved(t *testing.T) {
	// Scenario: U091, U103: Kafka takes such a log for one without producers if it was stopped cleanly.
	fsys := folder(t)
	taken(t, fsys, 3, 1, 2, 3)
	require.NoError(t, Remove(fsys, "t-0", []int64{1, 2, 3}))
	l := newLog(t)
	res := l.reload(fsys, 0, 3)
	require.Equal(t, Reloaded{From: 0, Snapshot: -1, Missing: true}, res)
	for at := range int64(3) {
		l.Replay(view(t, spec{id: pid, seq: int32(at), at: at}.bytes(t)))
	}
	require.Equal(t, int32(2), l.entry(pid).LastSequence)
}

func TestReadingOnlyRemovesNothing(t *testing.T) {
	fsys := folder(t)
	taken(t, fsys, 4, 1, 2, 3, 4)
	garble(t, fsys, 3, func([]byte) []byte { return nil })
	l := newLog(t)
	res, err := l.Reload(Reload{FS: fsys, Folder: "t-0", LogStart: 2, End: 3, Now: 2000, ReadOnly: true})
	require.NoError(t, err)
	require.Equal(t, int64(2), res.Snapshot)
	require.Equal(t, []int64{1, 4, 3}, res.Removed)
	require.Equal(t, []int64{1, 2, 3, 4}, snapshots(t, fsys))
}

func TestAReloadRemembersOneBatchOfEachProducer(t *testing.T) {
	fsys := folder(t)
	l := taken(t, fsys, 4, 4)
	require.Equal(t, 4, l.Batches(pid))
	l = newLog(t)
	l.reload(fsys, 0, 4)
	require.Equal(t, 1, l.Batches(pid))
	require.Equal(t, Duplicate{3, 3, 1000}, l.repeats(spec{id: pid, seq: 3, at: 4}))
	l.refused(spec{id: pid, seq: 2, at: 4}, ErrOutOfOrder)
	l.client(spec{id: pid, seq: 4, at: 4})
}

func TestTransactionsSurviveAReload(t *testing.T) {
	// Scenario: P014, P021
	fsys := folder(t)
	l := newLog(t)
	l.SetEnd(99)
	l.client(spec{id: pid, seq: 0, at: 99, txn: true})
	l.take(fsys)
	l.client(spec{id: -1, at: 100, n: 5})
	l.marker(end{id: pid, at: 105, commit: true, time: 1999})
	l.take(fsys)
	l.OnHighWatermark(106)
	require.Equal(t, int64(-1), l.unstable(0))
	l = newLog(t)
	l.reload(fsys, 0, 106)
	require.Equal(t, int64(-1), l.unstable(0))
	require.Equal(t, int64(1999), l.entry(pid).Timestamp, "the marker's time is kept")
	l.reload(fsys, 0, 100)
	require.Equal(t, int64(99), l.unstable(0))
	require.Equal(t, int64(99), l.entry(pid).TxnFirstOffset)
}

func TestExpiredProducersAreNotLoaded(t *testing.T) {
	// Scenario: P016, P022, P025, U101
	fsys := folder(t)
	l := newLog(t)
	l.client(spec{id: 1, seq: 0, at: 0, time: 1000})
	l.client(spec{id: 2, seq: 0, at: 1, time: 1000, txn: true})
	l.client(spec{id: 3, seq: 0, at: 2, time: 1001})
	l.client(spec{id: 4, seq: 0, at: 3, time: -1}) // without a time it counts from the load
	l.SetEnd(5)
	l.take(fsys)
	l = log{New(Config{ExpireAfter: 200}, 0), t}
	_, err := l.Reload(Reload{FS: fsys, Folder: "t-0", LogStart: 4, End: 5, Now: 1200})
	require.NoError(t, err)
	require.Equal(t, 3, l.Len(), "also below the log start")
	l.entry(2)
	l.entry(3)
	l.entry(4)
	require.Zero(t, l.Expire(1199))
	require.Equal(t, 2, l.Expire(1201), "producer 3, and 4, which counts from second 1")
	l.entry(2)
	l.client(spec{id: 1, seq: 2, at: 5}) // unknown now
	require.Equal(t, int64(6), l.End())

	l = log{New(Config{ExpireAfter: -1}, 0), t}
	l.reload(fsys, 0, 5)
	require.Equal(t, 4, l.Len())
	require.Zero(t, l.Expire(1<<62))
}

func TestExpiryLooksNowAndThen(t *testing.T) {
	// Scenario: U101, P025
	l := log{New(Config{ExpireAfter: 200, ExpireEvery: 100}, 0), t}
	require.Zero(t, l.ExpireDue(1000))
	l.client(spec{id: 1, seq: 0, at: 0, time: 1000})
	l.client(spec{id: 2, seq: 0, at: 1, time: 1000, txn: true})
	require.Zero(t, l.ExpireDue(1100))
	require.Zero(t, l.ExpireDue(1199))
	require.Equal(t, 1, l.ExpireDue(1200))
	require.Equal(t, int64(1), l.unstable(0))
	require.Zero(t, l.Expire(1<<62), "an open transaction stays")
	l.marker(end{id: 2, at: 2, time: 1100})
	require.Equal(t, 1, l.Expire(1<<62))
}

func TestDeletedRecordsLeaveTheirProducersKnown(t *testing.T) {
	// Scenario: U099
	l := newLog(t)
	l.client(spec{id: pid, seq: 0, at: 0})
	l.OnLogStart(1)
	l.entry(pid)
	l.OnLogStart(5)
	require.Equal(t, int64(5), l.End())
}

func TestATruncationOfPlainRecordsReadsNothing(t *testing.T) {
	fsys := folder(t)
	l := newLog(t)
	l.client(spec{id: -1, at: 0, n: 10})
	res := l.reload(fsys, 0, 4)
	require.True(t, res.Kept)
	require.Equal(t, int64(4), res.From)
	require.Equal(t, int64(4), l.End())
	l.take(fsys)
	l.SetEnd(9)
	l.take(fsys)
	require.True(t, l.reload(fsys, 0, 6).Kept)
	l.take(fsys) // the last one is 4 again
	require.Equal(t, []int64{4, 6}, snapshots(t, fsys))
	require.NoError(t, Remove(fsys, "t-0", []int64{4, 6}))
	require.True(t, l.reload(fsys, 0, 4).Kept)

	// A producer that expired after its transaction ended: cut before the marker the transaction is open again.
	l.client(spec{id: pid, seq: 0, at: 4, txn: true})
	l.marker(end{id: pid, at: 5})
	l.OnHighWatermark(6)
	l.Expire(1 << 62)
	require.Zero(t, l.Len())
	res = l.reload(fsys, 0, 5)
	require.False(t, res.Kept)
	require.True(t, res.Missing)
	require.Zero(t, res.From)
}

func TestStraySnapshotsAreThoseBesideTheSegments(t *testing.T) {
	// Scenario: P031, U097
	for _, row := range []struct{ files, bases, strays []int64 }{
		{[]int64{2, 5, 42}, []int64{5}, []int64{2}},
		{[]int64{2, 5, 42}, []int64{42}, []int64{2, 5}},
		{[]int64{2, 5, 42}, []int64{2, 5, 43}, []int64{42}},
		{[]int64{2, 5, 42}, []int64{2, 5, 42}, nil},
		{[]int64{42}, []int64{0}, nil},
		{nil, []int64{0}, nil},
		{[]int64{3, 4}, nil, []int64{3}},
	} {
		require.ElementsMatch(t, row.strays, Strays(row.files, row.bases))
	}
}

func TestPointsAreTheLastTwoSegmentsAndTheEnd(t *testing.T) {
	require.Equal(t, []int64{20, 30, 33}, Points([]int64{0, 10, 20, 30}, 33))
	require.Equal(t, []int64{20, 30}, Points([]int64{10, 20, 30}, 30))
	require.Equal(t, []int64{0}, Points([]int64{0}, 0))
	require.Equal(t, []int64{7}, Points(nil, 7))
}

func TestOnlyCanonicalNamesAreSnapshots(t *testing.T) {
	fsys := folder(t)
	for _, name := range []string{"5.snapshot", "00000000000000000007.snapshot", "+0000000000000000008.snapshot", "x.snapshot",
		"-0000000000000000001.snapshot", "00000000000000000009.snapshot.deleted", "99999999999999999999.snapshot", ".snapshot"} {
		f, err := fsys.OpenFile("t-0/"+name, os.O_CREATE|os.O_WRONLY, 0o644)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	require.Equal(t, []int64{7}, snapshots(t, fsys))
	_, err := List(fsys, "none")
	require.ErrorIs(t, err, fs.ErrNotExist)
	offset, ok := Offset(FileName(1 << 40))
	require.True(t, ok)
	require.Equal(t, int64(1<<40), offset)
}

func TestASnapshotIsEncodedApartFromItsWriting(t *testing.T) {
	fsys := folder(t)
	l := newLog(t)
	l.client(spec{id: pid, seq: 0, at: 0})
	snap, err := l.Snapshot()
	require.NoError(t, err)
	l.client(spec{id: pid, seq: 1, at: 1})
	require.NoError(t, snap.Write(fsys, "t-0"))
	l.Taken(snap.Offset)
	require.True(t, l.Due())
	l.take(fsys)
	require.Equal(t, []int64{1, 2}, snapshots(t, fsys))
	l = newLog(t)
	l.reload(fsys, 0, 1)
	require.Equal(t, int32(0), l.entry(pid).LastSequence)
	require.Error(t, snap.Write(fsys, "gone/for/good"))
}

func TestWhatIsNotReplayedYetIsUnstable(t *testing.T) {
	fsys := folder(t)
	l := newLog(t)
	l.client(spec{id: -1, at: 0, n: 4})
	l.take(fsys)
	open := spec{id: pid, seq: 0, at: 4, txn: true}
	l.client(open)
	l.client(spec{id: -1, at: 5, n: 5})
	l.OnHighWatermark(10)
	u := l.Unstable()
	res := l.reload(fsys, 0, 8)
	require.Equal(t, int64(4), res.From)
	require.Equal(t, int64(4), u.LastStable(8, 0), "nothing is known of what follows")
	l.Replay(view(t, open.bytes(t)))
	l.SetEnd(7)
	require.Equal(t, int64(4), u.LastStable(8, 0))
	l.SetEnd(8)
	require.Equal(t, int64(4), u.LastStable(8, 0), "the transaction is open")
	l.marker(end{id: pid, at: 8})
	require.Equal(t, int64(9), u.LastStable(9, 0))

	require.NoError(t, Remove(fsys, "t-0", []int64{4}))
	l.reload(fsys, 2, 5)
	require.Equal(t, int64(2), u.LastStable(5, 2), "no snapshot: nothing is known at all")
	l.Reset(5)
	require.Equal(t, int64(5), u.LastStable(5, 5))
}

func TestARollBetweenCheckAndCommit(t *testing.T) {
	fsys := folder(t)
	l := newLog(t)
	l.client(spec{id: pid, seq: 0, at: 0})
	p, err := l.Check(spec{id: pid, seq: 1, at: 1, txn: true}.bytes(t), Options{})
	require.NoError(t, err)
	l.SetEnd(1)
	l.take(fsys)
	l.Commit(p)
	require.Equal(t, int64(2), l.End())
	require.Equal(t, int64(1), l.entry(pid).TxnFirstOffset)
	l.reload(fsys, 0, 1)
	require.Equal(t, int32(0), l.entry(pid).LastSequence, "the snapshot is of what was below the new segment")
}

func TestAProducerThatIsForgottenBetweenCheckAndCommitIsNew(t *testing.T) {
	l := newLog(t)
	l.client(spec{id: pid, seq: 0, at: 0})
	p, err := l.Check(spec{id: pid, seq: 1, at: 1, txn: true}.bytes(t), Options{})
	require.NoError(t, err)
	require.Equal(t, 1, l.Expire(1<<62))
	l.Commit(p)
	require.Equal(t, 1, l.Batches(pid))
	require.Len(t, l.Open(), 1)
}
