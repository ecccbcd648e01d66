package log

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
)

// Invariant C7. Files of a root are cut, garbled, emptied, copied, exchanged, given names that are nearly or not at all Kafka's, and
// folders take their places. Whatever comes of it: nothing panics or hangs, an open works or says why not, the marks are in order,
// readers go forward, and what is appended is where the append says.
func FuzzRootsPulledToPieces(f *testing.F) {
	whole := lived(f)
	for seed := range uint64(120) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		disk := vfs.Overlay(whole)
		p := &puller{fs: disk, r: rand.New(rand.NewPCG(seed, 0))}
		p.pull(t)
		defer func() {
			if t.Failed() {
				t.Log(strings.Join(p.did, "\n"))
			}
		}()
		for range Verify(ctx, disk, VerifyOptions{}) { //nolint:revive // findings and unreadable files are as they are
		}
		for _, folder := range []string{"t-0", "t-1"} {
			r, err := OpenReader(folder, ReaderOptions{FS: disk})
			if err != nil {
				continue
			}
			forward(t, r.Records(ctx, r.Offsets().LogStart, WithIsolation(ReadCommitted)))
			_, _ = r.OffsetForTime(ctx, time.UnixMilli(epoch2023))
			require.NoError(t, r.Close())
		}
		for range 2 {
			d, err := OpenDir("root", DirConfig{FS: disk, Manual: true, Defaults: Config{SegmentBytes: 900, Cleanup: Compact | Delete, RetentionTime: Forever}})
			if err != nil {
				return
			}
			_ = d.OpenAll(ctx, OpenAllOptions{})
			for _, l := range d.Logs() {
				useAll(t, l)
			}
			_ = d.Close()
		}
	})
}

// useAll does to a log what may be done to any.
func useAll(t *testing.T, l *Log) {
	o := l.Offsets()
	require.True(t, o.LogStart <= o.LastStable && o.LastStable <= o.HighWatermark && o.HighWatermark <= o.LogEnd, "%+v", o)
	forward(t, l.Records(ctx, o.LogStart))
	r := record.Record{Key: []byte("k"), Value: []byte("v")}
	if base, err := l.Append(ctx, r); err == nil {
		require.Equal(t, o.LogEnd, base)
		for r, err := range l.Records(ctx, base, WithIsolation(LogEnd)) {
			require.True(t, err != nil || r.Offset == base, "%d for %d", r.Offset, base)
			break
		}
	}
	_, _ = l.Compact(ctx, CompactOptions{Force: true})
	for range l.Verify(ctx) { //nolint:revive // as above
	}
	_, _ = l.Retain(ctx)
	_ = l.DeleteRecords(ctx, (o.LogStart+o.HighWatermark)/2)
	_, _ = l.Truncate(ctx, (o.LogStart+o.LogEnd)/2+3)
	_, _ = l.Append(ctx, r)
	_, _ = l.AbortedTxns()
	l.Producers()
	l.OpenTransactions()
}

func forward(t *testing.T, records func(func(record.Record, error) bool)) {
	last, n := int64(-1), 0
	for r, err := range records {
		if err != nil {
			continue
		}
		require.Greater(t, r.Offset, last)
		last = r.Offset
		n++
		require.Less(t, n, 10_000, "endless")
	}
}

