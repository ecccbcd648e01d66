//go:build logpoison

package record

// poisons says that poison does something, and what it needs must be remembered.
const poisons = true

// poison overwrites a released buffer so that a view kept too long is noticed.
func poison(b []byte) {
	for i := range b {
		b[i] = 0xDB
	}
}
