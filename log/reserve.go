package log

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/partlog/partlog/vfs"
)

// reserve keeps DirConfig.MinFreeBytes of the root's device free. Appends take from an allowance that one look at the
// device gives: the nearer the reserve, the smaller it is.
type reserve struct {
	fs     vfs.FS
	min    int64
	allows atomic.Int64 // bytes that may be appended before the next look
	looked atomic.Int64 // when that was, Unix ms
}

// Between two looks at most half of the room is given away, mostBetween bytes, and one second.
const (
	mostBetween = 64 << 20
	looksEvery  = 1000
)

// check refuses a reserve that cannot be kept.
func (r *reserve) check() error {
	if r.min == 0 {
		return nil
	}
	if _, err := r.fs.Free("."); errors.Is(err, errors.ErrUnsupported) {
		return &ConfigError{Field: "DirConfig.MinFreeBytes", Value: fmt.Sprint(r.min), Reason: "this file system cannot say how much space is free"}
	}
	return nil
}

// admit says whether n more bytes may be written. A device that does not answer is not judged: the write will be.
func (r *reserve) admit(n int64, now time.Time) error {
	if r.min == 0 {
		return nil
	}
	ms := now.UnixMilli()
	if since := ms - r.looked.Load(); since >= 0 && since < looksEvery && r.allows.Add(-n) >= 0 {
		return nil
	}
	free, err := r.fs.Free(".")
	if err != nil {
		return nil
	}
	room := free - r.min
	r.looked.Store(ms)
	if n > room {
		r.allows.Store(0)
		return fmt.Errorf("%w: %d bytes are free and %d are kept in reserve (MinFreeBytes)", ErrNoSpace, max(free, 0), r.min)
	}
	r.allows.Store(min((room-n)/2, mostBetween))
	return nil
}
