package main

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/partlog/partlog/internal/golden"
	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/vfs"
)

// FuzzRepair puts bytes into any file of a partition or its root: a repair must end without error, and verify must find
// nothing afterwards.
func FuzzRepair(f *testing.F) {
	cases := []string{"txn-commit-abort", "codec-mixed", "legacy-v1", "killed", "delete-records", "compact-txn", "epochs"}
	trees := make([]map[string][]byte, len(cases))
	names := make([][]string, len(cases))
	whole := make([]map[string]bool, len(cases))
	ends := make([]int64, len(cases))
	for i, name := range cases {
		root := f.TempDir()
		if err := golden.Into(root, name); err != nil {
			f.Fatal(err)
		}
		tree := os.DirFS(root)
		trees[i] = map[string][]byte{}
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
		sound := vfs.Mem()
		load(f, sound, name, "", 0)
		whole[i] = map[string]bool{}
		for _, r := range recordsOn(f, sound, log.TopicPartition{Topic: name}) {
			whole[i][r] = true
			ends[i] = offsetIn(r) + 1
		}
		for j := range names[i] {
			f.Add(byte(i), byte(j), uint16(0), byte(0), []byte{})
			f.Add(byte(i), byte(j), uint16(100), byte(1), []byte("\xff\x00"))
			f.Add(byte(i), byte(j), uint16(1), byte(1), make([]byte, 600))
			f.Add(byte(i), byte(j), uint16(2000), byte(3), []byte("inserted"))
			f.Add(byte(i), byte(j), uint16(5), byte(2), []byte("0\n1\nx 0 -1\n"))
		}
	}
	f.Fuzz(func(t *testing.T, which, file byte, at uint16, mode byte, data []byte) {
		i := int(which) % len(cases)
		target := names[i][int(file)%len(names[i])]
		mem := vfs.Mem()
		for _, name := range names[i] {
			b := append([]byte{}, trees[i][name]...)
			if name == target {
				cut := min(int(at), len(b))
				switch mode % 4 {
				case 0:
					b = data
				case 1:
					copy(b[cut:], data)
				case 2:
					b = append(b[:cut:cut], data...)
				case 3: // insert
					b = append(append(b[:cut:cut], data...), b[cut:]...)
				}
			}
			if dir, _, nested := strings.Cut(name, "/"); nested {
				if err := mem.MkdirAll(dir, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			w, err := mem.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o644)
			if err == nil {
				_, err = w.WriteAt(b, 0)
			}
			if err = errors.Join(err, w.Close()); err != nil {
				t.Fatal(err)
			}
		}
		tp := log.TopicPartition{Topic: cases[i]}
		if err := repairOn(t, mem, tp); err != nil {
			t.Fatalf("%s: %v", target, err)
		}
		for _, r := range recordsOn(t, mem, tp) {
			// The offset of the last batch is under no checksum, and nothing behind it tells that it grew.
			if !whole[i][r] && offsetIn(r) < ends[i] && !strings.HasSuffix(target, "log-start-offset-checkpoint") && mode%4 == 1 && len(data) < 5 {
				t.Fatalf("%s: a record that was not there: %s", target, r)
			}
		}
	})
}

// offsetIn is the offset of a record as recordsOn writes it.
func offsetIn(line string) int64 {
	digits, _, _ := strings.Cut(line, " ")
	offset, err := offsetArg(digits)
	if err != nil {
		panic(line)
	}
	return offset
}
