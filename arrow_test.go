package partlog

import (
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const modulePath = "github.com/partlog/partlog"

// floors is the plan of the house: an import goes to the same floor or down. A package that is not here fails the test;
// add it on the lowest floor its task allows.
var floors = map[string]int{
	"record": 1, "vfs": 1, "vfs/vfstest": 1, "internal/golden": 1, "internal/nospace": 1,
	"index": 2, "timeindex": 2,
	"internal/txnindex": 2, "internal/epoch": 2, "internal/checkpoint": 2, "internal/mapped": 2,
	"segment": 3, "internal/producerstate": 3,
	"retention": 4, "compaction": 4,
	"log": 5, "log/logtest": 5,
	"replica": 6, "replica/controller": 6, "replica/member": 6, "replica/internal/patience": 6, "replica/controller/storetest": 6, "replica/placement": 6, "replica/replicatest": 6,
	"coordinator/txn": 7, "coordinator/group": 7,
	"producer": 8, "consumer": 8,
	".": 9, "cmd/partlog": 9, "replica/replicatest/sim": 9,
}

// alone are packages that import nothing of this module.
var alone = []string{"record", "vfs", "retention", "internal/golden", "internal/epoch", "."}

// testSupport are packages that only tests and each other may import: what they need must not reach a program that
// imports the library (rapid registers flags).
var testSupport = []string{"vfs/vfstest", "log/logtest", "internal/golden", "replica/replicatest", "replica/replicatest/sim",
	"replica/controller/storetest"}

// modules are the only dependencies, each with the packages that may use it; nil is all of them.
var modules = map[string][]string{
	"github.com/edsrzf/mmap-go":     {"vfs"},
	"golang.org/x/sys":              nil,
	"github.com/klauspost/compress": {"record"},
	"github.com/pierrec/lz4/v4":     {"record"},
	"pgregory.net/rapid":            {"log/logtest"},
	"github.com/stretchr/testify":   {"log/logtest"},
}

func floorOf(pkg string) (int, bool) {
	if strings.HasPrefix(pkg, "examples/") {
		return 9, true
	}
	floor, ok := floors[pkg]
	return floor, ok
}

// arrow says what is wrong with one import of a file that is not a test; "" if nothing is.
func arrow(pkg, imported string) string {
	floor, known := floorOf(pkg)
	if !known {
		return "package is on no floor: add it to the table in arrow_test.go and to the plan"
	}
	if imported == modulePath || strings.HasPrefix(imported, modulePath+"/") {
		to := strings.TrimPrefix(strings.TrimPrefix(imported, modulePath), "/")
		if to == "" {
			to = "."
		}
		return arrowInside(pkg, to, floor)
	}
	if first, _, _ := strings.Cut(imported, "/"); !strings.Contains(first, ".") {
		return "" // the standard library
	}
	for module, users := range modules {
		if imported == module || strings.HasPrefix(imported, module+"/") {
			if users != nil && !slices.Contains(users, pkg) {
				return fmt.Sprintf("imports %s, which is for %s only", imported, strings.Join(users, ", "))
			}
			return ""
		}
	}
	return "imports " + imported + ", which is none of the agreed dependencies"
}

func arrowInside(pkg, to string, floor int) string {
	toFloor, known := floorOf(to)
	switch {
	case !known:
		return "imports " + to + ", which is on no floor: add it to the table in arrow_test.go and to the plan"
	case toFloor > floor:
		return fmt.Sprintf("imports %s: an arrow from floor %d up to floor %d", to, floor, toFloor)
	case slices.Contains(alone, pkg):
		return "imports " + to + ", but is to know nothing of the rest of the module"
	case slices.Contains(testSupport, to) && !slices.Contains(testSupport, pkg):
		return "imports " + to + ", which is for tests only"
	}
	return ""
}

func TestImportsGoDownOnly(t *testing.T) {
	seen := make(map[string]bool)
	moduleFiles(t, func(name string) {
		pkg := path.Dir(name)
		seen[pkg] = true
		src, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, src, parser.ImportsOnly)
		if err != nil {
			t.Error(err)
			return
		}
		if _, known := floorOf(pkg); !known {
			t.Errorf("%s: package is on no floor: add it to the table in arrow_test.go and to the plan", pkg)
			return
		}
		for _, spec := range file.Imports {
			imported, _ := strconv.Unquote(spec.Path.Value)
			if what := arrow(pkg, imported); what != "" {
				t.Errorf("%s: %s", name, what)
			}
		}
	})
	if !seen["vfs"] || !seen["record"] {
		t.Fatal("the packages were not found")
	}
}

func TestEachWrongArrowIsSeen(t *testing.T) {
	for _, c := range []struct{ pkg, imported, want string }{
		{"segment", modulePath + "/index", ""},
		{"index", modulePath + "/internal/mapped", ""},
		{"index", modulePath + "/segment", "from floor 2 up to floor 3"},
		{"segment", modulePath + "/log", "from floor 3 up to floor 5"},
		{"log", modulePath + "/replica", "from floor 5 up to floor 6"},
		{"record", modulePath + "/vfs", "know nothing"},
		{"vfs", modulePath + "/record", "know nothing"},
		{"retention", modulePath + "/segment", "know nothing"},
		{"log", modulePath + "/log/logtest", "for tests only"},
		{"log", modulePath + "/vfs/vfstest", "for tests only"},
		{"log/logtest", modulePath + "/vfs/vfstest", ""},
		{"log", modulePath, "from floor 5 up to floor 9"},
		{"newcomer", "fmt", "on no floor"},
		{"log", modulePath + "/newcomer", "on no floor"},
		{"cmd/partlog", modulePath + "/log", ""},
		{"examples/tail", modulePath + "/consumer", ""},
		{"log", "pgregory.net/rapid", "log/logtest only"},
		{"segment", "github.com/stretchr/testify/require", "log/logtest only"},
		{"log/logtest", "pgregory.net/rapid", ""},
		{"index", "github.com/edsrzf/mmap-go", "vfs only"},
		{"segment", "golang.org/x/sys/unix", ""},
		{"record", "github.com/klauspost/compress/zstd", ""},
		{"log", "github.com/google/uuid", "none of the agreed"},
		{"log", "encoding/binary", ""},
	} {
		got := arrow(c.pkg, c.imported)
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s imports %s: %q, want %q", c.pkg, c.imported, got, c.want)
		}
	}
}
