package record

import "math"

// IncrementSequence is the producer sequence n records after seq. Sequences live in [0, 2^31-1] and wrap to 0.
func IncrementSequence(seq, n int32) int32 {
	if seq > math.MaxInt32-n {
		return n - (math.MaxInt32 - seq) - 1
	}
	return seq + n
}

// DecrementSequence is the producer sequence n records before seq, wrapping from 0 to 2^31-1.
func DecrementSequence(seq, n int32) int32 {
	if seq < n {
		return math.MaxInt32 - (n - seq) + 1
	}
	return seq - n
}
