//go:build race

package timeindex

const raceDetector = true
