package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestThreeHundredLogsFitIntoAHundredAndTwentyEightDescriptors(t *testing.T) {
	o := options{logs: 300, workers: 8}
	if runtime.GOOS == "linux" {
		o.nofile = 128
		t.Cleanup(func() { _ = limitFiles(4096) })
	}
	var out bytes.Buffer
	found, err := o.run(t.Context(), &out)
	require.NoError(t, err, out.String())
	for _, line := range []string{"300 partitions in", "close, nothing written", "600 in", "goroutines", "mappings"} {
		require.Contains(t, out.String(), line)
	}
	for _, f := range []figures{found.idle, found.busy} {
		require.Less(t, f.goroutines, 12)
		require.LessOrEqual(t, f.descriptors, 128)
	}
	require.Zero(t, found.idle.files)
	if runtime.GOOS == "linux" {
		require.LessOrEqual(t, found.busy.files, 64)
		require.Less(t, found.idle.resident, int64(150e6))
	}
}

func TestARootIsKeptIfAsked(t *testing.T) {
	o := options{logs: 2, workers: 1, keep: true, dir: filepath.Join(t.TempDir(), "root")}
	var out bytes.Buffer
	_, err := o.run(t.Context(), &out)
	require.NoError(t, err)
	require.DirExists(t, filepath.Join(o.dir, "fleet-000-1"))
	_, err = o.run(t.Context(), &out)
	require.True(t, errors.Is(err, fs.ErrExist), "what is there already is not touched: %v", err)
	require.NoError(t, os.RemoveAll(o.dir))
}
