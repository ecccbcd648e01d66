package log

import (
	"errors"
	"fmt"

	"github.com/partlog/partlog/internal/producerstate"
	"github.com/partlog/partlog/internal/txnindex"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/segment"
)

// txnCheck holds the entries of a segment's index of aborted transactions against the markers as they come.
type txnCheck struct {
	s     *segmentCheck
	name  string
	file  *entryFile // nil: there is none
	entry txnindex.Entry
	have  bool
	ok    bool // the entries can be read
	lacks *faults
}

func newTxnCheck(s *segmentCheck) *txnCheck {
	file := segment.FileName(s.base, ".txnindex")
	t := &txnCheck{s: s, name: s.path(file)}
	if !s.has(file) {
		t.ok = true
		return t
	}
	x := txnindex.New(s.fs, t.name, s.base)
	err := x.Check()
	s.fail(x.Close())
	if corrupt, ok := errors.AsType[*txnindex.CorruptError](err); ok {
		s.find(FindingTxnIndex, t.name, corrupt.Position, s.base, "%s; it is rebuilt when the log is opened, a broker may not start with it", corrupt.Reason)
		return t
	}
	if err != nil {
		s.fail(err)
		return t
	}
	t.file = openEntries(s, ".txnindex", FindingTxnIndex, txnindex.EntrySize)
	t.ok = !t.file.hidden
	if s.live != nil {
		t.file.size -= t.file.size % txnindex.EntrySize // one is being written
	}
	t.advance()
	return t
}

func (t *txnCheck) advance() {
	t.have = false
	if raw, ok := t.file.next(); ok {
		t.entry, _ = txnindex.Decode(raw)
		t.have = true
	}
}

// strict says whether entries are judged by the markers: all batches were there to be read, and no recovery writes the
// index anew before it is used.
func (t *txnCheck) strict() bool {
	return t.ok && t.s.producers.sees(t.s.folderCheck) && (t.s.live != nil || !t.s.rebuildable())
}

// marker is called for every batch of a producer. completed are the transactions it ends; records says whether these have
// any left.
func (t *txnCheck) marker(b record.Batch, id int64, completed []producerstate.Completed, records bool) {
	if !b.Control() || b.Count() == 0 {
		return
	}
	offset := b.LastOffset()
	for t.have && t.entry.LastOffset < offset {
		t.extra()
	}
	here := t.have && t.entry.LastOffset == offset
	switch {
	case len(completed) > 0 && completed[0].Aborted:
		if c := completed[0]; here {
			t.compare(c)
		} else if records && t.strict() && c.FirstOffset >= t.s.logStart { // else it may be forgotten
			t.lack(c)
		}
	case here && t.strict() && !t.s.aborts(b):
		t.file.fault(offset, "it says that producer %d aborted a transaction at offset %d, where the marker is a commit: committed records are hidden", t.entry.ProducerID, offset)
	case here && t.strict() && (t.entry.ProducerID != id || t.entry.FirstOffset >= t.s.producers.start && !t.s.producers.loose):
		t.file.fault(offset, "it says that producer %d aborted offsets %d to %d, but no such transaction was open", t.entry.ProducerID, t.entry.FirstOffset, offset)
	}
	if here {
		t.advance()
	}
}

// aborts says whether the batch is an ABORT marker.
func (s *segmentCheck) aborts(b record.Batch) bool {
	for rec, err := range b.Records(s.decoder) {
		t, bad := record.ParseControl(rec.Key)
		return err == nil && bad == nil && t == record.Abort
	}
	return false
}

// extra judges an entry at whose offset no marker is, and takes the next one.
func (t *txnCheck) extra() {
	if t.strict() && !t.s.producers.loose {
		t.file.fault(t.entry.LastOffset, "it says that producer %d aborted offsets %d to %d, but the log has no marker there: committed records may be hidden",
			t.entry.ProducerID, t.entry.FirstOffset, t.entry.LastOffset)
	}
	t.advance()
}

