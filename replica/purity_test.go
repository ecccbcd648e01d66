package replica

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// The cores have no goroutine, channel, clock, lock, socket or file, and no chance but the seed they are given: what they do
// follows from their events.
func TestTheCoresArePure(t *testing.T) {
	packages := []string{"cmp", "encoding/base64", "encoding/binary", "encoding/json", "errors", "fmt", "hash/fnv", "iter", "maps", "slices", "strconv", "strings", "syscall", "time", "math/rand/v2",
		"github.com/partlog/partlog/log", "github.com/partlog/partlog/record", "github.com/partlog/partlog/internal/producerstate",
		"github.com/partlog/partlog/replica", "github.com/partlog/partlog/replica/placement"}
	functions := map[string][]string{
		"time":    {"Time", "Duration", "Second", "Minute", "Millisecond"},
		"rand":    {"New", "NewPCG"},
		"syscall": {"Errno"},
	}
	for _, file := range []string{"action", "assign", "config", "epochs", "errors", "event", "fetch", "follower", "isr", "leader", "offsets", "partition",
		"produce", "status", "truncate", "watermark", "work",
		"controller/alter", "controller/brokers", "controller/change", "controller/classic", "controller/commit", "controller/config", "controller/core",
		"controller/elect", "controller/elections", "controller/event", "controller/keys", "controller/load", "controller/partition", "controller/topics"} {
		f, err := parser.ParseFile(token.NewFileSet(), file+".go", nil, 0)
		require.NoError(t, err)
		imported := map[string]bool{}
		for _, i := range f.Imports {
			name, err := strconv.Unquote(i.Path.Value)
			require.NoError(t, err)
			require.Contains(t, packages, name, file)
			if name = path.Base(name); name == "v2" {
				name = "rand"
			}
			imported[name] = true
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt, *ast.ChanType, *ast.SelectStmt, *ast.SendStmt:
				t.Errorf("%s.go: %T", file, n)
			case *ast.SelectorExpr:
				of, ok := n.X.(*ast.Ident)
				if ok && imported[of.Name] && functions[of.Name] != nil && !slices.Contains(functions[of.Name], n.Sel.Name) {
					t.Errorf("%s.go: %s.%s", file, of.Name, n.Sel.Name)
				}
			}
			return true
		})
	}
}
