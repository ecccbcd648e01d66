package log

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/vfs"
)

// HandoverOptions of PlanHandover and Handover.
type HandoverOptions struct {
	From vfs.FS // the tree that the source is a path of; nil: the operating system's
	FS   vfs.FS // the tree that the destination is a path of; nil: the operating system's
	// Topics are the ids that the target cluster has given to the topics, by name. An existing destination knows those of
	// the partitions that it has; what is given here must not contradict it.
	Topics map[string][16]byte
	// Partitions to hand over; nil: all of the source.
	Partitions []TopicPartition
	// Abort ends transactions that are open at the cut with an ABORT marker. Without, they are refused: nobody in the other
	// cluster would ever end them, and read-committed consumers would wait for ever.
	Abort bool
	// Config is what the logs were kept under. Recovering and verifying the source and the copies takes IndexIntervalBytes and
	// ProducerExpiry from it; nothing else of it counts. The target cluster has settings of its own.
	Config Config
	// Everything keeps the records above the high watermark, which no consumer of the source has seen for sure, and hands
	// over logs whose high watermark is not known.
	Everything bool
	// Progress is called now and then, from the goroutine of the call.
	Progress func(CopyProgress)
}

// Reasons why a partition is not handed over, as they stand in HandoverProblem.Kind.
const (
	HandoverTopicID       = "topic id"       // the target's id of the topic is not known, two contradict each other, or it is another topic's
	HandoverTransactions  = "transactions"   // some are open, and Abort is not set
	HandoverHighWatermark = "high watermark" // the source's checkpoint has none, and Everything is not set
	HandoverDamaged       = "damaged"        // the source does not open, or opening it had to mend more than a torn tail
	HandoverExists        = "exists"         // the target has records of this partition
	HandoverInternal      = "internal"       // a topic of the cluster's own state (__consumer_offsets and the like)
	HandoverName          = "name"           // a name that a broker does not create topics with
)

// HandoverProblem is one reason.
type HandoverProblem struct {
	TopicPartition
	Kind   string
	Detail string // one sentence
}

// ErrHandover is what a *HandoverError is.
var ErrHandover = errors.New("log: partitions cannot be handed over")

// HandoverError: some partitions cannot be handed over. Nothing was copied or changed.
type HandoverError struct{ Problems []HandoverProblem }

func (e *HandoverError) Error() string {
	text := ErrHandover.Error()
	for i, p := range e.Problems {
		if i == 5 {
			return text + fmt.Sprintf("; and %d more", len(e.Problems)-i)
		}
		text += fmt.Sprintf("; %s: %s", p.TopicPartition, p.Detail)
	}
	return text
}

// Is makes errors.Is(err, ErrHandover) true.
func (e *HandoverError) Is(target error) bool { return target == ErrHandover }

// HandoverPlan is what a hand-over would do.
type HandoverPlan struct {
	Partitions []HandoverPartition
	Problems   []HandoverProblem // with one of them Handover refuses all
	// New: the destination does not exist. It becomes a directory with the partition folders and the checkpoints, to be
	// moved into the log directory of a stopped broker. Otherwise it is such a log directory, and gets them.
	New bool
}

// HandoverPartition is what would become of one partition.
type HandoverPartition struct {
	TopicPartition
	TopicID  [16]byte // the target's
	LogStart int64    // of the copy
	Cut      int64    // where the copy ends: at or below the high watermark, at a batch boundary
	LogEnd   int64    // of the source
	Bytes    int64    // of the source's .log files
	Open     []OpenTransaction
	Replaces bool // the target's own, empty folder goes
}

