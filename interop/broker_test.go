package interop

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/golden"
)

// newBroker formats a broker that is killed when the test ends.
func newBroker(t *testing.T, config map[string]string) *Broker {
	t.Helper()
	j, d := kafka(t)
	dir := t.TempDir()
	b, err := NewBroker(j, d, BrokerOptions{Dir: filepath.Join(dir, "broker"), Root: filepath.Join(dir, "root"), Config: config})
	require.NoError(t, err)
	t.Cleanup(b.Kill)
	return b
}

func TestBrokerServesEveryGoldenFolderItIsGiven(t *testing.T) {
	b := newBroker(t, nil)
	require.NoError(t, b.Start())
	ids := map[string]string{}
	for _, name := range golden.Cases() {
		about := golden.About(t, name)
		id, err := b.CreateTopic(about.Topic, about.TopicConfig)
		require.NoError(t, err)
		ids[name] = id
	}
	require.NoError(t, b.Stop())

	// The clean ones first: a root has one marker for all its partitions.
	for _, clean := range []bool{true, false} {
		for _, name := range golden.Cases() {
			about := golden.About(t, name)
			if about.StoppedClean == clean {
				require.NoError(t, Place(golden.Copy(t, name), b.Root, about.Topic+"-0", ids[name]))
			}
		}
		require.NoError(t, SetCleanMarker(b.Root, clean))
		require.NoError(t, b.Start())
		for _, name := range golden.Cases() {
			about := golden.About(t, name)
			if about.StoppedClean != clean {
				continue
			}
			for isolation, file := range map[string]string{"read_uncommitted": "records.jsonl", "read_committed": "committed.jsonl"} {
				got, err := b.Consume(about.Topic, isolation, digestOver)
				require.NoError(t, err, name)
				sameRecords(t, goldenRecords(t, name, file), got.Records)
				require.Equal(t, about.AsOpened.LogStartOffset, got.BeginningOffset, name)
				end := about.AsOpened.LogEndOffset
				if isolation == "read_committed" {
					end = about.AsOpened.LastStableOffset
				}
				require.Equal(t, end, got.EndOffset, name)
			}
		}
		require.NoError(t, b.Stop())
	}
}

// A cluster's metadata is a log with snapshots of its own kind beside it.
func TestTheMetadataOfAClusterOpensAndDumpsTheSame(t *testing.T) {
	b := newBroker(t, map[string]string{"metadata.log.max.record.bytes.between.snapshots": "500"})
	require.NoError(t, b.Start())
	for i := range 5 {
		_, err := b.CreateTopic(fmt.Sprint("topic-", i), nil)
		require.NoError(t, err)
	}
	require.NoError(t, b.Stop())
	root := filepath.Join(b.dir, "metadata")
	f := &kafkaFolder{t: t, d: b.d, r: rand.New(rand.NewPCG(1, 1)), root: root, topic: "__cluster_metadata", now: time.Now().UnixMilli(), refused: map[string]int{},
		config: map[string]string{"segment.index.bytes": "10485760"}, clean: true}
	snapshots := partitionFiles(t, f.dir(), ".checkpoint")
	require.NotEmpty(t, snapshots)
	for _, flags := range [][]string{nil, {"--deep-iteration"}, {"--print-data-log"}} {
		require.True(t, f.sameDumpOf(append(snapshots, filepath.Join(root, "bootstrap.checkpoint")), flags))
	}
	require.NoError(t, SetCleanMarker(root, true))
	f.compare(root)
}

// cleanings is how often the broker's cleaner has finished with partition 0 since the start.
func (b *Broker) cleanings(topic string) int {
	return len(b.LogLines("Cleaner 0: Cleaning log " + topic + "-0"))
}
