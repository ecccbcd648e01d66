package interop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/golden"
	"github.com/partlog/partlog/internal/producerstate"
	"github.com/partlog/partlog/log"
	"github.com/partlog/partlog/record"
)

// TestProducersAreJudgedTheSame drives the same random appends of idempotent and transactional producers, markers, rolls,
// truncations, resets, moves of the start, stops, transaction verifications and jumps of the clock, at which producers expire,
// into Kafka's UnifiedLog and into ours, each on a folder of its own, which they exchange now and then. After each step both
// must have accepted, or refused for the same reason, and know the same of producers.
func TestProducersAreJudgedTheSame(t *testing.T) {
	_, d := kafka(t)
	for i, name := range []string{"killed", "records deleted", "both"} {
		t.Run(name, func(t *testing.T) {
			seed := uint64(rounds(t, "PARTLOG_INTEROP_SEED", 5))
			p := &pair{t: t, d: d, r: rand.New(rand.NewPCG(seed, uint64(i))), now: 1_750_000_000_000, roots: [2]string{t.TempDir(), t.TempDir()},
				kills: i != 1, deletes: i != 0, answers: map[string]int{}, newest: map[int64]int16{}}
			p.play(rounds(t, "PARTLOG_INTEROP_STEPS", 150))
			t.Logf("seed %d, the log ends at %d; answers %v", seed, p.seen.LogEndOffset, p.answers)
		})
	}
}

func (p *pair) play(steps int) {
	defer func() {
		if p.t.Failed() {
			p.t.Logf("what happened:\n%s", strings.Join(p.story[max(0, len(p.story)-60):], "\n"))
		}
		p.abandon()
	}()
	p.open()
	for step := range steps {
		p.at = step
		p.step()
		p.compare()
		if step%10 == 9 {
			p.compareCommitted()
		}
	}
	p.compareCommitted()
}

// pair is one partition twice.
type pair struct {
	t     *testing.T
	d     *Driver
	r     *rand.Rand
	now   int64
	roots [2]string // ours, Kafka's

	dir    *log.Dir
	ours   *log.Log
	theirs *UnifiedLog

	seen State // Kafka's, after the last step
	sent []sent
	// kills are stops whose clean marker is lost; deletes move the start. With both nothing is truncated, and the start stays
	// below the end: Kafka forgets a transaction that begins below the start, takes other batches of its producer, and after a
	// kill meets both in the log and does not open it (InvalidTxnStateException).
	kills, deletes bool

	verify  bool // transactions need a guard, since the last open
	guards  []guards
	newest  map[int64]int16 // epoch of each producer since the log was emptied: see renewed
	loose   bool            // an unclean start: ours may remember more batches, and what records below the start say
	epoch   int32
	at      int
	story   []string
	answers map[string]int
}

// guards are what both gave out for one verification.
type guards struct {
	id     int64
	ours   log.TxnGuard
	theirs int
}

// expiry is producer.id.expiration.ms: after hours of the test's clock, which is days of its steps.
const expiry = 3 * 60 * 60 * 1000

func (p *pair) note(format string, a ...any) {
	p.story = append(p.story, fmt.Sprintf("%4d ", p.at)+fmt.Sprintf(format, a...))
}

func pairConfig() map[string]string {
	return map[string]string{"segment.bytes": "4194304", "segment.index.bytes": "120000", "index.interval.bytes": "300", "retention.ms": "-1"}
}

func (p *pair) open() {
	t := p.t
	c, err := log.ParseConfig(pairConfig())
	require.NoError(t, err)
	c.Durability, c.ProducerExpiry = log.Buffered, expiry*time.Millisecond
	p.verify, p.guards = p.r.IntN(2) == 0, nil
	p.dir, err = log.OpenDir(p.roots[0], log.DirConfig{Now: func() time.Time { return time.UnixMilli(p.now) }})
	require.NoError(t, err)
	p.ours, err = p.dir.Open(context.Background(), log.TopicPartition{Topic: "pair"}, c)
	require.NoError(t, err)
	p.theirs, err = p.d.Open(OpenOptions{Root: p.roots[1], Topic: "pair", Config: pairConfig(), NowMs: p.now, ProducerExpirationMs: expiry, Verify: p.verify})
	require.NoError(t, err)
	p.epoch++
	require.NoError(t, p.ours.AssignEpoch(p.epoch))
	require.NoError(t, p.theirs.AssignEpoch(p.epoch, p.theirs.Opened.LogEndOffset))
	p.expire(lookEvery)
	p.compare()
}

// lookEvery is producer.id.expiration.check.interval.ms.
const lookEvery = 10 * 60 * 1000

