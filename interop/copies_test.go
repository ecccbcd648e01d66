package interop

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
)

// command is cmd/partlog, built once.
var command struct {
	once sync.Once
	dir  string
	err  error
}

// partlog runs the command and answers its standard output and error.
func partlog(t *testing.T, args ...string) (out, stderr string, code int) {
	t.Helper()
	command.once.Do(func() {
		if command.dir, command.err = os.MkdirTemp("", "partlog-command-"); command.err == nil {
			command.err = run(exec.Command("go", "build", "-o", filepath.Join(command.dir, "partlog"), "github.com/partlog/partlog/cmd/partlog"))
		}
	})
	require.NoError(t, command.err)
	var o, e bytes.Buffer
	c := exec.Command(filepath.Join(command.dir, "partlog"), args...)
	c.Stdout, c.Stderr = &o, &e
	err := c.Run()
	require.NotNil(t, c.ProcessState, "%v", err)
	return o.String(), e.String(), c.ProcessState.ExitCode()
}

// do is partlog for what must succeed.
func do(t *testing.T, args ...string) string {
	t.Helper()
	out, stderr, code := partlog(t, args...)
	require.Zero(t, code, "%v: %s%s", args, out, stderr)
	return out
}

// treeOf is every file below dir by hash, but locks.
func treeOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, p)
		if e.IsDir() || e.Name() == ".lock" {
			return nil
		}
		b, err := os.ReadFile(p)
		all[name] = fmt.Sprintf("%d %x", len(b), sha256.Sum256(b))
		return err
	}))
	return all
}

// sameTree compares without printing all of them.
func sameTree(t *testing.T, want, got map[string]string, what ...any) {
	t.Helper()
	differ := map[string][2]string{}
	for name := range want {
		differ[name] = [2]string{want[name], got[name]}
	}
	for name := range got {
		differ[name] = [2]string{want[name], got[name]}
	}
	maps.DeleteFunc(differ, func(_ string, d [2]string) bool { return d[0] == d[1] })
	require.Empty(t, differ, what...)
}

// holdings are the partitions of a running broker as its consumers see them.
type holdings map[log.TopicPartition]struct{ uncommitted, committed Consumed }

func held(t *testing.T, b *Broker, tps []log.TopicPartition) holdings {
	t.Helper()
	h := holdings{}
	for _, tp := range tps {
		at := h[tp]
		var err error
		at.uncommitted, err = b.ConsumeFrom(tp.Topic, tp.Partition, "read_uncommitted")
		require.NoError(t, err, tp)
		at.committed, err = b.ConsumeFrom(tp.Topic, tp.Partition, "read_committed")
		require.NoError(t, err, tp)
		h[tp] = at
	}
	return h
}

// same compares with what another broker, or the same later, shows. Of the table, where a cleaner is at work, it compares the
// last values.
func (h holdings) same(t *testing.T, got holdings) {
	t.Helper()
	require.Len(t, got, len(h))
	for tp, want := range h {
		for _, c := range [][2]Consumed{{want.uncommitted, got[tp].uncommitted}, {want.committed, got[tp].committed}} {
			if tp.Topic == "table" {
				require.Equal(t, lastValues(c[0].Records), lastValues(c[1].Records))
			} else {
				sameRecords(t, c[0].Records, c[1].Records)
			}
			c[0].Records, c[1].Records = nil, nil
			require.Equal(t, c[0], c[1], "%s", tp)
		}
	}
}

func lastValues(rs []Record) table {
	all := table{}
	for _, r := range rs {
		all.put(r.Key, r.Value)
	}
	return all
}

// marked are the folders of a root that somebody set aside.
func marked(t *testing.T, root string) (out []string) {
	t.Helper()
	for _, suffix := range []string{"-stray", "-delete", "-future"} {
		all, err := filepath.Glob(filepath.Join(root, "*"+suffix))
		require.NoError(t, err)
		out = append(out, all...)
	}
	return out
}

// dumpsInSilence runs Kafka's dump tool over partitions at rest; cleaned ones lack offsets.
func dumpsInSilence(t *testing.T, d *Driver, root string, tps []log.TopicPartition, cleaned ...string) {
	t.Helper()
	for _, tp := range tps {
		s := &swap{t: t, d: d, last: root}
		for _, topic := range cleaned {
			if tp.Topic == topic {
				s.m.clean = 1
			}
		}
		s.dumpIsSilent(filepath.Join(root, tp.String()))
	}
}
