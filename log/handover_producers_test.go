package log

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/internal/producerstate"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
)

// The target gives producers ids of its own, which begin at 0 as those of the source did: one with the id, epoch and sequence
// of a producer of the source is not taken for it, so none of its records is lost or refused. Open a copy with or without
// its snapshots, in any segment: nobody in it has an id that a cluster gives.
func TestTheTargetsProducersAreStrangersToACopy(t *testing.T) {
	ctx, mem := context.Background(), vfs.Mem()
	d, err := OpenDir("root", DirConfig{FS: subtree(t, mem, "root"), Manual: true})
	require.NoError(t, err)
	l, err := d.Open(ctx, TopicPartition{"t", 0}, Config{})
	require.NoError(t, err)
	now := func(value string) record.Record {
		return record.Record{Value: []byte(value), Timestamp: time.Now().UnixMilli()}
	}
	for i := range int64(3) {
		_, err = l.Producer(5+i, 0).Append(ctx, now("same"), now("same"))
		require.NoError(t, err)
		p := l.Producer(50+i, 0)
		require.NoError(t, p.Begin())
		_, err = p.Append(ctx, now("aborted"))
		require.NoError(t, err)
		require.NoError(t, p.Abort(ctx))
		require.NoError(t, l.Roll(ctx))
	}
	_, err = l.Append(ctx, now("nobody's"))
	require.NoError(t, err)
	require.NoError(t, d.Close())

	_, err = Handover(ctx, "root", "to", HandoverOptions{From: mem, FS: mem, Topics: map[string][16]byte{"t": foreignID}})
	require.NoError(t, err)
	to := subtree(t, mem, "to")
	sound(t, to)
	strangers := func(id int64) { require.GreaterOrEqual(t, id, int64(1)<<62) }
	snapshots, err := producerstate.List(to, "t-0")
	require.NoError(t, err)
	require.NotEmpty(t, snapshots)
	for _, at := range snapshots {
		entries, err := producerstate.ReadSnapshot(to, "t-0/"+producerstate.FileName(at))
		require.NoError(t, err)
		for _, e := range entries {
			strangers(e.ProducerID)
		}
	}
	for range 2 {
		d, err = OpenDir("to", DirConfig{FS: to, Manual: true})
		require.NoError(t, err)
		l, err = d.Open(ctx, TopicPartition{"t", 0}, Config{})
		require.NoError(t, err)
		require.Empty(t, l.Recovery().Findings)
		require.Len(t, l.Producers(), 6)
		for _, p := range l.Producers() {
			strangers(p.ID)
		}
		aborted, err := l.AbortedTxns()
		require.NoError(t, err)
		require.Len(t, aborted, 3)
		for _, a := range aborted {
			strangers(a.ProducerID)
		}
		seen := []string{}
		for r, err := range l.Records(ctx, 0, WithIsolation(ReadCommitted)) {
			require.NoError(t, err)
			seen = append(seen, string(r.Value))
		}
		require.Equal(t, []string{"same", "same", "same", "same", "same", "same", "nobody's"}, seen)
		require.NoError(t, d.Close())
		require.NoError(t, producerstate.Remove(to, "t-0", snapshots))
		require.NoError(t, to.Remove(checkpoint.RecoveryPoints))
		require.NoError(t, to.Remove(checkpoint.CleanMarker))
	}
	d, err = OpenDir("to", DirConfig{FS: to, Manual: true})
	require.NoError(t, err)
	l, err = d.Open(ctx, TopicPartition{"t", 0}, Config{})
	require.NoError(t, err)
	for i := range int64(3) {
		b := record.NewBuilder(record.BuilderOptions{Producer: &record.Producer{ID: 5 + i}})
		for range 2 {
			require.NoError(t, b.Add(now("new")))
		}
		batch, err := b.Finish()
		require.NoError(t, err)
		end := l.Offsets().LogEnd
		got, err := l.AppendBatches(ctx, batch.Bytes(), AppendOptions{})
		require.NoError(t, err)
		require.False(t, got.Duplicate)
		require.Equal(t, end, got.Base)
	}
	require.NoError(t, d.Close())
}
