package vfstest_test

import (
	"fmt"
	"os"
	"syscall"

	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"
)

// A file is replaced by way of a temporary one. Without the sync before the rename, the new name may lead to nothing.
func ExampleCrash() {
	replace := func(fsys vfs.FS, content string, sync bool) {
		f, _ := fsys.OpenFile("conf.tmp", os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
		_, _ = f.WriteAt([]byte(content), 0)
		if sync {
			_ = f.Sync()
		}
		_ = f.Close()
		_ = fsys.Rename("conf.tmp", "conf")
		_ = fsys.SyncDir(".")
	}
	for _, sync := range []bool{true, false} {
		c := vfstest.NewCrash(vfstest.CrashOptions{})
		replace(c, "old", true)
		c.Mark()
		replace(c, "new", sync)
		c.Note("replaced")

		wrong := 0
		for disk := range c.Disks(vfstest.DiskOptions{}) {
			b, err := vfs.ReadFile(disk.FS(), "conf", 100)
			replaced := len(disk.Notes()) > 0
			if err != nil || string(b) != "new" && (replaced || string(b) != "old") {
				wrong++
			}
		}
		fmt.Println("synced before the rename:", sync, "- a crash can break it:", wrong > 0)
	}
	// Output:
	// synced before the rename: true - a crash can break it: false
	// synced before the rename: false - a crash can break it: true
}

func ExampleFault() {
	fsys := vfstest.NewFault(vfs.Mem(),
		vfstest.Rule{Ops: []vfstest.Kind{vfstest.OpWrite}, Name: "*.log", Nth: 2, Err: syscall.ENOSPC, Short: true, Keep: 3})
	f, _ := fsys.OpenFile("a.log", os.O_RDWR|os.O_CREATE, 0o644)
	_, _ = f.WriteAt([]byte("first "), 0)
	n, err := f.WriteAt([]byte("second"), 6)
	b, _ := vfs.ReadFile(fsys, "a.log", 100)
	fmt.Println(n, err == syscall.ENOSPC, string(b))
	// Output: 3 true first sec
}

func ExampleTrace() {
	fsys := vfstest.NewTrace(vfs.Mem())
	f, _ := fsys.OpenFile("a.log", os.O_RDWR|os.O_CREATE, 0o644)
	_, _ = f.WriteAt([]byte("record"), 0)
	_ = f.SyncData()
	_ = fsys.SyncDir(".")
	fsys.Note("acknowledged")
	fmt.Print(fsys)
	fmt.Println("syncs:", fsys.Count(vfstest.OpSync, vfstest.OpSyncData, vfstest.OpSyncDir))
	// Output:
	//    0  create a.log
	//    1  write a.log [0,6)
	//    2  syncdata a.log
	//    3  syncdir .
	//    4  note acknowledged
	// syncs: 2
}
