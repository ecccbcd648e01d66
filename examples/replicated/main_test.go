package main

import (
	"bytes"
	"context"
	"net/rpc"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/replica"
	"github.com/partlog/partlog/replica/controller/storetest"
)

// TestMain makes the test's binary a node when it is started as one.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "-node" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestTheHubIsAStore(t *testing.T) {
	storetest.Run(t, func() replica.Store {
		ctx, cancel := context.WithCancel(context.Background())
		addr, err := serveHub(ctx, replica.NewMemStore())
		require.NoError(t, err)
		c, err := rpc.Dial("tcp", addr)
		require.NoError(t, err)
		t.Cleanup(func() {
			cancel()
			_ = c.Close()
		})
		return hubClient{c}
	})
}

func TestNothingCommittedIsLostWithTheLeader(t *testing.T) {
	for name, processes := range map[string]bool{"in one process": false, "in three processes": true} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			err := run(t.Context(), &out, processes, t.TempDir(), 0, "")
			t.Log("\n" + out.String())
			require.NoError(t, err)
			for _, want := range []string{"kill the leader, node 1", "leads epoch 1", "all 200 committed records", "all three hold the same 210 records"} {
				require.Contains(t, out.String(), want)
			}
		})
	}
}
