package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/partlog/partlog/log"
)

// stateCommand is a verb that shows a part of what a log opened here would know, over a view in memory.
type stateCommand struct {
	name, summary, help string
	timed               bool // the answer depends on the time: it has --now
	show                func(out io.Writer, l *log.Log, asJSON bool) error
}

func (s stateCommand) command() *command {
	return &command{
		name: s.name, args: "DIR", summary: s.summary, help: s.help,
		setup: func(fl *flag.FlagSet) func(context.Context, *env, []string) error {
			asJSON := fl.Bool("json", false, "one JSON object a line")
			now := &millis{}
			if s.timed {
				now = nowFlag(fl)
			}
			configs := configFlag(fl)
			return func(ctx context.Context, e *env, args []string) error {
				if err := want(args, "DIR"); err != nil {
					return err
				}
				c, err := configs.config()
				if err != nil {
					return err
				}
				t, err := lookAt(args[0])
				if err != nil {
					return err
				}
				tp, err := t.one()
				if err != nil {
					return err
				}
				return viewed(ctx, e, t, tp, c, now.clock(), func(l *log.Log) error { return s.show(e.out, l, *asJSON) })
			}
		},
	}
}

const viewedHelp = `
It opens the log as a writer would, over a copy-on-write view in memory: no byte changes, no lock is taken, and it works
beside a broker. DIR is a partition folder, or a log root that holds exactly one.`

func producersCommand() *command {
	return stateCommand{
		name: "producers", summary: "idempotent and transactional producers that the log knows", timed: true,
		help: `Lists the producers that a log knows: those whose last record is younger than producer.id.expiration.ms (a day), and
those with an open transaction. The offset is that of the producer's last record, the sequence that of its last record
in this epoch; - is none.
` + viewedHelp + `

  partlog producers orders-0
  partlog producers orders-0 --json | jq 'select(.txnFirstOffset >= 0)'`,
		show: func(out io.Writer, l *log.Log, asJSON bool) error {
			all := describeProducers(l)
			if asJSON {
				return eachJSON(out, all)
			}
			w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
			fmt.Fprintln(w, "producer\tepoch\tlast sequence\tlast offset\tlast time\tcoordinator epoch\ttransaction since")
			for _, p := range all {
				fmt.Fprintf(w, "%d\t%d\t%s\t%s\t%s\t%s\t%s\n", p.ProducerID, p.Epoch, orDash(int64(p.LastSequence)), orDash(p.LastOffset), momentOf(p.LastTimestamp),
					orDash(int64(p.CoordinatorEpoch)), orDash(p.TxnFirstOffset))
			}
			return w.Flush()
		},
	}.command()
}

func transactionsCommand() *command {
	return stateCommand{
		name: "transactions", summary: "open transactions, with their age", timed: true,
		help: `Lists the open transactions of a log, the oldest first: it holds the last stable offset back, and with it every
read-committed reader. The age counts from the transaction's last record. One that is older than its producer's
transaction.timeout.ms hangs: "partlog append DIR --from /dev/null --txn ID:EPOCH --end abort" ends it, if no broker runs.
` + viewedHelp + `

  partlog transactions orders-0`,
		show: func(out io.Writer, l *log.Log, asJSON bool) error {
			var all []transactionInfo
			for _, t := range l.OpenTransactions() {
				info := transactionInfo{t.ProducerID, t.Epoch, t.FirstOffset, t.LastOffset, t.LastTimestamp, nil}
				if t.Age >= 0 {
					ms := t.Age.Milliseconds()
					info.AgeMs = &ms
				}
				all = append(all, info)
			}
			if asJSON {
				return eachJSON(out, all)
			}
			w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
			fmt.Fprintln(w, "producer\tepoch\tfirst offset\tlast offset\tlast time\tage")
			for _, t := range all {
				age := "-"
				if t.AgeMs != nil {
					age = (time.Duration(*t.AgeMs) * time.Millisecond).String()
				}
				fmt.Fprintf(w, "%d\t%d\t%d\t%s\t%s\t%s\n", t.ProducerID, t.Epoch, t.FirstOffset, orDash(t.LastOffset), momentOf(t.LastTimestamp), age)
			}
			return w.Flush()
		},
	}.command()
}

func epochsCommand() *command {
	return stateCommand{
		name: "epochs", summary: "leader epochs and where they begin",
		help: `Lists the leader epochs of a log and the offset of the first record of each.
` + viewedHelp + `

  partlog epochs orders-0`,
		show: func(out io.Writer, l *log.Log, asJSON bool) error {
			var all []epochInfo
			for _, ep := range l.Epochs() {
				all = append(all, epochInfo{ep.Epoch, ep.Start})
			}
			if asJSON {
				return eachJSON(out, all)
			}
			w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
			fmt.Fprintln(w, "epoch\tfirst offset")
			for _, ep := range all {
				fmt.Fprintf(w, "%d\t%d\n", ep.Epoch, ep.StartOffset)
			}
			return w.Flush()
		},
	}.command()
}

type producerInfo struct {
	ProducerID       int64 `json:"producerId"`
	Epoch            int16 `json:"epoch"`
	LastSequence     int32 `json:"lastSequence"`
	LastOffset       int64 `json:"lastOffset"`
	LastTimestamp    int64 `json:"lastTimestamp"`
	CoordinatorEpoch int32 `json:"coordinatorEpoch"`
	TxnFirstOffset   int64 `json:"txnFirstOffset"`
	CachedBatches    int   `json:"cachedBatches"`
}

type transactionInfo struct {
	ProducerID    int64  `json:"producerId"`
	Epoch         int16  `json:"epoch"`
	FirstOffset   int64  `json:"firstOffset"`
	LastOffset    int64  `json:"lastOffset"`
	LastTimestamp int64  `json:"lastTimestamp"`
	AgeMs         *int64 `json:"ageMs"`
}

type abortedInfo struct {
	ProducerID       int64 `json:"producerId"`
	FirstOffset      int64 `json:"firstOffset"`
	LastOffset       int64 `json:"lastOffset"`
	LastStableOffset int64 `json:"lastStableOffset"`
}

func describeProducers(l *log.Log) []producerInfo {
	all := []producerInfo{}
	for _, p := range l.Producers() {
		all = append(all, producerInfo{p.ID, p.Epoch, p.LastSequence, p.LastOffset, p.LastTimestamp, p.CoordinatorEpoch, p.TxnStart, p.Batches})
	}
	return all
}

func eachJSON[T any](out io.Writer, all []T) error {
	enc := json.NewEncoder(out)
	for _, v := range all {
		if err := enc.Encode(v); err != nil {
			return err
		}
	}
	return nil
}

func orDash(n int64) string {
	if n < 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

func momentOf(ms int64) string {
	if ms < 0 {
		return "-"
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
}
