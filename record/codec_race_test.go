//go:build race

package record

// poolsForget: under the race detector sync.Pool drops what it is given at random, so reuse cannot be counted.
const poolsForget = true
