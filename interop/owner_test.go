package interop

import (
	"fmt"
	"strings"
	"time"

	"github.com/partlog/partlog/internal/golden"
	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
)

// owner is one of the programs that take turns with a folder. It has the folder from open to stop or kill.
type owner interface {
	name() string
	open() (opened, error)
	// append adds one batch and returns its base offset. epoch is the leader's, for owners that are told.
	append(batch record.Batch, follower bool, epoch int32) (base int64, err error)
	// produce is append as leader for a batch with a producer id, which is kept; a repeated one has the base offset of the first.
	produce(batch record.Batch, epoch int32) (base int64, err error)
	end(m turn, version int, epoch int32) error
	producers() ([]golden.ProducerFacts, error)
	truncate(offset int64) (end int64, err error)
	reset(offset int64) error
	deleteRecords(before int64) error
	roll() error
	compact() error                           // once, or until nothing is left to do
	retain() error                            // once
	segments() (all []segmentSize, err error) // oldest first
	assignEpoch(epoch int32) error
	stop() error // cleanly
	kill()       // may come while another call runs
}

type segmentSize struct{ base, size int64 }

// opened is what an owner says right after opening.
type opened struct {
	start, end int64
	epoch      int32    // latest; -1 none
	rebuilt    []string // evidence that derived files were made anew, or the log was scanned
}

// ours is partlog in a process of its own.
type ours struct {
	o       ourOpen
	p       *pipe
	handles bool // batches of producers that repeat nothing and begin at no strange sequence may go through a handle
}

func (w *ours) name() string { return "partlog" }

func (w *ours) open() (s opened, err error) {
	if w.p, err = startVictim(); err != nil {
		return s, err
	}
	var st partlogState
	if _, err := w.p.call("open", w.o, &st); err != nil {
		w.p.Kill()
		return s, err
	}
	s = opened{start: st.Offsets.LogStart, end: st.Offsets.LogEnd, epoch: st.Offsets.LeaderEpoch}
	if r := st.Recovery; len(r.Rebuilt) == 1 && strings.HasSuffix(r.Rebuilt[0], epochsFile) {
		r.Rebuilt = nil // Kafka lost them; see epochsLost
		st.Recovery = r
	}
	if r := st.Recovery; !r.Clean || len(r.Rebuilt) > 0 || len(r.Findings) > 0 || r.Cut > 0 {
		s.rebuilt = []string{fmt.Sprintf("%+v", r)}
	}
	return s, nil
}

func (w *ours) append(batch record.Batch, follower bool, _ int32) (int64, error) {
	var r log.Appended
	cmd, a := "append", args{"raw": batch.Bytes()}
	switch {
	case follower:
		a["as"], a["epoch"] = "follower", batch.LeaderEpoch()
	case batch.Codec() == record.None:
		cmd = "appendRecords"
	}
	_, err := w.p.call(cmd, a, &r)
	return r.Base, err
}

func (w *ours) produce(batch record.Batch, _ int32) (int64, error) {
	var r log.Appended
	cmd := "append"
	if _, _, sequence := batch.Producer(); w.handles && batch.Codec() == record.None && !batch.Transactional() && sequence < 1<<30 {
		cmd = "handle"
	}
	_, err := w.p.call(cmd, args{"raw": batch.Bytes()}, &r)
	return r.Base, err
}

func (w *ours) end(m turn, version int, _ int32) error {
	_, err := w.p.call("endTxn", args{"producer": m.p, "commit": m.commit, "coordinator": m.coordinator, "version": version}, nil)
	return err
}

func (w *ours) producers() ([]golden.ProducerFacts, error) {
	var st partlogState
	_, err := w.p.call("state", nil, &st)
	return st.Producers, err
}

func (w *ours) truncate(offset int64) (end int64, err error) {
	_, err = w.p.call("truncate", args{"offset": offset}, &end)
	return end, err
}

