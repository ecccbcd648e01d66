package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/partlog/partlog/log"
)

// A bar is a strip from left to right, 1000 units wide, that the page stretches to its own width:
//
//	 S          X           L H         flags: letters, told below the bar
//	▀▀▀▀▀▀▀▀▀▀▀▀                        segments that retention would drop
//	███ ████ ████ ███ ████████ ████     segments, in the colour of what they are
//	  ▒▒▒      ▒                        offsets without a record (by offset only)
//	▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬ ▬▬▬▬▬▬▬▬▬▬▬▬▬▬▬     leader epochs            (by offset only)
type bar struct {
	Title, Text string // heading, and what a screen reader says
	Left, Right string // ends of the axis
	Height      int
	Shapes      []shape
	Flags       []pennant
	Marks       []mark
	Note        string
}

// shape is a rectangle with a tooltip.
type shape struct {
	X, W, Y, H string
	Class      string
	Title      string
	Href       string
}

// mark is one place on a bar.
type mark struct {
	X      string // 0 to 1000
	Letter string
	Text   string
	Class  string
	at     float64
}

// pennant is the letters of marks that stand close together. X is in percent.
type pennant struct{ X, Letters, Class string }

const barWidth = 1000

func num(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }

// scale maps values to places on a bar.
type scale struct{ lo, hi float64 }

func (s scale) at(v int64) float64 {
	if s.hi <= s.lo {
		return 0
	}
	return min(barWidth, max(0, (float64(v)-s.lo)/(s.hi-s.lo)*barWidth))
}

func (b *bar) rect(from, to float64, y, h int, class, title string) {
	const thinnest = 1.2 // units: else it could not be seen
	w := max(thinnest, to-from)
	from = min(from, barWidth-w)
	b.Shapes = append(b.Shapes, shape{X: num(from), W: num(w), Y: strconv.Itoa(y), H: strconv.Itoa(h), Class: class, Title: title})
}

func (b *bar) mark(at float64, letter, class, format string, args ...any) {
	b.Marks = append(b.Marks, mark{X: num(at), Letter: letter, Class: class, Text: fmt.Sprintf(format, args...), at: at})
}

// raiseFlags puts letters above the bar, those of close marks together.
func (b *bar) raiseFlags() {
	const near = 45 // units: the width of two letters on a narrow screen
	var groups [][]mark
	for _, m := range sortedMarks(b.Marks) {
		if n := len(groups); n > 0 && m.at-groups[n-1][0].at < near {
			groups[n-1] = append(groups[n-1], m)
			continue
		}
		groups = append(groups, []mark{m})
	}
	for _, g := range groups {
		at := (g[0].at + g[len(g)-1].at) / 2 / barWidth * 100
		f := pennant{X: num(at)}
		switch { // letters stay inside of the page
		case at < near/10:
			f.Class = "left"
		case at > 100-near/10:
			f.Class = "right"
		}
		for _, m := range g {
			if !strings.Contains(f.Letters, m.Letter) {
				f.Letters += m.Letter
			}
			if m.Class == "bad" && !strings.Contains(f.Class, "bad") {
				f.Class += " " + m.Class
			}
		}
		b.Flags = append(b.Flags, f)
	}
}

// rows of a bar.
const (
	dropY, dropH   = 0, 6
	mainY, mainH   = 9, 34
	holeY, holeH   = 47, 7
	epochY, epochH = 58, 8
)

// draw makes a partition's bars of parts that are few enough.
func (s *snapshot) draw(parts []part) []bar {
	if len(parts) == 0 {
		return nil
	}
	bars := []bar{s.bySize(parts), s.byOffset(parts)}
	if b, ok := s.byTime(parts); ok {
		bars = append(bars, b)
	}
	for i := range bars {
		bars[i].raiseFlags()
	}
	return bars
}

// first is the earliest timestamp that is known.
func (p *part) first() int64 {
	if p.From < 0 {
		return p.To
	}
	return p.From
}

func (p *part) draw(b *bar, from, to float64) {
	b.rect(from, to, mainY, mainH, p.class(), p.title())
	if p.Drop != "" {
		b.rect(from, to, dropY, dropH, "drop", "retention would drop this: "+p.Drop)
	}
}

func (p *part) class() string {
	if p.Damage > 0 {
		return "seg bad"
	}
	return "seg " + string(p.State)
}

func (p *part) title() string {
	text := span(p.Base, max(p.Next, p.Base+1))
	if p.Base == p.Next {
		text = fmt.Sprintf("empty, from offset %d on", p.Base)
	}
	if p.Count > 1 {
		text += fmt.Sprintf(", %d segments", p.Count)
	}
	text += fmt.Sprintf(": %s, %s", size(p.Bytes), p.State)
	if p.To >= 0 {
		text += ", " + when(p.first()) + " to " + when(p.To)
	}
	if p.Drop != "" {
		text += ", retention would drop it: " + p.Drop
	}
	if p.Damage > 0 {
		text += ", DAMAGE: " + counted(p.Damage, "finding")
	}
	return text
}

