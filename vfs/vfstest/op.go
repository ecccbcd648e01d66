package vfstest

import (
	"fmt"
	"os"
	"path"
	"strings"
)

// Kind is what a call does.
type Kind uint8

// The kinds of calls. Sizes, closes and the like are kinds too, so that a gate can count them.
const (
	OpOpen     Kind = iota + 1 // OpenFile without O_CREATE
	OpCreate                   // OpenFile with O_CREATE; in Crash.Ops only if it made the file
	OpClose                    // File.Close
	OpRead                     // File.ReadAt
	OpWrite                    // File.WriteAt
	OpSize                     // File.Size
	OpTruncate                 // File.Truncate, and the cut that O_TRUNC makes
	OpSync                     // File.Sync
	OpSyncData                 // File.SyncData
	OpAllocate                 // File.Allocate
	OpEvict                    // File.Evict
	OpMap                      // File.Map
	OpMapRead                  // Mapping.Read
	OpConn                     // File.SyscallConn
	OpStat                     // FS.Stat
	OpRename                   // FS.Rename
	OpLink                     // FS.Link
	OpRemove                   // FS.Remove
	OpMkdir                    // FS.MkdirAll; in Crash.Ops one for each directory it made
	OpReadDir                  // FS.ReadDir
	OpSyncDir                  // FS.SyncDir
	OpLock                     // FS.Lock
	OpUnlock                   // closing a lock
	OpChtimes                  // FS.Chtimes
	OpFree                     // FS.Free
	OpNote                     // Note of Trace or Crash, not a call
	lastKind
)

var kindNames = [lastKind]string{
	OpOpen: "open", OpCreate: "create", OpClose: "close", OpRead: "read", OpWrite: "write", OpSize: "size",
	OpTruncate: "truncate", OpSync: "sync", OpSyncData: "syncdata", OpAllocate: "allocate", OpEvict: "evict",
	OpMap: "map", OpMapRead: "mapread", OpConn: "conn", OpStat: "stat", OpRename: "rename", OpLink: "link",
	OpRemove: "remove", OpMkdir: "mkdir", OpReadDir: "readdir", OpSyncDir: "syncdir", OpLock: "lock",
	OpUnlock: "unlock", OpChtimes: "chtimes", OpFree: "free", OpNote: "note",
}

func (k Kind) String() string {
	if k == 0 || k >= lastKind {
		return fmt.Sprintf("kind %d", uint8(k))
	}
	return kindNames[k]
}

// Op is one call, as Fault hands it to a hook and Trace and Crash write it down.
type Op struct {
	Kind Kind
	Name string // the file or directory; for an open file the name it was opened under
	To   string // the new name of a rename or link
	Off  int64  // bytes; of reads, writes, Allocate, Evict
	Len  int64  // bytes asked for; the new length for OpTruncate, the mapped length for OpMap
	Done int64  // bytes a read or write really moved; 0 in a hook
	Flag int    // of OpOpen and OpCreate, os.O_*
	Err  error  // what the call returned; nil in a hook
	Note any    // of OpNote
}

// String is one line without a newline: "write orders-0/0.log [4096,4608)".
func (o Op) String() string {
	var b strings.Builder
	b.WriteString(o.Kind.String())
	if o.Kind == OpNote {
		fmt.Fprintf(&b, " %v", o.Note)
		return b.String()
	}
	b.WriteByte(' ')
	b.WriteString(o.Name)
	switch o.Kind {
	case OpRename, OpLink:
		b.WriteString(" -> " + o.To)
	case OpRead, OpWrite, OpAllocate, OpEvict:
		fmt.Fprintf(&b, " [%d,%d)", o.Off, o.Off+o.Len)
		if (o.Kind == OpRead || o.Kind == OpWrite) && o.Done != o.Len {
			fmt.Fprintf(&b, " did %d", o.Done)
		}
	case OpTruncate, OpMap:
		fmt.Fprintf(&b, " to %d", o.Len)
	case OpOpen, OpCreate:
		if o.Flag&os.O_TRUNC != 0 {
			b.WriteString(" (truncating)")
		}
	}
	if o.Err != nil {
		fmt.Fprintf(&b, " = %v", o.Err)
	}
	return b.String()
}

// Match says whether the name of o matches the pattern and its kind is one of kinds (none = any). The pattern is that
// of path.Match; one without a slash is compared with the last element of the name; "" matches all. A rename or link
// matches by either name. A malformed pattern matches nothing.
func (o Op) Match(pattern string, kinds ...Kind) bool {
	return matchKind(o.Kind, kinds) && (matchName(pattern, o.Name) || o.To != "" && matchName(pattern, o.To))
}

func matchKind(k Kind, kinds []Kind) bool {
	for _, want := range kinds {
		if want == k {
			return true
		}
	}
	return len(kinds) == 0
}

func matchName(pattern, name string) bool {
	if pattern == "" {
		return true
	}
	if !strings.Contains(pattern, "/") {
		name = path.Base(name)
	}
	ok, err := path.Match(pattern, name)
	return err == nil && ok
}

func formatOps(ops []Op) string {
	var b strings.Builder
	for i, o := range ops {
		fmt.Fprintf(&b, "%4d  %s\n", i, o)
	}
	return b.String()
}
