package record

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/golden"
)

// goldenLogs are the .log files of a real broker's folder, in offset order.
func goldenLogs(t testing.TB, name string) [][]byte {
	t.Helper()
	var logs [][]byte
	err := filepath.WalkDir(golden.Copy(t, name), func(p string, e fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(p, ".log") {
			return err
		}
		raw, err := os.ReadFile(p)
		logs = append(logs, raw)
		return err
	})
	require.NoError(t, err)
	return logs
}

func TestRecordsOfABrokersLogAreWhatItsConsumerGot(t *testing.T) {
	decoder := NewDecoder(Limits{})
	for _, name := range golden.Cases() {
		if strings.HasPrefix(name, "killed-") {
			continue // cut or damaged on purpose; see below
		}
		t.Run(name, func(t *testing.T) {
			want := golden.MustRecords(t, name)
			for _, raw := range goldenLogs(t, name) {
				info, err := Split(raw, Limits{MaxBatchBytes: 64 << 20})
				require.NoError(t, err)
				require.Equal(t, len(raw), info.Bytes)
				for rest := raw[:info.Bytes]; len(rest) > 0; {
					var b Batch
					b, rest, err = Next(rest)
					require.NoError(t, err)
					require.NoError(t, b.Verify())
					if b.Control() {
						continue
					}
					want = match(t, decoder, b, want)
				}
			}
			require.Empty(t, want)
		})
	}
}

// match compares the batch's records with the front of want, which may begin later (records deleted from a log's front) and
// returns the rest.
func match(t *testing.T, d *Decoder, b Batch, want []golden.Record) []golden.Record {
	t.Helper()
	for r, err := range b.Records(d) {
		require.NoError(t, err)
		if len(want) == 0 || r.Offset < want[0].Offset {
			continue
		}
		w := want[0]
		require.Equal(t, w.Offset, r.Offset)
		require.Equal(t, w.Timestamp, r.Timestamp)
		if b.Magic() > 0 {
			require.Equal(t, w.TimestampType, b.TimestampType().String())
		}
		require.True(t, w.MatchesKey(r.Key))
		require.True(t, w.MatchesValue(r.Value))
		require.Len(t, r.Headers, len(w.Headers))
		for i, h := range w.Headers {
			require.Equal(t, Header{Key: h.Key, Value: h.Value}, r.Headers[i])
		}
		want = want[1:]
	}
	return want
}

func TestUncompressedBatchesOfABrokerAreBuiltByteForByte(t *testing.T) {
	builder := NewBuilder(BuilderOptions{})
	n := 0
	for _, name := range golden.Cases() {
		for _, raw := range goldenLogs(t, name) {
			for len(raw) > 0 {
				b, rest, err := Next(raw)
				if err != nil {
					break
				}
				raw = rest
				if b.Magic() < 2 || b.Codec() != None || b.Verify() != nil {
					continue
				}
				require.NoError(t, builder.Rebuild(b, NoTimestamp))
				records := collect(t, b)
				for _, r := range records {
					require.NoError(t, builder.AddAt(r))
				}
				got, err := builder.Finish()
				require.NoError(t, err)
				// A LogAppendTime batch keeps the producer's times in its deltas, which no reader sees.
				if b.TimestampType() == CreateTime || len(records) == 0 {
					require.True(t, bytes.Equal(b.Bytes(), got.Bytes()), "%s at %d", name, b.BaseOffset())
					n++
				}
			}
		}
	}
	require.Greater(t, n, 100)
}

func TestDamageInABrokersLogIsFound(t *testing.T) {
	for _, name := range []string{"killed-bad-crc", "killed-zero-tail"} {
		logs := goldenLogs(t, name)
		_, err := Split(logs[len(logs)-1], Limits{})
		require.ErrorIs(t, err, ErrCorrupt, name)
	}
	for _, name := range []string{"killed-torn-body", "killed-torn-header"} {
		logs := goldenLogs(t, name)
		raw := logs[len(logs)-1]
		info, err := Split(raw, Limits{})
		require.NoError(t, err, name)
		require.Less(t, info.Bytes, len(raw), name)
	}
}
