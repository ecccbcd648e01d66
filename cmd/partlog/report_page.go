package main

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"slices"
	"strconv"
	"time"
)

//go:embed report.html
var pageText string

// pageTemplate escapes whatever it is given by where it stands.
var pageTemplate = template.Must(template.New("report").Parse(pageText))

// page is what the template shows.
type page struct {
	Title, Now  string
	Root, Quick bool
	Settings    settings
	Blind       []string
	Findings    []findingInfo // of the root itself
	Damaged     int           // findings, partitions that do not open, files that could not be looked at
	Totals      []figure
	All         *bar // partitions by size
	Listed      []listed
	MoreListed  int
	Sections    []*section
	MoreDrawn   int

	bytes, segments, dropped, dirty int64
	partitions                      int
	sizes                           []listed
}

// figure is a number with its name.
type figure struct{ Name, Value, Title, Class string }

// listed is a line of the overview.
type listed struct {
	Name, ID, State, Class, Offsets, Bytes, Dirty, Drop, Held string
	Segments                                                  int
	Drawn                                                     bool

	bytes int64
}

// section is one partition in full.
type section struct {
	Name, ID, Broken, Verdict, Class string
	Figures                          []figure
	Bars                             []bar
	Density                          *density
	Compacts, Merged, Many           bool
	Drops, Damages                   bool // a segment that does
	Retention, Compaction, Unread    string
	Policy                           string
	Rows                             []row
	Findings                         []findingInfo
	MoreFindings                     int
	Epochs                           []epochRow
	MoreEpochs                       int
	Gaps                             []gapRow
	MoreGaps                         int64
	Thin                             string
	Open                             []openRow
	MoreOpen                         int
}

// row is a line of the table of segments.
type row struct {
	Base, Segments, Bytes, Records, Missing, From, To, Entries, PerEntry, State, Drop string
	Damage                                                                            int
}

type epochRow struct {
	Epoch       int32
	Start, Size string
}

type gapRow struct{ Text, Size string }

type openRow struct {
	Producer, Since, Last, Age string
}

// add takes in a partition.
func (p *page) add(s *snapshot, shapes int) {
	p.partitions++
	bytes, bad := s.bytes(), len(s.findings)
	if s.broken != "" {
		bad++
	}
	p.Damaged += bad
	p.bytes += bytes
	p.segments += int64(len(s.parts))
	p.dropped += s.retain.Freed
	l := listed{Name: s.tp.String(), ID: "p" + strconv.Itoa(p.partitions), Segments: len(s.parts), Bytes: size(bytes), bytes: bytes, Dirty: "–", Drop: "–", State: "sound"}
	if len(s.retain.Drop) > 0 {
		l.Drop = size(s.retain.Freed)
	}
	if s.compact != nil {
		p.dirty += s.compact.CleanableBytes
		l.Dirty = size(s.compact.CleanableBytes)
	}
	l.Offsets = fmt.Sprintf("%d – %d", s.o.LogStart, s.o.LogEnd)
	if p.Quick {
		l.State = "not verified"
	}
	switch {
	case s.broken != "":
		l.State, l.Class, l.Offsets = "does not open", "bad", "–"
	case len(s.findings) > 0:
		l.State, l.Class = counted(len(s.findings), "finding"), "bad"
	case s.unread != "":
		l.State, l.Class = "not read whole", "bad"
	}
	l.Drawn = len(p.Sections) < mostDrawn || bad > 0 && len(p.Sections) < 2*mostDrawn
	p.sizes = append(p.sizes, listed{Name: l.Name, ID: l.ID, bytes: bytes, Class: l.Class, Drawn: l.Drawn})
	if len(p.Listed) < mostListed || bad > 0 && len(p.Listed) < 2*mostListed {
		p.Listed = append(p.Listed, l)
	} else {
		p.MoreListed++
	}
	if l.Drawn {
		p.Sections = append(p.Sections, newSection(s, l, shapes))
	} else {
		p.MoreDrawn++
	}
}

