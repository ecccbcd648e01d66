//go:build !unix

package log

// fileLimit is how many descriptors the process may have at one time, where nobody says: enough, and no burden to a system
// without a limit.
func fileLimit() uint64 { return 4096 }
