package replica

import "time"

const (
	farLimit       = 8192             // requests of clients of other nodes that one partition has not answered; more are lost
	farOfNode      = 1024             // of them, as clients of one node
	farOfFollower  = 16               // as one follower, which waits for one answer at a time
	remotePatience = 15 * time.Minute // how long a request of another node may wait at most, whatever it says
)

// far counts the requests of other nodes that are not answered, so that no node can leave any number of them here.
type far struct {
	of    map[asker]int // by node and client
	all   int
	bytes int64
}

func (f *far) add(a asker) bool {
	limit := farOfNode
	if !a.client {
		limit = farOfFollower
	}
	if f.bytes > 0 && f.bytes+a.size > remoteBytes {
		return false
	}
	size := a.size
	a.tag, a.size = 0, 0
	if a.client && f.all >= farLimit || f.of[a] >= limit { // the others are followers, and few
		return false
	}
	if f.of == nil {
		f.of = make(map[asker]int)
	}
	f.of[a]++
	f.all++
	f.bytes += size
	return true
}

// remove is for what add took; a request of this node does not count.
func (f *far) remove(a asker) {
	if a.call != nil || a.question != nil {
		return
	}
	f.bytes -= a.size
	a.tag, a.size = 0, 0
	if f.of[a]--; f.of[a] == 0 {
		delete(f.of, a)
	}
	f.all--
}
