package log

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
)

// oldFolder is a log of batches of three records, the second of which has the largest timestamp, stopped cleanly.
func oldFolder(t *testing.T) *site {
	s := newSite(t, Config{IndexIntervalBytes: 300})
	for i := range int64(20) {
		at := 1_700_000_000_000 + 10*i
		_, err := s.log.Append(ctx, record.Record{Timestamp: at, Value: make([]byte, 50)}, record.Record{Timestamp: at + 5, Value: make([]byte, 50)}, record.Record{Timestamp: at + 1})
		require.NoError(t, err)
	}
	s.stop()
	require.Empty(t, sayFindings(verifyAll(t, s.disk, VerifyOptions{})))
	return s
}

// Leaders of releases such as 3.6 note in the time index which record of a batch is the youngest.
func TestVerifyTakesTimeIndexesThatNameARecordWithinABatch(t *testing.T) {
	for back, findings := range map[uint32]int{1: 0, 2: 1} {
		s := oldFolder(t)
		s.edit(inFolder("00000000000000000000.timeindex"), func(b []byte) []byte {
			require.Greater(t, len(b), 5*12)
			for i := 8; i < len(b); i += 12 {
				binary.BigEndian.PutUint32(b[i:], binary.BigEndian.Uint32(b[i:])-back)
			}
			return b
		})
		got := verifyAll(t, s.disk, VerifyOptions{})
		require.Len(t, got, findings, sayFindings(got))
		if findings > 0 {
			continue
		}
		s.open()
		for i := range int64(60) {
			at, err := s.log.OffsetForTime(ctx, time.UnixMilli(1_700_000_000_000+10*(i/3)+i%3))
			require.NoError(t, err)
			require.Equal(t, i/3*3+min(i%3, 1), at.Offset)
		}
		require.Empty(t, s.log.Recovery().Rebuilt)
	}
}

// Followers of such releases index nothing of what comes with the first fetch, and close the segment with a time index entry.
func TestVerifyTakesIndexesThatHaveNoEntryForAllOfAFetch(t *testing.T) {
	s := oldFolder(t)
	s.edit(inFolder("00000000000000000000.index"), func([]byte) []byte { return nil })
	require.Len(t, verifyAll(t, s.disk, VerifyOptions{IndexInterval: 300}), 1, "the time index shows that there were entries")
	s.edit(inFolder("00000000000000000000.timeindex"), func(b []byte) []byte { return b[len(b)-12:] })
	require.Empty(t, sayFindings(verifyAll(t, s.disk, VerifyOptions{IndexInterval: 300})))
	s.edit(inFolder("00000000000000000000.timeindex"), func(b []byte) []byte { b[7]--; return b })
	require.NotEmpty(t, verifyAll(t, s.disk, VerifyOptions{IndexInterval: 300}), "a time index that is not whole tells nothing")
}
