package retention

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const ms = int64(1)

var noon = time.UnixMilli(1_700_000_000_000)

// ago is a timestamp that many milliseconds before noon.
func ago(millis int64) int64 { return noon.UnixMilli() - millis }

// logOf makes the facts of a log from 0 on with records of ten bytes: each argument is the number of records of a segment.
func logOf(records ...int64) []Fact {
	segs := make([]Fact, len(records))
	at := int64(0)
	for i, n := range records {
		segs[i] = Fact{Base: at, End: at + n, Bytes: 10 * n, LargestTimestamp: ago(0), ModTime: ago(0)}
		at += n
	}
	return segs
}

// aged sets the largest timestamps.
func aged(segs []Fact, millis ...int64) []Fact {
	for i, age := range millis {
		segs[i].LargestTimestamp = ago(age)
	}
	return segs
}

func bases(p Plan) (all []int64) {
	for _, d := range p.Drop {
		all = append(all, d.Base)
	}
	return all
}

func TestWhatGoesAndWhy(t *testing.T) {
	deletes := func(bytes int64, age time.Duration) Policy { return Policy{Delete: true, Bytes: bytes, Time: age} }
	second := deletes(0, time.Second)
	for name, c := range map[string]struct {
		policy    Policy
		start, hw int64
		segs      []Fact
		drop      []int64
		newStart  int64
		reasons   []Reason
		roll      bool
		held      Hold
	}{
		"an empty list":           {segs: nil, held: NotDue},
		"a new log":               {policy: second, segs: logOf(0), held: EmptyActive},
		"the zero policy":         {hw: 15, segs: aged(logOf(5, 5, 5), 9e9, 9e9, 9e9), held: NoDelete},
		"no limits":               {policy: Policy{Delete: true}, hw: 15, segs: aged(logOf(5, 5, 5), 9e9, 9e9, 9e9)},
		"no limits, in words":     {policy: deletes(Unlimited, Forever), hw: 15, segs: aged(logOf(5, 5, 5), 9e9, 9e9, 9e9)},
		"limits without delete":   {policy: Policy{Bytes: 1, Time: 1e6}, hw: 15, segs: aged(logOf(5, 5, 5), 9e9, 9e9, 9e9), held: NoDelete},
		"start in a segment":      {start: 1, newStart: 1, hw: 15, segs: logOf(5, 5, 5), held: NoDelete},
		"start behind one":        {start: 6, newStart: 6, hw: 15, segs: logOf(5, 5, 5), drop: []int64{0}, reasons: []Reason{StartOffset}, held: NoDelete},
		"start at a base":         {start: 5, newStart: 5, hw: 15, segs: logOf(5, 5, 5), drop: []int64{0}, reasons: []Reason{StartOffset}, held: NoDelete},
		"start at the end":        {start: 15, newStart: 15, hw: 15, segs: logOf(5, 5, 5), drop: []int64{0, 5}, reasons: []Reason{StartOffset, StartOffset}, held: NoDelete},
		"size: fits":              {policy: deletes(150, 0), hw: 15, segs: logOf(5, 5, 5)},
		"size: one too many":      {policy: deletes(100, 0), hw: 15, segs: logOf(5, 5, 5), drop: []int64{0}, reasons: []Reason{Size}, newStart: 5},
		"size: never below it":    {policy: deletes(101, 0), hw: 15, segs: logOf(5, 5, 5)},
		"size: of what is left":   {policy: deletes(100, 0), start: 5, newStart: 5, hw: 15, segs: logOf(5, 5, 5), drop: []int64{0}, reasons: []Reason{StartOffset}},
		"size: the active too":    {policy: deletes(KeepNothing, 0), hw: 15, segs: logOf(5, 5, 5), drop: []int64{0, 5, 10}, reasons: []Reason{Size, Size, Size}, newStart: 15, roll: true},
		"size: a large one first": {policy: deletes(100, 0), hw: 25, segs: logOf(20, 5), held: NotDue},
		"size: an empty one goes": {policy: deletes(50, 0), hw: 9, segs: []Fact{{Base: 0, End: 4}, {Base: 4, End: 9, Bytes: 50}}, drop: []int64{0}, reasons: []Reason{Size}, newStart: 4},
		"age":                     {policy: second, hw: 15, segs: aged(logOf(5, 5, 5), 1001, 1001, 0), drop: []int64{0, 5}, reasons: []Reason{Age, Age}, newStart: 10},
		"age: the whole log":      {policy: second, hw: 15, segs: aged(logOf(5, 5, 5), 1001, 1001, 1001), drop: []int64{0, 5, 10}, reasons: []Reason{Age, Age, Age}, newStart: 15, roll: true},
		"age: empty active":       {policy: second, hw: 10, segs: aged(logOf(5, 5, 0), 1001, 1001, 1001), drop: []int64{0, 5}, reasons: []Reason{Age, Age}, newStart: 10, held: EmptyActive},
		"age: only a prefix":      {policy: second, hw: 15, segs: aged(logOf(5, 5, 5), 0, 1001, 1001)},
		"age: zero":               {policy: deletes(0, Immediately), hw: 15, segs: aged(logOf(5, 5, 5), 1, 0, 0), drop: []int64{0}, reasons: []Reason{Age}, newStart: 5},
		"age: below a millisecond": {policy: deletes(0, time.Microsecond), hw: 15, segs: aged(logOf(5, 5, 5), 1, 0, 0),
			drop: []int64{0}, reasons: []Reason{Age}, newStart: 5},
		"future":                        {policy: second, hw: 15, segs: aged(logOf(5, 5, 5), 1001, -9e9, 1001), drop: []int64{0}, reasons: []Reason{Age}, newStart: 5, held: FutureTimestamp},
		"future, but too large":         {policy: deletes(100, time.Second), hw: 15, segs: aged(logOf(5, 5, 5), -9e9, 0, 0), drop: []int64{0}, reasons: []Reason{Size}, newStart: 5},
		"future, without an age limit":  {policy: deletes(150, 0), hw: 15, segs: aged(logOf(5, 5, 5), -9e9, 0, 0)},
		"hidden":                        {policy: second, hw: 9, segs: aged(logOf(5, 5, 5), 1001, 1001, 1001), drop: []int64{0}, reasons: []Reason{Age}, newStart: 5, held: HighWatermark},
		"hidden by size":                {policy: deletes(50, 0), hw: 9, segs: logOf(5, 5, 5), drop: []int64{0}, reasons: []Reason{Size}, newStart: 5, held: HighWatermark},
		"hidden and not due":            {policy: second, hw: 4, segs: logOf(5, 5, 5)},
		"hidden and large enough":       {policy: deletes(150, 0), hw: 4, segs: logOf(5, 5, 5)},
		"hidden active":                 {policy: second, hw: 14, segs: aged(logOf(5, 5, 5), 1001, 1001, 1001), drop: []int64{0, 5}, reasons: []Reason{Age, Age}, newStart: 10, held: HighWatermark},
		"all three":                     {policy: deletes(140, time.Second), start: 5, hw: 20, segs: aged(logOf(5, 1, 5, 5, 4), 0, 0, 1001, 1001, 0), drop: []int64{0, 5, 6, 11}, reasons: []Reason{StartOffset, Size, Age, Age}, newStart: 16},
		"a start that unblocks the age": {policy: second, start: 5, hw: 15, segs: aged(logOf(5, 5, 5), -9e9, 1001, 0), drop: []int64{0, 5}, reasons: []Reason{StartOffset, Age}, newStart: 10},
	} {
		t.Run(name, func(t *testing.T) {
			p := c.policy.Decide(noon, c.start, c.hw, c.segs)
			require.Equal(t, c.drop, bases(p))
			require.Equal(t, c.newStart, p.NewStart)
			require.Equal(t, c.roll, p.RollFirst)
			require.Equal(t, c.held, p.HeldBy, p.HeldBy.String())
			freed := int64(0)
			for i, d := range p.Drop {
				require.Equal(t, c.reasons[i], d.Reason, "%v", d)
				freed += d.Bytes
			}
			require.Equal(t, freed, p.Freed)
		})
	}
}