// expire moves the clock by at least lookEvery, and both look for what expired. Ours does so with the next append or
// verification, and besides whenever it has read batches again, where Kafka waits for its timer: so this comes after each such
// reading, too.
func (p *pair) expire(later int64) {
	p.now += later
	require.NoError(p.t, p.theirs.SetClock(p.now))
	require.NoError(p.t, p.theirs.ExpireProducers())
	p.ours.VerifyTransaction(math.MaxInt64, 0, 0, false) // no test's producer
}

func (p *pair) abandon() {
	if p.dir != nil {
		_ = p.dir.Close()
	}
	if p.theirs != nil {
		_ = p.theirs.Abandon()
	}
}

// reopen stops both cleanly and starts them again, maybe on each other's folder, maybe as if they had been killed.
func (p *pair) reopen() {
	t := p.t
	if p.deletes && p.seen.LogStartOffset == p.seen.LogEndOffset { // Kafka forgets all producers: see README.md
		return
	}
	require.NoError(t, p.dir.Close())
	require.NoError(t, p.theirs.Close())
	require.Equal(t, p.snapshots(1), p.snapshots(0), "snapshots")
	if p.r.IntN(2) == 0 {
		p.roots[0], p.roots[1] = p.roots[1], p.roots[0]
		p.note("folders exchanged")
	}
	p.loose = p.kills && p.seen.LogStartOffset < p.seen.LogEndOffset && p.r.IntN(4) == 0
	if p.loose {
		p.note("markers of the clean stop removed")
		gone := p.r.IntN(2) == 0
		for _, root := range p.roots {
			require.NoError(t, os.Remove(filepath.Join(root, ".kafka_cleanshutdown")))
			if gone {
				require.NoError(t, os.Remove(filepath.Join(root, "recovery-point-offset-checkpoint")))
			}
		}
	}
	p.open()
	if p.loose { // what ours knows more goes with a stop, or both go on with it
		if !p.deletes {
			p.compareCommitted()
		}
		require.NoError(t, p.dir.Close())
		require.NoError(t, p.theirs.Close())
		if p.deletes {
			require.NoError(t, os.RemoveAll(p.roots[1]))
			require.NoError(t, os.CopyFS(p.roots[1], os.DirFS(p.roots[0])))
		}
		p.loose = false
		p.open()
	}
}

func (p *pair) snapshots(i int) map[string][]producerstate.Entry {
	all := map[string][]producerstate.Entry{}
	names, err := filepath.Glob(filepath.Join(p.roots[i], "pair-0", "*.snapshot"))
	require.NoError(p.t, err)
	for _, name := range names {
		b, err := os.ReadFile(name)
		require.NoError(p.t, err)
		entries, err := producerstate.Decode(name, b)
		require.NoError(p.t, err)
		slices.SortFunc(entries, func(a, b producerstate.Entry) int { return cmp.Compare(a.ProducerID, b.ProducerID) })
		entries = slices.DeleteFunc(entries, func(e producerstate.Entry) bool { // they are not loaded; some Kafka writes, others ours
			return e.TxnFirstOffset < 0 && e.Timestamp <= p.now-expiry
		})
		offset, ok := producerstate.Offset(filepath.Base(name))
		require.True(p.t, ok)
		if len(entries) > 0 && offset > p.seen.LogStartOffset { // others say no more than none: an open drops them
			all[filepath.Base(name)] = entries
		}
	}
	return all
}

func (p *pair) step() {
	p.now += p.r.Int64N(500)
	require.NoError(p.t, p.theirs.SetClock(p.now))
	ctx, start, end := context.Background(), p.seen.LogStartOffset, p.seen.LogEndOffset
	switch what := p.r.IntN(108); {
	case what >= 106:
		p.expire(p.someTime())
		p.note("the clock jumps to %d", p.now)
	case what >= 100:
		p.ask(p.someBatch())
	case what < 50:
		p.send(p.someBatch())
	case what < 74:
		p.end()
	case what < 78:
		p.follow()
	case what < 84:
		p.note("roll at %d", end)
		require.NoError(p.t, p.ours.Roll(ctx))
		_, err := p.theirs.Roll()
		require.NoError(p.t, err)
		require.NoError(p.t, p.ours.Sync(ctx)) // as Kafka's driver does at a roll: the snapshot is written
	case what < 88 && !(p.kills && p.deletes):
		bases := p.bases()
		if len(bases) == 0 || len(p.seen.Producers) == 0 { // Kafka reads nothing if it knows nobody: see README.md
			return
		}
		to := bases[max(0, len(bases)-1-p.r.IntN(12))]
		if p.r.IntN(8) == 0 {
			to = bases[p.r.IntN(len(bases))]
		}
		if p.deletes && !p.startsAbove(to) {
			return
		}
		p.note("truncate %d to %d", end, to)
		got, err := p.ours.Truncate(ctx, to)
		require.NoError(p.t, err)
		require.Equal(p.t, to, got)
		_, err = p.theirs.TruncateTo(to)
		require.NoError(p.t, err)
		if to < end {
			p.expire(lookEvery)
		}
	case what < 91 && p.deletes:
		to := start + p.r.Int64N(min(end-start, 10)+1)
		if p.r.IntN(5) == 0 {
			to = end - p.r.Int64N(min(end-start, 5)+1)
		}
		if p.kills {
			to = max(start, min(to, end-1))
		}
		p.note("start to %d", to)
		require.NoError(p.t, p.ours.DeleteRecords(ctx, to))
		_, err := p.theirs.DeleteRecords(to)
		require.NoError(p.t, err)
	case what < 92 && p.r.IntN(4) == 0:
		to := end + p.r.Int64N(20)
		p.note("reset to %d", to)
		require.NoError(p.t, p.ours.ResetTo(ctx, to))
		require.NoError(p.t, p.theirs.TruncateFullyAndStartAt(to))
		clear(p.newest)
	case what < 96:
		p.note("stop at %d", end)
		p.reopen()
	default:
		p.send(sent{record.Producer{ID: -1, Epoch: -1, BaseSequence: -1}, 1 + p.r.IntN(3)})
	}
}

