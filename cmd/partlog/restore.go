package main

import (
	"context"
	"flag"

	"github.com/partlog/partlog/log"
)

func restoreCommand() *command {
	return &command{
		name: "restore", args: "BACKUP DEST", summary: "copy a backup to a new log root, or into an existing one",
		help: `Copies the partitions of BACKUP, which partlog backup made, or which is any log root that was stopped cleanly, to DEST.
If DEST does not exist it becomes the same log root, meta.properties included. If it is a log root that nobody has open, it
gets the partitions beside its own; a partition that it has already is refused, nothing is ever overwritten. BACKUP stays as
it is.

  partlog restore /backup/2026-01-31 /var/lib/kafka/data
  partlog restore /backup/2026-01-31 /var/lib/kafka/data --partition orders-0 --partition orders-1

Before anything is changed all of the backup is verified, as partlog verify does; every copied batch is read back. A partition
appears at DEST when it is whole and on the device: a crash leaves DEST.partial, which the next restore removes, or in an
existing root a folder that ends in -delete, which whoever opens the root removes.

The verification goes by index.interval.bytes and producer.id.expiration.ms, as partlog verify does: give yours with --config.

BACKUP may be one partition folder of a backup. With --link sealed segments become hard links to the backup's files, which is
quick; see partlog help backup for what that costs.

Exit code 1: the backup is damaged; nothing was changed.`,
		setup: func(fl *flag.FlagSet) func(context.Context, *env, []string) error {
			var o copyFlags
			o.define(fl)
			o.definePartitions(fl)
			fl.BoolVar(&o.link, "link", false, "make sealed segments hard links to the backup's, where the file system can")
			s := configFlag(fl)
			return func(ctx context.Context, e *env, args []string) error {
				if err := want(args, "BACKUP", "DEST"); err != nil {
					return err
				}
				return runRestore(ctx, e, args[0], args[1], s, o)
			}
		},
	}
}

func runRestore(ctx context.Context, e *env, backup, dest string, s settings, o copyFlags) error {
	c, err := s.config()
	if err != nil {
		return err
	}
	t, err := lookAtAll(backup)
	if err != nil {
		return err
	}
	partitions, err := o.within(t)
	if err != nil {
		return err
	}
	if err := refuseInside(dest); err != nil {
		return err
	}
	s.notes(e)
	p := &progress{e: e}
	r, err := log.Restore(ctx, t.root, dest, log.RestoreOptions{Config: c, Partitions: partitions, Link: o.link, Progress: o.progress(p)})
	p.done()
	if err != nil {
		return inUse(dest, err)
	}
	return o.print(e, "restored", dest, r)
}
