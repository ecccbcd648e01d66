package log

import (
	"errors"
	"io/fs"
	"strconv"
	"strings"

	"github.com/partlog/partlog/vfs"
)

// clusterMetadata is the log of a cluster's metadata: no client's, and in a log root only by way of its name.
var clusterMetadata = TopicPartition{"__cluster_metadata", 0}

// metadataSnapshot says whether a file is a snapshot of a cluster's metadata, <end offset, 20 digits>-<epoch, 10
// digits>.checkpoint, as the folder of __cluster_metadata has them beside its segments. What it says was once in segments
// below it that are deleted: it is nowhere else.
func metadataSnapshot(name string) bool {
	offset, epoch, _ := strings.Cut(strings.TrimSuffix(name, ".checkpoint"), "-")
	if len(name) != 20+1+10+len(".checkpoint") || len(offset) != 20 || len(epoch) != 10 {
		return false
	}
	_, bad := strconv.ParseUint(offset, 10, 63)
	_, worse := strconv.ParseUint(epoch, 10, 31)
	return bad == nil && worse == nil
}

// copyMetadataSnapshots copies those of a folder into one of another tree, where the names are the caller's to sync. One
// that vanishes meanwhile was replaced by a newer one.
func copyMetadataSnapshots(from vfs.FS, folder string, to vfs.FS, newFolder string) error {
	entries, err := from.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() || !metadataSnapshot(e.Name()) {
			continue
		}
		_, err := vfs.Copy(from, folder+"/"+e.Name(), to, newFolder+"/"+e.Name())
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
