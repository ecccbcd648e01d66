package log

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/partlog/partlog/retention"
)

// RetentionReport says what a Retain did.
type RetentionReport struct {
	Plan    retention.Plan // what was decided
	Dropped int            // segments that left the log; fewer than Plan.Drop beside an error, or if the log changed meanwhile
	Freed   int64          // bytes of their .log files
	Waiting int            // segments, of this call and earlier ones, whose files are marked .deleted and still there
}

// PlanRetention says what Retain would drop at that time, and changes nothing. It looks at what the log knows of its
// segments, and reads a time index only as far as the age of the oldest segments decides: one at rest. A segment whose
// timestamps cannot be read is as old as its file.
func (l *Log) PlanRetention(now time.Time) retention.Plan {
	plan, _ := l.planRetention(now)
	return plan
}

// planRetention also gives the count of truncations the plan belongs to.
func (l *Log) planRetention(now time.Time) (retention.Plan, uint64) {
	if l.dir == nil || l.over() {
		return retention.Plan{NextDue: -1}, 0
	}
	for {
		_, cuts := l.loadCuts()
		segs := l.segments() // before the marks: these may be behind, but none of them ends above
		if o, still := l.loadCuts(); still == cuts {
			return l.decide(now, o, segs), cuts
		}
	}
}

// decide gathers the facts and asks the policy.
func (l *Log) decide(now time.Time, o Offsets, segs segments) retention.Plan {
	policy := l.cfg().retention()
	facts := make([]retention.Fact, len(segs))
	for i, seg := range segs {
		f := retention.Fact{Base: seg.Base(), End: max(o.LogEnd, seg.Base()), Bytes: seg.Size(), LargestTimestamp: math.MaxInt64}
		if i+1 < len(segs) {
			f.End = segs[i+1].Base()
		}
		facts[i] = f
	}
	ageless := policy
	ageless.Time = retention.Forever
	plan := ageless.Decide(now, o.LogStart, o.HighWatermark, facts)
	if !policy.Delete {
		return plan
	}
	for i := len(plan.Drop); i < len(segs); i++ { // behind the first one that stays nobody asks for the time
		f := &facts[i]
		f.LargestTimestamp, f.ModTime = ageOf(segs, i)
		if !policy.Expired(now, *f) || f.End > o.HighWatermark {
			break
		}
	}
	return policy.Decide(now, o.LogStart, o.HighWatermark, facts)
}

// ageOf is what the age of a segment is counted from. Damage does not keep a segment from getting old.
func ageOf(segs segments, i int) (largest, modTime int64) {
	ts, offset, err := segs[i].LargestTimestamp()
	switch {
	case err != nil:
		return -1, segs[i].Info().ModTime.UnixMilli()
	case offset < 0:
		return -1, ts
	}
	return ts, 0
}

// retention is the part of the settings that decides.
func (c *Config) retention() retention.Policy {
	return retention.Policy{Delete: c.Cleanup.Has(Delete), Bytes: c.RetentionBytes, Time: c.RetentionTime}
}

// Retain drops the oldest segments that RetentionTime, RetentionBytes and the log start let go (PlanRetention tells which),
// whole ones and never above the high watermark. Kafka runs it every five minutes; so does a Dir, and a log alone does it
// when it is called. If everything is too old the active segment is rolled and goes too: the log is then empty, and goes on
// at the same offset.
//
// A segment leaves the log at once, durably, and its files get the suffix .deleted; they are removed by the first call
// after FileDeleteDelay, at Close, or by the next open. Readers that are in one finish. Appends and commits go on meanwhile, and
// wait for no rename and no sync; those that need room for themselves (Config.MaxBytes) do, and all wait for a roll.
//
// It needs no free space to free space: nothing is written, but for a roll. Where a device has no room for another segment
// FileDeleteDelay is not waited for.
// Beside an error the report says what was done before it; a second call goes on. ErrNoSpace: the active segment could
// not be rolled, all others went. Errors else as Roll's.
func (l *Log) Retain(ctx context.Context) (RetentionReport, error) {
	if err := l.admit(ctx); err != nil {
		return RetentionReport{Plan: retention.Plan{NextDue: -1}}, err
	}
	now := l.now()
	plan, cuts := l.planRetention(now)
	r := RetentionReport{Plan: plan}
	sealed := len(plan.Drop)
	if plan.RollFirst {
		sealed--
	}
	err := l.carryOut(ctx, &r, plan.Drop[:sealed], cuts)
	if err == nil && plan.RollFirst && r.Dropped == sealed {
		err = l.dropActive(ctx, &r, now)
	}
	waiting, stuck := l.discardDue(l.now().UnixMilli())
	r.Waiting = waiting
	l.retained(r)
	l.deliver()
	return r, errors.Join(err, stuck)
}

// Dropping more segments than syncEach first makes the new log start durable, which is dearer than a sync of the directory
// and then saves one for each. Whoever needs names waits for the renames of dropBatch segments at most; appends need none.
const (
	syncEach  = 4
	dropBatch = 32
)

// carryOut drops sealed segments, as long as the log is the one that the plan was made for.
func (l *Log) carryOut(ctx context.Context, r *RetentionReport, drop []retention.Drop, cuts uint64) error {
	if len(drop) > syncEach {
		if err := l.raiseFirst(ctx, drop, cuts); err != nil {
			return err
		}
	}
	if err := l.saveSnapshots(ctx, drop); err != nil {
		return err
	}
	for len(drop) > 0 {
		n, err := l.dropSome(ctx, drop, cuts)
		for _, d := range drop[:n] {
			r.Dropped++
			r.Freed += d.Bytes
		}
		if err != nil || n == 0 {
			return err
		}
		drop = drop[n:]
	}
	return l.settleDrops(ctx)
}

