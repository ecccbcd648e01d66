//go:build !race

package timeindex

const raceDetector = false
