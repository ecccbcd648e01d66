package controller

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/partlog/partlog/replica"
)

// Where things stand in the store. The package comment draws them.
const (
	ClaimKey            = "/controller"       // ephemeral: who rules
	EpochKey            = "/controller_epoch" // never deleted: how often somebody began to
	IDsPrefix           = "/brokers/ids/"
	RegistrationsPrefix = "/brokers/registrations/"
	TopicsPrefix        = "/brokers/topics/"
	ConfigPrefix        = "/config/topics/"
	DeletePrefix        = "/admin/delete_topics/"
)

// kind is what a key holds; the order is the one in which keys that are new are written.
type kind uint8

const (
	markKey kind = iota + 1 // the topic is being deleted
	registrationKey
	configKey
	topicKey
	stateKey
)

// key is a key of the store, taken apart.
type key struct {
	kind      kind
	topic     string
	partition int32
	node      replica.NodeID
}

func (k key) String() string {
	switch k.kind {
	case markKey:
		return DeletePrefix + k.topic
	case registrationKey:
		return RegistrationsPrefix + strconv.Itoa(int(k.node))
	case configKey:
		return ConfigPrefix + k.topic
	case topicKey:
		return TopicsPrefix + k.topic
	case stateKey:
		return TopicsPrefix + k.topic + "/partitions/" + strconv.Itoa(int(k.partition)) + "/state"
	}
	return ""
}

// parseKey is the inverse of String; false for a key of somebody else.
func parseKey(s string) (key, bool) {
	if rest, ok := strings.CutPrefix(s, TopicsPrefix); ok {
		topic, rest, inside := strings.Cut(rest, "/")
		if !inside {
			return key{kind: topicKey, topic: topic}, topic != ""
		}
		rest, ok = strings.CutPrefix(rest, "partitions/")
		number, state := strings.CutSuffix(rest, "/state")
		n, err := strconv.ParseInt(number, 10, 32)
		k := key{kind: stateKey, topic: topic, partition: int32(n)}
		return k, ok && state && err == nil && n >= 0 && k.String() == s
	}
	for prefix, kind := range map[string]kind{DeletePrefix: markKey, ConfigPrefix: configKey} {
		if topic, ok := strings.CutPrefix(s, prefix); ok {
			return key{kind: kind, topic: topic}, topic != "" && !strings.Contains(topic, "/")
		}
	}
	if id, ok := parseNode(s, RegistrationsPrefix); ok {
		return key{kind: registrationKey, node: id}, true
	}
	return key{}, false
}

func parseNode(s, prefix string) (replica.NodeID, bool) {
	number, ok := strings.CutPrefix(s, prefix)
	n, err := strconv.ParseInt(number, 10, 32)
	return replica.NodeID(n), ok && err == nil && n >= 0 && strconv.FormatInt(n, 10) == number
}

// stateValue is a partition's state: Kafka's five fields, and what Kafka keeps elsewhere.
type stateValue struct {
	Version         int              `json:"version"` // 1
	ControllerEpoch int32            `json:"controller_epoch"`
	Leader          replica.NodeID   `json:"leader"`
	LeaderEpoch     int32            `json:"leader_epoch"`
	ISR             []replica.NodeID `json:"isr"`
	TopicID         string           `json:"topic_id"`
	PartitionEpoch  int32            `json:"partition_epoch"`
	Replicas        []replica.NodeID `json:"replicas"`
	Adding          []replica.NodeID `json:"adding_replicas,omitempty"`
	Removing        []replica.NodeID `json:"removing_replicas,omitempty"`
	ELR             []replica.NodeID `json:"eligible_leader_replicas,omitempty"`
	LastKnownELR    []replica.NodeID `json:"last_known_elr,omitempty"`
	Recovering      bool             `json:"recovering,omitempty"`
	MinISR          int              `json:"min_insync_replicas,omitempty"`
}

// encode makes the JSON of a value that always has one.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		return []byte("{}") // no value of this package's types fails
	}
	return b
}

func encodeState(controllerEpoch int32, topicID [16]byte, p Partition) []byte {
	isr := p.ISR
	if isr == nil {
		isr = []replica.NodeID{}
	}
	return encode(stateValue{1, controllerEpoch, p.Leader, p.LeaderEpoch, isr, encodeID(topicID), p.PartitionEpoch,
		p.Replicas, p.Adding, p.Removing, p.ELR, p.LastKnownELR, p.Recovering, p.MinISR})
}