// raiseFirst raises the log start to where it will be. A checkpoint for which there is no room is done without.
func (l *Log) raiseFirst(ctx context.Context, drop []retention.Drop, cuts uint64) error {
	if err := l.lockStart(ctx); err != nil {
		return err
	}
	defer l.starts.unlock()
	start := drop[len(drop)-1].End
	if o, now := l.loadCuts(); now != cuts || o.HighWatermark < start || o.LogStart >= start {
		return nil
	}
	if err := l.raiseStart(ctx, start); err != nil && !errors.Is(err, ErrNoSpace) {
		return err
	}
	return nil
}

// saveSnapshots writes the snapshots of where the log will begin that still wait for the recovery point to move: once the
// segments are gone nothing else tells a recovery of their producers, who may repeat batches. One for which there is no room
// is done without. No commit round waits for it.
func (l *Log) saveSnapshots(ctx context.Context, drop []retention.Drop) error {
	if len(drop) > syncEach {
		drop = drop[len(drop)-1:]
	}
	if len(drop) == 0 {
		return nil
	}
	if err := l.names.lock(ctx); err != nil { // or a truncation could remove what is being written
		return err
	}
	defer l.names.unlock()
	if err := l.snapshots.lock(ctx); err != nil {
		return err
	}
	defer l.snapshots.unlock()
	if err := l.ended(); err != nil {
		return err
	}
	for _, d := range drop {
		if err := l.writeSnapshotAt(d.End); err != nil && !isNoSpace(err) {
			return l.fail(err)
		}
	}
	return nil
}

// dropSome drops the first one, or several that lie below the log start. 0: the log is another one by now. Nothing is held
// across the renames and syncs but names.
func (l *Log) dropSome(ctx context.Context, drop []retention.Drop, cuts uint64) (n int, err error) {
	if err := l.names.lock(ctx); err != nil {
		return 0, err
	}
	defer l.names.unlock()
	if err := l.ready(ctx); err != nil {
		return 0, err
	}
	segs := *l.list.Load()
	o, now := l.loadCuts()
	if now != cuts {
		return 0, nil
	}
	for n < len(drop) && n < dropBatch && n+1 < len(segs) {
		d, end := &drop[n], segs[n+1].Base()
		if segs[n].Base() != d.Base || end != d.End || end > o.HighWatermark {
			break
		}
		if end > o.LogStart && n > 0 {
			break
		}
		if n++; end > o.LogStart {
			break
		}
	}
	if n == 0 {
		return 0, nil
	}
	n, err = l.retireHead(segs[:n+1])
	l.shelve(l.forgetHead(n))
	return n, err
}

// forgetHead is dropped for a caller that holds names alone.
func (l *Log) forgetHead(n int) []discarded {
	_ = l.write.lock(context.Background())
	defer l.write.unlock()
	return l.dropped(n)
}

// settleDrops makes it durable that segments went which only the log start hides, and stores the epochs of those that stayed.
func (l *Log) settleDrops(ctx context.Context) error {
	if err := l.names.lock(ctx); err != nil {
		return err
	}
	defer l.names.unlock()
	if l.ended() != nil {
		return nil
	}
	if err := l.storeEpochs(ctx); err != nil || !l.loose {
		return err
	}
	if err := l.syncDir(); err != nil {
		return l.fail(err)
	}
	l.loose = false
	return nil
}

// dropActive rolls the active segment if everything in the log is to go still, and drops it.
func (l *Log) dropActive(ctx context.Context, r *RetentionReport, now time.Time) error {
	if err := l.commitAll(ctx); err != nil {
		return err
	}
	plan, cuts, err := l.rollExpired(ctx, now)
	if err != nil || !plan.RollFirst {
		return err
	}
	if err := l.syncDir(); err != nil { // or the old ones could go without the new one having come
		return l.fail(err)
	}
	return l.carryOut(ctx, r, plan.Drop, cuts)
}

// rollExpired decides once more, now that nothing can be appended meanwhile, and rolls. The files of dropped segments are in
// the way of a new one only on a full device, and then they go first.
func (l *Log) rollExpired(ctx context.Context, now time.Time) (plan retention.Plan, cuts uint64, err error) {
	plan, cuts, err = l.rollOnce(ctx, now)
	if !errors.Is(err, ErrNoSpace) {
		return plan, cuts, err
	}
	stuck := l.discardAll()
	if plan, cuts, err = l.rollOnce(ctx, now); errors.Is(err, ErrNoSpace) {
		err = errors.Join(err, stuck)
	}
	return plan, cuts, err
}

func (l *Log) rollOnce(ctx context.Context, now time.Time) (plan retention.Plan, cuts uint64, err error) {
	if err := l.write.lock(ctx); err != nil {
		return plan, 0, err
	}
	defer l.write.unlock()
	if err := l.ended(); err != nil {
		return plan, 0, err
	}
	o, cuts := l.loadCuts()
	if plan = l.decide(now, o, *l.list.Load()); !plan.RollFirst {
		return plan, cuts, nil
	}
	return plan, cuts, l.roll(ctx, o.LogEnd)
}
