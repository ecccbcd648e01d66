//go:build !amd64 || purego

package record

const (
	folds     = false
	foldLeast = 0
)

func fold(state uint32, _ []byte) uint32 { return state }
