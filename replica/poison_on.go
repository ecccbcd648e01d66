//go:build logpoison

package replica

// poison overwrites a buffer that is given back, so that records which somebody still looks at are noticed.
func poison(b []byte) {
	for i := range b {
		b[i] = 0xDB
	}
}
