package main

import (
	"errors"
	"flag"
	"fmt"
	"strings"

	"github.com/partlog/partlog/log"
)

// settings are the --config flags: Kafka's topic keys.
type settings map[string]string

func configFlag(fl *flag.FlagSet) settings {
	s := settings{}
	fl.Func("config", "set one of Kafka's topic settings to a value, as `KEY=VALUE` (segment.bytes, …, internal.segment.bytes for tiny segments); may be repeated", func(text string) error {
		key, value, ok := strings.Cut(text, "=")
		if !ok {
			return errors.New("want KEY=VALUE")
		}
		s[strings.TrimSpace(key)] = strings.TrimSpace(value)
		return nil
	})
	return s
}

func (s settings) config() (log.Config, error) { return log.ParseConfig(s) }

// notes tells of keys that were accepted and change nothing.
func (s settings) notes(e *env) {
	for _, n := range log.ConfigNotes(s) {
		fmt.Fprintf(e.err, "note: %s has no effect: %s\n", n.Key, n.Text)
	}
}
