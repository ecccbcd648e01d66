package main

import (
	"context"

	"github.com/partlog/partlog/log"
)

func rollCommand() *command {
	return changeCommand{
		name: "roll", args: "DIR", summary: "close the active segment and begin a new one",
		help: `Closes the active segment and begins a new one at the log end, so that retention and copying may treat everything before
as done. An empty active segment is kept.

  partlog roll orders-0`,
		change: func(ctx context.Context, l *log.Log, _ int64) (string, error) {
			before := len(l.SegmentInfos())
			if err := l.Roll(ctx); err != nil {
				return "", err
			}
			if len(l.SegmentInfos()) == before {
				return "the active segment is empty", nil
			}
			return "", nil
		},
	}.command()
}
