package log

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/segment"
)

func TestVerdictsAfterAKill(t *testing.T) {
	garbage := bytes.Repeat([]byte{0xa5}, 40)
	for _, v := range []struct {
		name    string
		mode    Durability
		harm    func(s *site)
		end     int64
		cut     bool
		saved   bool
		damaged [2]int64 // intact ranges, if the open is refused
	}{
		{"clean", Durable, func(s *site) {}, 9, false, false, [2]int64{}},
		{"torn", Durable, func(s *site) { s.edit(logFile(6), appendBytes(batchAt(s.t, 9, 0)[:50])) }, 9, true, false, [2]int64{}},
		{"torn, buffered", Buffered, func(s *site) { s.edit(logFile(6), appendBytes(batchAt(s.t, 9, 0)[:50])) }, 9, true, false, [2]int64{}},
		{"torn with valid behind", Durable, func(s *site) {
			s.edit(logFile(6), appendBytes(append(bytes.Clone(garbage), batchAt(s.t, 9, 0)...)))
		}, 9, true, true, [2]int64{}},
		{"torn with valid behind, buffered", Buffered, func(s *site) {
			s.edit(logFile(6), appendBytes(append(bytes.Clone(garbage), batchAt(s.t, 9, 0)...)))
		}, 9, true, true, [2]int64{}},
		{"last batch of a durable log", Durable, func(s *site) { s.edit(logFile(6), flipAt(-1)) }, 0, false, false, [2]int64{8, -1}},
		{"last batch of a buffered log", Buffered, func(s *site) { s.edit(logFile(6), flipAt(-1)) }, 8, true, false, [2]int64{}},
		{"middle of a durable log", Durable, func(s *site) { s.edit(logFile(3), flipAt(-1)) }, 0, false, false, [2]int64{5, 6}},
		{"first batch of a durable log", Durable, func(s *site) { s.edit(logFile(0), flipAt(70)) }, 0, false, false, [2]int64{0, 1}},
		{"cut short at a batch", Durable, func(s *site) {
			s.edit(logFile(6), func(b []byte) []byte { return b[:len(b)/3*2] })
		}, 8, false, false, [2]int64{}},
	} {
		t.Run(v.name, func(t *testing.T) {
			s := newNine(t, v.mode)
			s.kill()
			v.harm(s)
			before := s.files()
			tail := s.read(logFile(6))
			err := s.tryOpen()
			if v.damaged != [2]int64{} {
				var c *CorruptError
				require.ErrorAs(t, err, &c)
				require.ErrorIs(t, err, ErrCorrupt)
				require.Equal(t, v.damaged, c.Intact)
				require.Empty(t, changedFiles(before, s.files()), "a refused open changes nothing")
				require.NoError(t, s.dir.Close())
				require.False(t, exists(s.disk, checkpoint.CleanMarker))
				return
			}
			require.NoError(t, err)
			s.holds(0, v.end)
			r := s.log.Recovery()
			require.False(t, r.Clean)
			require.Equal(t, v.cut, r.Cut > 0, "%+v", r)
			require.Equal(t, v.saved, len(r.Saved) > 0, "%+v", r)
			if v.saved {
				require.Equal(t, string(tail[len(tail)-int(r.Cut):]), string(s.read(r.Saved[0])))
			}
			require.Equal(t, v.cut || v.end < 9, len(r.Findings) > 0, "%+v", r)
			s.goesOn()
		})
	}
}

// A hole of a buffered log's lost writeback: the segments behind it cannot follow any more, and are kept.
func TestSegmentsBehindACutAreKeptInTheRoot(t *testing.T) {
	s := newSite(t, Config{SegmentBytes: 300, IndexIntervalBytes: EveryBatch, Durability: Buffered})
	s.add(9)
	s.kill()
	require.NoError(t, s.disk.Remove(hintFile)) // as after a broker, or a power cut before its first writeback
	last := s.read(logFile(6))
	s.edit(logFile(3), flipAt(-1))
	s.open()
	s.holds(0, 5)
	require.Equal(t, string(last), string(s.read("t-0.00000000000000000006.from-0.cut")))
	require.False(t, exists(s.disk, logFile(6)))
	require.Len(t, s.log.Recovery().Findings, 2)
	s.goesOn()
}

