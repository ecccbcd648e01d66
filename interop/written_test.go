package interop

import (
	"context"
	"encoding/base64"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
)

// written is one folder of ours and what must be found in it.
type written struct {
	topic  string
	config map[string]string
	start  int64 // the log begins there
	gaps   bool  // each epoch ends with one, and so does the log
	epochs []log.EpochEntry
	at     log.Offsets
	want   []Record
}

// someWritten are folders with everything a folder may have.
func someWritten() []*written {
	with := func(config map[string]string) map[string]string {
		c := tiny()
		c["max.message.bytes"] = "3000000"
		for k, v := range config {
			c[k] = v
		}
		return c
	}
	return []*written{
		{topic: "create-time", config: with(nil)},
		{topic: "append-time", config: with(map[string]string{"message.timestamp.type": "LogAppendTime"})},
		{topic: "recompressed", config: with(map[string]string{"compression.type": "zstd", "internal.segment.bytes": "4000"})},
		{topic: "beyond-2-31", config: with(nil), start: 1<<31 - 20},
		{topic: "beyond-2-40", config: with(map[string]string{"index.interval.bytes": "0", "internal.segment.bytes": "6000"}), start: 1 << 40},
		{topic: "gaps-at-the-end", config: with(nil), gaps: true},
		{topic: "large-values", config: with(map[string]string{"internal.segment.bytes": "2000000"})},
	}
}

// write fills a folder through every door, over several epochs, and closes it cleanly.
func (w *written) write(t *testing.T, r *rand.Rand, root string) {
	t.Helper()
	ctx := context.Background()
	dir, l, err := openOurs(ctx, ourOpen{Root: root, Topic: w.topic, Config: w.config})
	require.NoError(t, err)
	if w.start > 0 {
		require.NoError(t, l.ResetTo(ctx, w.start))
	}
	for epoch := range int32(4) {
		require.NoError(t, l.AssignEpoch(epoch))
		for range 12 {
			rs := someRecords(r, 1+r.IntN(10))
			for i := range rs {
				if rs[i].Timestamp > 0 { // a leader refuses times an hour ahead
					rs[i].Timestamp = time.Now().UnixMilli() - r.Int64N(1_000_000)
				}
				if w.topic != "large-values" && len(rs[i].Value) > 1000 {
					rs[i].Value = rs[i].Value[:1000]
				}
				if w.topic == "large-values" && r.IntN(6) == 0 {
					rs[i].Value = make([]byte, 100_000+r.IntN(150_000))
				}
			}
			if r.IntN(3) == 0 {
				_, err = l.Append(ctx, rs...)
				require.NoError(t, err)
				continue
			}
			b := record.NewBuilder(record.BuilderOptions{Codec: codecs[r.IntN(len(codecs))]})
			for _, rec := range rs {
				require.NoError(t, b.Add(rec))
			}
			batch, err := b.Finish()
			require.NoError(t, err)
			_, err = l.AppendBatches(ctx, batch.Bytes(), log.AppendOptions{})
			require.NoError(t, err)
		}
		if w.gaps {
			require.NoError(t, l.FollowEnd(ctx, l.Offsets().LogEnd+7))
			require.NoError(t, l.Sync(ctx))
		}
	}
	segments := l.SegmentInfos()
	if w.topic != "large-values" {
		require.Greater(t, len(segments), 2)
		require.NoError(t, l.DeleteRecords(ctx, segments[1].Base+3), "the start lies inside a segment")
	}
	w.at, w.epochs = l.Offsets(), l.Epochs()
	for b, err := range l.Batches(ctx, w.at.LogStart) {
		require.NoError(t, err)
		kind := b.TimestampType().String()
		for rec, err := range b.Records(nil) {
			require.NoError(t, err)
			if rec.Offset >= w.at.LogStart {
				w.want = append(w.want, onWire(rec.Clone(), rec.Offset, kind))
			}
		}
	}
	require.NoError(t, dir.Close())
}

// id is a topic id to write into a folder that no cluster knows yet.
func (w *written) id() string {
	return base64.RawURLEncoding.EncodeToString([]byte("0123456789abcdef"))
}

