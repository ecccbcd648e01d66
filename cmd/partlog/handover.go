package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"strings"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/log"
)

func handoverCommand() *command {
	return &command{
		name: "handover", args: "SOURCE TARGET", summary: "ready partitions for a broker of another cluster, as copies",
		help: `Copies the partition SOURCE, or the partitions of the log root SOURCE, in the form in which a broker of another cluster
takes them. SOURCE must be at rest: a stopped broker's or a backup; it is not changed. TARGET is the log directory of a stopped
broker of that cluster, where the topics were created and hold nothing yet: their empty folders are replaced. Or TARGET does
not exist: it becomes a directory with the readied folders, to be moved into that broker's log directory.

  partlog handover /backup/2026-01-31 /var/lib/kafka/data --dry-run
  partlog handover /backup/2026-01-31 /var/lib/kafka/data --partition orders-0 --partition orders-1
  partlog handover orders-0 /tmp/for-them --topic-id orders=AAECAwQFBgcICQoLDA0ODw

A folder that is merely copied does not arrive: a broker believes it only where the rest of its cluster says the same.
  topic id       the cluster gives every topic an id. A folder with another id, or none, is renamed to -stray, and the topic
                 shows empty. The ids are taken from the folders in TARGET, from those in --ids-from DIR, or from --topic-id
                 (kafka-topics.sh --describe shows them)
  leader epochs  the epochs of the source lie above those of the new cluster, which costs the log its history of epochs. Every
                 batch gets epoch 0, which no checksum covers, and so does the epoch file
  end            records above the high watermark may be on one replica only: they are left out, unless --everything
  transactions   nobody there ends one that is open, and read-committed consumers would wait for ever: refused, unless --abort
  producers      both clusters give them the ids from 0 upward. A new producer would be taken for the old one of its id,
                 and what it sends for a repetition: the ids of the source get bit 62, which no cluster counts up to

Copy every partition to one broker each, and let it replicate them: the other replicas must be empty. Start the broker when
this is done: it recovers the partitions, which is why no marker of a clean stop is left.

A directory that is new says in its log-start-offset-checkpoint which logs begin inside of a segment. Whoever moves folders by
hand adds these lines to the broker's file; partlog handover from that directory into the broker's takes them along.

What index.interval.bytes and producer.id.expiration.ms of the source are the verification takes from --config, as partlog
verify does.

Everything is looked at first, and one reason against it stops all of it; --dry-run ends there, with exit code 1 if there is
one. What was made is verified before it gets its place.`,
		setup: func(fl *flag.FlagSet) func(context.Context, *env, []string) error {
			var o handoverFlags
			o.define(fl)
			o.definePartitions(fl)
			o.topics = map[string][16]byte{}
			fl.BoolVar(&o.dryRun, "dry-run", false, "say what would be done and what stands against it, and change nothing")
			fl.BoolVar(&o.abort, "abort", false, "end open transactions with an ABORT marker")
			fl.BoolVar(&o.everything, "everything", false, "keep the records above the high watermark too")
			fl.StringVar(&o.idsFrom, "ids-from", "", "take topic ids from `DIR`, a log root or partition folder of the other cluster")
			fl.Func("topic-id", "the other cluster's id of a topic, as `TOPIC=ID`; may be repeated", o.addTopic)
			s := configFlag(fl)
			return func(ctx context.Context, e *env, args []string) error {
				if err := want(args, "SOURCE", "TARGET"); err != nil {
					return err
				}
				return runHandover(ctx, e, args[0], args[1], s, o)
			}
		},
	}
}

type handoverFlags struct {
	copyFlags
	dryRun, abort, everything bool
	idsFrom                   string
	topics                    map[string][16]byte
}

func (o *handoverFlags) addTopic(text string) error {
	topic, encoded, ok := strings.Cut(text, "=")
	if !ok || topic == "" {
		return errors.New("want TOPIC=ID")
	}
	id, err := checkpoint.ParseID(encoded)
	if err != nil || id.IsZero() {
		return errors.New("want an id of 22 characters, as kafka-topics.sh --describe shows it")
	}
	if old, there := o.topics[topic]; there && old != id {
		return fmt.Errorf("%s has two ids", topic)
	}
	o.topics[topic] = id
	return nil
}

// takeIDs reads the topic ids of a root or folder.
func (o *handoverFlags) takeIDs(dir string) error {
	t, err := lookAt(dir)
	if err != nil {
		return err
	}
	for _, tp := range t.partitions {
		id, found, err := checkpoint.ReadTopicID(t.fs, tp.String()+"/"+checkpoint.Metadata)
		switch {
		case errors.Is(err, fs.ErrNotExist), err == nil && !found:
		case err != nil:
			return err
		default:
			if old, there := o.topics[tp.Topic]; there && old != id {
				return fmt.Errorf("the topic %s has the id %v in %s, and %v elsewhere", tp.Topic, id, dir, checkpoint.ID(old))
			}
			o.topics[tp.Topic] = id
		}
	}
	return nil
}

