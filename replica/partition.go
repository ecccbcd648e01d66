package replica

import (
	"time"

	"github.com/partlog/partlog/log"
)

// Partition is one replica of one partition. It is not safe for concurrent use, does no I/O, and Step is deterministic.
type Partition struct {
	tp    log.TopicPartition
	conf  Config
	state LogState
}

// New makes a replica over a log that is open and as start says, high watermark from the checkpoint. It has no role until
// the first Assign. uncleanStop says that the log's directory was not closed cleanly (log.Dir.CleanShutdown), so that
// what was synced may be gone: until it has caught up with a leader the replica says so.
func New(tp log.TopicPartition, c Config, start LogState, uncleanStop bool) *Partition {
	return &Partition{tp: tp, conf: c.withDefaults(), state: start}
}

// Step takes one event at a time that does not go back, and appends what is to be done to out.
func (p *Partition) Step(now time.Time, in Event, out []Action) []Action { return out }

// NextTick is when the next Tick has something to do; zero if there is nothing to wait for. Earlier ticks cost nothing.
func (p *Partition) NextTick() time.Time { return time.Time{} }

// Status copies the state.
func (p *Partition) Status() Status { return Status{} }
