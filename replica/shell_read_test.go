package replica

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
)

// A follower that waits is handed what was appended, without a look into the log: it must be what the leader has there,
// whatever its log makes of what producers send, and whatever these do with their bytes afterwards.
func TestFollowersHaveWhatTheLeadersLogMadeOfABatch(t *testing.T) {
	for name, conf := range map[string]log.Config{
		"as it came":       {},
		"compressed anew":  {CompressionType: "zstd"},
		"stamped":          {TimestampType: record.LogAppendTime},
		"stamped and anew": {CompressionType: "lz4", TimestampType: record.LogAppendTime},
	} {
		t.Run(name, func(t *testing.T) {
			conf.Durability = log.Buffered
			g := newGroup(t, conf, 1, 2, 3)
			g.produce("first")
			h := g.handle(1)
			for i := range int32(30) {
				for _, o := range []record.BuilderOptions{{}, {Codec: record.Gzip}, {Producer: &record.Producer{ID: 7, BaseSequence: i}}} {
					b := record.NewBuilder(o)
					require.NoError(t, b.Add(record.Record{Timestamp: 1, Value: bytes.Repeat([]byte(fmt.Sprint("v", i)), 50)}))
					batch, err := b.Finish()
					require.NoError(t, err)
					raw := bytes.Clone(batch.Bytes())
					again := bytes.Clone(raw)
					acks := int8(1 - i%2*2) // 1 does not wait for the followers
					_, err = h.Append(t.Context(), raw, acks)
					require.NoError(t, err)
					clear(raw)
					if o.Producer != nil {
						_, err = h.Append(t.Context(), again, acks) // a duplicate
						require.NoError(t, err)
					}
				}
			}
			g.caughtUp(1, 2, 3)
			want := bytesOf(t, h.Log())
			for id := NodeID(2); id <= 3; id++ {
				require.Equal(t, want, bytesOf(t, g.handle(id).Log()))
			}
		})
	}
}

func bytesOf(t *testing.T, l *log.Log) []byte {
	f, err := l.Fetch(t.Context(), 0, log.FetchOptions{Isolation: log.LogEnd, MaxBytes: 1 << 20})
	require.NoError(t, err)
	defer f.Close()
	raw := make([]byte, f.Len())
	_, err = f.ReadAt(raw, 0)
	require.NoError(t, err)
	return raw
}

// A message of an old format may bear the very offset it gets, and is converted all the same.
func TestFollowersGetAnOldMessageAsTheLogConvertedIt(t *testing.T) {
	g := newGroup(t, log.Config{Durability: log.Buffered}, 1, 2)
	g.produce("first")
	h := g.handle(1)
	for at := int64(1); at < 20; at++ {
		g.eventually("the follower waits", func() bool {
			h.r.coreMu.Lock()
			defer h.r.coreMu.Unlock()
			return h.r.core.awaited(at)
		})
		raw := []byte{0, 0, 0, 0, 0, 0, 0, byte(at), 0, 0, 0, 23, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 255, 255, 255, 255, 0, 0, 0, 1, 'v'}
		binary.BigEndian.PutUint32(raw[12:], crc32.ChecksumIEEE(raw[16:]))
		got, err := h.Append(t.Context(), raw, -1)
		require.NoError(t, err)
		require.Equal(t, at, got.Base)
	}
	g.caughtUp(1, 2)
	require.Equal(t, bytesOf(t, h.Log()), bytesOf(t, g.handle(2).Log()))
}

// One append wakes followers that wait at different offsets: each gets its own bytes, in buffers that are used again only when nobody
// looks at them.
func TestFollowersThatAreWokenTogetherGetTheirOwnBytes(t *testing.T) {
	g := newTunedGroup(t, log.Config{Durability: log.Buffered}, func(c *NodeConfig) {
		c.LagTimeMax, c.FetchWait, c.FetchLimit = 2*time.Minute, time.Minute, 2*time.Minute
		if c.Self == 3 {
			c.FetchMin = 1000 // so it waits for several
		}
	}, 1, 2, 3)
	g.produce(strings.Repeat("first", 300))
	before := map[NodeID]int64{}
	for id := range g.nodes {
		before[id] = g.handle(id).Status().Counts.FetchErrors
	}
	for range 100 {
		_, err := g.handle(1).Append(t.Context(), rawBatch(t, strings.Repeat("v", 150)), 1)
		require.NoError(t, err)
		end := g.handle(1).Log().Offsets().LogEnd
		g.eventually("the follower that waits for no more", func() bool { return g.handle(2).Log().Offsets().LogEnd == end })
	}
	for id := NodeID(2); id <= 3; id++ {
		s := g.handle(id).Status()
		require.Equal(t, before[id], s.Counts.FetchErrors, "node %d: %v", id, s.LastError)
		require.Zero(t, s.Counts.Truncations)
	}
	require.Greater(t, g.handle(3).Log().Offsets().LogEnd, int64(80))
}

func TestWhatIsReadOfALeaderEndsBehindItsLastBatch(t *testing.T) {
	next, ok := behind(nil)
	require.True(t, ok)
	require.Equal(t, int64(-1), next)

	var raw []byte
	for i := range int64(3) {
		b := rawBatch(t, "a", "b")
		batch, err := record.View(b)
		require.NoError(t, err)
		batch.SetBaseOffset(10 + 2*i)
		raw = append(raw, b...)
	}
	next, ok = behind(raw)
	require.True(t, ok)
	require.Equal(t, int64(16), next)
	for _, bad := range [][]byte{raw[:len(raw)-1], append(bytes.Clone(raw), 0)} {
		_, ok = behind(bad)
		require.False(t, ok)
	}
	raw[len(raw)-1]++
	_, ok = behind(raw)
	require.False(t, ok)
}
