// Package nospace tells the errors of a full device from others.
package nospace

import (
	"errors"
	"syscall"
)

// Is says that the device or the user's quota is full.
func Is(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, errQuota)
}
