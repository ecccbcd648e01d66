package controller

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/replica"
)

// Every method of what is nil, or was not made, refuses, and does not panic: a member that does not stand for election has no
// Controller.
func TestNilAndZeroValuesRefuse(t *testing.T) {
	for name, c := range map[string]struct {
		value any
		want  error
	}{
		"nil Controller":    {(*Controller)(nil), replica.NotController},
		"zero Controller":   {&Controller{}, replica.NotController},
		"one without store": {NewController(nil, Options{Node: 1}), replica.NotController},
		"nil registration":  {(*Registered)(nil), replica.ErrSessionLost},
		"zero registration": {&Registered{}, replica.ErrSessionLost},
		"zero partition":    {Partition{}, nil},
		"zero rules of 3.9": {Classic{}, nil},
		"zero settings":     {Settings{}, nil},
		"an empty refusal":  {&Error{}, replica.None},
	} {
		v := reflect.ValueOf(c.value)
		for i := range v.NumMethod() {
			m, what := v.Method(i), name+"."+v.Type().Method(i).Name
			if m.Type().IsVariadic() {
				m = reflect.MakeFunc(reflect.FuncOf([]reflect.Type{m.Type().In(0)}, []reflect.Type{m.Type().Out(0), m.Type().Out(1)}, false),
					func(in []reflect.Value) []reflect.Value { return v.Method(i).Call(in) })
			}
			var in []reflect.Value
			for j := range m.Type().NumIn() {
				if at := m.Type().In(j); at == reflect.TypeFor[context.Context]() {
					in = append(in, reflect.ValueOf(t.Context()))
				} else {
					in = append(in, reflect.Zero(at))
				}
			}
			require.NotPanics(t, func() {
				for _, out := range m.Call(in) {
					if out.Type() == reflect.TypeFor[error]() {
						err, _ := out.Interface().(error)
						require.ErrorIs(t, err, c.want, what)
					}
				}
			}, what)
		}
	}
}

// A Core that New has not made, or that was told what cannot be, answers every request and does nothing.
func TestACoreThatKnowsNothingRefusesEverything(t *testing.T) {
	requests := []Event{CreateTopic{}, CreateTopic{Topic: "t", Partitions: -5, ID: [16]byte{1}}, CreateTopic{Topic: "t", Partitions: 1<<31 - 1, ID: [16]byte{1}},
		CreateTopic{Topic: "t", ReplicationFactor: 1<<31 - 1, ID: [16]byte{1}}, CreateTopic{Topic: "t", Assignment: [][]replica.NodeID{}, ID: [16]byte{1}},
		CreateTopic{Topic: "t", Assignment: [][]replica.NodeID{{}}, ID: [16]byte{1}}, CreateTopic{Topic: "t", Assignment: [][]replica.NodeID{{-1}}, ID: [16]byte{1}},
		AddPartitions{}, AddPartitions{Topic: "t", Partitions: -1}, DeleteTopic{}, SetConfig{}, AlterConfig{}, AlterPartition{}, ControlledShutdown{},
		Elect{}, Reassign{}, Reassign{To: []replica.NodeID{-1}}}
	others := []Event{Tick{}, Seen{}, Committed{}, Committed{Tag: 7}, Deposed{}, nil}
	for name, c := range map[string]*Core{"zero": {}, "new": New(Config{})} {
		for ruling := range 2 {
			if ruling == 1 {
				require.Empty(t, c.Step(time.Now(), Elected{Epoch: 1, Version: 1}, nil), name)
			}
			for _, e := range requests {
				acts := c.Step(time.Now(), e, nil)
				require.Len(t, acts, 1, "%s: %T", name, e)
				if check, asks := acts[0].(Commit); asks && ruling == 1 {
					require.Empty(t, check.Transaction.Writes, "%s: %T", name, e)
					acts = c.Step(time.Now(), Committed{Tag: check.Tag}, nil)
					require.Len(t, acts, 1, "%s: %T", name, e)
				}
				require.Error(t, acts[0].(Reply).Err, "%s: %T %+v", name, e, e)
			}
			for _, e := range others {
				if _, ends := e.(Deposed); !ends || ruling == 0 {
					require.Empty(t, c.Step(time.Now(), e, nil), "%s: %T", name, e)
				}
			}
		}
	}
}

// Without a word on who may lead, nobody may.
func TestRulesThatSayNothingLetNobodyLead(t *testing.T) {
	p := Partition{Leader: 1, Replicas: []replica.NodeID{1, 2}, ISR: []replica.NodeID{1, 2}}
	for _, e := range []Election{Online, ToLeader, Uncleanly, 99} {
		after, _ := p.Change(Rules{Election: e}, Target{})
		require.Equal(t, replica.NoNode, after.Leader)
		require.Equal(t, "unknown", Election(99).String())
	}
	_, changed := Partition{Leader: replica.NoNode}.Change(Rules{}, Target{})
	require.False(t, changed)
}
