package replica

import (
	"net"
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
	if t.closed || !made && t.callers >= t.conf.MaxConns && !t.evict(func(o *caller) bool { return !o.known }) {
		return false
	}
	t.conns[c] = &caller{made: made, since: time.Now()}
	if !made {
		t.callers++
	}
	return true
}

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
	if o := t.conns[c]; o != nil {
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
	_ = oldest.Close()
	return true
}

// forget takes a connection off the list. The caller holds mu.
func (t *TCP) forget(c net.Conn) {
	if o := t.conns[c]; o != nil && !o.made {
		t.callers--
	}
	delete(t.conns, c)
}

func (t *TCP) drop(c net.Conn) {
	t.mu.Lock()
	t.forget(c)
	t.mu.Unlock()
	_ = c.Close()
}
