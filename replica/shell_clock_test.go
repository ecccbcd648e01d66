package replica

import (
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
)

// set is t as it would have been told if the wall clock had been set forward or back a moment ago: time.Time holds the seconds
// since 1885 above 30 bits of nanoseconds, and beside them the reading of the steady clock.
func set(t time.Time, by time.Duration) time.Time {
	*(*uint64)(unsafe.Pointer(&t)) += uint64(by/time.Second) << 30
	return t
}

// The wall clock is set while a replica waits for something that is far off. What comes sooner is not held up by that.
func TestASetClockHoldsUpNoTick(t *testing.T) {
	for _, by := range []time.Duration{3 * time.Hour, -3 * time.Hour} {
		now := time.Now()
		then := set(now.Add(time.Second), by)
		require.Equal(t, time.Second, then.Sub(now), "the steady clock says so")
		require.InDelta(t, by.Seconds()+1, float64(then.UnixNano()-now.UnixNano())/1e9, 0.1)

		slow := Config{LagTimeMax: time.Hour, Checkpoint: time.Hour, FetchWait: time.Minute, FetchLimit: time.Hour, Backoff: time.Minute}
		g := newTunedGroup(t, log.Config{Durability: log.Buffered}, func(c *NodeConfig) {
			slow.Self, slow.BrokerEpoch = c.Self, c.BrokerEpoch
			c.Config = slow
		}, 1)
		g.produce("a")
		r := g.handle(1).r
		ticked := make(chan bool, 1)
		r.post(mail{settled: func() Event {
			r.core.due = set(time.Now().Add(10*time.Millisecond), by)
			return nil
		}})
		require.Eventually(t, func() bool {
			r.post(mail{settled: func() Event {
				select {
				case ticked <- time.Until(r.core.due) > time.Minute: // the tick has armed what is next
				default:
				}
				return nil
			}})
			return <-ticked
		}, 5*time.Second, 5*time.Millisecond, "%v", by)
	}
}