func runHandover(ctx context.Context, e *env, source, dest string, s settings, o handoverFlags) error {
	c, err := s.config()
	if err != nil {
		return err
	}
	t, err := lookAtAll(source)
	if err != nil {
		return err
	}
	if o.idsFrom != "" {
		if err := o.takeIDs(o.idsFrom); err != nil {
			return err
		}
	}
	partitions, err := o.within(t)
	if err != nil {
		return err
	}
	if err := refuseInside(dest); err != nil {
		return err
	}
	s.notes(e)
	p := &progress{e: e}
	options := log.HandoverOptions{Config: c, Topics: o.topics, Partitions: partitions, Abort: o.abort, Everything: o.everything, Progress: o.progress(p)}
	plan, err := log.PlanHandover(ctx, t.root, dest, options)
	if err != nil {
		return err
	}
	if o.dryRun {
		return o.printPlan(e, plan)
	}
	for _, q := range plan.Partitions {
		o.note(e, q)
	}
	r, err := log.Handover(ctx, t.root, dest, options)
	p.done()
	if refused, ok := errors.AsType[*log.HandoverError](err); ok {
		for _, q := range refused.Problems {
			fmt.Fprintf(e.err, "%s: %s: %s\n", q.TopicPartition, q.Kind, q.Detail)
		}
		return fmt.Errorf("%s against it; nothing was copied (see partlog help handover)", counted(len(refused.Problems), "reason"))
	}
	if err != nil {
		return inUse("the source or the target", err)
	}
	return o.print(e, "handed over", dest, r)
}

// note says what a person should know of a partition.
func (o *handoverFlags) note(e *env, q log.HandoverPartition) {
	if q.Cut < q.LogEnd {
		fmt.Fprintf(e.err, "note: %s: %s above the high watermark are left out\n", q.TopicPartition, span(q.Cut, q.LogEnd))
	}
	if len(q.Open) > 0 && o.abort {
		fmt.Fprintf(e.err, "note: %s: %s aborted\n", q.TopicPartition, counted(len(q.Open), "open transaction"))
	}
}

// handoverInfo is a plan as JSON.
type handoverInfo struct {
	New        bool                   `json:"new"`
	Partitions []handoverPartition    `json:"partitions"`
	Problems   []handoverProblemsInfo `json:"problems"`
}

type handoverPartition struct {
	Partition        string  `json:"partition"`
	TopicID          *string `json:"topicId"`
	LogStartOffset   int64   `json:"logStartOffset"`
	CutOffset        int64   `json:"cutOffset"`
	LogEndOffset     int64   `json:"logEndOffset"`
	Bytes            int64   `json:"bytes"`
	OpenTransactions int     `json:"openTransactions"`
	Replaces         bool    `json:"replaces"`
}

type handoverProblemsInfo struct {
	Partition string `json:"partition"`
	Kind      string `json:"kind"`
	Detail    string `json:"detail"`
}

func (o *handoverFlags) printPlan(e *env, plan log.HandoverPlan) (err error) {
	info := handoverInfo{New: plan.New, Partitions: []handoverPartition{}, Problems: []handoverProblemsInfo{}}
	for _, q := range plan.Partitions {
		at := handoverPartition{q.TopicPartition.String(), nil, q.LogStart, q.Cut, q.LogEnd, q.Bytes, len(q.Open), q.Replaces}
		if q.TopicID != [16]byte{} {
			id := checkpoint.ID(q.TopicID).String()
			at.TopicID = &id
		}
		info.Partitions = append(info.Partitions, at)
		if !o.json && err == nil {
			_, err = fmt.Fprintf(e.out, "%s: %s, %s%s\n", q.TopicPartition, holding(q.LogStart, q.Cut), idOf(at.TopicID), replaces(q.Replaces))
			o.note(e, q)
		}
	}
	for _, q := range plan.Problems {
		info.Problems = append(info.Problems, handoverProblemsInfo{q.TopicPartition.String(), q.Kind, q.Detail})
		if !o.json && err == nil {
			_, err = fmt.Fprintf(e.out, "%s: refused: %s: %s\n", q.TopicPartition, q.Kind, q.Detail)
		}
	}
	if o.json {
		err = json.NewEncoder(e.out).Encode(info)
	}
	if err == nil && len(plan.Problems) > 0 {
		return &exit{code: exitFound}
	}
	return err
}

func idOf(id *string) string {
	if id == nil {
		return "topic id unknown"
	}
	return "topic id " + *id
}

func replaces(yes bool) string {
	if yes {
		return ", in place of an empty one"
	}
	return ""
}
