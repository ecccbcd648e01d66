package replica

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every exported method of what is nil, or was not made, says so, and does not panic.
func TestNilAndZeroValuesRefuse(t *testing.T) {
	raw := rawBatch(t, "v")
	for name, c := range map[string]struct {
		value any
		want  error
	}{
		"nil Handle":              {(*Handle)(nil), ErrNoReplica},
		"zero Handle":             {&Handle{}, ErrNoReplica},
		"nil Node":                {(*Node)(nil), ErrNodeClosed},
		"zero Node":               {&Node{}, ErrNodeClosed},
		"nil Remote":              {(*Remote)(nil), ErrNodeClosed},
		"zero Remote":             {&Remote{}, ErrNodeClosed},
		"a Remote of a nil Node":  {(*Node)(nil).Remote(1, ordersZero), ErrNodeClosed},
		"a Remote of a zero Node": {(&Node{}).Remote(1, ordersZero), ErrNodeClosed},
		"nil Fetched":             {(*Fetched)(nil), nil},
		"zero Fetched":            {&Fetched{}, nil},
		"nil TCP":                 {(*TCP)(nil), ErrTransportClosed},
		"zero TCP":                {&TCP{}, ErrTransportClosed},
	} {
		refuses(t, name, c.value, c.want, raw)
	}
}

// refuses calls every method of value.
func refuses(t *testing.T, name string, value any, want error, raw []byte) {
	v := reflect.ValueOf(value)
	for i := range v.NumMethod() {
		m, what := v.Method(i), name+"."+v.Type().Method(i).Name
		var in []reflect.Value
		for j := range m.Type().NumIn() {
			switch at := m.Type().In(j); {
			case at == reflect.TypeFor[context.Context]():
				in = append(in, reflect.ValueOf(t.Context()))
			case at == reflect.TypeFor[[]byte]():
				in = append(in, reflect.ValueOf(raw))
			default:
				in = append(in, reflect.Zero(at))
			}
		}
		require.NotPanics(t, func() {
			for _, out := range m.Call(in) {
				err, is := out.Interface().(error)
				if out.Type() == reflect.TypeFor[error]() {
					require.True(t, is && errors.Is(err, want), "%s: %v", what, err)
				}
				if out.Kind() == reflect.Func && strings.HasPrefix(out.Type().String(), "iter.Seq") {
					yield := reflect.MakeFunc(out.Type().In(0), func([]reflect.Value) []reflect.Value {
						t.Error(what, "yields")
						return []reflect.Value{reflect.ValueOf(false)}
					})
					out.Call([]reflect.Value{yield})
				}
			}
		}, what)
	}
}
