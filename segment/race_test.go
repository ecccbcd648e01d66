package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/partlog/partlog/record"

	"github.com/stretchr/testify/require"
)

// Design reason D19: while one goroutine appends and truncates, readers see whole batches in order, or ErrChanged; never
// a corruption that is not there.
func TestReadersBesideAppendsAndTruncations(t *testing.T) {
	for _, where := range []string{"memory", "disk"} {
		t.Run(where, func(t *testing.T) {
			o := Options{FS: memFS(t), IndexIntervalBytes: 300}
			if where == "disk" {
				o.FS = osFS(t)
			}
			s := create(t, 0, o)
			stop := make(chan struct{})
			var wg sync.WaitGroup
			var reads, changed atomic.Int64
			reader := func(seed uint64) {
				defer wg.Done()
				r := rand.New(rand.NewPCG(seed, seed))
				for {
					select {
					case <-stop:
						return
					default:
					}
					err := readSome(s, r)
					reads.Add(1)
					if errors.Is(err, ErrChanged) {
						changed.Add(1)
					} else if err != nil {
						t.Errorf("reader: %v", err)
						return
					}
				}
			}
			for i := range uint64(4) {
				wg.Add(1)
				go reader(i)
			}
			write(t, s, time.Second)
			close(stop)
			wg.Wait()
			t.Logf("%d reads, %d of them met a truncation", reads.Load(), changed.Load())
			require.Equal(t, Clean, recoverAll(t, s).Verdict)
		})
	}
}

// write appends and truncates. Each round of offsets gets another value, so that mixed bytes would show.
func write(t *testing.T, s *Segment, d time.Duration) {
	r := rand.New(rand.NewPCG(9, 9))
	round := int64(0)
	for end := time.Now().Add(d); time.Now().Before(end); round++ {
		next, err := s.NextOffset()
		require.NoError(t, err)
		for range r.IntN(40) {
			n := 1 + r.IntN(3)
			value := bytes.Repeat(binary.BigEndian.AppendUint64(nil, uint64(round)), 1+r.IntN(20))
			add(t, s, batchOf(t, next, n, next+1, string(value)))
			next += int64(n)
		}
		switch r.IntN(6) {
		case 0:
			_, err = s.Truncate(max(next-int64(r.IntN(60)), 0))
		case 1:
			err = s.Park()
		case 2:
			if err = s.Seal(ctx); err == nil {
				_, err = s.Truncate(max(next-1, 0))
			}
		case 3:
			_, err = s.Truncate(0)
		case 4:
			err = s.Sync()
		case 5:
			_, err = s.Recover(ctx, ScanOptions{})
		}
		require.NoError(t, err)
	}
}

func readSome(s *Segment, r *rand.Rand) error {
	next := max(s.Info().NextOffset, 1)
	offset := r.Int64N(next)
	switch r.IntN(4) {
	case 0:
		p, err := s.Find(offset)
		if err == nil && p.LastOffset < offset {
			return errors.New("found a batch that ends too early")
		}
		return found(err)
	case 1:
		_, err := s.FindTime(offset, 0)
		return found(err)
	case 2:
		g, err := s.Region(offset, 1<<16, math.MaxInt64, true)
		if err != nil {
			return found(err)
		}
		defer g.Close()
		b := make([]byte, g.Len())
		if _, err := g.ReadAt(b, 0); err != nil {
			return err
		}
		for len(b) > 0 {
			batch, rest, err := record.Next(b)
			if errors.Is(err, record.ErrIncomplete) {
				return nil
			}
			if err == nil {
				err = batch.Verify()
			}
			if err != nil {
				return err
			}
			b = rest
		}
		return nil
	}
	last := int64(-1)
	for b, err := range s.Batches(0) {
		if err != nil {
			return err
		}
		if b.BaseOffset() <= last {
			return errors.New("offsets fell")
		}
		last = b.LastOffset()
		for rec, err := range b.Records(nil) {
			if err != nil {
				return err
			}
			for v := rec.Value; len(v) >= 8; v = v[8:] {
				if !bytes.Equal(v[:8], rec.Value[:8]) {
					return errors.New("mixed bytes")
				}
			}
		}
	}
	return nil
}

func found(err error) error {
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// Design reason D8: whatever the loop body does, nothing is held across it but a reference.
func TestALoopBodyMayDoAnything(t *testing.T) {
	s := create(t, 0, Options{FS: osFS(t), IndexIntervalBytes: EveryBatch})
	fill(t, s, 10)
	n := 0
	for b, err := range s.Batches(0) {
		require.NoError(t, err)
		if n++; n == 3 {
			fill(t, s, 1)
			require.NoError(t, s.Sync())
			require.NoError(t, s.Park())
			_, err := s.Find(b.BaseOffset())
			require.NoError(t, err)
		}
	}
	require.Equal(t, 10, n)
	require.Panics(t, func() {
		for range s.Batches(0) {
			panic("in the body")
		}
	})
	for range s.Batches(0) {
		break
	}
	require.Zero(t, s.Info().Pins)
	var last error
	for b, err := range s.Batches(0) {
		if last = err; err != nil {
			break
		}
		if b.BaseOffset() == 4 {
			_, err := s.Truncate(2)
			require.NoError(t, err)
		}
	}
	require.ErrorIs(t, last, ErrChanged)
	seq := s.Batches(0)
	for range 2 { // restartable
		n = 0
		for _, err := range seq {
			require.NoError(t, err)
			n++
		}
		require.Equal(t, 2, n)
	}
	n = 0
	for _, err := range s.Batches(0) {
		require.NoError(t, err)
		n++
		require.NoError(t, s.Close())
	}
	require.Equal(t, 2, n, "a running loop keeps the files")
}
