//go:build !purego

package record

import "golang.org/x/sys/cpu"

// folds says that processor and system have what fold needs.
var folds = cpu.X86.HasAVX512F && cpu.X86.HasAVX512VPCLMULQDQ && cpu.X86.HasSSE42

// foldLeast is how many bytes fold takes at least.
const foldLeast = 256

// fold takes the state of a CRC, which is its complement, on over p.
//
//go:noescape
func fold(state uint32, p []byte) uint32
