package log

import (
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/partlog/partlog/internal/golden"
	"github.com/partlog/partlog/vfs"
)

// FuzzVerify puts bytes into any file of a folder: Verify must end, without a panic and without an error, and so must
// Extents.
func FuzzVerify(f *testing.F) {
	cases := []string{"txn-commit-abort", "codec-mixed", "legacy-v1", "killed"}
	trees := make([]map[string][]byte, len(cases))
	names := make([][]string, len(cases))
	for i, name := range cases {
		root := f.TempDir()
		if err := golden.Into(root, name); err != nil {
			f.Fatal(err)
		}
		trees[i] = map[string][]byte{}
		tree := os.DirFS(root)
		err := fs.WalkDir(tree, ".", func(p string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			names[i] = append(names[i], p)
			trees[i][p], err = fs.ReadFile(tree, p)
			return err
		})
		if err != nil {
			f.Fatal(err)
		}
		for j := range names[i] {
			f.Add(byte(i), byte(j), uint16(0), byte(0), []byte{})
			f.Add(byte(i), byte(j), uint16(20), byte(1), []byte("\xff\xff\xff\xff\x00\x00\x00\x10"))
			f.Add(byte(i), byte(j), uint16(40), byte(2), []byte("0\n1\nx 0 -1\n"))
		}
	}
	f.Fuzz(func(t *testing.T, which, file byte, at uint16, mode byte, data []byte) {
		i := int(which) % len(cases)
		target := names[i][int(file)%len(names[i])]
		mem := vfs.Mem()
		for _, name := range names[i] {
			b := trees[i][name]
			if name == target {
				b = garbled(b, int(at), mode, data)
			}
			if dir, _, nested := strings.Cut(name, "/"); nested {
				if err := mem.MkdirAll(dir, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			w, err := mem.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o644)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.WriteAt(b, 0); err != nil {
				t.Fatal(err)
			}
			w.Close()
		}
		for _, err := range Verify(t.Context(), mem, VerifyOptions{}) {
			if err != nil {
				t.Fatal(err)
			}
		}
		if strings.HasSuffix(target, ".log") {
			extents, err := Extents(t.Context(), mem, target, 0)
			if err != nil {
				t.Fatal(err)
			}
			at := int64(0)
			for _, e := range extents {
				if e.Position != at || e.Bytes <= 0 {
					t.Fatalf("extents %+v do not follow each other", extents)
				}
				at += e.Bytes
			}
		}
	})
}

func garbled(b []byte, at int, mode byte, data []byte) []byte {
	at = min(at, len(b))
	switch mode % 3 {
	case 0:
		return data
	case 1:
		out := append([]byte{}, b...)
		copy(out[at:], data)
		return out
	}
	return append(append([]byte{}, b[:at]...), data...)
}
