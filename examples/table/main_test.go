package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTableShowsThatTheLogStaysSmall(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, show(t.Context(), &out))
	require.Regexp(t, `^2000 changes of 20 keys: the log has \d\d\d KiB in \d+ segments
compacted: 1[5-9]\d\d records dropped, \d\d KiB left
opened again from \d+ records: sensor-5 is "value 99", sensor-7 is there: false
$`, out.String())
}

func TestATableIsTheSameWhenItIsOpenedAgainWhateverWasCompacted(t *testing.T) {
	dir, want := t.TempDir(), map[string]string{}
	var cleaned int64
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 4 {
		table, err := Open(t.Context(), dir)
		require.NoError(t, err)
		for range 120 {
			key := fmt.Sprint(rnd.IntN(30))
			if rnd.IntN(5) == 0 {
				require.NoError(t, table.Delete(t.Context(), key))
				delete(want, key)
				continue
			}
			value := fmt.Sprintf("%*d", rnd.IntN(1000), rnd.Int())
			require.NoError(t, table.Put(t.Context(), key, []byte(value)))
			want[key] = value
		}
		require.NoError(t, table.root.RunOnce(t.Context(), time.Now().Add(time.Minute)))
		cleaned += table.log.Stats().Cleaner.Dropped
		require.NoError(t, table.Close())
	}
	require.Positive(t, cleaned)
	table, err := Open(t.Context(), dir)
	require.NoError(t, err)
	for k := range 30 {
		got, ok := table.Get(fmt.Sprint(k))
		value, there := want[fmt.Sprint(k)]
		require.Equal(t, there, ok, k)
		require.Equal(t, value, string(got), k)
	}
	require.NoError(t, table.Close())
}

func TestAnEmptyValueIsNoDeletion(t *testing.T) {
	table, err := Open(t.Context(), t.TempDir())
	require.NoError(t, err)
	require.NoError(t, table.Put(t.Context(), "k", nil))
	got, ok := table.Get("k")
	require.True(t, ok)
	require.Empty(t, got)
	require.NoError(t, table.Close())
}
