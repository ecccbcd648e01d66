package log

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/index"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
)

// twoDoors is one root seen through two file systems: the writer's and a reader's.
func twoDoors(t *testing.T, c Config) (b *bed, partition string) {
	root := t.TempDir()
	fsys, err := vfs.OS(root)
	require.NoError(t, err)
	return newBedOn(t, fsys, c), filepath.Join(root, "t-0")
}

func openReader(t *testing.T, partition string, o ReaderOptions) *Reader {
	t.Helper()
	r, err := OpenReader(partition, o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func (r *Reader) all(t *testing.T, from int64) []int64 {
	t.Helper()
	got, err := offsetsOf(r.Records(ctx, from))
	require.NoError(t, err)
	return append([]int64(nil), got...)
}

func TestAReaderSeesALiveWriterRollTruncateResetAndDelete(t *testing.T) {
	for name, c := range map[string]Config{"plain": {SegmentBytes: 500}, "preallocated": {SegmentBytes: 500, Preallocate: true}} {
		t.Run(name, func(t *testing.T) {
			b, partition := twoDoors(t, c)
			r := openReader(t, partition, ReaderOptions{})
			require.Empty(t, r.all(t, 0))
			for i := range int64(20) {
				b.add("x", "y")
				require.Equal(t, offsetsIn(0, 2*i+2), r.all(t, 0))
			}
			require.Equal(t, b.bases(), r.bases())
			for _, cut := range []int64{39, 30, 12, 3} {
				end, err := b.Truncate(ctx, cut)
				require.NoError(t, err)
				require.Equal(t, offsetsIn(0, end), r.all(t, 0))
				require.Equal(t, end, r.Offsets().LogEnd)
				b.add("after")
				require.Equal(t, offsetsIn(0, end+1), r.all(t, 0))
			}
			// Shorter and at once longer than before: what was known of the file is of no use.
			_, err := b.Truncate(ctx, 1)
			require.NoError(t, err)
			for range 30 {
				b.add("another", "history", "with longer values")
			}
			require.Equal(t, b.readAll(0), r.all(t, 0))
			for got, err := range r.Records(ctx, 0) {
				require.NoError(t, err)
				require.NotEqual(t, "x", string(got.Value))
			}
			require.NoError(t, b.DeleteRecords(ctx, 10))
			require.NoError(t, r.Refresh())
			require.Equal(t, int64(10), r.Offsets().LogStart)
			_, err = offsetsOf(r.Records(ctx, 9))
			require.ErrorIs(t, err, ErrOffsetOutOfRange)
			require.NoError(t, b.ResetTo(ctx, 1000))
			require.Empty(t, r.all(t, 1000))
			b.add("z")
			require.Equal(t, []int64{1000}, r.all(t, 1000))
			require.NoError(t, b.Close())
			require.Equal(t, []int64{1000}, r.all(t, 1000))
		})
	}
}

func (r *Reader) bases() (all []int64) {
	for _, s := range r.SegmentInfos() {
		all = append(all, s.Base)
	}
	return all
}

func TestAReaderFollowsALiveWriter(t *testing.T) {
	b, partition := twoDoors(t, Config{SegmentBytes: 2000, Durability: Buffered})
	var wg sync.WaitGroup
	for range 3 {
		r := openReader(t, partition, ReaderOptions{})
		wg.Go(func() {
			want := int64(0)
			for got, err := range r.Follow(ctx, 0) {
				if err != nil || got.Offset != want {
					t.Errorf("offset %d after %d: %v", got.Offset, want-1, err)
					return
				}
				if want++; want == 600 {
					return
				}
			}
		})
	}
	for i := range 300 {
		b.add("x", "y")
		if i%50 == 0 {
			time.Sleep(5 * time.Millisecond)
		}
	}
	wg.Wait()
}

// A reader that has read what is then cut is told, also when it looks again only after the log has grown past it.
func TestAFollowingReaderIsToldOfATruncation(t *testing.T) {
	b, partition := twoDoors(t, Config{})
	for range 5 {
		b.add("x", "y")
	}
	r := openReader(t, partition, ReaderOptions{})
	n, last := 0, error(nil)
	for _, err := range r.Follow(ctx, 0) {
		if last = err; err != nil {
			break
		}
		if n++; n == 10 {
			_, err := b.Truncate(ctx, 4)
			require.NoError(t, err)
			for range 10 {
				b.add("new", "history")
			}
		}
		require.LessOrEqual(t, n, 10)
	}
	require.ErrorIs(t, last, ErrOffsetOutOfRange)
	require.Equal(t, offsetsIn(0, 24), r.all(t, 0))
}

func TestStopBoundsAReader(t *testing.T) {
	b, partition := twoDoors(t, Config{})
	for range 5 {
		b.add("x", "y")
	}
	stop := int64(0)
	r := openReader(t, partition, ReaderOptions{Stop: func() int64 { return stop }})
	for _, stop = range []int64{0, 1, 2, 5, 10, 99, 4} {
		require.Equal(t, offsetsIn(0, min(stop, 10)/2*2), r.all(t, 0), "whole batches below %d", stop)
		require.Equal(t, min(stop, 10), r.Offsets().LogEnd)
	}
}

// What a broken-off writer leaves: everything up to the last whole batch.
func TestATornTailIsTheEndOfAReader(t *testing.T) {
	for name, tail := range map[string][]byte{
		"half a batch": batchOf(6, 0, record.None, "half")[:50],
		"zeros":        make([]byte, 5000),
		"noise":        []byte("\xff\xff\xff\xff this is no batch, whatever it may be, and it is long enough to hold a header"),
		"backwards":    batchOf(2, 0, record.None, "again"),
		"overlapping":  batchOf(5, 0, record.None, "again", "and", "on"),
	} {
		t.Run(name, func(t *testing.T) {
			root, partition := kill(t, func(b *bed) { b.add("a", "b", "c"); b.add("d", "e", "f") }, Config{})
			appendTo(t, filepath.Join(partition, name20(0)+".log"), tail)
			before := contents(t, root)
			r := openReader(t, partition, ReaderOptions{})
			require.Equal(t, offsetsIn(0, 6), r.all(t, 0))
			_, err := offsetsOf(r.Records(ctx, 7))
			require.ErrorIs(t, err, ErrOffsetOutOfRange)
			at, err := r.OffsetForTime(ctx, ms(epoch2023))
			require.NoError(t, err)
			require.Zero(t, at.Offset)
			require.NoError(t, r.Close())
			require.Equal(t, before, contents(t, root), "not a byte")
		})
	}
}

// kill makes a log and leaves it as a killed process does.
func kill(t *testing.T, work func(b *bed), c Config) (root, partition string) {
	root = t.TempDir()
	live := t.TempDir()
	fsys, err := vfs.OS(live)
	require.NoError(t, err)
	b := newBedOn(t, fsys, c)
	work(b)
	require.NoError(t, os.CopyFS(root, os.DirFS(live)))
	_ = os.Remove(filepath.Join(root, ".lock"))
	return root, filepath.Join(root, "t-0")
}

func appendTo(t *testing.T, file string, b []byte) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0)
	require.NoError(t, err)
	_, err = f.Write(b)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

func flipBit(t *testing.T, file string, at int64) {
	t.Helper()
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	if at < 0 {
		at += int64(len(b))
	}
	b[at] ^= 0x10
	require.NoError(t, os.WriteFile(file, b, 0o644))
}

// Bad bytes where everything is known to be durable are damage, in the last segment too: an end that is none would have a
// follower believe it has all.
func TestDamageBelowTheRecoveryPointIsNoEnd(t *testing.T) {
	for name, clean := range map[string]bool{"clean stop": true, "recovery point": false} {
		t.Run(name, func(t *testing.T) {
			root, partition := kill(t, func(b *bed) {
				for range 5 {
					b.add("x", "y")
				}
				if clean {
					require.NoError(t, b.dir.Close())
				} else {
					require.NoError(t, b.Sync(ctx))
				}
			}, Config{})
			flipBit(t, filepath.Join(partition, name20(0)+".log"), -3)
			before := contents(t, root)
			r := openReader(t, partition, ReaderOptions{})
			for range 3 {
				require.Equal(t, int64(10), r.Offsets().LogEnd)
				got, err := offsetsOf(r.Records(ctx, 0))
				require.Equal(t, offsetsIn(0, 8), got)
				var c *CorruptError
				require.ErrorAs(t, err, &c)
				require.Equal(t, int64(8), c.Offset)
				require.Equal(t, [2]int64{8, -1}, c.Intact)
				_, err = offsetsOf(r.Follow(ctx, 8))
				require.ErrorIs(t, err, ErrCorrupt)
			}
			require.NoError(t, r.Close())
			require.Equal(t, before, contents(t, root))
		})
	}
}

// garbles are ways to lose an index file.
var garbles = map[string]func(t *testing.T, file string){
	"missing": func(t *testing.T, f string) { require.NoError(t, os.Remove(f)) },
	"empty":   func(t *testing.T, f string) { require.NoError(t, os.Truncate(f, 0)) },
	"ragged":  func(t *testing.T, f string) { appendTo(t, f, []byte("12345")) },
	"padded":  func(t *testing.T, f string) { appendTo(t, f, make([]byte, 4096)) },
	"noise": func(t *testing.T, f string) {
		b, err := os.ReadFile(f)
		require.NoError(t, err)
		for i := range b {
			b[i] = byte(i*i*7 + 13)
		}
		require.NoError(t, os.WriteFile(f, b, 0o644))
	},
	"shifted": func(t *testing.T, f string) {
		b, err := os.ReadFile(f)
		require.NoError(t, err)
		for i := 7; i < len(b); i += 8 {
			b[i] ^= 1
		}
		require.NoError(t, os.WriteFile(f, b, 0o644))
	},
}

// Invariant X4, seen from a reader.
func TestGarbledIndexesChangeNoAnswer(t *testing.T) {
	work := func(b *bed) {
		for i := range int64(300) {
			b.addTimes(epoch2023+i*10, epoch2023+i*10+5)
		}
		require.NoError(t, b.dir.Close())
	}
	for name, damage := range garbles {
		for _, kind := range []string{"*.index", "*.timeindex", "*index"} {
			t.Run(name+" "+kind, func(t *testing.T) {
				root, partition := kill(t, work, Config{SegmentBytes: 5000, IndexIntervalBytes: 200, Durability: Buffered})
				files, err := filepath.Glob(filepath.Join(partition, kind))
				require.NoError(t, err)
				require.Greater(t, len(files), 4)
				for _, f := range files {
					damage(t, f)
				}
				before := contents(t, root)
				for _, mode := range []index.MapMode{index.Auto, index.Never} {
					r := openReader(t, partition, ReaderOptions{Map: mode})
					for _, o := range []int64{0, 1, 99, 100, 333, 599} {
						require.Equal(t, offsetsIn(o, 600), r.all(t, o))
						at, err := r.OffsetForTime(ctx, ms(epoch2023+o*5))
						require.NoError(t, err)
						require.Equal(t, o, at.Offset, "time of %d", o)
					}
					at, err := r.OffsetOfMaxTime(ctx)
					require.NoError(t, err)
					require.Equal(t, int64(599), at.Offset)
					require.NoError(t, r.Close())
				}
				require.Equal(t, before, contents(t, root))
			})
		}
	}
}

// B052.
func TestAReadOnlyFolderIsReadAndClosedWithoutAWrite(t *testing.T) {
	root, partition := kill(t, func(b *bed) {
		for range 50 {
			b.add("x", "y")
		}
		require.NoError(t, b.dir.Close())
	}, Config{SegmentBytes: 1000})
	var times []time.Time
	walk := func(do func(p string, info fs.FileInfo)) {
		require.NoError(t, filepath.Walk(root, func(p string, info fs.FileInfo, err error) error {
			do(p, info)
			return err
		}))
	}
	var dirs []string
	walk(func(p string, info fs.FileInfo) {
		times = append(times, info.ModTime())
		if info.IsDir() {
			dirs = append(dirs, p)
			return
		}
		require.NoError(t, os.Chmod(p, 0o444))
	})
	for _, d := range dirs {
		require.NoError(t, os.Chmod(d, 0o555))
		t.Cleanup(func() { _ = os.Chmod(d, 0o755) })
	}
	r, err := OpenReader(partition, ReaderOptions{})
	require.NoError(t, err)
	require.Equal(t, offsetsIn(0, 100), r.all(t, 0))
	_, err = r.OffsetForTime(ctx, ms(0))
	require.NoError(t, err)
	require.NoError(t, r.Close())
	i := 0
	walk(func(p string, info fs.FileInfo) {
		require.True(t, times[i].Equal(info.ModTime()), p)
		i++
	})
}

// B053: whoever shortens files that are mapped gets his error, and the process lives.
func TestFilesCutFromOutsideAreErrorsNotFaults(t *testing.T) {
	_, partition := kill(t, func(b *bed) {
		for i := range int64(400) {
			b.addTimes(epoch2023+i, epoch2023+i)
		}
		require.NoError(t, b.dir.Close())
	}, Config{SegmentBytes: 20_000, IndexIntervalBytes: EveryBatch, Durability: Buffered})
	r := openReader(t, partition, ReaderOptions{})
	end := r.Offsets().LogEnd
	require.Equal(t, offsetsIn(0, end), r.all(t, 0))
	for o := range end {
		_, err := r.OffsetForTime(ctx, ms(epoch2023+o/2))
		require.NoError(t, err)
	}
	files, err := filepath.Glob(filepath.Join(partition, "*"))
	require.NoError(t, err)
	for _, f := range files {
		if info, err := os.Stat(f); err == nil && info.Size() > 1 && filepath.Ext(f) != "" {
			require.NoError(t, os.Truncate(f, info.Size()/2+7)) // inside a batch: a cut between two is a legal gap
		}
	}
	for o := range end {
		got, err := offsetsOf(r.Records(ctx, o))
		for i, g := range got {
			require.Equal(t, o+int64(i), g)
		}
		if err != nil {
			require.True(t, errors.Is(err, ErrCorrupt) || errors.Is(err, ErrOffsetOutOfRange), "%v", err)
		}
		if _, err := r.OffsetForTime(ctx, ms(epoch2023+o/2)); err != nil {
			require.True(t, errors.Is(err, ErrCorrupt) || errors.Is(err, ErrNotFound), "%v", err)
		}
	}
}

func TestOpenReaderSaysWhatIsNoLog(t *testing.T) {
	dir := t.TempDir()
	_, err := OpenReader(filepath.Join(dir, "nowhere-0"), ReaderOptions{})
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file-0"), nil, 0o644))
	_, err = OpenReader(filepath.Join(dir, "file-0"), ReaderOptions{})
	require.ErrorIs(t, err, ErrNotLog)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "things"), 0o755))
	_, err = OpenReader(filepath.Join(dir, "things"), ReaderOptions{})
	require.ErrorIs(t, err, ErrNotLog)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "empty-0"), 0o755))
	r := openReader(t, filepath.Join(dir, "empty-0"), ReaderOptions{})
	require.Empty(t, r.all(t, 0))
	require.Equal(t, TopicPartition{"empty", 0}, r.TopicPartition())
	c, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	_, err = offsetsOf(r.Follow(c, 0))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, r.Close())
	require.ErrorIs(t, r.Close(), ErrClosed)
	_, err = offsetsOf(r.Records(ctx, 0))
	require.ErrorIs(t, err, ErrClosed)
	_, err = r.Fetch(ctx, 0, FetchOptions{})
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, r.Refresh(), ErrClosed)
}

