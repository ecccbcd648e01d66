//go:build race

package log

const (
	raceEnabled = true
	raceShare   = 40 // the race detector makes a disk about fifteen times as dear
)
