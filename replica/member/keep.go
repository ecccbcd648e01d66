package member

import (
	"context"
	"errors"
	"time"

	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/replica/controller"
)

// lives are the registrations of this process. Only keep's goroutine touches them, and Close after it.
type lives struct {
	session replica.Session // nil: none
	// known are the broker epochs since which nothing was lost: of this process, and of the one before if it stopped cleanly.
	known map[int64]bool
}

// keep registers the member, and again whenever the session is lost.
//
//	session -> Register, fenced -> all is read, a controller has noticed -> Ready -> in service
//	   ^                                                                               |
//	   +---------------------- the session is over, or may be -------------------------+
func (m *Member) keep() {
	for m.ctx.Err() == nil {
		err := m.live()
		if m.ctx.Err() != nil {
			return
		}
		m.trouble(err)
		m.change(func(s *Status) { s.BrokerEpoch, s.InService = 0, false })
		if old := m.own.session; old != nil {
			m.own.session = nil
			m.all.Go(func() { _ = old.Close() }) // if that fails its keys go when it expires
		}
		pause := m.conf.Retry
		if errors.Is(err, replica.ErrSessionLost) {
			pause /= 4
		}
		if !m.pause(pause) {
			return
		}
	}
}

// live is one registration. It returns why it is over.
func (m *Member) live() (err error) {
	if err := m.sameCluster(m.ctx); err != nil {
		return err
	}
	if m.own.session, err = m.store.Session(m.ctx, m.conf.SessionTTL); err != nil {
		return err
	}
	registered, err := m.register()
	if err != nil {
		return err
	}
	epoch := registered.Epoch()
	m.own.known[epoch] = true
	m.epoch.Store(epoch)
	m.node.Registered(epoch)
	m.board.all() // what was passed on for the registration before may have come too late
	m.change(func(s *Status) { s.BrokerEpoch = epoch })

	ready, serving := false, false
	for {
		now, wake := m.board.standing(epoch)
		var again <-chan time.Time
		if now.noticed && !ready {
			err := m.serve(registered)
			if errors.Is(err, replica.ErrSessionLost) || errors.Is(err, replica.ErrConflict) {
				return err
			}
			if ready = err == nil; !ready {
				m.trouble(err)
				again = time.After(m.conf.Retry)
			}
		}
		if now.serving != serving {
			serving = now.serving
			m.change(func(s *Status) { s.InService = serving })
		}
		select {
		case <-m.own.session.Done():
			return replica.ErrSessionLost
		case <-wake:
		case <-again:
		case <-m.ctx.Done():
			return m.ctx.Err()
		}
	}
}

// register waits for a session of an earlier life of the node to end.
func (m *Member) register() (*controller.Registered, error) {
	r := controller.Registration{Node: m.conf.Self, Rack: m.conf.Rack, Host: m.conf.Host, Port: m.conf.Port, PreviousEpoch: -1, Fenced: true}
	for {
		last, err := controller.LastRegistration(m.ctx, m.store, m.conf.Self)
		if err != nil {
			return nil, err
		}
		// Had the controller not noticed the last registrations, it compares with one before: to that one this must be true.
		if r.PreviousEpoch = -1; m.own.known[last] {
			r.PreviousEpoch = last
		}
		registered, err := controller.Register(m.ctx, m.store, m.own.session, r)
		if !errors.Is(err, controller.ErrNodeInUse) {
			return registered, err
		}
		m.trouble(err)
		timer := time.NewTimer(m.conf.Retry / 4)
		select {
		case <-timer.C:
		case <-m.own.session.Done():
			timer.Stop()
			return nil, replica.ErrSessionLost
		case <-m.ctx.Done():
			timer.Stop()
			return nil, m.ctx.Err()
		}
	}
}

// serve puts the member in service, now that a controller has noticed its registration and it knows its part. The first time
// it takes note of what the store still says of an earlier life: while it is not in service nothing can be new of what it
// leads.
func (m *Member) serve(registered *controller.Registered) error {
	if !m.board.isOpen() {
		ctx, cancel := context.WithTimeout(m.ctx, m.conf.ask())
		defer cancel()
		since := m.board.look()
		defer m.board.looked(since)
		all, err := controller.LookupAll(ctx, m.store)
		if err != nil {
			return err
		}
		if err := m.setStrays(ctx, all); err != nil {
			return err
		}
		m.board.open(since, all)
	}
	ctx, cancel := context.WithTimeout(m.ctx, m.conf.ask())
	defer cancel()
	return registered.Ready(ctx)
}
