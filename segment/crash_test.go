package segment

import (
	"fmt"
	"slices"
	"testing"

	"github.com/partlog/partlog/vfs"
	"github.com/partlog/partlog/vfs/vfstest"

	"github.com/stretchr/testify/require"
)

// acked is what the workload knows to be durable at a moment: the last offsets and round of each batch.
type acked []string

// Hard problem 1, the part of one segment: after a power loss at any point of append, sync, truncate and seal, recovery
// leaves a prefix of one of the histories, with everything that was confirmed, and running it again changes nothing.
func TestEveryDiskAfterAPowerLossRecovers(t *testing.T) {
	workloads := map[string]func(t *testing.T, s *Segment, h *history){
		"append and sync": func(t *testing.T, s *Segment, h *history) {
			h.append(t, s, 2)
			h.sync(t, s.SyncData)
			h.append(t, s, 2)
			h.append(t, s, 1)
			h.sync(t, s.Sync)
			h.append(t, s, 1)
		},
		"truncate and go on": func(t *testing.T, s *Segment, h *history) {
			h.append(t, s, 4)
			h.sync(t, s.Sync)
			h.truncate(t, s, 2)
			h.sync(t, s.Sync)
			h.append(t, s, 2)
			h.sync(t, s.SyncData)
		},
		"seal": func(t *testing.T, s *Segment, h *history) {
			h.append(t, s, 3)
			require.NoError(t, s.Seal(ctx))
			h.sync(t, s.Sync)
		},
	}
	for name, work := range workloads {
		t.Run(name, func(t *testing.T) {
			c := vfstest.NewCrash(vfstest.CrashOptions{})
			require.NoError(t, c.MkdirAll(dir, 0o755))
			o := Options{FS: c, IndexIntervalBytes: EveryBatch}
			s, err := Create(dir, 0, o)
			require.NoError(t, err)
			require.NoError(t, c.SyncDir(dir))
			require.NoError(t, s.Sync())
			c.Mark()
			h := &history{c: c, all: [][]string{nil}}
			work(t, s, h)
			n := 0
			for disk := range c.Disks(vfstest.DiskOptions{}) {
				if n++; n > 3000 {
					break
				}
				var must acked
				if notes := disk.Notes(); len(notes) > 0 {
					must = notes[len(notes)-1].(acked)
				}
				if err := recovers(disk.FS(), h.all, must); err != nil {
					t.Fatalf("%v\n%s", err, disk.Describe())
				}
			}
			require.Greater(t, n, 5)
		})
	}
}

// history is what the workload wrote: the present batches, and all states the log has been in that end a branch.
type history struct {
	c     *vfstest.Crash
	now   []string
	all   [][]string
	round int
}

func (h *history) append(t *testing.T, s *Segment, n int) {
	var raw []byte
	for range n {
		at := int64(len(h.now))
		value := fmt.Sprintf("round %d offset %d", h.round, at)
		raw = append(raw, batchOf(t, at, 1, at+1, value)...)
		h.now = append(h.now, value)
	}
	h.all = append(h.all, slices.Clone(h.now))
	add(t, s, raw)
}

func (h *history) truncate(t *testing.T, s *Segment, offset int) {
	h.round++
	h.now = slices.Clone(h.now[:offset])
	h.c.Note(acked(slices.Clone(h.now))) // what is cut is not owed any more
	_, err := s.Truncate(int64(offset))
	require.NoError(t, err)
}

func (h *history) sync(t *testing.T, f func() error) {
	require.NoError(t, f())
	h.c.Note(acked(slices.Clone(h.now)))
}

func recovers(fsys vfs.FS, all [][]string, must acked) error {
	o := Options{FS: fsys, IndexIntervalBytes: EveryBatch}
	s, err := Open(dir, 0, o)
	if err != nil {
		return err
	}
	defer s.Abandon()
	if _, err := s.Recover(ctx, ScanOptions{Evict: true}); err != nil {
		return err
	}
	var got []string
	for b, err := range s.Batches(0) {
		if err != nil {
			return err
		}
		for r, err := range b.Records(nil) {
			if err != nil {
				return err
			}
			got = append(got, string(r.Value))
		}
	}
	if len(got) < len(must) || !slices.Equal(got[:len(must)], must) {
		return fmt.Errorf("%q was confirmed, %q is there", must, got)
	}
	if !slices.ContainsFunc(all, func(h []string) bool { return len(got) <= len(h) && slices.Equal(got, h[:len(got)]) }) {
		return fmt.Errorf("%q is no prefix of any history", got)
	}
	for i := range got {
		if p, err := s.Find(int64(i)); err != nil || p.Base != int64(i) {
			return fmt.Errorf("offset %d: %+v, %w", i, p, err)
		}
	}
	scan, err := s.Recover(ctx, ScanOptions{})
	if err != nil || scan.Verdict != Clean || scan.CutBytes != 0 {
		return fmt.Errorf("second recovery: %+v, %w", scan, err)
	}
	return nil
}
