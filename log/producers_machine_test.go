package log

import (
	flags "flag"
	"fmt"
	"math"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/partlog/partlog/record"
	"github.com/partlog/partlog/vfs/vfstest"
)

// stepsVariable says how many steps TestProducersAreWhatAScanOfTheLogSays does; without it they are a few thousand.
const stepsVariable = "PARTLOG_TEST_PRODUCER_STEPS"

// writers is a log that producers write to, kill and reopen, above a disk that can lose power, and the list of batches that
// it must hold. What producers, transactions and readers should see is found by reading that list from its start.
type writers struct {
	*bed
	disk    *vfstest.Crash
	puts    []put
	end     int64 // log end
	start   int64 // log start
	floor   int64 // below it a power loss takes nothing
	repl    replication
	known   *scan          // of puts, as the state has it
	sure    int64          // batches at and above it were seen by the state that is in memory
	spoiled map[int64]bool // snapshots that were damaged
	recent  *handle
	sent    map[int64][]sending
	handles map[int64]*handle
	asked   map[int64]*asked
	listed  []OpenTransaction
	serial  int
	steps   int
}

// sending is a batch as a client hands it in.
type sending struct {
	record.Producer
	n int // records
}

// handle is a Producer and what it should have in mind.
type handle struct {
	p       *Producer
	id      int64
	epoch   int16
	begun   bool
	refused error // why records of the transaction were; it is not to be committed
}

func (x *writers) values(n int) []record.Record {
	x.serial++
	recs := make([]record.Record, n)
	for i := range recs {
		recs[i] = record.Record{Timestamp: x.clock.ms.Load(), Value: fmt.Appendf(nil, "%d.", x.serial)}
	}
	return recs
}

// note adds a batch to the list. The leader epoch is the one that the log gave it.
func (x *writers) note(b put) {
	if b.id >= 0 && !b.marker {
		b.ends = after(b.first, int(b.last-b.base))
	}
	x.puts = append(x.puts, b)
	x.end = b.last + 1
}

func (x *writers) noteSending(base int64, s sending) {
	x.note(put{base: base, last: base + int64(s.n) - 1, leader: -1, id: s.ID, epoch: s.Epoch, first: s.BaseSequence, txn: s.Transactional,
		coordinator: -1, time: x.clock.ms.Load(), value: fmt.Sprintf("%d.", x.serial)})
	if s.Transactional {
		delete(x.asked, s.ID)
	}
}

func (x *writers) noteMarker(base, id int64, epoch int16, commit bool, coordinator int32) {
	x.note(put{base: base, last: base, leader: -1, id: id, epoch: epoch, first: -1, ends: -1, txn: true, marker: true, commit: commit, coordinator: coordinator,
		time: x.clock.ms.Load(), value: "\x00\x00" + string([]byte{byte(coordinator >> 24), byte(coordinator >> 16), byte(coordinator >> 8), byte(coordinator)})})
	x.endAsked(id, epoch)
}

// remembered are the batches of a producer whose repetition is recognised: how many of them survive a reload is the log's
// affair, within bounds that check sees to.
func (x *writers) remembered(p *scanned) []put {
	n := x.producers.state.Batches(p.id)
	return p.batches[len(p.batches)-n:]
}

// judge is what a leader answers to a client, by the rules of the protocol: the batch that is repeated, or an error, or
// neither.
func (x *writers) judge(s sending, o AppendOptions) (repeats *put, err error) {
	p := x.known.producers[s.ID]
	if p != nil && p.epoch == s.Epoch {
		for _, b := range x.remembered(p) {
			if b.first == s.BaseSequence && b.ends == after(s.BaseSequence, s.n-1) {
				return &b, nil
			}
		}
	}
	if err := x.judgeGuard(p, s, o); err != nil {
		return nil, err
	}
	if p != nil && s.Epoch < p.epoch {
		return nil, ErrFenced
	}
	if err := x.judgeAsked(p, s); err != nil {
		return nil, err
	}
	if p == nil {
		return nil, nil
	}
	want := int32(0)
	if n := len(p.batches); n > 0 && s.Epoch == p.epoch {
		want = after(p.batches[n-1].ends, 1)
	}
	if s.BaseSequence != want {
		return nil, ErrOutOfOrder
	}
	if p.txn >= 0 && !s.Transactional {
		return nil, ErrTxnState
	}
	return nil, nil
}

