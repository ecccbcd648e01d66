package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/vfs"
)

func dumpCommand() *command {
	o := &dumpOptions{}
	return &command{
		name: "dump", args: "FILE...", summary: "the bytes of any of Kafka's files, line by line as Kafka's own dump tool prints them",
		help: `
dump prints what stands in a file: batches and records of a .log, and of the .checkpoint of a cluster's metadata;
entries of .index, .timeindex and .txnindex; producers of a .snapshot; entries of leader-epoch-checkpoint and of the
root's offset checkpoints; partition.metadata, .kafka_cleanshutdown and meta.properties. The suffixes .deleted, .cleaned
and .swap are looked through.

    partlog dump --print-data-log orders-0/00000000000000000000.log

The lines are those of Kafka's DumpLogSegments, so that two dumps can be compared. As there, the dump goes to standard
output, and what the tool finds wrong (an index entry that fits no batch, offsets that leave gaps) goes to standard
error behind all files and does not change the exit code; gaps are normal in compacted logs and in any file that does
not begin at offset 0. So does a file of a kind that is none of Kafka's: it is passed over. The exit code is 1 if a
file, or the rest of it, could not be read, or is not there: the index that ends within an entry, the snapshot with a
wrong checksum, the checkpoint with a line that is none. "Unreadable" names the file, the byte or line, and the reason;
what stands before it is printed. An index is checked against the .log beside it.

With --json every line is one object; "kind" is batch, record, entry or finding, the other names are Kafka's, what is
absent is null, keys and payloads are base64. Records are listed unless --deep-iteration=false.

    partlog dump --json orders-0/*.log | jq 'select(.kind=="batch") | .size'`,
		setup: func(fl *flag.FlagSet) func(context.Context, *env, []string) error {
			fl.Var(&o.deep, "deep-iteration", "list the records of each batch")
			fl.Var(&o.data, "print-data-log", "list the records with key and payload as text")
			fl.BoolVar(&o.skipMetadata, "skip-record-metadata", false, "of records only key and payload; no control records")
			fl.Int64Var(&o.maxBytes, "max-bytes", 0, "stop reading a .log behind `N` bytes; 0: never")
			fl.BoolVar(&o.sanityOnly, "index-sanity-check", false, "of an index only whether it passes the check a broker does at start")
			fl.BoolVar(&o.verifyOnly, "verify-index-only", false, "check indexes, print no entries")
			fl.BoolVar(&o.json, "json", false, "one JSON object a line")
			s := configFlag(fl)
			return func(ctx context.Context, e *env, args []string) error {
				if _, err := s.config(); err != nil {
					return err
				}
				s.notes(e)
				return runDump(ctx, e, *o, args)
			}
		},
	}
}

type dumpOptions struct {
	deep, data             choice
	skipMetadata           bool
	maxBytes               int64
	sanityOnly, verifyOnly bool
	json                   bool
}

// choice is a flag that knows whether it was given.
type choice struct{ on, given bool }

func (c *choice) String() string   { return "" }
func (c *choice) IsBoolFlag() bool { return true }
func (c *choice) Set(text string) error {
	c.given, c.on = true, text == "true" || text == "1"
	if !c.on && text != "false" && text != "0" {
		return errors.New("want true or false")
	}
	return nil
}

func runDump(ctx context.Context, e *env, o dumpOptions, files []string) error {
	if len(files) == 0 {
		return usagef("FILE is missing")
	}
	d := &dumper{ctx: ctx, o: o, out: bufio.NewWriterSize(e.out, 64<<10)}
	d.data = o.data.on || o.json && !o.data.given
	d.deep = o.deep.on || d.data && !o.deep.given || o.json && !o.deep.given
	for _, file := range files {
		if err := d.file(file); err != nil {
			return errors.Join(err, d.out.Flush())
		}
	}
	if err := d.out.Flush(); err != nil {
		return err
	}
	for _, g := range d.findings {
		if o.json {
			break
		}
		fmt.Fprintln(e.err, g.title)
		for _, line := range g.lines {
			fmt.Fprintln(e.err, line)
		}
	}
	if d.unreadable {
		return &exit{code: exitFound}
	}
	return nil
}

// dumper prints files.
type dumper struct {
	ctx        context.Context
	o          dumpOptions
	out        *bufio.Writer
	deep, data bool
	findings   []*findingGroup
	unreadable bool

	path string // as given
	fs   vfs.FS // its folder
	text []byte // of one object
	name string // in the folder
}

// findingGroup is what is said of one file in one respect.
type findingGroup struct {
	title string
	lines []string
}

// maxFindingLines of one group are kept: a garbled index should not fill the memory.
const maxFindingLines = 100_000

// unreadableError says why the rest of a file cannot be dumped.
type unreadableError struct {
	position int64 // -1: the file as a whole
	reason   string
}

func (e *unreadableError) Error() string {
	if e.position < 0 {
		return e.reason
	}
	return fmt.Sprintf("byte %d: %s", e.position, e.reason)
}

func unreadablef(position int64, format string, args ...any) error {
	return &unreadableError{position, fmt.Sprintf(format, args...)}
}

