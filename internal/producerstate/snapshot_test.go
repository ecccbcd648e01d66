package producerstate

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/partlog/partlog/internal/golden"
	"github.com/partlog/partlog/vfs"
)

var one = Entry{ProducerID: 4000, Epoch: 3, LastSequence: 12, LastOffset: 102, OffsetDelta: 2, Timestamp: 1005, CoordinatorEpoch: -1, TxnFirstOffset: -1}

func unhex(t require.TestingT, text string) []byte {
	b, err := hex.DecodeString(strings.Join(strings.Fields(text), ""))
	require.NoError(t, err)
	return b
}

func TestTheBytesAreKafkas(t *testing.T) {
	for text, entries := range map[string][]Entry{
		"00 01 48 67 4b c7 00 00 00 00": {},
		`00 01 aa b5 ef e2 00 00 00 01 00 00 00 00 00 00 0f a0 00 03 00 00 00 0c 00 00 00 00 00 00 00 66
		 00 00 00 02 00 00 00 00 00 00 03 ed ff ff ff ff ff ff ff ff ff ff ff ff`: {one},
	} {
		require.Equal(t, unhex(t, text), Append(nil, entries))
		got, err := Decode("s", unhex(t, text))
		require.NoError(t, err)
		require.Equal(t, entries, got)
	}
}

func TestProducersAreWrittenInOrderOfID(t *testing.T) {
	entries := []Entry{{ProducerID: 9}, {ProducerID: -3}, {ProducerID: 4}}
	got, err := Decode("s", Append([]byte("prefix"), entries)[6:])
	require.NoError(t, err)
	require.Equal(t, []Entry{{ProducerID: -3}, {ProducerID: 4}, {ProducerID: 9}}, got)
	require.Equal(t, int64(9), entries[0].ProducerID, "the caller's slice is left alone")
}

