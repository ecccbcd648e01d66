package replica

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
)

// fillAll puts something into every field of v, everywhere something else.
func fillAll(t *testing.T, v reflect.Value, next *int64) {
	*next++
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Unix(0, *next)))
		return
	case error:
		v.Set(reflect.ValueOf(&RemoteError{"trouble", 5}))
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(*next)
	case reflect.Uint8:
		v.SetUint(2)
	case reflect.String:
		v.SetString(fmt.Sprint("s", *next))
	case reflect.Array:
		for i := range v.Len() {
			fillAll(t, v.Index(i), next)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fillAll(t, v.Index(i), next)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Field(i)
			if f.Kind() == reflect.Interface {
				f.Set(reflect.ValueOf(error(&RemoteError{"trouble", 5})))
				continue
			}
			fillAll(t, f, next)
		}
	default:
		t.Fatal("what is ", v.Type(), "?")
	}
}

func someStatuses(t *testing.T) []Status {
	var full, empty Status
	n := int64(1 << 20)
	fillAll(t, reflect.ValueOf(&full).Elem(), &n)
	code := noStatus
	code.LastError = NotLeaderOrFollower
	return []Status{full, empty, noStatus, code}
}

// Every field goes over the wire, those that are added to Status some day included.
func TestAStatusReadsBackAsItWas(t *testing.T) {
	for _, s := range someStatuses(t) {
		b := appendStatus(nil, &s)
		got, err := decodeStatus(b)
		require.NoError(t, err)
		require.Equal(t, s, got)
		_, err = decodeStatus(append(b, "of a later version"...))
		require.NoError(t, err)
		for cut := range b {
			_, err := decodeStatus(b[:cut])
			require.ErrorIs(t, err, ErrFrame)
		}
	}
	_, err := decodeStatus(make([]byte, maxStatus+1))
	require.ErrorIs(t, err, ErrFrame)
}

func FuzzDecodeStatus(f *testing.F) {
	for _, s := range someStatuses(&testing.T{}) {
		f.Add(appendStatus(nil, &s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := decodeStatus(b)
		if err != nil {
			return
		}
		again, err := decodeStatus(appendStatus(nil, &s))
		require.NoError(t, err)
		require.Equal(t, s, again)
	})
}

// A leader says the same of itself to everybody; a client finds it, and a member may ask a follower, too.
func TestAStatusIsTheSameHereAndThere(t *testing.T) {
	g, nodes := listening(t, 1, 2, 3)
	c := newClient(t, ClientConfig{Nodes: nodes})
	g.produce("a")
	g.elect(2)
	g.produce("b")
	g.caughtUp(2, 1, 3)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	asked := map[string]func() (Status, error){
		"a client":     func() (Status, error) { return c.Status(ctx, ordersZero) },
		"a member":     func() (Status, error) { return g.nodes[3].Remote(2, ordersZero).Status(ctx) },
		"at home":      func() (Status, error) { return g.nodes[2].Remote(2, ordersZero).Status(ctx) },
		"the replicas": func() (Status, error) { return g.handle(2).Status(), nil },
	}
	for who, ask := range asked {
		s, err := ask()
		require.NoError(t, err, who)
		require.Equal(t, []any{NodeID(2), Leader, true, NodeID(2), int32(1)}, []any{s.Node, s.Role, s.Active, s.Leader, s.LeaderEpoch}, who)
		require.ElementsMatch(t, g.ids, s.ISR, who)
		require.EqualValues(t, 2, s.HighWatermark, who)
		require.EqualValues(t, 2, s.Offsets.LogEnd, who)
		require.Equal(t, []log.EpochEntry{{Epoch: 0}, {Epoch: 1, Start: 1}}, s.Epochs, who)
		require.Len(t, s.Followers, 2, who)
		for _, f := range s.Followers {
			require.Zero(t, s.Lag(f), who)
			require.True(t, f.InSync, who)
			require.Less(t, s.At.Sub(f.LastFetch), time.Minute, who)
		}
	}
	s, err := g.nodes[2].Remote(3, ordersZero).Status(ctx)
	require.NoError(t, err)
	require.Equal(t, []any{NodeID(3), Follower, NodeID(2)}, []any{s.Node, s.Role, s.Leader})
	s, err = g.nodes[2].Remote(3, log.TopicPartition{Topic: "none"}).Status(ctx)
	require.ErrorIs(t, err, UnknownTopicOrPartition)
	require.Equal(t, noStatus, s)
	_, err = c.Status(ctx, log.TopicPartition{Topic: "none"})
	require.ErrorIs(t, err, UnknownTopicOrPartition)
	refused := (*RefusedError)(nil)
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "status of", refused.Request)

	for id := range NodeID(3) {
		g.nodes[id+1].Close()
		g.nodes[id+1].dir.Close()
		g.nodes[id+1].alive = false
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = c.Status(short, ordersZero)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// A status that cannot be read is an error, not a panic.
func TestAStatusThatIsNoneIsRefused(t *testing.T) {
	c := newClient(t, ClientConfig{Nodes: fakeNode(t, func(Message) (Result, bool) { return at(0), true })})
	_, err := c.Status(t.Context(), ordersZero)
	require.ErrorIs(t, err, ErrFrame)
	require.False(t, errors.Is(err, NetworkException))
}
