//go:build !race

package log

const (
	raceEnabled = false
	raceShare   = 4
)
