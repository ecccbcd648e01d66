package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/vfs"
)

func backupCommand() *command {
	return &command{
		name: "backup", args: "DIR DEST", summary: "copy a partition or a whole log root, to a root that opens cleanly",
		help: `Makes DEST, which must not exist, a log root of its own with the partition DIR, or with all partitions of the log root
DIR: records, offsets, epochs, producers, topic ids and checkpoints, left as by a clean stop. A broker and partlog open it as
it is, partlog restore copies it back, partlog verify reads all of it.

  partlog backup /var/lib/kafka/data /backup/2026-01-31
  partlog backup orders-0 /backup/orders --copy --verify

On one file system the .log files of sealed segments become hard links: no space, no time. partlog never changes a file that
has a second name, it changes a copy. A broker does: one that cuts off the end of a log (a follower whose leader had something
else) shortens the file in the backup too; and a sector that goes bad goes bad under both names. With --copy everything is
copied, and read back with the checksums of all batches; onto another device it always is. With --verify all of the backup is
read once more, as partlog verify does.

It takes the lock of the log root, so it does not run beside a broker, and recovers what was not stopped cleanly (a program
that has its log open with this library calls Backup instead, and goes on writing). DEST appears when it is whole and on the
device: until then it is made in DEST.partial, which the next backup to DEST removes if a crash left it.`,
		setup: func(fl *flag.FlagSet) func(context.Context, *env, []string) error {
			var o copyFlags
			o.define(fl)
			fl.BoolVar(&o.copy, "copy", false, "copy sealed segments too, make no hard links")
			fl.BoolVar(&o.verify, "verify", false, "read all of the backup back when it is there")
			s := configFlag(fl)
			return func(ctx context.Context, e *env, args []string) error {
				if err := want(args, "DIR", "DEST"); err != nil {
					return err
				}
				return runBackup(ctx, e, args[0], args[1], s, o)
			}
		},
	}
}

// copyFlags are those of backup, restore and handover.
type copyFlags struct {
	json, copy, link, verify bool
	partitions               []log.TopicPartition
}

func (o *copyFlags) define(fl *flag.FlagSet) {
	fl.BoolVar(&o.json, "json", false, "print what was made as a JSON object")
}

func (o *copyFlags) definePartitions(fl *flag.FlagSet) {
	fl.Func("partition", "only the partition `NAME` (orders-0); may be repeated", func(text string) error {
		tp, err := log.ParseTopicPartition(text)
		if err == nil {
			o.partitions = append(o.partitions, tp)
		}
		return err
	})
}

func runBackup(ctx context.Context, e *env, dir, dest string, s settings, o copyFlags) error {
	c, err := s.config()
	if err != nil {
		return err
	}
	t, err := lookAtAll(dir)
	if err != nil {
		return err
	}
	if err := refuseInside(dest); err != nil {
		return err
	}
	s.notes(e)
	t.notePassed(e)
	p := &progress{e: e}
	d, err := log.OpenDir(t.root, log.DirConfig{Defaults: c, Manual: true, Progress: p.recovered})
	if err != nil {
		return inUse(t.root, err)
	}
	r, err := d.Backup(ctx, dest, log.BackupOptions{Partitions: t.partitions, Copy: o.copy, Progress: o.progress(p)})
	p.done()
	for _, l := range d.Logs() {
		announce(e, l)
	}
	if err = errors.Join(err, d.Close()); err != nil {
		return err
	}
	if o.verify {
		if err := verifyCopy(ctx, e, dest, c); err != nil {
			return err
		}
	}
	return o.print(e, "backed up", dest, r)
}

// verifyCopy reads what was made.
func verifyCopy(ctx context.Context, e *env, dest string, c log.Config) error {
	fsys, err := vfs.OSReadOnly(dest)
	if err != nil {
		return err
	}
	t := &target{root: dest, fs: fsys, isRoot: true}
	findings, err := verifyAll(ctx, e, t, c)
	if err != nil {
		return err
	}
	for _, f := range findings {
		fmt.Fprintf(e.err, "%s\n", f)
	}
	if len(findings) > 0 {
		return &exit{exitFound, fmt.Errorf("%s is not sound: the log itself is damaged; see partlog verify", dest)}
	}
	return nil
}

// refuseInside refuses a destination inside of any log root or partition folder.
func refuseInside(dest string) error {
	if dest == "" {
		return usagef("DEST is empty")
	}
	abs, err := resolve(dest)
	if err != nil {
		return err
	}
	return mayBecomeRoot(abs, filepath.Base(abs))
}

func (o *copyFlags) progress(p *progress) func(log.CopyProgress) {
	words := map[string]string{"verify": "verifying", "copy": "copying", "link": "linking", "check": "reading back"}
	return func(at log.CopyProgress) {
		p.show("%s %s: %d of %d bytes", words[at.Phase], at.File, at.Done, at.Total)
	}
}

// copyInfo is a report as JSON.
type copyInfo struct {
	Destination string       `json:"destination"`
	LinkedBytes int64        `json:"linkedBytes"`
	CopiedBytes int64        `json:"copiedBytes"`
	Partitions  []copiedInfo `json:"partitions"`
}

type copiedInfo struct {
	Partition      string `json:"partition"`
	LogStartOffset int64  `json:"logStartOffset"`
	HighWatermark  int64  `json:"highWatermark"`
	LogEndOffset   int64  `json:"logEndOffset"`
	Segments       int    `json:"segments"`
	Bytes          int64  `json:"bytes"`
}

func (o *copyFlags) print(e *env, verb, dest string, r log.CopyReport) error {
	if o.json {
		info := copyInfo{Destination: dest, LinkedBytes: r.Linked, CopiedBytes: r.Copied, Partitions: []copiedInfo{}}
		for _, p := range r.Partitions {
			info.Partitions = append(info.Partitions, copiedInfo{p.TopicPartition.String(), p.LogStart, p.HighWatermark, p.LogEnd, p.Segments, p.Bytes})
		}
		return json.NewEncoder(e.out).Encode(info)
	}
	for _, p := range r.Partitions {
		if _, err := fmt.Fprintf(e.out, "%s: %s, %s, %s\n", p.TopicPartition, holding(p.LogStart, p.LogEnd), counted(p.Segments, "segment"), counted(p.Bytes, "byte")); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(e.out, "%s %s to %s: %s copied, %s linked\n", verb, counted(len(r.Partitions), "partition"), dest, counted(r.Copied, "byte"), counted(r.Linked, "byte"))
	return err
}

// within limits the partitions of a source to those that were named.
func (o *copyFlags) within(t *target) ([]log.TopicPartition, error) {
	if !t.isRoot {
		return t.partitions, nil
	}
	for _, tp := range o.partitions {
		if !slices.Contains(t.partitions, tp) {
			return nil, worded(log.ErrNoPartition, "%s holds no %s", t.root, tp)
		}
	}
	return o.partitions, nil
}
