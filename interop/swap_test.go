package interop

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/golden"
	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
)

var errNotOffered = errors.New("this owner has no such call")

// swap hands one folder from owner to owner and keeps the model of what must be in it.
type swap struct {
	t      *testing.T
	r      *rand.Rand
	d      *Driver // looks at copies; owns nothing
	root   string
	topic  string
	config map[string]string
	owners []owner

	m       model
	known   map[int64]golden.ProducerFacts // by the present owner, of producers of our own
	epoch   int32                          // latest, as far as assigned here
	clean   bool                           // how the last session ended
	last    string
	cleaned int      // records that cleanings removed
	raised  int      // how often retention raised the start
	story   []string // what happened, for a failure's message
}

// tiny are topic settings that make segments and indexes turn over within a few batches.
func tiny() map[string]string {
	return map[string]string{"internal.segment.bytes": "9000", "segment.index.bytes": "1200", "index.interval.bytes": "300", "retention.ms": "-1"}
}

// swapped is tiny with compaction.
func swapped() map[string]string {
	c := tiny()
	c["cleanup.policy"], c["delete.retention.ms"], c["min.cleanable.dirty.ratio"] = "compact,delete", "500", "0.01"
	return c
}

// retained is retention.bytes, of owners that are asked for it.
const retained = 15_000

func retaining(config map[string]string) map[string]string {
	out := maps.Clone(config)
	out["retention.bytes"] = fmt.Sprint(retained)
	return out
}

func TestFolderSwapsBetweenPartlogAndUnifiedLog(t *testing.T) {
	j, d := kafka(t)
	s := newSwap(t, d, filepath.Join(t.TempDir(), "root"), "swap", 1)
	s.owners = []owner{
		&ours{o: ourOpen{Root: s.root, Topic: s.topic, Config: retaining(s.config)}, handles: true},
		&theirs{java: j, o: OpenOptions{Root: s.root, Topic: s.topic, Config: retaining(s.config), NowMs: -1, TopicID: "AAECAwQFBgcICQoLDA0ODw"}},
	}
	s.play(rounds(t, "PARTLOG_INTEROP_ROUNDS", 20))
}

func TestFolderSwapsBetweenPartlogAndBroker(t *testing.T) {
	j, d := kafka(t)
	b := newBroker(t, map[string]string{
		"transaction.partition.verification.enable": "false", // no coordinator knows our transactions
		"log.cleaner.backoff.ms":                    "100",
	})
	s := newSwap(t, d, b.Root, "swap", 2)
	require.NoError(t, b.Start())
	id, err := b.CreateTopic(s.topic, s.config)
	require.NoError(t, err)
	require.NoError(t, b.Stop())
	s.owners = []owner{
		&ours{o: ourOpen{Root: s.root, Topic: s.topic, Config: retaining(s.config)}, handles: true},
		&broker{b: b, topic: s.topic},
		&theirs{java: j, o: OpenOptions{Root: s.root, Topic: s.topic, Config: retaining(s.config), NowMs: -1, TopicID: id}},
	}
	s.play(rounds(t, "PARTLOG_INTEROP_ROUNDS", 20))
}

func newSwap(t *testing.T, d *Driver, root, topic string, seed uint64) *swap {
	t.Helper()
	require.NoError(t, os.MkdirAll(root, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, "not-a-log.txt"), []byte("a foreign plain file disturbs nobody"), 0o644))
	return &swap{t: t, r: rand.New(rand.NewPCG(seed, uint64(rounds(t, "PARTLOG_INTEROP_SEED", 5)))), d: d, root: root, topic: topic, config: swapped(), clean: true}
}

func (s *swap) play(rounds int) {
	defer func() {
		if s.t.Failed() {
			s.t.Logf("what happened:\n%s", strings.Join(s.story[max(0, len(s.story)-60):], "\n"))
		}
	}()
	for round := range rounds {
		w := s.owners[s.r.IntN(len(s.owners))]
		if round < len(s.owners) {
			w = s.owners[round]
		}
		s.session(round, w)
		if s.t.Failed() {
			return
		}
		s.compare()
		if s.t.Failed() {
			return
		}
	}
	s.t.Logf("%d rounds, the log ends at %d, %d records were cleaned away, retention raised the start %d times", rounds, s.m.end, s.cleaned, s.raised)
}

