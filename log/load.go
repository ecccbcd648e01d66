package log

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/internal/epoch"
	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/segment"
)

// stored is what the root remembers of a log.
type stored struct {
	clean         bool
	recoveryPoint int64 // 0 if unknown
	logStart      int64 // 0 if unknown
	highWatermark int64 // -1 if unknown
	hint          int64 // durable hint, 0 if none is valid
	durable       int64 // bad bytes below are damage, above a torn tail: recovery point or durable hint, the larger
}

// loading is what only an open needs to know.
type loading struct {
	entries    []fs.DirEntry // what the folder holds, in order of names; nil once that changed
	diskEpochs []epoch.Entry // what the epoch file says
	badEpochs  bool          // the epoch file is malformed
}

// listing is what the folder holds. An open that changes nothing reads it once.
func (l *Log) listing() ([]fs.DirEntry, error) {
	if l.loading != nil && l.loading.entries != nil {
		return l.loading.entries, nil
	}
	return l.fs.ReadDir(l.name)
}

// unlist forgets the listing, because the folder changes.
func (l *Log) unlist() {
	if l.loading != nil {
		l.loading.entries = nil
	}
}

// listed says whether the folder holds a file. One that cannot be told from the listing may be there.
func (l *Log) listed(name string) bool {
	entries := l.loading.entries
	if entries == nil {
		return true
	}
	_, found := slices.BinarySearchFunc(entries, name, func(e fs.DirEntry, name string) int { return strings.Compare(e.Name(), name) })
	return found
}

// open brings the partition folder into memory, creating it if it is absent. It is Kafka's load (settle leftovers, open
// segments, recover what a clean stop did not vouch for, fit epochs and marks to what is there) with two differences:
// whatever is cut with valid batches behind it is saved first, and everything is on the device before it is published.
func (l *Log) open(ctx context.Context, clean bool, o opening) (err error) {
	began := time.Now()
	l.recovery = RecoveryReport{Clean: clean}
	l.loading = &loading{entries: o.entries}
	if o.entries == nil {
		l.loading.entries, err = l.fs.ReadDir(l.name)
	}
	if err == nil && o.onlyLogs && strangers(l.loading.entries) {
		return errNoLog
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = l.create(ctx)
	}
	if err != nil {
		return err
	}
	if err := l.settle(); err != nil {
		return err
	}
	l.dir.points.vouch(ctx, l.tp)
	at := l.stored(clean)
	if err := l.readIdentity(); err != nil {
		return err
	}
	if err := l.readEpochs(); err != nil {
		return err
	}
	segs, err := l.loadSegments(ctx, at)
	if err == nil {
		err = l.publishLoaded(ctx, segs, at)
	}
	if err != nil {
		for _, seg := range segs {
			err = errors.Join(err, seg.Abandon())
		}
		return err
	}
	l.recovery.Took = time.Since(began)
	l.loading = nil
	return nil
}

// create makes the folder, and its name durable. What the root remembers of an earlier partition of that name goes first.
func (l *Log) create(ctx context.Context) error {
	if err := l.dir.forget(ctx, l.tp); err != nil {
		return err
	}
	if err := l.fs.MkdirAll(l.name, 0o755); err != nil {
		return err
	}
	return syncDir(l.fs, ".")
}

// stored collects what the checkpoints say. Lost ones are reported and answer with the safe side: scan from the start,
// show what was there.
func (l *Log) stored(clean bool) stored {
	at := stored{clean: clean, highWatermark: -1}
	p := l.dir.points
	rp, known, lost := p.get(checkpoint.RecoveryPoints, l.tp)
	l.findLost(checkpoint.RecoveryPoints, lost, "the log is scanned from its start")
	at.recoveryPoint = max(0, rp)
	start, _, lost := p.get(checkpoint.LogStarts, l.tp)
	l.findLost(checkpoint.LogStarts, lost, "records that were deleted within a segment are visible again")
	at.logStart = max(0, start)
	if hw, ok, lost := p.get(checkpoint.HighWatermarks, l.tp); ok {
		at.highWatermark = hw
	} else {
		l.findLost(checkpoint.HighWatermarks, lost, "the high watermark starts at the log start")
	}
	at.hint = l.dir.hints.get(l.tp, at.recoveryPoint)
	at.durable = max(at.recoveryPoint, at.hint)
	if clean && !known {
		at.durable = math.MaxInt64 // a clean stop vouches for everything
	}
	return at
}

