package log

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// Scenario: R001, R027. The marker decides whether a start is clean, and is gone before anything is loaded.
func TestTheMarkerDecidesAndIsGoneWhileTheRootIsOpen(t *testing.T) {
	for _, content := range []string{`{"version":0,"brokerEpoch":7}`, "", "garbage"} {
		s := newNine(t, Durable)
		s.stop()
		s.write(checkpoint.CleanMarker, []byte(content))
		require.NoError(t, removeIfThere(s.disk, checkpoint.RecoveryPoints)) // R027: not even a recovery point of 0 makes it scan
		d, err := OpenDir("root", DirConfig{Manual: true, FS: s.disk})
		require.NoError(t, err)
		epoch, clean := d.CleanShutdown()
		require.True(t, clean)
		require.Equal(t, content != "" && content != "garbage", epoch == 7)
		require.False(t, exists(s.disk, checkpoint.CleanMarker))
		l, err := d.Open(context.Background(), crashTP, s.cfg)
		require.NoError(t, err)
		require.True(t, l.Recovery().Clean)
		require.Zero(t, l.Recovery().Scanned)
		s.kill()
		s.open()
		require.False(t, s.log.Recovery().Clean)
		require.Positive(t, s.log.Recovery().Scanned)
		s.holds(0, 9)
	}
}

// Scenario: R001
func TestAFailedLoadLeavesTheNextStartUnclean(t *testing.T) {
	s := newNine(t, Durable)
	s.stop()
	faulty := vfstest.NewFault(s.disk, vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpReadDir}, Name: "t-0", Err: context.DeadlineExceeded})
	d, err := OpenDir("root", DirConfig{Manual: true, FS: faulty})
	require.NoError(t, err)
	_, err = d.Open(context.Background(), crashTP, s.cfg)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	l, err := d.Open(context.Background(), crashTP, s.cfg)
	require.NoError(t, err, "the next try in the same root")
	require.False(t, l.Recovery().Clean)
	require.NoError(t, d.Close())
	s.open()
	require.True(t, s.log.Recovery().Clean)

	s.stop()
	faulty = vfstest.NewFault(s.disk, vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpReadDir}, Name: "t-0", Err: context.DeadlineExceeded})
	d, err = OpenDir("root", DirConfig{Manual: true, FS: faulty})
	require.NoError(t, err)
	_, err = d.Open(context.Background(), crashTP, s.cfg)
	require.Error(t, err)
	require.NoError(t, d.Close())
	require.False(t, exists(s.disk, checkpoint.CleanMarker))
	s.open()
	require.False(t, s.log.Recovery().Clean)
	s.holds(0, 9)
}

// Each small file is lost or garbled, after a clean stop and after a kill: the log opens with all records, falls back to
// the safe side and says so.
func TestLostAndGarbledSmallFilesOpenOnTheSafeSide(t *testing.T) {
	garbles := map[string][]byte{
		"gone": nil, "empty": {}, "zeros": make([]byte, 64), "version 7": []byte("7\n0\n"), "short": []byte("0\n5\nt 0 1\n"),
		"text": []byte("once upon a time\n"), "not numbers": []byte("0\n1\nt 0 many\n"), "negative": []byte("0\n1\nt 0 -4\n"),
	}
	files := map[string]string{checkpoint.RecoveryPoints: FindingCheckpoint, checkpoint.LogStarts: FindingCheckpoint, checkpoint.HighWatermarks: FindingCheckpoint,
		inFolder(checkpoint.LeaderEpochs): FindingEpochs, inFolder(checkpoint.Metadata): FindingMetadata, hintFile: "", checkpoint.CleanerOffsets: ""}
	for name, kind := range files {
		for what, content := range garbles {
			for _, clean := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s %s, clean %v", path.Base(name), what, clean), func(t *testing.T) {
					s := newNine(t, Durable)
					require.NoError(t, s.log.DeleteRecords(context.Background(), 1))
					require.NoError(t, s.log.AssignEpoch(4))
					s.add(3)
					if clean {
						s.stop()
					} else {
						s.kill()
					}
					if content == nil {
						require.NoError(t, removeIfThere(s.disk, name))
					} else {
						s.write(name, content)
					}
					s.open()
					start := int64(1)
					if name == checkpoint.LogStarts {
						start = 0
					}
					s.holds(start, 12)
					require.Equal(t, []EpochEntry{{0, 1}, {4, 9}}, s.log.Epochs(), "as Kafka keeps them, whatever became of the log start")
					malformed := what != "gone" && what != "empty" && what != "negative"
					if kind == FindingMetadata && what == "empty" {
						malformed = true
					}
					if kind == FindingEpochs && what == "negative" {
						malformed = true
					}
					if kind == FindingMetadata && what == "negative" {
						malformed = true
					}
					var kinds []string
					for _, f := range s.log.Recovery().Findings {
						kinds = append(kinds, f.Kind)
					}
					if kind != "" && malformed {
						require.Contains(t, kinds, kind)
					} else {
						require.Empty(t, kinds)
					}
					s.add(1)
					s.stop()
					s.open()
					s.holds(start, 13)
				})
			}
		}
	}
}

