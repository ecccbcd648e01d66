//go:build !unix

package main

import "io"

var errPipe = io.ErrClosedPipe
