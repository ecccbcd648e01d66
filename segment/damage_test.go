package segment

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/partlog/partlog/record"

	"github.com/stretchr/testify/require"
)

// damage garbles a log of ten one-record batches. keep is the number of batches in front of the bad bytes.
type damage struct {
	name    string
	garble  func(log []byte, starts []int64) []byte
	keep    int
	behind  int // whole batches behind the bad bytes
	verdict Verdict
}

func noise(n int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

var damages = []damage{
	{"untouched", func(b []byte, at []int64) []byte { return b }, 10, 0, Clean},
	{"one stray byte", func(b []byte, at []int64) []byte { return append(b, 0) }, 10, 0, Torn},
	{"seventeen stray bytes", func(b []byte, at []int64) []byte { return append(b, make([]byte, 17)...) }, 10, 0, Torn},
	{"torn header", func(b []byte, at []int64) []byte { return b[:at[9]+11] }, 9, 0, Torn},
	{"header without magic", func(b []byte, at []int64) []byte { return b[:at[9]+16] }, 9, 0, Torn},
	{"torn body", func(b []byte, at []int64) []byte { return b[:len(b)-1] }, 9, 0, Torn},
	{"only a header", func(b []byte, at []int64) []byte { return b[:at[9]+61] }, 9, 0, Torn},
	{"bad CRC of the last batch", func(b []byte, at []int64) []byte { b[at[9]+30] ^= 1; return b }, 9, 0, Torn},
	{"zeros behind", func(b []byte, at []int64) []byte { return append(b, make([]byte, 4<<20)...) }, 10, 0, Torn},
	{"0xff behind", func(b []byte, at []int64) []byte { return append(b, bytes.Repeat([]byte{0xff}, 5000)...) }, 10, 0, Torn},
	{"noise behind", func(b []byte, at []int64) []byte { return append(b, noise(300_000)...) }, 10, 0, Torn},
	{"length -1", func(b []byte, at []int64) []byte { return setLength(b, at[9], math.MaxUint32) }, 9, 0, Torn},
	{"length -2^31", func(b []byte, at []int64) []byte { return setLength(b, at[9], 1<<31) }, 9, 0, Torn},
	{"length 2^31-1", func(b []byte, at []int64) []byte { return setLength(b, at[9], math.MaxInt32) }, 9, 0, Torn},
	{"length 0", func(b []byte, at []int64) []byte { return setLength(b, at[9], 0) }, 9, 0, Torn},
	{"length 13", func(b []byte, at []int64) []byte { return setLength(b, at[9], 13) }, 9, 0, Torn},
	{"length 14 with magic 2", func(b []byte, at []int64) []byte { return setLength(b, at[9], 14) }, 9, 0, Torn},
	{"magic 3", func(b []byte, at []int64) []byte { b[at[9]+16] = 3; return b }, 9, 0, Torn},
	{"magic -1", func(b []byte, at []int64) []byte { b[at[9]+16] = 0xff; return b }, 9, 0, Torn},
	{"negative base offset", func(b []byte, at []int64) []byte { b[at[9]] = 0x80; return b }, 9, 0, Torn},
	{"negative last offset delta", func(b []byte, at []int64) []byte { b[at[9]+23] = 0xff; return b }, 9, 0, Torn},
	{"first batch bad, alone", func(b []byte, at []int64) []byte { b[40] ^= 1; return b[:at[1]] }, 0, 0, Torn},
	{"bit flip in the middle", func(b []byte, at []int64) []byte { b[at[5]+62] ^= 4; return b }, 5, 4, TornWithValid},
	{"hole of zeros in the middle", func(b []byte, at []int64) []byte { clear(b[at[4]:at[6]]); return b }, 4, 4, TornWithValid},
	{"first batch gone", func(b []byte, at []int64) []byte { clear(b[:at[1]]); return b }, 0, 9, TornWithValid},
	{"bytes lost in the middle", func(b []byte, at []int64) []byte { return append(b[:at[3]+5], b[at[4]:]...) }, 3, 6, TornWithValid},
	{"length damaged in the middle", func(b []byte, at []int64) []byte { return setLength(b, at[5], 3) }, 5, 4, TornWithValid},
	// Bug report B025: a valid old batch behind the end must not move the end back.
	{"an old batch again at the end", func(b []byte, at []int64) []byte { return append(b, b[at[4]:at[5]]...) }, 10, 0, Torn},
	{"a batch that overlaps the end", func(b []byte, at []int64) []byte {
		c := append([]byte(nil), b[at[9]:]...)
		binary.BigEndian.PutUint64(c, 107)
		binary.BigEndian.PutUint32(c[23:], 5)
		binary.BigEndian.PutUint32(c[17:], crc32.Checksum(c[21:], castagnoli))
		return append(b, c...)
	}, 10, 0, Torn},
	{"only an old batch behind a bad one", func(b []byte, at []int64) []byte {
		b[at[9]+30] ^= 1
		return append(b, b[at[4]:at[5]]...)
	}, 9, 0, Torn},
	// Bug report B017: sectors of the last batch that never reached the disk.
	{"second half of the last batch zero", func(b []byte, at []int64) []byte { clear(b[at[9]+64:]); return b }, 9, 0, Torn},
}

func setLength(b []byte, at int64, n uint32) []byte {
	binary.BigEndian.PutUint32(b[at+8:], n)
	return b
}

// damaged writes the garbled log, with the indexes of the good one beside it.
func (d damage) damaged(t *testing.T, base int64, o Options) (good []byte, starts []int64) {
	t.Helper()
	s := create(t, base, o)
	for i := range int64(10) {
		starts = append(starts, s.Info().Bytes)
		add(t, s, batchOf(t, base+i, 1, 1000+i, "some value that is long enough to be torn"))
	}
	require.NoError(t, s.Close())
	good = fileBytes(t, o.FS, file(base, ".log"))
	setBytes(t, o.FS, file(base, ".log"), d.garble(append([]byte(nil), good...), starts))
	return good, starts
}

func (d damage) options(t *testing.T) Options {
	return Options{FS: memFS(t), IndexIntervalBytes: EveryBatch}
}

func TestScanGivesTheVerdictAndWritesNothing(t *testing.T) {
	for _, d := range damages {
		t.Run(d.name, func(t *testing.T) {
			o := d.options(t)
			_, starts := d.damaged(t, 100, o)
			before := fileBytes(t, o.FS, file(100, ".log"))
			s := open(t, 100, o)
			scan, err := s.Scan(ctx, ScanOptions{})
			require.NoError(t, err)
			require.Equal(t, d.verdict, scan.Verdict)
			require.Equal(t, d.keep, scan.Batches)
			require.Equal(t, d.behind, scan.ValidBehind)
			require.EqualValues(t, 100+d.keep, scan.NextOffset)
			if d.verdict != Clean {
				require.Equal(t, int64(len(before))-scan.ValidBytes, scan.CutBytes)
				require.Equal(t, scan.ValidBytes, scan.FirstBad.Position)
				require.EqualValues(t, 100+d.keep, scan.FirstBad.Offset)
				require.Equal(t, file(100, ".log"), scan.FirstBad.File)
			}
			if d.keep < 10 {
				require.Equal(t, starts[d.keep], scan.ValidBytes)
			}
			require.Equal(t, before, fileBytes(t, o.FS, file(100, ".log")))
		})
	}
}

func TestRecoverCutsAtTheLastGoodBatchAndAppendsGoOnThere(t *testing.T) {
	for _, d := range damages {
		t.Run(d.name, func(t *testing.T) {
			o := d.options(t)
			good, starts := d.damaged(t, 100, o)
			starts = append(starts, int64(len(good)))
			bad := fileBytes(t, o.FS, file(100, ".log"))
			s := open(t, 100, o)
			var saved []byte
			scan, err := s.Recover(ctx, ScanOptions{Durable: 100, BeforeCut: func(s Scan, tail io.ReaderAt) error {
				saved = make([]byte, s.CutBytes)
				_, err := tail.ReadAt(saved, s.ValidBytes)
				return err
			}})
			require.NoError(t, err)
			require.Equal(t, d.verdict, scan.Verdict)
			require.Equal(t, good[:starts[d.keep]], fileBytes(t, o.FS, file(100, ".log")))
			require.Equal(t, string(bad[starts[d.keep]:]), string(saved))
			first := map[string][]byte{}
			for _, kind := range []string{".log", ".index", ".timeindex"} {
				first[kind] = fileBytes(t, o.FS, file(100, kind))
			}
			require.NoError(t, s.Close())
			s = open(t, 100, o)
			again := recoverAll(t, s)
			require.Equal(t, Clean, again.Verdict)
			require.Zero(t, again.CutBytes)
			for kind, b := range first {
				require.Equal(t, b, fileBytes(t, o.FS, file(100, kind)), kind)
			}
			// Bug report B030: what is appended now is reached after the next crash.
			fill(t, s, 2)
			require.Equal(t, span(100, int64(102+d.keep)), mustOffsets(t, s))
			crashed := open(t, 100, o)
			require.Equal(t, Clean, recoverAll(t, crashed).Verdict)
			require.Equal(t, span(100, int64(102+d.keep)), mustOffsets(t, crashed))
		})
	}
}

func TestDamageBelowTheDurableMarkIsReportedNotCut(t *testing.T) {
	for _, d := range damages {
		t.Run(d.name, func(t *testing.T) {
			o := d.options(t)
			d.damaged(t, 100, o)
			before := fileBytes(t, o.FS, file(100, ".log"))
			index := fileBytes(t, o.FS, file(100, ".index"))
			s := open(t, 100, o)
			scan, err := s.Recover(ctx, ScanOptions{Durable: int64(101 + d.keep)})
			if d.verdict == Clean {
				require.NoError(t, err, "a log that ends cleanly below the mark is no damage")
				return
			}
			c := corrupt(t, err)
			require.Equal(t, Damaged, scan.Verdict)
			require.EqualValues(t, 100+d.keep, c.Offset)
			if d.behind > 0 {
				require.Equal(t, [2]int64{int64(110 - d.behind), 110}, c.Behind)
			} else {
				require.Equal(t, c.Behind[0], c.Behind[1])
			}
			require.Equal(t, before, fileBytes(t, o.FS, file(100, ".log")))
			require.Equal(t, index, fileBytes(t, o.FS, file(100, ".index")))
		})
	}
}

// Bug reports B028, B031: a reader gets everything in front of the bad place and then an error that says where it is; it
// never skips, and it never calls it "not found".
func TestReadersStopAtTheBadPlaceWithATypedError(t *testing.T) {
	for _, d := range damages {
		for _, readOnly := range []bool{false, true} {
			t.Run(d.name+map[bool]string{true: ", read only"}[readOnly], func(t *testing.T) {
				o := d.options(t)
				d.damaged(t, 100, o)
				o.ReadOnly = readOnly
				s := open(t, 100, o)
				got, err := offsets(s)
				require.Equal(t, span(100, int64(100+d.keep)), append([]int64(nil), got...))
				if d.verdict == Clean {
					require.NoError(t, err)
				} else if !readOnly || err != nil {
					// A read-only segment may take a tail that is no whole batch for one that is being written.
					require.Equal(t, s.File(), corrupt(t, err).File)
				}
				for i := range int64(d.keep) {
					p, err := s.Find(100 + i)
					require.NoError(t, err)
					require.Equal(t, 100+i, p.Base)
				}
				if d.keep < 10 {
					_, err := s.FindTime(1000+int64(d.keep), 100)
					if err == nil || errors.Is(err, ErrNotFound) {
						require.NotEqual(t, 0, d.behind+1, "a later record may be found, or none; never a wrong one")
					}
				}
			})
		}
	}
}

func TestTruncateBehindDamageStillCutsCleanly(t *testing.T) {
	for _, d := range damages {
		if d.keep < 3 {
			continue
		}
		t.Run(d.name, func(t *testing.T) {
			o := d.options(t)
			good, starts := d.damaged(t, 100, o)
			s := open(t, 100, o)
			recoverAll(t, s)
			_, err := s.Truncate(102)
			require.NoError(t, err)
			require.Equal(t, good[:starts[2]], fileBytes(t, o.FS, file(100, ".log")))
			fill(t, s, 1)
			require.Equal(t, span(100, 103), mustOffsets(t, s))
		})
	}
}

func TestDamagedIndexesAreRebuiltOnFirstUse(t *testing.T) {
	garble := map[string]func(b []byte) []byte{
		"missing":            nil,
		"empty":              func(b []byte) []byte { return nil },
		"odd length":         func(b []byte) []byte { return b[:len(b)-3] },
		"noise":              func(b []byte) []byte { return noise(len(b)) },
		"0xff":               func(b []byte) []byte { return bytes.Repeat([]byte{0xff}, len(b)) },
		"zeros":              func(b []byte) []byte { return make([]byte, len(b)) },
		"zero padded":        func(b []byte) []byte { return append(b, make([]byte, 8*12*100)...) },
		"positions shifted":  func(b []byte) []byte { b[7] += 3; b[15] += 3; b[39]++; return b },
		"offsets shifted up": func(b []byte) []byte { b[3] += 1; return b },
		"second half":        func(b []byte) []byte { return b[len(b)/2/24*24:] },
	}
	for name, f := range garble {
		for _, kind := range []string{".index", ".timeindex"} {
			for _, readOnly := range []bool{false, true} {
				t.Run(name+" "+kind, func(t *testing.T) {
					o := Options{FS: memFS(t), IndexIntervalBytes: 200}
					s := create(t, 100, o)
					fill(t, s, 50)
					require.NoError(t, s.Close())
					if f == nil {
						remove(t, o.FS, file(100, kind))
					} else {
						setBytes(t, o.FS, file(100, kind), f(fileBytes(t, o.FS, file(100, kind))))
					}
					o.ReadOnly = readOnly
					s = open(t, 100, o)
					for i := int64(100); i < 150; i++ {
						p, err := s.Find(i)
						require.NoError(t, err)
						require.Equal(t, i, p.Base)
						tp, err := s.FindTime(i*10, 100)
						require.NoError(t, err)
						require.Equal(t, TimePosition{i * 10, i, 0}, tp)
					}
					ts, off, err := s.LargestTimestamp()
					require.NoError(t, err)
					require.Equal(t, [2]int64{1490, 149}, [2]int64{ts, off})
					if !readOnly {
						fill(t, s, 5)
						_, err = s.Find(154)
						require.NoError(t, err)
					}
				})
			}
		}
	}
}

func TestReadersNeedNoRoomOnTheDeviceForAnIndex(t *testing.T) {
	for _, kind := range []string{".index", ".timeindex"} {
		ff := &faultFS{FS: memFS(t)}
		o := Options{FS: ff, IndexIntervalBytes: EveryBatch}
		fill(t, create(t, 100, o), 50)
		s := open(t, 100, o)
		require.NoError(t, s.Seal(ctx))
		require.NoError(t, s.Park())
		whole := fileBytes(t, ff, file(100, kind))
		setBytes(t, ff, file(100, kind), whole[:len(whole)-3])
		ff.write.Store(&errDisk)
		read := func() {
			t.Helper()
			p, err := s.Find(130)
			require.NoError(t, err)
			require.EqualValues(t, 130, p.Base)
			found, err := s.FindTime(1300, 100)
			require.NoError(t, err)
			require.EqualValues(t, 130, found.Offset)
			ts, _, err := s.LargestTimestamp()
			require.NoError(t, err)
			require.EqualValues(t, 1490, ts)
			require.Equal(t, span(100, 150), mustOffsets(t, s))
		}
		read()
		require.Len(t, fileBytes(t, ff, file(100, kind)), len(whole)-3)
		ff.write.Store(nil)
		require.NoError(t, s.Park())
		read()
		require.Equal(t, whole, fileBytes(t, ff, file(100, kind)), "there is room again")
	}
}

func TestACancelledRecoveryChangesNothing(t *testing.T) {
	o := Options{FS: memFS(t)}
	d := damage{garble: func(b []byte, at []int64) []byte { return b[:len(b)-1] }}
	d.damaged(t, 0, o)
	before := fileBytes(t, o.FS, file(0, ".log"))
	s := open(t, 0, o)
	cancelled, cancel := context.WithCancel(ctx)
	n := 0
	_, err := s.Recover(cancelled, ScanOptions{Each: func(record.Batch) error {
		if n++; n == 3 {
			cancel()
		}
		return nil
	}})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 3, n)
	stop := errors.New("stop")
	_, err = s.Recover(ctx, ScanOptions{Each: func(record.Batch) error { return stop }})
	require.ErrorIs(t, err, stop)
	require.Equal(t, before, fileBytes(t, o.FS, file(0, ".log")))
	var done, total int64
	_, err = s.Recover(ctx, ScanOptions{Evict: true, Progress: func(d, n int64) { done, total = d, n }})
	require.NoError(t, err)
	require.Equal(t, [2]int64{int64(len(before)), int64(len(before))}, [2]int64{done, total})
}

