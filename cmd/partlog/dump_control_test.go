package main

import (
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/partlog/partlog/record"
)

func TestControlRecordsOfAMetadataLogReadAsKafkasToolPrintsThem(t *testing.T) {
	rows := []struct {
		kind  record.ControlType
		value string
		want  string // "": it is none of its type
	}{
		{record.LeaderChange, "0000 00000001 03 00000001 00 0000012c 00 02 00000001 00 00",
			` LeaderChange: {"version":0,"leaderId":1,"voters":[{"voterId":1},{"voterId":300}],"grantingVoters":[{"voterId":1}]}`},
		{record.LeaderChange, "0000 00000001 01 01 00", ` LeaderChange: {"version":0,"leaderId":1,"voters":[],"grantingVoters":[]}`},
		{record.SnapshotHeader, "0000 00000197741b1b80 00", ` SnapshotHeader {"version":0,"lastContainedLogTimestamp":1749999623040}`},
		{record.SnapshotFooter, "0000 00", ` SnapshotFooter {"version":0}`},
		{record.SnapshotFooter, "0000 01 07 02 ffff", ` SnapshotFooter {"version":0}`}, // a tagged field of a later version
		{record.KRaftVersion, "0000 0001 00", ` KRaftVersion {"version":0,"kRaftVersion":1}`},
		{record.KRaftVoters, "0000 02 00000001 000102030405060708090a0b0c0d0e0f 02 02 43 04 67c3bc 2385 00 0000 0001 00 00 00",
			` KRaftVoters {"version":0,"voters":[{"voterId":1,"voterDirectoryId":"AAECAwQFBgcICQoLDA0ODw","endpoints":[{"name":"C","host":"gü","port":9093}],"kRaftVersionFeature":{"minSupportedVersion":0,"maxSupportedVersion":1}}]}`},
		{record.SnapshotHeader, "0000 0000", ""},
		{record.LeaderChange, "0000 00000001 ffffffff07", ""},
		{record.KRaftVoters, "0000 00", ""},
	}
	for _, row := range rows {
		value, err := hex.DecodeString(strings.ReplaceAll(row.value, " ", ""))
		require.NoError(t, err)
		text, ok, err := kraftText(row.kind, value)
		require.True(t, ok)
		if row.want == "" {
			require.Error(t, err, "%s", text)
			continue
		}
		require.NoError(t, err, row.value)
		require.Equal(t, row.want, text)
	}
	_, ok, err := kraftText(record.Commit, nil)
	require.NoError(t, err)
	require.False(t, ok)
}

// Kafka looks at the first byte of the version only, and at the order of a time only where it has found the batch.
func TestDumpLooksAtNoMoreOfAnEntryThanKafkasTool(t *testing.T) {
	_, dir := goldenFolder(t, "txn-commit-abort")
	name := goldenFiles(t, dir, ".txnindex")[0]
	b, err := os.ReadFile(name)
	require.NoError(t, err)
	b[1] = 1
	require.NoError(t, os.WriteFile(name, b, 0o644))
	got := call("dump", name)
	require.Contains(t, got.out, "version: 0 producerId: ")
	require.Contains(t, got.err, "version 1 is not known") // which Kafka's tool does not say

	name = goldenFiles(t, dir, ".timeindex")[0]
	b, err = os.ReadFile(name)
	require.NoError(t, err)
	b = append(b, b[len(b)-12:]...)
	b[len(b)-3] = 1 // an offset that is none of the segment's
	require.NoError(t, os.WriteFile(name, b, 0o644))
	got = call("dump", name)
	require.Contains(t, got.err, "The following indexed offsets are not found")
	require.NotContains(t, got.err, "out of order")
}
