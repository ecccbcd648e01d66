//go:build race

package log

const raceShare = 40 // the race detector makes a disk about fifteen times as dear