func (s *snapshot) bySize(parts []part) bar {
	total := s.bytes()
	b := bar{Title: "By size", Left: "0 B", Right: size(total), Height: mainY + mainH,
		Text: fmt.Sprintf("%s of %s, side by side, each as wide as its bytes", counted(len(s.parts), "segment"), size(total))}
	sc, at := scale{0, float64(max(total, 1))}, int64(0)
	for i := range parts {
		parts[i].draw(&b, sc.at(at), sc.at(at+parts[i].Bytes))
		at += parts[i].Bytes
	}
	if limit := s.config.RetentionBytes; s.broken == "" && s.config.Cleanup.Has(log.Delete) && limit >= 0 {
		if limit < total {
			b.mark(sc.at(total-limit), "X", "cut", "retention.bytes: from here to the right are %s", size(limit))
		} else {
			b.Note = fmt.Sprintf("retention.bytes is %s, more than there is.", size(limit))
		}
	}
	return b
}

func (s *snapshot) byOffset(parts []part) bar {
	lo, hi := parts[0].Base, max(s.o.LogEnd, parts[len(parts)-1].Next, parts[0].Base+1)
	b := bar{Title: "By offset", Left: fmt.Sprint(lo), Right: fmt.Sprint(hi), Height: epochY + epochH,
		Text: fmt.Sprintf("offsets %d to %d; log start %d, last stable offset %d, high watermark %d", lo, hi, s.o.LogStart, s.o.LastStable, s.o.HighWatermark)}
	sc := scale{float64(lo), float64(hi)}
	for i := range parts {
		parts[i].draw(&b, sc.at(parts[i].Base), sc.at(parts[i].Next))
	}
	s.damageMarks(&b, sc)
	if s.broken != "" {
		b.Height = mainY + mainH
		return b
	}
	s.drawHoles(&b)
	s.drawEpochs(&b, sc)
	b.mark(sc.at(s.o.LogStart), "S", "", "log start %d", s.o.LogStart)
	if s.compact != nil {
		b.mark(sc.at(s.compact.FirstDirty), "D", "", "dirty from %d on", s.compact.FirstDirty)
		b.mark(sc.at(s.compact.Uncleanable), "U", "", "not cleanable from %d on: %v", s.compact.Uncleanable, s.compact.Hold)
	}
	if len(s.retain.Drop) > 0 {
		b.mark(sc.at(s.retain.NewStart), "X", "cut", "retention would make %d the log start", s.retain.NewStart)
	}
	for i, t := range clip(s.open, 20) {
		text := fmt.Sprintf("transaction of producer %d open since %d", t.ProducerID, t.FirstOffset)
		if i == 19 && len(s.open) > 20 {
			text += fmt.Sprintf(", and %d more", len(s.open)-20)
		}
		b.mark(sc.at(t.FirstOffset), "T", "", "%s", text)
	}
	b.mark(sc.at(s.o.RecoveryPoint), "R", "", "recovery point %d", s.o.RecoveryPoint)
	b.mark(sc.at(s.o.LastStable), "L", "", "last stable offset %d", s.o.LastStable)
	b.mark(sc.at(s.o.HighWatermark), "H", "", "high watermark %d", s.o.HighWatermark)
	b.mark(sc.at(s.o.LogEnd), "E", "", "log end %d", s.o.LogEnd)
	return b
}

// damageMarks shows where findings are, one mark for all that could not be told apart.
func (s *snapshot) damageMarks(b *bar, sc scale) {
	const apart = 10 // units
	seen := map[int]int{}
	first := map[int]int64{}
	var order []int
	for _, f := range s.findings {
		at := f.Offset
		if at < 0 {
			continue
		}
		cell := int(sc.at(at)) / apart
		if seen[cell] == 0 {
			order = append(order, cell)
			first[cell] = at
		}
		seen[cell]++
	}
	for i, cell := range order {
		text := fmt.Sprintf("damage at offset %d", first[cell])
		if seen[cell] > 1 {
			text += fmt.Sprintf(" and %s close by", counted(seen[cell]-1, "finding"))
		}
		if i == 11 && len(order) > 12 {
			b.mark(sc.at(first[cell]), "!", "bad", "%s, and %d more places", text, len(order)-12)
			return
		}
		b.mark(sc.at(first[cell]), "!", "bad", "%s", text)
	}
}

// drawHoles shades the offsets without a record, in three steps.
func (s *snapshot) drawHoles(b *bar) {
	h := &s.holes
	if h.missing == 0 {
		return
	}
	width := float64(h.hi-h.lo) / float64(len(h.cells))
	level := func(i int) int { return int(math.Ceil(min(1, h.cells[i]/width) * 3)) }
	for i := 0; i < len(h.cells); {
		n, missing := i, 0.0
		for n < len(h.cells) && level(n) == level(i) {
			missing += h.cells[n]
			n++
		}
		if l := level(i); l > 0 {
			unit := float64(barWidth) / float64(len(h.cells))
			share := missing / (width * float64(n-i)) * 100
			b.rect(float64(i)*unit, float64(n)*unit, holeY, holeH, fmt.Sprintf("hole hole%d", l),
				fmt.Sprintf("about offsets %.0f to %.0f: %.0f %% have no record", float64(h.lo)+float64(i)*width, float64(h.lo)+float64(n)*width, share))
		}
		i = n
	}
}

