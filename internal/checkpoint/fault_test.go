package checkpoint

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// Each call on the disk fails once: the old content or the new is there, whole, nothing lies about, and the next try works.
func TestAnyFailingCallOfAReplacementLeavesOldOrNew(t *testing.T) {
	eio := errors.New("eio")
	old, next := map[Partition]int64{{"t", 0}: 1}, map[Partition]int64{{"t", 0}: 2, {"t", 1}: 3}
	for _, rule := range []vfstest.Rule{{Err: eio}, {Err: eio, Short: true, Keep: 5}, {Err: eio, Done: true}} {
		for nth, hit := 1, true; hit; nth++ {
			mem := vfs.Mem()
			require.NoError(t, WriteOffsets(mem, RecoveryPoints, old))
			rule.Nth = nth
			disk := vfstest.NewFault(mem)
			hits, _ := disk.Add(rule)
			err := WriteOffsets(disk, RecoveryPoints, next)
			if hit = hits() > 0; hit {
				require.ErrorIs(t, err, eio)
			}
			got, rerr := ReadOffsets(mem, RecoveryPoints)
			require.NoError(t, rerr)
			if err == nil {
				require.Equal(t, next, got)
			} else {
				require.Contains(t, []map[Partition]int64{old, next}, got)
			}
			names, rerr := mem.ReadDir(".")
			require.NoError(t, rerr)
			require.Len(t, names, 1)
			disk.Clear()
			require.NoError(t, WriteOffsets(disk, RecoveryPoints, next))
		}
	}
}

// Whoever is told that the marker was not written may go on writing to the root: it must not count as clean.
func TestAMarkerThatCouldNotBeWrittenIsNotThere(t *testing.T) {
	eio := errors.New("eio")
	for _, rule := range []vfstest.Rule{{Err: eio}, {Err: eio, Short: true, Keep: 5}, {Err: eio, Done: true}} {
		for nth, hit := 1, true; hit; nth++ {
			mem := vfs.Mem()
			rule.Nth = nth
			disk := vfstest.NewFault(mem)
			hits, _ := disk.Add(rule)
			err := WriteCleanMarker(disk, 7)
			hit = hits() > 0
			_, clean, rerr := ReadCleanMarker(mem)
			require.NoError(t, rerr)
			require.Equal(t, err == nil, clean)
			require.Equal(t, hit, err != nil)
		}
	}
}

// A number is read whole or not at all.
func TestLongNumbersAreNotCutShort(t *testing.T) {
	zeros := strings.Repeat("0", 100)
	for _, text := range []string{"0\n" + zeros + "1\n", "0\n1\nt 0 " + zeros + "5\n", "0\n1\nt " + zeros + "5 1\n", zeros + "1\n0\n"} {
		_, err := ParseOffsets("f", []byte(text))
		require.ErrorIs(t, err, ErrFormat, "%q", text)
	}
	_, err := ParseEpochs("f", []byte("0\n1\n"+zeros+"5 1\n"))
	require.ErrorIs(t, err, ErrFormat)
}