// Kafka's rules for what interrupted work leaves, one row each. Scenario: R014, R025
func TestLeftoversOfInterruptedWorkAreSettled(t *testing.T) {
	three := func(t *testing.T, base int64) []byte {
		return append(append(batchAt(t, base, 0), batchAt(t, base+1, 0)...), batchAt(t, base+2, 0)...)
	}
	for _, row := range []struct {
		name string
		make func(s *site)
		want []int64 // segment bases afterwards
		held int64
	}{
		{"deletion not finished", func(s *site) {
			for _, k := range []string{".log", ".index", ".timeindex", ".txnindex", ".snapshot"} {
				s.write(inFolder(segment.FileName(6, k)+".deleted"), []byte("x"))
			}
		}, []int64{0, 3, 6}, 9},
		{"small files not renamed", func(s *site) {
			s.write(inFolder(checkpoint.LeaderEpochs+".tmp"), []byte("x"))
			s.write(inFolder(segment.FileName(6, ".index")+".tmp"), []byte("x"))
		}, []int64{0, 3, 6}, 9},
		{"cleaning not finished", func(s *site) {
			s.write(inFolder(segment.FileName(0, ".log")+".cleaned"), three(s.t, 0)[:90])
			s.write(inFolder(segment.FileName(0, ".index")+".cleaned"), nil)
		}, []int64{0, 3, 6}, 9},
		{"split not finished: its swap files go with it", func(s *site) {
			s.write(inFolder(segment.FileName(0, ".log")+".cleaned"), three(s.t, 0))
			s.write(inFolder(segment.FileName(3, ".log")+".swap"), three(s.t, 3))
		}, []int64{0, 3, 6}, 9},
		{"swap complete: it replaces what it covers", func(s *site) {
			s.write(inFolder(segment.FileName(0, ".log")+".swap"), append(three(s.t, 0), three(s.t, 3)...))
			s.write(inFolder(segment.FileName(0, ".index")+".swap"), nil)
			s.write(inFolder(segment.FileName(0, ".timeindex")+".swap"), nil)
			s.write(inFolder(segment.FileName(5, ".snapshot")), []byte("x"))
		}, []int64{0, 6}, 9},
		{"swap below an unfinished cleaning", func(s *site) {
			s.write(inFolder(segment.FileName(0, ".log")+".swap"), three(s.t, 0))
			s.write(inFolder(segment.FileName(6, ".log")+".cleaned"), three(s.t, 6))
		}, []int64{0, 3, 6}, 9},
		{"swap whose old segment is gone", func(s *site) { // Scenario: R025
			s.write(inFolder(segment.FileName(3, ".log")+".swap"), three(s.t, 3))
			require.NoError(s.t, s.disk.Remove(logFile(3)))
		}, []int64{0, 3, 6}, 9},
		{"an index without its log", func(s *site) { // Scenario: R014
			for _, k := range []string{".index", ".timeindex", ".txnindex"} {
				s.write(inFolder(segment.FileName(4, k)), []byte("x"))
			}
		}, []int64{0, 3, 6}, 9},
	} {
		for _, clean := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, clean %v", row.name, clean), func(t *testing.T) {
				s := newNine(t, Durable)
				if clean {
					s.stop()
				} else {
					s.kill()
				}
				row.make(s)
				left := s.disk.Kill()
				s.open()
				s.holds(0, row.held)
				require.Equal(t, row.want, basesOf(s.log))
				s.noLeftovers()
				s.goesOn()
				// A crash inside settling settles to the same.
				start := expect{starts: []int64{0}, floor: row.held, sparse: 99}
				for o := range row.held {
					r := siteRecord(o)
					start.line = append(start.line, wrote{base: o, last: o, time: r.Timestamp, value: string(r.Value)})
				}
				left.Mark()
				again := &site{t: t, disk: left, cfg: s.cfg}
				again.open()
				for d := range left.Disks(vfstest.DiskOptions{Limit: 16, Samples: 4, Cuts: 1}) {
					in := &site{t: t, disk: d.FS(), cfg: s.cfg}
					require.NoError(t, in.tryOpen(), d.Describe())
					found, err := survivors(in.log)
					require.NoError(t, err)
					require.NoError(t, start.admits(in.log.Offsets(), found, in.log.Epochs()), d.Describe())
					in.noLeftovers()
				}
			})
		}
	}
}

