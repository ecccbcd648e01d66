package log

import (
	"path"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/segment"
)

func TestARecoveryPointIsNeverBelowTheLogStart(t *testing.T) {
	s := newNine(t, Durable)
	s.kill()
	s.write(checkpoint.RecoveryPoints, []byte("0\n0\n"))
	s.write(checkpoint.LogStarts, []byte("0\n1\nt 0 4\n"))
	s.open()
	require.Equal(t, int64(4), s.log.Offsets().RecoveryPoint)
}

// Scenario: R035
func TestALogWhoseFirstSegmentIsAboveItsStartBeginsThere(t *testing.T) {
	s := newNine(t, Durable)
	s.stop()
	for _, kind := range []string{".log", ".index", ".timeindex"} {
		require.NoError(t, s.disk.Remove(inFolder(segment.FileName(0, kind))))
	}
	s.open()
	s.holds(3, 9)
	s.goesOn()
}

// Report: B146
func TestALogThatWasMadeToBeginAtAnOffsetKeepsItsFirstRecord(t *testing.T) {
	for _, end := range []func(*site){(*site).stop, (*site).kill} {
		s := newSite(t, nineRecords(Durable))
		s.reset(1000)
		s.add(5)
		for range 3 {
			end(s)
			s.open()
			s.holds(1000, 1005)
		}
		s.goesOn()
	}
}

// Scenario: U058
func TestALogWhoseFilesWereDeletedByHandStartsOverAtItsStartOffset(t *testing.T) {
	for _, recoveryPoint := range []string{"0\n0\n", "0\n1\nt 0 800\n"} {
		s := newNine(t, Durable)
		s.stop()
		for name := range s.files() {
			if path.Dir(name) == crashTP.String() {
				require.NoError(t, s.disk.Remove(name))
			}
		}
		s.write(checkpoint.LogStarts, []byte("0\n1\nt 0 500\n"))
		s.write(checkpoint.RecoveryPoints, []byte(recoveryPoint))
		s.open()
		s.holds(500, 500)
		require.LessOrEqual(t, s.log.Offsets().RecoveryPoint, int64(500))
		s.goesOn()
	}
}

func TestAStartBehindTheEndSetsTheFilesAsideAndStartsOver(t *testing.T) {
	s := newNine(t, Durable)
	s.stop()
	last := s.read(logFile(6))
	s.write(checkpoint.LogStarts, []byte("0\n1\nt 0 20\n"))
	s.open()
	s.holds(20, 20)
	require.Equal(t, string(last), string(s.read("t-0.00000000000000000006.from-0.cut")))
	require.NotEmpty(t, s.log.Recovery().Findings)
	s.goesOn()
}
