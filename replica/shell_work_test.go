package replica

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/vfs"
)

// A leader's segment may hold more than one here takes: segment.bytes was lowered, or a cleaning wrote batches anew that are a
// little longer. What is fetched is appended at once, and an append above segment.bytes is refused, each time it is fetched.
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
