package timeindex_test

import (
	"fmt"

	"github.com/partlog/partlog/index"
	"github.com/partlog/partlog/timeindex"
	"github.com/partlog/partlog/vfs"
)

// An entry says that every younger record lies behind its offset; the log is read on from there.
func Example() {
	x, err := timeindex.Create("00000000000000001000.timeindex", 1000, index.Options{FS: vfs.Mem()})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer x.Close()
	for _, e := range []timeindex.Entry{{Timestamp: 50_000, Offset: 1019}, {Timestamp: 50_000, Offset: 1040}, {Timestamp: 51_000, Offset: 1060}} {
		added, err := x.Append(e)
		fmt.Println(e.Timestamp, added, err)
	}
	e, err := x.Lookup(50_700)
	fmt.Println(e.Offset, err)
	// Output:
	// 50000 true <nil>
	// 50000 false <nil>
	// 51000 true <nil>
	// 1019 <nil>
}
