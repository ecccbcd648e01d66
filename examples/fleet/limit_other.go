//go:build !unix

package main

import "errors"

func limitFiles(uint64) error { return errors.ErrUnsupported }

func limitText() string { return "unknown" }
