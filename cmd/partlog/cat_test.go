package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/golden"
	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
)

func TestCatPrintsEveryGoldenFolderAsKafkasConsumerSawIt(t *testing.T) {
	for _, name := range golden.Cases() {
		t.Run(name, func(t *testing.T) {
			root := golden.Copy(t, name)
			dir, err := golden.PartitionDir(root)
			require.NoError(t, err)
			before := treeOf(t, root)
			file, err := golden.File(name, "records.jsonl")
			require.NoError(t, err)
			want := outcome{out: string(file)}.lines()
			for _, path := range []string{dir, root} {
				got := do(t, "cat", path, "--digest-over", "4096")
				require.Len(t, got, len(want))
				for i := range want {
					require.JSONEq(t, want[i], got[i])
				}
			}
			require.Equal(t, before, treeOf(t, root), "reading changes nothing")
		})
	}
}

func TestCatSelectsByOffsetTimeAndNumber(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "t-0")
	require.Equal(t, exitOK, feed(t, dir, numbered(20)+`{"timestamp":-1,"value":"`+b64("no time")+`"}`, "--batch", "3").code)
	for _, c := range []struct {
		flags string
		want  string
	}{
		{"", "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20"},
		{"--from 18", "18 19 20"},
		{"--from 99", ""},
		{"--to 2", "0 1"},
		{"--from 4 --to 4", ""},
		{"--from 4 --to 8", "4 5 6 7"},
		{"--from 4 --max 2", "4 5"},
		{"--max 0", ""},
		{"--max 1", "0"},
		{"--since 1700000000018", "18 19"},
		{"--since 1700000000017", "17 18 19"}, // the last of its batch
		{"--until 1700000000002", "0 1"},
		{"--since 2023-11-14T22:13:20.004Z --until 2023-11-14T22:13:20.006Z", "4 5"},
		{"--since 1700000000004 --max 1", "4"},
		{"--isolation log_end --from 20", "20"},
		{"--config segment.bytes=1048576 --from 20", "20"},
	} {
		got := runIn(t, append([]string{"cat", dir}, strings.Fields(c.flags)...)...)
		require.Equal(t, exitOK, got.code, c.flags)
		require.Equal(t, c.want, strings.Join(offsetsOf(t, got.lines()), " "), c.flags)
	}
}

func offsetsOf(t testing.TB, lines []string) []string {
	t.Helper()
	out := make([]string, len(lines))
	for i, line := range lines {
		var r golden.Record
		require.NoError(t, json.Unmarshal([]byte(line), &r))
		out[i] = fmt.Sprint(r.Offset)
	}
	return out
}

func TestCatStartsAtTheLogStartWhenFromIsBelow(t *testing.T) {
	root := golden.Copy(t, "delete-records")
	start := golden.About(t, "delete-records").AsOpened.LogStartOffset
	require.Positive(t, start)
	require.Equal(t, []string{fmt.Sprint(start)}, offsetsOf(t, do(t, "cat", root, "--from", "0", "--max", "1")))
}

func TestCatPrintsWhatStandsBeforeDamageAndNamesTheDamage(t *testing.T) {
	root := golden.Copy(t, "codec-mixed")
	file := filepath.Join(root, "codec-mixed-0", "00000000000000000000.log")
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	first, rest, err := record.Next(b)
	require.NoError(t, err)
	second, _, err := record.Next(rest)
	require.NoError(t, err)
	b[first.Size()+second.Size()-1] ^= 0xff
	require.NoError(t, os.WriteFile(file, b, 0o644))
	before := treeOf(t, root)

	for _, command := range []string{"cat", "tail"} {
		r := runIn(t, command, root, "--digest-over", "4096", map[string]string{"cat": "--max", "tail": "-n"}[command], "1000")
		require.Equal(t, exitFound, r.code, command)
		if command == "cat" {
			require.Len(t, r.lines(), int(first.NextOffset()))
		}
		require.Contains(t, r.err, "codec-mixed-0/00000000000000000000.log is damaged at byte "+fmt.Sprint(first.Size()))
		require.Contains(t, r.err, fmt.Sprintf("offset %d", second.BaseOffset()))
		require.Equal(t, 1, strings.Count(r.err, "\n"), r.err)
	}
	require.Equal(t, before, treeOf(t, root))
}

func TestCatNamesABatchWhoseRecordsDoNotDecode(t *testing.T) {
	b := record.NewBuilder(record.BuilderOptions{})
	require.NoError(t, b.Add(record.Record{Timestamp: 1, Value: []byte("good")}))
	good, err := b.Finish()
	require.NoError(t, err)
	bad := bytes.Clone(good.Bytes())
	bad[60] = 2 // the count says one record more than there is
	bad[26] = 1 // and so does the last offset
	forged := reseal(bad)
	forged.SetBaseOffset(1)
	root := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(root, "t-0"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, "t-0", "00000000000000000000.log"), append(good.Bytes(), forged.Bytes()...), 0o644))
	r := runIn(t, "cat", root)
	require.Equal(t, exitFound, r.code)
	require.Equal(t, []string{"0", "1"}, offsetsOf(t, r.lines()))
	require.Contains(t, r.err, "t-0/00000000000000000000.log is damaged at byte "+fmt.Sprint(good.Size()))
}