// lived is a root with two partitions that have seen everything.
func lived(t testing.TB) vfs.FS {
	disk := vfs.Mem()
	d, err := OpenDir("root", DirConfig{FS: disk, Manual: true, ClusterID: "c", NodeID: 1, Now: func() time.Time { return time.UnixMilli(epoch2023) }})
	require.NoError(t, err)
	for partition := range int32(2) {
		l, err := d.Open(ctx, TopicPartition{"t", partition}, Config{SegmentBytes: 900, IndexIntervalBytes: EveryBatch, Cleanup: Compact | Delete, RetentionTime: Forever,
			Compaction: CompactionConfig{MinDirtyRatio: AnyDirt}})
		require.NoError(t, err)
		p := l.Producer(7, 0)
		for i := range int32(40) {
			if i%20 == 0 {
				require.NoError(t, l.AssignEpoch(i/10+1))
			}
			_, err := l.Append(ctx, record.Record{Key: fmt.Append(nil, i%5), Value: fmt.Append(nil, "value", i)})
			require.NoError(t, err)
			if i%7 != 0 {
				continue
			}
			require.NoError(t, p.Begin())
			_, err = p.Append(ctx, record.Record{Key: fmt.Append(nil, i%3), Value: []byte("transaction")})
			require.NoError(t, err)
			switch {
			case i == 35 && partition == 1: // stays open
			case i%2 == 0:
				require.NoError(t, p.Commit(ctx))
			default:
				require.NoError(t, p.Abort(ctx))
			}
		}
		if partition == 1 {
			_, err = l.Compact(ctx, CompactOptions{})
			require.NoError(t, err)
		}
	}
	require.NoError(t, d.Close())
	return disk
}

// puller pulls a root to pieces.
type puller struct {
	fs  vfs.FS
	r   *rand.Rand
	did []string
}

func (p *puller) pull(t *testing.T) {
	for range 1 + p.r.IntN(4) {
		name := p.anyFile(t)
		b, err := vfs.ReadFile(p.fs, name, 1<<20)
		require.NoError(t, err)
		p.did = append(p.did, name)
		switch p.r.IntN(9) {
		case 0:
			p.write(t, name, b[:p.r.IntN(len(b)+1)])
		case 1:
			if len(b) > 0 {
				b[p.r.IntN(len(b))] ^= 1 << p.r.IntN(8)
			}
			p.write(t, name, b)
		case 2:
			p.write(t, name, make([]byte, len(b)))
		case 3:
			require.NoError(t, p.fs.Remove(name))
		case 4:
			p.write(t, p.oddName(name), b)
		case 5:
			_ = p.fs.Rename(name, p.oddName(name))
		case 6:
			p.write(t, name, append(b, slices.Repeat([]byte{byte(p.r.Uint32())}, p.r.IntN(300))...))
		case 7:
			_ = p.fs.MkdirAll(p.oddName(name), 0o755)
		default:
			other, err := vfs.ReadFile(p.fs, p.anyFile(t), 1<<20)
			require.NoError(t, err)
			p.write(t, name, other)
		}
	}
	if p.r.IntN(2) == 0 {
		_ = p.fs.Remove(".kafka_cleanshutdown")
	}
}

func (p *puller) anyFile(t *testing.T) string {
	var files []string
	for _, dir := range []string{".", "t-0", "t-1"} {
		entries, err := p.fs.ReadDir(dir)
		require.NoError(t, err)
		for _, e := range entries {
			if !e.IsDir() && e.Name() != ".lock" {
				files = append(files, path.Join(dir, e.Name()))
			}
		}
	}
	return files[p.r.IntN(len(files))]
}

func (p *puller) oddName(name string) string {
	dir, base := path.Split(name)
	stem, kind, _ := strings.Cut(base, ".")
	odd := fmt.Sprintf("%020d.%s", p.r.IntN(120), kind)
	switch p.r.IntN(8) {
	case 0, 1:
	case 2:
		odd = fmt.Sprintf("%d.%s", p.r.IntN(120), []string{kind, "log"}[p.r.IntN(2)])
	case 3:
		odd = base + []string{".swap", ".cleaned", ".deleted", ".tmp", ".1.deleted", ".cut"}[p.r.IntN(6)]
	case 4:
		odd = "x." + []string{kind, "log"}[p.r.IntN(2)]
	case 5:
		odd = []string{"99999999999999999999.", "09223372036854775807.", "."}[p.r.IntN(3)] + kind
	case 6:
		return path.Join("t-1", base)
	default:
		odd = stem + []string{".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".log.swap", ".log.cleaned"}[p.r.IntN(7)]
	}
	p.did = append(p.did, "-> "+odd)
	return path.Join(dir, odd)
}

func (p *puller) write(t *testing.T, name string, b []byte) {
	f, err := p.fs.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return // a folder has that name
	}
	_, err = f.WriteAt(b, 0)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}
