package main

import (
	"fmt"
	"time"

	"github.com/partlog/partlog/log"
)

// progress shows on a terminal how far long work has come, on one line that it writes over.
type progress struct {
	e     *env
	next  time.Time
	shown bool
}

var progressEvery = 500 * time.Millisecond // short work shows nothing; tests want it all

func (p *progress) show(format string, args ...any) {
	if !p.e.terminal {
		return
	}
	now := time.Now()
	if p.next.IsZero() {
		p.next = now.Add(progressEvery)
	}
	if now.Before(p.next) {
		return
	}
	p.next, p.shown = now.Add(progressEvery), true
	fmt.Fprintf(p.e.err, "\r"+format+"\x1b[K", args...)
}

// recovered shows how much of a partition that is being opened was read.
func (p *progress) recovered(tp log.TopicPartition, done, total int64) {
	p.show("recovering %s: %d of %d bytes", tp, done, total)
}

// verified shows how much was verified.
func (p *progress) verified(at log.VerifyProgress) {
	p.show("%s: %d of %d bytes", at.File, at.Done, at.Total)
}

// done wipes the line.
func (p *progress) done() {
	if p.shown {
		fmt.Fprint(p.e.err, "\r\x1b[K")
		p.shown = false
	}
}
