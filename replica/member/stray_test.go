package member

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/replica/controller"
	"github.com/partlog/partlog/vfs"
)

// folders are the partitions' folders, without the id in a stray one's name.
func folders(t *testing.T, fs vfs.FS) (live, stray []string) {
	entries, err := fs.ReadDir(".")
	require.NoError(t, err)
	for _, e := range entries {
		switch name, _, _ := strings.Cut(e.Name(), "."); {
		case !e.IsDir():
		case strings.HasSuffix(e.Name(), "-stray"):
			stray = append(stray, name)
		default:
			live = append(live, e.Name())
		}
	}
	return live, stray
}

// Scenario: K017 in the image, not in the image, an empty one, assigned to others, without a topic id; a re-created topic is
// the node's to find.
func TestWhatIsNoLongerTheMembersIsSetAsideAtItsStart(t *testing.T) {
	for name, strays := range map[string]bool{"set aside": true, "left as it is": false} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 1, 2)
			c.create("orders", nil, ids{1, 2})
			c.inSync(2)
			c.produce("a")
			c.create("deleted", nil, ids{2})
			c.create("theirs", nil, ids{1})
			require.Eventually(t, func() bool {
				_, err := c.nodes[2].fs.Stat("deleted-0")
				return err == nil
			}, 20*time.Second, 5*time.Millisecond)
			c.stop(2)
			c.ask(func(ctx context.Context, ctrl *controller.Controller) error { return ctrl.DeleteTopic(ctx, "deleted") })
			d, err := log.OpenDir("mem", log.DirConfig{FS: c.nodes[2].fs})
			require.NoError(t, err)
			for _, topic := range []string{"private", "theirs"} { // neither has a topic id
				_, err = d.Open(c.ctx(), log.TopicPartition{Topic: topic}, log.Config{})
				require.NoError(t, err)
			}
			require.NoError(t, d.Close())

			c.start(2, func(conf *Config) { conf.Strays = strays })
			c.inService(2)
			c.inSync(2)
			c.holds(2, "a")
			live, stray := folders(t, c.nodes[2].fs)
			if strays {
				require.Equal(t, []string{"orders-0"}, live)
				require.Equal(t, []string{"deleted-0", "private-0", "theirs-0"}, stray)
			} else {
				require.Equal(t, []string{"deleted-0", "orders-0", "private-0", "theirs-0"}, live)
				require.Empty(t, stray)
			}
		})
	}
}

func TestInAnEmptyClusterEachPartitionIsStray(t *testing.T) {
	c := newCluster(t, 1)
	d := c.nodes[1].dir
	_, err := d.Open(c.ctx(), orders, log.Config{})
	require.NoError(t, err)
	c.stop(1)
	c.start(1, func(conf *Config) { conf.Strays = true })
	c.inService(1)
	live, stray := folders(t, c.nodes[1].fs)
	require.Empty(t, live)
	require.Equal(t, []string{"orders-0"}, stray)
}