// decodeState refuses what could not be acted upon.
func decodeState(b []byte) (topicID [16]byte, p Partition, err error) {
	var v stateValue
	if err := json.Unmarshal(b, &v); err != nil {
		return topicID, p, err
	}
	if topicID, err = decodeID(v.TopicID); err != nil {
		return topicID, p, err
	}
	p = Partition{Leader: v.Leader, LeaderEpoch: v.LeaderEpoch, PartitionEpoch: v.PartitionEpoch, Recovering: v.Recovering,
		Replicas: v.Replicas, ISR: v.ISR, ELR: v.ELR, LastKnownELR: v.LastKnownELR, Adding: v.Adding, Removing: v.Removing, MinISR: v.MinISR}
	switch {
	case len(p.Replicas) == 0 || !distinct(p.Replicas):
		return topicID, p, errors.New("no replicas, or one twice")
	case !containsAll(p.Replicas, p.ISR) || !containsAll(p.Replicas, p.Adding) || !containsAll(p.Replicas, p.Removing):
		return topicID, p, errors.New("a member that is no replica")
	case p.Leader != replica.NoNode && !slices.Contains(p.Replicas, p.Leader):
		return topicID, p, fmt.Errorf("leader %d is no replica", p.Leader)
	case p.LeaderEpoch < 0 || p.PartitionEpoch < 0:
		return topicID, p, errors.New("a negative epoch")
	}
	return topicID, p, nil
}

// topicValue is a topic's assignment, as Kafka writes it.
type topicValue struct {
	Version    int                         `json:"version"` // 3
	TopicID    string                      `json:"topic_id"`
	Partitions map[string][]replica.NodeID `json:"partitions"`
	Adding     map[string][]replica.NodeID `json:"adding_replicas"`
	Removing   map[string][]replica.NodeID `json:"removing_replicas"`
}

func encodeTopic(id [16]byte, partitions []partition) []byte {
	v := topicValue{3, encodeID(id), map[string][]replica.NodeID{}, map[string][]replica.NodeID{}, map[string][]replica.NodeID{}}
	for i, p := range partitions {
		n := strconv.Itoa(i)
		v.Partitions[n] = p.Replicas
		if len(p.Adding) > 0 {
			v.Adding[n] = p.Adding
		}
		if len(p.Removing) > 0 {
			v.Removing[n] = p.Removing
		}
	}
	return encode(v)
}

// decodeTopic wants partitions 0 to n-1.
func decodeTopic(b []byte) (id [16]byte, assignment []Partition, err error) {
	var v topicValue
	if err := json.Unmarshal(b, &v); err != nil {
		return id, nil, err
	}
	if id, err = decodeID(v.TopicID); err != nil {
		return id, nil, err
	}
	for i := range len(v.Partitions) {
		n := strconv.Itoa(i)
		replicas := v.Partitions[n]
		if len(replicas) == 0 || !distinct(replicas) {
			return id, nil, fmt.Errorf("partition %d has no replicas, or one twice", i)
		}
		assignment = append(assignment, Partition{Leader: replica.NoNode, Replicas: replicas, Adding: v.Adding[n], Removing: v.Removing[n]})
	}
	return id, assignment, nil
}

// registrationValue is what is remembered of a node that may be down.
type registrationValue struct {
	Version      int    `json:"version"` // 1
	BrokerEpoch  int64  `json:"broker_epoch"`
	Rack         string `json:"rack,omitempty"`
	Fenced       bool   `json:"fenced"`
	ShuttingDown bool   `json:"in_controlled_shutdown"`
}

// configValue is a topic's settings, as Kafka writes them.
type configValue struct {
	Version int               `json:"version"` // 1
	Config  map[string]string `json:"config"`
}

func encodeID(id [16]byte) string { return base64.RawURLEncoding.EncodeToString(id[:]) }

func decodeID(s string) (id [16]byte, err error) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) != len(id) {
		return id, fmt.Errorf("topic id %q is not 22 characters of base64", s)
	}
	return [16]byte(b), nil
}
