package log

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// A log that nobody wrote to since it was opened has nothing to say at close.
func TestClosingUntouchedLogsTouchesNoFile(t *testing.T) {
	fsys := vfs.Mem()
	with := func(fsys vfs.FS, use func(d *Dir, logs []*Log)) {
		d, err := OpenDir("mem", DirConfig{FS: fsys, Manual: true})
		require.NoError(t, err)
		var logs []*Log
		for i := range int32(5) {
			l, err := d.Open(ctx, TopicPartition{"t", i}, Config{})
			require.NoError(t, err)
			logs = append(logs, l)
		}
		use(d, logs)
		require.NoError(t, d.Close())
	}
	with(fsys, func(_ *Dir, logs []*Log) {
		for _, l := range logs {
			require.NoError(t, errOf(l.Append(ctx, values(3, 10)...)))
			require.NoError(t, l.Roll(ctx))
			require.NoError(t, errOf(l.Append(ctx, values(3, 10)...)))
		}
	})
	trace := vfstest.NewTrace(fsys)
	with(trace, func(_ *Dir, logs []*Log) {
		for _, l := range logs {
			require.Len(t, must(offsetsOf(l.Records(ctx, 0))), 6)
		}
		trace.Reset()
	})
	require.Empty(t, trace.Filter("t-*"), trace.String())
	require.Zero(t, len(trace.Filter("t-*/*"))-len(trace.Filter("t-*/*", vfstest.OpClose)), "files that reading left open are closed: "+trace.String())
	with(trace, func(_ *Dir, logs []*Log) { // one that was written to and synced has an entry of the time index to come, and a snapshot
		require.NoError(t, errOf(logs[0].Append(ctx, values(1, 10)...)))
		require.NoError(t, logs[0].Sync(ctx))
		trace.Reset()
	})
	require.Empty(t, trace.Filter("t-*/*.log", vfstest.OpSync, vfstest.OpSyncData, vfstest.OpWrite), trace.String())
	require.Empty(t, trace.Filter("t-1"), trace.String())
	with(fsys, func(_ *Dir, logs []*Log) {
		for i, l := range logs {
			require.True(t, l.Recovery().Clean)
			require.Empty(t, l.Recovery().Findings)
			require.Len(t, must(offsetsOf(l.Records(ctx, 0))), 6+max(0, 1-i))
		}
	})
}

func TestTheBudgetOfOpenFilesIsTheHosts(t *testing.T) {
	trace := vfstest.NewTrace(vfs.Mem())
	d, err := OpenDir("mem", DirConfig{FS: trace, Manual: true, MaxOpenFiles: 5})
	require.NoError(t, err)
	for range 3 {
		for i := range int32(30) {
			l, err := d.Open(ctx, TopicPartition{"t", i}, Config{})
			require.NoError(t, err)
			require.NoError(t, errOf(l.Append(ctx, record.Record{Value: []byte("v")})))
			require.LessOrEqual(t, d.Stats().Files, 5)
		}
	}
	require.NoError(t, d.Close())
	_, err = OpenDir("mem", DirConfig{FS: vfs.Mem(), MaxOpenFiles: -1})
	_, bad := err.(*ConfigError)
	require.True(t, bad, err)
}

// The two names have the same hash.
func TestHintsOfPartitionsWithOneHashAreToldApart(t *testing.T) {
	a, b := TopicPartition{"costarring", 0}, TopicPartition{"liquid", 0}
	require.Equal(t, hashName(a.String()[:10]), hashName(b.String()[:6]))
	require.Equal(t, hashName(a.String()), hashName(b.String()))
	fsys := vfs.Mem()
	h, err := openHints(fsys, false)
	require.NoError(t, err)
	for tp, offset := range map[TopicPartition]int64{a: 7, b: 9} {
		_, err := h.note(tp.String(), hint{offset: offset, recoveryPoint: 1})
		require.NoError(t, err)
	}
	require.NoError(t, h.close(false))
	h, err = openHints(fsys, false)
	require.NoError(t, err)
	require.Equal(t, int64(7), h.get(a, 1))
	require.Equal(t, int64(9), h.get(b, 1))
	require.Zero(t, h.get(a, 2))
	require.NoError(t, h.forget(a.String()))
	require.Zero(t, h.get(a, 1))
	require.Equal(t, int64(9), h.get(b, 1))
	require.NoError(t, h.close(true))
}
