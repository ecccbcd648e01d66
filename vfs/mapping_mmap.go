//go:build linux || darwin || freebsd

package vfs

import (
	"io/fs"
	"sync"

	"github.com/edsrzf/mmap-go"
)

// osMapping is a mapped file.
type osMapping struct {
	readers
	close sync.Once
	b     mmap.MMap
	name  string
}

// mapFile maps the first n bytes, which the caller has found to be there. It runs inside RawConn.Control, so that the
// descriptor cannot be closed and reused meanwhile.
func mapFile(o *osFile, n int) (Mapping, error) {
	m := &osMapping{readers: readers{idle: make(chan struct{})}, name: o.f.Name()}
	err := o.control("map", func(uintptr) (err error) {
		m.b, err = mmap.MapRegion(o.f, n, mmap.RDONLY, 0, 0)
		return err
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

func (m *osMapping) Len() int64 { return int64(len(m.b)) }

func (m *osMapping) Read(f func(b []byte)) error {
	if !m.enter() {
		return &fs.PathError{Op: "read mapping of", Path: m.name, Err: fs.ErrClosed}
	}
	defer m.leave()
	if !guarded(m.b[:len(m.b):len(m.b)], f) {
		return &fs.PathError{Op: "read mapping of", Path: m.name, Err: ErrFault}
	}
	return nil
}

func (m *osMapping) Close() (err error) {
	m.close.Do(func() {
		m.shut()
		b := m.b
		err = b.Unmap()
	})
	return err
}
