package interop

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/stretchr/testify/require"
)

// damageKind is one thing done to folders by hand, by the name it is counted under.
type damageKind struct {
	name string
	do   func(*kafkaFolder) bool // false: there is nothing to do it to
}

// textDamage is what happens to the small files of lines: editors, scripts, torn and mixed up copies.
var textDamage = []damageKind{
	{"a checkpoint of other line ends", func(f *kafkaFolder) bool {
		return f.rewrite(f.someCheckpoint(), func(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") })
	}},
	{"a checkpoint of other blanks", func(f *kafkaFolder) bool {
		return f.rewrite(f.someCheckpoint(), func(s string) string {
			lines := strings.Split(s, "\n")
			for i := range lines {
				if i < 2 || lines[i] == "" {
					continue
				}
				switch f.r.IntN(3) {
				case 0:
					lines[i] += "  "
				case 1:
					lines[i] = strings.ReplaceAll(lines[i], " ", "\t ")
				}
			}
			return strings.Join(lines, "\n")
		})
	}},
	{"a checkpoint without its last line end", func(f *kafkaFolder) bool {
		return f.rewrite(f.someCheckpoint(), func(s string) string { return strings.TrimSuffix(s, "\n") })
	}},
	{"a checkpoint with an empty line", func(f *kafkaFolder) bool {
		return f.rewrite(f.someCheckpoint(), func(s string) string { return s + "\n" })
	}},
	{"an empty checkpoint", func(f *kafkaFolder) bool {
		return f.rewrite(f.someCheckpoint(), func(string) string { return "" })
	}},
	{"a checkpoint of a version", func(f *kafkaFolder) bool {
		return f.rewrite(f.someCheckpoint(), func(s string) string {
			version := []string{"1", "-1", "00", "+0", " 0", "x", ""}[f.r.IntN(7)]
			return version + strings.TrimPrefix(s, "0")
		})
	}},
	{"a checkpoint of its version only", func(f *kafkaFolder) bool {
		return f.rewrite(f.someCheckpoint(), func(string) string { return []string{"0", "0\n", "0\n0", "0\n\n"}[f.r.IntN(4)] })
	}},
	{"a checkpoint of another count", func(f *kafkaFolder) bool {
		return f.rewrite(f.someCheckpoint(), func(s string) string {
			lines := strings.Split(s, "\n")
			if len(lines) < 2 {
				return s
			}
			n, _ := strconv.Atoi(lines[1])
			lines[1] = []string{fmt.Sprint(n + 1), fmt.Sprint(n - 1), fmt.Sprint(-n), "+" + fmt.Sprint(n), "0" + fmt.Sprint(n), ""}[f.r.IntN(6)]
			return strings.Join(lines, "\n")
		})
	}},
	{"a checkpoint with entries twice", func(f *kafkaFolder) bool {
		return f.addPoints(fmt.Sprintf("%s %d %d", f.topic, f.part, f.r.IntN(60)))
	}},
	{"a checkpoint with entries of others", func(f *kafkaFolder) bool {
		return f.addPoints("nobody 0 7", fmt.Sprintf("%s %d 7", f.topic, f.part-1), "x 2147483647 9223372036854775807", "größe 1 1")
	}},
	{"a checkpoint with a strange entry", func(f *kafkaFolder) bool {
		key := fmt.Sprintf("%s %d", f.topic, f.part)
		return f.addPoints([]string{key + " -1", key + " 9223372036854775807", key + " 9223372036854775808", key + " 1.0", key + " 0x1", key, key + " 1 2",
			f.topic + " 2147483648 1", f.topic + " -1 3", " " + key + " 1", key + " +1", key + " 01"}[f.r.IntN(12)])
	}},
	{"other epochs", func(f *kafkaFolder) bool {
		return f.rewrite(filepath.Join(f.dir(), epochsFile), func(s string) string {
			lines := strings.Split(strings.TrimSuffix(s, "\n"), "\n")
			entries := lines[min(2, len(lines)):]
			switch base := f.base(f.any(".log")); f.r.IntN(7) {
			case 0: // one is missing
				if len(entries) > 1 {
					i := f.r.IntN(len(entries))
					entries = append(append([]string{}, entries[:i]...), entries[i+1:]...)
				}
			case 1: // one twice
				if len(entries) > 0 {
					entries = append(entries, entries[f.r.IntN(len(entries))])
				}
			case 2:
				entries = append(entries, fmt.Sprintf("%d %d", 1000+f.r.IntN(10), base+f.r.Int64N(50)))
			case 3:
				entries = append(entries, fmt.Sprintf("%d %d", math.MaxInt32, int64(math.MaxInt64)))
			case 4:
				entries = append([]string{fmt.Sprintf("0 %d", max(0, base-f.r.Int64N(50)))}, entries...)
			case 5:
				entries = append(entries, "-1 5")
			case 6:
				entries = append(entries, "7 -5")
			}
			return fmt.Sprintf("0\n%d\n%s\n", len(entries), strings.Join(entries, "\n"))
		})
	}},
	{"epochs of other blanks", func(f *kafkaFolder) bool {
		return f.rewrite(filepath.Join(f.dir(), epochsFile), func(s string) string {
			return []string{strings.ReplaceAll(s, "\n", "\r\n"), strings.TrimSuffix(s, "\n"), s + "\n", strings.ReplaceAll(s, "\n", " \n"), strings.ReplaceAll(s, " ", "  "), "", "0\n", "1" + s[min(1, len(s)):]}[f.r.IntN(8)]
		})
	}},
	{"other metadata", func(f *kafkaFolder) bool {
		return f.rewrite(filepath.Join(f.dir(), "partition.metadata"), func(s string) string {
			return []string{s + "\n", strings.ReplaceAll(s, "\n", "\r\n"), strings.Replace(s, "version: 0", "version: 1", 1), "", "version: 0\n", "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
				"version: 0\ntopic_id: ", "version: 0\ntopic_id: abc", strings.TrimSuffix(s, s[max(0, len(s)-1):]), s + "==", s + "\n\nmore: 1\n", strings.ReplaceAll(s, ": ", ":"), " " + s}[f.r.IntN(13)]
		})
	}},
	{"another clean marker", func(f *kafkaFolder) bool {
		return f.clean && f.rewrite(filepath.Join(f.root, cleanMarkerFile), func(string) string {
			return []string{"", "garbage", `{"version":0,"brokerEpoch":77}`, `{"version":9}`, "\x00\x00"}[f.r.IntN(5)]
		})
	}},
}

func (f *kafkaFolder) someCheckpoint() string {
	return filepath.Join(f.root, []string{recoveryPointFile, logStartFile, highWatermarkFile}[f.r.IntN(3)])
}

func (f *kafkaFolder) rewrite(name string, change func(string) string) bool {
	b, err := os.ReadFile(name)
	if err != nil {
		return false
	}
	to := change(string(b))
	f.note("%s: %q instead of %q", filepath.Base(name), to, b)
	require.NoError(f.t, os.WriteFile(name, []byte(to), 0o644))
	return to != string(b)
}

// addPoints adds lines to a checkpoint, in front of its own or behind.
func (f *kafkaFolder) addPoints(more ...string) bool {
	return f.rewrite(f.someCheckpoint(), func(s string) string {
		lines := strings.Split(strings.TrimSuffix(s, "\n"), "\n")
		own := lines[min(2, len(lines)):]
		if f.r.IntN(2) == 0 {
			own = append(more, own...)
		} else {
			own = append(own, more...)
		}
		return fmt.Sprintf("0\n%d\n%s\n", len(own), strings.Join(own, "\n"))
	})
}
