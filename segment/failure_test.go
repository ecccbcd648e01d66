package segment

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var errDisk = errors.New("no space left on device")

func onlyLog(name string) bool { return strings.HasSuffix(name, ".log") }

func TestAFailedAppendIsCutBack(t *testing.T) {
	o := Options{FS: memFS(t), IndexIntervalBytes: EveryBatch}
	ff := &faultFS{FS: o.FS, match: onlyLog}
	o.FS = ff
	s := create(t, 0, o)
	fill(t, s, 5)
	before := fileBytes(t, o.FS, file(0, ".log"))
	for _, short := range []int64{0, 1, 40, 1 << 20} {
		ff.short.Store(short)
		ff.write.Store(&errDisk)
		_, err := s.Append(append(one(t, 5), one(t, 6)...))
		require.ErrorIs(t, err, errDisk)
		require.NotErrorIs(t, err, ErrBroken)
		ff.write.Store(nil)
		require.Equal(t, before, fileBytes(t, o.FS, file(0, ".log")))
		require.Equal(t, span(0, 5), mustOffsets(t, s))
	}
	fill(t, s, 2)
	require.Equal(t, span(0, 7), mustOffsets(t, s))
}

func TestAFailedWriteThatCannotBeUndoneStopsTheSegment(t *testing.T) {
	o := Options{FS: memFS(t)}
	ff := &faultFS{FS: o.FS, match: onlyLog}
	o.FS = ff
	s := create(t, 0, o)
	fill(t, s, 5)
	ff.short.Store(30)
	ff.write.Store(&errDisk)
	ff.truncate.Store(&errDisk)
	_, err := s.Append(one(t, 5))
	require.ErrorIs(t, err, ErrBroken)
	require.ErrorIs(t, err, errDisk)
	ff.write.Store(nil)
	ff.truncate.Store(nil)
	_, err = s.Append(one(t, 5))
	require.ErrorIs(t, err, ErrBroken)
	require.ErrorIs(t, s.Sync(), ErrBroken)
	require.ErrorIs(t, s.Seal(ctx), ErrBroken)
	_, err = s.Truncate(2)
	require.ErrorIs(t, err, ErrBroken)
	require.Equal(t, span(0, 5), mustOffsets(t, s), "reading goes on")
	require.ErrorIs(t, s.Close(), ErrBroken)
	s = open(t, 0, o)
	require.Equal(t, Torn, recoverAll(t, s).Verdict)
	fill(t, s, 1)
	require.Equal(t, span(0, 6), mustOffsets(t, s))
}

// A full disk that shows only when an index page is written: the append fails as a whole.
func TestAFailedIndexWriteTakesTheAppendBack(t *testing.T) {
	o := Options{FS: memFS(t), IndexIntervalBytes: EveryBatch}
	ff := &faultFS{FS: o.FS, match: func(n string) bool { return strings.HasSuffix(n, "index") }}
	o.FS = ff
	s := create(t, 0, o)
	ff.write.Store(&errDisk)
	n := int64(0)
	for ; n < 2000; n++ {
		if _, err := s.Append(one(t, n)); err != nil {
			require.ErrorIs(t, err, errDisk)
			break
		}
	}
	require.Less(t, n, int64(2000))
	_, err := s.Append(one(t, n))
	require.ErrorIs(t, err, errDisk)
	require.Equal(t, span(0, n), mustOffsets(t, s))
	ff.write.Store(nil)
	fill(t, s, 100)
	require.Equal(t, span(0, n+100), mustOffsets(t, s))
	for i := int64(0); i < n+100; i += 13 {
		p, err := s.Find(i)
		require.NoError(t, err)
		require.Equal(t, i, p.Base)
	}
	require.NoError(t, s.Close())
	got := fileBytes(t, o.FS, file(0, ".index"))
	s = open(t, 0, o)
	recoverAll(t, s)
	require.Equal(t, fileBytes(t, o.FS, file(0, ".index")), got)
}

// Bug reports B040, B041: a sync that failed once is never confirmed by a later one that succeeds.
func TestAFailedSyncIsNeverConfirmedLater(t *testing.T) {
	for name, match := range map[string]func(string) bool{
		"log": onlyLog, "index": func(n string) bool { return strings.HasSuffix(n, ".index") },
		"time index": func(n string) bool { return strings.HasSuffix(n, ".timeindex") },
		"txn index":  func(n string) bool { return strings.HasSuffix(n, ".txnindex") },
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{FS: memFS(t), IndexIntervalBytes: EveryBatch}
			ff := &faultFS{FS: o.FS, match: match}
			o.FS = ff
			s := create(t, 0, o)
			fill(t, s, 5)
			require.NoError(t, s.AppendAborted(AbortedTxn{1, 1, 2, 3}))
			ff.sync.Store(&errDisk)
			require.ErrorIs(t, s.Sync(), errDisk)
			ff.sync.Store(nil)
			require.ErrorIs(t, s.Sync(), ErrBroken)
			require.ErrorIs(t, s.SyncData(), ErrBroken)
			_, err := s.Append(one(t, 5))
			require.ErrorIs(t, err, ErrBroken)
			require.ErrorIs(t, s.Close(), ErrBroken)
		})
	}
}

