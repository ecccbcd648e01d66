package main

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"runtime/debug"
)

func versionCommand() *command {
	return &command{
		name: "version", args: "", summary: "print the version of this program",
		help: `
Prints the version of the module this program was built from (in a checkout the commit), then the Go release and the
platform it was built for: a line to put into a bug report.

    partlog version`,
		setup: func(*flag.FlagSet) func(context.Context, *env, []string) error {
			return func(_ context.Context, e *env, args []string) error {
				if err := want(args); err != nil {
					return err
				}
				info, _ := debug.ReadBuildInfo()
				_, err := fmt.Fprintf(e.out, "partlog %s %s %s/%s\n", versionOf(info), runtime.Version(), runtime.GOOS, runtime.GOARCH)
				return err
			}
		},
	}
}

// versionOf is the module's version; in a checkout, where Go knows none, "(devel)" and the commit.
func versionOf(info *debug.BuildInfo) string {
	if info == nil {
		return "(unknown)"
	}
	version := info.Main.Version
	if version == "" {
		version = "(devel)"
	}
	if version != "(devel)" {
		return version
	}
	commit, changed := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = " " + s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = ", changed since"
		}
	}
	if commit == "" {
		return version
	}
	return version + commit + changed
}
