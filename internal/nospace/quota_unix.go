//go:build unix

package nospace

import "syscall"

const errQuota = syscall.EDQUOT
