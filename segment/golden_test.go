package segment

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/partlog/partlog/internal/golden"
	"github.com/partlog/partlog/vfs"

	"github.com/stretchr/testify/require"
)

// goldenSegments opens all segments of a copy of a golden case.
func goldenSegments(t *testing.T, name string, o Options) (fsys vfs.FS, part string, segs []*Segment) {
	t.Helper()
	folder, err := golden.PartitionDir(golden.Copy(t, name))
	require.NoError(t, err)
	part = filepath.Base(folder)
	fsys, err = vfs.OS(filepath.Dir(folder))
	require.NoError(t, err)
	o.FS = fsys
	about := golden.About(t, name)
	if v, ok := about.TopicConfig["index.interval.bytes"]; ok {
		n, err := strconv.ParseInt(v, 10, 64)
		require.NoError(t, err)
		if o.IndexIntervalBytes = n; n == 0 {
			o.IndexIntervalBytes = EveryBatch
		}
	}
	bases, err := List(fsys, part)
	require.NoError(t, err)
	require.NotEmpty(t, bases)
	for _, base := range bases {
		s, err := Open(part, base, o)
		require.NoError(t, err)
		t.Cleanup(func() { s.Close() })
		segs = append(segs, s)
	}
	return fsys, part, segs
}

var dumped = regexp.MustCompile(`^(?:baseOffset: (\d+) lastOffset|offset): (\d+) .*position: (\d+) .*size: (\d+) `)

// dumpedBatches reads the batches that Kafka's dump tool printed, by file name.
func dumpedBatches(t *testing.T, name string) map[string][][4]int64 {
	t.Helper()
	b, err := golden.File(name, "dump.txt")
	require.NoError(t, err)
	out := map[string][][4]int64{}
	current := ""
	for sc := bufio.NewScanner(bytes.NewReader(b)); sc.Scan(); {
		line := sc.Text()
		if f, ok := strings.CutPrefix(line, "Dumping "); ok {
			current = filepath.Base(f)
		}
		if m := dumped.FindStringSubmatch(line); m != nil {
			var row [4]int64
			if m[1] == "" {
				m[1] = m[2] // of a legacy entry the tool prints one offset
			}
			for i := range row {
				row[i], err = strconv.ParseInt(m[i+1], 10, 64)
				require.NoError(t, err)
			}
			out[current] = append(out[current], row)
		}
	}
	return out
}

func TestBatchesAreWhatKafkasDumpToolPrints(t *testing.T) {
	for _, name := range golden.Cases() {
		t.Run(name, func(t *testing.T) {
			want := dumpedBatches(t, name)
			fsys, _, segs := goldenSegments(t, name, Options{})
			_ = fsys
			for _, s := range segs {
				var got [][4]int64
				pos := int64(0)
				var end error
				for b, err := range s.Batches(0) {
					if err != nil {
						end = err
						break
					}
					got = append(got, [4]int64{b.BaseOffset(), b.LastOffset(), pos, int64(b.Size())})
					pos += int64(b.Size())
				}
				if end != nil {
					require.Contains(t, name, "killed-", "only these are damaged")
					corrupt(t, end)
				}
				rows := want[FileName(s.Base(), ".log")]
				if name == "killed-bad-crc" && end != nil {
					rows = rows[:len(rows)-1] // the tool prints it with isvalid: false
				}
				require.Equal(t, rows, got)
			}
		})
	}
}

func TestRecoveryEndsWhereKafkaSaysTheLogEnds(t *testing.T) {
	for _, name := range golden.Cases() {
		t.Run(name, func(t *testing.T) {
			_, _, segs := goldenSegments(t, name, Options{})
			facts := golden.About(t, name).AsOpened
			bytes := map[int64]golden.SegmentFacts{}
			for _, f := range facts.Segments {
				bytes[f.BaseOffset] = f
			}
			next := int64(0)
			for _, s := range segs {
				scan := recoverAll(t, s)
				require.Equal(t, bytes[s.Base()].Size, scan.ValidBytes)
				require.Equal(t, strings.HasPrefix(name, "killed-") && s == segs[len(segs)-1], scan.Verdict == Torn)
				if scan.MaxTimestamp >= 0 {
					require.Equal(t, bytes[s.Base()].LargestTimestamp, s.Info().LargestTimestamp)
				}
				next = max(next, scan.NextOffset)
			}
			require.Equal(t, facts.LogEndOffset, next)
		})
	}
}

