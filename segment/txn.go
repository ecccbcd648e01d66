package segment

// AbortedTxn is an entry of the transaction index: a transaction whose ABORT marker lies in the segment.
type AbortedTxn struct {
	ProducerID  int64
	FirstOffset int64 // first data offset of the transaction; may be in an earlier segment
	LastOffset  int64 // of the marker
	LastStable  int64 // last stable offset right after the abort
}

type txns struct{}

func (t *txns) close() error                            { return nil }
func (t *txns) sync(s *Segment) error                   { return nil }
func (t *txns) truncate(s *Segment, offset int64) error { return nil }

func (s *Segment) AppendAborted(t AbortedTxn) error { return nil }
func (s *Segment) SetAborted(t []AbortedTxn) error  { return nil }
func (s *Segment) Aborted(from, upTo int64) (found []AbortedTxn, complete bool, err error) {
	return nil, false, nil
}
