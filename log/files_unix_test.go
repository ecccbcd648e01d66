//go:build unix

package log

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/partlog/partlog/record"
)

// noFileVariable makes the test below do its work in a process of its own, which may have few descriptors.
const noFileVariable = "PARTLOG_TEST_NOFILE"

func TestManyLogsLiveWithFewDescriptors(t *testing.T) {
	if os.Getenv(noFileVariable) == "" {
		exe, err := os.Executable()
		require.NoError(t, err)
		c := exec.Command(exe, "-test.run=^"+t.Name()+"$", "-test.v")
		c.Env = append(os.Environ(), noFileVariable+"=96")
		out, err := c.CombinedOutput()
		require.NoError(t, err, string(out))
		return
	}
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	limit.Cur = 96
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
	const logs, budget = 200, 48
	root := t.TempDir()
	config := func(i int) Config {
		return Config{SegmentBytes: 600, RetentionBytes: 1500, FileDeleteDelay: Immediately, Durability: []Durability{Durable, Buffered}[i%2]}
	}
	d, err := OpenDir(root, DirConfig{})
	require.NoError(t, err)
	open := make([]*Log, logs)
	for i := range open {
		open[i], err = d.Open(ctx, TopicPartition{"t", int32(i)}, config(i))
		require.NoError(t, err)
	}
	counts := make([]int64, logs)
	for round := range 3 {
		var all sync.WaitGroup
		for w := range 8 { // each has logs of its own
			all.Go(func() {
				r := rand.New(rand.NewPCG(uint64(w), uint64(round)))
				for range 120 {
					i := r.IntN(logs/8)*8 + w
					base, err := open[i].Append(ctx, record.Record{Value: make([]byte, 100)})
					if err != nil || base != counts[i] {
						t.Errorf("log %d: %d, %v", i, base, err)
						return
					}
					counts[i]++
					read, err := offsetsOf(open[i].Records(ctx, open[i].Offsets().LogStart))
					if err != nil || open[i].Config().Durability == Buffered && int64(len(read)) != counts[i]-open[i].Offsets().LogStart {
						t.Errorf("log %d: %v, %v", i, read, err)
						return
					}
				}
			})
		}
		all.Wait()
		require.LessOrEqual(t, d.Stats().Files, budget)
		require.NoError(t, d.RunOnce(ctx, time.Now().Add(time.Hour*time.Duration(round+1))))
		require.LessOrEqual(t, d.Stats().Files, budget)
	}
	require.NoError(t, d.Close())
	d, err = OpenDir(root, DirConfig{})
	require.NoError(t, err)
	require.NoError(t, d.OpenAll(ctx, OpenAllOptions{}))
	for i := range open {
		l, ok := d.Get(TopicPartition{"t", int32(i)})
		require.True(t, ok)
		require.True(t, l.Recovery().Clean)
		require.Equal(t, counts[i], l.Offsets().LogEnd)
	}
	require.Zero(t, d.Stats().Files)
	require.NoError(t, d.Close())
}
