package main

import (
	"fmt"
	"time"
)

// appendProgress shows on a terminal how far a long append has come, on one line that it writes over.
type appendProgress struct {
	e     *env
	next  time.Time
	shown bool
}

const progressEvery = 500 * time.Millisecond

func (p *appendProgress) show(format string, args ...any) {
	if !p.e.terminal {
		return
	}
	now := time.Now()
	if p.next.IsZero() {
		p.next = now.Add(progressEvery) // short work shows nothing
	}
	if now.Before(p.next) {
		return
	}
	p.next, p.shown = now.Add(progressEvery), true
	fmt.Fprintf(p.e.err, "\r"+format+"\x1b[K", args...)
}

// done wipes the line.
func (p *appendProgress) done() {
	if p.shown {
		fmt.Fprint(p.e.err, "\r\x1b[K")
	}
}
