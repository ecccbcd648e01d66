package segment

import (
	"encoding/binary"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A value may hold bytes that look like a batch; an index entry that points at them must not make readers see one.
func TestAnIndexEntryThatPointsIntoAValueIsNotBelieved(t *testing.T) {
	o := Options{FS: memFS(t), IndexIntervalBytes: 100}
	s := create(t, 0, o)
	decoy := batchOf(t, 1, 9, 1, "decoy") // offsets 1 to 9
	add(t, s, one(t, 0), batchOf(t, 1, 1, 10, string(decoy)))
	fill(t, s, 20)
	require.NoError(t, s.Close())
	log := fileBytes(t, o.FS, file(0, ".log"))
	inner := strings.Index(string(log), string(decoy))
	require.Positive(t, inner)
	var entry [8]byte
	binary.BigEndian.PutUint32(entry[:], 3)
	binary.BigEndian.PutUint32(entry[4:], uint32(inner))
	setBytes(t, o.FS, file(0, ".index"), entry[:])
	s = open(t, 0, o)
	for i := range int64(22) {
		p, err := s.Find(i)
		require.NoError(t, err)
		require.Equal(t, [2]int64{i, i}, [2]int64{p.Base, p.LastOffset})
	}
}

func TestATimeEntryThatDoesNotFitItsBatchIsNotBelieved(t *testing.T) {
	o := Options{FS: memFS(t), IndexIntervalBytes: EveryBatch}
	s := create(t, 0, o)
	for i := range int64(20) {
		add(t, s, batchOf(t, i, 1, 1000+i, "v"))
	}
	require.NoError(t, s.Close())
	var entry [12]byte
	binary.BigEndian.PutUint64(entry[:], 5) // so early was nothing
	binary.BigEndian.PutUint32(entry[8:], 15)
	setBytes(t, o.FS, file(0, ".timeindex"), entry[:])
	got, err := open(t, 0, o).FindTime(1003, 0)
	require.NoError(t, err)
	require.EqualValues(t, 3, got.Offset)
}

func TestABatchBehindTheReadWindowsEdgeIsProbedToo(t *testing.T) {
	empty := len(batchOf(t, 0, 1, 1, ""))
	for d := -70; d <= 5; d += 5 {
		o := Options{FS: memFS(t)}
		big := batchOf(t, 0, 1, 1, strings.Repeat("x", readBuffer+d-empty))
		at := len(big)
		big[100] ^= 1
		setBytes(t, o.FS, file(0, ".log"), append(big, one(t, 1)...))
		scan, err := open(t, 0, o).Scan(ctx, ScanOptions{})
		require.NoError(t, err)
		require.Equal(t, TornWithValid, scan.Verdict, "second batch at byte %d", at)
		require.Equal(t, 1, scan.ValidBehind)
	}
}

func TestABatchLargerThanAnyBufferIsRead(t *testing.T) {
	o := Options{FS: memFS(t)}
	s := create(t, 0, o)
	add(t, s, one(t, 0), batchOf(t, 1, 1, 20, strings.Repeat("x", streamAbove+streamAbove/2)), one(t, 2))
	require.Equal(t, span(0, 3), mustOffsets(t, s))
	scan, err := s.Scan(ctx, ScanOptions{})
	require.NoError(t, err)
	require.Equal(t, Clean, scan.Verdict)
	f, err := o.FS.OpenFile(file(0, ".log"), os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("y"), streamAbove)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	got, err := offsets(s)
	require.Equal(t, []int64{0}, got)
	require.EqualValues(t, 1, corrupt(t, err).Offset)
}

func TestParkSyncsWhatALaterSyncWouldNotKnowOf(t *testing.T) {
	o := Options{FS: memFS(t)}
	ff := &faultFS{FS: o.FS, match: func(n string) bool { return strings.HasSuffix(n, ".txnindex") }}
	o.FS = ff
	s := create(t, 0, o)
	fill(t, s, 3)
	require.NoError(t, s.AppendAborted(AbortedTxn{1, 0, 2, 3}))
	ff.sync.Store(&errDisk)
	require.ErrorIs(t, s.Park(), errDisk)
	ff.sync.Store(nil)
	require.ErrorIs(t, s.Sync(), ErrBroken)
}
