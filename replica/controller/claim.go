package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/partlog/partlog/replica"
)

// claimValue is who rules, as Kafka writes it.
type claimValue struct {
	Version   int            `json:"version"` // 1
	Node      replica.NodeID `json:"brokerid"`
	Timestamp string         `json:"timestamp"` // Unix ms
}

// Claim tries once to become the ruler: true with the epoch and its version if it did, false if somebody else rules. The
// claim lasts as long as the session; the version guards every write from now on.
func Claim(ctx context.Context, s replica.Store, session replica.Session, node replica.NodeID, now time.Time) (epoch int32, version int64, ok bool, err error) {
	old, err := s.Get(ctx, EpochKey)
	if err != nil {
		return 0, 0, false, err
	}
	var last int64
	if old.Version > 0 {
		if last, err = strconv.ParseInt(string(old.Value), 10, 32); err != nil || last < 0 || last == 1<<31-1 {
			return 0, 0, false, fmt.Errorf("%s holds %q, not the number of a rule that another can follow", EpochKey, old.Value)
		}
	}
	claim := encode(claimValue{1, node, strconv.FormatInt(now.UnixMilli(), 10)})
	versions, err := session.Commit(ctx, replica.Transaction{Writes: []replica.Write{
		{Key: ClaimKey, Value: claim, Ephemeral: true},
		{Key: EpochKey, Value: strconv.AppendInt(nil, last+1, 10), IfVersion: old.Version},
	}})
	if errors.Is(err, replica.ErrConflict) {
		return 0, 0, false, nil
	}
	if err != nil {
		return 0, 0, false, err
	}
	return int32(last + 1), versions[1], true, nil
}

// vacancy waits until nobody rules.
func vacancy(ctx context.Context, s replica.Store) error {
	current, held := false, false
	for v, err := range s.Watch(ctx, ClaimKey) {
		if err != nil {
			return err
		}
		current = current || v.Key == ""
		if v.Key == ClaimKey {
			held = v.Value != nil
		}
		if current && !held {
			return nil
		}
	}
	return errors.New("the store's watch ended")
}

// holdings are all keys a Core wants to know at the beginning of its rule, but for those of live nodes.
func holdings(ctx context.Context, s replica.Store) (all []replica.Versioned, err error) {
	for _, prefix := range []string{RegistrationsPrefix, TopicsPrefix, ConfigPrefix, DeletePrefix} {
		part, err := s.List(ctx, prefix)
		if err != nil {
			return nil, err
		}
		all = slices.Concat(all, part)
	}
	return all, nil
}
