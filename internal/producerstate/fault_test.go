package producerstate

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// Each call on the disk fails once: a reload either comes to the right state (from an older snapshot, if need be) or is
// an error; and the next try works.
func TestAnyFailingCallOfAReloadIsAnErrorOrAnOlderSnapshot(t *testing.T) {
	eio := errors.New("eio")
	for nth, hit := 1, true; hit; nth++ {
		mem := folder(t)
		taken(t, mem, 6, 1, 2, 3, 4, 6)
		garble(t, mem, 4, func([]byte) []byte { return nil })
		disk := vfstest.NewFault(mem)
		hits, _ := disk.Add(vfstest.Rule{Err: eio, Nth: nth})
		l := newLog(t)
		again := func() Reloaded {
			res, err := l.Reload(Reload{FS: disk, Folder: "t-0", LogStart: 2, End: 5, Now: 2000})
			if err != nil {
				require.ErrorIs(t, err, eio)
				disk.Clear()
				res, err = l.Reload(Reload{FS: disk, Folder: "t-0", LogStart: 2, End: 5, Now: 2000})
				require.NoError(t, err)
			}
			return res
		}
		res := again()
		hit = hits() > 0
		for at := res.From; at < 5; at++ {
			l.Replay(view(t, spec{id: pid, seq: int32(at), at: at}.bytes(t)))
		}
		l.SetEnd(5)
		require.Equal(t, int32(4), l.entry(pid).LastSequence)
		require.False(t, l.reloading)
		for _, offset := range snapshots(t, mem) {
			require.True(t, offset >= 2 && offset <= 5, "snapshot %d is left", offset)
		}
	}
}

func TestAnyFailingCallOfASnapshotLeavesItDue(t *testing.T) {
	eio := errors.New("eio")
	// Scenario: U104
	for _, rule := range []vfstest.Rule{{Err: eio}, {Err: eio, Short: true, Keep: 5}, {Err: eio, Done: true}} {
		for nth, hit := 1, true; hit; nth++ {
			mem := folder(t)
			l := taken(t, mem, 2, 1)
			rule.Nth = nth
			disk := vfstest.NewFault(mem)
			hits, _ := disk.Add(rule)
			written, err := l.Take(disk, "t-0")
			if hit = hits() > 0; hit && err != nil {
				require.ErrorIs(t, err, eio)
				require.False(t, written)
				require.True(t, l.Due())
				disk.Clear()
				l.take(disk)
			}
			require.False(t, l.Due())
			require.Equal(t, []int64{1, 2}, snapshots(t, mem))
		}
	}
}

// Whatever the disk keeps of a truncation's removals, what is left is whole, and once the reload is over nothing comes
// back.
func TestACrashWhileSnapshotsAreRemovedLeavesWholeOnes(t *testing.T) {
	c := vfstest.NewCrash(vfstest.CrashOptions{})
	require.NoError(t, c.MkdirAll("t-0", 0o755))
	l := newLog(t)
	for at := range int64(3) {
		l.client(spec{id: pid, seq: int32(at), at: at})
		l.take(c)
	}
	require.NoError(t, c.SyncDir("."))
	c.Mark()
	l.reload(c, 0, 1)
	c.Note("reloaded")
	disks := 0
	for disk := range c.Disks(vfstest.DiskOptions{}) {
		disks++
		left := snapshots(t, disk.FS())
		if len(disk.Notes()) > 0 {
			require.Equal(t, []int64{1}, left)
		}
		require.Contains(t, left, int64(1))
		for _, offset := range left {
			_, err := ReadSnapshot(disk.FS(), "t-0/"+FileName(offset))
			require.NoError(t, err)
		}
	}
	require.Greater(t, disks, 1)
}

func FuzzCheck(f *testing.F) {
	f.Add([]byte{}, uint8(0))
	var set []byte
	for _, raw := range [][]byte{spec{id: 1, seq: 0, at: 0, n: 3, txn: true}.bytes(f), spec{id: 2, seq: 7, at: 3}.bytes(f), end{id: 1, epoch: 1, at: 4}.bytes()} {
		f.Add(raw, uint8(1))
		set = append(set, raw...)
	}
	for origin := range uint8(8) {
		f.Add(set, origin)
	}
	f.Fuzz(func(t *testing.T, raw []byte, how uint8) {
		o := Options{Origin: record.Origin(how & 3), TransactionVersion: int(how >> 2 & 3), Verify: how&16 != 0}
		s := New(Config{}, 0)
		for range 2 {
			before := s.Producers()
			p, err := s.Check(raw, o)
			require.Equal(t, before, s.Producers())
			if err != nil {
				require.Nil(t, p)
				continue
			}
			s.Commit(p)
		}
		for rest := raw; ; {
			b, next, err := record.Next(rest)
			if err != nil {
				break
			}
			s.Replay(b)
			rest = next
		}
		s.Open()
		s.Unstable().LastStable(s.End(), 0)
		snap, err := s.Snapshot()
		require.NoError(t, err)
		entries, err := Decode("s", snap.content)
		require.NoError(t, err)
		require.Equal(t, append([]Entry{}, s.Producers()...), entries)
		s.Expire(1 << 60)
	})
}

func FuzzReload(f *testing.F) {
	f.Add(Append(nil, nil)[headerSize:], int64(5))
	f.Add(Append(nil, []Entry{one, {ProducerID: 5000, TxnFirstOffset: 3, LastOffset: -1}})[headerSize:], int64(200))
	f.Fuzz(func(t *testing.T, body []byte, end int64) {
		content := appendHeader(nil, len(body)/entrySize)
		content = append(content, body...)
		seal(content)
		fsys := vfs.Mem()
		require.NoError(t, fsys.MkdirAll("t-0", 0o755))
		end = max(end, 1)
		require.NoError(t, Snapshot{Offset: end, content: content}.Write(fsys, "t-0"))
		s := New(Config{ExpireAfter: -1}, 0)
		res, err := s.Reload(Reload{FS: fsys, Folder: "t-0", End: end})
		require.NoError(t, err)
		if res.Snapshot < 0 {
			require.Zero(t, s.Len())
			require.Len(t, res.Damaged, 1)
			return
		}
		require.Equal(t, len(body)/entrySize, s.Len())
		for _, o := range s.Open() {
			require.Less(t, o.FirstOffset, end)
		}
		_, open := s.Unstable().First(0)
		require.Equal(t, len(s.Open()) > 0, open)
	})
}

func TestASnapshotThatCannotBeReadNowIsPassedOverButKept(t *testing.T) {
	eio := errors.New("eio")
	mem := folder(t)
	taken(t, mem, 4, 2, 4)
	disk := vfstest.NewFault(mem, vfstest.Rule{Name: "t-0/" + FileName(4), Err: eio, Times: vfstest.Always})
	l := newLog(t)
	res, err := l.Reload(Reload{FS: disk, Folder: "t-0", End: 4, Now: 2000})
	require.NoError(t, err)
	require.Equal(t, int64(2), res.From)
	require.ErrorIs(t, res.Damaged[0], eio)
	require.Empty(t, res.Removed)
	require.Equal(t, []int64{2, 4}, snapshots(t, mem))
}
