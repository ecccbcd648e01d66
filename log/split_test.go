package log

import (
	"bytes"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/internal/txnindex"
	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

const far = 1 << 31

// overflowed is a stopped site whose segments hold these batches, by base.
func overflowed(t *testing.T, clean bool, files map[int64][]int64) *site {
	s := newSite(t, Config{})
	s.stop()
	if !clean {
		require.NoError(t, s.disk.Remove(checkpoint.CleanMarker))
	}
	require.NoError(t, removeIfThere(s.disk, checkpoint.RecoveryPoints))
	for _, kind := range []string{".log", ".index", ".timeindex"} {
		require.NoError(t, removeIfThere(s.disk, inFolder(segment.FileName(0, kind))))
	}
	for base, offsets := range files {
		var raw []byte
		for _, o := range offsets {
			raw = append(raw, batchAt(t, o, 0)...)
		}
		s.write(logFile(base), raw)
	}
	s.disk = s.disk.Kill()
	return s
}

func (s *site) offsets() []int64 {
	s.t.Helper()
	all, err := offsetsOf(s.log.Records(ctx, s.log.Offsets().LogStart))
	require.NoError(s.t, err)
	return all
}

var overflowing = map[string]struct {
	files   map[int64][]int64
	offsets []int64
	bases   []int64
}{
	"at its end":                     {map[int64][]int64{0: {0, 7, far + 100}}, []int64{0, 7, far + 100}, []int64{0, far + 100}},
	"twice":                          {map[int64][]int64{0: {0, far + 1, 3 * far}}, []int64{0, far + 1, 3 * far}, []int64{0, far + 1, 3 * far}},
	"with its only batch":            {map[int64][]int64{0: {far + 100}}, []int64{far + 100}, []int64{far + 100}},
	"before another segment":         {map[int64][]int64{5: {5, far + 100}, far + 200: {far + 200, far + 300}}, []int64{5, far + 100, far + 200, far + 300}, []int64{5, far + 100, far + 200}},
	"in both of two":                 {map[int64][]int64{0: {1, far + 1}, far + 2: {far + 2, 3*far + 9}}, []int64{1, far + 1, far + 2, 3*far + 9}, []int64{1, far + 1, far + 2, 3*far + 9}},
	"behind a sound one":             {map[int64][]int64{0: {0}, 1: {1, far + 1}}, []int64{0, 1, far + 1}, []int64{0, 1, far + 1}},
	"by the last that a segment has": {map[int64][]int64{0: {0, math.MaxInt32 + 1}}, []int64{0, math.MaxInt32 + 1}, []int64{0, math.MaxInt32 + 1}},
}

// Scenario: U044, U046, R021. Report: B059. A segment that overflows is split while it is loaded, after any stop.
func TestASegmentThatOverflowsIsSplitAtLoad(t *testing.T) {
	for name, c := range overflowing {
		for _, clean := range []bool{true, false} {
			s := overflowed(t, clean, c.files)
			s.open()
			require.Equal(t, c.offsets, s.offsets(), name)
			require.Equal(t, c.bases, (&bed{Log: s.log, t: t}).bases(), name)
			var kinds []string
			for _, f := range s.log.Recovery().Findings {
				kinds = append(kinds, f.Kind)
			}
			require.Contains(t, kinds, FindingSplit, name)
			s.noLeftovers()
			s.add(2)
			end := s.log.Offsets().LogEnd
			want := append(c.offsets[:len(c.offsets):len(c.offsets)], end-2, end-1)
			s.stop()
			s.open()
			require.True(t, s.log.Recovery().Clean)
			require.Empty(t, s.log.Recovery().Findings, name)
			require.Equal(t, want, s.offsets())
			s.kill()
			s.open()
			require.Empty(t, s.log.Recovery().Findings, name)
			require.Equal(t, want, s.offsets())
		}
	}
}

// Scenario: R023, R025. Report: B059. Whatever a crash leaves of a split, every batch is there once, and none is left over.
func TestASplitSurvivesEveryCrash(t *testing.T) {
	for name, c := range overflowing {
		for _, kill := range []bool{true, false} {
			s := overflowed(t, false, c.files)
			s.disk.Mark()
			s.open()
			n := 0
			for d := range s.disk.Disks(vfstest.DiskOptions{Kill: kill, Limit: 16, Samples: 4, Cuts: 1, NoTorn: true}) {
				n++
				after := &site{t: t, disk: d.FS(), cfg: s.cfg}
				require.NoError(t, after.tryOpen(), "%s: %v", name, d)
				require.Equal(t, c.offsets, after.offsets(), "%s: %v", name, d)
				require.Equal(t, c.bases, (&bed{Log: after.log, t: t}).bases(), "%s: %v", name, d)
				after.noLeftovers()
			}
			require.Greater(t, n, 10)
		}
	}
}

// A torn tail behind offsets that overflow is cut like any other, and kept; damage is not.
func TestATornTailOfAnOverflowingSegmentIsCutFirst(t *testing.T) {
	for _, later := range []bool{false, true} {
		s := overflowed(t, false, map[int64][]int64{0: {0, far + 100}})
		s.edit(logFile(0), func(b []byte) []byte { return append(b, "garbage that is no batch, and more of it"...) })
		if later {
			s.write(logFile(far+200), batchAt(t, far+200, 0))
		}
		s.open()
		require.Equal(t, []int64{0, far + 100}, s.offsets())
		require.NotEmpty(t, s.log.Recovery().Saved)
		require.Positive(t, s.log.Recovery().Cut)
		s.noLeftovers()
		s.goesOn2()
	}
	s := overflowed(t, false, map[int64][]int64{0: {0, far + 100, far + 101}})
	s.write(checkpoint.RecoveryPoints, []byte("0\n1\nt 0 2147483849\n"))
	s.edit(logFile(0), func(b []byte) []byte { b[len(b)-3] ^= 1; return b })
	before := s.read(logFile(0))
	err := s.tryOpen()
	require.ErrorIs(t, err, ErrCorrupt)
	require.Equal(t, before, s.read(logFile(0)))
}

func (s *site) goesOn2() {
	s.t.Helper()
	s.add(1)
	want := s.offsets()
	s.kill()
	s.open()
	require.Equal(s.t, want, s.offsets())
}

// A disk too full for the parts leaves the segment as it was.
func TestASplitWithoutRoomChangesNothing(t *testing.T) {
	s := overflowed(t, false, overflowing["twice"].files)
	before := s.read(logFile(0))
	full := vfstest.NewFault(s.disk)
	full.SetQuota(int64(len(before)) / 2)
	d, err := OpenDir("root", DirConfig{Manual: true, FS: full, Now: crashClock})
	require.NoError(t, err)
	_, err = d.Open(ctx, crashTP, s.cfg)
	require.ErrorIs(t, err, ErrNoSpace)
	require.Equal(t, before, s.read(logFile(0)))
	full.SetQuota(-1)
	_, err = d.Open(ctx, crashTP, s.cfg)
	require.NoError(t, err)
	require.NoError(t, d.Close())
	s.open()
	require.Equal(t, overflowing["twice"].offsets, s.offsets())
}

// The transaction index goes with the parts.
func TestASplitKeepsTheTransactionIndex(t *testing.T) {
	s := overflowed(t, true, overflowing["at its end"].files)
	entries := []txnindex.Entry{{ProducerID: 1, FirstOffset: 0, LastOffset: 7, LastStableOffset: 8}, {ProducerID: 2, FirstOffset: 7, LastOffset: far + 100, LastStableOffset: far + 101}}
	x := txnindex.New(s.disk, inFolder(segment.FileName(0, ".txnindex")), 0)
	for _, e := range entries {
		require.NoError(t, x.Append(e))
	}
	require.NoError(t, x.Close())
	whole := s.read(inFolder(segment.FileName(0, ".txnindex")))
	s.open()
	parts := bytes.Join([][]byte{s.read(inFolder(segment.FileName(0, ".txnindex"))), s.read(inFolder(segment.FileName(far+100, ".txnindex")))}, nil)
	require.Equal(t, whole, parts)
}

// A reader takes such a segment as it is.
func TestAReaderReadsASegmentThatOverflows(t *testing.T) {
	for name, c := range overflowing {
		for _, clean := range []bool{true, false} {
			s := overflowed(t, clean, c.files)
			before := s.files()
			r, err := OpenReader("t-0", ReaderOptions{FS: vfs.FS(s.disk)})
			require.NoError(t, err, name)
			got, err := offsetsOf(r.Records(ctx, r.Offsets().LogStart))
			require.NoError(t, err, name)
			require.Equal(t, c.offsets, got, name)
			for _, o := range c.offsets {
				got, err := offsetsOf(r.Records(ctx, o))
				require.NoError(t, err)
				require.Equal(t, o, got[0], name)
			}
			require.NoError(t, r.Close())
			require.Equal(t, before, s.files())
		}
	}
}