// drawEpochs alternates two shades; of very many epochs neighbours are one.
func (s *snapshot) drawEpochs(b *bar, sc scale) {
	each := (len(s.epochs) + mostRows - 1) / mostRows
	for i, n := 0, 0; i < len(s.epochs); i, n = i+each, n+1 {
		last := min(i+each, len(s.epochs)) - 1
		end := s.o.LogEnd
		if last+1 < len(s.epochs) {
			end = s.epochs[last+1].Start
		}
		title := fmt.Sprintf("leader epoch %d from offset %d on", s.epochs[i].Epoch, s.epochs[i].Start)
		if last > i {
			title = fmt.Sprintf("leader epochs %d to %d, from offset %d on", s.epochs[i].Epoch, s.epochs[last].Epoch, s.epochs[i].Start)
		}
		b.rect(sc.at(s.epochs[i].Start), sc.at(end), epochY, epochH, fmt.Sprintf("epoch epoch%d", n%2), title)
	}
}

func (s *snapshot) byTime(parts []part) (bar, bool) {
	lo, hi := int64(-1), int64(-1)
	for i := range parts {
		if p := &parts[i]; p.To >= 0 {
			if from := p.first(); lo < 0 || from < lo {
				lo = from
			}
			hi = max(hi, p.To)
		}
	}
	if lo < 0 {
		return bar{}, false
	}
	b := bar{Title: "By time", Height: mainY + mainH}
	reach := max((hi-lo)/4, 1000)
	if s.now > hi && s.now-hi <= reach {
		hi = s.now
	}
	cut, cuts := s.now-s.config.RetentionTime.Milliseconds(), s.config.Cleanup.Has(log.Delete) && s.config.RetentionTime >= 0
	if cuts && cut < lo && lo-cut <= reach {
		lo = cut
	}
	b.Left, b.Right = when(lo), when(hi)
	b.Text = fmt.Sprintf("records from %s to %s UTC, each segment from its earliest to its latest", b.Left, b.Right)
	sc := scale{float64(lo), float64(max(hi, lo+1))}
	for _, p := range longestFirst(parts) { // times may overlap: none is hidden whole
		p.draw(&b, sc.at(p.first()), sc.at(p.To))
	}
	switch {
	case !cuts:
	case cut < lo:
		b.Note = fmt.Sprintf("retention.ms: its line, %s, lies before the first record.", when(cut))
	case cut > hi:
		b.Note = fmt.Sprintf("retention.ms: its line, %s, lies behind the last record: all is too old.", when(cut))
	default:
		b.mark(sc.at(cut), "X", "cut", "retention.ms: what ends left of %s is too old", when(cut))
	}
	if s.now >= lo && s.now <= hi {
		b.mark(sc.at(s.now), "N", "", "now, %s", when(s.now))
		if s.now < hi {
			b.Note = strings.TrimSpace(b.Note + " Records right of N lie in the future.")
		}
	}
	return b, true
}

// longestFirst is the parts that have times.
func longestFirst(parts []part) []part {
	timed := slices.DeleteFunc(slices.Clone(parts), func(p part) bool { return p.To < 0 })
	slices.SortStableFunc(timed, func(a, b part) int { return cmp.Compare(b.To-b.first(), a.To-a.first()) })
	return timed
}

// density is how many bytes of the log there are for each entry of its index.
type density struct {
	Text    string
	Top     string
	Target  string // y of the line of index.interval.bytes
	Note    string
	Columns []shape
}

const densityHeight = 70

func (s *snapshot) density(parts []part) *density {
	if len(parts) == 0 || s.broken != "" {
		return nil
	}
	target := float64(max(s.config.IndexIntervalBytes, 1))
	top := target * 2
	for i := range parts {
		top = max(top, parts[i].perEntry())
	}
	d := &density{Top: size(int64(top)), Target: num(densityHeight * (1 - target/top)), Note: size(int64(target)),
		Text: fmt.Sprintf("bytes of the log for each index entry, segment by segment; at most %s, index.interval.bytes is %s", size(int64(top)), size(int64(target)))}
	width := float64(barWidth) / float64(len(parts))
	for i := range parts {
		p := &parts[i]
		h := max(1, p.perEntry()/top*densityHeight)
		d.Columns = append(d.Columns, shape{X: num(float64(i) * width), W: num(max(width*0.9, width-4)), Y: num(densityHeight - h), H: num(h), Class: p.class(),
			Title: fmt.Sprintf("from offset %d on: %s, %s, %s an entry", p.Base, entries(p.Entries, "index"), entries(p.Times, "time"), size(int64(p.perEntry())))})
	}
	return d
}

// perEntry is the bytes of the log for each entry; a segment without one counts as one.
func (p *part) perEntry() float64 { return float64(p.Bytes) / float64(max(p.Entries, int64(p.Count))) }

func entries(n int64, of string) string {
	if n == 1 {
		return "1 " + of + " entry"
	}
	return fmt.Sprintf("%d %s entries", n, of)
}