func TestAFailedTruncationStopsTheSegment(t *testing.T) {
	o := Options{FS: memFS(t)}
	ff := &faultFS{FS: o.FS, match: onlyLog}
	o.FS = ff
	s := create(t, 0, o)
	fill(t, s, 5)
	ff.truncate.Store(&errDisk)
	_, err := s.Truncate(3)
	require.ErrorIs(t, err, ErrBroken)
	ff.truncate.Store(nil)
	require.Equal(t, span(0, 3), mustOffsets(t, s), "what was to go away is not shown any more")
	_, err = s.Append(one(t, 3))
	require.ErrorIs(t, err, ErrBroken)
}

func TestASealOnAFullDiskSaysSoOnceAndCanBeDoneAgain(t *testing.T) {
	ff := &faultFS{FS: memFS(t)}
	s := create(t, 0, Options{FS: ff, IndexIntervalBytes: EveryBatch})
	fill(t, s, 5)
	ff.match = func(name string) bool { return !onlyLog(name) }
	require.NoError(t, s.Park()) // the files are opened anew
	fill(t, s, 1)
	ff.write.Store(&errDisk)
	err := s.Seal(ctx)
	require.ErrorIs(t, err, errDisk)
	require.Equal(t, 2, strings.Count(err.Error(), errDisk.Error()), "once for each index: %v", err)
	ff.write.Store(nil)
	require.NoError(t, s.Seal(ctx))
	require.Equal(t, span(0, 6), mustOffsets(t, s))
}

// Bug report B042: recovery on a full disk fails and leaves the log as it was.
func TestRecoveryOnADiskThatFailsLeavesTheLog(t *testing.T) {
	o := Options{FS: memFS(t), IndexIntervalBytes: EveryBatch}
	d := damage{garble: func(b []byte, at []int64) []byte { return b[:len(b)-1] }}
	d.damaged(t, 0, o)
	before := map[string][]byte{}
	for _, kind := range []string{".log", ".index", ".timeindex"} {
		before[kind] = fileBytes(t, o.FS, file(0, kind))
	}
	ff := &faultFS{FS: o.FS}
	ff.write.Store(&errDisk)
	full := o
	full.FS = ff
	_, err := open(t, 0, full).Recover(ctx, ScanOptions{})
	require.ErrorIs(t, err, errDisk)
	for kind, b := range before {
		require.Equal(t, b, fileBytes(t, o.FS, file(0, kind)), kind)
	}
	require.Equal(t, Torn, recoverAll(t, open(t, 0, o)).Verdict)
}

func TestCreateRefusesAnExistingLogAndCleansUpAfterItself(t *testing.T) {
	o := Options{FS: memFS(t)}
	s := create(t, 0, o)
	fill(t, s, 1)
	require.NoError(t, s.Close())
	_, err := Create(dir, 0, o)
	require.Error(t, err)
	require.Equal(t, span(0, 1), mustOffsets(t, open(t, 0, o)))
	_, err = Create(dir, 7, Options{FS: o.FS, IndexMaxBytes: 8})
	require.Error(t, err, "no room for one time entry")
	_, err = o.FS.Stat(file(7, ".log"))
	require.Error(t, err)
	_, err = Create(dir, -1, o)
	require.Error(t, err)
	_, err = Open(dir, 99, o)
	require.Error(t, err)
	setBytes(t, o.FS, file(9, ".index"), noise(64)) // an index whose log is gone
	fill(t, create(t, 9, o), 3)
}

func TestTheTransactionIndexFollowsTheSegment(t *testing.T) {
	o := Options{FS: memFS(t)}
	s := create(t, 0, o)
	_, complete, err := s.Aborted(0, 100)
	require.NoError(t, err)
	require.False(t, complete)
	fill(t, s, 20)
	all := []AbortedTxn{{7, 0, 3, 4}, {8, 2, 9, 10}, {7, 11, 15, 16}}
	for _, a := range all {
		require.NoError(t, s.AppendAborted(a))
	}
	get := func(s *Segment, from, to int64) []AbortedTxn {
		got, _, err := s.Aborted(from, to)
		require.NoError(t, err)
		return got
	}
	require.Equal(t, all, get(s, 0, 20))
	require.Equal(t, all[1:2], get(s, 4, 11))
	_, complete, _ = s.Aborted(0, 10)
	require.True(t, complete)
	require.Error(t, s.AppendAborted(all[0]), "markers ascend")
	require.NoError(t, s.Sync())
	_, err = s.Truncate(9)
	require.NoError(t, err)
	require.Equal(t, all[:1], get(s, 0, 20))
	require.NoError(t, s.Close())
	s = open(t, 0, o)
	recoverAll(t, s)
	require.Equal(t, all[:1], get(s, 0, 20))
	require.NoError(t, s.SetAborted(all))
	require.Equal(t, all, get(s, 0, 20))
	recoverAll(t, s) // the log ends at 9
	require.Equal(t, all[:1], get(s, 0, 20))
	require.NoError(t, s.SetAborted(nil))
	require.Empty(t, get(s, 0, 20))
	require.Empty(t, fileBytes(t, o.FS, file(0, ".txnindex")), "it stays, empty")

	setBytes(t, o.FS, file(0, ".txnindex"), noise(68))
	s = open(t, 0, o)
	require.ErrorIs(t, s.CheckAborted(), ErrCorrupt)
	recoverAll(t, s)
	_, err = s.Truncate(5)
	require.NoError(t, err, "a derived file does not stop a truncation")
	require.NoError(t, s.SetAborted(all[:1]))
	require.NoError(t, s.CheckAborted())
}