// session is one owner's turn.
func (s *swap) session(round int, w owner) {
	t := s.t
	if o, ok := w.(*ours); ok {
		o.o.Durability = []log.Durability{log.Durable, log.Buffered}[s.r.IntN(2)]
	}
	at, err := w.open()
	require.NoError(t, err, "%s opens after %s", w.name(), s.last)
	s.note("-- round %d: %s opens, start %d end %d", round, w.name(), at.start, at.end)
	s.m.cleaning = s.m.cleaning || w.name() == "broker"
	require.NoError(t, s.m.settle(at.start, at.end), "%s after %s", w.name(), s.last)
	s.epoch = max(s.epoch, at.epoch)
	s.learnProducers(w)
	if s.clean && round > 0 {
		require.Empty(t, at.rebuilt, "%s rebuilt something although %s stopped cleanly", w.name(), s.last)
	}
	ops := 5 + s.r.IntN(10)
	for range ops {
		s.step(w)
		if t.Failed() {
			w.kill()
			return
		}
	}
	s.sameProducers(w)
	if t.Failed() {
		w.kill()
		return
	}
	s.clean = s.r.IntN(3) > 0
	s.last = w.name()
	if s.clean {
		require.NoError(t, w.stop())
		s.m.settleStart(s.m.start)
		s.note("%s stops cleanly, start %d end %d", w.name(), s.m.start, s.m.end)
		return
	}
	s.last += " (killed)"
	s.die(w)
}

// step is one successful call.
func (s *swap) step(w owner) {
	t := s.t
	switch verb := s.verb(w); verb {
	case "append":
		batch, rs := s.batch(nobodys, false)
		base, err := w.append(batch, false, s.epoch)
		require.NoError(t, err)
		s.note("append %d records, %s, at %d", len(rs), batch.Codec(), base)
		require.Equal(t, s.m.end, base)
		s.m.append(nobodys, rs)
	case "produce":
		p := s.someProducer()
		batch, rs := s.batch(p, false)
		base, err := w.produce(batch, s.epoch)
		s.note("append %d records, %s, of %+v at %d", len(rs), batch.Codec(), p, base)
		require.NoError(t, err)
		require.Equal(t, s.m.end, base)
		s.m.append(p, rs)
		s.took()
	case "repeat":
		s.repeat(w)
	case "end":
		m, version := s.someEnd()
		s.note("%+v, version %d, at %d", m, version, s.m.end)
		require.NoError(t, w.end(m, version, s.epoch))
		s.m.mark(m)
		s.took()
	case "follow":
		p := nobodys
		if s.r.IntN(2) == 0 {
			p = s.someProducer()
		}
		batch, rs := s.batch(p, true)
		base, err := w.append(batch, true, s.epoch)
		require.NoError(t, err)
		s.note("append as follower %d records, %s, of %+v at %d epoch %d", len(rs), batch.Codec(), p, base, batch.LeaderEpoch())
		require.Equal(t, s.m.end, base)
		s.m.append(p, rs)
		s.took()
	case "follow end":
		m, _ := s.someEnd()
		batch := record.Marker(m.commit, m.p, m.coordinator, time.Now())
		batch.SetBaseOffset(s.m.end)
		batch.SetLeaderEpoch(max(s.epoch, 0))
		base, err := w.append(batch, true, s.epoch)
		require.NoError(t, err)
		s.note("append as follower %+v at %d epoch %d", m, base, batch.LeaderEpoch())
		require.Equal(t, s.m.end, base)
		s.m.mark(m)
		s.took()
	case "truncate":
		offset := s.cutPoint(w)
		end, err := w.truncate(offset)
		require.NoError(t, err)
		s.note("truncate to %d, end %d", offset, end)
		require.Equal(t, s.m.endAfter(offset), end)
		s.m.truncate(end, w.name() == "partlog")
		s.learnProducers(w)
	case "reset":
		offset := s.m.end + int64(s.r.IntN(3))*1000
		require.NoError(t, w.reset(offset))
		s.note("reset to %d", offset)
		s.m = model{start: offset, end: offset, durableStart: offset, onDisk: min(s.m.onDisk, offset), cleaning: s.m.cleaning}
		s.learnProducers(w)
	case "delete":
		before := s.m.start + s.r.Int64N(s.m.lastStable()-s.m.start+1) // no open transaction loses its beginning: see reopens
		require.NoError(t, w.deleteRecords(before))
		s.note("delete records before %d", before)
		s.m.raise(before, w.name() == "partlog")
	case "roll":
		require.NoError(t, w.roll())
		s.note("roll")
	case "compact":
		s.endAll(w)
		if w.name() != "broker" {
			require.NoError(t, w.roll())
		}
		s.m.cleaning, s.m.sealed = true, s.m.end
		require.NoError(t, w.compact())
		s.note("compact")
	case "retain":
		s.retain(w)
	case "epoch":
		s.epoch++
		require.NoError(t, w.assignEpoch(s.epoch))
		s.note("epoch %d", s.epoch)
	}
}