func TestKafkaOpensWhatWeWriteWithoutRebuildingAnything(t *testing.T) {
	_, d := kafka(t)
	r := rand.New(rand.NewPCG(11, 11))
	for _, w := range someWritten() {
		t.Run(w.topic, func(t *testing.T) {
			root := t.TempDir()
			w.write(t, r, root)
			dir := filepath.Join(root, w.topic+"-0")
			before := indexBytes(t, dir)
			s := &swap{t: t, d: d, last: "partlog"}
			s.dumpIsSilent(dir)

			l, err := d.Open(OpenOptions{Root: root, Topic: w.topic, Config: w.config, NowMs: -1, TopicID: w.id()})
			require.NoError(t, err)
			require.Empty(t, rebuilding(l.Log))
			require.True(t, l.Opened.OpenedClean)
			require.Equal(t, w.at.LogStart, l.Opened.LogStartOffset)
			require.Equal(t, w.at.LogEnd, l.Opened.LogEndOffset)
			require.Equal(t, w.at.LogEnd, l.Opened.CheckpointedHighWatermark)
			require.Len(t, l.Opened.LeaderEpochs, len(w.epochs))
			for i, e := range w.epochs {
				require.Equal(t, e, log.EpochEntry{Epoch: l.Opened.LeaderEpochs[i].Epoch, Start: l.Opened.LeaderEpochs[i].StartOffset})
			}
			for _, x := range l.Opened.Indexes[:len(l.Opened.Indexes)-1] {
				require.NotEmpty(t, x.Times, "segment %d", x.BaseOffset)
			}
			rs, err := l.Records(0)
			require.NoError(t, err)
			sameRecords(t, w.want, rs)
			require.NoError(t, l.Close())
			require.Equal(t, before, indexBytes(t, dir), "Kafka leaves our indexes as they are")
		})
	}
}

// indexBytes are the hashes of all index files.
func indexBytes(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, name := range partitionFiles(t, dir, ".index", ".timeindex") {
		b, err := os.ReadFile(name)
		require.NoError(t, err)
		out[filepath.Base(name)] = hash(b) + " " + strconv.Itoa(len(b))
	}
	return out
}

func TestBrokerServesWhatWeWriteAndWeReadWhatItAppends(t *testing.T) {
	b := newBroker(t, nil)
	r := rand.New(rand.NewPCG(12, 12))
	all := slices.DeleteFunc(someWritten(), func(w *written) bool { return w.gaps }) // no consumer of Kafka's gets to an end behind a gap
	ids := map[string]string{}
	require.NoError(t, b.Start())
	for _, w := range all {
		id, err := b.CreateTopic(w.topic, w.config)
		require.NoError(t, err)
		ids[w.topic] = id
	}
	require.NoError(t, b.Stop())
	for _, w := range all {
		root := t.TempDir()
		w.write(t, r, root)
		require.NoError(t, Place(root, b.Root, w.topic+"-0", ids[w.topic]))
	}
	require.NoError(t, SetCleanMarker(b.Root, true))

	require.NoError(t, b.Start())
	require.Empty(t, rebuilding(b.LogLines("dir="+b.Root+"]")))
	for _, w := range all {
		got, err := b.Consume(w.topic, "read_uncommitted", 0)
		require.NoError(t, err, w.topic)
		require.Equal(t, w.at.LogStart, got.BeginningOffset, w.topic)
		require.Equal(t, w.at.LogEnd, got.EndOffset, w.topic)
		sameRecords(t, w.want, got.Records)
		for _, codec := range codecs {
			more := make([]Record, 0, 5)
			for _, rec := range someRecords(r, 5) {
				rec.Timestamp = time.Now().UnixMilli()
				rec.Value = rec.Value[:min(len(rec.Value), 500)]
				more = append(more, onWire(rec, 0, ""))
			}
			offsets, err := b.Produce(w.topic, map[string]string{"compression.type": codec.String()}, more)
			require.NoError(t, err)
			require.Equal(t, w.at.LogEnd, offsets[0])
			w.at.LogEnd = offsets[len(offsets)-1] + 1
		}
		got, err = b.Consume(w.topic, "read_uncommitted", 0)
		require.NoError(t, err)
		w.want = got.Records
	}
	require.NoError(t, b.Stop())

	for _, w := range all {
		reader, err := log.OpenReader(filepath.Join(b.Root, w.topic+"-0"), log.ReaderOptions{})
		require.NoError(t, err)
		var got []Record
		kind := map[bool]string{false: "CreateTime", true: "LogAppendTime"}[w.topic == "append-time"]
		for rec, err := range reader.Records(context.Background(), reader.Offsets().LogStart) {
			require.NoError(t, err)
			got = append(got, onWire(rec.Clone(), rec.Offset, kind))
		}
		sameRecords(t, w.want, got)
		require.NoError(t, reader.Close())
	}
}
