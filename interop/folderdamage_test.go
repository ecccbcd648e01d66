package interop

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/stretchr/testify/require"
)

// folderDamage is what crashes and bad disks do to a folder, and who loses files of it.
var folderDamage = []damageKind{
	{"torn log", func(f *kafkaFolder) bool { return f.cut(f.active(".log")) }},
	{"zeros behind the log", func(f *kafkaFolder) bool { return f.extend(f.active(".log"), make([]byte, 1+f.r.IntN(5000))) }},
	{"bytes behind the log", func(f *kafkaFolder) bool {
		b := make([]byte, 1+f.r.IntN(300))
		for i := range b {
			b[i] = byte(f.r.IntN(256))
		}
		return f.extend(f.active(".log"), b)
	}},
	{"a bit of the last log", func(f *kafkaFolder) bool { return f.flip(f.active(".log")) }},
	{"a bit of a log", func(f *kafkaFolder) bool { return f.flip(f.any(".log")) }},
	{"a bit of an index", func(f *kafkaFolder) bool { return f.flip(f.any(".index")) }},
	{"a bit of a time index", func(f *kafkaFolder) bool { return f.flip(f.any(".timeindex")) }},
	{"a bit of a snapshot", func(f *kafkaFolder) bool { return f.flip(f.any(".snapshot")) }},
	{"a bit of a txnindex", func(f *kafkaFolder) bool { return f.flip(f.any(".txnindex")) }},
	{"a bit of the epochs", func(f *kafkaFolder) bool { return f.flip(filepath.Join(f.dir(), epochsFile)) }},
	{"a bit of the metadata", func(f *kafkaFolder) bool { return f.flip(filepath.Join(f.dir(), "partition.metadata")) }},
	{"a bit of a checkpoint", func(f *kafkaFolder) bool {
		return f.flip(filepath.Join(f.root, []string{recoveryPointFile, logStartFile, highWatermarkFile}[f.r.IntN(3)]))
	}},
	{"torn index", func(f *kafkaFolder) bool { return f.cut(f.any(".index")) }},
	{"torn time index", func(f *kafkaFolder) bool { return f.cut(f.any(".timeindex")) }},
	{"torn snapshot", func(f *kafkaFolder) bool { return f.cut(f.any(".snapshot")) }},
	{"torn txnindex", func(f *kafkaFolder) bool { return f.cut(f.any(".txnindex")) }},
	{"torn epochs", func(f *kafkaFolder) bool { return f.cut(filepath.Join(f.dir(), epochsFile)) }},
	{"no index", func(f *kafkaFolder) bool { return f.remove(f.any(".index")) }},
	{"no time index", func(f *kafkaFolder) bool { return f.remove(f.any(".timeindex")) }},
	{"no snapshot", func(f *kafkaFolder) bool { return f.remove(f.any(".snapshot")) }},
	{"no snapshots", func(f *kafkaFolder) bool {
		all := partitionFiles(f.t, f.dir(), ".snapshot")
		for _, name := range all {
			require.NoError(f.t, os.Remove(name))
		}
		return len(all) > 0
	}},
	{"no txnindex", func(f *kafkaFolder) bool { return f.remove(f.any(".txnindex")) }},
	{"no epochs", func(f *kafkaFolder) bool { return f.remove(filepath.Join(f.dir(), epochsFile)) }},
	{"no metadata", func(f *kafkaFolder) bool { return f.remove(filepath.Join(f.dir(), "partition.metadata")) }},
	{"no checkpoint", func(f *kafkaFolder) bool {
		return f.remove(filepath.Join(f.root, []string{recoveryPointFile, logStartFile, highWatermarkFile}[f.r.IntN(3)]))
	}},
	{"no log", func(f *kafkaFolder) bool { return f.remove(f.any(".log")) }},
	{"no clean marker", func(f *kafkaFolder) bool { return f.clean && f.unmark() }},
	{"a wrong clean marker", func(f *kafkaFolder) bool {
		if f.clean {
			return false
		}
		f.clean = true
		require.NoError(f.t, SetCleanMarker(f.root, true))
		return true
	}},
	{"an index of its full size", func(f *kafkaFolder) bool {
		size, err := strconv.Atoi(f.config["segment.index.bytes"])
		require.NoError(f.t, err)
		name, entry := f.any(".index"), 8
		if f.r.IntN(2) == 0 {
			name, entry = f.any(".timeindex"), 12
		}
		return name != "" && f.extend(name, make([]byte, max(0, size/entry*entry-int(f.size(name)))))
	}},
	{"another recovery point", func(f *kafkaFolder) bool { return f.point(recoveryPointFile) }},
	{"another log start", func(f *kafkaFolder) bool { return f.point(logStartFile) }},
	{"another high watermark", func(f *kafkaFolder) bool { return f.point(highWatermarkFile) }},
	{"a stray snapshot", func(f *kafkaFolder) bool {
		from := f.any(".snapshot")
		if from == "" {
			return false
		}
		b, err := os.ReadFile(from)
		require.NoError(f.t, err)
		base := f.base(f.any(".log")) + f.r.Int64N(30)
		f.note("to %d", base)
		require.NoError(f.t, os.WriteFile(filepath.Join(f.dir(), fmt.Sprintf("%020d.snapshot", base)), b, 0o644))
		return true
	}},
	{"leftovers", func(f *kafkaFolder) bool {
		files := f.files()
		for range 1 + f.r.IntN(3) {
			name := files[f.r.IntN(len(files))]
			if !strings.HasPrefix(name, "0") {
				continue
			}
			b, err := os.ReadFile(filepath.Join(f.dir(), name))
			require.NoError(f.t, err)
			suffix := []string{".deleted", ".cleaned", ".tmp", ".deleted"}[f.r.IntN(4)]
			f.note("%s%s", name, suffix)
			require.NoError(f.t, os.WriteFile(filepath.Join(f.dir(), name+suffix), b, 0o644))
		}
		return true
	}},
	{"a swap of one segment", func(f *kafkaFolder) bool {
		log := f.any(".log")
		for _, ext := range []string{".log", ".index", ".timeindex", ".txnindex"} {
			name := strings.TrimSuffix(log, ".log") + ext
			if _, err := os.Stat(name); err != nil || ext != ".log" && f.r.IntN(5) == 0 {
				continue
			}
			if f.r.IntN(2) == 0 {
				require.NoError(f.t, os.Rename(name, name+".swap"))
				f.note("%s renamed", name)
				continue
			}
			b, err := os.ReadFile(name)
			require.NoError(f.t, err)
			require.NoError(f.t, os.WriteFile(name+".swap", b, 0o644))
		}
		f.unmark()
		return true
	}},
}

