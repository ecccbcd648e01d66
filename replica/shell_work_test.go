package replica

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/vfs"
)

// A leader's segment may hold more than one here takes: segment.bytes was lowered, or a cleaning wrote batches anew that are a
// little longer. What is fetched is appended at once, and an append of more than one batch above segment.bytes is refused, each
// time it is fetched.
func TestAFollowerAsksForNoMoreThanASegmentTakes(t *testing.T) {
	d, err := log.OpenDir("mem", log.DirConfig{FS: vfs.Mem()})
	require.NoError(t, err)
	defer d.Close()
	w := wire{make(chan Message, 16), make(chan func(Envelope), 1)}
	n, err := NewNode(NodeConfig{Config: Config{Self: 1}, Dir: d, Transport: w,
		Partitions: func(log.TopicPartition) (log.Config, Config) { return log.Config{SegmentBytes: 512}, Config{} }})
	require.NoError(t, err)
	defer n.Close()
	require.NoError(t, n.Assign(ordersZero, Assign{Leader: 2, LeaderEpoch: 1, Replicas: []NodeID{1, 2}, ISR: []NodeID{1, 2}}))
	require.Equal(t, int64(512), (<-w.sent).(FetchRequest).MaxBytes)
}

// What a leader has committed a follower takes, however small its segments are: else it would never be in sync again.
func TestAFollowerTakesABatchThatIsLargerThanItsSegments(t *testing.T) {
	g := newTunedGroup(t, log.Config{Durability: log.Buffered}, func(nc *NodeConfig) {
		if conf := nc.Config; conf.Self == 2 {
			nc.Partitions = func(log.TopicPartition) (log.Config, Config) { return log.Config{SegmentBytes: 512}, conf }
		}
	}, 1, 2)
	want := []string{"small", strings.Repeat("x", 2000), "small again", strings.Repeat("y", 3000), strings.Repeat("z", 600), "end"}
	for _, v := range want {
		g.produce(v)
	}
	g.caughtUp(1, 2)
	require.Equal(t, want, g.values(2))
	require.Len(t, g.handle(1).Status().ISR, 2)
	require.NoError(t, g.handle(2).Status().LastError)

	g.kill(2) // and it is all there when it comes back
	g.start(2, log.Config{Durability: log.Buffered})
	g.assign(g.state)
	g.produce("after")
	g.caughtUp(1, 2)
	require.Equal(t, append(want, "after"), g.values(2))
}