// client sends a batch and compares the answer.
func (x *writers) client(s sending, o AppendOptions) {
	repeats, refused := x.judge(s, o)
	before := x.Offsets().LogEnd
	res, err := x.AppendBatches(ctx, produced(s.Producer, x.values(s.n)...), o)
	if x.unsure(s, err) {
		return
	}
	if refused != nil {
		require.ErrorIs(x.t, err, refused, "%+v after %+v", s, x.known.producers[s.ID])
		require.Equal(x.t, notAppended, res)
		require.Equal(x.t, before, x.Offsets().LogEnd)
		return
	}
	require.NoError(x.t, err, "%+v after %+v", s, x.known.producers[s.ID])
	if repeats != nil {
		require.True(x.t, res.Duplicate, "%+v after %+v", s, x.known.producers[s.ID])
		require.Equal(x.t, [2]int64{repeats.base, repeats.last}, [2]int64{res.Base, res.Last})
		require.Equal(x.t, before, x.Offsets().LogEnd)
		return
	}
	require.False(x.t, res.Duplicate)
	require.Equal(x.t, before, res.Base)
	x.noteSending(res.Base, s)
	x.keep(s)
}

// keep notes what was accepted, so that it can be sent again.
func (x *writers) keep(s sending) {
	all := append(x.sent[s.ID], s)
	x.sent[s.ID] = all[max(0, len(all)-10):]
}

func anID(t *rapid.T) int64 { return rapid.Int64Range(1, 4).Draw(t, "id") }

// next is what a well-behaved producer sends.
func (x *writers) next(t *rapid.T, id int64) sending {
	s := sending{record.Producer{ID: id, Transactional: rapid.Bool().Draw(t, "transactional")}, rapid.IntRange(1, 3).Draw(t, "records")}
	if p := x.known.producers[id]; p != nil {
		s.Epoch, s.Transactional = p.epoch, s.Transactional || p.txn >= 0
		if n := len(p.batches); n > 0 {
			s.BaseSequence = after(p.batches[n-1].ends, 1)
		}
	}
	return s
}

func (x *writers) options(t *rapid.T) AppendOptions {
	return AppendOptions{Durability: rapid.SampledFrom([]Durability{Inherit, Inherit, Buffered, Durable}).Draw(t, "durability")}
}

func (x *writers) send(t *rapid.T) { x.client(x.next(t, anID(t)), x.options(t)) }

func (x *writers) sendInANewEpoch(t *rapid.T) {
	s := x.next(t, anID(t))
	s.Epoch, s.BaseSequence = s.Epoch+int16(rapid.IntRange(1, 2).Draw(t, "epochs")), 0
	x.client(s, x.options(t))
}

// sendAgain repeats the last accepted batch, or an older one, maybe of an epoch that is over or of a history that is lost.
func (x *writers) sendAgain(t *rapid.T) {
	all := x.sent[anID(t)]
	if len(all) == 0 {
		return
	}
	back := rapid.IntRange(0, len(all)-1).Draw(t, "back")
	x.client(all[len(all)-1-back], x.options(t))
}

// sendOdd sends what no producer should.
func (x *writers) sendOdd(t *rapid.T) {
	s := x.next(t, anID(t))
	switch rapid.IntRange(0, 5).Draw(t, "what") {
	case 0: // a gap
		s.BaseSequence = after(s.BaseSequence, rapid.IntRange(1, 3).Draw(t, "gap"))
	case 1: // an overlap
		s.BaseSequence = int32(max(0, int64(s.BaseSequence)-1))
	case 2: // a zombie
		s.Epoch = max(0, s.Epoch-1)
	case 3: // a new epoch that goes on counting
		s.Epoch++
	case 4: // out of its transaction, or into one
		s.Transactional = !s.Transactional
	case 5: // a sequence near the end, which only an unknown producer may begin with
		s.BaseSequence = math.MaxInt32 - int32(rapid.IntRange(0, 3).Draw(t, "left"))
	}
	x.client(s, x.options(t))
}

// sendUnknown begins with any sequence, often near the largest, so that the next ones go round.
func (x *writers) sendUnknown(t *rapid.T) {
	for id := int64(1); id <= 7; id++ {
		if x.known.producers[id] == nil {
			s := x.next(t, id)
			s.BaseSequence = rapid.SampledFrom([]int32{7, math.MaxInt32 - 2, math.MaxInt32 - 1, math.MaxInt32}).Draw(t, "sequence")
			x.client(s, x.options(t))
			return
		}
	}
}

