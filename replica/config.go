package replica

import "time"

// NodeID is a broker's number. Real ones are not negative.
type NodeID int32

const (
	// NoNode stands for nobody: a partition without a leader, and in requests a consumer rather than a replica.
	NoNode NodeID = -1
	// Debugger in a request is Kafka's debugging replica id: every replica answers it, from its own log and up to its end.
	Debugger NodeID = -2
)

// Truncation says how a follower brings its log in line with a new leader's.
type Truncation uint8

const (
	// ByEpoch asks the leader where histories part, with every fetch (KIP-101, KIP-279, KIP-595). Without any epoch of its own
	// a follower cuts to its high watermark.
	ByEpoch Truncation = iota
	// ByHighWatermark cuts everything above the follower's own high watermark, as Kafka did before 0.11. It LOSES committed
	// records, and lets replicas diverge, when leaders change while high watermarks lag; for study and tests only.
	ByHighWatermark
)

// Config of one replica; the zero value of each field but Self is Kafka's default. ParseConfig reads it from a broker's settings.
type Config struct {
	Self NodeID
	// BrokerEpoch of this node's registration with the controller; it goes into fetches, so that a leader can tell a new
	// life of the node from the one before. -1 (and 0, which no registration has) is unknown: nobody checks.
	BrokerEpoch int64

	MinISR      int           // min.insync.replicas, 1
	LagTimeMax  time.Duration // replica.lag.time.max.ms, 30 s: how long a follower may be behind and in sync
	Checkpoint  time.Duration // replica.high.watermark.checkpoint.interval.ms, 5 s
	FetchBytes  int64         // replica.fetch.max.bytes, 1 MiB
	FetchMin    int64         // replica.fetch.min.bytes, 1
	FetchWait   time.Duration // replica.fetch.wait.max.ms, 500 ms; at most half of FetchLimit
	FetchLimit  time.Duration // replica.socket.timeout.ms, 30 s: a fetch without an answer by then is sent again
	Backoff     time.Duration // replica.fetch.backoff.ms, 1 s; also before a refused change of the in-sync set is proposed again
	Truncation  Truncation
	CountSynced bool // what is not on the device is not there: neither for the leader's high watermark nor in a follower's fetches
}

func (c Config) withDefaults() Config {
	if c.BrokerEpoch <= 0 {
		c.BrokerEpoch = -1
	}
	c.MinISR = max(c.MinISR, 1)
	for _, d := range []struct {
		field *time.Duration
		or    time.Duration
	}{
		{&c.LagTimeMax, 30 * time.Second},
		{&c.Checkpoint, 5 * time.Second},
		{&c.FetchWait, 500 * time.Millisecond},
		{&c.FetchLimit, 30 * time.Second},
		{&c.Backoff, time.Second},
	} {
		if *d.field <= 0 {
			*d.field = d.or
		}
	}
	c.FetchWait = min(c.FetchWait, c.FetchLimit/2) // else what the leader answers in time comes too late
	if c.FetchBytes <= 0 {
		c.FetchBytes = 1 << 20
	}
	if c.FetchMin <= 0 {
		c.FetchMin = 1
	}
	return c
}
