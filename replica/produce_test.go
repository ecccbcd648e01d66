package replica

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
)

// What producers hear, by acks and the in-sync set; min.insync.replicas is 2.
func TestAcks(t *testing.T) {
	for _, c := range []struct {
		acks     int8
		isr      []NodeID
		answered bool // at once
		err      ErrorCode
		appended bool
		visible  int64 // high watermark after
	}{
		{acks: 0, isr: []NodeID{1, 2}, appended: true},
		{acks: 0, isr: []NodeID{1}, appended: true},
		{acks: 1, isr: []NodeID{1, 2}, answered: true, appended: true},
		{acks: 1, isr: []NodeID{1}, answered: true, appended: true},
		{acks: -1, isr: []NodeID{1, 2}, appended: true},
		{acks: -1, isr: []NodeID{1}, answered: true, err: NotEnoughReplicas},
		{acks: 2, isr: []NodeID{1, 2}, answered: true, err: InvalidRequiredAcks},
		{acks: -2, isr: []NodeID{1, 2}, answered: true, err: InvalidRequiredAcks},
	} {
		t.Run(fmt.Sprintf("acks %d, in sync %v", c.acks, c.isr), func(t *testing.T) {
			l := newLab(t, Config{MinISR: 2}, filled(3, entries(0, 0)...))
			l.lead(1, c.isr...)
			acts := l.produce(5, c.acks, 2)
			if c.answered {
				r := reply(t, acts, 5)
				require.Equal(t, c.err, r.Err)
				if c.appended {
					require.Equal(t, [2]int64{3, 4}, [2]int64{r.Base, r.Last})
				}
			} else {
				noReply(t, acts)
			}
			require.Equal(t, c.appended, l.log.end() == 5)
			require.Equal(t, c.visible, l.p.Status().HighWatermark)
		})
	}
}

func TestAcksAllWaitsForTheHighWatermark(t *testing.T) {
	l := newLab(t, Config{MinISR: 2}, filled(0))
	l.lead(1, 1, 2, 3)
	noReply(t, l.produce(1, -1, 2))
	noReply(t, l.produce(2, -1, 2))
	l.fetchFrom(2, 4)
	acts := l.fetchFrom(3, 2)
	r := reply(t, acts, 1)
	require.Equal(t, None, r.Err)
	require.Equal(t, [2]int64{0, 1}, [2]int64{r.Base, r.Last})
	require.Equal(t, 1, l.p.Status().Waiting)
	require.Equal(t, int64(2), reply(t, l.fetchFrom(3, 4), 2).Base)
}

func TestAcksAllEndsAtItsTimeoutAndTheDataStays(t *testing.T) {
	l := newLab(t, Config{MinISR: 1}, filled(0))
	l.lead(1, 1, 2)
	noReply(t, l.step(Produce{Tag: 1, Raw: records(1), Acks: -1, Timeout: 100 * time.Millisecond}))
	noReply(t, l.step(Produce{Tag: 2, Raw: records(2), Acks: -1, Timeout: 300 * time.Millisecond}))
	require.Equal(t, l.now.Add(100*time.Millisecond), l.p.NextTick())
	noReply(t, l.pass(99*time.Millisecond))
	acts := l.pass(time.Millisecond)
	require.Len(t, all(acts, Reply), 1)
	require.Equal(t, RequestTimedOut, reply(t, acts, 1).Err)
	require.Equal(t, int64(2), l.log.end())
	require.Equal(t, int64(1), reply(t, l.fetchFrom(2, 2), 2).Base)
	require.Equal(t, int64(2), l.p.Status().HighWatermark)
}

// The set falls below the minimum while a request waits: the high watermark cannot pass it, so it times out.
func TestWaitingRequestTimesOutBelowTheMinimum(t *testing.T) {
	l := newLab(t, Config{MinISR: 2}, filled(0))
	l.lead(1, 1, 2)
	noReply(t, l.step(Produce{Tag: 1, Raw: records(1), Acks: -1, Timeout: time.Second}))
	l.step(Assign{Leader: 1, LeaderEpoch: 1, PartitionEpoch: 1, Replicas: []NodeID{1, 2, 3}, ISR: []NodeID{1}})
	require.Equal(t, int64(0), l.p.Status().HighWatermark)
	require.Equal(t, RequestTimedOut, reply(t, l.pass(time.Second), 1).Err)
	l.step(Assign{Leader: 1, LeaderEpoch: 1, PartitionEpoch: 2, Replicas: []NodeID{1, 2, 3}, ISR: []NodeID{1, 2}})
	l.fetchFrom(2, 1)
	require.Equal(t, int64(1), l.p.Status().HighWatermark)
}

// The minimum was raised between: the mark passes no more, but a duplicate below it says what is lacking.
func TestTooFewAfterTheAppend(t *testing.T) {
	l := newLab(t, Config{MinISR: 1}, filled(0))
	l.lead(1, 1, 2)
	l.hold[DoAppend] = true
	l.produce(1, -1, 2)
	l.hold[DoAppend] = false
	l.step(Reconfigure{Config{MinISR: 3}})
	base, last, _ := l.log.append(log.Leader, 1, l.held[0].Raw)
	l.log.hw = 2
	l.p.hw = 2
	acts := l.step(Appended{Tag: l.held[0].Tag, Base: base, Last: last, AppendTime: -1, State: l.log.state()})
	require.Equal(t, NotEnoughReplicasAfterAppend, reply(t, acts, 1).Err)
}

