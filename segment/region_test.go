package segment

import (
	"bytes"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/partlog/partlog/vfs"

	"github.com/stretchr/testify/require"
)

func TestRegionBounds(t *testing.T) {
	s := create(t, 0, Options{IndexIntervalBytes: EveryBatch})
	var starts []int64
	for i := range int64(10) { // batches [0,1] [2,3] ... [18,19]
		starts = append(starts, s.Info().Bytes)
		add(t, s, batchOf(t, 2*i, 2, 1+i, "some value"))
	}
	size := s.Info().Bytes
	one := starts[1]
	starts = append(starts, size)
	rows := []struct {
		name                    string
		offset, maxBytes, bound int64
		atLeastOne              bool
		from                    int
		n                       int64
	}{
		{"all", 0, math.MaxInt64, math.MaxInt64, false, 0, size},
		{"all, bound at the end", 0, math.MaxInt64, 20, false, 0, size},
		{"offset inside a batch", 5, math.MaxInt64, 20, false, 2, size - starts[2]},
		{"whole batches below the bound", 0, math.MaxInt64, 8, false, 0, starts[4]},
		{"a bound inside a batch leaves it out", 0, math.MaxInt64, 9, false, 0, starts[4]},
		{"bound at the last offset of a batch leaves it out", 0, math.MaxInt64, 7, false, 0, starts[3]},
		{"bound at the offset", 8, math.MaxInt64, 8, true, 4, 0},
		{"bound below the offset", 8, math.MaxInt64, 3, true, 4, 0},
		{"cut inside a batch by size", 0, one + 7, 20, false, 0, one + 7},
		{"smaller than a batch", 4, 10, 20, false, 2, 10},
		{"smaller than a batch, at least one", 4, 10, 20, true, 2, one},
		{"at least one does not pass the bound", 4, 10, 5, true, 2, 0},
		{"nothing", 4, 0, 20, false, 2, 0},
		{"nothing, at least one", 4, 0, 20, true, 2, one},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			g, err := s.Region(r.offset, r.maxBytes, r.bound, r.atLeastOne)
			require.NoError(t, err)
			require.Equal(t, r.n, g.Len())
			require.Equal(t, starts[r.from], g.Position())
			require.EqualValues(t, 2*r.from, g.First().Base)
			require.Equal(t, 1, s.Info().Pins)
			require.NoError(t, g.Close())
			require.NoError(t, g.Close())
			require.Zero(t, s.Info().Pins)
			require.Zero(t, g.Len())
		})
	}
	_, err := s.Region(0, -1, 20, true)
	require.Error(t, err)
}

func TestRegionReadsAsAReaderAt(t *testing.T) {
	o := Options{FS: osFS(t)}
	s := create(t, 0, o)
	fill(t, s, 50)
	want := fileBytes(t, o.FS, file(0, ".log"))
	r, err := s.Region(20, math.MaxInt64, math.MaxInt64, true)
	require.NoError(t, err)
	defer r.Close()
	got, err := io.ReadAll(io.NewSectionReader(&r, 0, r.Len()))
	require.NoError(t, err)
	require.Equal(t, want[r.Position():], got)
	n, err := r.ReadAt(make([]byte, 10), r.Len()-4)
	require.Equal(t, 4, n)
	require.ErrorIs(t, err, io.EOF)
	_, err = r.ReadAt(make([]byte, 10), r.Len())
	require.ErrorIs(t, err, io.EOF)
	_, err = r.ReadAt(make([]byte, 10), -1)
	require.Error(t, err)
	var b bytes.Buffer
	m, err := r.WriteTo(&b)
	require.NoError(t, err)
	require.Equal(t, r.Len(), m)
	require.Equal(t, got, b.Bytes())
	var offs []int64
	for batch, err := range r.Batches() {
		require.NoError(t, err)
		offs = append(offs, batch.BaseOffset())
	}
	require.Equal(t, span(20, 50), offs)
}

