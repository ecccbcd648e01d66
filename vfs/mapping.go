package vfs

import (
	"runtime/debug"
	"sync"
	"sync/atomic"
	"unsafe"
)

// readers counts running Reads of a mapping. A guard cannot protect against an unmapped address that something else was
// mapped to since, so memory is given back only when nobody is inside.
type readers struct {
	state atomic.Int64 // closing once closed, plus the number of Reads inside
	once  sync.Once
	idle  chan struct{} // closed when state is exactly closing
}

const closing = int64(1) << 62

func (r *readers) enter() bool {
	if r.state.Add(1) < closing {
		return true
	}
	r.leave()
	return false
}

func (r *readers) leave() {
	if r.state.Add(-1) == closing {
		r.once.Do(func() { close(r.idle) })
	}
}

// shut refuses new Reads and waits for running ones. It may be called once.
func (r *readers) shut() {
	if r.state.Add(closing) == closing {
		r.once.Do(func() { close(r.idle) })
	}
	<-r.idle
}

// guarded runs f(b) and says false if it ended with a memory fault at an address inside b. This is the one place in the
// library that recovers a panic it did not expect: without it a file cut by another process, or a device that cannot
// read a page, would kill the host.
func guarded(b []byte, f func(b []byte)) (ok bool) {
	old := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(old)
		r := recover()
		if r == nil {
			ok = true
			return
		}
		if !faultIn(b, r) {
			panic(r)
		}
	}()
	f(b)
	return true
}

// faultIn says whether a recovered value is a memory fault at an address inside b.
func faultIn(b []byte, r any) bool {
	fault, ok := r.(interface {
		error
		Addr() uintptr
	})
	if !ok || len(b) == 0 {
		return false
	}
	start := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	return fault.Addr()-start < uintptr(len(b))
}