func (w *ours) reset(offset int64) error {
	_, err := w.p.call("reset", args{"offset": offset}, nil)
	return err
}

func (w *ours) deleteRecords(before int64) error {
	_, err := w.p.call("deleteRecords", args{"offset": before}, nil)
	return err
}

func (w *ours) roll() error {
	_, err := w.p.call("roll", nil, nil)
	return err
}

func (w *ours) compact() error {
	_, err := w.p.call("compact", nil, nil)
	return err
}

func (w *ours) retain() error {
	_, err := w.p.call("retain", nil, nil)
	return err
}

func (w *ours) segments() (all []segmentSize, err error) {
	var st partlogState
	_, err = w.p.call("state", nil, &st)
	for _, s := range st.Segments {
		all = append(all, segmentSize{s.Base, s.Bytes})
	}
	return all, err
}

func (w *ours) assignEpoch(epoch int32) error {
	_, err := w.p.call("assignEpoch", args{"epoch": epoch}, nil)
	return err
}

func (w *ours) stop() error {
	if _, err := w.p.call("close", nil, nil); err != nil {
		return err
	}
	return w.p.Close()
}

func (w *ours) kill() { w.p.Kill() }

// theirs is Kafka's UnifiedLog in a JVM of its own.
type theirs struct {
	java *Java
	o    OpenOptions

	d *Driver
	l *UnifiedLog
	s State
}

func (w *theirs) name() string { return "UnifiedLog" }

func (w *theirs) open() (s opened, err error) {
	if w.d, err = StartDriver(w.java); err != nil {
		return s, err
	}
	if w.l, err = w.d.Open(w.o); err != nil {
		w.d.Kill()
		return s, err
	}
	w.s = w.l.Opened
	s = opened{start: w.s.LogStartOffset, end: w.s.LogEndOffset, epoch: -1, rebuilt: rebuilding(w.l.Log)}
	for _, e := range w.s.LeaderEpochs {
		s.epoch = e.Epoch
	}
	return s, nil
}

// rebuilding picks the lines of Kafka's log that tell of recovery or of derived files made anew.
func rebuilding(lines []string) (out []string) {
	for _, line := range lines {
		for _, sign := range []string{"Recovering", "recovering", "rebuilding segment", "Rebuilding", "Could not find offset index", "Found invalid", "orphaned", "Deleting offsets", "corrupt"} {
			if strings.Contains(line, sign) {
				out = append(out, line)
			}
		}
	}
	return out
}

func (w *theirs) append(batch record.Batch, follower bool, epoch int32) (int64, error) {
	if follower {
		r, err := w.l.AppendAsFollower(batch.Bytes(), batch.LeaderEpoch())
		return r.FirstOffset, err
	}
	r, err := w.l.AppendAsLeader(batch.Bytes(), epoch, "")
	return r.FirstOffset, err
}

func (w *theirs) produce(batch record.Batch, epoch int32) (int64, error) {
	r, err := w.l.AppendAsLeader(batch.Bytes(), epoch, "")
	return r.FirstOffset, err
}

func (w *theirs) end(m turn, version int, epoch int32) error {
	_, err := w.l.AppendMarker(record.Marker(m.commit, m.p, m.coordinator, time.Now()).Bytes(), epoch, version)
	return err
}

func (w *theirs) producers() ([]golden.ProducerFacts, error) {
	st, err := w.l.BriefState()
	return st.Producers, err
}

func (w *theirs) truncate(offset int64) (int64, error) {
	if _, err := w.l.TruncateTo(offset); err != nil {
		return 0, err
	}
	st, err := w.l.State()
	return st.LogEndOffset, err
}

func (w *theirs) reset(offset int64) error { return w.l.TruncateFullyAndStartAt(offset) }

func (w *theirs) deleteRecords(before int64) error {
	_, err := w.l.DeleteRecords(before)
	return err
}