// reseal gives a changed batch a right checksum.
func reseal(b []byte) record.Batch {
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
	batch, _ := record.View(b)
	return batch
}

func TestCatRunsBesideAWriterAndShowsWhatIsAcknowledged(t *testing.T) {
	root := t.TempDir()
	d, err := log.OpenDir(root, log.DirConfig{})
	require.NoError(t, err)
	defer d.Close()
	l, err := d.Open(t.Context(), log.TopicPartition{Topic: "t"}, log.Config{SegmentBytes: 500})
	require.NoError(t, err)
	for i := range 30 {
		_, err := l.Append(t.Context(), record.Record{Value: []byte(fmt.Sprint(i))})
		require.NoError(t, err)
		require.Len(t, do(t, "cat", root), i+1)
	}
	_, err = l.Truncate(t.Context(), 7)
	require.NoError(t, err)
	require.Len(t, do(t, "cat", root), 7)
}

func TestOneKindOfTargetIsTakenAndOthersAreRefusedInWords(t *testing.T) {
	root := golden.Copy(t, "empty")
	dir, err := golden.PartitionDir(root)
	require.NoError(t, err)
	require.Empty(t, do(t, "cat", dir))
	require.Empty(t, do(t, "cat", root))
	link := filepath.Join(t.TempDir(), "anything")
	require.NoError(t, os.Symlink(dir, link))
	require.Empty(t, do(t, "cat", link), "a link is the folder it leads to")

	require.NoError(t, os.Mkdir(filepath.Join(root, "lost+found"), 0o755))
	require.Empty(t, do(t, "cat", root), "foreign folders are ignored when reading")
	require.NoError(t, os.Mkdir(filepath.Join(root, "other-1"), 0o755))
	r := runIn(t, "cat", root)
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, "holds 2 partitions; name one of them: empty-0, other-1")

	none := t.TempDir()
	require.Contains(t, runIn(t, "cat", none).err, "holds no partition folder")
	odd := filepath.Join(t.TempDir(), "odd")
	require.NoError(t, os.CopyFS(odd, os.DirFS(dir)))
	require.Contains(t, runIn(t, "cat", odd).err, "its name is no partition's")
	disk := filepath.Join(t.TempDir(), "disk-1")
	require.NoError(t, os.CopyFS(disk, os.DirFS(root)))
	require.Contains(t, runIn(t, "cat", disk).err, "holds 2 partitions", "a root may be named like a partition")
}

func TestReadingMeetsADamagedBaseOffsetAndNamesItOnce(t *testing.T) {
	root, dir := goldenFolder(t, "codec-gzip")
	change(t, filepath.Join(dir, first), func(b []byte) []byte { b[3391] = 1; return b }) // 74 becomes 330
	where := "codec-gzip-0/" + first + " is damaged at byte 3385 (offset 74; readable again from offset 223): "
	for args, lines := range map[string]int{"cat": 74, "cat --from 74": 0, "cat --from 60 --to 100": 14, "tail -n 1000": 0} {
		got := runIn(t, append(strings.Fields(args), root)...)
		require.Equal(t, exitFound, got.code, args)
		require.Contains(t, got.err, where, args)
		require.Equal(t, 1, strings.Count(got.err, first), got.err)
		require.NotContains(t, got.err, "corrupt at", args)
		require.Len(t, got.lines(), lines, args)
	}
	require.Len(t, do(t, "cat", root, "--to", "74"), 74)
	require.Len(t, do(t, "cat", root, "--from", "223"), 59)
}

func TestDamageAtTheVeryFirstByteIsNamedWithOffsetAndReason(t *testing.T) {
	root, dir := goldenFolder(t, "codec-gzip")
	change(t, filepath.Join(dir, first), func(b []byte) []byte { b[70] ^= 1; return b })
	got := runIn(t, "cat", root)
	require.Equal(t, exitFound, got.code)
	require.Equal(t, "partlog cat: codec-gzip-0/"+first+" is damaged at byte 0 (offset 0; readable again from offset 36): crc: the checksum does not match the bytes\n", got.err)
}

// TestCatFinishesAnInterruptedSwapInMemory: a broker that is killed while it swaps cleaned segments in leaves them under another
// name, with those that they replace or without.
func TestCatFinishesAnInterruptedSwapInMemory(t *testing.T) {
	const base = "00000000000000000000"
	for _, remains := range []bool{true, false} {
		root, dir := goldenFolder(t, "codec-lz4")
		want := do(t, "cat", dir)
		for _, ext := range []string{".log", ".index", ".timeindex"} {
			b, err := os.ReadFile(filepath.Join(dir, base+ext))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(dir, base+ext+".swap"), b, 0o644))
			if remains {
				b = b[:len(b)/2] // whatever it holds, it goes
				require.NoError(t, os.WriteFile(filepath.Join(dir, base+ext), b, 0o644))
			} else {
				require.NoError(t, os.Rename(filepath.Join(dir, base+ext), filepath.Join(dir, base+ext+".deleted")))
			}
		}
		before := treeOf(t, root)
		require.Equal(t, want, do(t, "cat", dir))
		require.Equal(t, want, do(t, "cat", dir, "--isolation", "read_committed"))
		require.Equal(t, before, treeOf(t, root))
	}
}
