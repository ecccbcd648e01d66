package interop

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/stretchr/testify/require"
)

// fileDamage is what happens to the files of segments: indexes that another program or another time wrote, leftovers in every
// combination, files that others put there.
var fileDamage = []damageKind{
	{"a snapshot of a newer version", func(f *kafkaFolder) bool {
		return f.patch(f.any(".snapshot"), func(b []byte) []byte { b[1] = 2; return b })
	}},
	{"an empty snapshot", func(f *kafkaFolder) bool { return f.patch(f.any(".snapshot"), func([]byte) []byte { return nil }) }},
	{"an empty index", func(f *kafkaFolder) bool {
		return f.patch(f.any([]string{".index", ".timeindex"}[f.r.IntN(2)]), func([]byte) []byte { return nil })
	}},
	{"an index of odd size", func(f *kafkaFolder) bool {
		return f.patch(f.any([]string{".index", ".timeindex", ".txnindex"}[f.r.IntN(3)]), func(b []byte) []byte { return append(b, make([]byte, 1+f.r.IntN(5))...) })
	}},
	{"an index that points behind", func(f *kafkaFolder) bool {
		return f.patch(f.any(".index"), func(b []byte) []byte {
			b = binary.BigEndian.AppendUint32(b, uint32([]int64{5, 1000, math.MaxInt32}[f.r.IntN(3)]))
			return binary.BigEndian.AppendUint32(b, uint32([]int64{0, 61, 1 << 20, math.MaxInt32}[f.r.IntN(4)]))
		})
	}},
	{"a time index that points behind", func(f *kafkaFolder) bool {
		return f.patch(f.any(".timeindex"), func(b []byte) []byte {
			b = binary.BigEndian.AppendUint64(b, uint64(f.now+[]int64{-1 << 30, 0, 1 << 40}[f.r.IntN(3)]))
			return binary.BigEndian.AppendUint32(b, uint32([]int64{0, 1000, math.MaxInt32}[f.r.IntN(3)]))
		})
	}},
	{"index entries in another order", func(f *kafkaFolder) bool {
		return f.patch(f.any(".index"), func(b []byte) []byte {
			if len(b) < 16 {
				return b
			}
			out := append([]byte{}, b[8:16]...)
			return append(append(out, b[:8]...), b[16:]...)
		})
	}},
	{"an index of another segment", func(f *kafkaFolder) bool {
		b, err := os.ReadFile(f.any(".index"))
		return err == nil && f.patch(f.any(".index"), func([]byte) []byte { return b })
	}},
	{"a txnindex of a newer version", func(f *kafkaFolder) bool {
		return f.patch(f.any(".txnindex"), func(b []byte) []byte { b[f.r.IntN(2)] = 1; return b })
	}},
	{"a txnindex too many", func(f *kafkaFolder) bool {
		log := f.any(".log")
		if log == "" {
			return false
		}
		base := f.base(log)
		b := make([]byte, 2, 34)
		for _, n := range []int64{7, base, base + f.r.Int64N(20) - 1, base + 20} {
			b = binary.BigEndian.AppendUint64(b, uint64(n))
		}
		b = b[:34*f.r.IntN(2)]
		name := strings.TrimSuffix(log, ".log") + ".txnindex"
		if f.size(name) > 0 {
			return false
		}
		f.note("%s: %x", filepath.Base(name), b)
		return os.WriteFile(name, b, 0o644) == nil
	}},
	{"all indexes gone", func(f *kafkaFolder) bool {
		all := partitionFiles(f.t, f.dir(), ".index", ".timeindex")
		for _, name := range all {
			require.NoError(f.t, os.Remove(name))
		}
		return len(all) > 0
	}},
	{"indexes without a log", func(f *kafkaFolder) bool {
		base := f.base(f.active(".log")) + 1 + f.r.Int64N(100)
		for _, ext := range []string{".index", ".timeindex", ".txnindex"} {
			if f.r.IntN(3) > 0 {
				require.NoError(f.t, os.WriteFile(filepath.Join(f.dir(), fmt.Sprintf("%020d%s", base, ext)), make([]byte, f.r.IntN(3)*12), 0o644))
			}
		}
		return true
	}},
	{"an empty segment behind", func(f *kafkaFolder) bool {
		base := f.base(f.active(".log"))
		if f.size(f.active(".log")) > 0 {
			s, err := f.openAt(copyRoot(f.t, f.root))
			if err != nil {
				return false
			}
			base = s.Opened.LogEndOffset
			require.NoError(f.t, s.Abandon())
		}
		name := filepath.Join(f.dir(), fmt.Sprintf("%020d.log", base+f.r.Int64N(2)))
		if f.size(name) > 0 || base == math.MaxInt64 {
			return false
		}
		f.note("%s", filepath.Base(name))
		return os.WriteFile(name, nil, 0o644) == nil
	}},
	{"what others put there", func(f *kafkaFolder) bool {
		for range 1 + f.r.IntN(3) {
			name := []string{"remote_log_snapshot", "README", "00000000000000000000.bak", "x.log.bak", ".kafka_cleanshutdown", "quorum-state", "00000000000000000007-0000000001.checkpoint",
				"00000000000000000007-0000000001.checkpoint.part", "00000000000000000007-0000000001.checkpoint.deleted", "leader-epoch-checkpoint.tmp", "partition.metadata.tmp", "log.lock", "swap", "deleted"}[f.r.IntN(14)]
			f.note("%s", name)
			require.NoError(f.t, os.WriteFile(filepath.Join(f.dir(), name), []byte("something"), 0o644))
		}
		if f.r.IntN(3) == 0 {
			require.NoError(f.t, os.Mkdir(filepath.Join(f.dir(), "folder"), 0o755))
		}
		return true
	}},
	{"leftovers of a swap", func(f *kafkaFolder) bool {
		files := partitionFiles(f.t, f.dir(), ".log", ".index", ".timeindex", ".txnindex")
		if len(files) == 0 {
			return false
		}
		for range 1 + f.r.IntN(6) {
			name := files[f.r.IntN(len(files))]
			b, err := os.ReadFile(name)
			require.NoError(f.t, err)
			suffix := []string{".deleted", ".cleaned", ".swap", ".swap"}[f.r.IntN(4)]
			f.note("%s%s", filepath.Base(name), suffix)
			require.NoError(f.t, os.WriteFile(name+suffix, b, 0o644))
		}
		f.unmark()
		return true
	}},
	{"segments merged to a swap", func(f *kafkaFolder) bool {
		logs := partitionFiles(f.t, f.dir(), ".log")
		if len(logs) < 3 {
			return false
		}
		i := f.r.IntN(len(logs) - 2)
		n := 2 + f.r.IntN(len(logs)-2-i)
		var all []byte
		for _, name := range logs[i : i+n] {
			b, err := os.ReadFile(name)
			require.NoError(f.t, err)
			all = append(all, b...)
		}
		f.note("%s.swap of %d segments", filepath.Base(logs[i]), n)
		require.NoError(f.t, os.WriteFile(logs[i]+".swap", all, 0o644))
		if stem := strings.TrimSuffix(logs[i], ".log"); f.r.IntN(2) == 0 {
			require.NoError(f.t, os.WriteFile(stem+".index.swap", nil, 0o644))
			require.NoError(f.t, os.WriteFile(stem+".timeindex.swap", nil, 0o644))
		}
		switch f.r.IntN(3) {
		case 0: // rolled back
			require.NoError(f.t, os.WriteFile(logs[i+f.r.IntN(n)]+".cleaned", nil, 0o644))
		case 1: // the old ones are on their way
			for _, name := range logs[i : i+n-f.r.IntN(n)] {
				require.NoError(f.t, os.Rename(name, name+".deleted"))
			}
		}
		f.unmark()
		return true
	}},
	{"an overflowed segment", func(f *kafkaFolder) bool {
		logs := partitionFiles(f.t, f.dir(), ".log")
		if len(logs) == 0 || f.size(logs[0]) == 0 {
			return false
		}
		base := f.base(logs[0])
		to := base - math.MaxInt32 + f.r.Int64N(40) - 5
		if to < 0 {
			return false
		}
		f.note("%d becomes %d", base, to)
		for _, ext := range []string{".log", ".index", ".timeindex", ".txnindex"} {
			from := strings.TrimSuffix(logs[0], ".log") + ext
			if err := os.Rename(from, filepath.Join(f.dir(), fmt.Sprintf("%020d%s", to, ext))); err != nil && !os.IsNotExist(err) {
				require.NoError(f.t, err)
			}
		}
		return true
	}},
}

func (f *kafkaFolder) patch(name string, change func([]byte) []byte) bool {
	if name == "" {
		return false
	}
	b, err := os.ReadFile(name)
	require.NoError(f.t, err)
	if len(b) == 0 {
		return false
	}
	size := len(b)
	to := change(b)
	f.note("%s: %d bytes, now %d", filepath.Base(name), size, len(to))
	require.NoError(f.t, os.WriteFile(name, to, 0o644))
	return true
}
