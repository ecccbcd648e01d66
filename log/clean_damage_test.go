package log

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/compaction"
	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/vfs"
)

// fieldOf names the header field of a batch of magic 2 that a byte belongs to.
func fieldOf(at int) string {
	name := ""
	for _, f := range []struct {
		at   int
		name string
	}{{0, "base offset"}, {8, "length"}, {12, "leader epoch"}, {16, "magic"}, {17, "crc"}, {21, "attributes"}, {23, "last offset delta"},
		{27, "base timestamp"}, {35, "max timestamp"}, {43, "producer id"}, {51, "producer epoch"}, {53, "base sequence"}, {57, "records"}} {
		if at >= f.at {
			name = f.name
		}
	}
	return name
}

// flipBits changes bits of one byte in the header of the batch at pos of a .log; a checksum that covers them is made to fit.
func flipBits(t *testing.T, fsys vfs.FS, file string, pos int64, at int, bits byte) {
	f, err := fsys.OpenFile(file, os.O_RDWR, 0)
	require.NoError(t, err)
	head := make([]byte, record.HeaderSize)
	_, err = f.ReadAt(head, pos)
	require.NoError(t, err)
	raw := make([]byte, 12+binary.BigEndian.Uint32(head[8:]))
	_, err = f.ReadAt(raw, pos)
	require.NoError(t, err)
	raw[at] ^= bits
	if at >= 21 {
		binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	}
	_, err = f.WriteAt(raw, pos)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

// seen is what a reader from the start sees, passing over each segment that it cannot read to its end.
func (b *bed) seen() (recs []string, last map[string]string, broken []string) {
	last = map[string]string{}
	bases := b.bases()
	for i := range bases {
		to := b.Offsets().LogEnd
		if i+1 < len(bases) {
			to = bases[i+1]
		}
		from := max(bases[i], b.Offsets().LogStart)
		if from >= to {
			continue
		}
		for r, err := range b.Records(ctx, from, WithMaxOffset(to)) {
			if err != nil {
				bad, _ := errors.AsType[*CorruptError](err)
				if bad == nil {
					b.t.Fatal(err)
				}
				broken = append(broken, bad.File)
				break
			}
			recs = append(recs, fmt.Sprintf("%d %s=%s@%d", r.Offset, r.Key, r.Value, r.Timestamp))
			last[string(r.Key)] = fmt.Sprintf("%d=%s", r.Offset, r.Value)
		}
	}
	return recs, last, broken
}

func (b *bed) logBytes() map[string]string {
	all := map[string]string{}
	for _, name := range b.folder(".log") {
		raw, err := vfs.ReadFile(b.fs, "t-0/"+name, 1<<20)
		require.NoError(b.t, err)
		all[name] = string(raw)
	}
	return all
}

// The damage of every header field of a batch in every place: compaction refuses what readers refuse, and where it refuses
// nothing behind that place changes. What it accepts loses no key.
func TestCompactionRefusesADamagedBatchWhereverItIs(t *testing.T) {
	const sealed, perSegment = 4, 3
	base := vfs.Mem()
	var at [sealed][perSegment]int64 // positions of batches
	var first [sealed][perSegment]int64
	func() {
		b := newBedOn(t, base, compacting)
		for s := range sealed {
			for i := range perSegment {
				at[s][i], first[s][i] = b.SegmentInfos()[s].Bytes, b.Offsets().LogEnd
				k := fmt.Sprintf("s%d-%d", s, i)
				b.put(k, "v", "k", fmt.Sprint(s, i), fmt.Sprintf("k%d", i), fmt.Sprint(s))
			}
			require.NoError(t, b.Roll(ctx))
		}
		b.put("end", "1")
		require.NoError(t, b.dir.points.store(ctx, checkpoint.CleanerOffsets, b.tp, 18)) // two of the four are clean
		require.NoError(t, b.dir.Close())
	}()
	for _, grouped := range []bool{true, false} {
		for s := range sealed {
			for i := range perSegment {
				for byteAt := range record.HeaderSize {
					for _, bits := range []byte{1, 0x80, 2, 4} {
						if bits&6 != 0 && fieldOf(byteAt) != "base offset" && fieldOf(byteAt) != "last offset delta" {
							continue
						}
						name := fmt.Sprintf("grouped %v, segment %d, batch %d, %s, byte %d ^ %#x", grouped, s, i, fieldOf(byteAt), byteAt, bits)
						c := compacting
						if !grouped {
							c.SegmentBytes = 400
						}
						b := &bed{t: t, fs: vfs.Overlay(base), cfg: c, clock: &clock{}}
						b.clock.ms.Store(epoch2023)
						file := segment.FileName(first[s][0], ".log")
						flipBits(t, b.fs, "t-0/"+file, at[s][i], byteAt, bits)
						b.open()
						checkDamagedClean(t, b, name, file, at[s][:], i, first[s][:], byteAt < 8)
						require.NoError(t, b.dir.Close(), name)
					}
				}
			}
		}
	}
}

func checkDamagedClean(t *testing.T, b *bed, name, file string, at []int64, i int, first []int64, place bool) {
	before, last, broken := b.seen()
	raw := b.logBytes()
	_, err := b.Compact(ctx, CompactOptions{Force: true})
	if err == nil {
		require.Empty(t, broken, "%s: a reader refuses it", name)
		_, now, broken := b.seen()
		require.Empty(t, broken, name)
		require.Equal(t, last, now, name)
		return
	}
	if place {
		require.Equal(t, []string{"t-0/" + file}, broken, "%s: readers take it, compaction does not: %v", name, err)
	}
	var bad *compaction.UncleanableError
	require.ErrorAs(t, err, &bad, name)
	require.Equal(t, "t-0/"+file, bad.File, "%s: %v", name, err)
	near := i
	if i+1 < len(at) && bad.Position == at[i+1] { // of two that contradict each other it may be either
		near = i + 1
	}
	require.Equal(t, at[near], bad.Position, "%s: %v", name, err)
	require.Contains(t, []int64{first[i], bad.Offset}, bad.Offset, "%s: %v", name, err)
	require.GreaterOrEqual(t, bad.Offset, int64(0), "%s: %v", name, err)
	after := b.logBytes()
	for f, was := range raw {
		if f >= file {
			require.Equal(t, was, after[f], "%s: %s: %v", name, f, err)
		}
	}
	for f := range after {
		require.Contains(t, raw, f, "%s", name)
	}
	now, lastNow, _ := b.seen()
	require.Equal(t, last, lastNow, name)
	kept := map[string]bool{}
	for _, r := range before {
		kept[r] = true
	}
	for _, r := range now {
		require.True(t, kept[r], "%s: %s was not there", name, r)
	}
	require.Empty(t, b.folder(".cleaned"), name)
}