// Report: B131
func TestAsOldAsTheLimitIsNotTooOld(t *testing.T) {
	for age, goes := range map[int64]bool{999: false, 1000: false, 1001: true} {
		segs := aged(logOf(5, 5), age, 0)
		p := Policy{Delete: true, Time: time.Second}
		require.Equal(t, goes, p.Expired(noon, segs[0]), age)
		require.Equal(t, goes, len(p.Decide(noon, 0, 10, segs).Drop) == 1, age)
	}
}

// Report: B135
func TestAClockThatGoesBackDeletesNothingAndTheNextTimeIsAhead(t *testing.T) {
	p := Policy{Delete: true, Time: time.Second}
	segs := aged(logOf(5, 5), 0, 0)
	for _, back := range []time.Duration{time.Millisecond, 500 * time.Millisecond, time.Hour, 50 * 365 * 24 * time.Hour} {
		now := noon.Add(-back)
		plan := p.Decide(now, 0, 10, segs)
		require.Empty(t, plan.Drop)
		require.Equal(t, FutureTimestamp, plan.HeldBy)
		require.Equal(t, noon.UnixMilli()+1001, plan.NextDue)
		require.Greater(t, plan.NextDue, now.UnixMilli())
	}
	require.Len(t, p.Decide(noon.Add(1001*time.Millisecond), 0, 10, segs).Drop, 2)
}

