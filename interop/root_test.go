package interop

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
)

// TestAWholeRootGoesToABrokerAndBack hands a root of several topics and partitions, compacted and not, to a broker and back:
// after a clean stop, after a kill of either in the middle of cleaning, after deletions of partitions on either side. Whoever
// has it finds the last value of every key that was ever written to a compacted topic, and the end of every log.
func TestAWholeRootGoesToABrokerAndBack(t *testing.T) {
	b := newBroker(t, map[string]string{
		"log.cleaner.backoff.ms":          "100",
		"log.initial.task.delay.ms":       "200",
		"log.retention.check.interval.ms": "200",
		"log.cleaner.threads":             "2",
		"log.cleaner.dedupe.buffer.size":  "4000000",
	})
	w := &wholeRoot{t: t, b: b, r: rand.New(rand.NewPCG(3, uint64(rounds(t, "PARTLOG_INTEROP_SEED", 5)))), tables: map[log.TopicPartition]table{}, ids: map[string]string{}}
	w.topics = map[string]map[string]string{}
	for topic, policy := range map[string]string{"events": "delete", "table": "compact", "doomed": "compact", "both": "compact,delete"} {
		w.topics[topic] = map[string]string{"cleanup.policy": policy, "internal.segment.bytes": "6000", "min.cleanable.dirty.ratio": "0.01", "index.interval.bytes": "300",
			"delete.retention.ms": "100", "file.delete.delay.ms": "100", "retention.ms": "-1", "segment.index.bytes": "1200"}
		if policy == "delete" {
			w.topics[topic]["retention.bytes"] = "20000"
		}
	}
	require.NoError(t, b.Start())
	for topic, config := range w.topics {
		id, err := b.CreatePartitions(topic, 2, config)
		require.NoError(t, err)
		w.ids[topic] = id
		for p := range int32(2) {
			w.tables[log.TopicPartition{Topic: topic, Partition: p}] = table{}
		}
	}
	require.NoError(t, b.Stop())

	w.ourTurn()
	require.NoError(t, b.Start())
	w.servesTheSame()
	w.produce()
	w.brokerCleans()
	require.NoError(t, b.DeleteTopic("doomed"))
	require.NoError(t, b.Stop())
	w.forget("doomed")

	w.ourTurn()
	require.Empty(t, w.folders("-delete"), "what the broker marked is removed")
	w.killUs()
	require.NoError(t, b.Start())
	w.servesTheSame()
	w.produce()
	w.killBroker()

	w.ourTurn()
	require.NoError(t, b.Start())
	w.servesTheSame()
	require.NoError(t, b.Stop())
}

// table is the last value of each key.
type table map[string]string

type wholeRoot struct {
	t      *testing.T
	b      *Broker
	r      *rand.Rand
	topics map[string]map[string]string
	ids    map[string]string
	turn   int16 // of ours, and the epoch of our producers in it
	tables map[log.TopicPartition]table
	ends   map[log.TopicPartition][2]int64 // start and end of each log when it was handed over
}

func (w *wholeRoot) compacts(tp log.TopicPartition) bool {
	return strings.Contains(w.topics[tp.Topic]["cleanup.policy"], "compact")
}

// record makes one, and notes it.
func (w *wholeRoot) record(tp log.TopicPartition, took bool) record.Record {
	k := fmt.Sprintf("key %d", w.r.IntN(40))
	rec := record.Record{Key: []byte(k), Value: fmt.Appendf(nil, "%d %s", w.r.Int64(), strings.Repeat("v", w.r.IntN(150)))}
	if w.r.IntN(5) == 0 {
		rec.Value = nil
	}
	if took {
		w.tables[tp].put(rec.Key, rec.Value)
	}
	return rec
}

func (t table) put(key, value []byte) {
	if value == nil {
		delete(t, string(key))
	} else {
		t[string(key)] = string(value)
	}
}