var allDamage = slices.Concat(folderDamage, textDamage, fileDamage)

// damage does one or two things to the folder, half of the time with a clean marker that went.
func (f *kafkaFolder) damage() {
	f.damaged = ""
	for range 1 + f.r.IntN(3)/2 {
		d := allDamage[f.r.IntN(len(allDamage))]
		f.note("damage: %s", d.name)
		if d.do(f) {
			f.damaged = strings.TrimPrefix(f.damaged+", "+d.name, ", ")
		}
	}
	if f.damaged != "" && f.clean && f.r.IntN(2) == 0 {
		f.note("damage: no marker")
		f.unmark()
	}
}

func (f *kafkaFolder) unmark() bool {
	f.clean = false
	require.NoError(f.t, SetCleanMarker(f.root, false))
	return true
}

func (f *kafkaFolder) base(name string) int64 {
	digits, _, _ := strings.Cut(filepath.Base(name), ".")
	n, err := strconv.ParseInt(digits, 10, 64)
	require.NoError(f.t, err)
	return n
}

// active is the last file of a kind, "" if there is none.
func (f *kafkaFolder) active(ext string) string {
	all := partitionFiles(f.t, f.dir(), ext)
	if len(all) == 0 {
		return ""
	}
	return all[len(all)-1]
}

func (f *kafkaFolder) any(ext string) string {
	all := partitionFiles(f.t, f.dir(), ext)
	if len(all) == 0 {
		return ""
	}
	return all[f.r.IntN(len(all))]
}

func (f *kafkaFolder) size(name string) int64 {
	info, err := os.Stat(name)
	if err != nil {
		return 0
	}
	return info.Size()
}

func (f *kafkaFolder) cut(name string) bool {
	size := f.size(name)
	if size == 0 {
		return false
	}
	to := f.r.Int64N(size)
	if f.r.IntN(2) == 0 {
		to = max(0, size-1-f.r.Int64N(100))
	}
	f.note("%s from %d to %d bytes", filepath.Base(name), size, to)
	require.NoError(f.t, os.Truncate(name, to))
	return true
}

func (f *kafkaFolder) extend(name string, b []byte) bool {
	if name == "" || len(b) == 0 {
		return false
	}
	f.note("%s: %d bytes more than %d", filepath.Base(name), len(b), f.size(name))
	file, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(f.t, err)
	_, err = file.Write(b)
	require.NoError(f.t, err)
	require.NoError(f.t, file.Close())
	return true
}

func (f *kafkaFolder) flip(name string) bool {
	if f.size(name) == 0 {
		return false
	}
	b, err := os.ReadFile(name)
	require.NoError(f.t, err)
	at, bit := f.r.IntN(len(b)), f.r.IntN(8)
	if len(b) > 200 && f.r.IntN(2) == 0 {
		at = f.r.IntN(200)
	}
	f.note("%s: bit %d of byte %d of %d", filepath.Base(name), bit, at, len(b))
	b[at] ^= 1 << bit
	require.NoError(f.t, os.WriteFile(name, b, 0o644))
	return true
}

func (f *kafkaFolder) remove(name string) bool {
	if name == "" {
		return false
	}
	f.note("%s goes", filepath.Base(name))
	return os.Remove(name) == nil
}

// point gives a checkpoint another offset: none, one of the log, or one behind it.
func (f *kafkaFolder) point(file string) bool {
	name := filepath.Join(f.root, file)
	all, err := checkpoint(name)
	require.NoError(f.t, err)
	key := fmt.Sprintf("%s %d", f.topic, f.part)
	logs := partitionFiles(f.t, f.dir(), ".log")
	if len(logs) == 0 {
		return false
	}
	at := f.base(logs[0]) + f.r.Int64N(max(1, 40+f.base(logs[len(logs)-1])-f.base(logs[0])))
	if f.r.IntN(4) == 0 {
		at = slices.Max([]int64{0, f.base(logs[0]) - 5})
	}
	before := all[key]
	all[key] = strconv.FormatInt(at, 10)
	if f.r.IntN(8) == 0 {
		delete(all, key)
	}
	f.note("%s: %s instead of %s", file, all[key], before)
	require.NoError(f.t, writeCheckpoint(name, all))
	return true
}
