package replica

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/partlog/partlog/log"
)

// ParseConfig reads a broker's settings of replication, as they stand in its server.properties: those that the fields of Config
// and NodeConfig name, and node.id (before 4.0 broker.id) for Self. What is left zero is Kafka's default. All settings are
// checked as log.ParseConfig does, whose errors, *log.ConfigError, it returns; a fetch that waits longer than
// replica.lag.time.max.ms or replica.socket.timeout.ms is one, too, as it is a broker's. Settings of the log are for
// log.ParseDirConfig, of the controller for the ParseConfig of package controller.
func ParseConfig(kafka map[string]string) (NodeConfig, error) {
	var c NodeConfig
	topic, err := log.ParseConfig(kafka)
	if err != nil {
		return c, err
	}
	c.MinISR = topic.MinInSyncReplicas
	number := func(key string) (n int64, given bool) { // log.ParseConfig has checked it
		text, given := kafka[key]
		n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
		return n, given && err == nil
	}
	for _, key := range []string{"broker.id", "node.id"} {
		if n, given := number(key); given {
			c.Self = NodeID(n)
		}
	}
	for _, s := range []struct {
		key string
		at  *time.Duration
	}{
		{"replica.lag.time.max.ms", &c.LagTimeMax},
		{"replica.high.watermark.checkpoint.interval.ms", &c.Checkpoint},
		{"replica.fetch.wait.max.ms", &c.FetchWait},
		{"replica.socket.timeout.ms", &c.FetchLimit},
		{"replica.fetch.backoff.ms", &c.Backoff},
	} {
		if n, given := number(s.key); given {
			*s.at = time.Duration(min(max(n, 1), math.MaxInt64/int64(time.Millisecond))) * time.Millisecond // 0 would be the default
		}
	}
	for _, s := range []struct {
		key string
		at  *int64
	}{
		{"replica.fetch.max.bytes", &c.FetchBytes},
		{"replica.fetch.min.bytes", &c.FetchMin},
		{"replica.fetch.response.max.bytes", &c.ResponseBytes},
	} {
		if n, given := number(s.key); given {
			*s.at = max(n, 1)
		}
	}
	if n, given := number("num.replica.fetchers"); given {
		c.Fetchers = int(n)
	}
	filled, wait := c.Config.withDefaults(), c.FetchWait
	if wait == 0 {
		wait = Config{}.withDefaults().FetchWait
	}
	for _, other := range []struct {
		key   string
		value time.Duration
	}{{"replica.lag.time.max.ms", filled.LagTimeMax}, {"replica.socket.timeout.ms", filled.FetchLimit}} {
		if wait > other.value {
			return c, &log.ConfigError{Key: "replica.fetch.wait.max.ms", Value: wait.String(), Reason: "longer than " + other.key + " (" + other.value.String() + ")"}
		}
	}
	return c, nil
}
