package main

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/vfs"
)

// maxSmallFile bounds what is read of a checkpoint.
const maxSmallFile = 64 << 20

// small dumps the small files, which Kafka's tool does not know. The lines follow its style.
func (d *dumper) small(kind string) error {
	b, err := vfs.ReadFile(d.fs, d.name, maxSmallFile)
	if err != nil {
		return err
	}
	switch kind {
	case checkpoint.LeaderEpochs:
		entries, err := checkpoint.ParseEpochs(d.name, b)
		for _, e := range entries {
			d.entry(facts{{"epoch", e.Epoch}, {"startOffset", e.StartOffset}}, "epoch: %d startOffset: %d", e.Epoch, e.StartOffset)
		}
		return err
	case checkpoint.Metadata:
		id, err := checkpoint.ParseTopicID(d.name, b)
		if err != nil {
			return err
		}
		d.entry(facts{{"topicId", id.String()}}, "topicId: %s", id)
	case checkpoint.CleanMarker:
		if len(b) > 0 && !json.Valid(b) { // old brokers leave an empty one
			return unreadablef(0, "not JSON; that the file is there tells a broker of a clean stop all the same")
		}
		epoch := checkpoint.ParseCleanMarker(b)
		v, text := optional(epoch, epoch >= 0)
		d.entry(facts{{"brokerEpoch", v}}, "brokerEpoch: %s", text)
	case checkpoint.MetaProperties:
		return d.identity(b)
	default:
		offsets, err := checkpoint.ParseOffsets(d.name, b)
		order := slices.SortedFunc(maps.Keys(offsets), func(a, b checkpoint.Partition) int {
			return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
		})
		for _, p := range order {
			d.entry(facts{{"topic", p.Topic}, {"partition", p.Partition}, {"offset", offsets[p]}}, "topic: %s partition: %d offset: %d", p.Topic, p.Partition, offsets[p])
		}
		return err
	}
	return nil
}

func (d *dumper) identity(b []byte) error {
	id, err := checkpoint.ParseIdentity(d.name, b)
	if err != nil {
		return err
	}
	v := facts{{"version", id.Version}, {"clusterId", nil}, {"nodeId", nil}, {"directoryId", nil}}
	if id.ClusterID != "" {
		v.set("clusterId", id.ClusterID)
	}
	if id.NodeID >= 0 {
		v.set("nodeId", id.NodeID)
	}
	if !id.DirectoryID.IsZero() {
		v.set("directoryId", id.DirectoryID.String())
	}
	d.entry(v, "version: %d cluster.id: %s node.id: %d directory.id: %s", id.Version, id.ClusterID, id.NodeID, id.DirectoryID)
	return nil
}
