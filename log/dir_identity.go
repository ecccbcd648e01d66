package log

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/vfs"
)

// Identity is a root's meta.properties: the node and cluster that the disk belongs to.
type Identity struct {
	Version     int      // 0 (broker.id) or 1 (node.id)
	ClusterID   string   // "" none
	NodeID      int32    // -1 none
	DirectoryID [16]byte // zero: none
}

// IdentityError: the root belongs to another node or cluster than DirConfig says. It is ErrIdentity.
type IdentityError struct {
	Have      Identity // what meta.properties says
	ClusterID string   // as given
	NodeID    int32    // as given
}

func (e *IdentityError) Error() string {
	return fmt.Sprintf("%v: it is of node %d in cluster %q, given were node %d and cluster %q", ErrIdentity, e.Have.NodeID, e.Have.ClusterID, e.NodeID, e.ClusterID)
}

// Is makes errors.Is(err, ErrIdentity) true.
func (e *IdentityError) Is(target error) bool { return target == ErrIdentity }

// Identity is what the root's meta.properties said at OpenDir, or was written then. Without the file NodeID is -1 and the
// rest zero.
func (d *Dir) Identity() Identity { return d.identity }

// readIdentity reads meta.properties and compares it with what the host expects. A host that expects nothing is not
// refused its logs over a file that only a broker needs. entries is what the root holds.
func readIdentity(fsys vfs.FS, c DirConfig, entries []fs.DirEntry) (Identity, error) {
	there := slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == checkpoint.MetaProperties })
	if !there && c.ClusterID == "" {
		return Identity{NodeID: -1}, nil
	}
	found, exists, err := checkpoint.ReadIdentity(fsys)
	if c.ClusterID == "" {
		if errors.Is(err, checkpoint.ErrFormat) {
			c.Logger.Warn("meta.properties is malformed: a broker would not start on this root", "error", err)
			err = nil
		}
		return identityOf(found), err
	}
	switch {
	case err != nil:
		return Identity{NodeID: -1}, err
	case !exists:
		return writeIdentity(fsys, checkpoint.Identity{Version: 1, ClusterID: c.ClusterID, NodeID: c.NodeID}, c.Now())
	case found.NodeID >= 0 && found.NodeID != c.NodeID, found.ClusterID != "" && found.ClusterID != c.ClusterID:
		return identityOf(found), &IdentityError{Have: identityOf(found), ClusterID: c.ClusterID, NodeID: c.NodeID}
	case found.Version == 1 && found.DirectoryID.IsZero(): // written before directories had ids: a broker adds one too
		return writeIdentity(fsys, found, c.Now())
	}
	return identityOf(found), nil
}

// writeIdentity gives the root a new directory id.
func writeIdentity(fsys vfs.FS, id checkpoint.Identity, now time.Time) (Identity, error) {
	id.DirectoryID = newDirectoryID()
	return identityOf(id), checkpoint.WriteIdentity(fsys, id, now)
}

// newDirectoryID is a random UUID (version 4) whose text form does not begin with a dash: like Kafka's, it can be an
// argument of a command line.
func newDirectoryID() (id checkpoint.ID) {
	for id.IsZero() || id.String()[0] == '-' {
		_, _ = rand.Read(id[:]) // never fails
		id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	}
	return id
}

func identityOf(id checkpoint.Identity) Identity {
	return Identity{Version: id.Version, ClusterID: id.ClusterID, NodeID: id.NodeID, DirectoryID: id.DirectoryID}
}
