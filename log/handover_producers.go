package log

import (
	"errors"

	"github.com/partlog/partlog/internal/checkpoint"
	"github.com/partlog/partlog/internal/producerstate"
	"github.com/partlog/partlog/internal/txnindex"
	"github.com/partlog/partlog/segment"
	"github.com/partlog/partlog/vfs"
)

// A cluster gives its producers ids from 0 upward, so those of two clusters are the same. In a log that came from another one
// they must not be: what a new producer sends would be taken for a repetition of what the old one of that id sent, and never
// be written. So the ids of the source get a bit that no cluster ever counts up to, in all places where they stand:
//
//	.log        batches and markers, below the checksum
//	.txnindex   aborted transactions, which consumers compare with the batches
//	.snapshot   what the broker's recovery begins with
const strangerBit = int64(1) << 62

// stranger is the id that a producer of the source has in the copy; -1 is nobody.
func stranger(id int64) int64 {
	if id < 0 {
		return id
	}
	return id | strangerBit
}

func relabelAborted(root vfs.FS, folder string, base int64) error {
	name := folder + "/" + segment.FileName(base, ".txnindex")
	x := txnindex.New(root, name, base)
	var entries []byte
	for e, err := range x.All() {
		if err != nil {
			return errors.Join(err, x.Close())
		}
		e.ProducerID = stranger(e.ProducerID)
		var b [txnindex.EntrySize]byte
		e.Put(b[:])
		entries = append(entries, b[:]...)
	}
	if err := x.Close(); err != nil || len(entries) == 0 {
		return err
	}
	return checkpoint.WriteFile(root, name, entries)
}

func relabelSnapshots(root vfs.FS, folder string) error {
	all, err := producerstate.List(root, folder)
	if err != nil {
		return err
	}
	for _, at := range all {
		name := folder + "/" + producerstate.FileName(at)
		entries, err := producerstate.ReadSnapshot(root, name)
		if errors.Is(err, producerstate.ErrCorrupt) { // whoever opens the copy reads the log from an older one
			if err = root.Remove(name); err == nil {
				continue
			}
		}
		if err != nil {
			return err
		}
		for i := range entries {
			entries[i].ProducerID = stranger(entries[i].ProducerID)
		}
		if err := producerstate.WriteSnapshot(root, name, entries); err != nil {
			return err
		}
	}
	return nil
}
