package interop

import (
	"fmt"
	"os"
)

// victimEnv makes the test binary, started again by a test, do one thing until it is killed.
const victimEnv = "PARTLOG_INTEROP_VICTIM"

// victims are the things it can do, by name; each reads its own settings from the environment.
var victims = map[string]func() error{}

func runVictim(name string) int {
	do, ok := victims[name]
	if !ok {
		fmt.Fprintln(os.Stderr, "unknown victim", name)
		return 2
	}
	if err := do(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
