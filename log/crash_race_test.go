//go:build race

package log

const raceShare = 20 // the race detector makes a disk about fifteen times as dear
