package main

import (
	"fmt"
	"strings"
)

// counted is a number of things: "1 file", "2 files", "2 batches".
func counted[N int | int64](n N, what string) string {
	switch {
	case n == 1:
		return "1 " + what
	case strings.HasSuffix(what, "ch"):
		what += "e"
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// holding says what offsets a log holds.
func holding(start, end int64) string {
	if start == end {
		return fmt.Sprintf("the log is empty, its next offset is %d", end)
	}
	return "the log holds " + span(start, end)
}

// span is the offsets from first up to, but not including, next as people name them: by the first and the last.
func span(first, next int64) string {
	if next-first == 1 {
		return fmt.Sprintf("offset %d", first)
	}
	return fmt.Sprintf("offsets %d to %d", first, next-1)
}
