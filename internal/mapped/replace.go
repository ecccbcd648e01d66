package mapped

import (
	"errors"
	"io/fs"
	"math"
)

// Replace makes a new table beside o.Name, has it filled, syncs it and renames it over o.Name, so that a crash leaves
// the old file or the whole new one. After an error the new file is gone and the old one untouched.
func Replace(o Options, fill func(t *Table) error) (*Table, error) {
	name := o.Name
	o.Name += ".tmp"
	if o.ReadOnly {
		return nil, &fs.PathError{Op: "create", Path: name, Err: ErrReadOnly}
	}
	if err := o.FS.Remove(o.Name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	t, err := Create(o)
	if err != nil {
		return nil, err
	}
	if err = fill(t); err == nil {
		if err = t.Sync(); err == nil {
			err = t.Rename(name)
		}
	}
	if err != nil {
		_ = t.Close() // the first error is the one to tell
		_ = o.FS.Remove(o.Name)
		return nil, err
	}
	return t, nil
}

// Relative is offset - base, and false if offset is below base. A difference beyond int64 is math.MaxInt64.
func Relative(base, offset int64) (int64, bool) {
	if offset < base {
		return 0, false
	}
	if rel := offset - base; rel >= 0 {
		return rel, true
	}
	return math.MaxInt64, true
}

// Fits says whether offset can be stored relative to base: 0 to 2^31-1 above it.
func Fits(base, offset int64) bool {
	rel, ok := Relative(base, offset)
	return ok && rel <= math.MaxInt32
}
