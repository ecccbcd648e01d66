package interop

import (
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
)

// The checkpoints that say something about a partition, and the marker, by file name.
const (
	recoveryPointFile = "recovery-point-offset-checkpoint"
	logStartFile      = "log-start-offset-checkpoint"
	highWatermarkFile = "replication-offset-checkpoint"
	cleanMarkerFile   = ".kafka_cleanshutdown"
	cleanerFile       = "cleaner-offset-checkpoint"
)

// Place moves a partition from one log root to another, as an operator would who hands it to a stopped broker: the folder,
// its line in each checkpoint, and the topic id the receiving cluster knows the topic by ("" keeps the folder's own).
// Whether the receiving root counts as stopped cleanly is the caller's business.
func Place(fromRoot, toRoot, folder, topicID string) error {
	to := filepath.Join(toRoot, folder)
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	if err := os.CopyFS(to, os.DirFS(filepath.Join(fromRoot, folder))); err != nil {
		return err
	}
	if topicID != "" {
		if err := os.WriteFile(filepath.Join(to, "partition.metadata"), []byte("version: 0\ntopic_id: "+topicID), 0o644); err != nil {
			return err
		}
	}
	i := strings.LastIndexByte(folder, '-')
	key := folder[:i] + " " + folder[i+1:]
	for _, name := range []string{recoveryPointFile, logStartFile, highWatermarkFile} {
		from, err := checkpoint(filepath.Join(fromRoot, name))
		if err != nil {
			return err
		}
		all, err := checkpoint(filepath.Join(toRoot, name))
		if err != nil {
			return err
		}
		delete(all, key)
		if offset, ok := from[key]; ok {
			all[key] = offset
		}
		if err := writeCheckpoint(filepath.Join(toRoot, name), all); err != nil {
			return err
		}
	}
	return nil
}

// SetCleanMarker makes the next owner believe (or not) that the root was stopped cleanly.
func SetCleanMarker(root string, clean bool) error {
	name := filepath.Join(root, cleanMarkerFile)
	if !clean {
		err := os.Remove(name)
		if os.IsNotExist(err) {
			return nil
		}
		return err
	}
	return os.WriteFile(name, []byte(`{"version":0,"brokerEpoch":-1}`), 0o644)
}

// checkpoint reads "topic partition" -> offset, both as text; a missing or empty file has none.
func checkpoint(name string) (map[string]string, error) {
	out := map[string]string{}
	b, err := os.ReadFile(name)
	if os.IsNotExist(err) || err == nil && len(b) == 0 {
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	lines := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	for _, line := range lines[min(2, len(lines)):] {
		i := strings.LastIndexByte(line, ' ')
		if i < 0 {
			return nil, fmt.Errorf("interop: %s: line %q", name, line)
		}
		out[line[:i]] = line[i+1:]
	}
	return out, nil
}

func writeCheckpoint(name string, all map[string]string) error {
	keys := make([]string, 0, len(all))
	for k := range all {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	text := fmt.Sprintf("0\n%d\n", len(keys))
	for _, k := range keys {
		text += k + " " + all[k] + "\n"
	}
	return os.WriteFile(name, []byte(text), 0o644)
}
