package txnindex

import (
	"io/fs"
)

// Below is the number of entries whose transaction ends below offset: those that a reader of offset and what is behind need
// not know. Entries stand in order of LastOffset, so it is a binary search. The order is not taken on trust: what was neither
// written here nor looked at since the file was opened is checked first, as Check does, and what cannot be right is a
// *CorruptError.
func (x *Index) Below(offset int64) (n int64, err error) {
	const tries = 3 // how often the file may be closed by somebody else meanwhile
	for range tries {
		var at extent
		found := false
		err := x.shared(func() (err error) {
			at = extent{x.sound, x.size, x.opens}
			if found = at.sound == at.size; found {
				n, err = x.below(offset)
			}
			return err
		})
		if err != nil || found || at.size == 0 {
			return n, err
		}
		if _, err := x.From(at.sound/EntrySize, func(Entry) bool { return true }); err != nil {
			return 0, err
		}
		x.vouch(at)
	}
	return 0, nil
}

// extent is what was known of the file at one moment.
type extent struct {
	sound, size int64
	opens       uint64
}

// vouch notes that the entries were checked, if they are still the same.
func (x *Index) vouch(at extent) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.known && x.opens == at.opens && x.size >= at.size {
		x.sound = max(x.sound, at.size)
	}
}

// below is Below of entries in order. The caller holds mu, if only shared.
func (x *Index) below(offset int64) (int64, error) {
	lo, hi := int64(0), x.size/EntrySize // the first entry at or above offset is one of [lo, hi]
	if x.last < offset {
		return hi, nil
	}
	buf := blocks.Get().(*[blockEntries * EntrySize]byte)
	defer blocks.Put(buf)
	for hi-lo > blockEntries {
		mid := lo + (hi-lo)/2
		if err := readFull(x.file, buf[:EntrySize], mid*EntrySize); err != nil {
			return 0, &fs.PathError{Op: "read", Path: x.name, Err: err}
		}
		if e, _ := Decode(buf[:]); e.LastOffset < offset {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	_, err := x.block(lo*EntrySize, func(e Entry, pos int64) (bool, error) {
		if pos == hi*EntrySize || e.LastOffset >= offset {
			return false, nil
		}
		lo++
		return true, nil
	})
	return lo, err
}