func TestSavedTailsNeverReplaceOneAnother(t *testing.T) {
	s := newSite(t, Config{})
	s.add(1)
	want := map[string]string{}
	for round := range 3 {
		s.kill()
		tail := append(bytes.Repeat([]byte{byte(round + 1)}, 20), batchAt(t, 1, 0)...)
		s.edit(logFile(0), appendBytes(tail))
		s.open()
		want[s.log.Recovery().Saved[0]] = string(tail)
	}
	require.Len(t, want, 3)
	for name, tail := range want {
		require.Equal(t, tail, string(s.read(name)))
	}
	s.holds(0, 1)
}

func TestARecoveryPointBehindTheEndIsPulledBack(t *testing.T) {
	s := newNine(t, Buffered)
	s.kill()
	s.write(checkpoint.RecoveryPoints, []byte("0\n1\nt 0 100\n"))
	s.open()
	s.holds(0, 9)
	require.Equal(t, FindingShort, s.log.Recovery().Findings[0].Kind)
	require.Contains(t, string(s.read(checkpoint.RecoveryPoints)), "t 0 9\n")
	s.kill()
	s.edit(logFile(6), appendBytes(batchAt(t, 9, 0)[:60]))
	s.open()
	s.holds(0, 9)
	s.goesOn()
}

// Report: B017
func TestALastBatchWithMissingSectorsIsATornTail(t *testing.T) {
	for _, zeroed := range [][]int{{1}, {2}, {1, 2}} {
		s := newSite(t, Config{Durability: Buffered})
		s.add(3)
		at := len(s.read(logFile(0)))
		_, err := s.log.Append(context.Background(), record.Record{Timestamp: 2000, Value: bytes.Repeat([]byte("x"), 1500)})
		require.NoError(t, err)
		s.kill()
		s.edit(logFile(0), func(b []byte) []byte {
			for _, sector := range zeroed {
				clear(b[(at/512+sector)*512 : min(len(b), (at/512+sector+1)*512)])
			}
			return b
		})
		s.open()
		s.holds(0, 3)
		s.goesOn()
	}
}

// Report: B018
func TestASegmentFilledToItsLimitIsNeverWrittenFromItsStart(t *testing.T) {
	size := int64(len(batchAt(t, 0, 0)))
	s := newSite(t, Config{SegmentBytes: 3 * size, Durability: Durable})
	s.add(3)
	before := s.read(logFile(0))
	require.Len(t, before, int(3*size))
	s.kill()
	s.open()
	s.add(1)
	require.Equal(t, string(before), string(s.read(logFile(0))))
	s.holds(0, 4)
}

// Report: B019
func TestMegabytesOfZerosBehindTheLogAreCut(t *testing.T) {
	s := newSite(t, Config{})
	s.add(3)
	s.kill()
	kept := len(s.read(logFile(0)))
	s.edit(logFile(0), appendBytes(make([]byte, 4<<20)))
	s.open()
	s.holds(0, 3)
	r := s.log.Recovery()
	require.Equal(t, int64(4<<20), r.Cut)
	require.Len(t, r.Findings, 1)
	require.Equal(t, logFile(0), r.Findings[0].File)
	require.Equal(t, int64(kept), r.Findings[0].Position)
	s.goesOn()
}

// Report: B021
func TestSpoiledTailsFallBackToTheEndOfWhatIsWhole(t *testing.T) {
	for name, harm := range map[string]func(s *site) int64{
		"a length that announces more than there is": func(s *site) int64 {
			s.edit(logFile(6), func(b []byte) []byte { return b[:len(b)-10] })
			return 8
		},
		"a last segment of zero bytes": func(s *site) int64 { s.write(logFile(6), nil); return 6 },
		"a last segment whose first batch is bad": func(s *site) int64 {
			s.edit(logFile(6), func(b []byte) []byte { return flipAt(30)(b[:len(b)/3]) })
			return 6
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newNine(t, Buffered)
			s.kill()
			require.NoError(t, s.disk.Remove(hintFile))
			end := harm(s)
			s.open()
			s.holds(0, end)
			s.goesOn()
		})
	}
}