func TestOpenReaderOfALogRootNamesAPartitionInIt(t *testing.T) {
	root := filepath.Join(t.TempDir(), "data-1") // named like a partition too
	l, err := Open(root, Config{})
	require.NoError(t, err)
	require.NoError(t, l.Close())
	_, err = OpenReader(root, ReaderOptions{})
	require.ErrorIs(t, err, ErrNotLog)
	require.ErrorContains(t, err, root+" is a log root; open a partition folder in it, as "+filepath.Join(root, "log-0"))
}

func TestClosingAReaderEndsItsFollowersAtOnce(t *testing.T) {
	b, partition := twoDoors(t, Config{})
	b.add("a")
	r := openReader(t, partition, ReaderOptions{})
	ended := make(chan error, 1)
	go func() { _, err := offsetsOf(r.Follow(ctx, 0)); ended <- err }()
	time.Sleep(20 * time.Millisecond)
	require.NoError(t, r.Close())
	require.ErrorIs(t, <-ended, ErrClosed)
}

// Invariant X4, seen from the log that goes on after a clean stop.
func TestALogWithGarbledIndexesGoesOn(t *testing.T) {
	for name, damage := range garbles {
		for _, kind := range []string{"*.index", "*.timeindex", "*index"} {
			for _, next := range []string{"append", "truncate", "roll"} {
				t.Run(name+" "+kind+" "+next, func(t *testing.T) {
					c := Config{SegmentBytes: 5000, IndexIntervalBytes: 200, Durability: Buffered}
					root, partition := kill(t, func(b *bed) {
						for i := range int64(100) {
							b.addTimes(epoch2023+i*10, epoch2023+i*10+5)
						}
						require.NoError(t, b.dir.Close())
					}, c)
					files, err := filepath.Glob(filepath.Join(partition, kind))
					require.NoError(t, err)
					for _, f := range files {
						damage(t, f)
					}
					fsys, err := vfs.OS(root)
					require.NoError(t, err)
					b := newBedOn(t, fsys, c)
					end := int64(200)
					switch next {
					case "append":
						require.Equal(t, end, b.addTimes(epoch2023+1000))
						end++
					case "truncate":
						end, err = b.Truncate(ctx, 177)
						require.NoError(t, err)
						require.Equal(t, int64(176), end)
					case "roll":
						require.NoError(t, b.Roll(ctx))
					}
					for range 2 {
						for _, o := range []int64{0, 1, 99, 100, 150, end - 1} {
							require.Equal(t, offsetsIn(o, end), b.readAll(o))
							at, err := b.OffsetForTime(ctx, ms(epoch2023+o*5))
							require.NoError(t, err)
							require.Equal(t, o, at.Offset, "time of %d", o)
						}
						b.reopen()
					}
				})
			}
		}
	}
}
