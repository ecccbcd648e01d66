package member

import (
	"context"
	"fmt"
	"slices"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/replica/controller"
)

// setStrays sets aside what the Dir has of partitions that the store does not give to this node. all is everything that the
// store has; the node has not been told of any of it, so that none of the logs is in use. One of a topic that was made anew
// is left to the node, which compares the ids when it is told of the partition.
func (m *Member) setStrays(ctx context.Context, all []controller.News) error {
	if !m.conf.Strays || m.conf.Dir == nil {
		return nil
	}
	mine := make(map[log.TopicPartition]bool, len(all))
	for _, n := range all {
		if !n.Deleted && slices.Contains(n.State.Replicas, m.conf.Self) {
			mine[n.Partition] = true
		}
	}
	found, _, err := m.conf.Dir.Folders()
	if err != nil {
		return err
	}
	for _, tp := range found {
		if mine[tp] {
			continue
		}
		if _, err := m.conf.Dir.SetStray(ctx, tp); err != nil {
			return fmt.Errorf("set %s aside: %w", tp, err)
		}
	}
	return nil
}
