package record

import "sync"

// Limits bound what one batch may cost, before anything is allocated for it.
type Limits struct {
	// MaxBatchBytes is the largest encoded batch, header included; 0 = 1 MiB + 12 (Kafka's max.message.bytes).
	MaxBatchBytes int
	// MaxDecompressedBytes is the most that the records of one batch may decompress to; 0 = 64 MiB. A batch that goes
	// beyond it is ErrTooLarge. So is a record whose headers, forty bytes each in memory but two encoded, would take
	// more than it, or than 1 MiB if that is more.
	MaxDecompressedBytes int
}

const defaultMaxBatchBytes = 1<<20 + 12

// DefaultMaxDecompressedBytes is what Limits.MaxDecompressedBytes means by 0.
const DefaultMaxDecompressedBytes = 64 << 20

func (l Limits) withDefaults() Limits {
	if l.MaxBatchBytes <= 0 {
		l.MaxBatchBytes = defaultMaxBatchBytes
	}
	if l.MaxDecompressedBytes <= 0 {
		l.MaxDecompressedBytes = DefaultMaxDecompressedBytes
	}
	return l
}

// maxHeaders is how many headers one record may have: what they take in memory is no less of a bomb than what a payload
// unpacks to.
func (l Limits) maxHeaders() int { return max(l.MaxDecompressedBytes, 1<<20) / headerBytes }

// headerBytes is the size of a Header on 64 bits.
const headerBytes = 40

// DefaultMaxHeaders is how many headers one record may have under the default Limits.
const DefaultMaxHeaders = DefaultMaxDecompressedBytes / headerBytes

// Decoder owns the buffers of iteration and decompression: reuse one per reading goroutine. It serves one iteration at a
// time and is not safe for concurrent use. It holds nothing that must be closed.
type Decoder struct {
	lim     Limits
	headers []Header   // of the current record; the key strings are reused while they repeat
	codecs  codecState // decompressors and their output buffer
	build   *Builder   // rebuilds batches for Validate; nil until first needed
}

// NewDecoder makes a decoder with the given limits.
func NewDecoder(lim Limits) *Decoder { return &Decoder{lim: lim.withDefaults()} }

// decoders serves iterations that were given no decoder.
var decoders = sync.Pool{New: func() any { return NewDecoder(Limits{}) }}
