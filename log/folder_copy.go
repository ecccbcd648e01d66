package log

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/vfs"
)

// folderCopy copies a partition folder that nobody writes.
type folderCopy struct {
	src    *atRest
	link   bool
	told   func(CopyProgress)
	report *CopyReport
}

func (a *atRest) copying(r *CopyReport, o RestoreOptions) *folderCopy {
	return &folderCopy{src: a, link: o.Link, told: o.Progress, report: r}
}

// partition copies every file of the folder, and reads the copied segments back. All is synced when it returns, but for the
// folder's own name.
func (c *folderCopy) partition(ctx context.Context, tp TopicPartition, to vfs.FS, folder string) error {
	from, err := c.folderOf(tp)
	if err != nil {
		return err
	}
	entries, err := c.src.fs.ReadDir(from)
	if err != nil {
		return err
	}
	if err := to.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	p := CopiedPartition{TopicPartition: tp}
	bases := segment.Bases(entries)
	p.Segments = len(bases)
	total := int64(0)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && strings.HasSuffix(e.Name(), ".log") {
			total += info.Size()
		}
	}
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		last := len(bases) > 0 && e.Name() == segment.FileName(bases[len(bases)-1], ".log")
		if err := c.file(ctx, &p, from, to, folder, e.Name(), last, total); err != nil {
			return fmt.Errorf("copy %s: %w", tp, err)
		}
	}
	c.src.marksOf(tp, func(file string, at int64) {
		switch file {
		case checkpoint.RecoveryPoints:
			p.LogEnd = at
		case checkpoint.HighWatermarks:
			p.HighWatermark = at
		case checkpoint.LogStarts:
			p.LogStart = at
		}
	})
	if len(bases) > 0 {
		p.LogStart = max(p.LogStart, bases[0])
	}
	c.report.Partitions = append(c.report.Partitions, p)
	return syncDir(to, folder)
}

// folderOf is the partition's folder; its number may be spelled in another way.
func (c *folderCopy) folderOf(tp TopicPartition) (string, error) {
	if exists(c.src.fs, tp.String()) {
		return tp.String(), nil
	}
	entries, err := c.src.fs.ReadDir(".")
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		if found, err := ParseTopicPartition(e.Name()); err == nil && found == tp && e.IsDir() {
			return e.Name(), nil
		}
	}
	return "", fmt.Errorf("%w: %s", ErrNoPartition, tp)
}

func (c *folderCopy) file(ctx context.Context, p *CopiedPartition, from string, to vfs.FS, folder, file string, last bool, total int64) error {
	old, name := from+"/"+file, folder+"/"+file
	if !strings.HasSuffix(file, ".log") {
		_, err := vfs.Copy(c.src.fs, old, to, name)
		return err
	}
	info, err := c.src.fs.Stat(old)
	if err != nil {
		return err
	}
	done := p.Bytes
	p.Bytes += info.Size()
	if c.link && !last {
		if _, err := vfs.Links(c.src.fs, old); err == nil {
			err := vfs.LinkTo(c.src.fs, old, to, name)
			if err == nil {
				c.report.Linked += info.Size()
				return nil
			}
			if !errors.Is(err, vfs.ErrUnsupported) {
				return err
			}
		}
		c.link = false
	}
	tell := func(phase string) func(int64) {
		return func(at int64) {
			if c.told != nil {
				c.told(CopyProgress{p.TopicPartition, phase, name, done + at, total})
			}
		}
	}
	if err := copyLogFile(ctx, c.src.fs, old, to, name, info.Size(), tell("copy")); err != nil {
		return err
	}
	c.report.Copied += info.Size()
	base, err := parseOffset(strings.TrimSuffix(file, ".log"))
	if err != nil || file != segment.FileName(base, ".log") {
		return nil // no segment's
	}
	check := tell("check")
	return scanCopy(ctx, folder, base, segment.Options{FS: to, ReadOnly: true, Whole: c.src.clean}, func(at, _ int64) { check(at) })
}
