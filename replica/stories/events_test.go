package stories

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/replica/controller"
	"github.com/partlog/partlog/vfs"
)

// create makes the topic, perhaps anew: then what was recorded of the old one counts no more.
func (c *cluster) create(e *event) {
	if e.TopicID != "" {
		c.story.TopicID = e.TopicID
	}
	c.history, c.passed, c.ours = nil, nil, 0
	r := c.ask(func(tag uint64) controller.Event {
		return controller.CreateTopic{Tag: tag, Topic: c.story.Topic, Assignment: [][]replica.NodeID{e.Replicas}, ID: c.story.topicID(c.t), Config: c.story.TopicConfig}
	})
	require.NoError(c.t, r.Err)
}

// clear takes a folder away that is another topic's, or nobody's any more.
func (c *cluster) clear(n *node) {
	metadata, err := vfs.ReadFile(n.disk, path.Join(c.story.tp().String(), "partition.metadata"), 1<<10)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	require.NoError(c.t, err)
	if !strings.Contains(string(metadata), c.story.TopicID) || !slices.Contains(c.partition().Replicas, n.id) {
		n.wipe(c.story)
	}
}

// endTxn has the leader write the marker of a transaction, with the time that it got in the cluster.
func (c *cluster) endTxn(e *event) {
	n := c.leader(e.Node)
	c.tag++
	tag := c.tag
	c.wall = time.UnixMilli(e.Timestamp)
	defer func() { c.wall = time.Time{} }()
	n.step(c.now, replica.EndTxn{From: replica.NoNode, Tag: tag, ProducerID: *e.PID, ProducerEpoch: e.Epoch, Commit: e.Commit, LeaderEpoch: -1, BrokerEpoch: -1})
	require.True(c.t, c.run(10*time.Second, func() bool { _, ok := n.answers[tag]; return ok }), "step %d: no answer", e.Step)
	require.Equal(c.t, e.Answer.Error, n.answers[tag].Err.String(), "step %d", e.Step)
}

// setConfig sets one of the topic's settings, or with a null value takes it back. An unclean election that it allows is
// held later, as by Kafka.
func (c *cluster) setConfig(e *event) {
	r := c.ask(func(tag uint64) controller.Event {
		a := controller.AlterConfig{Tag: tag, Topic: c.story.Topic}
		if e.Value != nil {
			a.Set = map[string]string{e.Key: *e.Value}
		} else {
			a.Delete = []string{e.Key}
		}
		return a
	})
	require.Equal(c.t, e.Answer.Error, code(r.Err).String(), "step %d", e.Step)
}

// wipe takes the partition's folder, if there is one, from a node that is down.
func (n *node) wipe(s *story) {
	require.False(n.t, n.up)
	entries, err := n.disk.ReadDir(s.tp().String())
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	require.NoError(n.t, err)
	for _, e := range entries {
		require.NoError(n.t, n.disk.Remove(path.Join(s.tp().String(), e.Name())))
	}
	require.NoError(n.t, n.disk.Remove(s.tp().String()))
}

func (w *consumed) isolation() log.Isolation {
	if w.Isolation == "read_committed" {
		return log.ReadCommitted
	}
	return log.ReadUncommitted
}

// aborted says whether a batch is of a transaction that was aborted.
func aborted(list []log.AbortedTxn, b record.Batch) bool {
	id, _, _ := b.Producer()
	for _, t := range list {
		if b.Transactional() && t.ProducerID == id && t.FirstOffset <= b.BaseOffset() && b.BaseOffset() <= t.LastOffset {
			return true
		}
	}
	return false
}