// ourTurn opens the root, compares, appends, compacts, retains, and stops.
func (w *wholeRoot) ourTurn() {
	t, ctx := w.t, context.Background()
	w.turn++
	d, err := openRoot(ctx, w.b.Root, w.topics)
	require.NoError(t, err)
	w.ends = map[log.TopicPartition][2]int64{}
	clean := map[log.TopicPartition]int64{}
	n := 0
	for tp, l := range d.Logs() {
		n++
		w.sameTable(tp, l)
		h := l.Producer(7_000_000, w.turn)
		for i := range 40 {
			took := i%4 != 3
			var rs []record.Record
			for range 3 {
				rs = append(rs, w.record(tp, took))
			}
			if i%4 < 2 {
				_, err := l.Append(ctx, rs...)
				require.NoError(t, err)
				continue
			}
			require.NoError(t, h.Begin())
			_, err := h.Append(ctx, rs...)
			require.NoError(t, err)
			if took {
				require.NoError(t, h.Commit(ctx))
			} else {
				require.NoError(t, h.Abort(ctx))
			}
		}
		require.NoError(t, l.Roll(ctx))
		_, err := l.Append(ctx, w.record(tp, true))
		require.NoError(t, err)
		if w.compacts(tp) {
			res, err := l.Compact(ctx, log.CompactOptions{Force: true})
			require.NoError(t, err)
			clean[tp] = res.FirstDirty
			require.Positive(t, res.Superseded)
			require.Positive(t, res.Aborted)
		}
		_, err = l.Retain(ctx)
		require.NoError(t, err)
		w.sameTable(tp, l)
		o := l.Offsets()
		w.ends[tp] = [2]int64{o.LogStart, o.LogEnd}
	}
	require.Equal(t, len(w.tables), n)
	require.NoError(t, d.RunOnce(ctx, time.Now().Add(2*time.Minute))) // removes what was marked by others
	require.NoError(t, d.Close())

	for name, want := range map[string]func(tp log.TopicPartition) (int64, bool){
		recoveryPointFile: func(tp log.TopicPartition) (int64, bool) { return w.ends[tp][1], true },
		highWatermarkFile: func(tp log.TopicPartition) (int64, bool) { return w.ends[tp][1], true },
		cleanerFile:       func(tp log.TopicPartition) (int64, bool) { at, ok := clean[tp]; return at, ok },
		logStartFile:      func(log.TopicPartition) (int64, bool) { return 0, false }, // no start lies inside of a segment
	} {
		all, err := checkpoint(filepath.Join(w.b.Root, name))
		require.NoError(t, err)
		expect := map[string]string{}
		for tp := range w.tables {
			if at, ok := want(tp); ok {
				expect[fmt.Sprintf("%s %d", tp.Topic, tp.Partition)] = fmt.Sprint(at)
			}
		}
		require.Equal(t, expect, all, name)
	}
	_, err = os.Stat(filepath.Join(w.b.Root, cleanMarkerFile))
	require.NoError(t, err)
	for tp := range w.tables {
		b, err := os.ReadFile(filepath.Join(w.b.Root, tp.String(), "partition.metadata"))
		require.NoError(t, err)
		require.Equal(t, "version: 0\ntopic_id: "+w.ids[tp.Topic], string(b))
		w.dumpIsSilent(tp)
	}
}

// dumpIsSilent is that of swap, for a cleaned log.
func (w *wholeRoot) dumpIsSilent(tp log.TopicPartition) {
	s := &swap{t: w.t, d: w.b.d, last: "partlog", m: model{clean: 1}}
	s.dumpIsSilent(filepath.Join(w.b.Root, tp.String()))
}

// sameTable materialises a log of ours.
func (w *wholeRoot) sameTable(tp log.TopicPartition, l *log.Log) {
	if !w.compacts(tp) {
		return
	}
	got := table{}
	for r, err := range l.Records(context.Background(), 0, log.WithReset(log.Earliest), log.WithIsolation(log.ReadCommitted)) {
		require.NoError(w.t, err)
		got.put(r.Key, r.Value)
	}
	require.Equal(w.t, w.tables[tp], got, "%s, ours", tp)
}