func (s *site) noLeftovers() {
	s.t.Helper()
	for name := range s.files() {
		for _, suffix := range []string{".deleted", ".cleaned", ".swap", ".tmp"} {
			require.False(s.t, strings.HasSuffix(name, suffix), name)
		}
		if base, ok := strings.CutSuffix(name, "index"); ok {
			base = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(base, "time"), "txn"), ".")
			require.True(s.t, exists(s.disk, base+".log"), name)
		}
	}
}

// Scenario: R011, R012. Every way an index can be wrong, clean or not: all look-ups are right.
func TestLookupsAreRightWhateverTheIndexesHold(t *testing.T) {
	for what, harm := range map[string]func([]byte) []byte{
		"gone": nil, "empty": func([]byte) []byte { return nil }, "zeros": func(b []byte) []byte { clear(b); return b },
		"odd": func(b []byte) []byte { return append(b, 1, 2, 3) }, "garbage": func([]byte) []byte { return bytes.Repeat([]byte{0xfe}, 60) },
		"padded": func(b []byte) []byte { return append(b, make([]byte, 12*8*10)...) }, "pre-sized": func([]byte) []byte { return make([]byte, 12*8*20) },
	} {
		for _, kind := range []string{".index", ".timeindex"} {
			for _, clean := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s %s, clean %v", kind, what, clean), func(t *testing.T) {
					s := newNine(t, Durable)
					require.NoError(t, s.log.Sync(context.Background()))
					if clean {
						s.stop()
					} else {
						s.kill()
					}
					for _, base := range []int64{0, 3, 6} {
						name := inFolder(segment.FileName(base, kind))
						if harm == nil {
							require.NoError(t, removeIfThere(s.disk, name))
						} else {
							s.edit(name, harm)
						}
					}
					s.open()
					s.holds(0, 9)
					for o := range int64(9) {
						for b, err := range s.log.Batches(context.Background(), o) {
							require.NoError(t, err)
							require.Equal(t, o, b.BaseOffset())
							break
						}
						at, err := s.log.OffsetForTime(context.Background(), time.UnixMilli(1000+o))
						require.NoError(t, err)
						require.Equal(t, o, at.Offset)
					}
					_, err := s.log.OffsetForTime(context.Background(), time.UnixMilli(5000))
					require.ErrorIs(t, err, ErrNotFound)
					s.goesOn()
				})
			}
		}
	}
}

