//go:build !race

package record

const poolsForget = false
