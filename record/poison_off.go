//go:build !logpoison

package record

// poison overwrites a released buffer in builds with the logpoison tag, so that a view kept too long is noticed.
func poison([]byte) {}