func (w *theirs) roll() error {
	_, err := w.l.Roll()
	return err
}

func (w *theirs) compact() error {
	_, err := w.l.Clean(CleanOptions{Force: true})
	return err
}

func (w *theirs) retain() error {
	_, err := w.l.DeleteOldSegments()
	return err
}

func (w *theirs) segments() (all []segmentSize, err error) {
	st, err := w.l.State()
	for _, s := range st.Segments {
		all = append(all, segmentSize{s.BaseOffset, s.Size})
	}
	return all, err
}

func (w *theirs) assignEpoch(epoch int32) error {
	st, err := w.l.State()
	if err != nil {
		return err
	}
	return w.l.AssignEpoch(epoch, st.LogEndOffset)
}

func (w *theirs) stop() error {
	if err := w.l.Close(); err != nil {
		return err
	}
	return w.d.Close()
}

func (w *theirs) kill() { w.d.Kill() }

// broker is a whole broker; truncation, resets, rolls and epochs are not a client's to ask for.
type broker struct {
	b     *Broker
	topic string
}

func (w *broker) name() string { return "broker" }

func (w *broker) open() (s opened, err error) {
	if err := w.b.Start(); err != nil {
		return s, err
	}
	earliest, err := w.b.ListOffset(w.topic, "earliest", 0)
	if err != nil {
		return s, err
	}
	latest, err := w.b.ListOffset(w.topic, "latest", 0)
	if err != nil {
		return s, err
	}
	return opened{start: earliest.Offset, end: latest.Offset, epoch: -1, rebuilt: rebuilding(w.b.LogLines("partition=" + w.topic + "-0"))}, nil
}

// append sends the batch's records through a producer with the batch's codec: one request of one batch, or a few.
func (w *broker) append(batch record.Batch, _ bool, _ int32) (int64, error) {
	var rs []Record
	for r, err := range batch.Records(nil) {
		if err != nil {
			return 0, err
		}
		rs = append(rs, onWire(r.Clone(), 0, ""))
	}
	offsets, err := w.b.Produce(w.topic, map[string]string{"compression.type": batch.Codec().String(), "delivery.timeout.ms": "4000",
		"request.timeout.ms": "2000", "linger.ms": "20", "batch.size": "200000", "max.block.ms": "4000"}, rs)
	if err != nil {
		return 0, err
	}
	for i, o := range offsets {
		if o != offsets[0]+int64(i) {
			return 0, fmt.Errorf("offsets %v", offsets)
		}
	}
	return offsets[0], nil
}

func (w *broker) produce(batch record.Batch, _ int32) (int64, error) {
	return w.b.ProduceRaw(w.topic, batch)
}

func (w *broker) end(m turn, version int, _ int32) error {
	return w.b.WriteMarker(w.topic, m.p, m.commit, m.coordinator, version)
}

func (w *broker) producers() ([]golden.ProducerFacts, error) { return w.b.DescribeProducers(w.topic) }

func (w *broker) truncate(int64) (int64, error) { return 0, errNotOffered }
func (w *broker) reset(int64) error             { return errNotOffered }
func (w *broker) roll() error                   { return errNotOffered }
func (w *broker) retain() error                 { return errNotOffered }

func (w *broker) segments() ([]segmentSize, error) { return nil, errNotOffered }
func (w *broker) assignEpoch(int32) error          { return errNotOffered }

func (w *broker) deleteRecords(before int64) error {
	_, err := w.b.DeleteRecords(w.topic, before)
	return err
}

// compact waits a moment for the broker's cleaner, which looks for work all the time.
func (w *broker) compact() error {
	before := w.b.cleanings(w.topic)
	for range 30 {
		if w.b.cleanings(w.topic) > before {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil
}

func (w *broker) stop() error { return w.b.Stop() }

func (w *broker) kill() {
	time.Sleep(20 * time.Millisecond)
	w.b.Kill()
}
