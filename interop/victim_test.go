package interop

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/partlog/partlog/internal/golden"
	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
)

// victimEnv makes the test binary, started again by a test, own a log until it is told to close it, or is killed.
const victimEnv = "PARTLOG_INTEROP_VICTIM"

// partlogState is what a log of ours says about itself.
type partlogState struct {
	Offsets  log.Offsets
	Epochs   []log.EpochEntry
	Recovery log.RecoveryReport
	Segments []log.SegmentInfo

	Producers []golden.ProducerFacts
	Aborted   []golden.AbortedTransaction
}

// ourOpen are the arguments of the victim's open.
type ourOpen struct {
	Root       string            `json:"root"`
	Topic      string            `json:"topic"`
	Config     map[string]string `json:"config"`
	Durability log.Durability    `json:"durability"`
}

// startVictim starts the process.
func startVictim() (*pipe, error) {
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), victimEnv+"=1")
	return startPipe(c)
}

// runVictim answers commands as the Java driver does.
func runVictim() int {
	in := bufio.NewReader(os.Stdin)
	out := json.NewEncoder(os.Stdout)
	var v victim
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return 0
		}
		answer := map[string]any{}
		if ok, err := v.do(line); err != nil {
			answer["error"] = map[string]string{"class": "error", "message": err.Error()}
		} else {
			answer["ok"] = ok
		}
		if err := out.Encode(answer); err != nil {
			return 1
		}
	}
}

type victim struct {
	dir *log.Dir
	log *log.Log
}

// victimRequest has the arguments of all commands.
type victimRequest struct {
	Cmd string `json:"cmd"`
	ourOpen
	Raw    []byte `json:"raw"`
	As     string `json:"as"`
	Offset int64  `json:"offset"`
	Epoch  int32  `json:"epoch"`

	Producer    record.Producer `json:"producer"`
	Commit      bool            `json:"commit"`
	Coordinator int32           `json:"coordinator"`
	Version     int             `json:"version"`

	Topics    map[string]map[string]string `json:"topics"`
	Partition int32                        `json:"partition"`
	Rate      int64                        `json:"rate"`
}

func (v *victim) do(line []byte) (any, error) {
	var r victimRequest
	if err := json.Unmarshal(line, &r); err != nil {
		return nil, err
	}
	ctx := context.Background()
	switch r.Cmd {
	case "open":
		return v.open(ctx, r.ourOpen)
	case "state":
		return stateOf(v.log), nil
	case "append":
		o := log.AppendOptions{}
		if r.As == "follower" {
			o.As, o.LeaderEpoch = log.Follower, &r.Epoch
		}
		return v.log.AppendBatches(ctx, r.Raw, o)
	case "handle":
		return v.appendByHandle(ctx, r.Raw)
	case "endTxn":
		return v.log.EndTxn(ctx, r.Producer, r.Commit, log.EndTxnOptions{CoordinatorEpoch: r.Coordinator, TransactionVersion: r.Version})
	case "appendRecords":
		return v.appendRecords(ctx, r.Raw)
	case "truncate":
		return v.log.Truncate(ctx, r.Offset)
	case "reset":
		return nil, v.log.ResetTo(ctx, r.Offset)
	case "deleteRecords":
		return nil, v.log.DeleteRecords(ctx, r.Offset)
	case "roll":
		return nil, v.log.Roll(ctx)
	case "root":
		return nil, v.openRoot(ctx, r.ourOpen, r.Topics)
	case "compactRoot": // as slowly as asked for
		return nil, v.compactRoot(ctx, r.Rate)
	case "deleteFrom":
		return nil, v.dir.Delete(ctx, log.TopicPartition{Topic: r.Topic, Partition: r.Partition})
	case "compact":
		return v.log.Compact(ctx, log.CompactOptions{Force: true})
	case "retain":
		return v.log.Retain(ctx)
	case "sync":
		return nil, v.log.Sync(ctx)
	case "assignEpoch":
		return nil, v.log.AssignEpoch(r.Epoch)
	case "close":
		return nil, v.dir.Close()
	}
	return nil, fmt.Errorf("unknown command %s", r.Cmd)
}

func (v *victim) open(ctx context.Context, o ourOpen) (_ any, err error) {
	if v.dir, v.log, err = openOurs(ctx, o); err != nil {
		return nil, err
	}
	return stateOf(v.log), nil
}

