package retention

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// kafka is the model: a log that deletes as Kafka's description says, one pass after the other, each of which changes the
// list before the next one looks.
type kafka struct {
	segs          []Fact
	start, hw, at int64
	rolled        bool
	freed         int64
	why           map[int64]Reason
}

func (k *kafka) end() int64 { return k.segs[len(k.segs)-1].End }

// deletable walks from the oldest segment, telling the predicate which comes next (nil for the last).
func (k *kafka) deletable(predicate func(seg Fact, next *Fact) bool) (out []Fact) {
	for i, seg := range k.segs {
		var next *Fact
		upper := k.end()
		if i+1 < len(k.segs) {
			next = &k.segs[i+1]
			upper = next.Base
		}
		lastAndEmpty := next == nil && seg.Bytes == 0
		if k.hw >= upper && predicate(seg, next) && !lastAndEmpty {
			out = append(out, seg)
			continue
		}
		return out
	}
	return out
}

func (k *kafka) delete(reason Reason, predicate func(seg Fact, next *Fact) bool) {
	gone := k.deletable(predicate)
	if len(gone) == 0 {
		return
	}
	if len(gone) == len(k.segs) {
		k.rolled = true
		k.segs = append(k.segs, Fact{Base: k.end(), End: k.end(), LargestTimestamp: -1, ModTime: k.at})
	}
	for _, seg := range gone {
		k.why[seg.Base] = reason
		k.freed += seg.Bytes
	}
	k.segs = slices.Clone(k.segs[len(gone):])
	k.start = max(k.start, k.segs[0].Base)
}

func (k *kafka) retain(deletes bool, retentionBytes, retentionMs int64) {
	k.delete(StartOffset, func(_ Fact, next *Fact) bool { return next != nil && next.Base <= k.start })
	if !deletes {
		return
	}
	size := int64(0)
	for _, seg := range k.segs {
		size += seg.Bytes
	}
	if retentionBytes >= 0 && size >= retentionBytes {
		diff := size - retentionBytes
		k.delete(Size, func(seg Fact, _ *Fact) bool {
			if diff-seg.Bytes < 0 {
				return false
			}
			diff -= seg.Bytes
			return true
		})
	}
	if retentionMs >= 0 {
		k.delete(Age, func(seg Fact, _ *Fact) bool {
			t := seg.LargestTimestamp
			if t < 0 {
				t = seg.ModTime
			}
			return k.at-t > retentionMs
		})
	}
}

func drawLog(t *rapid.T) (segs []Fact) {
	at := rapid.Int64Range(0, 100).Draw(t, "first")
	for range rapid.IntRange(1, 8).Draw(t, "segments") {
		f := Fact{Base: at, LargestTimestamp: ago(rapid.Int64Range(-20, 40).Draw(t, "age")), ModTime: ago(rapid.Int64Range(-20, 40).Draw(t, "modified"))}
		if rapid.IntRange(0, 3).Draw(t, "untimed") == 0 {
			f.LargestTimestamp = -1
		}
		if rapid.IntRange(0, 5).Draw(t, "empty") > 0 {
			f.Bytes = rapid.Int64Range(1, 30).Draw(t, "bytes")
			at += rapid.Int64Range(1, 10).Draw(t, "offsets")
		} else {
			at += rapid.Int64Range(1, 2).Draw(t, "gap") // what an emptied segment leaves
		}
		f.End = at
		segs = append(segs, f)
	}
	if last := &segs[len(segs)-1]; last.Bytes == 0 {
		last.End = last.Base
	}
	return segs
}

// Where Kafka changes the list between its passes, one look decides: both must come to the same.
func TestOneDecisionIsWhatKafkasThreePassesComeTo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		segs := drawLog(t)
		end := segs[len(segs)-1].End
		start := rapid.Int64Range(segs[0].Base, end).Draw(t, "log start")
		hw := rapid.Int64Range(start, end).Draw(t, "high watermark")
		p := Policy{
			Delete: rapid.IntRange(0, 4).Draw(t, "delete") > 0,
			Bytes:  rapid.SampledFrom([]int64{0, Unlimited, KeepNothing, 1, 30, 60, 100, math.MaxInt64}).Draw(t, "retention.bytes"),
			Time:   rapid.SampledFrom([]time.Duration{0, Forever, Immediately, 5 * time.Millisecond, 20 * time.Millisecond, math.MaxInt64}).Draw(t, "retention.ms"),
		}
		before := slices.Clone(segs)
		plan := p.Decide(noon, start, hw, segs)

		model := &kafka{segs: segs, start: start, hw: hw, at: noon.UnixMilli(), why: map[int64]Reason{}}
		bytes, millis := int64(-1), int64(-1)
		if p.Bytes > 0 || p.Bytes == KeepNothing {
			bytes = max(0, p.Bytes)
		}
		if p.Time > 0 || p.Time == Immediately {
			millis = max(0, p.Time).Milliseconds()
		}
		model.retain(p.Delete, bytes, millis)

		require.Equal(t, before, segs, "the facts are the caller's")
		require.Equal(t, model.freed, plan.Freed)
		require.Equal(t, model.start, plan.NewStart)
		require.Equal(t, model.rolled, plan.RollFirst)
		for i, d := range plan.Drop {
			require.Equal(t, Drop{before[i].Base, before[i].End, before[i].Bytes, d.Reason}, d, "a prefix")
			require.Equal(t, model.why[d.Base], d.Reason)
			require.LessOrEqual(t, d.End, hw)
		}
		if !plan.RollFirst {
			require.Equal(t, before[len(plan.Drop):], model.segs)
		}

		// Doing it and looking again at the same time finds nothing more. Report: B130
		again := p.Decide(noon, plan.NewStart, max(hw, plan.NewStart), model.segs)
		require.Empty(t, again.Drop)
		if len(plan.Drop) < len(before) {
			require.Equal(t, plan.HeldBy, again.HeldBy)
			require.Equal(t, plan.NextDue, again.NextDue)
			holds(t, p, plan, before, start, hw)
		}
	})
}

// holds checks the reason that is given for the first segment that stays: without what holds it, it would go, or it is not
// due at all.
func holds(t *rapid.T, p Policy, plan Plan, segs []Fact, start, hw int64) {
	n := len(plan.Drop)
	kept := &segs[n]
	freer := slices.Clone(segs)
	switch plan.HeldBy {
	case HighWatermark:
		require.Greater(t, kept.End, hw)
		require.Greater(t, len(p.Decide(noon, start, math.MaxInt64, segs).Drop), n)
	case FutureTimestamp:
		freer[n].LargestTimestamp, freer[n].ModTime = ago(0), ago(0)
		when := time.UnixMilli(max(plan.NextDue, 0))
		require.NotEqual(t, FutureTimestamp, p.Decide(noon, start, hw, freer).HeldBy)
		if plan.NextDue >= 0 {
			require.True(t, p.Expired(when, *kept))
			require.False(t, p.Expired(when.Add(-time.Millisecond), *kept))
		}
	case EmptyActive:
		require.Equal(t, len(segs)-1, n)
		require.Zero(t, kept.Bytes)
	case NoDelete:
		require.False(t, p.Delete)
	case NotDue:
		require.Len(t, p.Decide(noon, start, math.MaxInt64, segs).Drop, n, "nothing but the limits holds it")
	}
}