func TestDuplicateWaitsForItsFirstAppend(t *testing.T) {
	l := newLab(t, Config{}, filled(0))
	l.lead(1, 1, 2)
	l.produce(1, -1, 3)
	l.produce(2, -1, 3)
	l.hold[DoAppend] = true
	duplicate := func(tag uint64) []Action {
		l.held = nil
		l.produce(tag, -1, 3)
		return l.step(Appended{Tag: l.held[0].Tag, Base: 0, Last: 2, AppendTime: -1, Duplicate: true, State: l.log.state()})
	}
	noReply(t, duplicate(3))
	acts := l.fetchFrom(2, 3)
	require.Equal(t, int64(0), reply(t, acts, 1).Base)
	require.True(t, reply(t, acts, 3).Duplicate)
	require.Len(t, all(acts, Reply), 3, "with the fetch's own")
	require.Equal(t, int64(2), reply(t, duplicate(4), 4).Last)
}

func TestOneAppendIsUnderWayAndTheRestWaitsInOrder(t *testing.T) {
	l := newLab(t, Config{}, filled(0))
	l.lead(1, 1)
	l.hold[DoAppend] = true
	for tag := range uint64(200) {
		noReply(t, l.produce(tag+1, 1, 1))
	}
	require.Len(t, l.held, 1)
	require.Equal(t, 199, l.p.Status().Queued)
	acts := l.release()
	for tag := range uint64(200) {
		require.Equal(t, int64(tag), reply(t, acts, tag+1).Base)
	}
}

func TestLostLeadershipAnswersAtOnceWhoWaitsForReplicas(t *testing.T) {
	l := newLab(t, Config{}, filled(0))
	l.lead(1, 1, 2)
	noReply(t, l.produce(1, -1, 1))
	l.hold[DoAppend] = true
	noReply(t, l.produce(2, -1, 1)) // under way
	noReply(t, l.produce(3, 1, 1))  // before its append
	acts := l.follow(2)
	for tag := range uint64(3) {
		r := reply(t, acts, tag+1)
		require.Equal(t, NotLeaderOrFollower, r.Err)
		require.Equal(t, NodeID(2), r.Leader)
	}
	require.Empty(t, all(acts, SendFetch), "the append is not over")
	acts = l.release()
	noReply(t, acts)
	require.Equal(t, int64(2), only(t, acts, SendFetch).Fetch.Offset, "its tail stays until the leader's answer shows otherwise")

	// Acks 1 waits for nobody: the append was a leader's.
	l = newLab(t, Config{}, filled(0))
	l.lead(1, 1, 2)
	l.hold[DoAppend] = true
	l.produce(1, 1, 1)
	noReply(t, l.follow(2))
	require.Equal(t, None, reply(t, l.release(), 1).Err)
}

// A transaction marker is appended in the same order as everything else, and wakes who waits for bytes.
func TestWhatComesWithARequestReachesTheAppend(t *testing.T) {
	l := newLab(t, Config{}, filled(0))
	l.lead(1, 1, 2)
	l.fetchFrom2(0)
	l.hold[DoAppend] = true
	l.step(Produce{Tag: 1, Acks: 1, Extra: "commit"})
	require.Equal(t, "commit", l.held[0].Extra)
	l.log.append(log.Leader, 1, records(1))
	acts := l.step(Appended{Tag: l.held[0].Tag, Base: 0, Last: 0, AppendTime: -1, State: l.log.state()})
	require.Equal(t, int64(20), reply(t, acts, 77).Bytes)
}

func TestReelectedLeaderKeepsItsWaitingRequests(t *testing.T) {
	l := newLab(t, Config{}, filled(0))
	l.lead(1, 1, 2)
	noReply(t, l.produce(1, -1, 1))
	noReply(t, l.lead(2, 1, 2))
	require.Equal(t, None, reply(t, l.fetchFrom(2, 1), 1).Err)
}

func TestErrorsOfTheLogInKafkasNumbers(t *testing.T) {
	for _, c := range []struct {
		err  error
		want ErrorCode
		ends bool
	}{
		{log.ErrInvalidRecord, InvalidRecord, false},
		{log.ErrInvalidTimestamp, InvalidTimestamp, false},
		{log.ErrTooLarge, MessageTooLarge, false},
		{log.ErrOutOfOrder, OutOfOrderSequence, false},
		{log.ErrTxnState, InvalidTxnState, false},
		{record.ErrCorrupt, CorruptMessage, false},
		{log.ErrNoSpace, KafkaStorageError, false},
		{log.ErrFailed, KafkaStorageError, true},
		{log.ErrClosed, KafkaStorageError, true},
		{&log.UnconfirmedError{Base: 0, Last: 0, Err: log.ErrFailed}, KafkaStorageError, true},
	} {
		l := newLab(t, Config{}, filled(0))
		l.lead(1, 1)
		l.hold[DoAppend] = true
		l.produce(1, 1, 1)
		l.produce(2, 1, 1)
		acts := l.step(Appended{Tag: l.held[0].Tag, Base: -1, Last: -1, Err: fmt.Errorf("x: %w", c.err), State: l.log.state()})
		r := reply(t, acts, 1)
		require.Equal(t, c.want, r.Err, "%v", c.err)
		require.ErrorIs(t, r.Cause, c.err)
		require.Equal(t, c.ends, len(all(acts, Fail)) == 1, "%v", c.err)
		require.Equal(t, c.ends, len(l.held) == 1)
		if c.ends {
			require.Equal(t, KafkaStorageError, reply(t, acts, 2).Err)
			require.Equal(t, KafkaStorageError, reply(t, l.produce(3, 1, 1), 3).Err)
			require.Equal(t, KafkaStorageError, reply(t, l.fetchFrom(2, 0), 1002).Err)
		}
	}
}
