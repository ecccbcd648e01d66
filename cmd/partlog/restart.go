package main

import (
	"context"

	"github.com/partlog/partlog/log"
)

func restartCommand() *command {
	return changeCommand{
		name: "restart-at", args: "DIR OFFSET", summary: "empty a log and let it begin at an offset",
		help: `Removes every record, durably, and leaves an empty log whose next record gets OFFSET, as a follower does whose leader
no longer has what it lacks.

  partlog restart-at orders-0 1000000`,
		offset: notNegative,
		change: func(ctx context.Context, l *log.Log, offset int64) (string, error) {
			return "", l.ResetTo(ctx, offset)
		},
	}.command()
}
