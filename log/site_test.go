package log

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// site is a root with one partition on a disk in memory that can be killed and edited.
type site struct {
	t    *testing.T
	disk *vfstest.Crash
	cfg  Config
	dir  *Dir
	log  *Log
}

func newSite(t *testing.T, c Config) *site {
	s := &site{t: t, disk: vfstest.NewCrash(vfstest.CrashOptions{Now: crashClock}), cfg: c}
	s.open()
	return s
}

func (s *site) tryOpen() (err error) {
	if s.dir, err = OpenDir("root", DirConfig{Manual: true, FS: s.disk, Now: crashClock}); err != nil {
		return err
	}
	s.log, err = s.dir.Open(context.Background(), crashTP, s.cfg)
	return err
}

func (s *site) open() {
	s.t.Helper()
	require.NoError(s.t, s.tryOpen())
}

// kill leaves the disk as the cache has it; the next open is another process.
func (s *site) kill() { s.disk = s.disk.Kill() }

func (s *site) stop() {
	s.t.Helper()
	require.NoError(s.t, s.dir.Close())
}

// add appends n batches of one record each.
func (s *site) add(n int) {
	s.t.Helper()
	for range n {
		_, err := s.log.Append(context.Background(), siteRecord(s.log.Offsets().LogEnd))
		require.NoError(s.t, err)
	}
}

func siteRecord(offset int64) record.Record {
	return record.Record{Timestamp: 1000 + offset, Value: fmt.Appendf(nil, "value of %10d", offset)}
}

// holds checks that the log is records [from, to), each as add made it.
func (s *site) holds(from, to int64) {
	s.t.Helper()
	o := s.log.Offsets()
	require.Equal(s.t, []int64{from, to}, []int64{o.LogStart, o.LogEnd})
	next := from
	for r, err := range s.log.Records(context.Background(), from) {
		require.NoError(s.t, err)
		require.Equal(s.t, next, r.Offset)
		want := siteRecord(next)
		require.Equal(s.t, string(want.Value), string(r.Value))
		require.Equal(s.t, want.Timestamp, r.Timestamp)
		next++
	}
	require.Equal(s.t, to, next)
}

// goesOn checks that what is appended now is found after a kill and after a clean stop.
func (s *site) goesOn() {
	s.t.Helper()
	from := s.log.Offsets().LogStart
	s.add(4)
	to := s.log.Offsets().LogEnd
	s.kill()
	s.open()
	s.holds(from, to)
	s.stop()
	s.open()
	s.holds(from, to)
	require.True(s.t, s.log.Recovery().Clean)
	require.Empty(s.t, s.log.Recovery().Findings)
}

func inFolder(name string) string { return path.Join(crashTP.String(), name) }

func logFile(base int64) string { return inFolder(segment.FileName(base, ".log")) }

func (s *site) read(name string) []byte {
	s.t.Helper()
	b, err := vfs.ReadFile(s.disk, name, 1<<26)
	require.NoError(s.t, err)
	return b
}

func (s *site) write(name string, content []byte) {
	s.t.Helper()
	f, err := s.disk.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o644)
	require.NoError(s.t, err)
	_, err = f.WriteAt(content, 0)
	require.NoError(s.t, err)
	require.NoError(s.t, f.Close())
}

func (s *site) edit(name string, change func([]byte) []byte) {
	s.t.Helper()
	s.write(name, change(bytes.Clone(s.read(name))))
}

// files is every file of the root and the partition but the lock.
func (s *site) files() map[string]string { return filesOf(s.t, s.disk) }

func filesOf(t *testing.T, fsys vfs.FS) map[string]string {
	t.Helper()
	out := map[string]string{}
	var walk func(dir string)
	walk = func(dir string) {
		entries, err := fsys.ReadDir(dir)
		require.NoError(t, err)
		for _, e := range entries {
			name := path.Join(dir, e.Name())
			if e.IsDir() {
				walk(name)
			} else if name != lockFile {
				b, err := vfs.ReadFile(fsys, name, 1<<26)
				require.NoError(t, err)
				out[name] = string(b)
			}
		}
	}
	walk(".")
	return out
}

// changedFiles names what is new, gone or different.
func changedFiles(before, after map[string]string) (names []string) {
	for name, b := range after {
		if was, ok := before[name]; !ok || was != b {
			names = append(names, name)
		}
	}
	for name := range before {
		if _, ok := after[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func flipAt(at int) func([]byte) []byte {
	return func(b []byte) []byte {
		if at < 0 {
			at += len(b)
		}
		b[at] ^= 0x10
		return b
	}
}

func appendBytes(more []byte) func([]byte) []byte {
	return func(b []byte) []byte { return append(b, more...) }
}

// batchAt is one whole batch with the given offset and leader epoch, as add makes them.
func batchAt(t *testing.T, offset int64, epoch int32) []byte {
	t.Helper()
	b := record.NewBuilder(record.BuilderOptions{})
	r := siteRecord(offset)
	r.Offset = 0
	require.NoError(t, b.Add(r))
	batch, err := b.Finish()
	require.NoError(t, err)
	batch.SetBaseOffset(offset)
	batch.SetLeaderEpoch(epoch)
	return bytes.Clone(batch.Bytes())
}

// The sites below hold nine records, three a segment: bases 0, 3, 6.
func nineRecords(d Durability) Config {
	return Config{SegmentBytes: 300, IndexIntervalBytes: EveryBatch, Durability: d}
}

func newNine(t *testing.T, d Durability) *site {
	s := newSite(t, nineRecords(d))
	s.add(9)
	require.Equal(t, []int64{0, 3, 6}, basesOf(s.log))
	return s
}

func basesOf(l *Log) (bases []int64) {
	for _, i := range l.SegmentInfos() {
		bases = append(bases, i.Base)
	}
	return bases
}

func removeIfThere(fsys vfs.FS, name string) error {
	if !exists(fsys, name) {
		return nil
	}
	return fsys.Remove(name)
}

func (s *site) lastBase() int64 {
	bases, err := segment.List(s.disk, crashTP.String())
	require.NoError(s.t, err)
	return bases[len(bases)-1]
}