func (v *victim) openRoot(ctx context.Context, o ourOpen, topics map[string]map[string]string) (err error) {
	v.dir, err = openRoot(ctx, o.Root, topics)
	return err
}

func (v *victim) compactRoot(ctx context.Context, rate int64) error {
	for _, l := range v.dir.Logs() {
		if _, err := l.Compact(ctx, log.CompactOptions{Force: true, BytesPerSecond: rate}); err != nil && !errors.Is(err, log.ErrPolicy) {
			return err
		}
	}
	return nil
}

// openRoot opens all partitions of a root with the settings of their topics.
func openRoot(ctx context.Context, root string, topics map[string]map[string]string) (*log.Dir, error) {
	configs := map[string]log.Config{}
	for topic, kafka := range topics {
		c, err := log.ParseConfig(kafka)
		if err != nil {
			return nil, err
		}
		c.Durability = log.Buffered
		configs[topic] = c
	}
	d, err := log.OpenDir(root, log.DirConfig{Manual: true})
	if err != nil {
		return nil, err
	}
	if err := d.OpenAll(ctx, log.OpenAllOptions{Config: func(tp log.TopicPartition) log.Config { return configs[tp.Topic] }}); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// appendRecords appends the records of an encoded batch through the records' own door.
func (v *victim) appendRecords(ctx context.Context, raw []byte) (any, error) {
	_, rs, err := unpacked(raw)
	if err != nil {
		return nil, err
	}
	base, err := v.log.Append(ctx, rs...)
	return log.Appended{Base: base, Last: base + int64(len(rs)) - 1}, err
}

// appendByHandle appends them through the handle of a producer, which finds the sequence by itself.
func (v *victim) appendByHandle(ctx context.Context, raw []byte) (any, error) {
	batch, rs, err := unpacked(raw)
	if err != nil {
		return nil, err
	}
	id, epoch, _ := batch.Producer()
	base, err := v.log.Producer(id, epoch).Append(ctx, rs...)
	return log.Appended{Base: base, Last: base + int64(len(rs)) - 1}, err
}

func unpacked(raw []byte) (batch record.Batch, rs []record.Record, err error) {
	if batch, err = record.View(raw); err != nil {
		return batch, nil, err
	}
	for r, err := range batch.Records(nil) {
		if err != nil {
			return batch, nil, err
		}
		rs = append(rs, r.Clone())
	}
	return batch, rs, nil
}

// openOurs opens one partition of a root.
func openOurs(ctx context.Context, o ourOpen) (*log.Dir, *log.Log, error) {
	c, err := log.ParseConfig(o.Config)
	if err != nil {
		return nil, nil, err
	}
	c.Durability = o.Durability
	d, err := log.OpenDir(o.Root, log.DirConfig{})
	if err != nil {
		return nil, nil, err
	}
	l, err := d.Open(ctx, log.TopicPartition{Topic: o.Topic}, c)
	if err != nil {
		_ = d.Close()
		return nil, nil, err
	}
	return d, l, nil
}

func stateOf(l *log.Log) partlogState {
	s := partlogState{Offsets: l.Offsets(), Epochs: l.Epochs(), Recovery: l.Recovery(), Segments: l.SegmentInfos(), Producers: factsOf(l)}
	all, _ := l.AbortedTxns()
	for _, a := range all {
		s.Aborted = append(s.Aborted, golden.AbortedTransaction{ProducerID: a.ProducerID, FirstOffset: a.FirstOffset, LastOffset: a.LastOffset, LastStableOffset: a.LastStable})
	}
	return s
}

// factsOf are the producers of a log of ours in Kafka's words.
func factsOf(l *log.Log) []golden.ProducerFacts {
	all := []golden.ProducerFacts{}
	for _, f := range l.Producers() {
		all = append(all, golden.ProducerFacts{ProducerID: f.ID, Epoch: f.Epoch, LastSequence: f.LastSequence, LastOffset: f.LastOffset,
			LastTimestamp: f.LastTimestamp, CoordinatorEpoch: f.CoordinatorEpoch, TxnFirstOffset: f.TxnStart, CachedBatches: f.Batches})
	}
	return all
}
