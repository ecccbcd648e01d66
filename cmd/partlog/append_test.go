package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/partlog/partlog/internal/golden"
	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
)

func TestWhatAppendTakesCatGivesBack(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	runs := 0
	rapid.Check(t, func(rt *rapid.T) {
		runs++
		dir := filepath.Join(base, fmt.Sprintf("r%d", runs), "orders-0")
		var want []string
		var in bytes.Buffer
		for i := range rapid.IntRange(0, 30).Draw(rt, "records") {
			r := someRecord().Draw(rt, "record")
			r.Offset = int64(i)
			line := appendRecord(nil, &r, "CreateTime", keepAll)
			want = append(want, strings.TrimSuffix(string(line), "\n"))
			in.Write(line)
		}
		batch := rapid.IntRange(1, 12).Draw(rt, "batch")
		codec := rapid.SampledFrom([]string{"none", "gzip", "snappy", "lz4", "zstd"}).Draw(rt, "codec")
		ack := rapid.SampledFrom([]string{"durable", "buffered"}).Draw(rt, "ack")
		r := feed(t, dir, in.String(), "--batch", fmt.Sprint(batch), "--codec", codec, "--ack", ack, "--config", "internal.segment.bytes=2000")
		require.Equal(rt, exitOK, r.code, r.err)
		var bases []string
		for i := 0; i < len(want); i += batch {
			bases = append(bases, fmt.Sprint(i))
		}
		require.Equal(rt, bases, r.lines(), "one base offset a batch")
		require.Equal(rt, want, do(t, "cat", dir))
	})
}

func TestGoldenFoldersCopyThroughAppendLineByLine(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"big-records", "headers-nulls", "time-disorder", "no-timestamps", "codec-mixed"} {
		t.Run(name, func(t *testing.T) {
			lines := do(t, "cat", golden.Copy(t, name))
			dir := filepath.Join(t.TempDir(), "copy-0")
			r := feed(t, dir, strings.Join(lines, "\n"), "--codec", "zstd")
			require.Equal(t, exitOK, r.code, r.err)
			require.Equal(t, lines, do(t, "cat", dir), "the last line may lack its end; large records get batches of their own")
		})
	}
}

func TestAppendCreatesAPartitionThatACleanlyStoppedBrokerCouldHaveLeft(t *testing.T) {
	root := filepath.Join(t.TempDir(), "new", "root")
	r := feed(t, filepath.Join(root, "orders-3"), numbered(3))
	require.Equal(t, exitOK, r.code, r.err)
	require.Equal(t, "0\n", r.out)
	require.Contains(t, r.err, "creating "+filepath.Join(root, "orders-3"))
	for _, file := range []string{".kafka_cleanshutdown", "recovery-point-offset-checkpoint", "replication-offset-checkpoint", "log-start-offset-checkpoint", "cleaner-offset-checkpoint"} {
		require.FileExists(t, filepath.Join(root, file))
	}
	require.NoFileExists(t, filepath.Join(root, ".lock"))
	require.NoFileExists(t, filepath.Join(root, "orders-3", ".lock"), "the lock is the root's")

	r = feed(t, root, numbered(2), "--json")
	require.Empty(t, r.err)
	require.JSONEq(t, `{"baseOffset":3,"lastOffset":4,"records":2}`, r.out)
}

func TestAppendContinuesABrokersFolder(t *testing.T) {
	root := golden.Copy(t, "epochs")
	before := do(t, "cat", root)
	r := feed(t, root, `{"timestamp":1796015800000,"value":"`+b64("ours")+`"}`)
	require.Equal(t, "66\n", r.out, r.err)
	after := do(t, "cat", root)
	require.Equal(t, before, after[:len(after)-1])
	r = runIn(t, "offset", root, "--latest")
	require.Equal(t, "67\t-1\t4\n", r.out, "the log's own leader epoch goes on")
}

