package log

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

func TestTheDurableHintIsExactAfterAKill(t *testing.T) {
	for hinted := range int64(3) {
		s := newNine(t, Buffered)
		require.NoError(t, s.log.commit(context.Background(), 9, s.log.cuts))
		s.add(int(hinted))
		s.kill()
		s.edit(logFile(6+3*min(1, hinted)), flipAt(-1))
		err := s.tryOpen()
		if hinted == 0 {
			require.ErrorIs(t, err, ErrCorrupt)
			continue
		}
		require.NoError(t, err)
		s.holds(0, 9+hinted-1)
	}
}

func TestTheDurableHintIsOfOneRecoveryPoint(t *testing.T) {
	s := newNine(t, Durable)
	s.kill()
	s.write(checkpoint.RecoveryPoints, []byte("0\n1\nt 0 3\n")) // a broker was here
	s.edit(logFile(6), flipAt(-1))
	s.open()
	s.holds(0, 8)
	s.goesOn()
}

func TestTruncateLowersTheDurableHint(t *testing.T) {
	s := newNine(t, Durable)
	_, err := s.log.Truncate(context.Background(), 7)
	require.NoError(t, err)
	s.kill()
	s.edit(logFile(6), appendBytes(batchAt(t, 7, 0)[:60]))
	s.open()
	s.holds(0, 7)
	s.goesOn()
}

// A broker truncated the log under the same recovery point and was killed: the hint promises more than there is. It
// must not turn a later torn tail into damage.
func TestACleanEndBelowTheHintOpensAndIsForgotten(t *testing.T) {
	s := newNine(t, Durable)
	s.kill()
	s.edit(logFile(6), func(b []byte) []byte { return b[:len(b)/3] })
	s.open()
	s.holds(0, 7)
	require.Equal(t, FindingShort, s.log.Recovery().Findings[0].Kind)
	s.kill()
	s.edit(logFile(6), appendBytes(batchAt(t, 7, 0)[:60]))
	s.open()
	s.holds(0, 7)
	s.goesOn()
}

func TestACleanStopRemovesTheHintAndAnOldOneIsNotBelieved(t *testing.T) {
	s := newNine(t, Durable)
	hints := s.read(hintFile)
	s.stop()
	require.False(t, exists(s.disk, hintFile))
	s.write(hintFile, hints)
	s.open()
	require.True(t, s.log.Recovery().Clean)
	require.False(t, exists(s.disk, hintFile), "it goes before anything is written")
	s.goesOn()
}

func TestManyPartitionsShareTheHintFile(t *testing.T) {
	disk := vfstest.NewCrash(vfstest.CrashOptions{})
	ctx := context.Background()
	open := func() (*Dir, []*Log) {
		d, err := OpenDir("root", DirConfig{Manual: true, FS: disk})
		require.NoError(t, err)
		var logs []*Log
		for i := range int32(20) {
			l, err := d.Open(ctx, TopicPartition{"t", i}, Config{})
			require.NoError(t, err)
			logs = append(logs, l)
		}
		return d, logs
	}
	for round := range int64(3) {
		_, logs := open()
		for i, l := range logs {
			require.Equal(t, round*int64(i%3), l.Offsets().LogEnd)
			for range i % 3 {
				_, err := l.Append(ctx, record.Record{Value: []byte("v")})
				require.NoError(t, err)
			}
		}
		disk = disk.Kill()
		b, err := vfs.ReadFile(disk, hintFile, 1<<20)
		require.NoError(t, err)
		require.LessOrEqual(t, len(b), 20*hintSlot, "a slot a partition")
		h, err := openHints(disk, false)
		require.NoError(t, err)
		for i := range logs {
			require.Equal(t, (round+1)*int64(i%3), h.get(TopicPartition{"t", int32(i)}, 0))
		}
	}
	for name, harm := range map[string]func([]byte) []byte{
		"a flipped bit": flipAt(40), "a torn length": func(b []byte) []byte { return b[:len(b)-5] }, "garbage": func(b []byte) []byte { return bytes.Repeat([]byte{7}, 100) },
	} {
		s := &site{t: t, disk: disk.Kill()}
		s.edit(hintFile, harm)
		disk = s.disk
		open()
		disk = disk.Kill()
		_ = name
	}
}
