package log

import (
	"errors"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// asked is a verification that was begun: a coordinator is being asked whether a transaction may begin.
type asked struct {
	guard    TxnGuard
	epoch    int16
	sequence int32 // the lowest of its epoch
	bumps    bool
	unsure   bool // a truncation may have ended it
}

// judgeGuard: who begins a transaction must show the guard, if the append says so.
func (x *writers) judgeGuard(p *scanned, s sending, o AppendOptions) error {
	if !o.Verify || !s.Transactional || p != nil && p.txn >= 0 && p.epoch == s.Epoch {
		return nil
	}
	if a := x.asked[s.ID]; a != nil && a.guard == o.Guard {
		return nil
	}
	if p != nil && s.Epoch < p.epoch {
		return ErrFenced
	}
	return ErrTxnState
}

// judgeAsked: while one is asked, no batch may come with a sequence above the one that was asked about.
func (x *writers) judgeAsked(p *scanned, s sending) error {
	a := x.asked[s.ID]
	if a == nil || a.unsure {
		return nil
	}
	if s.BaseSequence > a.sequence || a.bumps && s.BaseSequence != 0 && (p == nil || len(x.remembered(p)) == 0) {
		return ErrOutOfOrder
	}
	return nil
}

// unsure says that a refusal may come from a verification of which the list cannot tell.
func (x *writers) unsure(s sending, err error) bool {
	a := x.asked[s.ID]
	return a != nil && a.unsure && (errors.Is(err, ErrOutOfOrder) || errors.Is(err, ErrTxnState))
}

// endAsked: a transaction's end ends what was asked, but for the marker of the transaction before under version 2.
func (x *writers) endAsked(id int64, epoch int16) {
	if a := x.asked[id]; a != nil && !(a.bumps && a.epoch == epoch) {
		delete(x.asked, id)
	}
}

func (x *writers) ask(t *rapid.T) {
	s := x.next(t, anID(t))
	bumps := rapid.Bool().Draw(t, "version 2")
	s.Epoch = max(0, s.Epoch+rapid.SampledFrom([]int16{0, 0, 1, -1}).Draw(t, "epochs"))
	x.askFor(s, bumps)
}

func (x *writers) askFor(s sending, bumps bool) {
	got := x.VerifyTransaction(s.ID, s.Epoch, s.BaseSequence, bumps)
	a, p := x.asked[s.ID], x.known.producers[s.ID]
	switch {
	case p != nil && (s.Epoch < p.epoch || p.txn >= 0 && p.epoch == s.Epoch):
		require.Zero(x.t, got)
	case a == nil || a.unsure && a.guard != got:
		require.NotZero(x.t, got)
		x.asked[s.ID] = &asked{guard: got, epoch: s.Epoch, sequence: s.BaseSequence, bumps: bumps}
	default:
		require.Equal(x.t, a.guard, got)
		a.unsure = false
		if s.Epoch > a.epoch {
			a.epoch, a.sequence, a.bumps = s.Epoch, s.BaseSequence, bumps
		} else if s.Epoch == a.epoch {
			a.sequence = min(a.sequence, s.BaseSequence)
		}
	}
}

// beginAsked begins a transaction with the guard, with none, or with one that is over.
func (x *writers) beginAsked(t *rapid.T) {
	s := x.next(t, anID(t))
	s.Transactional = true
	if rapid.Bool().Draw(t, "ask first") {
		x.askFor(s, false)
	}
	o := AppendOptions{Verify: true}
	if a := x.asked[s.ID]; a != nil && rapid.IntRange(0, 3).Draw(t, "with the guard") > 0 {
		o.Guard = a.guard
	}
	x.client(s, o)
}

// askAgain: a truncation that reads the log anew may end what was asked, as the batches it reads did.
func (x *writers) askAgain() {
	for _, a := range x.asked {
		a.unsure = true
	}
}