func (x *writers) plain(t *rapid.T) {
	base, err := x.Append(ctx, x.values(rapid.IntRange(1, 3).Draw(t, "records"))...)
	require.NoError(x.t, err)
	n := x.Offsets().LogEnd - base
	x.note(put{base: base, last: base + n - 1, leader: -1, id: -1, epoch: -1, first: -1, coordinator: -1, time: x.clock.ms.Load(), value: fmt.Sprintf("%d.", x.serial)})
}

// replicate appends what another leader wrote: any batches of any producers, markers among them, are taken as they are.
func (x *writers) replicate(t *rapid.T) {
	var raw []byte
	var notes []func()
	at := x.end
	for range rapid.IntRange(1, 4).Draw(t, "batches") {
		at += rapid.SampledFrom([]int64{0, 0, 0, 2}).Draw(t, "gap")
		s, base := x.next(t, anID(t)), at
		s.Epoch = max(0, s.Epoch+rapid.SampledFrom([]int16{0, 0, 0, 1, -1}).Draw(t, "epochs"))
		s.BaseSequence = after(s.BaseSequence, rapid.SampledFrom([]int{0, 0, 0, 5}).Draw(t, "gap in the sequence"))
		var b record.Batch
		if rapid.IntRange(0, 2).Draw(t, "marker") == 0 {
			commit, coordinator := rapid.Bool().Draw(t, "commit"), rapid.Int32Range(0, 5).Draw(t, "coordinator")
			b = record.Marker(commit, s.Producer, coordinator, x.clock.now())
			notes = append(notes, func() { x.noteMarker(base, s.ID, s.Epoch, commit, coordinator) })
		} else {
			s.Transactional = rapid.Bool().Draw(t, "transactional")
			recs := x.values(s.n)
			serial := x.serial
			var err error
			b, err = record.View(produced(s.Producer, recs...))
			require.NoError(x.t, err)
			notes = append(notes, func() { x.serial = serial; x.noteSending(base, s) })
		}
		b.SetBaseOffset(at)
		b.SetLeaderEpoch(x.leader())
		raw = append(raw, b.Bytes()...)
		at = b.NextOffset()
	}
	serial := x.serial
	_, err := x.follow(raw)
	require.NoError(x.t, err)
	for _, note := range notes {
		note()
	}
	x.serial = serial
}

// leader is the epoch that a leader writes in: the latest, also of batches that were deleted but are still there.
func (x *writers) leader() int32 {
	latest := max(0, x.Offsets().LeaderEpoch)
	for _, b := range x.puts {
		latest = max(latest, b.leader)
	}
	return latest
}

func (x *writers) roll(t *rapid.T) { require.NoError(x.t, x.Roll(ctx)) }
func (x *writers) sync(t *rapid.T) { require.NoError(x.t, x.Sync(ctx)) }

func (x *writers) assignEpoch(t *rapid.T) {
	require.NoError(x.t, x.AssignEpoch(x.leader()+1))
}

func (x *writers) passTime(t *rapid.T) {
	x.clock.advance(time.Duration(rapid.IntRange(1, 3).Draw(t, "seconds")) * time.Second)
}

// truncate cuts at a batch, in it, or in a gap; sometimes below all there is.
func (x *writers) truncate(t *rapid.T) {
	base := x.list.Load().first().Base()
	at := max(0, x.end-rapid.Int64Range(0, 12).Draw(t, "back"))
	if rapid.IntRange(0, 19).Draw(t, "below the first") == 0 {
		at = max(0, base-1)
	}
	end, err := x.Truncate(ctx, at)
	require.NoError(x.t, err)
	if at >= x.end {
		require.Equal(x.t, x.end, end)
		return
	}
	for len(x.puts) > 0 && x.puts[len(x.puts)-1].last >= at {
		at = min(at, x.puts[len(x.puts)-1].base)
		x.puts = x.puts[:len(x.puts)-1]
	}
	require.LessOrEqual(x.t, end, at)
	if n := len(x.puts); n > 0 {
		require.Greater(x.t, end, x.puts[n-1].last)
	}
	x.cut(end)
}

