// Package vfstest holds three file systems to test storage code with. Each is a [vfs.FS], so the code under test does
// not know.
//
//	Fault   wraps any FS: the n-th matching call fails, is cut short, waits, runs a hook; the disk fills up
//	Trace   wraps any FS: writes down every call in order, to assert on the order and to count
//	Crash   a page cache above a device, in memory: yields every disk that could be left after a power loss
//
// They stack: Fault over Crash makes a sync fail and lose its pages, Trace over anything counts.
//
// # What Crash believes of disks
//
//	file data    4 KiB pages, written back in any order: an unsynced page is old, or new, or any version between, or
//	             torn at a 512-byte sector (the rest old, zeros or garbage)
//	file length  a separate choice: it may be kept without the data (zeros, garbage) or lost with it; a cut may be
//	             kept or lost, and what it removed never comes back behind it once it is kept
//	directory    every unsynced create, remove, rename, link, mkdir is kept or lost by itself; two that touch the same
//	             name keep their order; a rename is kept or lost whole
//	Sync         makes the data and the length of that file durable and nothing else: a file whose directory was never
//	             synced is unborn and goes with its content
//	SyncDir      makes the entries of that directory durable and nothing else
//	failed sync  the pages count as clean, read back as written, and are not on the device (see Rule.LosePages)
//
// A sector is written whole or not at all, and writing never harms bytes that were durable and not written.
//
//	c := vfstest.NewCrash(vfstest.CrashOptions{})
//	prepare(c)
//	c.Mark() // everything so far is on the device
//	work(c)  // calls c.Note("5 acknowledged") at its ack points
//	for disk := range c.Disks(vfstest.DiskOptions{}) {
//		if err := recoverAndCheck(disk.FS(), disk.Notes()); err != nil {
//			t.Fatalf("%v\n%s", err, disk.Describe())
//		}
//	}
package vfstest