// finish makes the overview, which one partition alone does not need.
func (p *page) finish() {
	if len(p.sizes) < 2 {
		return
	}
	p.Totals = []figure{
		{Name: "partitions", Value: strconv.Itoa(p.partitions)}, {Name: "segments", Value: strconv.FormatInt(p.segments, 10)},
		{Name: "bytes of .log files", Value: size(p.bytes), Title: counted(p.bytes, "byte")},
		{Name: "retention would drop", Value: size(p.dropped)}, {Name: "cleanable by compaction", Value: size(p.dirty)},
	}
	damage := figure{Name: "findings of verify", Value: strconv.Itoa(p.Damaged)}
	switch {
	case p.Damaged > 0:
		damage.Class = "bad"
	case p.Quick:
		damage.Value = "not verified"
	}
	p.Totals = append(p.Totals, damage)
	p.All = &bar{Title: "Partitions by size", Left: "0 B", Right: size(p.bytes), Height: mainH,
		Text: fmt.Sprintf("%s of %s, the largest first", counted(len(p.sizes), "partition"), size(p.bytes))}
	slices.SortStableFunc(p.sizes, func(a, b listed) int { return cmp.Compare(b.bytes, a.bytes) })
	sc, at := scale{0, float64(max(p.bytes, 1))}, int64(0)
	for i, l := range p.sizes {
		if i == mostShapes {
			p.All.rect(sc.at(at), barWidth, 0, mainH, "seg held", fmt.Sprintf("%d more partitions: %s", len(p.sizes)-i, size(p.bytes-at)))
			break
		}
		p.All.rect(sc.at(at), sc.at(at+l.bytes), 0, mainH, "seg sealed "+l.Class, fmt.Sprintf("%s: %s", l.Name, size(l.bytes)))
		if l.Drawn {
			p.All.Shapes[i].Href = "#" + l.ID
		}
		at += l.bytes
	}
}

func newSection(s *snapshot, l listed, shapes int) *section {
	parts := merge(s.parts, shapes)
	out := &section{Name: l.Name, ID: l.ID, Broken: s.broken, Verdict: l.State, Class: l.Class, Bars: s.draw(parts), Density: s.density(parts),
		Compacts: s.compact != nil, Merged: len(parts) < len(s.parts), Many: len(parts) > 30, Unread: s.unread, Figures: s.figures()}
	for i := range parts {
		out.Rows = append(out.Rows, parts[i].row())
		out.Drops, out.Damages = out.Drops || parts[i].Drop != "", out.Damages || parts[i].Damage > 0
	}
	for _, f := range clip(s.findings, mostFindings) {
		out.Findings = append(out.Findings, describeFinding(f))
	}
	out.MoreFindings = len(s.findings) - len(out.Findings)
	if s.broken != "" {
		return out
	}
	out.Retention = s.sentenceOfRetention()
	if s.compact != nil {
		out.Compaction = s.sentenceOfCompaction()
	}
	out.Policy = fmt.Sprintf("cleanup.policy: %q (%s)", s.config.Cleanup.String(), s.assumed)
	out.epochs(s)
	out.gaps(s)
	for _, t := range clip(s.open, mostRows) {
		age := "–"
		if t.Age >= 0 {
			age = t.Age.Truncate(time.Second).String()
		}
		out.Open = append(out.Open, openRow{fmt.Sprintf("%d, epoch %d", t.ProducerID, t.Epoch), strconv.FormatInt(t.FirstOffset, 10), when(t.LastTimestamp), age})
	}
	out.MoreOpen = len(s.open) - len(out.Open)
	return out
}

// figures are the facts that stand under a partition's name.
func (s *snapshot) figures() []figure {
	all := []figure{{Name: "segments", Value: strconv.Itoa(len(s.parts))}, {Name: "bytes", Value: size(s.bytes()), Title: counted(s.bytes(), "byte")}}
	if s.broken != "" {
		return all
	}
	stop := "clean"
	if !s.clean {
		stop = "unclean: an open recovers"
	}
	hw := "not in the root's file"
	if s.hw != nil {
		hw = strconv.FormatInt(*s.hw, 10)
	}
	id := s.topicID
	if id == "" {
		id = "none"
	}
	all = append(all,
		figure{Name: "log start", Value: strconv.FormatInt(s.o.LogStart, 10)},
		figure{Name: "last stable offset", Value: strconv.FormatInt(s.o.LastStable, 10)},
		figure{Name: "high watermark", Value: strconv.FormatInt(s.o.HighWatermark, 10)},
		figure{Name: "log end", Value: strconv.FormatInt(s.o.LogEnd, 10)},
		figure{Name: "high watermark, as checkpointed", Value: hw},
		figure{Name: "recovery point", Value: strconv.FormatInt(s.o.RecoveryPoint, 10)},
		figure{Name: "last stop", Value: stop}, figure{Name: "topic id", Value: id})
	if s.recovery.Cut > 0 {
		all = append(all, figure{Name: "an open would cut", Value: size(s.recovery.Cut), Class: "bad"})
	}
	return all
}

