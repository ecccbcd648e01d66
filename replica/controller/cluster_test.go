package controller

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/replica"
)

func TestAClusterHasOneID(t *testing.T) {
	s := replica.NewMemStore()
	id, err := ClusterID(t.Context(), s)
	require.NoError(t, err)
	require.Empty(t, id)
	var all [8]string
	var wait sync.WaitGroup
	for i := range all {
		wait.Go(func() { all[i], _ = CreateClusterID(t.Context(), s, "") })
	}
	wait.Wait()
	require.Len(t, all[0], 22)
	for _, id := range all {
		require.Equal(t, all[0], id, "whoever is first decides")
	}
	id, err = CreateClusterID(t.Context(), s, "mine")
	require.NoError(t, err)
	require.Equal(t, all[0], id)
	id, err = CreateClusterID(t.Context(), replica.NewMemStore(), "mine")
	require.NoError(t, err)
	require.Equal(t, "mine", id)
	for _, bad := range []string{"", "x", "{}", `{"version":"1","id":""}`, `{"id":7}`} {
		_, err = replica.Put(t.Context(), s, ClusterKey, []byte(bad), replica.AnyVersion)
		require.NoError(t, err)
		_, err = ClusterID(t.Context(), s)
		require.ErrorContains(t, err, ClusterKey, bad)
	}
}
