package partlog

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the tables in docs anew")

// tables are the lists of what has to be shown, and the pages that say where it is.
var tables = []struct{ list, page, title, about string }{
	{"docs/scenarios.txt", "docs/scenarios.md", "Scenarios",
		"What the unit tests of Kafka's storage layer show of Kafka, and the test here that shows the same of this library. " +
			"Where the two differ on purpose the test says so."},
	{"docs/reports.txt", "docs/reports.md", "Reports",
		"Public bug reports of other log stores, and the test here that replays each one."},
	{"docs/invariants.txt", "docs/invariants.md", "Invariants", "What always holds, and the tests that would see it broken."},
	{"docs/traps.txt", "docs/traps.md", "Traps",
		"What is easily got wrong about Kafka's files, and the places where a crash hurts, each with the test that would see it."},
}

// The tables of what is tested are made from the tests themselves.
func TestTablesAreCurrent(t *testing.T) {
	shown := mentions(t)
	for _, table := range tables {
		page, missing := tablePage(t, table.list, table.title, table.about, shown)
		if *update {
			if err := os.WriteFile(table.page, []byte(page), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		old, err := os.ReadFile(table.page)
		if err != nil {
			t.Fatal(err)
		}
		if string(old) != page {
			t.Errorf("%s is out of date: go test . -run Tables -update", table.page)
		}
		if len(missing) > 0 {
			t.Errorf("%s: no test plays %s, and nothing is waited for", table.list, strings.Join(missing, ", "))
		}
	}
}

// tablePage makes a page from a list; missing are the lines that neither have a test nor wait for anything.
func tablePage(t *testing.T, list, title, about string, shown map[string][]string) (page string, missing []string) {
	t.Helper()
	raw, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n%s\n\nMade from `%s` and the comments of the tests by `go test . -run Tables -update`.\n", title, about, path.Base(list))
	for line := range strings.Lines(string(raw)) {
		line = strings.TrimSpace(line)
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			fmt.Fprintf(&b, "\n## %s\n\n| id | what is to be seen | test |\n|---|---|---|\n", heading)
			continue
		}
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		id, what, _ := strings.Cut(line, " | ")
		what, waits, _ := strings.Cut(what, " | ")
		tests := strings.Join(shown[id], ", ")
		if named, ok := strings.CutPrefix(waits, "= "); ok {
			tests = strings.Join(slices.Concat(shown[id], listed(t, list, named, shown)), ", ")
		} else if reason, ok := strings.CutPrefix(waits, "no: "); ok {
			tests = reason
		} else if tests == "" && waits != "" {
			tests = "waits for " + waits
		}
		if tests == "" {
			missing = append(missing, id)
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", id, what, tests)
	}
	return b.String(), missing
}

// everyTest is the key of mentions under which all tests stand.
const everyTest = ""

// listed are the tests that a line of a list names itself; each must exist.
func listed(t *testing.T, list, names string, shown map[string][]string) (tests []string) {
	t.Helper()
	for _, name := range strings.Split(names, ", ") {
		pkg, test, _ := strings.Cut(name, " ")
		test = fmt.Sprintf("%s `%s`", pkg, test)
		if !slices.Contains(shown[everyTest], test) {
			t.Errorf("%s: there is no test %s", list, test)
		}
		tests = append(tests, test)
	}
	return tests
}

var idPattern = regexp.MustCompile(`\b(?:[A-Z][0-9]{3}|(?:T|CP)[0-9]{2})\b`)

// mentions are the tests by the ids that their comments, or the names of their cases, speak of, and all of them.
func mentions(t *testing.T) map[string][]string {
	t.Helper()
	shown := map[string][]string{}
	err := filepath.WalkDir(".", func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() && (e.Name() == "testdata" || name != "." && strings.HasPrefix(e.Name(), ".")) {
			return fs.SkipDir
		}
		if strings.HasSuffix(name, "_test.go") {
			return mentionsIn(filepath.ToSlash(name), shown)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for id := range shown {
		slices.Sort(shown[id])
		shown[id] = slices.Compact(shown[id])
	}
	return shown
}

func mentionsIn(name string, shown map[string][]string) error {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
	if err != nil {
		return err
	}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Recv != nil || !strings.HasPrefix(f.Name.Name, "Test") && !strings.HasPrefix(f.Name.Name, "Fuzz") {
			continue
		}
		test := fmt.Sprintf("%s `%s`", path.Dir(name), f.Name.Name)
		shown[everyTest] = append(shown[everyTest], test)
		note := func(text string) {
			for _, id := range idPattern.FindAllString(text, -1) {
				shown[id] = append(shown[id], test)
			}
		}
		from := f.Pos()
		if f.Doc != nil {
			from = f.Doc.Pos()
		}
		for _, c := range file.Comments {
			if c.Pos() >= from && c.End() <= f.End() {
				note(c.Text())
			}
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				note(lit.Value)
			}
			return true
		})
	}
	return nil
}