// lack notes an aborted transaction without an entry.
func (t *txnCheck) lack(c producerstate.Completed) {
	if t.lacks != nil {
		t.lacks.more++
		return
	}
	position := int64(0)
	if t.file != nil {
		position = t.file.slot * txnindex.EntrySize
		if t.have {
			position -= txnindex.EntrySize
		}
	}
	t.lacks = &faults{kind: FindingTxnIndex, file: t.name, position: position, offset: c.LastOffset,
		detail: fmt.Sprintf("producer %d aborted its transaction from offset %d at offset %d, but no entry says so: read-committed readers are shown its records",
			c.ProducerID, c.FirstOffset, c.LastOffset)}
}

// compare judges the entry of a transaction that was aborted.
func (t *txnCheck) compare(c producerstate.Completed) {
	e, p := t.entry, &t.s.producers
	loose := p.loose
	switch {
	case !t.strict():
	case e.ProducerID != c.ProducerID:
		t.file.fault(c.LastOffset, "it says that producer %d aborted a transaction at offset %d, but it was producer %d: its records are shown, and others hidden", e.ProducerID, c.LastOffset, c.ProducerID)
	case e.FirstOffset > c.FirstOffset && c.FirstOffset >= t.s.logStart:
		t.file.fault(c.LastOffset, "the aborted transaction of producer %d begins at offset %d, by the entry at %d: read-committed readers are shown records of it", c.ProducerID, c.FirstOffset, e.FirstOffset)
	case e.FirstOffset < c.FirstOffset && e.FirstOffset >= p.start && !loose:
		t.file.fault(c.LastOffset, "the aborted transaction of producer %d begins at offset %d, by the entry at %d: committed records may be hidden", c.ProducerID, c.FirstOffset, e.FirstOffset)
	case e.LastStableOffset > c.LastStable && c.LastStable >= t.s.logStart && !loose:
		if c.LastStable == c.LastOffset+1 {
			p.claims = append(p.claims, stableClaim{file: t.name, position: (t.file.slot - 1) * txnindex.EntrySize, offset: c.LastOffset, says: e.LastStableOffset})
			return
		}
		t.file.fault(c.LastOffset, tooStable, c.LastStable, e.LastStableOffset)
	case e.LastStableOffset < c.LastStable && e.LastStableOffset >= p.start && !loose:
		t.file.fault(c.LastOffset, "the last stable offset behind it is %d, by the entry %d: no transaction was open there", c.LastStable, e.LastStableOffset)
	}
}

// tooStable is said of an entry whose last stable offset is too high.
const tooStable = "the last stable offset behind it is %d, by the entry %d: readers may stop looking before they have seen all aborted transactions"

// stableClaim is an entry that ended the only open transaction, and yet has a last stable offset behind its marker. Kafka's
// followers write such: what comes with one fetch is known as a whole, so they take the first offset of the next transaction in it.
// It is wrong if one begins below.
type stableClaim struct {
	file                   string
	position, offset, says int64
}

// begins is called with the offset of every record of a transaction, and at the end with the end of the log.
func (p *producerCheck) begins(c *folderCheck, at int64) {
	for _, x := range p.claims {
		if at >= x.says || p.loose || !p.sees(c) {
			continue
		}
		if n := len(p.overclaimed); n > 0 && p.overclaimed[n-1].file == x.file {
			p.overclaimed[n-1].more++
			continue
		}
		p.overclaimed = append(p.overclaimed, &faults{kind: FindingTxnIndex, file: x.file, position: x.position, offset: x.offset, detail: fmt.Sprintf(tooStable, x.offset+1, x.says)})
	}
	p.claims = p.claims[:0]
}

func (t *txnCheck) finish() {
	for t.ok && t.have {
		if t.entry.LastOffset >= t.s.next {
			t.behind()
			break
		}
		t.extra()
	}
	if t.lacks != nil {
		t.lacks.report(t.s.verifier, "transaction")
	}
	if t.file != nil {
		t.file.close(t.s)
	}
}

// behind reports an entry that speaks of what the segment does not have.
func (t *txnCheck) behind() {
	if t.s.live == nil {
		t.file.fault(t.entry.LastOffset, "an aborted transaction of producer %d ends at offset %d, but the segment ends at %d", t.entry.ProducerID, t.entry.LastOffset, t.s.next)
	}
}
