package stories

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/vfs"
)

// asking is a fetch that was not answered yet.
type asking struct {
	node replica.NodeID // who waits
	tag  uint64
}

// node is a broker with one partition at most: its disk outlives its processes.
type node struct {
	t    *testing.T
	id   replica.NodeID
	disk vfs.FS

	// Of the process that runs, if one does.
	up, paused bool
	clean      bool // the last process was stopped cleanly
	dir        *log.Dir
	log        *log.Log
	p          *replica.Partition
	conf       replica.Config
	inbox      []func()                  // of a paused process
	asked      map[asking]bool           // fetches on their way here (false) or waiting here (true)
	told       map[string]string         // the news it had, as text
	diverged   *epochEnd                 // in the answer that is being worked on
	answers    map[uint64]replica.Result // to producers and consumers
	session    replica.Session           // at the controller
	epoch      int64                     // broker epoch of the last registration
	heard      time.Time                 // the last heartbeat
	last       nodeState                 // before it went down
	cuts       []truncation              // all its life
	due, ruled time.Time                 // when the last message to it, and from it to the controller, arrives
	send       func(replica.Action)      // fetches, answers to other nodes, proposals
}

func copyTree(t *testing.T, from vfs.FS, name string, to vfs.FS) {
	entries, err := from.ReadDir(name)
	require.NoError(t, err)
	for _, e := range entries {
		at := path.Join(name, e.Name())
		switch {
		case e.IsDir():
			require.NoError(t, to.MkdirAll(at, 0o755))
			copyTree(t, from, at, to)
		case e.Name() != ".lock":
			_, err := vfs.Copy(from, at, to, at)
			require.NoError(t, err)
		}
	}
}

// diskOf is a copy in memory of a folder captured from a broker.
func diskOf(t *testing.T, folder string) vfs.FS {
	from, err := vfs.OSReadOnly(folder)
	require.NoError(t, err)
	disk := vfs.Mem()
	copyTree(t, from, ".", disk)
	return disk
}

// boot begins a process over what the disk has.
func (n *node) boot(now func() time.Time, s *story) {
	var err error
	n.dir, err = log.OpenDir("node", log.DirConfig{FS: n.disk, Manual: true, Now: now, InitialDelay: log.Immediately,
		HighWatermarkInterval: checkpoint, RetentionInterval: s.setting("log.retention.check.interval.ms", checkpoint)})
	require.NoError(n.t, err)
	n.up, n.paused, n.clean = true, false, false
	n.log, n.p, n.inbox = nil, nil, nil
	n.asked, n.told, n.answers = map[asking]bool{}, map[string]string{}, map[uint64]replica.Result{}
}

// open opens the partition, or makes it.
func (n *node) open(s *story) {
	var err error
	n.log, err = n.dir.Open(n.t.Context(), s.tp(), s.config(n.t))
	require.NoError(n.t, err)
	require.NoError(n.t, n.log.SetTopicID(s.topicID(n.t)))
	_, clean := n.dir.CleanShutdown()
	fresh := n.log.Offsets().LogEnd == 0
	n.p = replica.New(s.tp(), n.conf, n.logState(), !clean && !fresh)
}

func (n *node) logState() replica.LogState {
	return replica.LogState{Offsets: n.log.Offsets(), Epochs: n.log.Epochs()}
}

// kill ends the process at once: what it wrote is there, what it meant to write is not.
func (n *node) kill(s *story) {
	n.last = n.state(s)
	disk := vfs.Mem()
	copyTree(n.t, n.disk, ".", disk)
	n.disk, n.up, n.paused = disk, false, false
	_ = n.dir.Close() // of the disk that nobody sees any more
}

// halt stops the process cleanly, after the controller has let it go.
func (n *node) halt(now time.Time, s *story) {
	if n.p != nil {
		n.step(now, replica.Stop{LeaderEpoch: -1})
	}
	n.dir.SetBrokerEpoch(n.epoch)
	n.last = n.state(s)
	require.NoError(n.t, n.dir.Close())
	n.up, n.paused, n.clean = false, false, true
}