// PlanHandover says what Handover would do, and everything that would make it refuse. It reads, takes no lock, and changes
// nothing; recoveries that the source needs are carried out in memory.
func PlanHandover(ctx context.Context, source, target string, o HandoverOptions) (_ HandoverPlan, err error) {
	h, err := newHandover(source, target, o)
	if err != nil {
		return HandoverPlan{}, err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	h.verifies = true
	err = h.look(ctx)
	return h.plan, err
}

// Handover readies partitions for a broker of another cluster. source is a log root of this one, at rest: stopped cleanly
// or killed, or a backup; it is not changed. target is the log directory of a stopped broker, where the topics were created
// and have no records yet, or a new directory.
//
// A broker believes a folder only if the rest of its cluster says the same. So of each partition the copy gets the target's
// topic id: with another or none the broker would set the folder aside as stray, and show an empty topic. It is cut at
// the high watermark, and open transactions are aborted or refused. Every batch gets the leader epoch 0, and the epoch
// file one entry: the epochs of the source lie above those the target has given out, which would cost the log its history
// of epochs, and with it the right cuts of followers. It is left to the broker to recover it: no marker of a clean stop. The
// result is verified before it gets its place.
//
// Producer ids are given out per cluster, too: the same ones by both. Those of the source get bit 62 in the copy, which no
// cluster counts up to; else what a new producer of the target sends could be taken for a repetition of something older, and
// be acknowledged but not written. Every batch of such a producer gets a new checksum for it, verified before and after.
//
// The folders of a new directory say all but where a log begins inside of a segment (after DeleteRecords): that stands in its
// log-start-offset-checkpoint. Handover from there into the log directory takes it along; whoever moves the folders by hand
// adds that line to the broker's.
//
// *HandoverError: see PlanHandover; nothing was copied. ErrLocked: the source or the target is in use. *DestinationError,
// ErrNoPartition, ErrNoSpace, *UnsoundError (the result is not sound: nothing was put in place).
func Handover(ctx context.Context, source, target string, o HandoverOptions) (_ CopyReport, err error) {
	began := time.Now()
	h, err := newHandover(source, target, o)
	if err != nil {
		return CopyReport{}, err
	}
	defer func() { err = spaceError(errors.Join(err, h.close())) }()
	if err := h.lockSource(); err != nil {
		return CopyReport{}, err
	}
	if err := h.look(ctx); err != nil {
		return CopyReport{}, err
	}
	if len(h.plan.Problems) > 0 {
		return CopyReport{}, &HandoverError{Problems: h.plan.Problems}
	}
	if h.plan.New {
		err = h.makeRoot(ctx)
	} else {
		err = h.fill(ctx)
	}
	h.report.Took = time.Since(began)
	return h.report, err
}

// handover is a call under way.
type handover struct {
	o       HandoverOptions
	src     *atRest
	target  string
	there   *atRest // the target as it is; nil if there is none
	lock    io.Closer
	lockFS  io.Closer
	plan    HandoverPlan
	report  CopyReport
	targets map[TopicPartition]HandoverPartition
	// verifies: damage is looked for everywhere, as nothing is copied that is verified afterwards.
	verifies bool
	topics   map[checkpoint.ID]string // whose id it is at the target, as far as is known
}

func newHandover(source, target string, o HandoverOptions) (*handover, error) {
	src, err := openAtRest(source, o.From)
	if err != nil {
		return nil, err
	}
	h := &handover{o: o, src: src, target: target}
	if target == "" {
		return nil, errors.Join(&DestinationError{Path: `""`, Reason: "the path is empty", Err: fs.ErrInvalid}, src.close())
	}
	h.there, err = openAtRest(target, o.FS)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		h.there, h.plan.New, err = nil, true, nil
	case err == nil:
		if err = refuseFolder(h.there); err == nil && (vfs.Within(src.fs, h.there.fs, ".") || vfs.Within(h.there.fs, src.fs, ".")) {
			err = &DestinationError{Path: target, Reason: "it is the source, or one lies inside the other"}
		}
	}
	if err != nil {
		return nil, errors.Join(err, h.close())
	}
	return h, nil
}

func (h *handover) close() error {
	errs := []error{h.src.close()}
	if h.there != nil {
		errs = append(errs, h.there.close())
	}
	if h.lock != nil {
		errs = append(errs, h.lock.Close())
	}
	if h.lockFS != nil {
		errs = append(errs, h.lockFS.Close())
	}
	return errors.Join(errs...)
}

// lockSource keeps others off the source for the time of the call. One that cannot be written has no owner.
func (h *handover) lockSource() (err error) {
	fsys := h.src.fs
	if h.src.owned != nil {
		if fsys, err = vfs.OS(h.src.path); err != nil {
			return openError(h.src.path, err)
		}
		h.lockFS, _ = fsys.(io.Closer)
	}
	h.lock, err = fsys.Lock(lockFile)
	if errors.Is(err, fs.ErrPermission) || isReadOnlyFS(err) {
		return nil
	}
	if err != nil {
		return openError(h.src.path, err)
	}
	return h.src.read() // what was read before may have changed
}

// makeRoot makes the copies a new directory.
func (h *handover) makeRoot(ctx context.Context) error {
	st, err := newStage(h.src.fs, h.target, h.o.FS)
	if err != nil {
		return err
	}
	return errors.Join(func() error {
		marks, err := h.make(ctx, st.root)
		if err != nil {
			return err
		}
		if err := marks.write(st.root); err != nil {
			return err
		}
		return st.commit()
	}(), st.end())
}

// fill gives the copies to an existing log directory.
func (h *handover) fill(ctx context.Context) (err error) {
	d, err := openExisting(h.src, h.target, h.o.FS)
	if err != nil {
		return err
	}
	if d == nil {
		return &DestinationError{Path: h.target, Reason: "it went away meanwhile", Err: fs.ErrNotExist}
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	tps := make([]TopicPartition, 0, len(h.plan.Partitions))
	for _, p := range h.plan.Partitions {
		tps = append(tps, p.TopicPartition)
	}
	if len(tps) == 0 {
		return nil
	}
	w, err := d.newWorkshop(tps[0])
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.end()) }()
	marks, err := h.make(ctx, w.root)
	if err != nil {
		return err
	}
	if err := syncDir(d.fs, w.folder); err != nil {
		return err
	}
	for _, p := range h.plan.Partitions {
		if p.Replaces {
			if err := d.Delete(ctx, p.TopicPartition); err != nil {
				return err
			}
		}
	}
	// Only a recovery may trust them: no clean stop of this root is marked.
	placed, err := d.install(ctx, w, tps, failed, func(tp TopicPartition) {
		for _, file := range pointFiles {
			if at, ok := marks[file][checkpoint.Partition(tp)]; ok {
				d.points.set(file, tp, at)
			}
		}
	})
	h.report.Partitions = h.report.Partitions[:placed]
	return err
}
