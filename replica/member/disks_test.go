package member

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/replica/controller"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// Disks are full, or fail in one way or another, for seconds or minutes, of leaders and followers, while their partition moves to other
// nodes and back, so that a log that failed is opened again, and removed, as it comes. What was confirmed is there afterwards, everybody
// is in sync again by himself, and who has no replica any more has no folder.
func TestDisksThatFailNowAndThenAreForgiven(t *testing.T) {
	first, seeds := uint64(1), uint64(4)
	if n, err := strconv.ParseUint(os.Getenv("PARTLOG_TEST_SEEDS"), 10, 64); err == nil {
		seeds = n
	}
	for seed := first; seed < first+seeds; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { disksThatFail(t, seed) })
		})
	}
}

var diskOps = []vfstest.Kind{vfstest.OpOpen, vfstest.OpCreate, vfstest.OpRead, vfstest.OpWrite, vfstest.OpTruncate, vfstest.OpSync, vfstest.OpSyncData,
	vfstest.OpRename, vfstest.OpRemove, vfstest.OpMkdir, vfstest.OpReadDir, vfstest.OpSyncDir, vfstest.OpSize, vfstest.OpAllocate}

func disksThatFail(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 3))
	c := newCluster(t)
	defer c.tell()
	disks := map[replica.NodeID]*vfstest.Fault{}
	for id := replica.NodeID(1); id <= 4; id++ {
		disks[id] = vfstest.NewFault(vfs.Mem())
		c.nodes[id] = &node{fs: disks[id], store: newTroubled(c.store)}
		c.start(id, nil)
	}
	for id := range c.nodes {
		c.inService(id)
	}
	c.create("orders", map[string]string{"min.insync.replicas": "2", "segment.bytes": "1048576"}, ids{1, 2, 3})
	c.inSync(3)
	move := func(to ids) {
		c.ask(func(ctx context.Context, ctrl *controller.Controller) error {
			return ctrl.Reassign(ctx, controller.Reassign{Partition: orders, To: to})
		})
	}
	var want []string
	var hits []func() int
	for round := range 25 {
		switch r.IntN(4) {
		case 0:
			all := r.Perm(4)
			move(ids{replica.NodeID(all[0] + 1), replica.NodeID(all[1] + 1), replica.NodeID(all[2] + 1)})
		default:
			id := replica.NodeID(r.IntN(4) + 1)
			rule := vfstest.Rule{Name: "orders-0*", Times: vfstest.Always, Err: []error{syscall.EIO, syscall.ENOSPC}[r.IntN(2)]}
			if r.IntN(4) > 0 {
				rule.Ops = []vfstest.Kind{diskOps[r.IntN(len(diskOps))]}
			}
			if r.IntN(3) == 0 {
				rule.Times, rule.Nth = 1+r.IntN(3), 1+r.IntN(20)
			}
			switch r.IntN(6) {
			case 0:
				rule.Done = true // the answer gets lost
			case 1:
				rule.Short, rule.Keep = true, r.IntN(200)
			}
			in := rule
			in.Name += "/*"
			_, first := disks[id].Add(rule)
			count, second := disks[id].Add(in)
			hits = append(hits, count)
			time.AfterFunc(time.Duration(r.Int64N(int64(90*time.Second))), func() { first(); second() })
		}
		value := fmt.Sprint("v", round)
		want = append(want, value)
		c.produceWithin(10*time.Minute, value)
		time.Sleep(time.Duration(r.Int64N(int64(20 * time.Second))))
	}
	time.Sleep(2 * time.Minute) // all disks are well
	struck := 0
	for _, count := range hits {
		struck += count()
	}
	require.Positive(t, struck)
	for _, d := range disks {
		d.Clear()
	}
	move(ids{1, 2, 3})
	time.Sleep(5 * time.Minute)
	p := c.inSync(3)
	require.ElementsMatch(t, ids{1, 2, 3}, p.Replicas)
	c.produce("end")
	for id := replica.NodeID(1); id <= 3; id++ {
		c.holds(id, append(want, "end")...)
	}
	_, err := c.nodes[4].Node().Partition(orders)
	require.ErrorIs(t, err, replica.ErrNoReplica)
	_, err = disks[4].Stat("orders-0")
	require.True(t, errors.Is(err, os.ErrNotExist), err)
}
