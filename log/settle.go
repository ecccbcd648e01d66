package log

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/partlog/partlog/compaction"
)

// settle finishes or undoes what an interrupted deletion, compaction or split left in the folder, by Kafka's rules:
//
//	.cleaned, .swap   see compaction.Settle
//	.deleted          was on its way out: removed, once nothing else can need it
//	.tmp              a small file's replacement that was never renamed: removed
//
// Every step leaves a state that settles to the same result.
func (l *Log) settle() error {
	names, err := l.leftovers()
	if err != nil || len(names) == 0 {
		return err
	}
	l.unlist()
	settled, err := compaction.Settle(l.name, l.cfg().segOpts)
	l.recovery.Removed = append(l.recovery.Removed, settled.RolledBack...)
	l.recovery.Rebuilt = append(l.recovery.Rebuilt, settled.RolledForward...)
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasSuffix(name, ".swap") || strings.HasSuffix(name, ".cleaned") {
			continue
		}
		if err := l.removeFile(name); err != nil && !l.putOff(name, err) {
			return err
		}
	}
	return l.syncDir()
}

// leftovers lists the files with one of the four suffixes.
func (l *Log) leftovers() ([]string, error) {
	entries, err := l.listing()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if isLeftover(e.Name()) && !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

func isLeftover(name string) bool {
	return strings.HasSuffix(name, ".deleted") || strings.HasSuffix(name, ".cleaned") || strings.HasSuffix(name, ".swap") || strings.HasSuffix(name, ".tmp")
}

// putOff leaves a file that nobody needs and that cannot be removed now for later: it must not keep the log from opening.
func (l *Log) putOff(name string, why error) bool {
	if !strings.HasSuffix(name, ".deleted") && !strings.HasSuffix(name, ".tmp") {
		return false
	}
	l.discards.add(discarded{file: name, promptly: true})
	l.find(Finding{File: l.path(name), Position: -1, Offset: -1, Kind: FindingLeftover, Detail: why.Error() + "; its removal is tried again"})
	return true
}

func parseOffset(digits string) (int64, error) {
	offset, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || offset < 0 {
		return 0, fmt.Errorf("%q is no offset", digits)
	}
	return offset, nil
}
