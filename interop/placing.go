package interop

// PlacedBroker is a broker that may get replicas.
type PlacedBroker struct {
	ID     int32  `json:"id"`
	Rack   string `json:"rack"` // "" none
	Fenced bool   `json:"fenced"`
}

// Placement asks where partitions go. Chance is java.util.Random's from Seed on; for the classic assignment a StartIndex instead.
type Placement struct {
	Brokers           []PlacedBroker `json:"brokers"`
	FirstPartition    int            `json:"firstPartition"`
	Partitions        int            `json:"partitions"`
	ReplicationFactor int            `json:"replicationFactor"`
	Seed              *int64         `json:"seed"`
	StartIndex        *int           `json:"startIndex,omitempty"`
}

// PartitionState is a partition as the controller knows it.
type PartitionState struct {
	Leader         int32   `json:"leader"`
	LeaderEpoch    int32   `json:"leaderEpoch"`
	PartitionEpoch int32   `json:"partitionEpoch"`
	Recovering     bool    `json:"recovering"`
	Replicas       []int32 `json:"replicas"`
	ISR            []int32 `json:"isr"`
	ELR            []int32 `json:"elr"`
	LastKnownELR   []int32 `json:"lastKnownElr"`
	Adding         []int32 `json:"adding"`
	Removing       []int32 `json:"removing"`
}

// PartitionChange is one change of one partition; nil fields change nothing.
type PartitionChange struct {
	Before          PartitionState `json:"before"`
	Election        string         `json:"election"` // ONLINE, PREFERRED or UNCLEAN
	ELREnabled      bool           `json:"elrEnabled"`
	MinISR          int            `json:"minIsr"`
	Acceptable      []int32        `json:"acceptable"`
	TargetISR       []int32        `json:"targetIsr"`
	TargetReplicas  []int32        `json:"targetReplicas"`
	TargetAdding    []int32        `json:"targetAdding"`
	TargetRemoving  []int32        `json:"targetRemoving"`
	UncleanShutdown []int32        `json:"uncleanShutdown"`
	Recovered       bool           `json:"recovered"`
}

// ClassicElection is what the elections of Kafka's ZooKeeper time look at.
type ClassicElection struct {
	Assignment     []int32 `json:"assignment"`
	ISR            []int32 `json:"isr"`
	Live           []int32 `json:"live"`
	ShuttingDown   []int32 `json:"shuttingDown"`
	UncleanAllowed bool    `json:"uncleanAllowed"`
}

// ClassicLeaders are their answers; nil for nobody.
type ClassicLeaders struct {
	Offline            *int32 `json:"offline"`
	Preferred          *int32 `json:"preferred"`
	Reassign           *int32 `json:"reassign"`
	ControlledShutdown *int32 `json:"controlledShutdown"`
}

// Striped places as the KRaft controller does: replicas of each partition, nil where it refuses.
func (d *Driver) Striped(cases []Placement) (out [][][]int32, err error) {
	_, err = d.call("striped", args{"cases": cases}, &out)
	return out, err
}

// ChangePartitions lets the KRaft controller make changes: each partition afterwards, nil where it writes nothing.
func (d *Driver) ChangePartitions(cases []PartitionChange) (out []*PartitionState, err error) {
	_, err = d.call("partitionChange", args{"cases": cases}, &out)
	return out, err
}

// LoadClassic loads Kafka 3.9 beside the present one; Staggered and ClassicElections need it.
func (d *Driver) LoadClassic(classpath string) error {
	_, err := d.call("loadClassic", args{"classpath": classpath}, nil)
	return err
}

// Staggered is Striped by the classic assignment.
func (d *Driver) Staggered(cases []Placement) (out [][][]int32, err error) {
	_, err = d.call("staggered", args{"cases": cases}, &out)
	return out, err
}

// ClassicElections holds all four elections of each case.
func (d *Driver) ClassicElections(cases []ClassicElection) (out []ClassicLeaders, err error) {
	_, err = d.call("classicElections", args{"cases": cases}, &out)
	return out, err
}

// RuleStep is one thing that happens in a cluster with one partition: do is "create", "up", "down", "stop", "alter", "elect",
// "reassign" or "unclean" (the elections that a controller holds from time to time).
type RuleStep struct {
	Do         string  `json:"do"`
	Node       int32   `json:"node"`       // up, down, stop, alter
	Clean      bool    `json:"clean"`      // up: it had stopped cleanly
	To         []int32 `json:"to"`         // create, reassign; nil cancels
	ISR        []int32 `json:"isr"`        // alter
	Recovering bool    `json:"recovering"` // alter
	Unclean    bool    `json:"unclean"`    // elect
}

// RuleCourse is what happens to one cluster.
type RuleCourse struct {
	ELR     bool       `json:"elr"`
	MinISR  int        `json:"minIsr"`
	Unclean bool       `json:"unclean"`
	Steps   []RuleStep `json:"ops"`
}

// RuleAnswer is the partition after a step, and Kafka's name of the refusal; "broken" if the controller would have resigned.
type RuleAnswer struct {
	Error     string          `json:"error"`
	Partition *PartitionState `json:"partition"`
}

// Rule plays courses with the managers of the KRaft controller.
func (d *Driver) Rule(courses []RuleCourse) (out [][]RuleAnswer, err error) {
	_, err = d.call("rule", args{"cases": courses}, &out)
	return out, err
}
