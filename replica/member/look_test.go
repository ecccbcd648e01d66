package member

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/replica/controller"
)

var gone = controller.News{Partition: orders, Deleted: true}

func anew(n controller.News) controller.News {
	n.TopicID = [16]byte{2}
	return n
}

// A look-up that was overtaken by what happened since says nothing of a partition that is gone, or another topic's.
func TestALookUpThatWasOvertakenIsNotBelieved(t *testing.T) {
	for name, c := range map[string]struct {
		before []controller.News // the watch tells, and the node is told
		since  []controller.News // while the look-up is under way
		found  controller.News
		want   []controller.News // what the node is told then
	}{
		"it went":                  {[]controller.News{ledBy(1, 4, 7)}, []controller.News{gone}, ledBy(1, 4, 8), nil},
		"it came and went":         {nil, []controller.News{ledBy(1, 4, 7), gone}, ledBy(1, 4, 7), nil},
		"it was made anew":         {[]controller.News{ledBy(1, 4, 7)}, []controller.News{gone, anew(ledBy(2, 0, 0))}, ledBy(1, 4, 8), nil},
		"it went before":           {[]controller.News{ledBy(1, 4, 7), gone}, nil, anew(ledBy(1, 0, 0)), []controller.News{anew(ledBy(1, 0, 0))}},
		"it came":                  {nil, []controller.News{ledBy(1, 4, 7)}, gone, nil},
		"it is newer":              {[]controller.News{ledBy(1, 4, 7)}, nil, ledBy(1, 4, 8), []controller.News{ledBy(1, 4, 8)}},
		"it came, and is newer":    {nil, []controller.News{ledBy(1, 4, 7)}, ledBy(1, 4, 8), []controller.News{ledBy(1, 4, 8)}},
		"it is older":              {[]controller.News{ledBy(1, 4, 7)}, nil, ledBy(1, 4, 6), nil},
		"it is gone":               {[]controller.News{ledBy(1, 4, 7)}, nil, gone, []controller.News{gone}},
		"it is gone, as was known": {[]controller.News{ledBy(1, 4, 7), gone}, nil, gone, nil},
		"it is as it was":          {[]controller.News{ledBy(1, 4, 7)}, nil, ledBy(1, 4, 7), nil},
	} {
		t.Run(name, func(t *testing.T) {
			b := &board{}
			b.init(1)
			b.open(b.look(), nil)
			told := func(list []controller.News) {
				for _, n := range list {
					b.tell(n)
					b.take()
				}
			}
			told(c.before)
			since := b.look()
			told(c.since)
			b.looked(since, c.found)
			_, parts, _ := b.take()
			require.Equal(t, c.want, parts)
		})
	}
}

// What is remembered for the sake of look-ups goes with them.
func TestNothingIsRememberedWithoutALookUp(t *testing.T) {
	b := &board{}
	b.init(1)
	outer := b.look()
	b.looked(outer)
	b.open(b.look(), nil)
	come := func() {
		b.tell(ledBy(1, 4, 7))
		b.take()
		b.tell(gone)
		b.take()
	}
	b.looks.under = nil
	come()
	require.Empty(t, b.looks.went)
	first := b.look()
	come()
	second, third := b.look(), b.look()
	require.Len(t, b.looks.went, 1)
	b.looked(second)
	require.Len(t, b.looks.went, 1)
	b.looked(first)
	require.Empty(t, b.looks.went, "the third began later")
	b.looked(third)
	require.Empty(t, b.looks.under)
}

// A process that begins anew knows of no replica that went. What it reads of the store first decides, though a watch that is behind may
// still speak of it, or have spoken.
func TestTheFirstReadOfTheStoreDecides(t *testing.T) {
	later := log.TopicPartition{Topic: "later"}
	b := &board{}
	b.init(1)
	b.tell(ledBy(1, 4, 7))
	since := b.look()
	new := ledBy(1, 0, 0)
	new.Partition = later
	b.tell(new)
	b.open(since, nil)
	b.looked(since)
	_, parts, _ := b.take()
	require.ElementsMatch(t, []controller.News{gone, new}, parts, "the other may have come after it was read")

	b = &board{}
	b.init(1)
	b.tell(ledBy(1, 4, 7))
	since = b.look()
	b.tell(gone)
	b.tell(anew(ledBy(1, 0, 0)))
	b.open(since, []controller.News{ledBy(1, 4, 8)})
	b.looked(since)
	_, parts, _ = b.take()
	require.Equal(t, []controller.News{anew(ledBy(1, 0, 0))}, parts)
}

// A leader is asked about settings and looks at the store; before it has the answer the topic is deleted, and the replica with it.
func TestAnAnswerOfTheStoreThatComesLateMakesNoReplica(t *testing.T) {
	c := newCluster(t, 1)
	c.create("orders", nil, ids{1})
	c.produce("a")
	m := c.nodes[1]
	hold := make(chan struct{})
	reads := m.store.holdReads(orders, hold)
	id := c.look(orders).TopicID
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan replica.ISRAnswer, 1)
	go func() { done <- m.heed(ctx, orders, replica.ControlRequest{TopicID: id, Settings: true}) }()
	<-reads
	m.store.holdReads(log.TopicPartition{}, nil)
	c.ask(func(ctx context.Context, ctrl *controller.Controller) error { return ctrl.DeleteTopic(ctx, "orders") })
	require.Eventually(t, func() bool { return m.Node().Stats().Replicas == 0 }, 20*time.Second, time.Millisecond)
	close(hold)
	require.Never(t, func() bool { return m.Node().Stats().Replicas > 0 }, 50*time.Millisecond, time.Millisecond)
	cancel()
	require.Equal(t, replica.RequestTimedOut, (<-done).Err)
}