func (l *Log) findLost(file string, lost error, meaning string) {
	if lost != nil {
		l.find(Finding{File: file, Position: -1, Offset: -1, Kind: FindingCheckpoint, Detail: fmt.Sprintf("%v; %s", lost, meaning)})
	}
}

func (l *Log) find(f Finding) { l.recovery.find(f) }

func (r *RecoveryReport) find(f Finding) { r.Findings = append(r.Findings, f) }

// readIdentity reads the topic id, if the folder has one.
func (l *Log) readIdentity() error {
	if !l.listed(checkpoint.Metadata) {
		return nil
	}
	id, _, err := checkpoint.ReadTopicID(l.fs, l.path(checkpoint.Metadata))
	if format := (*checkpoint.FormatError)(nil); errors.As(err, &format) {
		l.find(Finding{File: l.path(checkpoint.Metadata), Position: -1, Offset: -1, Kind: FindingMetadata,
			Detail: err.Error() + "; the log has no topic id, and a broker would not start with this file"})
		return nil
	}
	l.topicID = id
	return err
}

func (l *Log) path(file string) string { return l.name + "/" + file }

// readEpochs makes the leader-epoch cache from its file. A malformed file counts as lost. What loading changes reaches the
// file at its end: an open that is refused changes nothing.
func (l *Log) readEpochs() (err error) {
	var entries []epoch.Entry
	if l.listed(checkpoint.LeaderEpochs) {
		entries, err = checkpoint.ReadEpochs(l.fs, l.path(checkpoint.LeaderEpochs))
	}
	if format := (*checkpoint.FormatError)(nil); errors.As(err, &format) {
		l.find(Finding{File: l.path(checkpoint.LeaderEpochs), Position: -1, Offset: -1, Kind: FindingEpochs,
			Detail: err.Error() + "; rebuilt from the batches"})
		entries, err, l.loading.badEpochs = nil, nil, true
	}
	if err != nil {
		return err
	}
	l.loading.diskEpochs = entries
	l.epochs, err = epoch.New(entries, nil)
	return err
}

// bindEpochs puts the cache over its file, and writes the file if it says something else.
func (l *Log) bindEpochs() (err error) {
	store := func(list []epoch.Entry) error {
		return checkpoint.WriteEpochs(l.fs, l.path(checkpoint.LeaderEpochs), list)
	}
	same := !l.loading.badEpochs && slices.Equal(l.epochs.Entries(), l.loading.diskEpochs)
	if l.epochs, err = epoch.New(l.epochs.Entries(), store); err != nil || same {
		return err
	}
	l.epochs.Rebind(store)
	err = l.epochs.Flush(context.Background())
	if isNoSpace(err) {
		l.epochsOwed, err = true, nil
		l.recovery.Unfiled = append(l.recovery.Unfiled, l.path(checkpoint.LeaderEpochs))
	}
	return err
}

// payEpochs writes the epochs that an open found no room for: they may be none that a recovery from a higher point would
// find again. The caller holds the round token.
func (l *Log) payEpochs(ctx context.Context) error {
	if !l.epochsOwed {
		return nil
	}
	err := l.epochs.Flush(ctx)
	l.epochsOwed = err != nil
	return err
}

// openSegments opens what the folder holds, oldest first, after removing index files that belong to no .log. An empty
// folder gives an empty list.
func (l *Log) openSegments() (segments, error) {
	entries, err := l.listing()
	if err != nil {
		return nil, err
	}
	if err := l.removeOrphans(entries); err != nil {
		return nil, err
	}
	all := segment.FilesOf(entries)
	l.findMisnamed(entries)
	segs := make(segments, 0, max(1, len(all)))
	for _, files := range all {
		seg, err := files.Open(l.name, l.cfg().segOpts)
		if err != nil {
			return segs, err
		}
		segs = append(segs, seg)
	}
	return segs, segs.findOverflow()
}

