package log

import (
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/golden"
	"github.com/partlog/partlog/record"
)

// garbler changes a copy of a golden folder.
type garbler struct {
	t    *testing.T
	root string
	dir  string // partition folder
}

func newGarbler(t *testing.T, name string) *garbler {
	t.Helper()
	root := golden.Copy(t, name)
	dir, err := golden.PartitionDir(root)
	if err != nil {
		t.Fatal(err)
	}
	return &garbler{t: t, root: root, dir: dir}
}

func (g *garbler) must(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

// path: names with a slash in front are below the root, others below the partition folder.
func (g *garbler) path(name string) string {
	if below, ok := strings.CutPrefix(name, "/"); ok {
		return filepath.Join(g.root, below)
	}
	return filepath.Join(g.dir, name)
}

func (g *garbler) change(name string, f func(b []byte) []byte) {
	g.t.Helper()
	b, err := os.ReadFile(g.path(name))
	g.must(err)
	g.must(os.WriteFile(g.path(name), f(b), 0o644))
}

func (g *garbler) write(name, content string) {
	g.t.Helper()
	g.must(os.WriteFile(g.path(name), []byte(content), 0o644))
}

func (g *garbler) remove(name string) { g.t.Helper(); g.must(os.Remove(g.path(name))) }

func (g *garbler) copy(from, to string) {
	g.t.Helper()
	b, err := os.ReadFile(g.path(from))
	g.must(err)
	g.must(os.WriteFile(g.path(to), b, 0o644))
}

// batchAt is the position and size of the i-th batch of a .log.
func (g *garbler) batchAt(name string, i int) (pos, size int) {
	g.t.Helper()
	b, err := os.ReadFile(g.path(name))
	g.must(err)
	for rest := b; ; i-- {
		batch, after, err := record.Next(rest)
		g.must(err)
		if i == 0 {
			return len(b) - len(rest), batch.Size()
		}
		rest = after
	}
}

// restamp gives the i-th batch of a .log a right CRC after f changed it.
func (g *garbler) restamp(name string, i int, f func(batch []byte)) {
	g.t.Helper()
	pos, size := g.batchAt(name, i)
	g.change(name, func(b []byte) []byte {
		batch := b[pos : pos+size]
		f(batch)
		binary.BigEndian.PutUint32(batch[17:], crc32.Checksum(batch[21:], castagnoli))
		return b
	})
}

func flip(at int) func([]byte) []byte {
	return func(b []byte) []byte { b[at] ^= 0x40; return b }
}

func cut(n int) func([]byte) []byte { return func(b []byte) []byte { return b[:len(b)-n] } }

func half(unit int) func([]byte) []byte {
	return func(b []byte) []byte { return b[:len(b)/unit/2*unit] }
}

func zeroed(b []byte) []byte { return make([]byte, len(b)) }

func grown(tail string) func([]byte) []byte {
	return func(b []byte) []byte { return append(b, tail...) }
}

const (
	log0, index0, time0       = "00000000000000000000.log", "00000000000000000000.index", "00000000000000000000.timeindex"
	log276, index276, time276 = "00000000000000000276.log", "00000000000000000276.index", "00000000000000000276.timeindex"
)

// verifyDamage garbles a sound folder in one way each. The finding must be of the kind and speak of the file.
var verifyDamage = []struct {
	name   string
	folder string
	garble func(g *garbler)
	kind   string
	file   string // suffix of Finding.File

	interval int64 // index.interval.bytes, where it must be known
}{
	{"a bit of a payload flips", "codec-mixed", func(g *garbler) { p, n := g.batchAt(log0, 2); g.change(log0, flip(p+n-3)) }, FindingBatch, log0, 0},
	{"a length is zeroed in the middle", "codec-mixed", func(g *garbler) { p, _ := g.batchAt(log0, 2); g.change(log0, flip(p+10)) }, FindingBatch, log0, 0},
	{"a segment that is not the last is torn", "codec-mixed", func(g *garbler) { g.change(log0, cut(5)) }, FindingBatch, log0, 0},
	{"a segment that is not the last ends in garbage", "codec-mixed", func(g *garbler) { g.change(log0, grown("garbage behind the end")) }, FindingBatch, log0, 0},
	{"whole batches are gone from the end of a segment, but not from its index", "codec-mixed", func(g *garbler) {
		p, _ := g.batchAt(log0, 5)
		g.change(log0, func(b []byte) []byte { return b[:p] })
	}, FindingIndex, index0, 0},
	{"the last segment ends in garbage", "codec-mixed", func(g *garbler) { g.change(log276, grown(strings.Repeat("x", 99))) }, FindingTail, log276, 0},
	{"a few bytes behind a clean stop", "codec-mixed", func(g *garbler) { g.change(log276, grown("\x00")) }, FindingTail, log276, 0},
	{"zeros behind a clean stop", "codec-mixed", func(g *garbler) { g.change(log276, grown(strings.Repeat("\x00", 4096))) }, FindingTail, log276, 0},
	{"the first segment is empty but its index is not", "codec-mixed", func(g *garbler) { g.change(log0, func([]byte) []byte { return nil }) }, FindingIndex, index0, 0},
	{"a stale history follows", "codec-mixed", func(g *garbler) { g.copy(log0, "00000000000000000100.log") }, FindingOrder, "00000000000000000100.log", 0},
	{"an offset goes back", "codec-mixed", func(g *garbler) {
		p, _ := g.batchAt(log0, 3)
		g.change(log0, func(b []byte) []byte { binary.BigEndian.PutUint64(b[p:], 1); return b })
	}, FindingOrder, log0, 0},
	{"an offset too large for its segment", "codec-mixed", func(g *garbler) {
		g.change(log276, func(b []byte) []byte { binary.BigEndian.PutUint64(b, 1<<40); return b })
	}, FindingOrder, log276, 0},
	{"a leader epoch goes back", "epochs", func(g *garbler) {
		g.change("00000000000000000048.log", func(b []byte) []byte { binary.BigEndian.PutUint32(b[12:], 0); return b })
	}, FindingOrder, "00000000000000000048.log", 0},
	{"a record does not parse under a right CRC", "idempotent", func(g *garbler) {
		g.restamp(log0, 1, func(b []byte) { b[61] = 0x7e })
	}, FindingRecords, log0, 0},
	{"the count is wrong under a right CRC", "idempotent", func(g *garbler) {
		g.restamp(log0, 1, func(b []byte) { binary.BigEndian.PutUint32(b[57:], binary.BigEndian.Uint32(b[57:])-1) })
	}, FindingRecords, log0, 0},
	{"the largest timestamp is wrong under a right CRC", "idempotent", func(g *garbler) {
		g.restamp(log0, 1, func(b []byte) { b[42]++ })
	}, FindingRecords, log0, 0},
	{"compressed bytes are garbage under a right CRC", "codec-gzip", func(g *garbler) {
		g.restamp(log0, 1, func(b []byte) { clear(b[80:90]) })
	}, FindingRecords, log0, 0},
	{"the offset index is gone", "codec-mixed", func(g *garbler) { g.remove(index0) }, FindingIndex, index0, 0},
	{"the offset index is half", "codec-mixed", func(g *garbler) { g.change(index0, half(8)) }, FindingIndex, index0, 0},
	{"the offset index is empty", "codec-mixed", func(g *garbler) { g.change(index0, func([]byte) []byte { return nil }) }, FindingIndex, index0, 500},
	{"the offset index is odd", "codec-mixed", func(g *garbler) { g.change(index0, grown("abc")) }, FindingIndex, index0, 0},
	{"the offset index is zeroed", "codec-mixed", func(g *garbler) { g.change(index0, zeroed) }, FindingIndex, index0, 0},
	{"the offset index was not trimmed under a clean marker", "codec-mixed", func(g *garbler) { g.change(index276, grown(strings.Repeat("\x00", 800))) }, FindingIndex, index276, 0},
	{"zeros in the middle of the offset index", "codec-mixed", func(g *garbler) { g.change(index0, func(b []byte) []byte { clear(b[16:32]); return b }) }, FindingIndex, index0, 0},
	{"a position in the offset index is off", "codec-mixed", func(g *garbler) { g.change(index0, func(b []byte) []byte { b[15]++; return b }) }, FindingIndex, index0, 0},
	{"an offset in the offset index is off", "codec-mixed", func(g *garbler) { g.change(index0, func(b []byte) []byte { b[11]--; return b }) }, FindingIndex, index0, 0},
	{"the offset index points behind the log", "codec-mixed", func(g *garbler) { g.change(index0, grown("\x00\x00\x01\x10\x00\xff\x00\x00")) }, FindingIndex, index0, 0},
	{"the offset index is another segment's", "codec-mixed", func(g *garbler) { g.copy(index0, index276) }, FindingIndex, index276, 0},
	{"the time index is gone", "codec-mixed", func(g *garbler) { g.remove(time0) }, FindingTimeIndex, time0, 0},
	{"the time index is half", "codec-mixed", func(g *garbler) { g.change(time0, half(12)) }, FindingTimeIndex, time0, 0},
	{"the time index is empty", "codec-mixed", func(g *garbler) { g.change(time0, func([]byte) []byte { return nil }) }, FindingTimeIndex, time0, 0},
	{"the time index lacks its last entry", "codec-mixed", func(g *garbler) { g.change(time276, cut(12)) }, FindingTimeIndex, time276, 0},
	{"the time index is odd", "codec-mixed", func(g *garbler) { g.change(time0, grown("abc")) }, FindingTimeIndex, time0, 0},
	{"the time index is zeroed", "codec-mixed", func(g *garbler) { g.change(time0, zeroed) }, FindingTimeIndex, time0, 0},
	{"a timestamp in the time index is off", "codec-mixed", func(g *garbler) { g.change(time0, func(b []byte) []byte { b[7]++; return b }) }, FindingTimeIndex, time0, 0},
	{"an offset in the time index is off", "codec-mixed", func(g *garbler) { g.change(time0, func(b []byte) []byte { b[11]++; return b }) }, FindingTimeIndex, time0, 0},
	{"the transaction index has an unknown version", "txn-commit-abort", func(g *garbler) { g.change("00000000000000000000.txnindex", flip(0)) }, FindingTxnIndex, ".txnindex", 0},
	{"the transaction index has half an entry", "txn-commit-abort", func(g *garbler) { g.change("00000000000000000000.txnindex", cut(10)) }, FindingTxnIndex, "", 0},
	{"the transaction index lacks an entry", "txn-commit-abort", func(g *garbler) { g.change("00000000000000000000.txnindex", cut(34)) }, FindingTxnIndex, ".txnindex", 0},
	{"the transaction index is gone", "txn-commit-abort", func(g *garbler) { g.remove("00000000000000000000.txnindex") }, FindingTxnIndex, ".txnindex", 0},
	{"a snapshot's bit flips", "idempotent", func(g *garbler) { g.change("00000000000000000082.snapshot", flip(20)) }, FindingSnapshot, ".snapshot", 0},
	{"a snapshot is short", "idempotent", func(g *garbler) { g.change("00000000000000000122.snapshot", cut(5)) }, FindingSnapshot, ".snapshot", 0},
	{"a snapshot speaks of what the log does not have", "idempotent", func(g *garbler) { g.copy("00000000000000000122.snapshot", "00000000000000000999.snapshot") }, FindingSnapshot, "00000000000000000999.snapshot", 0},
	{"the epoch file is garbage", "epochs", func(g *garbler) { g.write("leader-epoch-checkpoint", "0\n1\nzero\n") }, FindingEpochs, "leader-epoch-checkpoint", 0},
	{"the epoch file has another count", "epochs", func(g *garbler) { g.write("leader-epoch-checkpoint", "0\n9\n0 0\n") }, FindingEpochs, "leader-epoch-checkpoint", 0},
	{"the epoch file is empty", "epochs", func(g *garbler) { g.write("leader-epoch-checkpoint", "") }, FindingEpochs, "leader-epoch-checkpoint", 0},
	{"the epoch file is gone", "epochs", func(g *garbler) { g.remove("leader-epoch-checkpoint") }, FindingEpochs, "leader-epoch-checkpoint", 0},
	{"the epoch file lacks an entry", "epochs", func(g *garbler) { g.write("leader-epoch-checkpoint", "0\n1\n0 0\n") }, FindingEpochs, "leader-epoch-checkpoint", 0},
	{"the epoch file goes back", "epochs", func(g *garbler) { g.write("leader-epoch-checkpoint", "0\n2\n3 0\n1 9\n") }, FindingEpochs, "leader-epoch-checkpoint", 0},
	{"the topic id is empty", "epochs", func(g *garbler) { g.write("partition.metadata", "") }, FindingMetadata, "partition.metadata", 0},
	{"the topic id is garbage", "epochs", func(g *garbler) { g.write("partition.metadata", "version: 0\ntopic_id: nonsense") }, FindingMetadata, "partition.metadata", 0},
	{"the recovery points are garbage", "epochs", func(g *garbler) { g.write("/recovery-point-offset-checkpoint", "0\n2\nepochs 0 1\n") }, FindingCheckpoint, "recovery-point-offset-checkpoint", 0},
	{"the high watermarks are garbage", "epochs", func(g *garbler) { g.write("/replication-offset-checkpoint", "\x00\x01") }, FindingCheckpoint, "replication-offset-checkpoint", 0},
	{"the cleaner offsets are garbage", "epochs", func(g *garbler) { g.write("/cleaner-offset-checkpoint", "7\n") }, FindingCheckpoint, "cleaner-offset-checkpoint", 0},
	{"the log start offset is beyond the log", "epochs", func(g *garbler) { g.write("/log-start-offset-checkpoint", "0\n1\nepochs 0 999\n") }, FindingShort, "log-start-offset-checkpoint", 0},
	{"the recovery point is beyond the log", "epochs", func(g *garbler) { g.write("/recovery-point-offset-checkpoint", "0\n1\nepochs 0 999\n") }, FindingShort, "recovery-point-offset-checkpoint", 0},
	{"the high watermark is negative", "epochs", func(g *garbler) { g.write("/replication-offset-checkpoint", "0\n1\nepochs 0 -5\n") }, FindingCheckpoint, "replication-offset-checkpoint", 0},
	{"the marker vouches for more than the recovery point", "epochs", func(g *garbler) { g.write("/recovery-point-offset-checkpoint", "0\n1\nepochs 0 12\n") }, FindingMarker, ".kafka_cleanshutdown", 0},
	{"meta.properties are garbage", "epochs", func(g *garbler) { g.write("/meta.properties", "version=1\n") }, FindingMetadata, "meta.properties", 0},
	{"an unfinished rewrite", "epochs", func(g *garbler) { g.copy(log0, "00000000000000000000.log.cleaned") }, FindingLeftover, ".cleaned", 0},
	{"a finished rewrite", "epochs", func(g *garbler) { g.copy(log0, "00000000000000000000.log.swap") }, FindingLeftover, ".swap", 0},
	{"half a checkpoint", "epochs", func(g *garbler) { g.write("leader-epoch-checkpoint.tmp", "0\n") }, FindingLeftover, ".tmp", 0},
	{"half a checkpoint of the root", "epochs", func(g *garbler) { g.write("/replication-offset-checkpoint.tmp", "0\n") }, FindingLeftover, ".tmp", 0},
	{"an index without a log", "epochs", func(g *garbler) { g.copy(index0, "00000000000000000024.index") }, FindingLeftover, "00000000000000000024.index", 0},
	{"a folder that is no partition", "epochs", func(g *garbler) { g.must(os.Mkdir(g.path("/lost+found"), 0o755)) }, FindingForeign, "lost+found", 0},
	{"a stray partition", "epochs", func(g *garbler) {
		g.must(os.Mkdir(g.path("/t-0.0123456789abcdef0123456789abcdef-stray"), 0o755))
	}, FindingLeftover, "-stray", 0},
	{"two folders of one partition", "epochs", func(g *garbler) { g.must(os.Mkdir(g.path("/epochs-00"), 0o755)) }, FindingForeign, "epochs-00", 0},
	{"a log that is a directory", "epochs", func(g *garbler) { g.must(os.Mkdir(g.path("00000000000000000099.log"), 0o755)) }, FindingUnreadable, "00000000000000000099.log", 0},
	{"an index that is a directory", "epochs", func(g *garbler) { g.remove(index0); g.must(os.Mkdir(g.path(index0), 0o755)) }, FindingUnreadable, index0, 0},
	{"a log without an offset in its name", "epochs", func(g *garbler) { g.copy(log0, "notes.log") }, FindingForeign, "notes.log", 0},
	{"a log whose offset is spelled otherwise", "epochs", func(g *garbler) { g.copy(log0, "77.log") }, FindingForeign, "77.log", 0},
}

func TestVerifyFindsNothingInDeletedFilesAndFoldersThatWait(t *testing.T) {
	g := newGarbler(t, "epochs")
	g.copy(log0, "00000000000000000000.log.deleted")
	g.copy(log0, "00000000000000000000.snapshot.deleted")
	g.must(os.Mkdir(g.path("/epochs-0.0123456789abcdef0123456789abcdef-delete"), 0o755))
	if got := verifyAll(t, verifyFS(t, g.root), VerifyOptions{}); len(got) > 0 {
		t.Error(sayFindings(got))
	}
}

func TestVerifyNamesEachDamage(t *testing.T) {
	for _, row := range verifyDamage {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			g := newGarbler(t, row.folder)
			row.garble(g)
			got := verifyAll(t, verifyFS(t, g.root), VerifyOptions{IndexInterval: row.interval})
			if !slices.ContainsFunc(got, func(f Finding) bool { return f.Kind == row.kind && strings.HasSuffix(f.File, row.file) }) {
				t.Errorf("no finding %q of %s:%s", row.kind, row.file, sayFindings(got))
			}
		})
	}
}

