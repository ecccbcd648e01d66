package index_test

import (
	"fmt"

	"github.com/partlog/partlog/index"
	"github.com/partlog/partlog/vfs"
)

// An index answers with a position at or before the batch that holds the offset; the log is read on from there.
func Example() {
	x, err := index.Create("00000000000000001000.index", 1000, index.Options{FS: vfs.Mem()})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer x.Close()
	for _, e := range []index.Entry{{Offset: 1019, Position: 4101}, {Offset: 1040, Position: 8260}} {
		if err := x.Append(e); err != nil {
			fmt.Println(err)
			return
		}
	}
	for _, offset := range []int64{1007, 1019, 1039, 5000} {
		e, err := x.Lookup(offset)
		fmt.Println(offset, "is at or behind byte", e.Position, err)
	}
	// Output:
	// 1007 is at or behind byte 0 <nil>
	// 1019 is at or behind byte 4101 <nil>
	// 1039 is at or behind byte 4101 <nil>
	// 5000 is at or behind byte 8260 <nil>
}