// cut follows a truncation to end.
func (x *writers) cut(end int64) {
	x.end, x.start, x.floor = end, min(x.start, end), min(x.floor, end)
	x.repl = replication{highest: min(x.repl.highest, end), reloaded: end}
	x.sure = end
	x.askAgain()
}

func (x *writers) resetTo(t *rapid.T) {
	if rapid.IntRange(0, 2).Draw(t, "really") > 0 {
		return
	}
	at := max(0, x.end+rapid.Int64Range(-9, 9).Draw(t, "to"))
	require.NoError(x.t, x.ResetTo(ctx, at))
	x.puts, x.start = nil, at
	x.cut(at)
	x.floor = at
}

func (x *writers) deleteRecords(t *rapid.T) {
	o := x.Offsets()
	at := o.LogStart + rapid.Int64Range(0, min(6, o.HighWatermark-o.LogStart)).Draw(t, "records")
	require.NoError(x.t, x.DeleteRecords(ctx, at))
	x.start = max(x.start, at)
}

func (x *writers) show(t *rapid.T) {
	if x.cfg.Visibility != External {
		return
	}
	o := x.Offsets()
	_, err := x.SetHighWatermark(o.HighWatermark + rapid.Int64Range(-2, 9).Draw(t, "by"))
	require.NoError(x.t, err)
}

func TestProducersAreWhatAScanOfTheLogSays(t *testing.T) {
	steps, checks := "40", "100"
	if testing.Short() || raceEnabled {
		checks = "15"
	}
	if n, err := strconv.Atoi(os.Getenv(stepsVariable)); err == nil {
		steps, checks = "100", fmt.Sprint(1+n/100)
	}
	setFlag(t, "rapid.steps", steps)
	setFlag(t, "rapid.checks", checks)
	done := 0
	defer func() { t.Logf("%d steps", done) }()
	rapid.Check(t, func(t *rapid.T) {
		c := Config{
			SegmentBytes: rapid.SampledFrom([]int64{500, 900, 1 << 20}).Draw(t, "segment"),
			Durability:   rapid.SampledFrom([]Durability{Durable, Buffered}).Draw(t, "durability"),
			Visibility:   rapid.SampledFrom([]Visibility{WhenAcknowledged, WhenAcknowledged, External}).Draw(t, "visibility"),
		}
		x := &writers{bed: &bed{t: t, cfg: c, clock: &clock{}}, sent: map[int64][]sending{}, spoiled: map[int64]bool{}}
		x.clock.ms.Store(epoch2023)
		x.boot(vfstest.NewCrash(vfstest.CrashOptions{Now: x.clock.now}))
		defer func() {
			done += x.steps
			_ = x.dir.Close()
		}()
		t.Repeat(map[string]func(*rapid.T){
			"":                     x.check,
			"send":                 x.send,
			"send more":            x.send,
			"send yet more":        x.send,
			"send in a new epoch":  x.sendInANewEpoch,
			"send again":           x.sendAgain,
			"send again soon":      x.sendAgain,
			"send odd":             x.sendOdd,
			"send unknown":         x.sendUnknown,
			"plain":                x.plain,
			"replicate":            x.replicate,
			"end":                  x.endTxn,
			"end well":             x.endWell,
			"end what is open":     x.endOpen,
			"handle":               x.handle,
			"handle sends":         x.handleSends,
			"handle begins":        x.handleBegins,
			"handle ends":          x.handleEnds,
			"ask":                  x.ask,
			"begin what was asked": x.beginAsked,
			"roll":                 x.roll,
			"sync":                 x.sync,
			"assign epoch":         x.assignEpoch,
			"time":                 x.passTime,
			"truncate":             x.truncate,
			"reset":                x.resetTo,
			"delete records":       x.deleteRecords,
			"show":                 x.show,
			"outside":              x.outside,
			"fetch":                x.fetch,
			"reopen":               x.reopen,
			"crash":                x.crash,
		})
	})
}

// setFlag sets a flag of the test binary for this test, unless the command line gave it.
func setFlag(t *testing.T, name, value string) {
	given := false
	flags.Visit(func(f *flags.Flag) { given = given || f.Name == name })
	if given {
		return
	}
	before := flags.Lookup(name).Value.String()
	require.NoError(t, flags.Set(name, value))
	t.Cleanup(func() { require.NoError(t, flags.Set(name, before)) })
}
