// Package checkpoint reads and writes the small files beside the logs: Kafka's text checkpoints, a partition's identity,
// the marker of a clean shutdown and the root's identity.
//
//	<root>/recovery-point-offset-checkpoint    0 LF <count> LF { <topic> <partition> <offset> LF }
//	<root>/log-start-offset-checkpoint         the same
//	<root>/replication-offset-checkpoint       the same
//	<root>/cleaner-offset-checkpoint           the same
//	<partition>/leader-epoch-checkpoint        0 LF <count> LF { <epoch> <start offset> LF }
//	<partition>/partition.metadata             version: 0 LF topic_id: <22 characters of URL base64>
//	<root>/.kafka_cleanshutdown                {"version":0,"brokerEpoch":<number>}
//	<root>/meta.properties                     # LF #<date> LF { <key>=<value> LF }
//
// A missing or empty checkpoint has no entries. Any other deviation from the format is a *FormatError: a broker would
// take the whole root offline over it, so these files are replaced atomically and never half written. Readers hold a
// file in memory and refuse one beyond a generous size. All names are paths below the root of a vfs.FS.
package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"github.com/partlog/partlog/vfs"
)

// Names of the files, as Kafka has them.
const (
	RecoveryPoints = "recovery-point-offset-checkpoint" // in the root: below it all files of a log are on the device
	LogStarts      = "log-start-offset-checkpoint"      // in the root: start offsets that lie inside a segment
	HighWatermarks = "replication-offset-checkpoint"    // in the root
	CleanerOffsets = "cleaner-offset-checkpoint"        // in the root: first offset not yet compacted
	LeaderEpochs   = "leader-epoch-checkpoint"          // in a partition folder
	Metadata       = "partition.metadata"               // in a partition folder
	CleanMarker    = ".kafka_cleanshutdown"             // in the root
	MetaProperties = "meta.properties"                  // in the root
)

// tmpSuffix marks a file that is still being written; one found at open is a leftover of a crash.
const tmpSuffix = ".tmp"

// Limits of what a reader takes into memory: 64 MiB of offset checkpoint are more than 230,000 partitions with the
// longest names, 16 MiB of epochs more than 500,000 elections.
const (
	maxOffsetsBytes = 64 << 20
	maxEpochsBytes  = 16 << 20
	maxSmallBytes   = 64 << 10
)

// ErrFormat is what every *FormatError is.
var ErrFormat = errors.New("checkpoint: malformed file")

// FormatError says where a file leaves its format.
type FormatError struct {
	File   string // path below the root
	Line   int    // from 1; 0: the file as a whole
	Reason string
}

func (e *FormatError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("checkpoint: %s: %s", e.File, e.Reason)
	}
	return fmt.Sprintf("checkpoint: %s line %d: %s", e.File, e.Line, e.Reason)
}

// Is makes errors.Is(err, ErrFormat) true.
func (e *FormatError) Is(target error) bool { return target == ErrFormat }

// WriteFile replaces a small file so that after a crash either the old or the new content is there, whole: it writes
// <name>.tmp, syncs it, renames it over name and syncs the directory. It returns when all that is durable. After an
// error the old content is still in place, or (when only the last step failed) the new one.
func WriteFile(fsys vfs.FS, name string, content []byte) error {
	tmp := name + tmpSuffix
	if err := writeSynced(fsys, tmp, content); err != nil {
		_ = fsys.Remove(tmp) // the first error counts; a leftover is overwritten by the next write
		return err
	}
	if err := fsys.Rename(tmp, name); err != nil {
		_ = fsys.Remove(tmp)
		return err
	}
	return syncDir(fsys, path.Dir(name))
}

// syncDir makes a directory's entries durable, where the file system has a call for it.
func syncDir(fsys vfs.FS, name string) error {
	if err := fsys.SyncDir(name); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
}

func writeSynced(fsys vfs.FS, name string, content []byte) error {
	f, err := fsys.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	n, err := f.WriteAt(content, 0)
	if err == nil && n < len(content) {
		err = &fs.PathError{Op: "write", Path: name, Err: io.ErrShortWrite}
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// read is the content of a file of at most limit bytes; nil if there is no such file.
func read(fsys vfs.FS, name string, limit int64) ([]byte, bool, error) {
	b, err := vfs.ReadFile(fsys, name, limit)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, false, nil
	case errors.Is(err, vfs.ErrTooLong):
		return nil, false, &FormatError{File: name, Reason: fmt.Sprintf("longer than %d bytes", limit)}
	case err != nil:
		return nil, false, err
	}
	return b, true, nil
}