func (s *swap) verb(w owner) string {
	verbs := []string{"append", "append", "append", "produce", "produce", "produce", "produce", "end", "end", "repeat", "delete", "compact"}
	if w.name() != "broker" {
		verbs = append(verbs, "follow", "follow", "follow end", "truncate", "truncate", "roll", "retain")
		if s.r.IntN(8) == 0 {
			verbs = append(verbs, "reset")
		}
		if len(s.owners) == 2 { // a controller hands out epochs of its own
			verbs = append(verbs, "epoch")
		}
	}
	return verbs[s.r.IntN(len(verbs))]
}

// batch makes a batch and what the model shall hold of it.
func (s *swap) batch(p record.Producer, follower bool) (record.Batch, []Record) {
	o := record.BuilderOptions{Codec: codecs[s.r.IntN(len(codecs))]}
	if p.ID >= 0 {
		o.Producer = &p
	}
	b := record.NewBuilder(o)
	if follower {
		b.SetBaseOffset(s.m.end)
	}
	in := someRecords(s.r, 1+s.r.IntN(12))
	var rs []Record
	now := time.Now().UnixMilli()
	for i, rec := range in {
		if len(rec.Value) > 2000 {
			rec.Value = rec.Value[:2000]
		}
		rec.Key = fmt.Appendf(nil, "key %d", s.r.IntN(60))
		rec.Timestamp = now - s.r.Int64N(600_000)
		require.NoError(s.t, b.Add(rec))
		rs = append(rs, onWire(rec, s.m.end+int64(i), "CreateTime"))
	}
	batch, err := b.Finish()
	require.NoError(s.t, err)
	if follower {
		batch.SetLeaderEpoch(max(s.epoch, 0))
	}
	return batch, rs
}

// cutPoint is an offset to truncate to: any for ours, a batch's first for Kafka, which trusts its callers in that.
func (s *swap) cutPoint(w owner) int64 {
	lowest := min(max(s.m.start, s.m.end-60, s.m.reopens(), s.m.sealed), s.m.end)
	offset := lowest + s.r.Int64N(s.m.end-lowest+1)
	if w.name() != "partlog" {
		return s.m.endAfter(offset)
	}
	return offset
}

// die kills the owner, mostly in the middle of one more append or of a cleaning.
func (s *swap) die(w owner) {
	switch s.r.IntN(4) {
	case 0:
		w.kill()
		s.note("%s is killed at rest, end %d", w.name(), s.m.end)
		return
	case 1:
		s.m.cleaning = true
		done := make(chan error, 1)
		go func() { done <- w.compact() }()
		time.Sleep(time.Duration(s.r.IntN(12_000)) * time.Microsecond)
		w.kill()
		s.note("%s is killed while it compacts (%v), end %d", w.name(), <-done != nil, s.m.end)
		return
	}
	p := nobodys
	if s.r.IntN(2) == 0 {
		p = s.someProducer()
	}
	batch, rs := s.batch(p, false)
	done := make(chan error, 1)
	go func() {
		var err error
		if p.ID < 0 {
			_, err = w.append(batch, false, s.epoch)
		} else {
			_, err = w.produce(batch, s.epoch)
		}
		done <- err
	}()
	time.Sleep(time.Duration(s.r.IntN(3000)) * time.Microsecond)
	w.kill()
	err := <-done
	s.note("%s is killed while it appends %d records (%v), end before %d", w.name(), len(rs), err != nil, s.m.end)
	if err == nil {
		s.m.append(p, rs)
		return
	}
	s.m.maybe, s.m.maybeOf = rs, p
}