// Report: B132
func TestWithoutATimestampTheFileIsAsOldAsItsModification(t *testing.T) {
	p := Policy{Delete: true, Time: time.Second}
	segs := logOf(5, 5, 5)
	for i := range segs {
		segs[i].LargestTimestamp = -1
	}
	require.Empty(t, p.Decide(noon, 0, 15, segs).Drop)
	segs[0].ModTime = ago(1001)
	require.Equal(t, []int64{0}, bases(p.Decide(noon, 0, 15, segs)))
	segs[1].ModTime = ago(-1)
	require.Equal(t, FutureTimestamp, p.Decide(noon, 0, 15, segs).HeldBy)
}

// Report: B136
func TestTheAgeIsThatOfTheRecordsNotOfTheirArrival(t *testing.T) {
	segs := aged(logOf(5, 5), 2*3_600_000, 0)
	copied := aged(logOf(5, 5), 2*3_600_000, 0)
	copied[0].ModTime = ago(5)
	p := Policy{Delete: true, Time: time.Hour}
	require.Equal(t, p.Decide(noon, 0, 10, segs), p.Decide(noon, 0, 10, copied))
	require.Equal(t, []int64{0}, bases(p.Decide(noon, 0, 10, copied)))
}

func TestTheNextTimeIsWhenTheOldestThatStaysIsTooOld(t *testing.T) {
	segs := aged(logOf(5, 5, 5), 1001, 400, 0)
	p := Policy{Delete: true, Time: time.Second}
	require.Equal(t, ago(400)+1001*ms, p.Decide(noon, 0, 15, segs).NextDue)
	require.EqualValues(t, -1, Policy{Delete: true}.Decide(noon, 0, 15, segs).NextDue, "no limit")
	require.EqualValues(t, -1, Policy{Time: time.Second}.Decide(noon, 0, 15, segs).NextDue, "does not delete")
	require.EqualValues(t, -1, p.Decide(noon, 0, 0, logOf(0)).NextDue, "an empty segment never goes")
	segs[1].LargestTimestamp = math.MaxInt64
	require.EqualValues(t, -1, p.Decide(noon, 0, 15, segs).NextDue, "not in this life")
}

// No number that a file can hold makes the arithmetic wrong.
func TestExtremesDoNotOverflow(t *testing.T) {
	p := Policy{Delete: true, Time: math.MaxInt64, Bytes: math.MaxInt64}
	segs := logOf(5, 5)
	segs[0].LargestTimestamp, segs[1].LargestTimestamp = math.MaxInt64, 0
	require.Empty(t, p.Decide(time.UnixMilli(math.MinInt64), 0, 10, segs).Drop)
	segs[0].LargestTimestamp, segs[0].ModTime = -1, math.MinInt64
	p.Time = time.Hour
	require.Len(t, p.Decide(time.UnixMilli(math.MaxInt64), 0, 10, segs).Drop, 2)
}

func TestWordsOfReasonsAndHolds(t *testing.T) {
	require.Equal(t, []string{"unknown reason", "start offset", "size", "age"}, []string{Reason(0).String(), StartOffset.String(), Size.String(), Age.String()})
	for h, want := range map[Hold]string{NotDue: "not due", HighWatermark: "high watermark", FutureTimestamp: "future timestamp",
		EmptyActive: "empty active segment", NoDelete: "cleanup policy", Hold(99): "unknown hold"} {
		require.Equal(t, want, h.String())
	}
}

func TestADecisionAllocatesItsResultAndNothingElse(t *testing.T) {
	segs := aged(logOf(5, 5, 5, 5), 2000, 2000, 0, 0)
	p := Policy{Delete: true, Time: time.Second, Bytes: 10}
	require.Equal(t, 1.0, testing.AllocsPerRun(100, func() { p.Decide(noon, 0, 20, segs) }))
	require.Equal(t, 0.0, testing.AllocsPerRun(100, func() { p.Decide(noon, 0, 0, segs) }))
}

func BenchmarkDecide(b *testing.B) {
	segs := make([]Fact, 10_000)
	for i := range segs {
		segs[i] = Fact{Base: int64(i), End: int64(i) + 1, Bytes: 10, LargestTimestamp: ago(0)}
	}
	p := Policy{Delete: true, Time: time.Second, Bytes: 1 << 40}
	b.ReportAllocs()
	for b.Loop() {
		p.Decide(noon, 0, 10_000, segs)
	}
}