func (out *section) epochs(s *snapshot) {
	for i, e := range s.epochs {
		if i == mostRows {
			out.MoreEpochs = len(s.epochs) - i
			return
		}
		end := s.o.LogEnd
		if i+1 < len(s.epochs) {
			end = s.epochs[i+1].Start
		}
		out.Epochs = append(out.Epochs, epochRow{e.Epoch, strconv.FormatInt(e.Start, 10), strconv.FormatInt(end-e.Start, 10)})
	}
}

func (out *section) gaps(s *snapshot) {
	for _, g := range s.holes.largest {
		out.Gaps = append(out.Gaps, gapRow{span(g.From, g.To), strconv.FormatInt(g.To-g.From, 10)})
	}
	out.MoreGaps = s.holes.gaps - int64(len(out.Gaps))
	if s.holes.missing > 0 && s.o.LogEnd > s.o.LogStart {
		out.Thin = fmt.Sprintf("%d of %d offsets have no record (%.0f %%): compaction, deletion and transactions leave such gaps; they are no damage.",
			s.holes.missing, s.o.LogEnd-s.o.LogStart, 100*float64(s.holes.missing)/float64(s.o.LogEnd-s.o.LogStart))
	}
}

func (p *part) row() row {
	known := func(n int64) string {
		if n < 0 {
			return "–"
		}
		return strconv.FormatInt(n, 10)
	}
	r := row{Base: known(p.Base), Segments: strconv.Itoa(p.Count), Bytes: size(p.Bytes), Records: known(p.Records), Missing: "–", From: when(p.From), To: when(p.To),
		Entries: known(p.Entries), PerEntry: "–", State: string(p.State), Drop: p.Drop, Damage: p.Damage}
	if p.Records >= 0 {
		r.Missing = known(p.Missing)
	}
	if p.Partly {
		r.Records += " read"
	}
	if p.Entries > 0 {
		r.PerEntry = size(int64(p.perEntry()))
	}
	return r
}

// merge makes at most so many parts, but for the active segment, of neighbours.
func merge(parts []part, most int) []part {
	if len(parts) <= most {
		return parts
	}
	last := len(parts) - 1
	each := (last + most - 1) / most
	var out []part
	for i := 0; i < last; i += each {
		out = append(out, mergeOne(parts[i:min(i+each, last)]))
	}
	return append(out, parts[last])
}

// urgency says which state counts for neighbours that differ.
var urgency = map[state]int{stateSealed: 0, stateClean: 1, stateHeld: 2, stateDirty: 3, stateActive: 4}

func mergeOne(parts []part) part {
	m := parts[0]
	dropped := 0
	for i := range parts {
		p := &parts[i]
		if p.Drop != "" {
			m.Drop = p.Drop
			dropped++
		}
		if i == 0 {
			continue
		}
		m.Count += p.Count
		m.Bytes += p.Bytes
		m.Missing += p.Missing
		m.Damage += p.Damage
		m.Next, m.To = p.Next, max(m.To, p.To)
		if p.From >= 0 && (m.From < 0 || p.From < m.From) {
			m.From = p.From
		}
		if p.Entries >= 0 {
			m.Entries, m.Times = m.Entries+p.Entries, m.Times+p.Times
		}
		if p.Records >= 0 {
			m.Records, m.Batches = max(m.Records, 0)+p.Records, max(m.Batches, 0)+p.Batches
		}
		m.Partly = m.Partly || p.Partly
		if urgency[p.State] > urgency[m.State] {
			m.State = p.State
		}
	}
	if dropped > 0 && dropped < len(parts) {
		m.Drop = fmt.Sprintf("%s (%d of %d segments)", m.Drop, dropped, len(parts))
	}
	return m
}

// sortedMarks is marks from left to right; those at one place stay in order.
func sortedMarks(marks []mark) []mark {
	return slices.SortedStableFunc(slices.Values(marks), func(a, b mark) int { return cmp.Compare(a.at, b.at) })
}
