package segment

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// sendChunk bounds one sendfile call, so that a cut is noticed between calls.
const sendChunk = 1 << 20

// send moves the region to a socket inside the kernel. handled is false if this pair of descriptors cannot do that: the
// caller copies what is left.
func (r *Region) send(dst syscall.Conn, src *handle) (sent int64, handled bool, err error) {
	in, err := src.SyscallConn()
	if err != nil {
		return 0, false, nil
	}
	out, err := dst.SyscallConn()
	if err != nil {
		return 0, false, nil
	}
	var failed, stalled error // of sendfile or the file; of the socket, its deadline for one
	err = in.Control(func(fd uintptr) {
		stalled = out.Write(func(sock uintptr) bool {
			var wait bool
			sent, wait, failed = r.sendfile(int(sock), int(fd), sent)
			return !wait
		})
	})
	err = errors.Join(err, failed, stalled)
	if sent == 0 && (errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP)) {
		return 0, false, nil
	}
	return sent, true, err
}

// sendfile sends until the region is done, the socket is full (wait), or something fails.
func (r *Region) sendfile(sock, fd int, sent int64) (now int64, wait bool, err error) {
	for sent < r.n {
		off := r.pos + sent
		n, err := unix.Sendfile(sock, fd, &off, int(min(sendChunk, r.n-sent)))
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return sent, true, nil
		case err != nil:
			return sent, false, err
		}
		sent += int64(n)
		if err := r.check(sent, n > 0); err != nil {
			return sent, false, err
		}
	}
	return sent, false, nil
}
