package member

import (
	"context"
	"errors"
	"fmt"

	"github.com/partlog/partlog/replica/controller"
)

// ErrOtherCluster: the store is not, or is no more, that of this member's cluster (Kafka: INCONSISTENT_CLUSTER_ID). It may have
// come back empty, or is somebody else's. The member does not register with it, and deletes nothing on its word.
var ErrOtherCluster = errors.New("member: the store is of another cluster")

// identity is which cluster this member is of.
type identity struct {
	asking chan struct{} // of capacity 1: full while the store is asked, who asks second waits for the first; guards id
	id     string        // "": not known yet
}

// errLost: a topic is not in the store any more, because the store has lost it.
var errLost = errors.New("is not in the store that was restored from a backup; its log here is left as it is, and has no role until the process starts anew")

// sameCluster finds out whether the store is that of this member's cluster. What the cluster is the Dir's meta.properties say;
// if they do not, the store does when it is asked first.
func (m *Member) sameCluster(ctx context.Context) error {
	select {
	case m.identity.asking <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-m.identity.asking }()
	ctx, cancel := context.WithTimeout(ctx, m.conf.ask())
	defer cancel()
	has, err := controller.ClusterID(ctx, m.store)
	if err != nil {
		return err
	}
	times, err := controller.Restored(ctx, m.store)
	if err != nil {
		return err
	}
	m.board.restored.Store(times)
	want := m.identity.id
	if want == "" {
		want = m.conf.Dir.Identity().ClusterID
		if has == "" {
			if has, err = controller.CreateClusterID(ctx, m.store, want); err != nil {
				return err
			}
		}
		if want == "" || want == has {
			m.identity.id = has
			return nil
		}
	}
	switch has {
	case want:
		return nil
	case "":
		return fmt.Errorf("%w: %s is gone, was %q: the store has lost what it held", ErrOtherCluster, controller.ClusterKey, want)
	}
	return fmt.Errorf("%w: %s is %q, this member's is %q", ErrOtherCluster, controller.ClusterKey, has, want)
}

// believe asks the store once more before the log of a replica is deleted because its topic is gone, or another has its name.
// false: it says something else by now, which was put on the board.
//
// Of a topic that was told of before the store was restored from a backup it cannot be known whether it was deleted: lost is true.
func (m *Member) believe(n controller.News, told told) (still, lost bool, err error) {
	ctx, cancel := context.WithTimeout(m.ctx, m.conf.ask())
	defer cancel()
	now, err := m.lookUp(ctx, n.Partition)
	if err != nil {
		return false, false, err
	}
	if now.Deleted != n.Deleted || now.TopicID != n.TopicID {
		return false, false, nil
	}
	err = m.sameCluster(ctx) // last: of a store that is being restored, the id may come last
	return true, m.board.restored.Load() != told.restored, err
}
