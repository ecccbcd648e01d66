package producerstate

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
)

const pid = int64(1)

// spec is a data batch of a producer.
type spec struct {
	id    int64
	epoch int16
	seq   int32
	at    int64 // base offset
	n     int   // records; 0 = 1
	txn   bool
	time  int64 // of all records; 0 = 1000
}

func (d spec) bytes(t require.TestingT) []byte {
	n := max(d.n, 1)
	ms := d.time
	if ms == 0 {
		ms = 1000
	}
	var producer *record.Producer
	if d.id >= 0 {
		producer = &record.Producer{ID: d.id, Epoch: d.epoch, BaseSequence: max(d.seq, 0), Transactional: d.txn}
	}
	b := record.NewBuilder(record.BuilderOptions{Producer: producer})
	for range n {
		require.NoError(t, b.Add(record.Record{Timestamp: ms}))
	}
	out, err := b.Finish()
	require.NoError(t, err)
	out.SetBaseOffset(d.at)
	raw := slices.Clone(out.Bytes())
	if d.seq < 0 { // a coordinator's own batch has no sequence
		copy(raw[53:57], []byte{0xff, 0xff, 0xff, 0xff})
	}
	return raw
}

// end is a transaction marker.
type end struct {
	id          int64
	epoch       int16
	coordinator int32
	at          int64
	commit      bool
	time        int64 // 0 = 1000
}

func (m end) bytes() []byte {
	ms := m.time
	if ms == 0 {
		ms = 1000
	}
	b := record.Marker(m.commit, record.Producer{ID: m.id, Epoch: m.epoch}, m.coordinator, time.UnixMilli(ms))
	b.SetBaseOffset(m.at)
	return b.Bytes()
}

func view(t require.TestingT, raw []byte) record.Batch {
	b, err := record.View(raw)
	require.NoError(t, err)
	return b
}

// log is a State under test, with short calls.
type log struct {
	*State
	t require.TestingT
}

func newLog(t require.TestingT) log { return log{New(Config{}, 0), t} }

func (l log) try(o Options, raw []byte) (*Pending, error) {
	p, err := l.Check(raw, o)
	if err == nil {
		l.Commit(p)
	}
	return p, err
}

// client appends a data batch that must be accepted.
func (l log) client(d spec) *Pending {
	p, err := l.try(Options{Origin: record.Client}, d.bytes(l.t))
	require.NoError(l.t, err)
	_, repeats := p.Duplicate()
	require.False(l.t, repeats, "taken for a duplicate")
	return p
}

func (l log) refused(d spec, target error) {
	_, err := l.try(Options{Origin: record.Client}, d.bytes(l.t))
	require.ErrorIs(l.t, err, target)
}

func (l log) repeats(d spec) Duplicate {
	end := l.End()
	p, err := l.try(Options{Origin: record.Client}, d.bytes(l.t))
	require.NoError(l.t, err)
	dup, ok := p.Duplicate()
	require.True(l.t, ok, "not taken for a duplicate")
	require.Equal(l.t, end, l.End(), "a duplicate moves nothing")
	return dup
}

func (l log) marker(m end) *Pending {
	p, err := l.try(Options{Origin: record.Coordinator}, m.bytes())
	require.NoError(l.t, err)
	return p
}

func (l log) markerRefused(m end, target error) {
	_, err := l.try(Options{Origin: record.Coordinator}, m.bytes())
	require.ErrorIs(l.t, err, target)
}

func (l log) entry(id int64) Entry {
	e, ok := l.Producer(id)
	require.True(l.t, ok, "producer %d is not known", id)
	return e
}

func (l log) unstable(logStart int64) int64 {
	first, ok := l.Unstable().First(logStart)
	if !ok {
		return -1
	}
	return first
}

func folder(t testing.TB) vfs.FS {
	fsys := vfs.Mem()
	require.NoError(t, fsys.MkdirAll("t-0", 0o755))
	return fsys
}

func snapshots(t require.TestingT, fsys vfs.FS) []int64 {
	all, err := List(fsys, "t-0")
	require.NoError(t, err)
	return all
}

func (l log) take(fsys vfs.FS) {
	written, err := l.Take(fsys, "t-0")
	require.NoError(l.t, err)
	require.True(l.t, written)
}

func (l log) reload(fsys vfs.FS, logStart, end int64) Reloaded {
	res, err := l.Reload(Reload{FS: fsys, Folder: "t-0", LogStart: logStart, End: end, Now: 2000})
	require.NoError(l.t, err)
	return res
}
