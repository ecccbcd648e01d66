package main

import (
	"context"

	"github.com/partlog/partlog/log"
)

func deleteRecordsCommand() *command {
	return changeCommand{
		name: "delete-records", args: "DIR OFFSET", summary: "raise the log start offset",
		help: `Makes OFFSET the log start offset, durably: records below it can no longer be read. -1 means the high watermark, that
is everything there is. Files go later, when a whole segment lies below the start and retention runs. An OFFSET at or
below the present start changes nothing.

  partlog delete-records orders-0 4711
  partlog delete-records orders-0 -1`,
		offset: func(text string) (int64, error) {
			n, err := offsetArg(text)
			if err == nil && n < log.ToHighWatermark {
				err = usagef("OFFSET must be -1 (everything) or not negative")
			}
			return n, err
		},
		change: func(ctx context.Context, l *log.Log, offset int64) (string, error) {
			note := ""
			if offset != log.ToHighWatermark && offset <= l.Offsets().LogStart {
				note = "nothing to delete"
			}
			return note, l.DeleteRecords(ctx, offset)
		},
	}.command()
}
