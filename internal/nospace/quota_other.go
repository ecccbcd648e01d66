//go:build !unix

package nospace

import "syscall"

// errQuota stands in for EDQUOT where there is none.
const errQuota = syscall.ENOSPC
