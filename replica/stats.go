package replica

// NodeStats are figures of all replicas of a node together. Handle.Status has those of one.
type NodeStats struct {
	Replicas, Leaders, Followers int
	Opening, Failed              int   // without a log that can be used, so far or any more
	UnderMin                     int   // led here with fewer in sync than min.insync.replicas
	UnderReplicated              int   // led here with replicas that are not in sync
	Deleting                     int   // replicas whose logs are to be removed
	DeleteFailures               int64 // attempts in vain to remove those
	LogFailures                  int64 // times that logs of present replicas failed or could not be opened
	Counts                       Counts
}

// Stats adds up what the replicas are at present. It does not wait for a disk.
func (n *Node) Stats() NodeStats {
	var s NodeStats
	for h := range n.Partitions() {
		s.add(h.r)
	}
	return s
}

func (s *NodeStats) add(r *runner) {
	r.coreMu.Lock()
	defer r.coreMu.Unlock()
	s.Replicas++
	s.LogFailures += r.mend.failures
	if r.going.leaving {
		s.Deleting++
		s.DeleteFailures += r.going.failures
	}
	p := r.core
	switch {
	case p == nil && r.err == nil:
		s.Opening++
		return
	case p == nil:
		s.Failed++
		return
	case p.role == Failed:
		s.Failed++
	case p.role == Follower:
		s.Followers++
	case p.role == Leader:
		s.Leaders++
		if len(p.lead.isr) < p.minISR() {
			s.UnderMin++
		}
		if len(p.lead.isr) < len(p.replicas) {
			s.UnderReplicated++
		}
	}
	s.Counts.add(&p.counts)
}

func (c *Counts) add(o *Counts) {
	c.Shrinks += o.Shrinks
	c.Expands += o.Expands
	c.ISRFailures += o.ISRFailures
	c.Truncations += o.Truncations
	c.Elections += o.Elections
	c.Fetches += o.Fetches
	c.Appends += o.Appends
	c.FetchErrors += o.FetchErrors
	c.RecordsBelowHWCut += o.RecordsBelowHWCut
	c.ProduceTimeouts += o.ProduceTimeouts
	c.StaleEventsIgnored += o.StaleEventsIgnored
}