// Scenario: R010
func TestReopeningAtTheEndKeepsTheIndexes(t *testing.T) {
	s := newSite(t, nineRecords(Durable))
	s.add(100)
	s.stop()
	before := s.files()
	s.open()
	require.Equal(t, int64(100), s.log.Offsets().RecoveryPoint)
	s.stop()
	for name, b := range before {
		if name != checkpoint.CleanMarker {
			require.Equal(t, b, s.files()[name], name)
		}
	}
	s.write(checkpoint.RecoveryPoints, []byte("0\n1\nt 0 10\n"))
	require.NoError(t, s.disk.Remove(checkpoint.CleanMarker))
	s.open()
	require.Equal(t, int64(10), s.log.Offsets().RecoveryPoint, "until the next flush")
	require.NoError(t, s.log.Sync(context.Background()))
	require.Equal(t, int64(100), s.log.Offsets().RecoveryPoint)
}

// Scenario: R028
func TestEpochsLostInTheCacheComeBackFromTheBatches(t *testing.T) {
	for _, recovery := range []string{"0\n1\nt 0 0\n", "0\n1\nt 0 4\n"} {
		s := newSite(t, nineRecords(Durable))
		for i, epoch := range []int32{1, 2, 3} {
			require.NoError(t, s.log.AssignEpoch(epoch))
			s.add(1 + i)
		}
		want := s.log.Epochs()
		require.Equal(t, []EpochEntry{{1, 0}, {2, 1}, {3, 3}}, want)
		s.kill()
		s.write(checkpoint.RecoveryPoints, []byte(recovery))
		for _, content := range []string{"0\n0\n", "0\n1\n1 0\n", "0\n1\n3 3\n", "junk"} {
			s.write(inFolder(checkpoint.LeaderEpochs), []byte(content))
			s.open()
			require.Equal(t, want, s.log.Epochs(), "%q", content)
			require.Equal(t, "0\n3\n1 0\n2 1\n3 3\n", string(s.read(inFolder(checkpoint.LeaderEpochs))))
			s.kill()
		}
	}
}

// TestEpochsThatBeginWhereALostLogStartWasStay: a broker deletes records inside of an epoch and is killed before the log start is
// in its checkpoint.
func TestEpochsThatBeginWhereALostLogStartWasStay(t *testing.T) {
	for _, content := range []string{"0\n1\n3 4\n", "0\n2\n2 2\n3 3\n"} {
		s := newSite(t, nineRecords(Durable))
		for i, epoch := range []int32{1, 2, 3} {
			require.NoError(t, s.log.AssignEpoch(epoch))
			s.add(1 + i)
		}
		s.add(1)
		s.kill()
		killed := s.disk
		for _, recovered := range []int64{0, 3} { // from the start on, and from the second segment on
			s.disk = killed.Kill()
			s.write(checkpoint.RecoveryPoints, fmt.Appendf(nil, "0\n1\nt 0 %d\n", recovered))
			s.write(inFolder(checkpoint.LeaderEpochs), []byte(content))
			for range 2 {
				s.open()
				require.Equal(t, content, string(s.read(inFolder(checkpoint.LeaderEpochs))), recovered)
				s.stop()
			}
		}
		require.Empty(t, verifyAll(t, s.disk, VerifyOptions{}))
	}
}

func TestEpochsOfBatchesThatCannotBeReadStayWhenOthersAreMadeAnew(t *testing.T) {
	for _, row := range []struct {
		content string // which begins above the log
		damaged []int64
	}{
		{"0\n1\n3 3\n", []int64{3}},
		{"0\n2\n2 1\n3 3\n", []int64{0, 3}},
	} {
		s := newSite(t, nineRecords(Durable))
		for i, epoch := range []int32{1, 2, 3} {
			require.NoError(t, s.log.AssignEpoch(epoch))
			s.add(1 + i)
		}
		want := s.log.Epochs()
		s.stop()
		s.write(inFolder(checkpoint.LeaderEpochs), []byte(row.content))
		for _, base := range row.damaged {
			s.edit(logFile(base), func(b []byte) []byte { b[len(b)*int(2-base/3)/3-3] ^= 1; return b })
		}
		s.open()
		require.Equal(t, want, s.log.Epochs(), row.content)
	}
}