// kindOf is what to read a file as, by its name.
func kindOf(name string) (kind, plain string) {
	for _, suffix := range []string{".deleted", ".cleaned", ".swap", ".tmp"} {
		name = strings.TrimSuffix(name, suffix)
	}
	switch name {
	case checkpoint.LeaderEpochs, checkpoint.RecoveryPoints, checkpoint.LogStarts, checkpoint.HighWatermarks, checkpoint.CleanerOffsets,
		checkpoint.Metadata, checkpoint.CleanMarker, checkpoint.MetaProperties:
		return name, name
	}
	switch ext := filepath.Ext(name); ext {
	case ".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".checkpoint":
		return ext, name
	}
	return "", name
}

// file dumps one file. An error ends the command; what is merely unreadable is reported and the next file follows.
func (d *dumper) file(path string) error {
	if err := d.ctx.Err(); err != nil {
		return err
	}
	d.path, d.name = path, filepath.Base(path)
	kind, plain := kindOf(d.name)
	err := d.look()
	if err == nil && kind == "" {
		d.find("unknown", "Ignoring unknown file "+path)
		return nil
	}
	if err == nil {
		d.line("Dumping %s", path)
		err = d.content(kind, plain)
	}
	if err == nil || d.ctx.Err() != nil {
		return errors.Join(d.ctx.Err(), err)
	}
	d.unreadable = true
	at := facts{}
	if u, ok := errors.AsType[*unreadableError](err); ok && u.position >= 0 {
		at.set("position", u.position)
	}
	d.findWith("unreadable", fmt.Sprintf("Unreadable: %s", d.absolute()), "  "+sentence(err), at)
	return nil
}

// look finds the file in its folder.
func (d *dumper) look() (err error) {
	if d.fs, err = vfs.OSReadOnly(filepath.Dir(d.path)); err != nil {
		return err
	}
	info, err := d.fs.Stat(d.name)
	if err == nil && info.IsDir() {
		return unreadablef(-1, "it is a directory; name files in it, as %s", filepath.Join(d.path, "*.log"))
	}
	return err
}

func (d *dumper) content(kind, plain string) error {
	switch kind {
	case ".log":
		base, err := d.base(plain)
		if err != nil {
			return err
		}
		d.line("Log starting offset: %d", base)
		return d.log()
	case ".checkpoint":
		of, err := snapshotOf(plain)
		if err != nil {
			return err
		}
		d.line("%s", of)
		return d.log()
	case ".index", ".timeindex", ".txnindex":
		base, err := d.base(plain)
		if err != nil {
			return err
		}
		return map[string]func(int64) error{".index": d.index, ".timeindex": d.timeIndex, ".txnindex": d.txnIndex}[kind](base)
	case ".snapshot":
		return d.snapshot()
	}
	return d.small(kind)
}

// base is the offset that a segment file's name begins with.
func (d *dumper) base(plain string) (int64, error) {
	digits, _, _ := strings.Cut(plain, ".")
	base, err := offsetArg(digits)
	if err != nil || base < 0 {
		return 0, unreadablef(-1, "the name does not begin with an offset")
	}
	return base, nil
}

func (d *dumper) absolute() string {
	if abs, err := filepath.Abs(d.path); err == nil {
		return abs
	}
	return d.path
}

// line prints a line of the text form.
func (d *dumper) line(format string, args ...any) {
	if !d.o.json {
		fmt.Fprintf(d.out, format, args...)
		d.out.WriteByte('\n')
	}
}

// object prints an object of the JSON form.
func (d *dumper) object(kind string, v facts) {
	if !d.o.json {
		return
	}
	d.text = append(d.text[:0], '{')
	d.text = facts{{"kind", kind}, {"file", d.path}}.append(d.text)
	d.text = append(d.text, ',')
	d.text = v.append(d.text)
	d.text = append(d.text, '}', '\n')
	d.out.Write(d.text)
}

// entry prints an entry in whichever form.
func (d *dumper) entry(v facts, format string, args ...any) {
	if d.o.verifyOnly {
		return
	}
	d.line(format, args...)
	d.object("entry", v)
}

// find reports a finding without lines of its own.
func (d *dumper) find(what, title string) { d.findWith(what, title, "", nil) }

// findWith reports a finding under a title, which names the file; more is for the JSON form.
func (d *dumper) findWith(what, title, line string, more facts) {
	if d.o.json {
		v := facts{{"finding", what}, {"detail", strings.TrimSpace(title + ": " + strings.TrimSpace(line))}, {"position", nil}, {"offset", nil}}
		for _, f := range more {
			v.set(f.name, f.value)
		}
		if line == "" {
			v.set("detail", title)
		}
		d.object("finding", v)
		return
	}
	var g *findingGroup
	for _, old := range d.findings {
		if old.title == title {
			g = old
		}
	}
	if g == nil {
		g = &findingGroup{title: title}
		d.findings = append(d.findings, g)
	}
	if line != "" && len(g.lines) < maxFindingLines {
		g.lines = append(g.lines, line)
	}
}
