package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/partlog/partlog/log"
)

// figures are what the process holds at one moment. -1: this system does not say.
type figures struct {
	resident, peak int64 // bytes
	heap           int64 // bytes of live objects
	goroutines     int
	descriptors    int // of the process
	mappings       int // index files that are mapped
	files          int // open files of logs: these the Dir bounds
}

// measure lets the garbage of what was done before go first.
func measure(d *log.Dir) figures {
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	s := d.Stats()
	f := figures{heap: int64(m.HeapAlloc), goroutines: runtime.NumGoroutine(), mappings: s.Mappings, files: s.Files, descriptors: -1}
	f.resident, f.peak = statusBytes("VmRSS:"), statusBytes("VmHWM:")
	if open, err := os.ReadDir("/proc/self/fd"); err == nil {
		f.descriptors = len(open) - 1 // but the listing's own
	}
	return f
}

// statusBytes reads a line of Linux's /proc/self/status.
func statusBytes(name string) int64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return -1
	}
	_, rest, _ := strings.Cut(string(text), name)
	if fields := strings.Fields(rest); len(fields) > 1 {
		if kib, err := strconv.ParseInt(fields[0], 10, 64); err == nil {
			return kib << 10
		}
	}
	return -1
}

// cost is the time that something took, and how much of the processors; 0: this system does not say.
type cost struct{ wall, processor time.Duration }

func (c cost) String() string {
	text := c.wall.Round(time.Millisecond).String()
	if c.processor > 0 {
		text += fmt.Sprintf(", %v of processor time", c.processor.Round(time.Millisecond))
	}
	return text
}

type printer struct{ out io.Writer }

func (p printer) head(title string) { fmt.Fprintf(p.out, "\n%s\n", title) }

func (p printer) row(what string, value any) {
	fmt.Fprintf(p.out, "  %-24s %v\n", what, value)
}

func (p printer) rate(what string, n int, took cost) {
	p.row(what, fmt.Sprintf("%d in %v, %.0f/s", n, took, float64(n)/took.wall.Seconds()))
}

func (p printer) figures(f figures) {
	p.row("memory", fmt.Sprintf("%s resident, %s at most so far, %s of it live heap", megabytes(f.resident), megabytes(f.peak), megabytes(f.heap)))
	p.row("goroutines", f.goroutines)
	p.row("descriptors", fmt.Sprintf("%s, %d of them files of logs", known(f.descriptors), f.files))
	p.row("mappings", f.mappings)
}

func megabytes(n int64) string {
	if n < 0 {
		return "unknown"
	}
	return fmt.Sprintf("%.1f MB", float64(n)/1e6)
}

func known(n int) string {
	if n < 0 {
		return "unknown"
	}
	return strconv.Itoa(n)
}