func TestAClosedSegmentIsReadByThoseWhoHoldIt(t *testing.T) {
	for _, end := range []string{"close", "rename and delete", "delete unopened"} {
		t.Run(end, func(t *testing.T) {
			o := Options{FS: osFS(t)}
			s := create(t, 0, o)
			fill(t, s, 20)
			require.NoError(t, s.AppendAborted(AbortedTxn{1, 3, 5, 6}))
			require.NoError(t, s.Close())
			s, err := Open(dir, 0, o)
			require.NoError(t, err)
			r := Region{}
			if end != "delete unopened" {
				r, err = s.Region(0, math.MaxInt64, math.MaxInt64, true)
				require.NoError(t, err)
			}
			require.True(t, s.Retain())
			switch end {
			case "close":
				require.NoError(t, s.Close())
			case "rename and delete":
				require.NoError(t, s.Rename(".deleted"))
				_, err := o.FS.Stat(file(0, ".log.deleted"))
				require.NoError(t, err)
				_, err = o.FS.Stat(file(0, ".txnindex.deleted"))
				require.NoError(t, err)
				require.NoError(t, s.Delete())
				require.NoError(t, s.Close())
			case "delete unopened":
				require.NoError(t, s.Delete())
				require.NoError(t, s.Close())
			}
			entries, err := o.FS.ReadDir(dir)
			require.NoError(t, err)
			if end != "close" {
				require.Empty(t, entries)
			}
			require.Equal(t, span(0, 20), mustOffsets(t, s))
			p, err := s.Find(17)
			require.NoError(t, err)
			require.EqualValues(t, 17, p.Base)
			txns, _, err := s.Aborted(0, 20)
			require.NoError(t, err)
			require.Equal(t, []AbortedTxn{{1, 3, 5, 6}}, txns)
			if end != "delete unopened" {
				_, err = r.WriteTo(io.Discard)
				require.NoError(t, err)
				require.NoError(t, r.Close())
			}
			require.Equal(t, 1, s.Info().Pins)
			s.Release()
			require.False(t, s.Retain())
			_, err = offsets(s)
			require.ErrorIs(t, err, ErrClosed)
			_, err = s.Region(0, 1, 1, true)
			require.ErrorIs(t, err, ErrClosed)
			_, err = s.Find(3)
			require.Error(t, err)
		})
	}
}

func TestParkedSegmentsHoldNoDescriptorAndGoOn(t *testing.T) {
	o := Options{FS: osFS(t), IndexIntervalBytes: EveryBatch}
	s := create(t, 0, o)
	for round := range int64(5) {
		fill(t, s, 7)
		require.NoError(t, s.AppendAborted(AbortedTxn{1, round, round*7 + 3, round}))
		require.NoError(t, s.Park())
		require.NotNil(t, s.file.Load(), "it has bytes that no sync of this descriptor has seen")
		require.Nil(t, s.ix.Load())
		require.NoError(t, s.SyncData())
		require.NoError(t, s.Park())
		require.Nil(t, s.file.Load())
		require.Equal(t, span(0, 7*(round+1)), mustOffsets(t, s))
		require.NoError(t, s.Park())
	}
	require.NoError(t, s.Close())
	// The indexes are those of a segment that was never parked.
	u := create(t, 0, Options{FS: osFS(t), IndexIntervalBytes: EveryBatch})
	fill(t, u, 35)
	require.NoError(t, u.Close())
	require.Equal(t, fileBytes(t, u.o.FS, file(0, ".index")), fileBytes(t, o.FS, file(0, ".index")))
	require.Equal(t, fileBytes(t, u.o.FS, file(0, ".timeindex")), fileBytes(t, o.FS, file(0, ".timeindex")))
}

func listen(t *testing.T) (client, server *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	d, err := l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { c.Close(); d.Close() })
	return c.(*net.TCPConn), d.(*net.TCPConn)
}

// big makes a segment of some megabytes on a real disk.
func big(t testing.TB) (*Segment, Options, []byte) {
	o := Options{FS: osFS(t)}
	s := create(t, 0, o)
	for i := range int64(8) {
		add(t, s, batchOf(t, i, 1, i+1, string(noise(1<<20))))
	}
	return s, o, fileBytes(t, o.FS, file(0, ".log"))
}

func TestManySocketsAreServedFromOneFile(t *testing.T) {
	s, _, want := big(t)
	var wg sync.WaitGroup
	for i := range int64(8) {
		in, out := listen(t)
		wg.Add(2)
		go func() {
			defer wg.Done()
			r, err := s.Region(i, math.MaxInt64, math.MaxInt64, true)
			if err == nil {
				_, err = r.WriteTo(out)
				r.Close()
			}
			if err != nil {
				t.Error(err)
			}
			out.CloseWrite()
		}()
		go func() {
			defer wg.Done()
			got, err := io.ReadAll(in)
			if err != nil {
				t.Error(err)
			}
			if !bytes.Equal(got, want[int64(len(want))/8*i:]) {
				t.Errorf("socket %d got other bytes", i)
			}
		}()
	}
	wg.Wait()
}

func TestAStalledSocketEndsAtItsDeadline(t *testing.T) {
	s, _, _ := big(t)
	_, out := listen(t) // nobody reads
	require.NoError(t, out.SetWriteDeadline(time.Now().Add(100*time.Millisecond)))
	r, err := s.Region(0, math.MaxInt64, math.MaxInt64, true)
	require.NoError(t, err)
	defer r.Close()
	began := time.Now()
	n, err := r.WriteTo(out)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.Less(t, n, r.Len())
	require.Less(t, time.Since(began), 5*time.Second)
}

