package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestQuickstartShowsTheContinuationOfABrokersFolder(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, quickstart(t.Context(), &out))
	for _, line := range []string{
		"codec-mixed-0 holds offsets 0 to 290 in 2 segments, leader epoch 0; the broker stopped cleanly: true; its last:",
		"appended two records at 291",
		`key-1 = "written by a Go program"`,
		"key-2 = null",
		`durable at 2; the follower got "2 three"`,
		"the next one is at offset 1",
	} {
		require.Contains(t, out.String(), line)
	}
}
