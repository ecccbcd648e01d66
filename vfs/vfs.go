// Package vfs is the library's one door to the disk: small interfaces for a directory tree, its files and read-only
// mappings of them, with an implementation over the operating system and a complete one in memory.
//
// Nothing else in the module calls package os for data. Names are slash-separated paths below the root of an [FS]
// ("orders-0/00000000000000000000.log"); "." is the root itself. A name can never leave the tree.
//
//	OS(root)          the operating system, contained in root     OSReadOnly(root)  the same, never written
//	Mem()             a tree in memory with the same answers       Overlay(base)     changes in memory above a tree
//
// What an implementation cannot do it answers with [ErrUnsupported]; callers have a slower way for each such call.
package vfs

import (
	"errors"
	"io"
	"io/fs"
	"syscall"
	"time"
)

// FS is one directory tree. All methods are safe for concurrent use. Errors are *fs.PathError or *os.LinkError-like
// errors that name the file and unwrap to fs.ErrNotExist, fs.ErrExist, fs.ErrPermission or the errno.
type FS interface {
	// OpenFile opens a regular file with os.O_* flags; a directory is EISDIR. O_APPEND, and O_TRUNC without write
	// access, are fs.ErrInvalid: all I/O is positional. perm has the nine permission bits only.
	OpenFile(name string, flag int, perm fs.FileMode) (File, error)
	// Stat describes a file or directory; it never opens it.
	Stat(name string) (fs.FileInfo, error)
	// Rename replaces the file new atomically; an existing directory of that name is fs.ErrExist. It is durable only
	// after SyncDir of both parent directories.
	Rename(old, new string) error
	// Link makes a hard link, for backups.
	Link(old, new string) error
	// Remove removes a file or an empty directory.
	Remove(name string) error
	// MkdirAll makes a directory and its parents; an existing directory is not an error.
	MkdirAll(name string, perm fs.FileMode) error
	// ReadDir lists a directory in name order. A symbolic link inside the tree is listed as what it leads to.
	ReadDir(name string) ([]fs.DirEntry, error)
	// SyncDir makes creates, renames and removes in the directory durable.
	SyncDir(name string) error
	// Lock takes the named file (created if absent) exclusively against other processes, a JVM included, and against
	// other openers in this process. It does not wait: a held lock is a *LockedError (errors.Is ErrLocked) that says
	// who holds it, where that is known. Closing the lock removes the file and releases it.
	Lock(name string) (io.Closer, error)
	// Chtimes sets the modification time of a file.
	Chtimes(name string, mtime time.Time) error
	// Free is the space an ordinary user may still write, in bytes, on the device that holds name.
	Free(name string) (bytes int64, err error)
	// Traits says what the file system that holds name can be trusted with.
	Traits(name string) Traits
}

// Traits of a file system: what may be used beyond plain positional reads and writes.
type Traits struct {
	Mmap        bool // mappings are coherent and safe; false on NFS, SMB, FUSE, 32-bit, Windows, wasm
	Sendfile    bool // File.SyscallConn may be given to sendfile
	ShareDelete bool // an open file can be renamed and removed
	Evict       bool // File.Evict really makes the next read see the device
	MaxOpen     int  // descriptors this process may hold; 0 unknown
}

// File is an open file with positional I/O only; there is no shared cursor. All methods are safe for concurrent use.
// A read that starts inside the file and meets its end returns the bytes there are and io.EOF, as io.ReaderAt demands.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Size is the present length in bytes.
	Size() (int64, error)
	// Truncate sets the length; growth reads as zeros.
	Truncate(n int64) error
	// Sync makes data, length and metadata durable. After an error nothing may be assumed durable: the pages may
	// read back as written and still never reach the device (see Evict).
	Sync() error
	// SyncData is fdatasync: data and the length needed to read it back; Sync where there is no such call.
	SyncData() error
	// Allocate reserves space, best effort, without changing the length.
	Allocate(off, n int64) error
	// Evict drops clean cached pages of the range so that the next read sees the device; dirty pages stay.
	Evict(off, n int64) error
	// Map maps the first n bytes read-only; n must be > 0 and not beyond the file's length (fs.ErrInvalid), because
	// the pages behind it would fault. The mapping outlives the file's Close. Do not count on later writes showing in it,
	// nor on their not showing.
	Map(n int64) (Mapping, error)
	// SyscallConn gives the descriptor to sendfile.
	SyscallConn() (syscall.RawConn, error)
}

// Mapping is a read-only view of a file's first Len bytes.
type Mapping interface {
	Len() int64
	// Read calls f with the mapped bytes; it may be called concurrently and from within f. A fault inside the mapping
	// (file cut underneath, device error) ends f and is returned as ErrFault; any other panic passes through. b must
	// not escape f, and f must not call user code, nor Close. After Close it returns fs.ErrClosed.
	Read(f func(b []byte)) error
	// Close waits for running Reads, then unmaps. A second Close does nothing.
	Close() error
}

var (
	// ErrLocked is what a *LockedError is: the lock file is held by someone else.
	ErrLocked = errors.New("vfs: locked")
	// ErrFault is returned by Mapping.Read when the mapped bytes could not be read.
	ErrFault = errors.New("vfs: mapped file changed underneath")
	// ErrUnsupported is returned by calls this implementation or platform does not have.
	ErrUnsupported = errors.ErrUnsupported
)

// LockedError says who holds a lock file.
type LockedError struct {
	Name   string // the lock file
	Holder string // "process 4711" or "this process"; "" if unknown
}

func (e *LockedError) Error() string {
	if e.Holder == "" {
		return e.Name + ": locked by another owner"
	}
	return e.Name + ": locked by " + e.Holder
}

// Is makes errors.Is(err, ErrLocked) true.
func (e *LockedError) Is(target error) bool { return target == ErrLocked }
