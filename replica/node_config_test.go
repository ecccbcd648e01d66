package replica

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/vfs"
)

// What a newcomer mixes up, and what would otherwise show as replicas that never catch up, or as logs that two nodes write.
func TestANodeThatCannotBeIsRefused(t *testing.T) {
	network := NewNetwork()
	dir, err := log.OpenDir("mem", log.DirConfig{FS: vfs.Mem(), Manual: true})
	require.NoError(t, err)
	defer dir.Close()
	tcp, err := ListenTCP("127.0.0.1:0", TCPConfig{})
	require.NoError(t, err)
	defer tcp.Close()
	for _, c := range []struct {
		conf NodeConfig
		want string
	}{
		{NodeConfig{Transport: network.Transport(0)}, "Dir must be given"},
		{NodeConfig{Dir: dir}, "Transport must be given"},
		{NodeConfig{Dir: dir, Transport: network.Transport(-1), Config: Config{Self: -1}}, "Self must not be negative, as -1 is"},
		{NodeConfig{Dir: dir, Transport: network.Transport(2), Config: Config{Self: 1}}, "Transport is that of node 2, and this is node 1"},
		{NodeConfig{Dir: dir, Transport: tcp, Config: Config{Self: 1}}, "Transport is that of node 0, and this is node 1"},
	} {
		_, err := NewNode(c.conf)
		require.ErrorIs(t, err, ErrNodeConfig)
		require.EqualError(t, err, ErrNodeConfig.Error()+": "+c.want)
	}
	first, err := NewNode(NodeConfig{Dir: dir, Transport: network.Transport(1), Config: Config{Self: 1}})
	require.NoError(t, err)
	second := NodeConfig{Dir: dir, Transport: network.Transport(2), Config: Config{Self: 2}}
	_, err = NewNode(second)
	require.EqualError(t, err, ErrNodeConfig.Error()+": Dir holds the replicas of node 1, which is not closed")
	require.NoError(t, first.Close())
	n, err := NewNode(second)
	require.NoError(t, err, "the first is closed")
	require.NoError(t, n.Close())
}

func TestANodeSaysThatSomebodyElseServesItsTransport(t *testing.T) {
	network := NewNetwork()
	open := func() *Node {
		dir, err := log.OpenDir("mem", log.DirConfig{FS: vfs.Mem(), Manual: true})
		require.NoError(t, err)
		n, err := NewNode(NodeConfig{Dir: dir, Transport: network.Transport(1), Config: Config{Self: 1}})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, dir.Close()) })
		t.Cleanup(func() { require.NoError(t, n.Close()) })
		return n
	}
	first := open()
	serves := func() bool { network.mu.RLock(); defer network.mu.RUnlock(); return network.ends[1] != nil }
	require.Eventually(t, serves, 5*time.Second, time.Millisecond)
	second := open()
	select {
	case <-second.Done():
	case <-time.After(5 * time.Second):
		t.Fatal("it is not noticed")
	}
	require.ErrorIs(t, second.Err(), ErrTransportBusy)
	select {
	case <-first.Done():
		t.Fatal("the first goes on")
	default:
	}
	require.NoError(t, first.Err())
}
