//go:build logpoison

package log

import (
	"runtime"
	"sync/atomic"
)

// leak knows whether a Fetched was closed, and outlives it.
type leak struct {
	v      *view
	closed atomic.Bool
}

// watch counts f in Stats.Leaked if the garbage collector finds it before Close.
func (f *Fetched) watch() {
	l := &leak{v: f.v}
	f.leak = l
	runtime.AddCleanup(f, func(l *leak) {
		if !l.closed.Load() {
			l.v.leaked.Add(1)
		}
	}, l)
}

// unwatch is called by Close.
func (f *Fetched) unwatch() { f.leak.closed.Store(true) }
