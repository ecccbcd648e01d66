package interop

import (
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
)

// topic is one setting under which a leader validates, in Kafka's words and in ours.
type topic struct {
	name    string
	config  map[string]string
	options record.ValidateOptions
}

func topics() []topic {
	const now = 1_700_000_500_000
	base := record.ValidateOptions{CodecFromProducer: true, Now: now, TimestampBefore: -1, TimestampAfter: 3_600_000}
	with := func(name string, config map[string]string, change func(o *record.ValidateOptions)) topic {
		o := base
		change(&o)
		return topic{name, config, o}
	}
	return []topic{
		with("plain", nil, func(*record.ValidateOptions) {}),
		with("append-time", map[string]string{"message.timestamp.type": "LogAppendTime"}, func(o *record.ValidateOptions) {
			o.TimestampType = record.LogAppendTime
		}),
		with("compacted", map[string]string{"cleanup.policy": "compact"}, func(o *record.ValidateOptions) { o.Compacted = true }),
		with("uncompressed", map[string]string{"compression.type": "uncompressed"}, func(o *record.ValidateOptions) {
			o.CodecFromProducer, o.Codec = false, record.None
		}),
		with("zstd", map[string]string{"compression.type": "zstd"}, func(o *record.ValidateOptions) {
			o.CodecFromProducer, o.Codec = false, record.Zstd
		}),
		with("lz4-append-time", map[string]string{"compression.type": "lz4", "message.timestamp.type": "LogAppendTime"}, func(o *record.ValidateOptions) {
			o.CodecFromProducer, o.Codec, o.TimestampType = false, record.LZ4, record.LogAppendTime
		}),
		with("narrow-time", map[string]string{"message.timestamp.before.max.ms": "400000", "message.timestamp.after.max.ms": "300000"}, func(o *record.ValidateOptions) {
			o.TimestampBefore, o.TimestampAfter = 400_000, 300_000
		}),
	}
}

func TestLeadersValidateTheSame(t *testing.T) {
	_, d := kafka(t)
	r := rand.New(rand.NewPCG(10, 10))
	n := rounds(t, "PARTLOG_INTEROP_APPENDS", 400)
	for _, topic := range topics() {
		t.Run(topic.name, func(t *testing.T) {
			l, err := d.Open(OpenOptions{Root: t.TempDir(), Topic: topic.name, Config: topic.config, NowMs: topic.options.Now})
			require.NoError(t, err)
			defer l.Abandon()
			accepted, causes := 0, map[string]int{}
			end := int64(0)
			for range n {
				raw := someBatch(t, r)
				damaged := r.IntN(2) == 0
				if damaged {
					raw = mutate(r, raw)
				}
				if strange(raw) {
					continue
				}
				got, theirs := l.AppendAsLeader(raw, 5, "")
				v, ours := validate(raw, topic.options)
				if errors.Is(ours, errEmptySet) {
					require.NoError(t, theirs)
					require.Equal(t, int64(-1), got.LastOffset, hex.EncodeToString(raw))
					continue
				}
				if (theirs == nil) != (ours == nil) {
					if theirs == nil {
						end = got.LastOffset + 1
					}
					if cause, ok := leaderDifference(raw, text(ours), text(theirs)); ok {
						causes[cause]++
					} else if causes[cause]++; causes[cause] < 3 {
						t.Errorf("%s\nours %v; Kafka's %v\n%s", cause, ours, theirs, hex.EncodeToString(raw))
					}
					continue
				}
				if theirs != nil {
					// Of two faults either side may name the other one, and what Kafka throws for damage is often an accident.
					if !damaged && !sameClass(ours, theirs.(*KafkaError)) {
						t.Errorf("ours %v; Kafka's %v\n%s", ours, theirs, hex.EncodeToString(raw))
					}
					continue
				}
				accepted++
				v.Place(end, 5)
				require.Equal(t, end, got.FirstOffset)
				require.Equal(t, v.Batch.LastOffset(), got.LastOffset)
				stored, err := l.Read(end, 1<<20)
				require.NoError(t, err)
				batch, _, err := record.Next(stored)
				require.NoError(t, err)
				if v.Rebuilt && damaged && !utf8.Valid(headerNames(raw)) {
					// Kafka replaces what is not UTF-8 in the name of a header; ours keeps it.
					end = got.LastOffset + 1
					continue
				}
				if v.Rebuilt && batch.Codec() != record.None {
					sameBatch(t, d, batch.Bytes(), v.Batch.Bytes())
				} else {
					require.Equal(t, hex.EncodeToString(batch.Bytes()), hex.EncodeToString(v.Batch.Bytes()))
				}
				end = got.LastOffset + 1
			}
			require.Greater(t, accepted, n/20)
			t.Logf("%d appends, %d accepted by both, differences %v", n, accepted, causes)
		})
	}
}