// step gives the partition an event, has the log do what follows, and sends the rest.
func (n *node) step(now time.Time, e replica.Event) {
	if r, ok := e.(replica.FetchResponse); ok {
		n.diverged = nil
		if r.Result.Diverged {
			n.diverged = &epochEnd{r.Result.EpochEnd.Epoch, r.Result.EpochEnd.End}
		}
	}
	for _, a := range n.p.Step(now, e, nil) {
		switch a.Kind {
		case replica.SendFetch, replica.Reply, replica.ProposeISR:
			n.send(a)
		case replica.Fail:
			n.t.Fatalf("node %d: %v", n.id, a.Err)
		case replica.Delete:
			require.NoError(n.t, n.dir.Delete(n.t.Context(), n.p.TopicPartition()))
			n.p, n.log = nil, nil
			return
		default:
			_, appended := e.(replica.Appended)
			if answer := n.do(a, appended); answer != nil {
				n.step(now, answer)
			}
		}
	}
}

// do carries out an action of the log. again: it follows from an append.
func (n *node) do(a replica.Action, again bool) replica.Event {
	ctx := n.t.Context()
	switch a.Kind {
	case replica.DoAppend:
		if end, ok := a.Extra.(replica.EndTxn); ok {
			got, err := n.log.EndTxn(ctx, record.Producer{ID: end.ProducerID, Epoch: end.ProducerEpoch}, end.Commit, log.EndTxnOptions{LeaderEpoch: &a.LeaderEpoch})
			return replica.Appended{Tag: a.Tag, Base: got.Base, Last: got.Last, AppendTime: got.AppendTime, Err: err, State: n.logState()}
		}
		got, err := n.log.AppendBatches(ctx, a.Raw, log.AppendOptions{As: a.Role, LeaderEpoch: &a.LeaderEpoch})
		return replica.Appended{Tag: a.Tag, Base: got.Base, Last: got.Last, AppendTime: got.AppendTime, Duplicate: got.Duplicate, Err: err, State: n.logState()}
	case replica.DoRead:
		raw, next, aborted, err := n.read(ctx, a)
		return replica.Read{Tag: a.Tag, Raw: raw, Bytes: int64(len(raw)), Next: next, Aborted: aborted, Err: err, State: n.logState()}
	case replica.DoTruncate:
		n.noteCut(a)
		_, err := n.log.Truncate(ctx, a.Offset)
		return replica.Truncated{Tag: a.Tag, Err: err, State: n.logState()}
	case replica.DoReset:
		if end := n.log.Offsets().LogEnd; !again {
			n.cuts = append(n.cuts, truncation{Node: n.id, From: &end, StartAnewAt: &a.Offset})
		}
		return replica.Truncated{Tag: a.Tag, Err: n.log.ResetTo(ctx, a.Offset), State: n.logState()}
	case replica.DoSkip:
		err := error(nil)
		if a.LeaderEpoch >= 0 {
			err = n.log.AssignEpoch(a.LeaderEpoch)
		}
		if err == nil {
			err = n.log.FollowEnd(ctx, a.Offset)
		}
		return replica.Truncated{Tag: a.Tag, Err: err, State: n.logState()}
	case replica.DoEpoch:
		return replica.Assigned{Tag: a.Tag, Err: n.log.AssignEpoch(a.LeaderEpoch), State: n.logState()}
	case replica.DoSync:
		return replica.Synced{Tag: a.Tag, Err: n.log.Sync(ctx), State: n.logState()}
	case replica.SetHighWatermark:
		got, err := n.log.SetHighWatermark(a.Offset)
		require.NoError(n.t, err)
		require.Equal(n.t, a.Offset, got)
	case replica.SetLogStart:
		require.NoError(n.t, n.log.DeleteRecords(ctx, a.Offset))
		return replica.LogChanged{State: n.logState()}
	}
	return nil
}

// noteCut notes what Kafka's log says when it truncates: by which answer, and whether below the high watermark.
func (n *node) noteCut(a replica.Action) {
	n.cuts = append(n.cuts, truncation{Node: n.id, To: &a.Offset, Completed: n.diverged != nil, LeaderAnswered: n.diverged})
	if hw := n.log.Offsets().HighWatermark; a.Offset < hw {
		n.cuts = append(n.cuts, truncation{Node: n.id, To: &a.Offset, BelowHighWatermark: &hw})
	}
}

