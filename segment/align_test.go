package segment

import (
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"unsafe"

	"github.com/partlog/partlog/vfs"

	"github.com/stretchr/testify/require"
)

// aligned notes reads into places that are not as far behind a cache line as what is read.
type aligned struct {
	vfs.File
	reads, astray int
}

func (f *aligned) ReadAt(p []byte, off int64) (int, error) {
	f.reads++
	if uintptr(unsafe.Pointer(unsafe.SliceData(p)))%cacheLine != uintptr(off%cacheLine) {
		f.astray++
	}
	return f.File.ReadAt(p, off)
}

// Every batch comes whole, wherever reading begins and however full the buffer is, and reads are aligned.
func TestReadsGoWhereTheKernelCopiesFastest(t *testing.T) {
	s := create(t, 0, Options{})
	r := rand.New(rand.NewPCG(1, 2))
	var starts []int64
	var all []byte
	for i := range int64(100) {
		raw := batchOf(t, i, 1, 5, strings.Repeat("x", r.IntN(20_000)))
		if i == 50 {
			raw = batchOf(t, i, 1, 5, strings.Repeat("x", readBuffer-100)) // leaves no room to be aligned in
		}
		starts = append(starts, int64(len(all)))
		all = append(all, raw...)
		_, err := s.Append(raw)
		require.NoError(t, err)
	}
	h, err := s.acquire()
	require.NoError(t, err)
	defer h.release()
	f := &aligned{File: h}
	for _, from := range []int{0, 1, 7, 33, 49, 50, 51, 98} {
		in := newReader(f, starts[from], int64(len(all)))
		for i := from; i < len(starts); i++ {
			b, at, err := in.next()
			require.NoError(t, err)
			require.Equal(t, starts[i], at)
			require.Equal(t, all[at:at+int64(b.Size())], b.Bytes())
		}
		_, _, err := in.next()
		require.Equal(t, io.EOF, err)
		in.close()
	}
	require.Less(t, f.astray, f.reads/5, "of %d reads", f.reads)
}
