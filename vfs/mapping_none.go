//go:build !linux && !darwin && !freebsd

package vfs

// mapFile is not reached: canMap is false here.
func mapFile(o *osFile, n int) (Mapping, error) { return nil, o.err("map", ErrUnsupported) }