// Report: B022, B028, B031
func TestDamageInAMiddleSegmentLeavesTheLaterOnesAlone(t *testing.T) {
	s := newSite(t, nineRecords(Durable))
	s.add(15)
	require.NoError(t, s.log.Sync(context.Background()))
	s.kill()
	s.edit(logFile(6), flipAt(-1))
	s.edit(logFile(12), appendBytes([]byte("torn")))
	s.open() // below the recovery point nobody looks: reading does
	require.Equal(t, int64(15), s.log.Offsets().LogEnd)
	var got []int64
	var failed error
	for r, err := range s.log.Records(context.Background(), 0) {
		if failed = err; err != nil {
			break
		}
		got = append(got, r.Offset)
	}
	require.Len(t, got, 8, "Report: B028: never skipped silently")
	var c *CorruptError
	require.ErrorAs(t, failed, &c)
	require.Equal(t, [2]int64{8, 9}, c.Intact)
	next := int64(9)
	for r, err := range s.log.Records(context.Background(), 9) {
		require.NoError(t, err)
		require.Equal(t, next, r.Offset)
		next++
	}
	require.Equal(t, int64(15), next)
	require.Equal(t, int64(15), s.log.Offsets().LogEnd, "Report: B031")
}

// Report: B024
func TestARemovedMiddleSegmentIsAGapAndNoMore(t *testing.T) {
	s := newNine(t, Durable)
	s.stop()
	for _, kind := range []string{".log", ".index", ".timeindex"} {
		require.NoError(t, s.disk.Remove(inFolder(segment.FileName(3, kind))))
	}
	for _, stop := range []func(){s.stop, s.kill} {
		s.open()
		var got []int64
		for r, err := range s.log.Records(context.Background(), 0) {
			require.NoError(t, err)
			got = append(got, r.Offset)
		}
		require.Equal(t, []int64{0, 1, 2, 6, 7, 8}, got)
		stop()
	}
}

// Report: B025
func TestAValidBatchOfThePastIsNotAdopted(t *testing.T) {
	s := newNine(t, Buffered)
	s.kill()
	s.edit(logFile(6), appendBytes(batchAt(t, 4, 0)))
	s.open()
	s.holds(0, 9)
	s.goesOn()

	s = newNine(t, Buffered)
	s.kill()
	s.edit(logFile(6), appendBytes(batchAt(t, 30, 0)))
	s.open()
	require.Equal(t, int64(31), s.log.Offsets().LogEnd, "a gap is legal")
	s.add(1)
}

// Report: B029
func TestDurableNeverRunsAheadOfTheDevice(t *testing.T) {
	for _, mode := range []Durability{Durable, Buffered} {
		s := newSite(t, nineRecords(mode))
		s.add(2)
		require.NoError(t, s.log.Sync(context.Background()))
		s.add(5)
		durable := s.log.Offsets().Durable
		for seed := range uint64(50) {
			lost := &site{t: t, disk: s.disk.PowerLoss(seed), cfg: s.cfg}
			lost.open()
			require.GreaterOrEqual(t, lost.log.Offsets().LogEnd, durable)
		}
		require.Equal(t, mode == Durable, durable == 7)
	}
}

// Report: B030
func TestAppendsBehindATornTailAreReachableAfterTheNextCrash(t *testing.T) {
	s := newSite(t, Config{})
	s.add(1)
	s.kill()
	s.edit(logFile(0), appendBytes(batchAt(t, 1, 0)[:40]))
	s.open()
	s.add(2)
	s.kill()
	s.open()
	s.holds(0, 3)
	require.Zero(t, s.log.Recovery().Cut)
	require.Len(t, s.read(logFile(0)), 3*len(batchAt(t, 0, 0)))
}

// Report: B032
func TestImpossibleLengthsAreATornTail(t *testing.T) {
	for _, length := range []int32{-1, -1 << 31, 1<<31 - 1, 0, 13} {
		s := newSite(t, Config{})
		s.add(2)
		s.kill()
		bad := batchAt(t, 2, 0)
		binary.BigEndian.PutUint32(bad[8:], uint32(length))
		s.edit(logFile(0), appendBytes(bad))
		s.open()
		s.holds(0, 2)
		s.goesOn()
	}
}

func TestAStaleHistoryIsDamageNotContinuation(t *testing.T) {
	for name, harm := range map[string]func(s *site){
		"a segment that overlaps the one before it": func(s *site) {
			s.write(logFile(8), append(batchAt(s.t, 8, 0), batchAt(s.t, 9, 0)...))
		},
		"leader epochs that fall": func(s *site) {
			s.write(logFile(9), append(batchAt(s.t, 9, 0), batchAt(s.t, 10, 0)...))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, nineRecords(Durable))
			require.NoError(t, s.log.AssignEpoch(3))
			s.add(9)
			s.kill()
			harm(s)
			before := s.files()
			require.ErrorIs(t, s.tryOpen(), ErrCorrupt)
			changed := changedFiles(before, s.files())
			changed = slices.DeleteFunc(changed, func(name string) bool { return strings.HasSuffix(name, "index") })
			require.Empty(t, changed, "only indexes of whole segments may have been made anew")
		})
	}
}

