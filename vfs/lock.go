package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
)

// A lock file is empty; what counts is the operating system's lock on it, in the way a JVM takes one (see lockOS).
//
//	open or create → claim in this process → lock → still the same file under that name? → held
//	close: remove the file if it is still ours → release
//
// The owner removes the file at a clean stop, so whoever opened it before must look again after it has the lock: else
// two owners would hold locks on two files of the same name.

// lockAttempts bounds how often a lock file may vanish between opening and locking it.
const lockAttempts = 100

// errHeld is what lockOS answers when someone else has the lock.
var errHeld = errors.New("held")

// held are the lock files of this process. Where locks belong to the process (POSIX), it is what excludes a second
// opener here; elsewhere it only names the holder.
var held registry

type registry struct {
	mu    sync.Mutex // guards locks; never held across I/O
	locks []*osLock
}

// claim enters l unless the same file is in already.
func (r *registry) claim(l *osLock) (owner *osLock) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, other := range r.locks {
		if os.SameFile(other.info, l.info) {
			return other
		}
	}
	r.locks = append(r.locks, l)
	return nil
}

// has says whether the file fi describes is locked by this process.
func (r *registry) has(fi fs.FileInfo) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, other := range r.locks {
		if os.SameFile(other.info, fi) {
			return true
		}
	}
	return false
}

// drop takes l out and returns what has to be closed with it.
func (r *registry) drop(l *osLock) []*os.File {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, other := range r.locks {
		if other == l {
			r.locks = append(r.locks[:i], r.locks[i+1:]...)
			break
		}
	}
	return append(l.parked, l.f)
}

// park keeps f open as long as owner: with POSIX locks, closing any descriptor of a file drops the process's lock on
// it. It says false if owner is gone by now and f can be closed.
func (r *registry) park(owner *osLock, f *os.File) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, other := range r.locks {
		if other == owner {
			owner.parked = append(owner.parked, f)
			return true
		}
	}
	return false
}

// osLock is a held lock file.
type osLock struct {
	fs     *osFS
	name   string
	f      *os.File
	info   fs.FileInfo
	parked []*os.File // guarded by registry.mu
	once   sync.Once
}

func lockFile(o *osFS, name string) (io.Closer, error) {
	for range lockAttempts {
		l, err := tryLock(o, name)
		if err != nil {
			return nil, err
		}
		if l != nil {
			return l, nil
		}
	}
	err := fmt.Errorf("%w: the file was replaced %d times while it was being locked", ErrLocked, lockAttempts)
	return nil, o.named("lock", name, err)
}

// tryLock returns nil, nil if the file changed hands meanwhile and has to be looked at again.
func tryLock(o *osFS, name string) (*osLock, error) {
	l, err := openLock(o, name)
	if err != nil {
		return nil, err
	}
	ours, err := l.take()
	if err != nil || !ours {
		return nil, err
	}
	return l, nil
}

// openLock opens or creates the file and claims it in this process.
func openLock(o *osFS, name string) (*osLock, error) {
	// Looking before opening matters only where a close would drop the lock; it costs one call everywhere.
	if fi, err := o.root.Stat(name); err == nil && held.has(fi) {
		return nil, &LockedError{Name: o.full(name), Holder: thisProcess}
	}
	f, err := o.openRegular(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	l := &osLock{fs: o, name: name, f: f, info: info}
	if owner := held.claim(l); owner != nil {
		if !closeDropsLocks || !held.park(owner, f) {
			f.Close()
		}
		return nil, &LockedError{Name: o.full(name), Holder: thisProcess}
	}
	return l, nil
}

// take locks the claimed file against other processes and says whether it is still the one the name leads to. If not,
// or on an error, everything is given back.
func (l *osLock) take() (ours bool, err error) {
	holder, err := lockOS(l.f)
	switch {
	case err == errHeld:
		err = &LockedError{Name: l.fs.full(l.name), Holder: holder}
	case err != nil:
		err = l.fs.named("lock", l.name, err)
	case l.current():
		return true, nil
	}
	if aerr := l.abandon(); err == nil {
		err = aerr
	}
	return false, err
}

const thisProcess = "this process"

// current says whether the name still leads to the locked file.
func (l *osLock) current() bool {
	fi, err := l.fs.root.Stat(l.name)
	return err == nil && os.SameFile(fi, l.info)
}

// abandon closes everything, which releases the lock.
func (l *osLock) abandon() (err error) {
	for _, f := range held.drop(l) {
		err = errors.Join(err, f.Close())
	}
	return err
}

// Close removes the file while the lock is still held, then releases it. A second Close does nothing.
func (l *osLock) Close() (err error) {
	l.once.Do(func() {
		if l.current() {
			if rerr := l.fs.root.Remove(l.name); !errors.Is(rerr, fs.ErrNotExist) {
				err = l.fs.named("unlock", l.name, rerr)
			}
		}
		err = errors.Join(err, l.abandon())
	})
	return err
}
