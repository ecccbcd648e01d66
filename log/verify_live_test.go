package log

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs"
)

// openToVerify opens a log with small segments over memory and appends to it.
func openToVerify(t *testing.T, batches int) (*Log, vfs.FS) {
	t.Helper()
	mem := vfs.Mem()
	d, err := OpenDir("root", DirConfig{Manual: true, FS: mem})
	if err != nil {
		t.Fatal(err)
	}
	c, err := ParseConfig(map[string]string{"internal.segment.bytes": "20000", "index.interval.bytes": "300"})
	if err != nil {
		t.Fatal(err)
	}
	l, err := d.Open(t.Context(), TopicPartition{Topic: "t"}, c)
	if err != nil {
		t.Fatal(err)
	}
	for i := range batches {
		appendToVerify(t, l, i)
	}
	t.Cleanup(func() { d.Close() })
	return l, mem
}

func appendToVerify(t *testing.T, l *Log, i int) {
	t.Helper()
	if _, err := l.Append(context.Background(), record.Record{Key: []byte("k"), Value: fmt.Appendf(nil, "value %d", i)}); err != nil {
		t.Error(err)
	}
}

func TestVerifyOfALogFindsNothingWhileItIsAppendedTo(t *testing.T) {
	l, _ := openToVerify(t, 500)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 500; ; i++ {
			select {
			case <-stop:
				return
			default:
				appendToVerify(t, l, i)
			}
		}
	})
	for range 5 {
		for f, err := range l.Verify(t.Context()) {
			t.Errorf("%v %v", f, err)
		}
	}
	close(stop)
	wg.Wait()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, err := range l.Verify(t.Context()) {
		if !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	}
}

func TestVerifyOfWhatALogLeavesFindsNothingHoweverOftenItIsOpened(t *testing.T) {
	mem := vfs.Mem()
	for i := range 12 {
		d, err := OpenDir("root", DirConfig{Manual: true, FS: mem})
		if err != nil {
			t.Fatal(err)
		}
		l, err := d.Open(t.Context(), TopicPartition{Topic: "t"}, Config{})
		if err != nil {
			t.Fatal(err)
		}
		for j := range 30 { // below the index interval each time
			appendToVerify(t, l, j)
		}
		if i%3 == 2 {
			mem = vfs.Overlay(mem) // killed: what another process would find
			continue
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		if got := verifyAll(t, mem, VerifyOptions{}); len(got) > 0 {
			t.Fatalf("after stop %d:%s", i, sayFindings(got))
		}
	}
}

func TestVerifyOfALogEndsWhenItIsTruncated(t *testing.T) {
	l, _ := openToVerify(t, 300)
	var last error
	cut := false
	l.Verify(t.Context())(func(_ Finding, err error) bool { last = err; return true })
	if last != nil {
		t.Fatal(last)
	}
	corruptUnder(t, l)
	for _, err := range l.Verify(t.Context()) {
		if err != nil {
			last = err
		}
		if !cut {
			cut = true
			if _, err := l.Truncate(t.Context(), 10); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !cut || !errors.Is(last, ErrTruncated) {
		t.Fatalf("ended with %v", last)
	}
}

// corruptUnder flips a byte in the first segment, so that Verify has something to yield.
func corruptUnder(t *testing.T, l *Log) {
	t.Helper()
	f, err := l.fs.OpenFile(l.list.Load().first().File(), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b [1]byte
	if _, err := f.ReadAt(b[:], 100); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 1
	if _, err := f.WriteAt(b[:], 100); err != nil {
		t.Fatal(err)
	}
}

func TestVerifyOfAReaderSaysWhatVerifySays(t *testing.T) {
	g := newGarbler(t, "killed-torn-body")
	r, err := OpenReader(g.dir, ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var got []Finding
	for f, err := range r.Verify(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, f)
	}
	want := verifyAll(t, verifyFS(t, g.root), VerifyOptions{})
	if len(got) == 0 || sayFindings(got) != sayFindings(want) {
		t.Errorf("got%s\nwant%s", sayFindings(got), sayFindings(want))
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	for _, err := range r.Verify(t.Context()) {
		if !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	}
}