// A recovery under another index.interval.bytes than the broker's leaves an index that is sparser than its neighbours.
func TestVerifyBelievesTheIntervalItIsGiven(t *testing.T) {
	g := newGarbler(t, "txn-commit-abort")
	g.remove("/.kafka_cleanshutdown")
	l, err := Open(g.root, Config{})
	require.NoError(t, err)
	_, err = l.Append(ctx, record.Record{})
	require.NoError(t, err)
	require.NoError(t, l.Close())
	require.Len(t, verifyAll(t, verifyFS(t, g.root), VerifyOptions{}), 1, "it looks as if entries had been cut off")
	require.Empty(t, verifyAll(t, verifyFS(t, g.root), VerifyOptions{IndexInterval: 4096}))
}

// A writer that is restarted behind a large batch begins to count anew: the next batch has no entry.
func TestVerifyKnowsThatARestartBehindALargeBatchLeavesNoEntry(t *testing.T) {
	root := t.TempDir()
	for i, size := range []int{50_000, 10, 10} {
		l, err := Open(root, Config{})
		require.NoError(t, err)
		require.NoError(t, l.AssignEpoch(int32(2*i)))
		_, err = l.Append(ctx, record.Record{Value: make([]byte, size), Timestamp: 1000})
		require.NoError(t, err)
		require.NoError(t, l.Close())
	}
	index := filepath.Join(root, "log-0", index0)
	require.NoError(t, os.WriteFile(index, nil, 0o644)) // as Kafka leaves it
	require.Empty(t, verifyAll(t, verifyFS(t, root), VerifyOptions{}))
}