// servesTheSame materialises all logs with a real consumer. The broker must have rebuilt nothing after a clean stop.
func (w *wholeRoot) servesTheSame() {
	for tp := range w.tables {
		got, err := w.b.ConsumeFrom(tp.Topic, tp.Partition, "read_committed")
		require.NoError(w.t, err)
		if ends, ok := w.ends[tp]; ok {
			require.GreaterOrEqual(w.t, got.BeginningOffset, ends[0])
			require.Equal(w.t, ends[1], got.EndOffset, "%s: the end", tp)
			require.Empty(w.t, rebuilding(w.b.LogLines("partition="+tp.String())), "the broker after our clean stop")
		}
		if w.compacts(tp) {
			seen := table{}
			for _, r := range got.Records {
				seen.put(r.Key, r.Value)
			}
			require.Equal(w.t, w.tables[tp], seen, "%s, a consumer", tp)
		}
	}
}

// produce sends more to all through the broker.
func (w *wholeRoot) produce() {
	for tp := range w.tables {
		var rs []Record
		for range 150 {
			rs = append(rs, onWire(w.record(tp, true), 0, ""))
			rs[len(rs)-1].Timestamp = -1
		}
		_, err := w.b.ProduceTo(tp.Topic, tp.Partition, map[string]string{"batch.size": "1500", "linger.ms": "5"}, rs)
		require.NoError(w.t, err)
	}
}

// brokerCleans waits until the broker's cleaner has reached every last segment, and its retention has done its work.
func (w *wholeRoot) brokerCleans() {
	require.Eventually(w.t, func() bool {
		all, err := checkpoint(filepath.Join(w.b.Root, cleanerFile))
		if err != nil {
			return false
		}
		for tp := range w.tables {
			names, err := filepath.Glob(filepath.Join(w.b.Root, tp.String(), "*.log"))
			if err != nil || len(names) == 0 {
				return false
			}
			last := strings.TrimLeft(strings.TrimSuffix(filepath.Base(slices.Max(names)), ".log"), "0")
			if w.compacts(tp) && all[fmt.Sprintf("%s %d", tp.Topic, tp.Partition)] != last {
				return false
			}
			if size := w.bytes(names); !w.compacts(tp) && size > 30_000 {
				return false
			}
		}
		return true
	}, 20*time.Second, 50*time.Millisecond)
}

func (w *wholeRoot) bytes(names []string) (n int64) {
	for _, name := range names {
		if info, err := os.Stat(name); err == nil {
			n += info.Size()
		}
	}
	return n
}

func (w *wholeRoot) forget(topic string) {
	delete(w.topics, topic)
	for tp := range w.tables {
		if tp.Topic == topic {
			delete(w.tables, tp)
		}
	}
}

func (w *wholeRoot) folders(suffix string) []string {
	all, err := filepath.Glob(filepath.Join(w.b.Root, "*"+suffix))
	require.NoError(w.t, err)
	return all
}

// killUs ends a process of ours in the middle of cleaning, with a partition just deleted: the broker makes it anew.
func (w *wholeRoot) killUs() {
	t := w.t
	p, err := startVictim()
	require.NoError(t, err)
	_, err = p.call("root", args{"root": w.b.Root, "topics": w.topics}, nil)
	require.NoError(t, err)
	_, err = p.call("deleteFrom", args{"topic": "events", "partition": 1}, nil)
	require.NoError(t, err)
	require.Len(t, w.folders("-delete"), 1)
	done := make(chan error, 1)
	go func() {
		_, err := p.call("compactRoot", args{"rate": 20_000}, nil)
		done <- err
	}()
	require.Eventually(t, func() bool { return len(w.folders("/*.cleaned")) > 0 }, 20*time.Second, time.Millisecond)
	p.Kill()
	require.Error(t, <-done)
	require.NotEmpty(t, w.folders("/*.cleaned"))
	w.ends = nil
}

// killBroker ends the broker while its cleaner works.
func (w *wholeRoot) killBroker() {
	deadline := time.Now().Add(10 * time.Second)
	for len(w.folders("/*.cleaned"))+len(w.folders("/*.swap")) == 0 && time.Now().Before(deadline) {
		time.Sleep(200 * time.Microsecond)
	}
	w.b.Kill()
	left := append(w.folders("/*.cleaned"), w.folders("/*.swap")...)
	text, err := json.Marshal(left)
	require.NoError(w.t, err)
	w.t.Logf("the kill left %s", text)
}