// findMisnamed reports files that end in .log and are not named as segments are: nothing in them is read.
func (l *Log) findMisnamed(entries []fs.DirEntry) {
	for _, e := range entries {
		if name := e.Name(); strings.HasSuffix(name, ".log") && !e.IsDir() && !segment.Named(name) {
			l.find(Finding{File: l.path(name), Position: -1, Offset: -1, Kind: FindingForeign, Detail: "not how a segment is named: what it holds is not in the log"})
		}
	}
}

// removeOrphans removes index files without their .log: nothing can be read through them.
func (l *Log) removeOrphans(entries []fs.DirEntry) error {
	for len(entries) > 0 {
		stem, _, _ := strings.Cut(entries[0].Name(), ".")
		n, hasLog := 0, false // in order of names, those that are the same up to the first dot stand together
		for ; n < len(entries); n++ {
			other, kind, _ := strings.Cut(entries[n].Name(), ".")
			if other != stem {
				break
			}
			hasLog = hasLog || kind == "log"
		}
		for _, e := range entries[:n] {
			_, kind, _ := strings.Cut(e.Name(), ".")
			if hasLog || kind != "index" && kind != "timeindex" && kind != "txnindex" {
				continue
			}
			if err := l.removeFile(e.Name()); err != nil {
				return err
			}
		}
		entries = entries[n:]
	}
	return nil
}

