package segment

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/index"
	"github.com/partlog/partlog/vfs/vfstest"
)

// BatchesFrom and Find followed by Batches give the same, for large and small batches, gaps and ends.
func TestBatchesFromBeginsWhereFindPoints(t *testing.T) {
	for _, size := range []int{10, 3000, 9000, 20000} {
		s := create(t, 100, Options{FS: memFS(t)})
		next := int64(100)
		for i := range 40 {
			add(t, s, batchOf(t, next, 1+i%3, 1, string(noise(size+i*37))))
			next += int64(1 + i%3 + i%4)
		}
		check := func() {
			for offset := int64(99); offset <= next+1; offset++ {
				p, err := s.Find(offset)
				if err != nil {
					require.ErrorIs(t, err, ErrNotFound)
					for _, err := range s.BatchesFrom(offset) {
						require.ErrorIs(t, err, ErrNotFound)
					}
					continue
				}
				var want, got []int64
				for b, err := range s.Batches(p.Pos) {
					require.NoError(t, err)
					want = append(want, b.BaseOffset())
				}
				for b, err := range s.BatchesFrom(offset) {
					require.NoError(t, err)
					got = append(got, b.BaseOffset())
				}
				require.Equal(t, want, got, "from %d", offset)
			}
		}
		check()
		require.NoError(t, s.Seal(ctx))
		check()
	}
}

// One of many large batches costs one read of the file: its own bytes.
func TestOneLargeBatchIsReadAtOnce(t *testing.T) {
	fsys := vfstest.NewTrace(memFS(t))
	s := create(t, 0, Options{FS: fsys})
	for i := range int64(20) {
		add(t, s, batchOf(t, i*2, 2, 1, string(noise(9000))))
	}
	p, err := s.Find(25)
	require.NoError(t, err)
	fsys.Reset()
	for b, err := range s.BatchesFrom(25) {
		require.NoError(t, err)
		require.Equal(t, int64(24), b.BaseOffset())
		break
	}
	reads := fsys.Filter("*.log", vfstest.OpRead)
	require.Len(t, reads, 1, fsys.String())
	require.Equal(t, []int64{p.Pos, p.Size}, []int64{reads[0].Off, reads[0].Len})
}

// An index that points at the wrong batches does not mislead BatchesFrom, nor make it fail.
func TestBatchesFromDoesNotTrustTheIndex(t *testing.T) {
	fsys := memFS(t)
	s := create(t, 0, Options{FS: fsys})
	var at []Position
	for i := range int64(20) {
		add(t, s, batchOf(t, i*2, 2, 1, string(noise(9000))))
		p, err := s.Find(i * 2)
		require.NoError(t, err)
		at = append(at, p)
	}
	require.NoError(t, s.Close())
	require.NoError(t, fsys.Remove(file(0, ".index")))
	x, err := index.Create(file(0, ".index"), 0, index.Options{FS: fsys})
	require.NoError(t, err)
	for i := 1; i < len(at)-1; i++ { // each entry names the batch before
		require.NoError(t, x.Append(index.Entry{Offset: at[i].LastOffset, Position: at[i+1].Pos}))
	}
	require.NoError(t, x.Close())
	s = open(t, 0, Options{FS: fsys})
	for offset := range int64(40) {
		for b, err := range s.BatchesFrom(offset) {
			require.NoError(t, err)
			require.Equal(t, offset/2*2, b.BaseOffset())
			break
		}
	}
}
