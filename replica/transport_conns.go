package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"
)

// connsOfNode is how many connections one node may have here; it needs one.
const connsOfNode = 4

// caller is what is known of the other end of a connection.
type caller struct {
	made  bool // by this side
	node  NodeID
	known bool // node is
	since time.Time
}

// track remembers a connection for Close; false if it is too late or there are too many.
func (t *TCP) track(c net.Conn, made bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || !made && t.callers >= t.conf.MaxConns && !t.evict(func(o *caller) bool { return !o.known }) && !t.evict(t.strange) {
		return false
	}
	t.conns[base(c)] = &caller{made: made, since: time.Now()}
	if !made {
		t.callers++
	}
	return true
}

// strange says that a connection is of a node that this one does not know: it could not be answered anyway. The caller holds mu.
func (t *TCP) strange(o *caller) bool { return t.peers[o.node] == nil }

// introduce notes who made a connection, and ends the oldest of a node that has too many.
func (t *TCP) introduce(c net.Conn, node NodeID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ours := func(o *caller) bool { return o.known && o.node == node }
	has := 0
	for _, o := range t.conns {
		if ours(o) {
			has++
		}
	}
	if has >= connsOfNode {
		t.evict(ours)
	}
	if o := t.conns[base(c)]; o != nil {
		o.node, o.known = node, true
	}
}

// evict ends the oldest connection that others made of those that which says; false if there is none. The caller holds mu.
func (t *TCP) evict(which func(*caller) bool) bool {
	var oldest net.Conn
	for c, o := range t.conns {
		if !o.made && which(o) && (oldest == nil || o.since.Before(t.conns[oldest].since)) {
			oldest = c
		}
	}
	if oldest == nil {
		return false
	}
	t.forget(oldest)
	_ = sever(oldest)
	return true
}

// forget takes a connection off the list. The caller holds mu.
func (t *TCP) forget(c net.Conn) {
	c = base(c)
	if o := t.conns[c]; o != nil && !o.made {
		t.callers--
	}
	delete(t.conns, c)
}

func (t *TCP) drop(c net.Conn) {
	t.mu.Lock()
	t.forget(c)
	t.mu.Unlock()
	_ = sever(c)
}

// ErrTransportFull: more is coming in at a time than may.
var ErrTransportFull = errors.New("replica: too much is coming in at a time")

// readFrame reads one frame into a buffer of its own. It allocates only what has come, or a piece ahead of it, which counts as
// coming until the frame is there.
func readFrame(r io.Reader, limit int, coming *atomic.Int64, begun func() error) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(length[:])
	if n < frameHead || int64(n) > int64(limit) {
		return nil, fmt.Errorf("%w: %d bytes, of at most %d", ErrFrame, n, limit)
	}
	if err := begun(); err != nil {
		return nil, err
	}
	const piece, pieces = 16 << 10, 1 << 20 // most frames, and what the next step is when it was not
	counted := int64(0)
	defer func() { coming.Add(-counted) }()
	body := make([]byte, min(int(n), piece))
	for have := 0; ; {
		if _, err := io.ReadFull(r, body[have:]); err != nil {
			return nil, err
		}
		if have = len(body); have == int(n) {
			return body, nil
		}
		size := min(int64(n), max(2*int64(have), pieces))
		if now := coming.Add(size - counted); now > 4*int64(limit) {
			coming.Add(counted - size)
			return nil, ErrTransportFull
		}
		counted = size
		grown := make([]byte, size)
		copy(grown, body)
		body = grown
	}
}
