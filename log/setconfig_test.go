package log

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
)

// tunable is a log in a Dir whose clock the test moves.
type tunable struct {
	*Log
	dir *Dir
	now time.Time
}

func newTunable(t *testing.T, defaults, c Config) *tunable {
	u := &tunable{now: time.UnixMilli(1_700_000_000_000)}
	d, err := OpenDir("mem", DirConfig{FS: vfs.Mem(), Manual: true, Defaults: defaults, Now: func() time.Time { return u.now }})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	l, err := d.Open(t.Context(), TopicPartition{Topic: "t"}, c)
	require.NoError(t, err)
	u.Log, u.dir = l, d
	return u
}

func (u *tunable) add(t *testing.T, n, size int) error {
	for range n {
		if _, err := u.Append(t.Context(), record.Record{Key: []byte("k"), Value: make([]byte, size)}); err != nil {
			return err
		}
	}
	return nil
}

func (u *tunable) set(t *testing.T, kafka map[string]string) {
	t.Helper()
	c, err := Config{}.With(kafka)
	require.NoError(t, err)
	require.NoError(t, u.SetConfig(t.Context(), c))
}

func TestSettingsThatChangeCountFromTheNextCallOn(t *testing.T) {
	u := newTunable(t, Config{}, Config{})
	require.NoError(t, u.add(t, 3, 2000))
	segments := func() int { return len(*u.list.Load()) }
	require.Equal(t, 1, segments())

	u.set(t, map[string]string{"internal.segment.bytes": "5000"})
	require.NoError(t, u.add(t, 1, 2000))
	require.Equal(t, 2, segments(), "the active one is past it")

	u.set(t, map[string]string{"segment.ms": "1000"})
	u.now = u.now.Add(2 * time.Second)
	require.NoError(t, u.add(t, 1, 1))
	require.Equal(t, 3, segments(), "and too old")

	u.set(t, map[string]string{"max.message.bytes": "500"})
	require.ErrorIs(t, u.add(t, 1, 2000), ErrTooLarge)
	u.set(t, map[string]string{"max.message.bytes": "5000", "compression.type": "gzip"})
	require.NoError(t, u.add(t, 1, 2000))
	require.Equal(t, record.Gzip, lastBatch(t, u.Log).Codec())

	u.set(t, map[string]string{"message.timestamp.type": "LogAppendTime"})
	require.NoError(t, u.add(t, 1, 1))
	b := lastBatch(t, u.Log)
	require.Equal(t, record.LogAppendTime, b.TimestampType())
	require.Equal(t, record.None, b.Codec(), "what is not said is the default again")

	u.set(t, map[string]string{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"})
	_, err := u.Append(t.Context(), record.Record{Value: []byte("no key")})
	require.ErrorIs(t, err, ErrInvalidRecord)
	require.ErrorIs(t, u.DeleteRecords(t.Context(), 1), ErrPolicy)
	_, err = u.Compact(t.Context(), CompactOptions{})
	require.NoError(t, err)

	u.set(t, map[string]string{"retention.bytes": "0"})
	_, err = u.Retain(t.Context())
	require.NoError(t, err)
	o := u.Offsets()
	require.Equal(t, o.LogEnd, o.LogStart)
}

func lastBatch(t *testing.T, l *Log) (last record.Batch) {
	for b, err := range l.Batches(t.Context(), 0) {
		require.NoError(t, err)
		last, err = record.View(bytes.Clone(b.Bytes()))
		require.NoError(t, err)
	}
	return last
}

func TestWhatIsSettledAtTheOpenCannotBeChanged(t *testing.T) {
	u := newTunable(t, Config{Durability: Buffered}, Config{})
	before := u.Config()
	for field, c := range map[string]Config{
		"Durability":   {Durability: Durable},
		"Visibility":   {Visibility: External},
		"SegmentBytes": {SegmentBytes: -7},
		"WhenFull":     {WhenFull: DropOldest},
	} {
		bad := (*ConfigError)(nil)
		require.ErrorAs(t, u.SetConfig(t.Context(), c), &bad, field)
		require.Equal(t, field, bad.Field)
		require.Equal(t, before, u.Config(), "nothing was changed")
	}
	require.NoError(t, u.SetConfig(t.Context(), Config{MaxBytes: 1000, WhenFull: Reject}))
	require.NoError(t, u.add(t, 1, 100))
	require.ErrorIs(t, u.add(t, 1, 900), ErrFull)

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, u.SetConfig(ended, Config{}), context.Canceled)
	require.ErrorIs(t, (&Log{}).SetConfig(t.Context(), Config{}), ErrClosed)
	require.NoError(t, u.Close())
	require.ErrorIs(t, u.SetConfig(t.Context(), Config{}), ErrClosed)
}

func TestADirLooksAsOftenAsTheLogsNowAsk(t *testing.T) {
	u := newTunable(t, Config{Durability: Buffered}, Config{FlushInterval: time.Minute})
	every := func() time.Duration { return time.Duration(u.dir.flushEvery.Load()) }
	require.Equal(t, time.Minute, every())
	other, err := u.dir.Open(t.Context(), TopicPartition{Topic: "other"}, Config{FlushInterval: time.Hour})
	require.NoError(t, err)
	require.NoError(t, u.SetConfig(t.Context(), Config{FlushInterval: time.Second}))
	require.Equal(t, time.Second, every())
	require.NoError(t, u.SetConfig(t.Context(), Config{}))
	require.Equal(t, time.Hour, every())
	require.NoError(t, other.Close())
	require.Zero(t, every())
}

func TestProducersAreForgottenByTheNewExpiry(t *testing.T) {
	u := newTunable(t, Config{}, Config{})
	b := record.NewBuilder(record.BuilderOptions{Producer: &record.Producer{ID: 7}})
	require.NoError(t, b.Add(record.Record{Timestamp: u.now.UnixMilli(), Value: []byte("a")}))
	batch, err := b.Finish()
	require.NoError(t, err)
	_, err = u.AppendBatches(t.Context(), batch.Bytes(), AppendOptions{})
	require.NoError(t, err)
	u.now = u.now.Add(time.Hour)
	require.NoError(t, u.dir.RunOnce(t.Context(), u.now))
	require.Equal(t, 1, u.producers.state.Len())
	require.NoError(t, u.SetConfig(t.Context(), Config{ProducerExpiry: time.Minute}))
	u.now = u.now.Add(time.Hour)
	require.NoError(t, u.dir.RunOnce(t.Context(), u.now))
	require.Zero(t, u.producers.state.Len())
}

// What a topic says counts also where it says the default, or the zero of a field, and its process says something else.
func TestWhatWithIsGivenCountsOverAllDefaults(t *testing.T) {
	defaults := Config{TimestampType: record.LogAppendTime, Preallocate: true, SegmentJitter: time.Minute, RetentionTime: time.Hour,
		Compaction: CompactionConfig{MinLag: time.Second}, CompressionType: "zstd", CompressionLevel: 19, IndexIntervalBytes: 100}
	said := map[string]string{
		"message.timestamp.type": " CreateTime ", "preallocate": "false", "segment.jitter.ms": "0", "retention.ms": "604800000",
		"min.compaction.lag.ms": "0", "index.interval.bytes": "0",
	}
	c, err := Config{}.With(said)
	require.NoError(t, err)
	u := newTunable(t, defaults, c)
	printed := u.Config().Kafka()
	for key, text := range map[string]string{
		"message.timestamp.type": "CreateTime", "preallocate": "false", "segment.jitter.ms": "0", "retention.ms": "604800000",
		"min.compaction.lag.ms": "0", "index.interval.bytes": "0", "compression.type": "zstd", "compression.zstd.level": "19",
	} {
		require.Equal(t, text, printed[key], key)
	}
	require.NoError(t, u.SetConfig(t.Context(), u.Config()))
	require.Equal(t, printed, u.Config().Kafka(), "its own configuration changes nothing")
	require.NoError(t, u.SetConfig(t.Context(), Config{}))
	require.Equal(t, defaults.Kafka(), u.Config().Kafka())

	c, err = defaults.With(map[string]string{"compression.type": "gzip"})
	require.NoError(t, err)
	require.Equal(t, "-1", c.Kafka()["compression.gzip.level"], "the level belongs to the type")
	c, err = defaults.With(map[string]string{"compression.type": "zstd"})
	require.NoError(t, err)
	require.Equal(t, "19", c.Kafka()["compression.zstd.level"])
	same, err := defaults.With(nil)
	require.NoError(t, err)
	require.Equal(t, defaults, same)
	_, err = defaults.With(map[string]string{"retention.ms": "never"})
	require.ErrorAs(t, err, new(*ConfigError))
	_, err = defaults.With(map[string]string{"max.compaction.lag.ms": "10"})
	require.ErrorAs(t, err, new(*ConfigError), "below what it is given over")
}

// Appends, compaction and retention go on while the settings change all the time.
func TestSettingsMayChangeUnderLoad(t *testing.T) {
	u := newTunable(t, Config{Durability: Buffered}, Config{})
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for w := range 2 {
		all.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				_, err := u.Append(t.Context(), record.Record{Key: []byte(fmt.Sprint(w, i%10)), Value: make([]byte, 300)})
				if err != nil && !errors.Is(err, ErrTooLarge) {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Go(func() {
		for ctx.Err() == nil {
			_, err := u.Retain(t.Context())
			_, err2 := u.Compact(t.Context(), CompactOptions{Force: true})
			if err = errors.Join(err, err2); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for i := range 300 {
		c := Config{SegmentBytes: int64(1000 + 500*(i%7)), RetentionBytes: int64(20000 * (i%3 + 1)), CompressionType: []string{"gzip", "producer", "lz4", "zstd"}[i%4]}
		if c.CompressionType == "lz4" {
			c.CompressionLevel = 17
		}
		if i%5 == 0 {
			c.MaxMessageBytes = 10
		}
		require.NoError(t, u.SetConfig(t.Context(), c))
	}
	cancel()
	all.Wait()
	require.NoError(t, u.SetConfig(t.Context(), Config{}))
	for _, err := range u.Records(t.Context(), u.Offsets().LogStart) {
		require.NoError(t, err)
	}
}
