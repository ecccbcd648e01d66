package replica

// ends keeps requests of other nodes to end a transaction in order: one that comes after a later one of the same producer, a
// copy of one that was done long ago, could end the producer's next transaction.
type ends map[ending]lastEnd

type ending struct {
	from     NodeID
	producer int64
}

type lastEnd struct {
	epoch int64 // of the broker that asked; -1 unknown
	tag   uint64
}

// maxEnds bounds what is remembered.
const maxEnds = 8192

// old says that the request is a copy, or came after a later one. Tags of one life of a node grow, and have their upper half in
// common; of two lives the broker epoch tells which is the later.
func (s *ends) old(e *EndTxn) bool {
	if *s == nil {
		*s = make(ends)
	}
	key := ending{e.From, e.ProducerID}
	if last, known := (*s)[key]; known {
		if e.BrokerEpoch > 0 && e.BrokerEpoch < last.epoch || e.Tag>>32 == last.tag>>32 && e.Tag <= last.tag {
			return true
		}
	} else if len(*s) >= maxEnds {
		for other := range *s { // any: a copy that is late by so many others is not to be expected
			delete(*s, other)
			break
		}
	}
	(*s)[key] = lastEnd{e.BrokerEpoch, e.Tag}
	return false
}