func (l *Log) removeFile(name string) error {
	if err := l.fs.Remove(l.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	l.unlist()
	if l.loading != nil { // the report is the open's
		l.recovery.Removed = append(l.recovery.Removed, l.path(name))
	}
	return nil
}

// publishLoaded fits the marks and epochs to the recovered segments.
func (l *Log) publishLoaded(ctx context.Context, segs segments, at stored) error {
	end, err := segs.active().NextOffset()
	if err != nil {
		return segs.explain(err)
	}
	if err := l.fitEpochs(ctx, segs, end, max(at.logStart, segs[0].Base())); err != nil {
		return err
	}
	if err := l.fitPoints(ctx, segs, end, at); err != nil {
		return err
	}
	if err := l.fitFirstDirty(ctx, max(at.logStart, segs[0].Base()), end); err != nil {
		return err
	}
	if err := l.dropSnapshotsAbove(end); err != nil {
		return err
	}
	start := max(at.logStart, segs[0].Base())
	if err := l.loadProducers(ctx, segs, start, end); err != nil {
		return err
	}
	if err := segs.active().Park(); err != nil { // an idle log holds nothing open
		return err
	}
	o := Offsets{LogStart: start, LogEnd: end, Durable: end, RecoveryPoint: max(start, min(at.recoveryPoint, end)), LeaderEpoch: record.NoEpoch}
	if at.clean {
		o.RecoveryPoint = end
	}
	o.HighWatermark = min(max(at.highWatermark, start), end)
	l.raiseVisible(&o)
	if latest, ok := l.epochs.Latest(); ok {
		o.LeaderEpoch, l.newest = latest.Epoch, latest.Epoch
	}
	l.list.Store(&segs)
	l.update(func(at *Offsets) { *at = o })
	l.commits.born = segs.active().Base()
	l.stats.lastFlush.Store(l.now().UnixMilli())
	return nil
}

// fitPoints pulls recovery point and durable hint down to the end of a log that lost more than they allow (a broker
// truncated it, say): bytes appended from now on must not be judged by them.
func (l *Log) fitPoints(ctx context.Context, segs segments, end int64, at stored) error {
	l.commits.storedRP = at.recoveryPoint
	if at.recoveryPoint <= end && at.hint <= end {
		return nil
	}
	if at.recoveryPoint > end {
		if err := l.storeRecoveryPoint(end, turn{ctx}); err != nil {
			return err
		}
	}
	return l.dir.hints.lower(l.name, hint{offset: end, base: segs.active().Base(), recoveryPoint: l.commits.storedRP})
}

// fitEpochs cuts the epoch cache at both ends, and rebuilds it where the batches show that it was lost or is older
// than the log: the file then lacks entries, which no crash of ours or a broker's can leave behind.
func (l *Log) fitEpochs(ctx context.Context, segs segments, end, logStart int64) error {
	l.epochs.TruncateFromEnd(end)
	if err := l.findLostEpochs(ctx, segs, segs, logStart); err != nil {
		return err
	}
	l.epochs.TruncateFromStart(logStart)
	return l.bindEpochs()
}

// findLostEpochs rebuilds the cache from the segments if it lacks epochs that they have; all are those of the log.
func (l *Log) findLostEpochs(ctx context.Context, segs, all segments, logStart int64) error {
	lost, err := l.epochsLost(segs, all, logStart)
	if err != nil || !lost {
		return err
	}
	l.recovery.Rebuilt = append(l.recovery.Rebuilt, l.path(checkpoint.LeaderEpochs))
	return l.rebuildEpochs(ctx, segs)
}

// epochsLost compares the cache with the first and the last batch of the log. Batches that cannot be read say nothing
// here: reading them will.
//
// That the cache begins above the log is no proof: a broker that deleted records, and was killed before the log start was in its
// checkpoint, leaves the epoch of that start beginning there. It is one where the batch below it is of another epoch.
func (l *Log) epochsLost(segs, all segments, logStart int64) (bool, error) {
	empty := func(s *segment.Segment) bool { return s.Size() == 0 }
	held := slices.DeleteFunc(slices.Clone(segs), empty)
	if len(held) == 0 {
		return false, nil
	}
	last, err := held.active().Last()
	if err == nil {
		latest, ok := l.epochs.Latest()
		if last.LeaderEpoch >= 0 && (!ok || latest.Epoch < last.LeaderEpoch) {
			return true, nil
		}
		var first segment.Position
		if first, err = held.first().First(); err == nil {
			earliest, ok := l.epochs.Earliest()
			if !ok || first.LeaderEpoch < 0 || earliest.StartOffset <= max(logStart, first.Base) {
				return false, nil
			}
			var before int32
			if before, err = slices.DeleteFunc(slices.Clone(all), empty).epochBelow(earliest.StartOffset); err == nil {
				return before >= 0 && before != earliest.Epoch, nil
			}
		}
	}
	if errors.Is(err, segment.ErrCorrupt) || errors.Is(err, segment.ErrChanged) {
		return false, nil
	}
	return false, err
}

// epochBelow is the leader epoch of the last batch that begins below offset.
func (s segments) epochBelow(offset int64) (int32, error) {
	i := s.floor(offset - 1)
	if i < 0 {
		return record.NoEpoch, nil
	}
	p, err := s[i].Below(offset)
	if errors.Is(err, segment.ErrNotFound) {
		p, err = segment.Position{LeaderEpoch: record.NoEpoch}, nil
	}
	return p.LeaderEpoch, errors.Join(err, s[i].Park()) // an idle log holds nothing open
}

// rebuildEpochs reads all batches. Where a segment cannot be read to its end, what the cache says of the rest stays.
func (l *Log) rebuildEpochs(ctx context.Context, segs segments) error {
	known := l.epochs.Entries()
	if err := l.epochs.Clear(); err != nil {
		return err
	}
	for i, seg := range segs {
		scan, err := seg.Scan(ctx, segment.ScanOptions{Each: l.learnEpoch})
		if err != nil {
			return segs.explain(err)
		}
		for _, e := range known {
			unread := scan.Verdict != segment.Clean && e.StartOffset >= scan.NextOffset && (i+1 == len(segs) || e.StartOffset < segs[i+1].Base())
			if latest, ok := l.epochs.Latest(); !unread || ok && latest.Epoch >= e.Epoch {
				continue
			}
			if _, err := l.epochs.Assign(e.Epoch, e.StartOffset); err != nil {
				return err
			}
		}
	}
	return nil
}

// learnEpoch is Kafka's rule for recovery: a batch with a larger epoch than all before begins it.
func (l *Log) learnEpoch(b record.Batch) error {
	if b.Magic() < 2 || b.LeaderEpoch() < 0 {
		return nil
	}
	if latest, ok := l.epochs.Latest(); ok && latest.Epoch >= b.LeaderEpoch() {
		return nil
	}
	_, err := l.epochs.Assign(b.LeaderEpoch(), b.BaseOffset())
	return err
}