func (n *node) read(ctx context.Context, a replica.Action) (raw []byte, next int64, aborted []log.AbortedTxn, err error) {
	f, err := n.log.Fetch(ctx, a.Offset, log.FetchOptions{Isolation: a.Isolation, MaxBytes: a.MaxBytes, WholeBatches: true})
	if err != nil {
		return nil, 0, nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if raw, err = io.ReadAll(io.NewSectionReader(f, 0, f.Len())); err != nil {
		return nil, 0, nil, err
	}
	next, err = f.NextOffset()
	return raw, next, f.Aborted(), err
}

// state is what the node has, read from its log while it runs; the epochs always from the file.
func (n *node) state(s *story) nodeState {
	switch {
	case !n.up:
		st := n.last
		st.Node, st.HighWatermark = "down", nil
		return st
	case n.log == nil && n.paused:
		return nodeState{Node: "paused"}
	case n.log == nil:
		return nodeState{Node: "up"}
	}
	o := n.log.Offsets()
	st := nodeState{Node: "up", LogStart: o.LogStart, LogEnd: o.LogEnd, Epochs: n.epochFile(s), Segments: n.segments()}
	hw := n.p.Status().HighWatermark
	require.Equal(n.t, hw, o.HighWatermark, "node %d: the log's and the replica's high watermark", n.id)
	if st.HighWatermark = &hw; n.paused {
		st.Node, st.HighWatermark = "paused", nil
	}
	return st
}

func (n *node) segments() (list [][2]int64) {
	for _, i := range n.log.SegmentInfos() {
		list = append(list, [2]int64{i.Base, i.Bytes})
	}
	return list
}

// epochFile is the lines of leader-epoch-checkpoint.
func (n *node) epochFile(s *story) [][2]int64 {
	list := [][2]int64{}
	raw, err := vfs.ReadFile(n.disk, path.Join(s.tp().String(), "leader-epoch-checkpoint"), 1<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return list
	}
	require.NoError(n.t, err)
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	for _, l := range lines[2:] {
		var e [2]int64
		_, err := fmt.Sscan(l, &e[0], &e[1])
		require.NoError(n.t, err)
		list = append(list, e)
	}
	return list
}

// checkpoint is the partition's offset in a file of the root; -1 if there is none.
func (n *node) checkpoint(s *story, name string) int64 {
	raw, err := vfs.ReadFile(n.disk, name, 1<<20)
	require.NoError(n.t, err)
	for _, l := range strings.Split(string(raw), "\n")[2:] {
		var topic string
		var partition, offset int64
		if k, _ := fmt.Sscan(l, &topic, &partition, &offset); k == 3 && topic == s.Topic {
			return offset
		}
	}
	return -1
}

// requireSameCheckpoints compares the files of the root, but for the marker, which names the node's life.
func (n *node) requireSameCheckpoints(folder string) {
	for _, name := range []string{"recovery-point-offset-checkpoint", "replication-offset-checkpoint", "log-start-offset-checkpoint"} {
		want, err := os.ReadFile(filepath.Join(folder, name))
		require.NoError(n.t, err)
		got, err := vfs.ReadFile(n.disk, name, 1<<20)
		require.NoError(n.t, err)
		require.Equal(n.t, string(want), string(got), "node %d: %s of %s", n.id, name, folder)
	}
}

// logBytes is all .log files of a partition folder, one behind the other.
func logBytes(t *testing.T, disk vfs.FS, s *story) (all []byte) {
	entries, err := disk.ReadDir(s.tp().String())
	require.NoError(t, err)
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".log") {
			raw, err := vfs.ReadFile(disk, path.Join(s.tp().String(), e.Name()), 1<<20)
			require.NoError(t, err)
			all = append(all, raw...)
		}
	}
	return all
}

// requireSameLog compares a node's log with a captured one, byte by byte. Only where one segment ends and the next one begins
// is each node's own affair.
func (n *node) requireSameLog(s *story, folder string) {
	require.Equal(n.t, logBytes(n.t, diskOf(n.t, folder), s), logBytes(n.t, n.disk, s), "node %d: the bytes of the log in %s", n.id, folder)
}

func (n *node) requireSameFile(s *story, folder, name string) {
	want, err := os.ReadFile(filepath.Join(folder, s.tp().String(), name))
	require.NoError(n.t, err)
	got, err := vfs.ReadFile(n.disk, path.Join(s.tp().String(), name), 1<<20)
	require.NoError(n.t, err)
	require.Equal(n.t, string(want), string(got), "node %d: %s of %s", n.id, name, folder)
}
