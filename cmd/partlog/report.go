package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/log"
)

func reportCommand() *command {
	return &command{
		name: "report", args: "DIR", summary: "a partition or a whole log root drawn on one HTML page",
		help: `Writes one self-contained page (SVG and CSS inside, no script, nothing loaded from anywhere, light and dark): for each
partition its segments drawn by size, by offset and by time, with what retention would drop now and why, the clean and the
dirty part of a compacted log, log start, recovery point, last stable offset, high watermark and leader epochs, offsets
without a record, how dense the indexes are, open transactions, and in red whatever verify finds. Tables with the figures
stand below. Of very many segments neighbours are drawn as one.

  partlog report orders-0 -o orders.html
  partlog report /var/lib/kafka/data -o data.html --config retention.ms=86400000
  partlog report /var/lib/kafka/data -o data.html --quick     without reading the records

DIR is a partition folder or a log root. It takes no lock and changes nothing, as info and verify do not. The settings are
Kafka's defaults (a broker keeps a topic's own elsewhere): give them with --config. Without a cleanup.policy, partitions in
cleaner-offset-checkpoint are taken for compacted ones.

Exit code 1: the page was written, and shows damage.`,
		setup: func(fl *flag.FlagSet) func(context.Context, *env, []string) error {
			out := fl.String("o", "", "write the page to `FILE`; - is standard output")
			quick := fl.Bool("quick", false, "do not read the records: no verification, no gaps")
			now := nowFlag(fl)
			s := configFlag(fl)
			return func(ctx context.Context, e *env, args []string) error {
				if err := want(args, "DIR"); err != nil {
					return err
				}
				if *out == "" {
					return usagef("-o FILE is missing")
				}
				return runReport(ctx, e, args[0], *out, s, *now, *quick)
			}
		},
	}
}

// reporting is one report at work.
type reporting struct {
	t        *target
	settings settings
	config   log.Config
	clock    func() time.Time
	quick    bool
	cleaned  map[checkpoint.Partition]int64 // cleaner-offset-checkpoint
	marks    map[checkpoint.Partition]int64 // replication-offset-checkpoint
	findings map[string][]log.Finding       // by folder; "" the root's own
	blind    []string                       // what could not be verified
	progress *progress
}

func runReport(ctx context.Context, e *env, dir, out string, s settings, now millis, quick bool) error {
	c, err := s.config()
	if err != nil {
		return err
	}
	t, err := lookAtAll(dir)
	if err != nil {
		return err
	}
	s.notes(e)
	t.notePassed(e)
	r := &reporting{t: t, settings: s, config: c, clock: now.clock(), quick: quick, progress: &progress{e: e}}
	defer r.progress.done()
	r.cleaned, _ = checkpoint.ReadOffsets(t.fs, checkpoint.CleanerOffsets) // a malformed one is a finding
	r.marks, _ = checkpoint.ReadOffsets(t.fs, checkpoint.HighWatermarks)
	if !quick {
		if err := r.verify(ctx); err != nil {
			return err
		}
	}
	page, err := r.page(ctx)
	if err != nil {
		return err
	}
	if err := writePage(e, out, page); err != nil {
		return err
	}
	if page.Damaged > 0 {
		return &exit{code: exitFound}
	}
	return nil
}

// verify collects what verify finds.
func (r *reporting) verify(ctx context.Context) error {
	r.findings = map[string][]log.Finding{}
	o := r.t.verifyOptions(r.config)
	o.Now = r.clock
	o.Progress = r.progress.verified
	for f, err := range log.Verify(ctx, r.t.fs, o) {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			r.blind = append(r.blind, sentence(err))
		default:
			folder, _, below := strings.Cut(filepath.ToSlash(f.File), "/")
			if !below {
				folder = ""
			}
			r.findings[folder] = append(r.findings[folder], f)
		}
	}
	return nil
}

// configOf is what a partition is opened with: one that a cleaner keeps account of compacts.
func (r *reporting) configOf(tp log.TopicPartition) log.Config {
	c := r.config
	if _, cleaned := r.cleaned[checkpoint.Partition(tp)]; cleaned && r.settings[policyKey] == "" {
		c.Cleanup = log.Compact
	}
	return c
}

// writePage writes the page whole or not at all.
func writePage(e *env, out string, p *page) error {
	if out == "-" {
		return pageTemplate.Execute(e.out, p)
	}
	if info, err := os.Stat(out); err == nil && !info.Mode().IsRegular() {
		if info.IsDir() {
			return worded(fs.ErrInvalid, "%s is a directory; name the file to write", out)
		}
		return toFile(out, p) // a device or pipe
	}
	f, err := os.CreateTemp(filepath.Dir(out), ".partlog-report-*")
	if err != nil {
		return worded(err, "%s cannot be written: %s", out, sentence(err))
	}
	err = pageTemplate.Execute(f, p)
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err == nil {
		err = os.Rename(f.Name(), out)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

func toFile(out string, p *page) error {
	f, err := os.OpenFile(out, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(pageTemplate.Execute(io.Writer(f), p), f.Close())
}

// A page does not grow with what it shows: so many shapes, rows and partitions are drawn at most.
const (
	mostShapes   = 120  // of one partition
	fewestShapes = 24   // of one of very many
	allShapes    = 6000 // of the page
	mostDrawn    = 150  // partitions in full
	mostListed   = 5000 // partitions in the overview
	mostFindings = 100  // of one partition
	mostRows     = 100  // of an epoch, gap or transaction table
)

// page collects all there is to show.
func (r *reporting) page(ctx context.Context) (*page, error) {
	now := r.clock()
	p := &page{Title: r.t.root, Now: now.UTC().Format(stamp), Root: r.t.isRoot, Quick: r.quick, Settings: r.settings, Blind: clip(r.blind, mostFindings)}
	if !r.t.isRoot {
		p.Title = filepath.Join(r.t.root, r.t.folder)
	}
	shapes := min(mostShapes, max(fewestShapes, allShapes/min(len(r.t.partitions), mostDrawn)))
	for _, f := range r.findings[""] {
		p.Findings = append(p.Findings, describeFinding(f))
	}
	p.Damaged = len(r.findings[""]) + len(r.blind)
	p.Findings = clip(p.Findings, mostFindings)
	for i, tp := range r.t.partitions {
		r.progress.show("%s: partition %d of %d", tp, i+1, len(r.t.partitions))
		s, err := r.look(ctx, tp, now)
		if err != nil {
			return nil, err
		}
		p.add(s, shapes)
	}
	p.finish()
	return p, nil
}

func clip[T any](all []T, most int) []T { return all[:min(len(all), most)] }

// size is a number of bytes for people.
func size(n int64) string {
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	v, unit := float64(n), 0
	for v >= 1023.95 && unit < 6 {
		v /= 1024
		unit++
	}
	return fmt.Sprintf("%.1f %ciB", v, "?KMGTPE"[unit])
}

// when is a timestamp for people; "–" for none.
func when(ms int64) string {
	if ms < 0 {
		return "–"
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02 15:04:05.000")
}
