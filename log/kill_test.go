//go:build unix

package log

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
)

// writerVariable makes the test binary be a writer that appends durably to the root it names until it is killed.
const writerVariable = "PARTLOG_TEST_WRITER"

func TestMain(m *testing.M) {
	if root := os.Getenv(writerVariable); root != "" {
		if err := writeUntilKilled(root); err != nil {
			fmt.Println("error", err)
		}
		os.Exit(3)
	}
	if root := os.Getenv(cleanerVariable); root != "" {
		if err := cleanUntilKilled(root); err != nil {
			fmt.Println("error", err)
		}
		os.Exit(3)
	}
	os.Exit(m.Run())
}

const killPartitions, killWriters = 3, 4

// writeUntilKilled appends from several goroutines to several partitions, rolling and truncating, and says on standard
// output what it was told: "+ partition base last" after an acknowledged append, "< partition end" before a truncation and
// "- partition end" behind it. Partition 0 is never truncated.
func writeUntilKilled(root string) error {
	d, err := OpenDir(root, DirConfig{LockTimeout: 10 * time.Second})
	if err != nil {
		return err
	}
	var out sync.Mutex
	say := func(format string, args ...any) {
		out.Lock()
		defer out.Unlock()
		fmt.Printf(format+"\n", args...)
	}
	errs := make(chan error)
	for p := range int32(killPartitions) {
		l, err := d.Open(context.Background(), TopicPartition{"t", p}, Config{SegmentBytes: 20_000, IndexIntervalBytes: EveryBatch})
		if err != nil {
			return err
		}
		var still sync.RWMutex // truncations wait for appends here, so that what the parent reads is in order
		for range killWriters {
			go func() {
				for {
					recs := make([]record.Record, 1+rand.IntN(5))
					for i := range recs {
						recs[i] = record.Record{Value: sized(rand.IntN(900))}
					}
					still.RLock()
					base, err := l.Append(context.Background(), recs...)
					if err == nil {
						say("+ %d %d %d", p, base, base+int64(len(recs))-1)
					}
					still.RUnlock()
					if err != nil {
						errs <- err
						return
					}
				}
			}()
		}
		go func() {
			for p > 0 {
				time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
				still.Lock()
				o := l.Offsets()
				to := o.LogEnd - int64(rand.IntN(50))
				to = max(to, o.LogStart)
				say("< %d %d", p, to-5) // it may cut inside a batch
				end, err := l.Truncate(context.Background(), to)
				if err == nil {
					say("- %d %d", p, end)
					err = l.Roll(context.Background())
				}
				still.Unlock()
				if err != nil {
					errs <- err
					return
				}
			}
		}()
	}
	return <-errs
}

// sized is a value that says whether it is whole.
func sized(n int) []byte {
	v := binary.BigEndian.AppendUint32(nil, uint32(n))
	return append(v, bytes.Repeat([]byte{byte(n)}, n)...)
}

func isSized(v []byte) bool {
	return len(v) >= 4 && bytes.Equal(v, sized(int(binary.BigEndian.Uint32(v))))
}

// A process that appends durably is killed again and again: what it was told is there, and whole, and the next one goes on.
func TestWhatAKilledProcessWasToldIsThere(t *testing.T) {
	kills := 8
	if testing.Short() {
		kills = 3
	}
	if n, err := strconv.Atoi(os.Getenv("PARTLOG_TEST_KILLS")); err == nil {
		kills = n
	}
	root := t.TempDir()
	var acked [killPartitions]int64 // offset behind the last one known to be there
	for n := range kills {
		told := runWriter(t, writerVariable, root, time.Duration(20+rand.IntN(200))*time.Millisecond)
		require.NotEmpty(t, told)
		for _, line := range told {
			var p int
			var a, b int64
			switch f := strings.Fields(line); f[0] {
			case "+":
				_, err := fmt.Sscan(strings.Join(f[1:], " "), &p, &a, &b)
				require.NoError(t, err)
				acked[p] = max(acked[p], b+1)
			case "<", "-":
				_, err := fmt.Sscan(strings.Join(f[1:], " "), &p, &a)
				require.NoError(t, err)
				acked[p] = min(acked[p], max(a, 0))
			default:
				t.Fatalf("the writer said %q", line)
			}
		}
		d, err := OpenDir(root, DirConfig{})
		require.NoError(t, err)
		require.False(t, d.clean)
		for p := range int32(killPartitions) {
			l, err := d.Open(ctx, TopicPartition{"t", p}, Config{SegmentBytes: 20_000})
			require.NoError(t, err)
			require.GreaterOrEqual(t, l.Offsets().LogEnd, acked[p], "kill %d: %+v", n, l.Recovery())
			next := int64(0)
			for r, err := range l.Records(ctx, 0) {
				require.NoError(t, err)
				require.Equal(t, next, r.Offset)
				require.True(t, isSized(r.Value))
				next++
			}
			require.Equal(t, l.Offsets().LogEnd, next)
			acked[p] = next
		}
		if n%2 == 0 { // the next one finds a clean root, or one that was left in the middle
			require.NoError(t, d.Close())
		} else {
			require.NoError(t, d.lock.Close())
		}
	}
}

// runWriter starts a writer, kills it after a while, and returns the whole lines it said.
func runWriter(t *testing.T, variable, root string, after time.Duration) (lines []string) {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	c := exec.Command(exe)
	c.Env = append(os.Environ(), variable+"="+root)
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	r := bufio.NewReader(out)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			break
		}
		if len(lines) == 0 {
			time.AfterFunc(after, func() { _ = c.Process.Kill() })
		}
		lines = append(lines, strings.TrimSuffix(line, "\n"))
	}
	_ = c.Wait()
	require.False(t, c.ProcessState.Exited(), "it was to be killed, and said %q", lines[max(0, len(lines)-3):])
	return lines
}
