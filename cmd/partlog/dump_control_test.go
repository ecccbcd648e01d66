package main

import (
	"encoding/hex"
	"os"
	"path/filepath"
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

// A snapshot of a cluster's metadata as a controller wrote it, without the batch between its header and its footer.
func TestSnapshotsOfAMetadataLogReadAsKafkasToolPrintsThem(t *testing.T) {
	raw, err := hex.DecodeString("00000000000000000000004700000001026122abcf002000000000000001a22eaa1b32000001a22eaa1b32ffffffffffffffffffffffffffff000000012a0000000800000003160000000001a22eaa1ae20000" +
		"000000000000001e0000003f0000000102b2e3a574002000000000000001a22eaa1b48000001a22eaa1b48ffffffffffffffffffffffffffff000000011a00000008000000040600000000")
	require.NoError(t, err)
	batches := `baseOffset: 0 lastOffset: 0 count: 1 baseSequence: -1 lastSequence: -1 producerId: -1 producerEpoch: -1 partitionLeaderEpoch: 1 isTransactional: false isControl: true deleteHorizonMs: OptionalLong.empty position: 0 CreateTime: 1796079229746 size: 83 magic: 2 compresscodec: none crc: 1629662159 isvalid: true
| offset: 0 CreateTime: 1796079229746 keySize: 4 valueSize: 11 sequence: -1 headerKeys: [] SnapshotHeader {"version":0,"lastContainedLogTimestamp":1796079229666}
baseOffset: 30 lastOffset: 30 count: 1 baseSequence: -1 lastSequence: -1 producerId: -1 producerEpoch: -1 partitionLeaderEpoch: 1 isTransactional: false isControl: true deleteHorizonMs: OptionalLong.empty position: 83 CreateTime: 1796079229768 size: 75 magic: 2 compresscodec: none crc: 3001263476 isvalid: true
| offset: 30 CreateTime: 1796079229768 keySize: 4 valueSize: 3 sequence: -1 headerKeys: [] SnapshotFooter {"version":0}
`
	dir := t.TempDir()
	for name, first := range map[string]string{
		"00000000000000000037-0000000001.checkpoint":         "Snapshot end offset: 37, epoch: 1",
		"00000000000000000037-0000000001.checkpoint.deleted": "Snapshot end offset: 37, epoch: 1",
		"09223372036854775807-2147483647.checkpoint":         "Snapshot end offset: 9223372036854775807, epoch: 2147483647",
		"bootstrap.checkpoint":                               "KRaft bootstrap snapshot",
		"other.checkpoint":                                   "",
		"37-1.checkpoint":                                    "",
		"00000000000000000037.checkpoint":                    "",
		"00000000000000000037-2147483648.checkpoint":         "",
		"99999999999999999999-0000000001.checkpoint":         "",
		"-0000000000000000037-0000000001.checkpoint":         "",
	} {
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, raw, 0o644))
		got := call("dump", "--deep-iteration", file)
		if first == "" {
			require.Equal(t, 1, got.code, name)
			require.Contains(t, got.err, "the name is not that of a snapshot", name)
			continue
		}
		require.Zero(t, got.code, got.err)
		require.Equal(t, "Dumping "+file+"\n"+first+"\n"+batches, got.out)
	}
}