func TestALeaderEpochBeginsWithTheFirstBatch(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "t-0")
	require.Equal(t, exitOK, feed(t, dir, numbered(1)).code)
	require.Equal(t, exitOK, feed(t, dir, "", "--leader-epoch", "9").code)
	require.Equal(t, exitOK, feed(t, dir, numbered(2), "--leader-epoch", "5").code, "9 never began")
	l, err := log.Open(filepath.Dir(dir), log.Config{})
	require.NoError(t, err)
	require.Equal(t, []log.EpochEntry{{Epoch: 0, Start: 0}, {Epoch: 5, Start: 1}}, l.Epochs())
	require.NoError(t, l.Close())
	r := feed(t, dir, numbered(1), "--leader-epoch", "4")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, "leader epoch 4 is below the log's own, 5; nothing was appended")
}

func TestALineWithoutTimestampGetsTheTimeItIsRead(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "t-0")
	from := time.Now().UnixMilli()
	require.Equal(t, exitOK, feed(t, dir, "{}\n{\"timestamp\":0}\n{\"timestamp\":-1}\n").code)
	var got []int64
	for _, line := range do(t, "cat", dir) {
		var r golden.Record
		require.NoError(t, json.Unmarshal([]byte(line), &r))
		got = append(got, r.Timestamp)
	}
	require.GreaterOrEqual(t, got[0], from)
	require.Equal(t, []int64{0, -1}, got[1:], "the first millisecond of 1970 is a time like any other")
}

func TestABadLineIsNamedAndOnlyWhatStandsBeforeItIsAppended(t *testing.T) {
	good := `{"timestamp":1,"value":"` + b64("good") + `"}` + "\n"
	soon := fmt.Sprintf(`{"timestamp":%d}`+"\n", time.Now().Add(2*time.Hour).UnixMilli())
	for _, c := range []struct {
		name, in string
		flags    []string
		appended int
		want     string
	}{
		{"first line", "nonsense\n" + good, nil, 0, "line 1: it is no JSON object as cat writes it"},
		{"within a batch", good + good + "{\n" + good, nil, 2, "line 3: the JSON object is not closed; the lines up to 2 are appended, at offsets 0 to 1"},
		{"after blank lines", good + "\n  \n[]\n", nil, 1, "line 4: it is a JSON array"},
		{"at the start of a batch", good + good + "{}x\n", []string{"--batch", "2"}, 2, "line 3: something follows"},
		{"a digest", good + `{"valueDigest":{"length":1,"sha256":"00"}}`, nil, 1, "line 2: it holds a digest"},
		{"a time too far ahead", good + good + soon + good, nil, 2, "line 3: the timestamp"},
		{"a time too far behind", good + "{}\n", []string{"--config", "message.timestamp.before.max.ms=1000"}, 0, "line 1: the timestamp"},
		{"no key for compaction", `{"key":""}` + "\n" + good, []string{"--config", "cleanup.policy=compact"}, 1, "line 2: "},
		{"too large", good + `{"timestamp":1,"value":"` + b64(strings.Repeat("x", 2000)) + `"}` + "\n" + good, []string{"--config", "max.message.bytes=1000"}, 1, "line 2: "},
		{"too large for a segment", good + `{"timestamp":1,"value":"` + b64(strings.Repeat("x", 2000)) + `"}` + "\n", []string{"--config", "internal.segment.bytes=1000"}, 1, "line 2: "},
		{"no appends at all", good, []string{"--config", "max.message.bytes=0"}, 0, "line 1: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "t-0")
			require.Equal(t, exitOK, feed(t, dir, "").code)
			r := feed(t, dir, c.in, c.flags...)
			require.Equal(t, exitFailed, r.code)
			require.Contains(t, r.err, c.want)
			require.Equal(t, 1, strings.Count(r.err, "\n"), r.err)
			require.Len(t, do(t, "cat", dir), c.appended)
			if c.appended == 0 {
				require.Contains(t, r.err, "nothing was appended")
			}
			require.FileExists(t, filepath.Join(filepath.Dir(dir), ".kafka_cleanshutdown"), "the root is left clean all the same")
		})
	}
}

