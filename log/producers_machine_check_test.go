package log

import (
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// outside reads the folder beside the live log.
func (x *writers) outside(t *rapid.T) {
	r, err := OpenReader("t-0", ReaderOptions{FS: x.fs})
	require.NoError(x.t, err)
	o := r.Offsets()
	require.Equal(x.t, [2]int64{x.start, x.end}, [2]int64{o.LogStart, o.LogEnd})
	ok := false
	for _, s := range scansOf(x.puts, o.LogStart) {
		ok = ok || s.stable(o.LastStable, o, replication{highest: o.HighWatermark, reloaded: o.LogEnd})
	}
	require.True(x.t, ok, "%+v", o)
	got, err := offsetsOf(r.Records(ctx, o.LogStart, WithIsolation(ReadCommitted)))
	require.NoError(x.t, err)
	require.Equal(x.t, committed(x.puts, o.LogStart, o.LastStable), got)
	require.NoError(x.t, r.Close())
}

// fetch asks what a broker would: the aborted transactions it lists hide all that must be hidden, and nothing else.
func (x *writers) fetch(t *rapid.T) {
	o := x.Offsets()
	from := o.LogStart + rapid.Int64Range(0, o.LogEnd-o.LogStart).Draw(t, "from")
	f, err := x.Fetch(ctx, from, FetchOptions{Isolation: ReadCommitted, MaxBytes: rapid.Int64Range(1, 600).Draw(t, "bytes")})
	require.NoError(x.t, err)
	var got, want []int64
	next, err := f.NextOffset()
	require.NoError(x.t, err)
	for r, err := range f.Records() {
		require.NoError(x.t, err)
		got = append(got, r.Offset)
	}
	for _, offset := range committed(x.puts, from, o.LastStable) {
		if offset < next {
			want = append(want, offset)
		}
	}
	require.Equal(x.t, want, got)
	require.NoError(x.t, f.Close())
}

// check holds after every step.
func (x *writers) check(*rapid.T) {
	x.steps++
	o := x.Offsets()
	require.Equal(x.t, [2]int64{x.start, x.end}, [2]int64{o.LogStart, o.LogEnd})
	require.True(x.t, o.LogStart <= o.LastStable && o.LastStable <= o.HighWatermark && o.HighWatermark <= o.LogEnd && o.Durable <= o.LogEnd, "%+v", o)
	x.floor = max(x.floor, o.Durable)
	x.repl.highest = max(x.repl.highest, o.HighWatermark)
	x.compareBatches()
	var err error
	x.known, err = compareProducers(x.Log, x.puts, x.repl)
	require.NoError(x.t, err)
	require.NoError(x.t, compareSnapshots(x.Log, x.puts, x.spoiled))
	for id, p := range x.known.producers {
		n, live := x.producers.state.Batches(id), 0
		for _, b := range p.batches {
			if b.base >= x.sure {
				live++
			}
		}
		require.LessOrEqual(x.t, n, min(5, len(p.batches)))
		require.GreaterOrEqual(x.t, n, min(5, max(live, min(1, len(p.batches)))))
	}
	require.Equal(x.t, committed(x.puts, o.LogStart, o.LastStable), x.readAll(o.LogStart, WithIsolation(ReadCommitted)))
	x.checkEpochs()
}

// compareBatches compares the files with the list. Whole segments below the log start may be gone; the list keeps what they
// held, because it says what is known of producers.
func (x *writers) compareBatches() {
	found, err := putsOf(x.Log)
	require.NoError(x.t, err)
	held := x.held()
	require.Equal(x.t, len(held), len(found))
	for i := range found {
		if held[i].leader < 0 {
			held[i].leader = found[i].leader // the log chooses it, once
		}
		require.Equal(x.t, held[i], found[i])
	}
}

// held are the batches whose segments are there.
func (x *writers) held() []put {
	base := x.list.Load().first().Base()
	for i, b := range x.puts {
		if b.base >= base {
			return x.puts[i:]
		}
	}
	return nil
}

// checkEpochs: the leader-epoch cache places every batch that can be read in its own.
func (x *writers) checkEpochs() {
	epochs := x.Epochs()
	for _, b := range x.puts {
		epoch := int32(-1)
		for _, e := range epochs {
			if e.Start <= max(b.base, x.start) {
				epoch = e.Epoch
			}
		}
		if b.last >= x.start {
			require.Equal(x.t, b.leader, epoch, "batch %d, epochs %+v", b.base, epochs)
		}
	}
}
