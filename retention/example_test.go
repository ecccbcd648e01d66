package retention_test

import (
	"fmt"
	"time"

	"github.com/partlog/partlog/retention"
)

// What would go of a log of three segments under retention.ms of a day and retention.bytes of 2 GiB?
func ExamplePolicy_Decide() {
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	hours := func(n int) int64 { return now.Add(-time.Duration(n) * time.Hour).UnixMilli() }
	segments := []retention.Fact{
		{Base: 0, End: 4000, Bytes: 1 << 30, LargestTimestamp: hours(30)},
		{Base: 4000, End: 9000, Bytes: 1 << 30, LargestTimestamp: hours(20)},
		{Base: 9000, End: 9500, Bytes: 1 << 20, LargestTimestamp: hours(0)}, // the active one
	}
	policy := retention.Policy{Delete: true, Time: 24 * time.Hour, Bytes: 2 << 30}

	plan := policy.Decide(now, 0, 9500, segments)
	for _, d := range plan.Drop {
		fmt.Printf("offsets %d to %d go: %v\n", d.Base, d.End-1, d.Reason)
	}
	fmt.Printf("the log then starts at %d, %d MiB are free\n", plan.NewStart, plan.Freed>>20)
	fmt.Printf("the next one: %v, by age at %s\n", plan.HeldBy, time.UnixMilli(plan.NextDue).UTC().Format(time.DateTime))
	// Output:
	// offsets 0 to 3999 go: age
	// the log then starts at 4000, 1024 MiB are free
	// the next one: not due, by age at 2026-01-31 16:00:00
}
