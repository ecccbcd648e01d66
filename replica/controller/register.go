package controller

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"

	"github.com/partlog/partlog/replica"
)

// Registration is how a node makes itself known.
type Registration struct {
	Node replica.NodeID
	Rack string // broker.rack; "" none
	Host string // where clients find it; for others to read
	Port int
	// PreviousEpoch is the epoch of this node's last registration, if it has lost nothing since: because it stopped cleanly
	// (then it is the brokerEpoch of its .kafka_cleanshutdown), or because it never stopped and only lost its session. -1 says
	// that it is unknown, or that the node never ran. Unless it is right, what the node had counts as lost: it is taken out of
	// every in-sync set and cannot be elected until it has caught up.
	PreviousEpoch int64
	Fenced        bool // not ready yet: it is known, and leads and counts nowhere until Ready
}

// registration is the value of a node's key: Kafka's fields, and some of ours.
type registration struct {
	Version       int      `json:"version"` // 5
	Host          string   `json:"host"`
	Port          int      `json:"port"`
	JMXPort       int      `json:"jmx_port"`
	Endpoints     []string `json:"endpoints"`
	Rack          *string  `json:"rack,omitempty"`
	PreviousEpoch int64    `json:"previous_broker_epoch"`
	Fenced        bool     `json:"fenced,omitempty"`
	Restored      int64    `json:"restored,omitempty"` // what RestoredKey said
	Token         string   `json:"token,omitempty"`    // of this registration alone: a conflict may be one with itself
}

// epoch is the broker epoch of a registration whose key was created then.
func (r registration) epoch(created int64) int64 { return created + r.Restored*brokerEpochStep }

func (r registration) rack() string {
	if r.Rack == nil {
		return ""
	}
	return *r.Rack
}

// ErrNodeInUse: a node with this number is registered by somebody else, or its last session is not over yet.
var ErrNodeInUse = errors.New("node number is in use")

// Registered is a node that is known for as long as its session lasts. It is not safe for concurrent use. One that is nil, or that
// Register has not made, is registered no more (replica.ErrSessionLost).
type Registered struct {
	store   replica.Store
	session replica.Session
	name    string
	value   registration
	version int64
	epoch   int64
}

// Register makes a node known. A conflict with what it has written itself is none: some clients of a store send a transaction again
// whose answer was lost. ErrNodeInUse; errors of the store, after which the node may be registered all the same: the
// session is to be closed, and another begun.
func Register(ctx context.Context, s replica.Store, session replica.Session, r Registration) (*Registered, error) {
	node := &Registered{session: session, name: IDsPrefix + strconv.Itoa(int(r.Node))}
	node.value = registration{Version: 5, Host: r.Host, Port: r.Port, JMXPort: -1, PreviousEpoch: r.PreviousEpoch, Fenced: r.Fenced,
		Endpoints: []string{"PLAINTEXT://" + net.JoinHostPort(r.Host, strconv.Itoa(r.Port))}, Token: strconv.FormatUint(rand.Uint64(), 36)}
	if r.Rack != "" {
		node.value.Rack = &r.Rack
	}
	var err error
	if node.value.Restored, err = Restored(ctx, s); err != nil {
		return nil, fmt.Errorf("register node %d: %w", r.Node, err)
	}
	err = node.write(ctx)
	conflict := err // or none
	if err == nil || errors.Is(err, replica.ErrConflict) {
		var v replica.Versioned
		switch v, err = s.Get(ctx, node.name); {
		case err != nil:
		case bytes.Equal(v.Value, encode(node.value)):
			node.version, node.epoch = v.Version, node.value.epoch(v.Created)
		case conflict != nil:
			err = fmt.Errorf("%w: %w", ErrNodeInUse, conflict)
		default:
			err = replica.ErrSessionLost // and the key with it, before it was read
		}
	}
	if err != nil {
		return nil, fmt.Errorf("register node %d: %w", r.Node, err)
	}
	node.store = s
	return node, nil
}

// Epoch is the broker epoch: larger than that of every registration before. The node gives it in its fetches and proposals,
// and writes it into its clean marker when it stops.
func (n *Registered) Epoch() int64 {
	if n == nil {
		return 0
	}
	return n.epoch
}

// Ready puts a node in service that was registered as Fenced. After an error of the store it can be called again: a first
// attempt whose answer was lost counts.
func (n *Registered) Ready(ctx context.Context) error {
	if n == nil || n.session == nil {
		return replica.ErrSessionLost
	}
	n.value.Fenced = false
	err := n.write(ctx)
	if errors.Is(err, replica.ErrConflict) {
		err = n.wasWritten(ctx, err)
	}
	if err != nil {
		return fmt.Errorf("put %s in service: %w", n.name, err)
	}
	return nil
}

// wasWritten forgives a conflict that an earlier attempt of this registration made.
func (n *Registered) wasWritten(ctx context.Context, conflict error) error {
	v, err := n.store.Get(ctx, n.name)
	if err != nil {
		return err
	}
	if n.value.epoch(v.Created) != n.epoch || !bytes.Equal(v.Value, encode(n.value)) {
		return conflict
	}
	n.version = v.Version
	return nil
}

func (n *Registered) write(ctx context.Context) error {
	w := replica.Write{Key: n.name, Value: encode(n.value), IfVersion: n.version, Ephemeral: true}
	versions, err := n.session.Commit(ctx, replica.Transaction{Writes: []replica.Write{w}})
	if err != nil {
		return err
	}
	n.version = versions[0]
	return nil
}
