package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCountsAndSpansReadAsSentences(t *testing.T) {
	require.Equal(t, "1 file", counted(1, "file"))
	require.Equal(t, "0 files", counted(0, "file"))
	require.Equal(t, "2 batches", counted(int64(2), "batch"))
	require.Equal(t, "offset 7", span(7, 8))
	require.Equal(t, "offsets 7 to 9", span(7, 10))
	require.Equal(t, "the log is empty, its next offset is 7", holding(7, 7))
}