// Kafka's procedure table of crash points, those that need no producers or compaction.
func TestCrashPointsOfKafkasTable(t *testing.T) {
	for _, row := range []struct {
		name string
		harm func(s *site)
		from int64
		end  int64
	}{
		{"record written, index not", func(s *site) { s.write(inFolder(segment.FileName(6, ".index")), nil) }, 0, 9},
		{"half a batch written", func(s *site) { s.edit(logFile(6), appendBytes(batchAt(s.t, 9, 0)[:33])) }, 0, 9},
		{"rolled, the old index not trimmed", func(s *site) {
			s.edit(inFolder(segment.FileName(3, ".index")), appendBytes(make([]byte, 4096)))
			s.edit(inFolder(segment.FileName(3, ".timeindex")), appendBytes(make([]byte, 4092)))
		}, 0, 9},
		{"recovery point older than the truth", func(s *site) { s.write(checkpoint.RecoveryPoints, []byte("0\n1\nt 0 1\n")) }, 0, 9},
		{"start offset older than the truth", func(s *site) { require.NoError(s.t, removeIfThere(s.disk, checkpoint.LogStarts)) }, 0, 9},
		{"high watermark older than the truth", func(s *site) { s.write(checkpoint.HighWatermarks, []byte("0\n1\nt 0 2\n")) }, 0, 9},
		{"too many epochs", func(s *site) {
			s.write(inFolder(checkpoint.LeaderEpochs), []byte("0\n3\n0 0\n5 9\n7 30\n"))
		}, 0, 9},
		{"a deletion not finished", func(s *site) { s.write(logFile(30)+".deleted", []byte("x")) }, 0, 9},
		{"a garbled producer snapshot", func(s *site) { s.write(inFolder("00000000000000000009.snapshot"), []byte("x")) }, 0, 9},
	} {
		t.Run(row.name, func(t *testing.T) {
			for _, mode := range []Durability{Durable, Buffered} {
				s := newNine(t, mode)
				s.kill()
				row.harm(s)
				s.open()
				s.holds(row.from, row.end)
				require.Equal(t, []EpochEntry{{0, 0}}, s.log.Epochs())
				require.False(t, exists(s.disk, logFile(30)+".deleted"))
				s.goesOn()
			}
		})
	}
}

// Scenario: R017
func TestGarbageBehindLogAndIndexesIsCutTenTimes(t *testing.T) {
	s := newSite(t, nineRecords(Buffered))
	for round := range 10 {
		s.add(5)
		s.kill()
		base := s.lastBase()
		junk := []byte(strings.Repeat(fmt.Sprintf("junk %d ", round), 1+round*3))
		s.edit(logFile(base), appendBytes(junk))
		s.edit(inFolder(segment.FileName(base, ".index")), appendBytes(junk))
		s.edit(inFolder(segment.FileName(base, ".timeindex")), appendBytes(junk))
		s.open()
		s.holds(0, int64(round+1)*5)
	}
	s.goesOn()
}

func TestWhatIsCutFromALogOfTheLongestNameIsSavedAndTheOpenEnds(t *testing.T) {
	root, tp := t.TempDir(), TopicPartition{Topic: strings.Repeat("t", 249)}
	for round := range 3 {
		d, err := OpenDir(root, DirConfig{})
		require.NoError(t, err)
		l, err := d.Open(t.Context(), tp, Config{Durability: Buffered})
		require.NoError(t, err)
		require.Len(t, l.Recovery().Saved, min(round, 1))
		for _, name := range l.Recovery().Saved {
			_, err := os.Stat(filepath.Join(root, name))
			require.NoError(t, err)
		}
		_, err = l.Append(t.Context(), record.Record{Value: []byte("v")})
		require.NoError(t, err)
		end := l.Offsets().LogEnd
		require.NoError(t, d.Close())
		require.NoError(t, os.Remove(filepath.Join(root, checkpoint.CleanMarker)))
		file := filepath.Join(root, tp.String(), segment.FileName(0, ".log"))
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(file, append(append(b, bytes.Repeat([]byte("bad"), 40)...), batchAt(t, end, 0)...), 0o644))
	}
	saved, err := filepath.Glob(filepath.Join(root, "*.cut*"))
	require.NoError(t, err)
	require.Len(t, saved, 2)
}