// What Kafka wrote while appending equals what recovery builds, for segments that were rolled in one run: the rule is
// the same, but a restart begins counting anew and adds a time entry.
func TestRecoveryRebuildsTheIndexesThatKafkaWrote(t *testing.T) {
	equal, all := 0, 0
	var differ []string
	for _, name := range golden.Cases() {
		t.Run(name, func(t *testing.T) {
			fsys, part, segs := goldenSegments(t, name, Options{})
			for _, s := range segs[:len(segs)-1] {
				for _, kind := range []string{".index", ".timeindex"} {
					f := part + "/" + FileName(s.Base(), kind)
					want := fileBytes(t, fsys, f)
					recoverAll(t, s)
					got := fileBytes(t, fsys, f)
					all++
					if bytes.Equal(want, got) {
						equal++
					} else {
						differ = append(differ, f)
					}
				}
			}
		})
	}
	require.Equal(t, 58, all)
	require.Equal(t, 56, equal, "two segments were written over a restart: %v", differ)
}

func TestLookupsOverKafkasOwnIndexes(t *testing.T) {
	for _, name := range golden.Cases() {
		t.Run(name, func(t *testing.T) {
			_, _, segs := goldenSegments(t, name, Options{ReadOnly: true})
			for _, s := range segs {
				type row struct{ base, last, pos int64 }
				var rows []row
				pos := int64(0)
				for b, err := range s.Batches(0) {
					require.NoError(t, err)
					rows = append(rows, row{b.BaseOffset(), b.LastOffset(), pos})
					pos += int64(b.Size())
				}
				for i, r := range rows {
					if i%7 != 0 && i < len(rows)-3 {
						continue
					}
					for _, o := range []int64{r.base, r.last} {
						p, err := s.Find(o)
						require.NoError(t, err)
						require.Equal(t, r.pos, p.Pos, "offset %d", o)
					}
				}
				require.False(t, s.rebuilt.Load(), "Kafka's indexes fit its log")
			}
		})
	}
}

func TestReadOnlyChangesNoByteOfAFolder(t *testing.T) {
	for _, name := range []string{"killed", "killed-torn-body", "killed-zero-tail", "codec-mixed"} {
		root := golden.Copy(t, name)
		folder, err := golden.PartitionDir(root)
		require.NoError(t, err)
		read := func() map[string]string {
			out := map[string]string{}
			entries, err := os.ReadDir(folder)
			require.NoError(t, err)
			for _, e := range entries {
				b, err := os.ReadFile(filepath.Join(folder, e.Name()))
				require.NoError(t, err)
				out[e.Name()] = string(b)
			}
			return out
		}
		before := read()
		fsys, err := vfs.OSReadOnly(filepath.Dir(folder))
		require.NoError(t, err)
		part := filepath.Base(folder)
		bases, err := List(fsys, part)
		require.NoError(t, err)
		for _, base := range bases {
			s, err := Open(part, base, Options{FS: fsys, ReadOnly: true})
			require.NoError(t, err)
			_, err = s.Recover(ctx, ScanOptions{})
			require.NoError(t, err)
			first, err := s.First()
			require.NoError(t, err)
			_, err = s.FindTime(1, first.Base)
			require.NoError(t, err)
			_, err = s.Append(one(t, 1<<40))
			require.ErrorIs(t, err, ErrReadOnly)
			require.NoError(t, s.Close())
		}
		require.Equal(t, before, read())
	}
}
