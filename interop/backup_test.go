package interop

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
)

// copied are the partitions of the roots that are copied, by the topics that filled makes.
var copied = []log.TopicPartition{{Topic: "plain"}, {Topic: "plain", Partition: 1}, {Topic: "plain", Partition: 2}, {Topic: "paid"}, {Topic: "table"}}

// small lets segments turn over and the cleaner work.
func small(policy string) map[string]string {
	return map[string]string{"cleanup.policy": policy, "internal.segment.bytes": "4000", "segment.index.bytes": "1200", "index.interval.bytes": "300",
		"min.cleanable.dirty.ratio": "0.01", "file.delete.delay.ms": "100", "retention.ms": "-1"}
}

// newCopiedBroker starts a broker that has the topics.
func newCopiedBroker(t *testing.T) (b *Broker, ids map[string]string) {
	t.Helper()
	b = newBroker(t, map[string]string{"log.cleaner.backoff.ms": "100", "log.cleaner.dedupe.buffer.size": "2000000"})
	require.NoError(t, b.Start())
	ids = map[string]string{}
	for topic, partitions := range map[string]int{"plain": 3, "paid": 1, "table": 1} {
		policy := "delete"
		if topic == "table" {
			policy = "compact"
		}
		id, err := b.CreatePartitions(topic, partitions, small(policy))
		require.NoError(t, err)
		ids[topic] = id
	}
	return b, ids
}

// fill gives every topic records: several segments, transactions of both ends with their index, a start inside of a segment, keys
// that were cleaned.
func fill(t *testing.T, b *Broker) {
	t.Helper()
	for p, codec := range []string{"none", "zstd", "lz4"} {
		_, err := b.ProduceTo("plain", int32(p), map[string]string{"compression.type": codec, "batch.size": "700"}, numbered(codec, 200))
		require.NoError(t, err)
	}
	for i := range 6 {
		end := []string{"commit", "abort"}[i%2]
		_, err := b.ProduceTransaction("paid", fmt.Sprintf("id %d", i%3), end, numbered(end, 30))
		require.NoError(t, err)
	}
	settled(t, b)
	_, err := b.DeleteRecords("paid", 7)
	require.NoError(t, err)
	before := b.cleanings("table")
	rs := numbered("", 300)
	for i := range rs {
		rs[i].Key = fmt.Appendf(nil, "key %d", i%7)
	}
	_, err = b.Produce("table", map[string]string{"batch.size": "700"}, rs)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return b.cleanings("table") > before }, 20*time.Second, 50*time.Millisecond)
}

// TestABrokersRootIsBackedUpAndRestoredAsCleanlyStopped backs a broker's whole root up (what its coordinator keeps included)
// after a clean stop and after a kill, and starts the broker on what was restored elsewhere: it recovers nothing, serves what it
// served, and a transaction that was open at the stop ends as if nothing had happened.
func TestABrokersRootIsBackedUpAndRestoredAsCleanlyStopped(t *testing.T) {
	b, _ := newCopiedBroker(t)
	fill(t, b)
	live, err := b.NewProducer(map[string]string{"transactional.id": "live", "transaction.timeout.ms": "600000"})
	require.NoError(t, err)
	require.NoError(t, live.Begin())
	_, err = live.Send("paid", numbered("live", 5))
	require.NoError(t, err)
	want := held(t, b, copied)
	require.Less(t, want[copied[3]].committed.EndOffset, want[copied[3]].uncommitted.EndOffset)
	require.NoError(t, b.Stop())

	home, away := b.Root, t.TempDir()
	before := treeOf(t, home)
	do(t, "backup", home, filepath.Join(away, "backup"), "--verify")
	sameTree(t, before, treeOf(t, home))
	backup := treeOf(t, filepath.Join(away, "backup"))
	do(t, "restore", filepath.Join(away, "backup"), filepath.Join(away, "restored"))
	sameTree(t, backup, treeOf(t, filepath.Join(away, "backup")))

	require.NoError(t, b.UseRoot(filepath.Join(away, "restored")))
	opensAsStopped(t, b)
	want.same(t, held(t, b, copied))
	_, err = live.Send("paid", numbered("live on", 3))
	require.NoError(t, err)
	require.NoError(t, live.End(true))
	got := settled(t, b)
	require.Equal(t, "live on 2", string(got.Records[len(got.Records)-1].Value))
	require.NoError(t, live.Close())
	goesOn(t, b)
	require.NoError(t, b.Stop())
	dumpsInSilence(t, b.d, b.Root, copied, "table")
	sameTree(t, backup, treeOf(t, filepath.Join(away, "backup")), "what the broker does with the restored root does not reach the backup")

	require.NoError(t, b.UseRoot(home))
	opensAsStopped(t, b)
	live, err = b.NewProducer(map[string]string{"transactional.id": "live"}) // here the transaction is still open: that aborts it
	require.NoError(t, err)
	require.NoError(t, live.Close())
	fill(t, b)
	want = held(t, b, copied)
	b.Kill()
	do(t, "backup", home, filepath.Join(away, "killed"), "--copy", "--verify")
	do(t, "restore", filepath.Join(away, "killed"), filepath.Join(away, "again"), "--link")
	require.NoError(t, b.UseRoot(filepath.Join(away, "again")))
	opensAsStopped(t, b)
	want.same(t, held(t, b, copied))
	require.NoError(t, b.Stop())
	dumpsInSilence(t, b.d, b.Root, copied, "table")
}

// opensAsStopped starts the broker, which must find a root that was stopped cleanly and is its own.
func opensAsStopped(t *testing.T, b *Broker) {
	t.Helper()
	require.NoError(t, b.Start())
	require.Empty(t, rebuilding(b.LogLines("dir="+b.Root)))
	require.Empty(t, marked(t, b.Root))
	require.Empty(t, b.LogLines("stray"))
}

// goesOn appends to every partition, with whatever producers the cluster has, and finds all of it in its place.
func goesOn(t *testing.T, b *Broker) {
	t.Helper()
	for _, tp := range copied {
		end, err := b.ConsumeFrom(tp.Topic, tp.Partition, "read_uncommitted")
		require.NoError(t, err)
		rs := numbered("more", 10)
		offsets, err := b.ProduceTo(tp.Topic, tp.Partition, nil, rs)
		require.NoError(t, err)
		require.Equal(t, end.EndOffset, offsets[0], "%s", tp)
		require.Equal(t, end.EndOffset+9, offsets[9], "%s", tp)
	}
	for i, end := range []string{"abort", "commit"} {
		_, err := b.ProduceTransaction("paid", fmt.Sprintf("more %d", i), end, numbered(end, 5))
		require.NoError(t, err)
	}
	got := settled(t, b)
	require.Equal(t, "commit 4", string(got.Records[len(got.Records)-1].Value))
	for _, r := range got.Records {
		require.NotContains(t, string(r.Value), "abort")
	}
}

// settled waits until the last marker is written, which is after the commit or abort has been answered: what committed readers see.
func settled(t *testing.T, b *Broker) (got Consumed) {
	t.Helper()
	all, err := b.Consume("paid", "read_uncommitted", 0)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		got, err = b.Consume("paid", "read_committed", 0)
		return err == nil && len(all.Records) > 0 && got.EndOffset > all.Records[len(all.Records)-1].Offset
	}, 30*time.Second, 20*time.Millisecond)
	return got
}
