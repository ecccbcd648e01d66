//go:build !unix

package main

import (
	"errors"
	"time"
)

func limitFiles(uint64) error { return errors.ErrUnsupported }

func processorTime() time.Duration { return 0 }

func limitText() string { return "unknown" }
