package log

import (
	"errors"
	"syscall"

	"github.com/partlog/partlog/internal/nospace"
)

// isNoSpace: the device or the user's quota is full.
func isNoSpace(err error) bool { return nospace.Is(err) }

// isReadOnlyFS: the file system is mounted read-only.
func isReadOnlyFS(err error) bool { return errors.Is(err, syscall.EROFS) }
