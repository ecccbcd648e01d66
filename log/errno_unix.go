//go:build unix

package log

import "syscall"

const errQuota = syscall.EDQUOT
