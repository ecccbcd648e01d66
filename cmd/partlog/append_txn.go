package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
)

// production is under which producer append writes, and how the transaction ends.
type production struct {
	record.Producer
	given       bool   // --producer or --txn
	sequence    bool   // with a sequence number
	ending      string // the flag given that is for --txn only; "": none
	end         string
	version     int
	coordinator int32 // -1: the last one seen
}

func (p *production) flags(fl *flag.FlagSet) {
	p.end, p.coordinator = "commit", -1
	fl.Func("producer", "`ID:EPOCH[:SEQ]` write as this idempotent producer; without SEQ it goes on behind its last record", func(text string) error {
		return p.parse(text, false)
	})
	fl.Func("txn", "`ID:EPOCH[:SEQ]` write as this producer, all lines in one transaction", func(text string) error {
		return p.parse(text, true)
	})
	fl.Func("end", "`HOW` the transaction of --txn ends: commit (the default), abort, or open (not at all)", func(text string) error {
		if text != "commit" && text != "abort" && text != "open" {
			return errors.New("want commit, abort or open")
		}
		p.end, p.ending = text, "--end"
		return nil
	})
	fl.Func("txn-version", "`N` transaction version of the marker, 0 (the default), 1 or 2; with 2 its epoch is EPOCH + 1", func(text string) error {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n > 2 {
			return errors.New("want 0, 1 or 2")
		}
		p.version, p.ending = n, "--txn-version"
		return nil
	})
	fl.Func("coordinator-epoch", "`N` coordinator epoch of the marker; without it the one last seen, or 0", func(text string) error {
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil || n < 0 {
			return errors.New("want a number from 0 to 2147483647")
		}
		p.coordinator, p.ending = int32(n), "--coordinator-epoch"
		return nil
	})
}

func (p *production) parse(text string, transactional bool) error {
	if p.given {
		return errors.New("want one of --producer and --txn, once")
	}
	parts := strings.Split(text, ":")
	bad := errors.New("want ID:EPOCH or ID:EPOCH:SEQ, none of them negative, an epoch of at most 32767")
	if len(parts) < 2 || len(parts) > 3 {
		return bad
	}
	id, err := strconv.ParseInt(parts[0], 10, 64)
	if err != nil || id < 0 {
		return bad
	}
	epoch, err := strconv.ParseInt(parts[1], 10, 16)
	if err != nil || epoch < 0 {
		return bad
	}
	sequence := int64(0)
	if p.sequence = len(parts) == 3; p.sequence {
		if sequence, err = strconv.ParseInt(parts[2], 10, 32); err != nil || sequence < 0 {
			return bad
		}
	}
	p.Producer = record.Producer{ID: id, Epoch: int16(epoch), BaseSequence: int32(sequence), Transactional: transactional}
	p.given = true
	return nil
}

// resume finds the sequence number with which the producer goes on.
func (a *appender) resume() {
	p := &a.o.producer
	if p.sequence {
		return
	}
	p.sequence = true
	for _, known := range a.w.Producers() {
		if known.ID == p.ID && known.Epoch == p.Epoch {
			p.BaseSequence = record.IncrementSequence(known.LastSequence, 1)
		}
	}
}

// endTxn writes the marker, once every line is in the log.
func (a *appender) endTxn(ctx context.Context) error {
	p := a.o.producer
	if !p.Transactional || p.end == "open" {
		return nil
	}
	open := false
	for _, known := range a.w.Producers() {
		if known.ID == p.ID {
			open = known.TxnStart >= 0
			if p.coordinator < 0 {
				p.coordinator = known.CoordinatorEpoch
			}
		}
	}
	if !open {
		fmt.Fprintf(a.e.err, "note: producer %d has no open transaction; there is nothing to %s\n", p.ID, p.end)
		return nil
	}
	if p.version >= 2 && p.Epoch < math.MaxInt16 {
		p.Epoch++
	}
	res, err := a.w.EndTxn(ctx, p.Producer, p.end == "commit", log.EndTxnOptions{CoordinatorEpoch: max(0, p.coordinator), TransactionVersion: p.version})
	if err != nil {
		return fmt.Errorf("the transaction could not be ended, \"partlog transactions\" says whether it is open: %w", err)
	}
	done := map[string]string{"commit": "committed", "abort": "aborted"}[p.end]
	fmt.Fprintf(a.e.err, "note: the transaction is %s, the marker is at offset %d\n", done, res.Base)
	return nil
}