func TestABatchIsCutWhereItsBytesWouldNotFit(t *testing.T) {
	line := `{"timestamp":1,"value":"` + b64(strings.Repeat("x", 300)) + `"}` + "\n"
	dir := filepath.Join(t.TempDir(), "t-0")
	r := feed(t, dir, strings.Repeat(line, 10), "--config", "max.message.bytes=1100")
	require.Equal(t, exitOK, r.code, r.err)
	require.Equal(t, []string{"0", "3", "6", "9"}, r.lines())
}

func TestSettingsHaveTheirSayInAppend(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "t-0")
	r := feed(t, dir, `{"timestamp":1}`, "--config", "message.timestamp.type=LogAppendTime", "--config", "compression.type=lz4", "--config", "num.partitions=3")
	require.Equal(t, exitOK, r.code)
	require.Contains(t, r.err, "note: num.partitions has no effect")
	require.Contains(t, do(t, "cat", dir)[0], "LogAppendTime")
	require.Equal(t, exitOK, feed(t, dir, strings.Repeat("{}\n", 4), "--batch", "1", "--config", "internal.segment.bytes=200").code)
	rd, err := log.OpenReader(dir, log.ReaderOptions{})
	require.NoError(t, err)
	defer rd.Close()
	require.Len(t, rd.SegmentInfos(), 3)
	for b, err := range rd.Batches(t.Context(), 0) {
		require.NoError(t, err)
		require.Equal(t, record.LZ4, b.Codec())
		break
	}
	require.Contains(t, feed(t, dir, "{}", "--codec", "zstd", "--config", "compression.type=lz4").err, "contradict")
	require.Contains(t, feed(t, dir, "{}", "--codec", "brotli").err, "compression.type")
}

func TestForeignFoldersAreWarnedOfWhenWriting(t *testing.T) {
	root := golden.Copy(t, "empty")
	require.NoError(t, os.Mkdir(filepath.Join(root, "lost+found"), 0o755))
	for _, args := range [][]string{{"append", root}, {"roll", root}, {"truncate", root, "0"}, {"restart-at", root, "5"}, {"delete-records", root, "-1"}} {
		r := runIn(t, args...)
		require.Equal(t, exitOK, r.code, r.err)
		require.Contains(t, r.err, "lost+found is no partition folder")
	}
}

func TestAMissingInputFileCreatesNothing(t *testing.T) {
	root := t.TempDir()
	r := runIn(t, "append", filepath.Join(root, "t-0"), "--from", filepath.Join(root, "none.jsonl"))
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, "none.jsonl")
	r = runIn(t, "append", filepath.Join(root, "t-0"), "--from", root)
	require.Contains(t, r.err, "is a directory")
	r = runIn(t, "append", filepath.Join(root, "nodash"))
	require.Contains(t, r.err, "cannot be created as a partition folder")
	r = runIn(t, "append", root)
	require.Contains(t, r.err, "name the one to create")
	entries, err := os.ReadDir(root)
	require.NoError(t, err)
	require.Empty(t, entries)
}

func TestAFolderThatIsSpelledOddlyIsReadAndNotWritten(t *testing.T) {
	root := golden.Copy(t, "headers-nulls")
	odd := filepath.Join(root, "headers-nulls-00")
	require.NoError(t, os.Rename(filepath.Join(root, "headers-nulls-0"), odd))
	require.Len(t, do(t, "cat", odd), 9)
	r := runIn(t, "truncate", odd, "3")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.err, "rename the folder first")
	require.NoDirExists(t, filepath.Join(root, "headers-nulls-0"))
}

func TestALineIsBoundedBeforeItIsKept(t *testing.T) {
	r := bufio.NewReaderSize(strings.NewReader(strings.Repeat("x", 50)+"\n"+strings.Repeat("y", 5000)+"\nz"), 16)
	line, err := readLine(r, 100)
	require.NoError(t, err)
	require.Len(t, line, 51)
	_, err = readLine(r, 100)
	require.ErrorContains(t, err, "longer than 100 bytes")
}