func TestAnErrorBeforeTheCutCutsNothing(t *testing.T) {
	o := Options{FS: memFS(t)}
	d := damage{garble: func(b []byte, at []int64) []byte { b[at[5]+62] ^= 4; return b }}
	d.damaged(t, 0, o)
	before := fileBytes(t, o.FS, file(0, ".log"))
	full := &os.PathError{Op: "write", Path: "x", Err: errors.New("full")}
	_, err := open(t, 0, o).Recover(ctx, ScanOptions{BeforeCut: func(Scan, io.ReaderAt) error { return full }})
	require.ErrorIs(t, err, full)
	require.Equal(t, before, fileBytes(t, o.FS, file(0, ".log")))
}

// A hostile length field must not make a reader take memory that the file does not back.
func TestAHugeLengthTakesNoMemory(t *testing.T) {
	o := Options{FS: memFS(t)}
	s := create(t, 0, o)
	fill(t, s, 1)
	size := s.Info().Bytes
	require.NoError(t, s.Close())
	f, err := o.FS.OpenFile(file(0, ".log"), os.O_RDWR, 0)
	require.NoError(t, err)
	head := one(t, 1)
	binary.BigEndian.PutUint32(head[8:], 512<<20)
	_, err = f.WriteAt(head, size)
	require.NoError(t, err)
	require.NoError(t, f.Truncate(600<<20))
	require.NoError(t, f.Close())
	s = open(t, 0, o)
	before := allocated()
	_, err = offsets(s)
	corrupt(t, err)
	require.Less(t, allocated()-before, uint64(8<<20))
}
