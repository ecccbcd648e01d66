package segment

import (
	"encoding/binary"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// astray are base offsets, which no CRC covers, of the fifth of ten batches of three offsets each, 112 to 114.
var astray = map[string]int64{
	"down to an offset before":            104,
	"down by one":                         111,
	"down below the segment":              3,
	"up by one":                           113,
	"up into the batches behind":          119,
	"up beyond the end":                   130,
	"up beyond what the segment can name": 1 << 40,
}

// astraySegment is a segment 100 of ten batches whose batch at 112 says another base offset.
func astraySegment(t *testing.T, base int64, interval int64) *Segment {
	o := Options{FS: memFS(t), IndexIntervalBytes: interval}
	s := create(t, 100, o)
	var at int64
	for i := range int64(10) {
		if i == 4 {
			at = s.Size()
		}
		add(t, s, batchOf(t, 100+3*i, 3, 1000+i, "value"))
	}
	require.NoError(t, s.Close())
	log := fileBytes(t, o.FS, file(100, ".log"))
	binary.BigEndian.PutUint64(log[at:], uint64(base))
	setBytes(t, o.FS, file(100, ".log"), log)
	return open(t, 100, o)
}

func TestABatchWithADamagedBaseOffsetIsNeverReadOrPassedOver(t *testing.T) {
	for name, base := range astray {
		for _, interval := range []int64{1 << 20, 1, 250} { // no index entries, one each, some
			t.Run(name, func(t *testing.T) {
				got, err := offsets(astraySegment(t, base, interval))
				require.Equal(t, []int64{102, 105, 108, 111}, got)
				c := corrupt(t, err)
				require.Equal(t, int64(112), c.Offset)
				for wanted := int64(100); wanted < 130; wanted++ {
					s := astraySegment(t, base, interval)
					p, err := s.Find(wanted)
					if wanted >= 112 && wanted < 115 {
						require.Equal(t, c.Position, corrupt(t, err).Position, "wanted %d", wanted)
						continue
					}
					if err == nil {
						require.LessOrEqual(t, p.Base, wanted)
						require.GreaterOrEqual(t, p.LastOffset, wanted)
						require.NotEqual(t, c.Position, p.Pos, "wanted %d", wanted)
					} else {
						require.GreaterOrEqual(t, wanted, int64(115))
						require.Equal(t, c.Position, corrupt(t, err).Position)
					}
					first := true
					for b, err := range s.BatchesFrom(wanted) {
						if err != nil {
							require.Equal(t, c.Position, corrupt(t, err).Position)
							break
						}
						if first {
							require.LessOrEqual(t, b.BaseOffset(), wanted, "wanted %d", wanted)
						}
						require.NotEqual(t, base, b.BaseOffset())
						first = false
					}
				}
			})
		}
	}
}

func TestAScanStopsAtABatchWithADamagedBaseOffset(t *testing.T) {
	for name, base := range astray {
		t.Run(name, func(t *testing.T) {
			scan, err := astraySegment(t, base, 1).Scan(ctx, ScanOptions{Durable: 200})
			require.NoError(t, err)
			require.Equal(t, Damaged, scan.Verdict)
			require.Equal(t, int64(112), scan.NextOffset)
		})
	}
}

// Compaction leaves gaps, and a gap before bytes that are no batch is no reason to doubt the batch behind it.
func TestGapsAreLegalAlsoBeforeDamage(t *testing.T) {
	o := Options{FS: memFS(t)}
	s := create(t, 100, o)
	var starts []int64
	for _, base := range []int64{103, 110, 150, 151, 200} {
		starts = append(starts, s.Size())
		add(t, s, batchOf(t, base, 1, 1000, "value"))
	}
	require.Equal(t, []int64{103, 110, 150, 151, 200}, mustOffsets(t, s))
	require.NoError(t, s.Close())
	log := fileBytes(t, o.FS, file(100, ".log"))
	clear(log[starts[3]:starts[4]])
	setBytes(t, o.FS, file(100, ".log"), log)
	s = open(t, 100, o)
	got, err := offsets(s)
	require.Equal(t, []int64{103, 110, 150}, got)
	require.Equal(t, starts[3], corrupt(t, err).Position)
	p, err := s.Find(120)
	require.NoError(t, err)
	require.Equal(t, int64(150), p.Base)
}

// The segment knows where it ends: a last batch that is damaged while it is open reaches past that.
func TestABatchBeyondTheKnownEndIsDamage(t *testing.T) {
	o := Options{FS: memFS(t)}
	s := create(t, 100, o)
	add(t, s, batchOf(t, 100, 3, 1000, "value"))
	at := s.Size()
	add(t, s, batchOf(t, 103, 3, 1000, "value"))
	log := fileBytes(t, o.FS, file(100, ".log"))
	binary.BigEndian.PutUint64(log[at:], 104)
	f, err := o.FS.OpenFile(file(100, ".log"), os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = f.WriteAt(log[at:at+8], at)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	got, err := offsets(s)
	require.Equal(t, []int64{102}, got)
	require.Equal(t, at, corrupt(t, err).Position)
	_, err = s.Find(104)
	require.Equal(t, at, corrupt(t, err).Position)
}
