//go:build !unix && !windows

package vfs

const (
	openNonblock  = 0
	openDirectory = 0
)

func maxOpen() int { return 0 }