// startsAbove says whether both take the state below an offset from a snapshot above the start, and neither from what the other
// does not look at: see README.md.
func (p *pair) startsAbove(to int64) bool {
	names, err := filepath.Glob(filepath.Join(p.roots[0], "pair-0", "*.snapshot"))
	require.NoError(p.t, err)
	return slices.ContainsFunc(names, func(name string) bool {
		offset, ok := producerstate.Offset(filepath.Base(name))
		return ok && offset > p.seen.LogStartOffset && offset <= to
	})
}

// someTime is how far the clock jumps: at times exactly so far that a producer expires, or a millisecond less.
func (p *pair) someTime() int64 {
	if all := p.seen.Producers; len(all) > 0 && p.r.IntN(2) == 0 {
		if d := all[p.r.IntN(len(all))].LastTimestamp + expiry - p.now - p.r.Int64N(2); d >= lookEvery {
			return d
		}
	}
	return lookEvery + p.r.Int64N(expiry/3)
}

// ask begins the verification of a transaction that the batch would begin.
func (p *pair) ask(s sent) guards {
	if s.p.ID < 0 {
		return guards{}
	}
	bumps := p.r.IntN(2) == 0
	g := guards{id: s.p.ID, ours: p.ours.VerifyTransaction(s.p.ID, s.p.Epoch, s.p.BaseSequence, bumps)}
	var err error
	g.theirs, err = p.theirs.Verify(s.p.ID, s.p.Epoch, s.p.BaseSequence, bumps)
	var stale *KafkaError
	if errors.As(err, &stale) && stale.Class == "InvalidProducerEpochException" && s.p.Epoch < p.known(s.p.ID).Epoch {
		err = nil // ours says so to the batch
	}
	require.NoError(p.t, err)
	p.note("verify %+v, bumps %v: guard %d", s.p, bumps, g.theirs)
	require.Equal(p.t, g.theirs == 0, g.ours == log.TxnGuard{}, "no guard is needed")
	for _, before := range p.guards {
		require.Equal(p.t, before.theirs == g.theirs, before.ours == g.ours, "the guard of an earlier question")
	}
	if g.theirs != 0 {
		p.guards = append(p.guards, g)
	}
	p.answers["verification"]++
	return g
}

// guard is what goes with a batch: mostly the right guard, at times none, or one of another time or producer.
func (p *pair) guard(s sent) (g guards) {
	if !p.verify || !s.p.Transactional {
		return g
	}
	if p.r.IntN(8) > 0 {
		if p.known(s.p.ID).TxnFirstOffset < 0 || p.r.IntN(4) == 0 {
			g = p.ask(s)
		}
		if p.r.IntN(12) > 0 {
			return g
		}
	}
	if n := len(p.guards); n > 0 && p.r.IntN(3) > 0 {
		return p.guards[max(0, n-1-p.r.IntN(6))]
	}
	return guards{}
}

// known is what Kafka knows of a producer.
func (p *pair) known(id int64) golden.ProducerFacts {
	for _, f := range p.seen.Producers {
		if f.ProducerID == id {
			return f
		}
	}
	return golden.ProducerFacts{ProducerID: id, Epoch: -1, LastSequence: -1, CoordinatorEpoch: -1, TxnFirstOffset: -1}
}

// renewed raises an epoch to the newest that a producer had before it was forgotten. Where the log has batches that go back in
// epoch, Kafka compares those before and after a segment that it replays, and remembers batches across.
func (p *pair) renewed(id int64, epoch int16) int16 {
	if p.known(id).Epoch < 0 {
		return max(epoch, p.newest[id])
	}
	return epoch
}
