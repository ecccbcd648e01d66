package controller

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/partlog/partlog/replica"
)

// RestoredKey counts how often the store has lost its newest writes, and AfterRestore was called for that.
const RestoredKey = "/cluster/restored"

// Steps that surely lead over all that was given out in one store since its backup.
const (
	epochStep       = 1 << 20 // of leader epochs, partition epochs, and rules
	brokerEpochStep = 1 << 48 // of broker epochs: a ZooKeeper's zxid may have its upper half grown, too
)

// restoredValue is what RestoredKey holds.
type restoredValue struct {
	Version int   `json:"version"` // 1
	Times   int64 `json:"times"`
}

// Restored is how often AfterRestore was called for a store.
func Restored(ctx context.Context, s replica.Store) (times int64, err error) {
	v, err := s.Get(ctx, RestoredKey)
	if err != nil || v.Value == nil {
		return 0, err
	}
	var r restoredValue
	if err := json.Unmarshal(v.Value, &r); err != nil {
		return 0, fmt.Errorf("%s: %w", RestoredKey, err)
	}
	return r.Times, nil
}

// AfterRestore must be called for a store that was restored from a backup, or has lost its newest writes in another way, before
// members can reach it. What it says of partitions may have been decided differently since, in epochs that it would give out a
// second time: members ignore what is older than what they know, and no log takes an older leader epoch than its own. So all
// epochs are raised above any that can have been given out: of leaders, partitions, registrations and rules. Then whatever members
// remember, and whether they run or not, they take the store's word again.
//
//	backup   leader 1, epoch 4        members saw leader 2, epoch 5; leader 1, epoch 6
//	after    leader 1, epoch 1048580  everybody follows 1, and cuts where its history parts from 1's
//
// Who leads and who is in sync stands as in the backup, less who stopped uncleanly since: what was committed later without the
// leader that comes of it is lost. Members keep the logs of topics that the store has lost; see package member. If it returns an
// error it is to be called again: calling it more often than needed does no harm.
func AfterRestore(ctx context.Context, s replica.Store) error {
	times, err := Restored(ctx, s)
	if err != nil {
		return err
	}
	if err := endRule(ctx, s, times+1); err != nil {
		return err
	}
	all, err := s.List(ctx, TopicsPrefix)
	if err != nil {
		return err
	}
	for _, v := range all {
		if k, ok := parseKey(v.Key); !ok || k.kind != stateKey {
			continue
		}
		if err := stepOver(ctx, s, v); err != nil {
			return err
		}
	}
	return nil
}

// endRule counts the restore, and ends the rule of a controller that still writes on the strength of what it knew before.
func endRule(ctx context.Context, s replica.Store, times int64) error {
	rule, err := s.Get(ctx, EpochKey)
	if err != nil {
		return err
	}
	last := int64(0)
	if rule.Value != nil {
		if last, err = strconv.ParseInt(string(rule.Value), 10, 32); err != nil {
			return fmt.Errorf("%s holds %q, not a number: %w", EpochKey, rule.Value, err)
		}
	}
	_, err = s.Commit(ctx, replica.Transaction{Writes: []replica.Write{
		{Key: RestoredKey, Value: encode(restoredValue{1, times}), IfVersion: replica.AnyVersion},
		{Key: EpochKey, Value: strconv.AppendInt(nil, max(last, min(last+epochStep, math.MaxInt32-1)), 10), IfVersion: rule.Version},
		{Key: ClaimKey, IfVersion: replica.AnyVersion},
	}})
	return err
}

// stepOver raises the epochs of a partition, whatever a controller that rules already makes of it meanwhile.
func stepOver(ctx context.Context, s replica.Store, v replica.Versioned) error {
	for {
		id, p, err := decodeState(v.Value)
		if err != nil {
			return fmt.Errorf("%s: %w", v.Key, err)
		}
		if p.LeaderEpoch > math.MaxInt32-epochStep || p.PartitionEpoch > math.MaxInt32-epochStep {
			return fmt.Errorf("%s: no epochs are left above %d and %d", v.Key, p.LeaderEpoch, p.PartitionEpoch)
		}
		p.LeaderEpoch += epochStep
		p.PartitionEpoch += epochStep
		raised := encodeState(0, id, p)
		_, err = replica.Put(ctx, s, v.Key, raised, v.Version)
		if !errors.Is(err, replica.ErrConflict) {
			return err
		}
		key := v.Key
		if v, err = s.Get(ctx, key); err != nil || v.Value == nil || bytes.Equal(v.Value, raised) { // the last: a conflict with itself
			return err
		}
		v.Key = key
	}
}
