//go:build !race

package log

const raceShare = 1
