package segment

import (
	"testing"

	"github.com/partlog/partlog/vfs"
)

func FuzzRecover(f *testing.F) {
	var good []byte
	for i := range int64(4) {
		good = append(good, batchOf(f, 100+i, 1, 1000+i, "value")...)
	}
	size := len(good) / 4
	f.Add(good, int64(0))
	f.Add(good[:len(good)-3], int64(0))
	f.Add(append(append([]byte(nil), good[:size]...), good[2*size:]...), int64(103))
	f.Add(append(append([]byte(nil), good...), make([]byte, 300)...), int64(104))
	f.Add(append(make([]byte, 10), good...), int64(101))
	f.Add(noise(500), int64(0))
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 100, 0, 0, 0, 14, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, int64(0))
	f.Fuzz(func(t *testing.T, log []byte, durable int64) {
		fsys := vfs.Mem()
		_ = fsys.MkdirAll(dir, 0o755)
		setBytes(t, fsys, file(100, ".log"), log)
		o := Options{FS: fsys, IndexIntervalBytes: EveryBatch}
		s, err := Open(dir, 100, o)
		if err != nil {
			t.Fatal(err)
		}
		for range s.Batches(0) {
		}
		s.NextOffset()
		s.Find(101)
		s.FindTime(1001, 100)
		s.Info()
		scan, err := s.Recover(ctx, ScanOptions{Durable: durable})
		if err != nil {
			if string(fileBytes(t, fsys, file(100, ".log"))) != string(log) {
				t.Fatalf("changed by a recovery that failed: %v", err)
			}
			s.Abandon()
			return
		}
		first := map[string]string{}
		for _, kind := range []string{".log", ".index", ".timeindex"} {
			first[kind] = string(fileBytes(t, fsys, file(100, kind)))
		}
		if first[".log"] != string(log[:scan.ValidBytes]) {
			t.Fatal("not a prefix")
		}
		n := 0
		for _, err := range s.Batches(0) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		if n != scan.Batches {
			t.Fatalf("%d batches, recovery counted %d", n, scan.Batches)
		}
		again, err := s.Recover(ctx, ScanOptions{Durable: durable})
		if err != nil || again.Verdict != Clean || again.CutBytes != 0 || again.NextOffset != scan.NextOffset {
			t.Fatalf("second recovery: %+v, %v", again, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		for kind, b := range first {
			if string(fileBytes(t, fsys, file(100, kind))) != b {
				t.Fatalf("%s is not what the first recovery left", kind)
			}
		}
	})
}

func FuzzHeader(f *testing.F) {
	f.Add(batchOf(f, 5, 2, 1, "v"), int64(100))
	f.Add(make([]byte, 17), int64(17))
	f.Fuzz(func(t *testing.T, b []byte, remaining int64) {
		h, reason := parseHeader(b, remaining)
		if reason == "" && (h.size > remaining || h.size < 26 || h.last < h.base || h.base < 0) {
			t.Fatalf("%+v", h)
		}
	})
}

// Whatever the index files hold, every offset is found where it is.
func FuzzIndexes(f *testing.F) {
	f.Add([]byte{0, 0, 0, 3, 0, 0, 0, 9}, []byte{0, 0, 0, 0, 0, 0, 0, 50, 0, 0, 0, 3})
	f.Add([]byte{}, []byte{})
	f.Add(noise(64), noise(60))
	f.Fuzz(func(t *testing.T, idx, tim []byte) {
		fsys := vfs.Mem()
		_ = fsys.MkdirAll(dir, 0o755)
		var log []byte
		for i := range int64(20) {
			log = append(log, batchOf(t, i, 1, 10*i+1, "v")...)
		}
		size := int64(len(log)) / 20
		setBytes(t, fsys, file(0, ".log"), log)
		setBytes(t, fsys, file(0, ".index"), idx)
		setBytes(t, fsys, file(0, ".timeindex"), tim)
		s, err := Open(dir, 0, Options{FS: fsys, IndexIntervalBytes: 100})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for i := range int64(20) {
			if p, err := s.Find(i); err != nil || p.Base != i || p.Pos != i*size {
				t.Fatalf("offset %d: %+v, %v", i, p, err)
			}
		}
		if next, err := s.NextOffset(); err != nil || next != 20 {
			t.Fatalf("next offset %d, %v", next, err)
		}
	})
}