func TestANewFolderForgetsWhatTheRootSaidOfAnOldOne(t *testing.T) {
	s := newNine(t, Durable)
	require.NoError(t, s.log.DeleteRecords(context.Background(), 5))
	s.stop()
	for name := range s.files() {
		if path.Dir(name) == crashTP.String() {
			require.NoError(t, s.disk.Remove(name))
		}
	}
	require.NoError(t, s.disk.Remove(crashTP.String()))
	s.open()
	s.holds(0, 0)
	s.kill()
	s.open()
	s.holds(0, 0)
	s.goesOn()
}

func TestAnEmptyFolderAndAnEmptySegmentAreEmptyLogs(t *testing.T) {
	for name, harm := range map[string]func(s *site){
		"a folder without files":  func(s *site) { require.NoError(s.t, s.disk.MkdirAll("t-0", 0o755)) },
		"a segment without bytes": func(s *site) { require.NoError(s.t, s.disk.MkdirAll("t-0", 0o755)); s.write(logFile(0), nil) },
		"a segment of nothing but junk": func(s *site) {
			require.NoError(s.t, s.disk.MkdirAll("t-0", 0o755))
			s.write(logFile(0), []byte("junk"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &site{t: t, disk: vfstest.NewCrash(vfstest.CrashOptions{Now: crashClock}), cfg: nineRecords(Durable)}
			harm(s)
			s.open()
			s.holds(0, 0)
			s.goesOn()
		})
	}
}

// A broker's unclean stop leaves both indexes of the active segment at their full, zero-filled size.
func TestAPreSizedActiveSegmentOfABrokerOpens(t *testing.T) {
	s := newNine(t, Durable)
	s.kill()
	s.edit(inFolder(segment.FileName(6, ".index")), func(b []byte) []byte { return append(b, make([]byte, 10<<20-len(b))...) })
	s.edit(inFolder(segment.FileName(6, ".timeindex")), func(b []byte) []byte { return append(b, make([]byte, 10<<20/12*12-len(b))...) })
	s.edit(logFile(6), appendBytes(make([]byte, 1000)))
	s.open()
	s.holds(0, 9)
	require.Equal(t, int64(1000), s.log.Recovery().Cut)
	s.goesOn()
}

func TestATailBehindACleanStopIsCut(t *testing.T) {
	s := newNine(t, Durable)
	s.stop()
	s.edit(logFile(6), appendBytes(batchAt(t, 9, 0)[:44]))
	s.open()
	require.True(t, s.log.Recovery().Clean)
	s.holds(0, 9)
	require.Equal(t, int64(44), s.log.Recovery().Cut)
	s.goesOn()
}

func TestProducerSnapshotsAreKeptByteForByte(t *testing.T) {
	s := newNine(t, Durable)
	s.stop()
	for _, o := range []int64{3, 6, 9} {
		require.True(t, exists(s.disk, inFolder(segment.FileName(o, ".snapshot"))))
	}
	s.write(inFolder(segment.FileName(3, ".txnindex")), binary.BigEndian.AppendUint64(make([]byte, 2), 1))
	before := s.files()
	s.open()
	s.stop()
	after := s.files()
	for name, b := range before {
		if name != checkpoint.CleanMarker {
			require.Equal(t, b, after[name], name)
		}
	}
	s.open()
	_, err := s.log.Truncate(context.Background(), 7)
	require.NoError(t, err)
	require.True(t, exists(s.disk, inFolder(segment.FileName(6, ".snapshot"))))
	require.False(t, exists(s.disk, inFolder(segment.FileName(9, ".snapshot"))))
}

func TestNoFolderOpensTwiceAndNoIteratorSeesAHole(t *testing.T) {
	s := newNine(t, Durable)
	again, err := s.dir.Open(context.Background(), crashTP, Config{SegmentBytes: 1 << 20})
	require.NoError(t, err)
	require.Same(t, s.log, again)
	_, err = s.dir.Open(context.Background(), TopicPartition{"bad topic", 0}, Config{})
	require.Error(t, err)
	_, err = OpenDir("root", DirConfig{Manual: true, FS: s.disk})
	require.ErrorIs(t, err, vfs.ErrLocked)
	require.ErrorIs(t, err, ErrLocked)
}