// someBatch is a producer's batch of any codec.
func someBatch(t *testing.T, r *rand.Rand) []byte {
	t.Helper()
	b := record.NewBuilder(record.BuilderOptions{Codec: codecs[r.IntN(len(codecs))]})
	for _, rec := range someRecords(r, 1+r.IntN(6)) {
		if len(rec.Value) > 1000 {
			rec.Value = rec.Value[:1000]
		}
		require.NoError(t, b.Add(rec))
	}
	batch, err := b.Finish()
	require.NoError(t, err)
	return batch.Bytes()
}

// strange batches are about producers, whose state is not compared here, or of old formats, which 4.x producers cannot send.
func strange(raw []byte) bool {
	batch, _, err := record.Next(raw)
	if err != nil {
		return false
	}
	if batch.Magic() < 2 {
		return true
	}
	id, _, _ := batch.Producer()
	return id != -1
}

func validate(raw []byte, o record.ValidateOptions) (record.Validated, error) {
	set, err := record.Check(raw, record.CheckOptions{Origin: o.Origin, LeaderEpoch: 5})
	if err != nil {
		return record.Validated{}, err
	}
	if set.ValidBytes == 0 {
		return record.Validated{}, errEmptySet
	}
	copied := append([]byte(nil), raw[:set.ValidBytes]...)
	return record.NewDecoder(record.Limits{}).Validate(copied, o)
}

var errEmptySet = errors.New("nothing to append")

// leaderDifference is [differenceCause] with what is special to a leader's look at a producer's batch.
func leaderDifference(raw []byte, ours, theirs string) (cause string, ok bool) {
	batch, _, err := record.Next(raw)
	switch {
	case err == nil && theirs == "" && strings.Contains(ours, "timestamp is negative"):
		return "timestamps below -1 are refused here", true
	case err == nil && theirs == "" && batch.Codec() != record.None && strings.HasPrefix(ours, "record: invalid record: record "):
		return "Kafka's leader skips over parts of compressed records without looking", true
	}
	return differenceCause(raw, ours, theirs)
}

// headerNames are the names of all headers, one behind the other.
func headerNames(raw []byte) (names []byte) {
	batch, _, err := record.Next(raw)
	if err != nil {
		return nil
	}
	for rec, err := range batch.Records(nil) {
		if err != nil {
			return names
		}
		for _, h := range rec.Headers {
			names = append(append(names, h.Key...), '|')
		}
	}
	return names
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// sameClass says whether Kafka's exception is the one for our error.
func sameClass(ours error, theirs *KafkaError) bool {
	class := theirs.Class
	if class == "RecordValidationException" { // a wrapper for what is wrong with single records
		for _, inner := range []string{"InvalidTimestampException", "InvalidRecordException"} {
			if strings.Contains(theirs.Message, inner) {
				class = inner
			}
		}
	}
	switch class {
	case "InvalidTimestampException":
		return errors.Is(ours, record.ErrInvalidTimestamp)
	case "InvalidRecordException", "UnsupportedForMessageFormatException":
		return errors.Is(ours, record.ErrInvalidRecord)
	case "RecordTooLargeException":
		return errors.Is(ours, record.ErrTooLarge)
	case "CorruptRecordException":
		return errors.Is(ours, record.ErrCorrupt)
	}
	return false
}

// sameBatch compares two encodings of what should be the same batch: everything but compressed bytes and checksum.
func sameBatch(t *testing.T, d *Driver, want, got []byte) {
	t.Helper()
	both := [2]Batch{}
	for i, raw := range [][]byte{want, got} {
		parsed, err := d.Parse(raw)
		require.NoError(t, err)
		require.Len(t, parsed, 1)
		both[i] = parsed[0]
		both[i].Size, both[i].Checksum = 0, 0
	}
	require.Equal(t, both[0], both[1])
}
