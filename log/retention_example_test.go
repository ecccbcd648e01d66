package log_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
)

// What a week of retention lets go, and then letting it go.
func ExampleLog_Retain() {
	dir, err := os.MkdirTemp("", "partlog")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	l, err := log.Open(dir, log.Config{RetentionTime: 7 * 24 * time.Hour})
	if err != nil {
		panic(err)
	}
	defer l.Close()
	for _, age := range []time.Duration{9 * 24 * time.Hour, 8 * 24 * time.Hour, time.Hour} {
		if _, err := l.Append(ctx, record.Record{Timestamp: time.Now().Add(-age).UnixMilli(), Value: []byte("v")}); err != nil {
			panic(err)
		}
		if err := l.Roll(ctx); err != nil { // else one segment would hold all three
			panic(err)
		}
	}

	plan := l.PlanRetention(time.Now())
	for _, d := range plan.Drop {
		fmt.Printf("offset %d would go: %v\n", d.Base, d.Reason)
	}
	done, err := l.Retain(ctx)
	if err != nil {
		panic(err)
	}
	fmt.Printf("%d segments went, the log starts at %d\n", done.Dropped, l.Offsets().LogStart)
	// Output:
	// offset 0 would go: age
	// offset 1 would go: age
	// 2 segments went, the log starts at 2
}
