package log

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/checkpoint"
)

// What an unclean stop explains, and no acknowledged record need have been in, is told from what an open cuts and may have been
// one, and from damage that it refuses.
func TestVerifyTellsTheEndsThatAnUncleanStopLeavesFromDamage(t *testing.T) {
	zeros := func(n int) func([]byte) []byte { return grown(strings.Repeat("\x00", n)) }
	half := func(b []byte) []byte { return b[:len(b)-1] }
	unclean := func(f func(s *site)) func(s *site) {
		return func(s *site) {
			s.add(3)
			s.kill()
			f(s)
		}
	}
	log := inFolder("00000000000000000000.log")
	for _, row := range []struct {
		name string
		cfg  Config
		do   func(s *site)
		kind string // of what is found at the end of the log
		off  bool   // an unclean stop explains it
	}{
		{"a preallocated file", Config{Durability: Buffered}, unclean(func(s *site) { s.edit(log, zeros(4096)) }), FindingTail, true},
		{"a few zeros", Config{Durability: Buffered}, unclean(func(s *site) { s.edit(log, zeros(3)) }), FindingTail, true},
		{"half a batch", Config{Durability: Buffered}, unclean(func(s *site) { s.edit(log, half) }), FindingTail, true},
		{"half a header", Config{Durability: Buffered}, unclean(func(s *site) { s.edit(log, func(b []byte) []byte { return b[:len(b)-len(b)/3+7] }) }), FindingTail, true},
		{"half a batch that was durable", Config{}, unclean(func(s *site) { s.edit(log, half) }), FindingBatch, false},
		{"zeros in the place of what was durable", Config{}, unclean(func(s *site) {
			s.edit(log, func(b []byte) []byte { clear(b[len(b)-len(b)/3:]); return b })
		}), FindingBatch, false},
		{"zeros behind what was durable", Config{}, unclean(func(s *site) { s.edit(log, zeros(500)) }), FindingTail, true},
		{"a whole batch with a wrong checksum", Config{Durability: Buffered}, unclean(func(s *site) { s.edit(log, func(b []byte) []byte { return flip(len(b) - 1)(b) }) }), FindingTail, false},
		{"garbage", Config{Durability: Buffered}, unclean(func(s *site) { s.edit(log, grown(strings.Repeat("garbage", 20))) }), FindingTail, false},
		{"half a batch below the recovery point", Config{Durability: Buffered}, unclean(func(s *site) {
			s.write(checkpoint.RecoveryPoints, []byte("0\n1\n"+crashTP.Topic+" 0 3\n"))
			s.edit(log, half)
		}), FindingBatch, false},
		{"zeros behind a clean stop", Config{Durability: Buffered}, func(s *site) {
			s.add(3)
			s.stop()
			s.edit(log, zeros(4096))
		}, FindingTail, false},
		{"zeros in a segment that is not the last", Config{Durability: Buffered}, func(s *site) {
			s.add(3)
			require.NoError(t, s.log.Roll(ctx))
			s.add(1)
			s.kill()
			s.edit(log, zeros(100))
		}, FindingBatch, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := newSite(t, row.cfg)
			row.do(s)
			var at []Finding
			for _, f := range verifyAll(t, s.disk, VerifyOptions{}) {
				if f.File == log {
					at = append(at, f)
				}
			}
			require.Len(t, at, 1)
			require.Equal(t, row.kind, at[0].Kind, "%v", at[0])
			require.Equal(t, row.off, strings.HasSuffix(at[0].Detail, "a kill broke off: an open cuts it off"), "%v", at[0])
			if err := s.tryOpen(); row.off {
				require.NoError(t, err)
				require.Positive(t, s.log.Recovery().Cut)
				s.stop()
				require.Empty(t, verifyAll(t, s.disk, VerifyOptions{}))
			}
		})
	}
}

// A broker that is killed behind a truncation, before its checkpoints follow, leaves a log that ends below them; so does one that
// lost records.
func TestVerifySaysThatALogMayEndBelowItsCheckpointsForATruncation(t *testing.T) {
	for _, clean := range []bool{false, true} {
		s := newSite(t, Config{Durability: Buffered})
		s.add(3)
		s.stop()
		if !clean {
			s.open()
			s.kill()
		}
		s.write(checkpoint.RecoveryPoints, []byte("0\n1\n"+crashTP.Topic+" 0 9\n"))
		found := verifyAll(t, s.disk, VerifyOptions{})
		require.Len(t, found, 1)
		require.Equal(t, FindingShort, found[0].Kind)
		require.Equal(t, !clean, strings.Contains(found[0].Detail, "unless a broker was killed between a truncation and its next checkpoint"))
	}
}
