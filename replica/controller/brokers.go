package controller

import (
	"encoding/json"
	"slices"

	"github.com/partlog/partlog/replica"
)

// broker is a node that has registered at some time.
type broker struct {
	epoch    int64 // of its last registration: grows with each
	rack     string
	fenced   bool // not in service: down, or registered as not ready yet
	stopping bool // asked for a controlled shutdown
}

// active says whether a node may lead and be in sync.
func (c *Core) active(id replica.NodeID) bool {
	b, ok := c.brokers[id]
	return ok && !b.fenced && !b.stopping
}

// seen takes what the store says of one node.
func (c *Core) seen(v replica.Versioned) {
	id, ok := parseNode(v.Key, IDsPrefix)
	if !ok {
		return
	}
	if v.Value == nil {
		c.down(id)
		return
	}
	var r registration
	if err := json.Unmarshal(v.Value, &r); err != nil {
		c.out = append(c.out, Damaged{v.Key, err})
		c.down(id)
		return
	}
	c.up(id, r, r.epoch(v.Created))
}

// up is a node that is there: newly registered, or it told us something.
func (c *Core) up(id replica.NodeID, r registration, epoch int64) {
	b, known := c.brokers[id]
	if known && epoch < b.epoch {
		return // news of a life that is over
	}
	if !known || epoch > b.epoch {
		if known {
			c.down(id)
		}
		unclean := known && r.PreviousEpoch != b.epoch
		c.brokers[id] = broker{epoch: epoch, rack: r.rack(), fenced: true}
		c.touch(key{kind: registrationKey, node: id})
		if unclean {
			c.lost(id)
		} else if known {
			c.leave(id) // a cancelled move may have left it in sync although it was down
		}
	}
	switch b = c.brokers[id]; {
	case r.Fenced:
		c.down(id)
	case b.fenced:
		b.fenced = false
		c.brokers[id] = b
		c.touch(key{kind: registrationKey, node: id})
		c.each(func(t *topic, n int, p Partition) {
			if p.Leader == replica.NoNode {
				c.change(t, n, c.rules(t, Online), Target{})
			}
		})
	}
}

// down fences a node: it leads nothing and is in no in-sync set any more.
func (c *Core) down(id replica.NodeID) {
	b, known := c.brokers[id]
	if !known || b.fenced {
		return
	}
	b.fenced = true
	c.brokers[id] = b
	c.touch(key{kind: registrationKey, node: id})
	c.leave(id)
}

// leave takes a node out of in-sync sets and leaderships.
func (c *Core) leave(id replica.NodeID) {
	c.each(func(t *topic, n int, p Partition) {
		if p.Leader == id || slices.Contains(p.ISR, id) {
			c.change(t, n, c.rules(t, Online), Target{ISR: without(p.ISR, []replica.NodeID{id})})
		}
	})
}

// lost takes a node out of everything: what it had when it was last seen it may not have any more.
func (c *Core) lost(id replica.NodeID) {
	gone := []replica.NodeID{id}
	c.each(func(t *topic, n int, p Partition) {
		if slices.Contains(p.ISR, id) || slices.Contains(p.ELR, id) {
			r := c.rules(t, Online)
			r.Unclean = gone
			c.change(t, n, r, Target{ISR: without(p.ISR, gone)})
		}
	})
}

// controlledShutdown does before a node stops what would otherwise happen afterwards.
func (c *Core) controlledShutdown(e ControlledShutdown) Reply {
	if err := c.checkEpoch(e.Node, e.BrokerEpoch); err != nil {
		return failed(err)
	}
	b := c.brokers[e.Node]
	if !b.stopping {
		b.stopping = true
		c.brokers[e.Node] = b
		c.touch(key{kind: registrationKey, node: e.Node})
		c.leave(e.Node)
	}
	return Reply{}
}

// checkEpoch refuses who speaks for a life that is over.
func (c *Core) checkEpoch(id replica.NodeID, epoch int64) *Error {
	b, known := c.brokers[id]
	switch {
	case !known:
		return refuse(replica.StaleBrokerEpoch, "node %d is not registered", id)
	case b.epoch != epoch:
		return refuse(replica.StaleBrokerEpoch, "node %d is registered with epoch %d, not %d", id, b.epoch, epoch)
	}
	return nil
}
