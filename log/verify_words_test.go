package log

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/vfs"
)

// verifySays are damages, and what the only finding, or the first of several, must and must not say of them.
var verifySays = []struct {
	name   string
	folder string
	garble func(g *garbler)
	kind   string
	file   string
	says   string
	only   bool // nothing else may be found
}{
	{"a closed segment under a clean marker is damaged", "codec-gzip", func(g *garbler) { g.change(log0, flip(5000)) },
		FindingBatch, log0, "below the recovery point this is damage, which an open does not look for; reading stops there", true},
	{"the active segment is damaged below the recovery point", "codec-mixed", func(g *garbler) { g.change(log276, cut(100)) },
		FindingBatch, log276, "below the recovery point this is damage, and the log does not open until it is repaired", false},
	{"the active segment is damaged after a kill", "killed", func(g *garbler) { // its recovery point is 0
		p, n := g.batchAt(log0, 1)
		g.change(log0, flip(p+n-1))
	}, FindingBatch, log0, "an open cuts the log here and saves the whole batches it takes away", false},
	{"a base offset grows into the next segment", "codec-gzip", func(g *garbler) {
		g.change(log0, func(b []byte) []byte { b[3391] = 1; return b })
	}, FindingOrder, log0, "offsets 330 to 369, behind offset 73, reach into the next segment, which begins at 223: the base offset, which no checksum covers, is damaged", true},
	{"a base offset grows within the segment", "codec-mixed", func(g *garbler) {
		p, _ := g.batchAt(log0, 2)
		g.change(log0, func(b []byte) []byte { binary.BigEndian.PutUint64(b[p:], binary.BigEndian.Uint64(b[p:])+100); return b })
	}, FindingOrder, log0, "the base offset, which no checksum covers, is damaged", false},
	{"a leader epoch grows", "epochs", func(g *garbler) { g.change(log0, func(b []byte) []byte { b[15] = 64; return b }) },
		FindingEpochs, "leader-epoch-checkpoint", "the batch at offset 0 is of epoch 64, by the file it is of 0", true},
	{"the first .log is gone, its indexes are not", "codec-gzip", func(g *garbler) { g.remove(log0) },
		FindingLeftover, index0, "it has entries up to offset 222: the records of offsets 0 to 222 are gone with the .log", false},
	{"the last .log is gone, its time index is not", "codec-gzip", func(g *garbler) { g.remove("00000000000000000223.log") },
		FindingLeftover, "00000000000000000223.timeindex", "the records of offsets 223 to 281, and any behind, are gone with the .log", false},
	{"a segment was renamed", "codec-gzip", func(g *garbler) { g.must(os.Rename(g.path("00000000000000000223.log"), g.path("7.log"))) },
		FindingForeign, "7.log", "not how a segment is named: no reader finds it; it begins with offset 223, and there is no 00000000000000000223.log", false},
	{"a copy of a segment", "codec-gzip", func(g *garbler) { g.copy(log0, "copy.log") },
		FindingForeign, "copy.log", "it begins with offset 0, as 00000000000000000000.log may", true},
	{"one byte behind a clean stop", "codec-mixed", func(g *garbler) { g.change(log276, grown("\x01")) }, FindingTail, log276, "1 byte without a valid batch", true},
	{"a folder that only has the name", "epochs", func(g *garbler) {
		g.must(os.Mkdir(g.path("/photos-2024"), 0o755))
		g.write("/photos-2024/a.jpg", "x")
	}, FindingForeign, "photos-2024", "nothing in it is a log's (a.jpg)", true},
}

func TestVerifySaysWhatIsTrueOfTheDamageAndBlamesNothingElse(t *testing.T) {
	for _, row := range verifySays {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			g := newGarbler(t, row.folder)
			row.garble(g)
			got := verifyAll(t, verifyFS(t, g.root), VerifyOptions{})
			said := false
			for _, f := range got {
				said = said || f.Kind == row.kind && filepath.Base(f.File) == row.file && strings.Contains(f.Detail, row.says)
			}
			require.True(t, said, "want %s of %s: %s\ngot%s", row.kind, row.file, row.says, sayFindings(got))
			if row.only {
				require.Len(t, got, 1, sayFindings(got))
			}
		})
	}
}

// What verify says of opening is what opening does.
func TestVerifySaysThatALogDoesNotOpenExactlyWhereItDoesNot(t *testing.T) {
	for _, folder := range []string{"codec-gzip", "codec-mixed", "killed", "epochs"} {
		for at := range 12 {
			g := newGarbler(t, folder)
			logs, err := filepath.Glob(g.path("*.log"))
			g.must(err)
			name := filepath.Base(logs[at%len(logs)])
			g.change(name, func(b []byte) []byte {
				if len(b) > 0 {
					b[len(b)*at/12] ^= 0x10
				}
				return b
			})
			root := verifyFS(t, g.root)
			refuses := strings.Contains(sayFindings(verifyAll(t, root, VerifyOptions{})), "does not open until it is repaired")
			d, err := OpenDir(g.root, DirConfig{FS: vfs.Overlay(root)})
			g.must(err)
			_, err = d.Open(t.Context(), TopicPartition{Topic: folder}, Config{})
			require.Equal(t, errors.Is(err, ErrCorrupt), refuses, "%s, %s of %d: %v", folder, name, at, err)
			g.must(d.Close())
		}
	}
}

func TestVerifyCountsInGoodGrammar(t *testing.T) {
	require.Equal(t, "1 entry", counted(1, "entry"))
	require.Equal(t, "3 entries", counted(3, "entry"))
	require.Equal(t, "2 batches", counted(int64(2), "batch"))
	require.Equal(t, "0 bytes", counted(0, "byte"))
}
