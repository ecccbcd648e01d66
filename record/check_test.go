package record

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func placed(t testing.TB, base int64, epoch int32, c Codec, stamps ...int64) []byte {
	t.Helper()
	records := keyed(stamps...)
	for i := range records {
		records[i].Offset += base
	}
	b := buildAll(t, BuilderOptions{Codec: c}, base, records...)
	b.SetLeaderEpoch(epoch)
	return bytes.Clone(b.Bytes())
}

func TestCheckCountsASet(t *testing.T) {
	first := placed(t, 10, 3, None, 1, 7, 2)
	second := placed(t, 13, 4, Gzip, 7, 5)
	third := placed(t, 20, 5, None, 3)
	raw := bytes.Join([][]byte{first, second, third, third[:30]}, nil)
	set, err := Check(raw, CheckOptions{Origin: Replication, LeaderEpoch: 9})
	require.NoError(t, err)
	require.Equal(t, Set{Batches: 3, FirstOffset: 10, LastOffset: 20, LastOffsetOfFirst: 12, Monotonic: true, MaxTimestamp: 7,
		OffsetOfMaxTimestamp: 12, LastEpoch: 5, ValidBytes: len(raw) - 30, Codec: Gzip, Magic: 2}, set)

	empty, err := Check(raw[:15], CheckOptions{})
	require.NoError(t, err)
	require.Equal(t, Set{FirstOffset: -1, LastOffset: -1, LastOffsetOfFirst: -1, Monotonic: true, MaxTimestamp: -1,
		OffsetOfMaxTimestamp: -1, LastEpoch: -1, Magic: 2}, empty)
}

func TestCheckOfLegacyEntries(t *testing.T) {
	raw := append(bytes.Clone(sampleG), sampleF...)
	set, err := Check(raw, CheckOptions{Origin: Replication})
	require.NoError(t, err)
	require.Equal(t, Set{Batches: 2, FirstOffset: -1, LastOffset: 5, LastOffsetOfFirst: 4, Monotonic: true, MaxTimestamp: 1000,
		OffsetOfMaxTimestamp: 5, LastEpoch: -1, ValidBytes: len(raw), Magic: 0, Legacy: true}, set)
}

func TestCheckSeesProducers(t *testing.T) {
	set, err := Check(sampleB, CheckOptions{Origin: Replication, LeaderEpoch: 7})
	require.NoError(t, err)
	require.True(t, set.Producers)
}

func TestReplicationDropsEverythingFromALaterEpochOn(t *testing.T) {
	raw := bytes.Join([][]byte{placed(t, 0, -1, None, 1), placed(t, 1, 5, None, 1), placed(t, 2, 6, None, 1), placed(t, 3, 5, None, 1)}, nil)
	set, err := Check(raw, CheckOptions{Origin: Replication, LeaderEpoch: 5})
	require.NoError(t, err)
	require.Equal(t, 2, set.Batches)
	require.Equal(t, len(raw)/2, set.ValidBytes)
	require.Equal(t, int64(1), set.LastOffset)
	set, err = Check(raw, CheckOptions{Origin: Replication, LeaderEpoch: 4})
	require.NoError(t, err)
	require.Equal(t, 1, set.Batches)
}

func TestCheckRefuses(t *testing.T) {
	good := placed(t, 0, -1, None, now)
	later := placed(t, 5, 2, None, now)
	broken := bytes.Clone(good)
	broken[len(broken)-1] ^= 1
	negative := bytes.Clone(later)
	negative[posBaseOffset] = 0x80
	for name, row := range map[string]struct {
		raw  []byte
		o    CheckOptions
		want error
	}{
		"a producer's base offset":          {later, CheckOptions{}, ErrInvalidRecord},
		"a wrong raft epoch":                {later, CheckOptions{Origin: RaftLeader, LeaderEpoch: 3}, ErrInvalidRecord},
		"a batch above the limit":           {good, CheckOptions{MaxBatchBytes: len(good) - 1}, ErrTooLarge},
		"a coordinator's above the limit":   {good, CheckOptions{Origin: Coordinator, MaxBatchBytes: len(good) - 1}, ErrTooLarge},
		"a bad checksum":                    {broken, CheckOptions{}, ErrCorrupt},
		"a bad checksum, replicated":        {broken, CheckOptions{Origin: Replication}, ErrCorrupt},
		"zeros behind the batches":          {append(bytes.Clone(good), make([]byte, 12)...), CheckOptions{}, ErrCorrupt},
		"a replicated negative offset":      {negative, CheckOptions{Origin: Replication, LeaderEpoch: 2}, ErrCorrupt},
		"given offsets that do not grow":    {append(bytes.Clone(later), later...), CheckOptions{Origin: Replication, LeaderEpoch: 2}, ErrOffsetsOutOfOrder},
		"raft offsets that do not grow":     {append(bytes.Clone(later), later...), CheckOptions{Origin: RaftLeader, LeaderEpoch: 2}, ErrOffsetsOutOfOrder},
		"a batch that reaches into another": {append(placed(t, 4, 2, None, 1, 2), placed(t, 5, 2, None, 1, 2)...), CheckOptions{Origin: Replication, LeaderEpoch: 2}, ErrOffsetsOutOfOrder},
	} {
		t.Run(name, func(t *testing.T) {
			before := bytes.Clone(row.raw)
			_, err := Check(row.raw, row.o)
			require.ErrorIs(t, err, row.want)
			require.Equal(t, before, row.raw)
		})
	}
	_, err := Check(good, CheckOptions{MaxBatchBytes: len(good)})
	require.NoError(t, err, "the limit itself is allowed")
	_, err = Check(good, CheckOptions{Origin: Replication, MaxBatchBytes: 1})
	require.NoError(t, err, "what a leader has is never too large for a follower")
	set, err := Check(append(bytes.Clone(good), good...), CheckOptions{})
	require.NoError(t, err)
	require.False(t, set.Monotonic)
	var corrupt *CorruptError
	_, err = Check(append(bytes.Clone(good), broken...), CheckOptions{})
	require.ErrorAs(t, err, &corrupt)
	require.Equal(t, len(good), corrupt.Pos)
}

func TestCheckAllocatesNothing(t *testing.T) {
	raw := bytes.Join([][]byte{placed(t, 0, 1, None, now), placed(t, 1, 1, Gzip, now), placed(t, 2, 1, None, now)[:40]}, nil)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if _, err := Check(raw, CheckOptions{Origin: Replication, LeaderEpoch: 1}); err != nil {
			t.Fatal(err)
		}
	}))
}
