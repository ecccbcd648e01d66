package member

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/replica/controller"
)

func ledBy(node replica.NodeID, leaderEpoch, partitionEpoch int32) controller.News {
	return controller.News{Partition: orders, TopicID: [16]byte{1}, State: controller.Partition{Leader: node, LeaderEpoch: leaderEpoch, PartitionEpoch: partitionEpoch, Replicas: ids{1, 2}}}
}

// News of what this node led in an earlier life may come at any time: from a watch that is behind.
func TestNewsOfAnEarlierLifeAreNotPassedOn(t *testing.T) {
	b := &board{}
	b.init(1)
	taken := func() (list []int32) {
		_, parts, _ := b.take()
		for _, n := range parts {
			list = append(list, n.State.LeaderEpoch)
		}
		return list
	}
	b.tell(ledBy(1, 4, 7))
	require.Empty(t, taken(), "nothing is passed on before it is open")
	b.open(b.look(), []controller.News{ledBy(1, 5, 8)})
	require.Empty(t, taken())
	b.tell(ledBy(1, 5, 9)) // its in-sync set was changed by the way
	require.Empty(t, taken())
	b.tell(ledBy(2, 6, 10))
	b.tell(ledBy(1, 5, 9))
	require.Equal(t, []int32{6}, taken(), "older news are forgotten")
	b.tell(ledBy(1, 7, 11))
	require.Equal(t, []int32{7}, taken(), "elected in this life")
	b.all()
	require.Equal(t, []int32{7}, taken())

	b.tell(controller.News{Partition: orders, Deleted: true})
	_, parts, _ := b.take()
	require.Len(t, parts, 1)
	require.Empty(t, b.parts, "what is gone is forgotten")
	b.back(parts)
	_, again, _ := b.take()
	require.Equal(t, parts, again)
}

func TestAWatchThatIsAtItsEndNamesWhatItDidNotShow(t *testing.T) {
	b := &board{}
	b.init(1)
	b.begin()
	b.tell(ledBy(2, 1, 1))
	require.Empty(t, b.missing())
	b.settle()
	b.begin()
	s, _ := b.standing(0)
	require.False(t, s.noticed, "it is behind")
	require.Equal(t, []log.TopicPartition{orders}, b.missing())
	b.tell(ledBy(2, 1, 0)) // seen, though not believed
	require.Empty(t, b.missing())
}