func TestOffsetsNotYetPrintedWhenTheWorkEndsArePrintedOnceTheLogIsClosed(t *testing.T) {
	target, err := locate(filepath.Join(t.TempDir(), "t-0"))
	require.NoError(t, err)
	var out, errs bytes.Buffer
	e := &env{out: &out, err: &errs}
	w, err := openForWriting(t.Context(), e, target, settings{}, log.Config{})
	require.NoError(t, err)
	a := newAppender(w, e, &appendOptions{batch: 1})
	require.NoError(t, a.put(t.Context(), []record.Record{{Timestamp: 1}}, []int{1}))
	require.Empty(t, out.String(), "not durable yet")
	require.ErrorIs(t, a.finish(context.Canceled), context.Canceled)
	require.Equal(t, "0\n", out.String())
}

// slowInput gives one piece and then waits.
type slowInput struct {
	first io.Reader
	ctx   context.Context
}

func (s *slowInput) Read(p []byte) (int, error) {
	if n, _ := s.first.Read(p); n > 0 {
		return n, nil
	}
	<-s.ctx.Done()
	return 0, io.EOF
}

func TestAnUnfinishedBatchIsWrittenWhenTheInputPauses(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var out, errs syncBuffer
	ended := make(chan int)
	go func() {
		in := &slowInput{first: strings.NewReader(numbered(3)), ctx: ctx}
		ended <- run(ctx, &env{in: in, out: &out, err: &errs}, []string{"append", filepath.Join(root, "t-0"), "--linger", "20ms"})
	}()
	require.Eventually(t, func() bool { return out.String() == "0\n" }, 10*time.Second, 5*time.Millisecond, "printed once durable, the input still open")
	require.Len(t, do(t, "cat", root), 3)
	stop()
	require.Equal(t, exitInterrupted, <-ended)
	require.Contains(t, errs.String(), "interrupted; the lines up to 3 are appended, at offsets 0 to 2")
	require.FileExists(t, filepath.Join(root, ".kafka_cleanshutdown"))
}

// brokenPipe refuses all that is written to it.
type brokenPipe struct{ err error }

func (b brokenPipe) Write([]byte) (int, error) { return 0, b.err }

func TestAppendGoesOnWhenNobodyReadsItsOffsets(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "t-0")
	var errs bytes.Buffer
	e := &env{in: strings.NewReader(numbered(500)), out: brokenPipe{errPipe}, err: &errs}
	require.Equal(t, exitOK, run(t.Context(), e, []string{"append", dir, "--batch", "1", "--ack", "buffered"}))
	require.Len(t, do(t, "cat", dir), 500)
	e = &env{in: strings.NewReader(numbered(1)), out: brokenPipe{io.ErrShortWrite}, err: &errs}
	require.Equal(t, exitFailed, run(t.Context(), e, []string{"append", dir}))
	require.Contains(t, errs.String(), "everything is appended, but the offsets could not be printed")
}

func TestProgressIsForTerminals(t *testing.T) {
	for _, terminal := range []bool{true, false} {
		var errs bytes.Buffer
		p := progress{e: &env{err: &errs, terminal: terminal}}
		p.show("%d", 1)
		require.Empty(t, errs.String(), "short work shows nothing")
		p.next = time.Now().Add(-time.Second)
		p.show("%d of it", 2)
		p.done()
		require.Equal(t, terminal, strings.Contains(errs.String(), "2 of it"))
	}
}

// A log that was not stopped cleanly is read before anything else can be said of it.
func TestProgressOfARecoveryIsShown(t *testing.T) {
	root, _ := goldenFolder(t, "killed")
	was := progressEvery
	progressEvery = 0
	defer func() { progressEvery = was }()
	for _, args := range [][]string{{"info", root}, {"producers", root}, {"roll", root}, {"repair", root}} {
		var errs bytes.Buffer
		run(t.Context(), &env{out: io.Discard, err: &errs, terminal: true}, args)
		require.Contains(t, errs.String(), "killed-0", "%v", args)
		require.True(t, strings.HasSuffix(errs.String(), "\r\x1b[K"), "%v: the line is wiped", args)
	}
}
