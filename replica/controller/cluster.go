package controller

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/partlog/partlog/replica"
)

// ClusterKey holds the id of the cluster that the store is of. It is written once and never deleted: a store where it is
// another, or missing, is not the one there was.
const ClusterKey = "/cluster/id"

// clusterValue is the id as Kafka wrote it.
type clusterValue struct {
	Version string `json:"version"` // "1"
	ID      string `json:"id"`
}

// ClusterID is the id of the cluster that a store is of; "": none has been written.
func ClusterID(ctx context.Context, s replica.Store) (string, error) {
	v, err := s.Get(ctx, ClusterKey)
	if err != nil || v.Value == nil {
		return "", err
	}
	var c clusterValue
	if err := json.Unmarshal(v.Value, &c); err != nil {
		return "", fmt.Errorf("%s: %w", ClusterKey, err)
	}
	if c.ID == "" {
		return "", fmt.Errorf("%s: %q has no id", ClusterKey, v.Value)
	}
	return c.ID, nil
}

// CreateClusterID writes an id into a store that has none, and answers the one it has then. id "": one is drawn, as Kafka
// does: 16 random bytes in base64.
func CreateClusterID(ctx context.Context, s replica.Store, id string) (string, error) {
	if id == "" {
		var b [16]byte
		_, _ = rand.Read(b[:]) // never fails
		id = base64.RawURLEncoding.EncodeToString(b[:])
	}
	_, err := replica.Put(ctx, s, ClusterKey, encode(clusterValue{"1", id}), 0)
	if err != nil && !errors.Is(err, replica.ErrConflict) {
		return "", err
	}
	return ClusterID(ctx, s)
}
