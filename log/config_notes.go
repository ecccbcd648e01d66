package log

import (
	"maps"
	"slices"
	"strings"
)

// ConfigNote says of a key that ParseConfig accepted why it changed nothing.
type ConfigNote struct {
	Key      string // as given
	Obsolete bool   // Kafka removed the key
	Text     string // why it has no effect here, and what field to use
}

// ConfigNotes names the keys that have no effect on a Config, or whose field has none on a log: those Kafka removed, those that
// belong to another part of a broker, those that replication looks at and no log does, and compression levels of a codec
// that is not the compression type. In the order of the keys; unknown ones are left to ParseConfig, which refuses them.
func ConfigNotes(kafka map[string]string) []ConfigNote {
	var notes []ConfigNote
	c, _ := ParseConfig(kafka)
	c = c.withDefaults()
	for _, key := range slices.Sorted(maps.Keys(kafka)) {
		if o, ok := otherKeys[key]; ok && o.client == "" {
			notes = append(notes, ConfigNote{Key: key, Obsolete: o.removed, Text: o.text})
			continue
		}
		if text := unheededText(key); text != "" {
			notes = append(notes, ConfigNote{Key: key, Text: text})
			continue
		}
		codec, isLevel := strings.CutSuffix(strings.TrimPrefix(key, "compression."), ".level")
		if isLevel && codec != c.CompressionType && slices.Contains(compressionTypes, codec) {
			notes = append(notes, ConfigNote{Key: key, Text: "compression.type is " + c.CompressionType})
		}
	}
	return notes
}

// forReplication are the settings whose fields a log keeps and does not look at.
var forReplication = map[string]string{
	"min.insync.replicas":            "replica.Config.MinISR",
	"unclean.leader.election.enable": "package replica/controller",
}

// unheededText is the note on a key, or a broker's synonym of it, whose field no log looks at.
func unheededText(key string) string {
	for i := range settings {
		s := &settings[i]
		mine := s.key == key || slices.ContainsFunc(s.broker, func(b synonym) bool { return b.key == key })
		if who := forReplication[s.key]; mine && who != "" {
			return "a log does not look at it; it is for replication (" + who + ")"
		}
	}
	return ""
}

// unknownReason says whose key it is, or suggests the one that was meant: it differs in case, dots, dashes, underscores or
// blanks, or in two characters at most.
func unknownReason(key string) string {
	const reason = "unknown key"
	if who := otherKeys[key].client; who != "" {
		return "a setting of " + who + ", not of a log"
	}
	if len(key) > 200 {
		return reason
	}
	known := slices.Collect(maps.Keys(otherKeys))
	for i := range settings {
		known = append(known, settings[i].key)
		for _, s := range settings[i].broker {
			known = append(known, s.key)
		}
	}
	slices.Sort(known)
	best, least := "", 3
	for _, k := range known {
		if d := distance(squeeze(key), squeeze(k), least); d < least {
			best, least = k, d
		}
	}
	if best == "" || least > 0 && len(key) < 8 {
		return reason
	}
	return reason + "; did you mean " + best + "?"
}

func squeeze(key string) string {
	return strings.Map(func(r rune) rune {
		switch r {
		case '.', '-', '_', ' ', '\t':
			return -1
		}
		return r
	}, strings.ToLower(key))
}

// distance is how many bytes have to be put in, left out or changed to make b of a; limit, if there are as many or more.
func distance(a, b string, limit int) int {
	if max(len(a)-len(b), len(b)-len(a)) >= limit {
		return limit
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, diagonal+1, row[j]+1)
		}
	}
	return min(row[len(b)], limit)
}