func TestAFileThatBecameShorterIsAnUnexpectedEnd(t *testing.T) {
	for _, socket := range []bool{true, false} {
		for _, honest := range []bool{true, false} {
			s, o, want := big(t)
			r, err := s.Region(0, math.MaxInt64, math.MaxInt64, true)
			require.NoError(t, err)
			if honest {
				_, err = s.Truncate(4)
				require.NoError(t, err)
			} else {
				f, err := o.FS.OpenFile(file(0, ".log"), os.O_RDWR, 0)
				require.NoError(t, err)
				require.NoError(t, f.Truncate(int64(len(want)/2)))
				require.NoError(t, f.Close())
			}
			var n int64
			if socket {
				in, out := listen(t)
				go io.Copy(io.Discard, in)
				n, err = r.WriteTo(out)
			} else {
				n, err = r.WriteTo(io.Discard)
			}
			require.Less(t, n, r.Len())
			if honest {
				require.ErrorIs(t, err, ErrChanged)
				_, err = r.ReadAt(make([]byte, 100), r.Len()-100)
				require.ErrorIs(t, err, ErrChanged)
			} else {
				require.ErrorIs(t, err, io.ErrUnexpectedEOF)
				require.Equal(t, s.File(), corrupt(t, err).File)
				_, err = offsets(s)
				corrupt(t, err)
			}
			require.NoError(t, r.Close())
		}
	}
}

type failingWriter struct{ after int }

func (w *failingWriter) Write(p []byte) (int, error) {
	if w.after -= len(p); w.after < 0 {
		return len(p) / 2, errors.New("peer went away")
	}
	return len(p), nil
}

func TestAWriterThatFailsEndsTheCopy(t *testing.T) {
	s, _, _ := big(t)
	r, err := s.Region(0, math.MaxInt64, math.MaxInt64, true)
	require.NoError(t, err)
	defer r.Close()
	n, err := r.WriteTo(&failingWriter{after: 600 << 10})
	require.ErrorContains(t, err, "peer went away")
	require.EqualValues(t, 2*readBuffer+readBuffer/2, n)
}

// A read-only segment beside a live writer in the same directory.
func TestAReadOnlySegmentFollowsALiveWriter(t *testing.T) {
	root := t.TempDir()
	fsys, err := vfs.OS(root)
	require.NoError(t, err)
	require.NoError(t, fsys.MkdirAll(dir, 0o755))
	w := create(t, 0, Options{FS: fsys, IndexIntervalBytes: EveryBatch})
	fill(t, w, 10)
	ro, err := vfs.OSReadOnly(root)
	require.NoError(t, err)
	r := open(t, 0, Options{FS: ro, ReadOnly: true})
	require.Equal(t, span(0, 10), mustOffsets(t, r))
	fill(t, w, 10)
	require.Equal(t, span(0, 10), mustOffsets(t, r))
	grew, err := r.Refresh()
	require.NoError(t, err)
	require.True(t, grew)
	require.Equal(t, span(0, 20), mustOffsets(t, r))
	ts, _, err := r.LargestTimestamp()
	require.NoError(t, err)
	require.EqualValues(t, 190, ts)

	// Half a batch at the end is being written, not damaged.
	raw := one(t, 20)
	f, err := os.OpenFile(filepath.Join(root, w.File()), os.O_RDWR|os.O_APPEND, 0)
	require.NoError(t, err)
	defer f.Close()
	_, err = f.Write(raw[:40])
	require.NoError(t, err)
	grew, err = r.Refresh()
	require.NoError(t, err)
	require.False(t, grew)
	late := open(t, 0, Options{FS: ro, ReadOnly: true})
	require.Equal(t, span(0, 20), mustOffsets(t, late))
	_, err = f.Write(raw[40:])
	require.NoError(t, err)
	grew, err = r.Refresh()
	require.NoError(t, err)
	require.True(t, grew)
	next, err := r.NextOffset()
	require.NoError(t, err)
	require.EqualValues(t, 21, next)

	// The writer truncates.
	_, err = w.Truncate(5)
	require.NoError(t, err)
	_, err = offsets(r)
	require.ErrorIs(t, err, ErrChanged)
	require.Equal(t, span(0, 5), mustOffsets(t, r))
	fill(t, w, 1)
	grew, err = r.Refresh()
	require.NoError(t, err)
	require.True(t, grew)
	require.Equal(t, span(0, 6), mustOffsets(t, r))
	_, err = r.Find(5)
	require.NoError(t, err)
}
