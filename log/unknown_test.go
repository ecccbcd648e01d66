package log

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/index"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
)

// Values that a later version may give a meaning are refused, not read as one of today's.
func TestValuesThatAreNoConstantsAreRefused(t *testing.T) {
	ctx, fs := t.Context(), vfs.Mem()
	d, err := OpenDir("mem", DirConfig{FS: fs, Manual: true})
	require.NoError(t, err)
	defer d.Close()
	l, err := d.Open(ctx, TopicPartition{Topic: "t"}, Config{})
	require.NoError(t, err)
	_, err = l.Append(ctx, record.Record{Value: []byte("v")})
	require.NoError(t, err)
	first := func(options ...ReadOption) error {
		for _, err := range l.Records(ctx, 0, options...) {
			return err
		}
		return nil
	}
	endTxn := func(o EndTxnOptions) error {
		_, err := l.EndTxn(ctx, record.Producer{ID: 1}, true, o)
		return err
	}
	for field, do := range map[string]func() error{
		"ReadOptions.Isolation": func() error { return first(WithIsolation(9)) },
		"ReadOptions.Reset":     func() error { return first(WithReset(9)) },
		"FetchOptions.Isolation": func() error {
			_, err := l.Fetch(ctx, 0, FetchOptions{Isolation: 9})
			return err
		},
		"DirConfig.Map": func() error {
			_, err := OpenDir("mem", DirConfig{FS: vfs.Mem(), Map: 99})
			return err
		},
		"ReaderOptions.Map": func() error {
			_, err := OpenReader("t-0", ReaderOptions{FS: fs, Map: index.Never + 1})
			return err
		},
		"EndTxnOptions.TransactionVersion": func() error { return endTxn(EndTxnOptions{TransactionVersion: 7}) },
		"EndTxnOptions.CoordinatorEpoch":   func() error { return endTxn(EndTxnOptions{CoordinatorEpoch: -1}) },
		"EndTxnOptions.Durability":         func() error { return endTxn(EndTxnOptions{Durability: 9}) },
	} {
		t.Run(field, func(t *testing.T) {
			bad := (*ConfigError)(nil)
			require.ErrorAs(t, do(), &bad)
			require.Equal(t, field, bad.Field)
			require.Contains(t, bad.Error(), field)
		})
	}
	require.EqualValues(t, 1, l.Offsets().LogEnd, "nothing of it was written")
	for _, err := range l.Batches(ctx, 0, WithIsolation(9)) {
		require.ErrorAs(t, err, new(*ConfigError))
	}
}

func TestAMarkerOfAnotherLeaderEpochIsFenced(t *testing.T) {
	ctx := t.Context()
	d, err := OpenDir("mem", DirConfig{FS: vfs.Mem(), Manual: true})
	require.NoError(t, err)
	defer d.Close()
	l, err := d.Open(ctx, TopicPartition{Topic: "t"}, Config{})
	require.NoError(t, err)
	require.NoError(t, l.AssignEpoch(5))
	for _, epoch := range []int32{4, 6} {
		got, err := l.EndTxn(ctx, record.Producer{ID: 1}, true, EndTxnOptions{LeaderEpoch: &epoch})
		require.ErrorIs(t, err, ErrFenced)
		require.EqualValues(t, -1, got.Base)
	}
	epoch := int32(5)
	got, err := l.EndTxn(ctx, record.Producer{ID: 1}, true, EndTxnOptions{LeaderEpoch: &epoch})
	require.NoError(t, err)
	require.EqualValues(t, 0, got.Base)
	for b, err := range l.Batches(ctx, 0) {
		require.NoError(t, err)
		require.EqualValues(t, 5, b.LeaderEpoch())
	}
}
