package main

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
)

func TestQueueShowsThatALostJobComesAgain(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, show(t.Context(), &out))
	require.Regexp(t, `^"job 0" was delivered again\n20 jobs done by 3 consumers\nopened again: 0 of 20 are left\n$`, out.String())
}

func TestWhatIsDoneIsNotDeliveredAgainAndAllElseIs(t *testing.T) {
	dir, ctx := t.TempDir(), t.Context()
	q, err := Open(ctx, dir, time.Hour)
	require.NoError(t, err)
	for i := range 10 {
		_, err := q.Put(ctx, fmt.Append(nil, i))
		require.NoError(t, err)
	}
	var had []Job
	for range 7 {
		j, err := q.Take(ctx)
		require.NoError(t, err)
		had = append(had, j)
	}
	for _, i := range []int{0, 1, 4, 6, 4} { // 2, 3 and 5 are in hand; one is reported twice
		require.NoError(t, q.Done(ctx, had[i]))
	}
	require.Equal(t, progress{2, []int64{4, 6}}, q.now)
	require.NoError(t, q.Close())

	q, err = Open(ctx, dir, 20*time.Millisecond)
	require.NoError(t, err)
	var again []int64
	for range 6 {
		j, err := q.Take(ctx)
		require.NoError(t, err)
		require.Equal(t, fmt.Append(nil, j.Offset), j.Value)
		again = append(again, j.Offset)
		require.NoError(t, q.Done(ctx, j))
	}
	require.ElementsMatch(t, []int64{2, 3, 5, 7, 8, 9}, again)
	require.Equal(t, int64(10), q.jobs.Offsets().LogStart)

	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	_, err = q.Take(short)
	require.ErrorIs(t, err, context.DeadlineExceeded, "nothing is left")
	closed := make(chan error)
	go func() { closed <- q.Close() }()
	_, err = q.Take(ctx)
	require.ErrorIs(t, err, log.ErrClosed)
	require.NoError(t, <-closed)
}