func reseal(b []byte) []byte {
	binary.BigEndian.PutUint32(b[2:], crc32.Checksum(b[6:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

func TestEveryKindOfDamageIsNamed(t *testing.T) {
	good := func() []byte { return Append(nil, []Entry{one, {ProducerID: 5000}}) }
	for name, row := range map[string]struct {
		b   []byte
		pos int64
	}{
		"empty":             {nil, 0},
		"short header":      {good()[:9], 9},
		"version 0":         {append([]byte{0, 0}, good()[2:]...), 0},
		"version 2":         {append([]byte{0, 2}, good()[2:]...), 0},
		"cut":               {good()[:100], 2},
		"cut and resealed":  {reseal(good()[:100]), 6},
		"one bit":           {append(good()[:50], append([]byte{good()[50] ^ 4}, good()[51:]...)...), 2},
		"zeros":             {make([]byte, 102), 0},
		"negative count":    {reseal(append(good()[:6], append([]byte{0xff, 0xff, 0xff, 0xff}, good()[10:]...)...)), 6},
		"hostile count":     {reseal(append(good()[:6], append([]byte{0x7f, 0xff, 0xff, 0xff}, good()[10:]...)...)), 6},
		"unsealed trailing": {append(good(), 0), 2},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Decode("t-0/5.snapshot", row.b)
			var corrupt *CorruptError
			require.ErrorAs(t, err, &corrupt)
			require.ErrorIs(t, err, ErrCorrupt)
			require.Equal(t, "t-0/5.snapshot", corrupt.File)
			require.Equal(t, row.pos, corrupt.Position)
		})
	}
	got, err := Decode("s", reseal(append(good(), 1, 2, 3)))
	require.NoError(t, err, "the CRC covers what is behind the entries")
	require.Len(t, got, 2)
}

func TestASnapshotIsReplacedWhole(t *testing.T) {
	fsys := vfs.Mem()
	_, err := ReadSnapshot(fsys, "7.snapshot")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, WriteSnapshot(fsys, "7.snapshot", []Entry{one, {ProducerID: 1}, {ProducerID: 2}}))
	require.NoError(t, WriteSnapshot(fsys, "7.snapshot", []Entry{one}))
	got, err := ReadSnapshot(fsys, "7.snapshot")
	require.NoError(t, err)
	require.Equal(t, []Entry{one}, got)
	info, err := fsys.Stat("7.snapshot")
	require.NoError(t, err)
	require.Equal(t, int64(headerSize+entrySize), info.Size())
}

// Each snapshot of a real broker decodes, and is written byte for byte once its producers are in order of id.
func TestTheSnapshotsOfARealBroker(t *testing.T) {
	seen := 0
	for _, name := range golden.Cases() {
		root, about := golden.Copy(t, name), golden.About(t, name)
		fsys, err := vfs.OS(root)
		require.NoError(t, err)
		dir := about.Topic + "-0"
		files, err := fsys.ReadDir(dir)
		require.NoError(t, err)
		var newest []Entry
		for _, f := range files {
			if filepath.Ext(f.Name()) != ".snapshot" {
				continue
			}
			entries, err := ReadSnapshot(fsys, dir+"/"+f.Name())
			require.NoError(t, err, "%s %s", name, f.Name())
			b, err := vfs.ReadFile(fsys, dir+"/"+f.Name(), 1<<20)
			require.NoError(t, err)
			ours := Append(nil, entries)
			require.Len(t, ours, len(b))
			if slices.IsSortedFunc(entries, func(a, b Entry) int { return cmp.Compare(a.ProducerID, b.ProducerID) }) {
				require.Equal(t, b, ours)
				seen++
			}
			newest = entries
		}
		if !about.StoppedClean {
			continue
		}
		// producers whose last record was too old when Kafka opened the folder are missing from its opinion
		byID := map[int64]Entry{}
		for _, e := range newest {
			byID[e.ProducerID] = e
		}
		for _, p := range about.AsOpened.Producers {
			e := byID[p.ProducerID]
			require.Equal(t, p.Epoch, e.Epoch)
			require.Equal(t, p.LastSequence, e.LastSequence)
			require.Equal(t, p.LastOffset, e.LastOffset)
			require.Equal(t, p.LastTimestamp, e.Timestamp)
			require.Equal(t, p.CoordinatorEpoch, e.CoordinatorEpoch)
			require.Equal(t, p.TxnFirstOffset, e.TxnFirstOffset)
		}
	}
	require.Greater(t, seen, 28)
}

func TestAnythingSurvivesTheFile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		entry := rapid.Custom(func(t *rapid.T) Entry {
			return Entry{rapid.Int64().Draw(t, "pid"), rapid.Int16().Draw(t, "epoch"), rapid.Int32().Draw(t, "seq"), rapid.Int64().Draw(t, "offset"),
				rapid.Int32().Draw(t, "delta"), rapid.Int64().Draw(t, "ts"), rapid.Int32().Draw(t, "coord"), rapid.Int64().Draw(t, "txn")}
		})
		want := rapid.SliceOfDistinct(entry, func(e Entry) int64 { return e.ProducerID }).Draw(t, "entries")
		got, err := Decode("s", Append(nil, want))
		require.NoError(t, err)
		require.ElementsMatch(t, want, got)
		require.True(t, slices.IsSortedFunc(got, func(a, b Entry) int { return cmp.Compare(a.ProducerID, b.ProducerID) }))
	})
}

func FuzzSnapshot(f *testing.F) {
	f.Add([]byte{}, false)
	f.Add(Append(nil, nil), false)
	f.Add(Append(nil, []Entry{one}), false)
	f.Add([]byte("\x00\x01cccc\x7f\xff\xff\xffrest"), true)
	f.Fuzz(func(t *testing.T, b []byte, seal bool) {
		if seal && len(b) >= headerSize {
			b = reseal(slices.Clone(b))
		}
		got, err := Decode("s", b)
		if err != nil {
			require.ErrorIs(t, err, ErrCorrupt)
			return
		}
		again, err := Decode("s", Append(nil, got))
		require.NoError(t, err)
		require.ElementsMatch(t, got, again)
	})
}
