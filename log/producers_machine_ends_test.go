package log

import (
	"errors"
	"io/fs"
	"os"
	"path"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/partlog/partlog/internal/producerstate"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// judgeEnd is what a leader answers to a marker.
func (x *writers) judgeEnd(id int64, epoch int16, coordinator int32, version int) error {
	p := x.known.producers[id]
	switch {
	case p == nil:
	case epoch < p.epoch, version >= 2 && epoch == p.epoch && p.txn >= 0, coordinator < p.coordinator:
		return ErrFenced
	}
	return nil
}

func (x *writers) coordinate(id int64, epoch int16, commit bool, coordinator int32, version int) {
	refused := x.judgeEnd(id, epoch, coordinator, version)
	res, err := x.EndTxn(ctx, record.Producer{ID: id, Epoch: epoch}, commit, EndTxnOptions{CoordinatorEpoch: coordinator, TransactionVersion: version})
	if refused != nil {
		require.ErrorIs(x.t, err, refused, "%d %d %d %d after %+v", id, epoch, coordinator, version, x.known.producers[id])
		require.Equal(x.t, notAppended, res)
		return
	}
	require.NoError(x.t, err, "%d %d %d %d after %+v", id, epoch, coordinator, version, x.known.producers[id])
	require.Equal(x.t, x.end, res.Base)
	x.noteMarker(res.Base, id, epoch, commit, coordinator)
}

// endTxn is any coordinator, also one that was replaced or knows another epoch.
func (x *writers) endTxn(t *rapid.T) {
	id := anID(t)
	epoch, coordinator := int16(0), int32(0)
	if p := x.known.producers[id]; p != nil {
		epoch, coordinator = p.epoch, p.coordinator
	}
	epoch += rapid.SampledFrom([]int16{0, 0, 0, 1, 1, -1}).Draw(t, "epochs")
	coordinator += rapid.SampledFrom([]int32{0, 0, 0, 1, -1}).Draw(t, "coordinators")
	x.coordinate(id, max(0, epoch), rapid.Bool().Draw(t, "commit"), max(0, coordinator), rapid.IntRange(0, 2).Draw(t, "version"))
}

// endWell ends an open transaction as its coordinator would.
func (x *writers) endWell(t *rapid.T) {
	version := rapid.IntRange(0, 2).Draw(t, "version")
	for _, e := range x.known.entries() {
		if e.TxnFirstOffset >= 0 {
			if version == 2 {
				e.Epoch++
			}
			x.coordinate(e.ProducerID, e.Epoch, rapid.Bool().Draw(t, "commit"), max(0, e.CoordinatorEpoch), version)
			return
		}
	}
}

// endOpen aborts a transaction that is listed as open, or was.
func (x *writers) endOpen(t *rapid.T) {
	if len(x.listed) == 0 || rapid.Bool().Draw(t, "list anew") {
		x.listed = x.OpenTransactions()
	}
	if len(x.listed) == 0 {
		return
	}
	o := rapid.SampledFrom(x.listed).Draw(t, "transaction")
	p := x.known.producers[o.ProducerID]
	res, err := x.AbortTransaction(ctx, o)
	if p == nil || p.txn != o.FirstOffset {
		require.ErrorIs(x.t, err, ErrTxnState)
		return
	}
	require.NoError(x.t, err)
	x.noteMarker(res.Base, p.id, p.epoch, false, max(0, p.coordinator))
}

func (x *writers) handle(t *rapid.T) { x.newHandle(t, anID(t)) }

func (x *writers) newHandle(t *rapid.T, id int64) {
	epoch := int16(0)
	if p := x.known.producers[id]; p != nil {
		epoch = p.epoch
	}
	epoch = max(0, epoch+rapid.SampledFrom([]int16{0, 0, 1, -1}).Draw(t, "epochs"))
	x.recent = &handle{p: x.Producer(id, epoch), id: id, epoch: epoch}
	x.handles[id] = x.recent
}

func (x *writers) someHandle(t *rapid.T) *handle {
	if x.recent == nil || rapid.IntRange(0, 3).Draw(t, "another") == 0 {
		id := anID(t)
		if x.handles[id] == nil {
			x.newHandle(t, id)
		}
		x.recent = x.handles[id]
	}
	return x.recent
}

func (x *writers) handleSends(t *rapid.T) {
	h := x.someHandle(t)
	s := sending{record.Producer{ID: h.id, Epoch: h.epoch, Transactional: h.begun}, rapid.IntRange(1, 3).Draw(t, "records")}
	if p := x.known.producers[h.id]; p != nil && p.epoch == h.epoch && len(p.batches) > 0 {
		s.BaseSequence = after(p.batches[len(p.batches)-1].ends, 1)
	}
	repeats, refused := x.judge(s, AppendOptions{})
	if refused == nil && x.lostTxn(h) || x.foreignTxn(h) {
		refused = ErrTxnState
	}
	base, err := h.p.Append(ctx, x.values(s.n)...)
	if x.unsure(s, err) {
		return
	}
	if refused != nil {
		require.ErrorIs(x.t, err, refused)
		if h.begun && (refused == ErrTxnState || refused == ErrFenced) {
			h.refused = refused
		}
		return
	}
	require.NoError(x.t, err, "%+v after %+v", s, x.known.producers[s.ID])
	if repeats != nil { // only behind a history that no leader wrote
		require.Equal(x.t, repeats.base, base)
		return
	}
	x.noteSending(base, s)
	x.keep(s)
}

// lostTxn says that the transaction of a handle was ended by others, or cut off.
func (x *writers) lostTxn(h *handle) bool {
	p := x.known.producers[h.id]
	return h.begun && h.p.first >= 0 && (p == nil || p.txn != h.p.first)
}

// foreignTxn says that a transaction is open which a handle that has begun one would join with its first record.
func (x *writers) foreignTxn(h *handle) bool {
	p := x.known.producers[h.id]
	return h.begun && h.p.first < 0 && p != nil && p.txn >= 0 && p.epoch <= h.epoch
}

func (x *writers) handleBegins(t *rapid.T) {
	h := x.someHandle(t)
	err := h.p.Begin()
	if p := x.known.producers[h.id]; h.begun || p != nil && p.txn >= 0 {
		require.ErrorIs(x.t, err, ErrTxnState)
		return
	}
	require.NoError(x.t, err)
	h.begun, h.refused = true, nil
}

func (x *writers) handleEnds(t *rapid.T) {
	h, commit := x.someHandle(t), rapid.Bool().Draw(t, "commit")
	lost, empty := commit && x.lostTxn(h), commit && h.begun && h.p.first < 0
	var err error
	if commit {
		err = h.p.Commit(ctx)
	} else {
		err = h.p.Abort(ctx)
	}
	if commit && !h.begun {
		require.ErrorIs(x.t, err, ErrTxnState)
		return
	}
	if commit && h.refused != nil {
		require.ErrorIs(x.t, err, h.refused)
		return
	}
	p := x.known.producers[h.id]
	if empty || !lost && (p == nil || p.txn < 0) {
		require.NoError(x.t, err)
		h.begun = false
		return
	}
	coordinator := int32(0)
	if p != nil {
		coordinator = max(0, p.coordinator)
	}
	if refused := x.judgeEnd(h.id, h.epoch, coordinator, 0); refused != nil {
		require.ErrorIs(x.t, err, refused)
		return
	}
	if lost {
		require.ErrorIs(x.t, err, ErrTxnState)
		return
	}
	require.NoError(x.t, err)
	h.begun = false
	x.noteMarker(x.end, h.id, h.epoch, commit, coordinator)
}

// boot opens the log on a disk.
func (x *writers) boot(disk *vfstest.Crash) {
	disk.Forget()
	x.disk, x.fs = disk, disk
	x.open()
	o := x.Offsets()
	x.sure = o.LogEnd
	x.repl = replication{highest: o.HighWatermark, reloaded: o.LogEnd}
	x.handles, x.recent, x.asked, x.listed = map[int64]*handle{}, nil, map[int64]*asked{}, nil
}

// reopen stops cleanly and starts again.
func (x *writers) reopen(t *rapid.T) {
	hw := x.Offsets().HighWatermark
	require.NoError(x.t, x.dir.Close())
	x.floor = x.end
	damaged := x.damage(t, false)
	x.boot(x.disk)
	if x.cfg.Visibility == External {
		require.Equal(x.t, hw, x.Offsets().HighWatermark)
	} else {
		require.Equal(x.t, x.end, x.Offsets().HighWatermark)
	}
	require.True(x.t, x.Recovery().Clean)
	if !damaged {
		require.Empty(x.t, x.Recovery().Findings)
	}
}

// crash kills the process, or cuts the power: then what was not synced may be there, or not.
func (x *writers) crash(t *rapid.T) {
	power := rapid.Bool().Draw(t, "power loss")
	if power {
		x.disk = x.disk.PowerLoss(rapid.Uint64().Draw(t, "seed"))
	} else {
		x.disk = x.disk.Kill()
	}
	x.fs = x.disk
	x.damage(t, true)
	x.boot(x.disk)
	if power {
		x.lose()
	}
	x.floor = x.end
}

// lose shortens the list by what a power loss took, which is never in the middle and never below the floor.
func (x *writers) lose() {
	o := x.Offsets()
	found, err := putsOf(x.Log)
	require.NoError(x.t, err)
	if len(found) == 0 && o.LogEnd == x.start && x.floor <= x.start {
		x.puts, x.end = nil, x.start // all that was left lay below the log start: it starts over there
		return
	}
	lost := len(x.held()) - len(found)
	require.GreaterOrEqual(x.t, lost, 0)
	x.puts = x.puts[:len(x.puts)-lost]
	require.GreaterOrEqual(x.t, o.LogEnd, x.floor, "durable records are lost")
	require.LessOrEqual(x.t, o.LogEnd, x.end)
	x.end = o.LogEnd
}

// damage takes derived files away, or garbles them, between a stop and a start. All of it must come back from the batches.
func (x *writers) damage(t *rapid.T, crashed bool) (any bool) {
	entries, err := x.fs.ReadDir("t-0")
	require.NoError(x.t, err)
	how := func(what string) string {
		any = true
		return rapid.SampledFrom([]string{"gone", "flipped", "cut", "empty", "long"}).Draw(t, what)
	}
	switch rapid.IntRange(0, 9).Draw(t, "damage") {
	case 0, 1: // snapshots: all, or one in two
		some := rapid.Bool().Draw(t, "some")
		for _, e := range entries {
			if offset, ok := producerstate.Offset(e.Name()); ok && !(some && rapid.Bool().Draw(t, "this")) {
				x.spoiled[offset] = true
				x.spoil("t-0/"+e.Name(), how("snapshot"))
			}
		}
	case 2:
		x.spoil("t-0/leader-epoch-checkpoint", how("epochs"))
	case 3: // the indexes of aborted transactions: a loss shows only where the segment is read again
		if crashed {
			x.spoil("recovery-point-offset-checkpoint", "gone")
			x.spoil(".partlog-durable", "gone")
		}
		for _, seg := range segmentBases(entries) {
			name := "t-0/" + segment.FileName(seg, ".txnindex")
			if crashed {
				x.spoil(name, how("index"))
			} else if exists(x.fs, name) {
				any = true
				x.spoil(name, "version")
			}
		}
	case 4:
		if crashed {
			x.spoil("recovery-point-offset-checkpoint", how("recovery point"))
		}
	}
	return any
}

func segmentBases(entries []fs.DirEntry) []int64 { return segment.Bases(entries) }

// spoil changes a file if it is there, for good: a power loss does not bring the old one back.
func (x *writers) spoil(name, how string) {
	b, err := vfs.ReadFile(x.fs, name, 1<<20)
	if err != nil {
		require.ErrorIs(x.t, err, fs.ErrNotExist)
		return
	}
	if how == "gone" {
		require.NoError(x.t, x.fs.Remove(name))
		require.NoError(x.t, x.fs.SyncDir(path.Dir(name)))
		return
	}
	if len(b) == 0 {
		return
	}
	f, err := x.fs.OpenFile(name, os.O_RDWR, 0)
	require.NoError(x.t, err)
	switch how {
	case "version":
		_, err = f.WriteAt([]byte{9}, 0)
	case "flipped":
		_, err = f.WriteAt([]byte{b[len(b)/2] ^ 0x55}, int64(len(b)/2))
	case "cut":
		err = f.Truncate(int64(len(b) / 2))
	case "empty":
		err = f.Truncate(0)
	case "long":
		_, err = f.WriteAt([]byte("xyz"), int64(len(b)))
	}
	require.NoError(x.t, errors.Join(err, f.Sync(), f.Close()))
}
