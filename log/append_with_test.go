package log

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
)

// Many writers who decide by what they have read: each record was written by one who had seen all before it.
func TestOfWritersWhoExpectTheSameOffsetOneGetsIn(t *testing.T) {
	b := newBed(t, Config{})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for {
				seen := b.Offsets().LogEnd
				if seen >= 200 {
					return
				}
				res, err := b.AppendWith(ctx, AppendOptions{ExpectedOffset: &seen}, record.Record{Value: []byte{byte(seen)}})
				if err == nil && res.Base != seen {
					t.Errorf("expected %d, got %d", seen, res.Base)
				}
				if err != nil {
					require.ErrorIs(t, err, ErrUnexpectedOffset)
					require.Equal(t, notAppended, res)
				}
			}
		})
	}
	all.Wait()
	next := int64(0)
	for r, err := range b.Records(ctx, 0) {
		require.NoError(t, err)
		require.Equal(t, []byte{byte(next)}, r.Value)
		next++
	}
	require.Equal(t, b.Offsets().LogEnd, next)
}

func TestAnAppendHeedsItsOptions(t *testing.T) {
	b := newBed(t, Config{})
	require.NoError(t, b.AssignEpoch(5))
	one := record.Record{Value: []byte("x")}

	res, err := b.AppendWith(ctx, AppendOptions{Durability: Buffered, LeaderEpoch: new(int32(5))}, one, one)
	require.NoError(t, err)
	require.Equal(t, Appended{Base: 0, Last: 1, AppendTime: -1}, res)
	require.Zero(t, b.Offsets().Durable, "nobody waited for the device")

	_, err = b.AppendWith(ctx, AppendOptions{LeaderEpoch: new(int32(4))}, one)
	require.ErrorIs(t, err, ErrFenced)
	for _, o := range []AppendOptions{{As: Follower}, {As: 9}, {Durability: 9}} {
		res, err = b.AppendWith(ctx, o, one)
		var bad *ConfigError
		require.ErrorAs(t, err, &bad)
		require.Equal(t, notAppended, res)
	}

	// Nothing to append is not a way around what is expected.
	res, err = b.AppendWith(ctx, AppendOptions{ExpectedOffset: new(int64(2))})
	require.NoError(t, err)
	require.Equal(t, Appended{Base: 2, Last: 1, AppendTime: -1}, res)
	_, err = b.AppendWith(ctx, AppendOptions{ExpectedOffset: new(int64(1))})
	require.ErrorIs(t, err, ErrUnexpectedOffset)
	_, err = b.AppendBatches(ctx, nil, AppendOptions{As: Follower, ExpectedOffset: new(int64(1))})
	require.ErrorIs(t, err, ErrUnexpectedOffset)
	require.Equal(t, int64(2), b.Offsets().LogEnd)
}
