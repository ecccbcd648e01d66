package replica

// ends keeps requests of other nodes and of clients to end a transaction in order: one that comes after a later one of the same
// producer, a copy of one that was done long ago, could end the producer's next transaction. It remembers the last one of each of
// the latest producers: those in young, and in old, which goes when young is full.
type ends struct{ young, old map[ending]lastEnd }

// ending is who asks to end whose transactions. A client's connections come and go, and have another number each; what stays is
// the upper half of its tags.
type ending struct {
	from     NodeID // NoNode: a client
	life     uint32 // of a client
	producer int64
}

type lastEnd struct {
	epoch int64 // of the broker that asked; -1 unknown
	tag   uint64
}

// maxEnds bounds what is remembered, at least half of it of the latest.
const maxEnds = 8192

// late says that the request is a copy, or came after a later one. Tags of one life of a node, or of a client, grow, and have
// their upper half in common; of two lives of a node the broker epoch tells which is the later.
func (s *ends) late(e *EndTxn) bool {
	key := ending{from: e.From, producer: e.ProducerID}
	if e.From < 0 {
		key.from, key.life = NoNode, uint32(e.Tag>>32)
	}
	last, known := s.young[key]
	if !known {
		last, known = s.old[key]
	}
	if known && (e.BrokerEpoch > 0 && e.BrokerEpoch < last.epoch || e.Tag>>32 == last.tag>>32 && e.Tag <= last.tag) {
		return true
	}
	if s.young == nil || len(s.young) >= maxEnds/2 {
		s.young, s.old = make(map[ending]lastEnd), s.young
	}
	s.young[key] = lastEnd{e.BrokerEpoch, e.Tag}
	return false
}
