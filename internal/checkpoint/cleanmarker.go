package checkpoint

import (
	"encoding/json"
	"errors"
	"io/fs"
	"strconv"

	"github.com/partlog/partlog/vfs"
)

// ReadCleanMarker says whether the root was stopped cleanly and the broker epoch its marker names. Only the marker's
// existence decides; an empty or unreadable content gives epoch -1.
func ReadCleanMarker(fsys vfs.FS) (brokerEpoch int64, clean bool, err error) {
	b, found, err := read(fsys, CleanMarker, maxSmallBytes)
	switch {
	case errors.Is(err, ErrFormat):
		return -1, true, nil
	case err != nil || !found:
		return -1, false, err
	}
	return ParseCleanMarker(b), true, nil
}

// ParseCleanMarker is the broker epoch of a marker's content, -1 if it names none.
func ParseCleanMarker(b []byte) int64 {
	var m struct {
		Version     *int64 `json:"version"`
		BrokerEpoch *int64 `json:"brokerEpoch"`
	}
	if json.Unmarshal(b, &m) != nil || m.Version == nil || m.BrokerEpoch == nil {
		return -1
	}
	return *m.BrokerEpoch
}

// WriteCleanMarker leaves the marker, durably. It must be the very last write of a root in which everything else is
// synced. brokerEpoch is -1 outside a cluster. After an error no marker is left, as far as the disk lets it be removed:
// even an empty one would count.
func WriteCleanMarker(fsys vfs.FS, brokerEpoch int64) error {
	b := append([]byte(`{"version":0,"brokerEpoch":`), strconv.FormatInt(brokerEpoch, 10)...)
	err := writeSynced(fsys, CleanMarker, append(b, '}'))
	if err == nil {
		err = syncDir(fsys, ".")
	}
	if err != nil {
		_ = fsys.Remove(CleanMarker) // the first error counts
	}
	return err
}

// RemoveCleanMarker takes the marker away, durably; it must be done before a log of the root is touched. No marker is no
// error.
func RemoveCleanMarker(fsys vfs.FS) error {
	err := fsys.Remove(CleanMarker)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	return syncDir(fsys, ".")
}
