package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/internal/producerstate"
	"github.com/partlog/partlog/internal/txnindex"
)

// What is derived from producers and transactions can be wrong under a right checksum, or have none. Repair puts the bad
// files aside, and what it leaves says of producers, of aborted transactions and of what committed readers see what was
// said before.
func TestRepairMakesWhatIsDerivedFromProducersAnew(t *testing.T) {
	entry := func(f func(all []producerstate.Entry) []producerstate.Entry) func(b []byte) []byte {
		return func(b []byte) []byte {
			all, err := producerstate.Decode("", b)
			require.NoError(t, err)
			return producerstate.Append(nil, f(all))
		}
	}
	txn := func(i int, f func(e *txnindex.Entry)) func(b []byte) []byte {
		return func(b []byte) []byte {
			e, _ := txnindex.Decode(b[i*txnindex.EntrySize:])
			f(&e)
			e.Put(b[i*txnindex.EntrySize:])
			return b
		}
	}
	const folder = "txn-commit-abort"
	rows := []struct {
		name, file string
		do         func(b []byte) []byte
	}{
		{"another sequence", "00000000000000000047.snapshot", entry(func(all []producerstate.Entry) []producerstate.Entry { all[0].LastSequence++; return all })},
		{"a transaction is forgotten", "00000000000000000047.snapshot", entry(func(all []producerstate.Entry) []producerstate.Entry { return all[1:] })},
		{"a transaction is over", "00000000000000000087.snapshot", entry(func(all []producerstate.Entry) []producerstate.Entry { all[2].TxnFirstOffset = 3; return all })},
		{"garbled", "00000000000000000087.snapshot", func(b []byte) []byte { b[20] ^= 1; return b }},
		{"another producer", "00000000000000000000.txnindex", txn(1, func(e *txnindex.Entry) { e.ProducerID = 4 })},
		{"it begins too late", "00000000000000000000.txnindex", txn(0, func(e *txnindex.Entry) { e.FirstOffset = 6 })},
		{"its last stable offset is too high", "00000000000000000047.txnindex", txn(0, func(e *txnindex.Entry) { e.LastStableOffset = 68 })},
		{"an entry is missing", "00000000000000000047.txnindex", func(b []byte) []byte { return b[txnindex.EntrySize:] }},
		{"half an entry", "00000000000000000047.txnindex", func(b []byte) []byte { return b[:len(b)-3] }},
		{"gone", "00000000000000000047.txnindex", func([]byte) []byte { return nil }},
	}
	said := func(t *testing.T, root string) string {
		t.Helper()
		var all []string
		for _, args := range [][]string{{"producers", root, "--now", "0"}, {"info", root, "--json"}, {"cat", root, "--isolation", "read_committed"}} {
			got := call(args...)
			require.Equal(t, exitOK, got.code, got.err)
			all = append(all, got.out)
		}
		i := strings.Index(all[1], `"abortedTransactions"`)
		require.Positive(t, i)
		all[1] = all[1][i : strings.Index(all[1][i:], "]")+i]
		return strings.Join(all, "\n")
	}
	for _, row := range rows {
		t.Run(row.file[18:]+" "+row.name, func(t *testing.T) {
			t.Parallel()
			root, dir := goldenFolder(t, folder)
			before := said(t, root)
			file := filepath.Join(dir, row.file)
			b, err := os.ReadFile(file)
			require.NoError(t, err)
			bad := row.do(append([]byte(nil), b...))
			require.NoError(t, os.WriteFile(file, bad, 0o644))
			got := call("verify", root)
			require.Equal(t, exitFound, got.code, got.err)
			require.Contains(t, got.out, row.file)

			got = call("repair", root, "--apply")
			require.Equal(t, exitOK, got.code, got.out+got.err)
			got = call("verify", root)
			require.Equal(t, exitOK, got.code, got.out)
			require.Equal(t, before, said(t, root))
			aside, err := filepath.Glob(root + ".quarantine/*/" + folder + "-0/" + row.file)
			require.NoError(t, err)
			if len(bad) == 0 {
				require.Empty(t, aside)
				return
			}
			require.Len(t, aside, 1, "the bad file is kept")
			kept, err := os.ReadFile(aside[0])
			require.NoError(t, err)
			require.Equal(t, bad, kept)
		})
	}
}
