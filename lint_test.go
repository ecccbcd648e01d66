package partlog

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// What a library that lives inside someone else's process must not do. Each rule lists the places that may, with why.
var (
	// programs may touch the disk, write to the terminal and end the process: they are the process.
	programs = []string{"cmd", "examples", "replica/replicatest/sim"}
	// suites are tests that others call: a test may start what it waits for.
	suites = []string{"replica/controller/storetest"}
	// fileAccess may use package os on files: the one door to the disk, and the copier of recorded test data.
	fileAccess = []string{"vfs", "internal/golden"}
	// osHarmless are names of package os that touch no file.
	osHarmless = []string{
		"O_RDONLY", "O_WRONLY", "O_RDWR", "O_APPEND", "O_CREATE", "O_EXCL", "O_SYNC", "O_TRUNC",
		"ErrInvalid", "ErrPermission", "ErrExist", "ErrNotExist", "ErrClosed", "ErrNoDeadline", "ErrDeadlineExceeded",
		"PathError", "LinkError", "SyscallError", "FileInfo", "FileMode", "DirEntry", "Getpagesize", "Getpid",
	}
	// filepathHarmful are names of package filepath that look at the disk.
	filepathHarmful = []string{"Walk", "WalkDir", "Glob", "EvalSymlinks"}
	// recovers are the functions that may recover: the guard of mappings, which panics again with what is not its own,
	// and the callers of a host's event functions.
	recovers = []string{"vfs.guarded", "log.event"}
	// acting are the functions that may start a goroutine or a timer that acts by itself: whoever owns what they belong to ends it,
	// or, with a store that does not answer, its limit.
	acting = []string{"replica.begin", "replica.answerOn", "replica.ask", "replica/internal/patience.Close", "replica/internal/patience.round"}
	// panics are the functions that may panic.
	panics = []string{"vfs.guarded"}
)

// moduleFiles calls visit with every Go file of this module that is not a test; nested modules are not part of it.
func moduleFiles(t *testing.T, visit func(name string)) {
	t.Helper()
	err := filepath.WalkDir(".", func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			_, nested := os.Stat(filepath.Join(name, "go.mod"))
			hidden := strings.HasPrefix(e.Name(), ".") || strings.HasPrefix(e.Name(), "_") || e.Name() == "testdata"
			if name != "." && (nested == nil || hidden) {
				return fs.SkipDir
			}
			return nil
		}
		if strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			visit(filepath.ToSlash(name))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestLibraryDoesNotActBehindItsHostsBack(t *testing.T) {
	files := 0
	moduleFiles(t, func(name string) {
		files++
		src, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, complaint := range lint(name, src) {
			t.Error(complaint)
		}
	})
	if files == 0 {
		t.Fatal("no files found")
	}
}

// within says whether a package directory is one of dirs, or below one when that is a family of programs.
func within(dir string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(d string) bool {
		return dir == d || slices.Contains(programs, d) && strings.HasPrefix(dir, d+"/")
	})
}

// lint returns one sentence for each thing the file must not do.
func lint(name string, src []byte) (complaints []string) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, src, parser.SkipObjectResolution)
	if err != nil {
		return []string{err.Error()}
	}
	dir := path.Dir(name)
	program := within(dir, programs)
	complain := func(at ast.Node, what string) {
		complaints = append(complaints, fmt.Sprintf("%s: %s", fset.Position(at.Pos()), what))
	}

	imported := make(map[string]string) // name in this file → import path
	for _, spec := range file.Imports {
		p, _ := strconv.Unquote(spec.Path.Value)
		local := path.Base(p)
		if spec.Name != nil {
			local = spec.Name.Name
		}
		imported[local] = p
		switch {
		case p == "log" && !program:
			complain(spec, "package log writes where the host did not ask; report an event or an error")
		case local == "." && !program:
			complain(spec, "a dot import hides what is used of "+p)
		case p == "io/ioutil":
			complain(spec, "package io/ioutil is file access of old")
		}
	}

	for _, decl := range file.Decls {
		fn := ""
		if f, ok := decl.(*ast.FuncDecl); ok {
			fn = path.Base(dir) + "." + f.Name.Name
			if len(dir) != len(path.Base(dir)) {
				fn = dir + "." + f.Name.Name
			}
		}
		ast.Inspect(decl, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && !program {
					if what := forbidden(imported[x.Name], n.Sel.Name, dir); what != "" && !(actsAlone(what) && slices.Contains(acting, fn)) {
						complain(n, what)
					}
				}
			case *ast.GoStmt:
				if !program && !within(dir, suites) && !slices.Contains(acting, fn) {
					complain(n, "a goroutine outlives the call that started it; the caller's own does the work")
				}
			case *ast.CallExpr:
				f, ok := n.Fun.(*ast.Ident)
				switch {
				case !ok || program:
				case f.Name == "recover" && !slices.Contains(recovers, fn):
					complain(n, "recover hides a defect; only "+strings.Join(recovers, " and ")+" may")
				case f.Name == "panic" && !slices.Contains(panics, fn):
					complain(n, "panic would end the host; return an error")
				}
			}
			return true
		})
	}
	return complaints
}

// forbidden says what is wrong with using a name of a package, outside programs.
func forbidden(pkg, name, dir string) string {
	switch pkg {
	case "os":
		if name == "Exit" {
			return "os.Exit would end the host"
		}
		if !slices.Contains(osHarmless, name) && !within(dir, fileAccess) {
			return "os." + name + ": files are reached through package vfs only"
		}
	case "path/filepath":
		if slices.Contains(filepathHarmful, name) && !within(dir, fileAccess) {
			return "filepath." + name + ": files are reached through package vfs only"
		}
	case "syscall", "golang.org/x/sys/unix":
		if slices.Contains([]string{"Exit", "Kill", "Setrlimit", "Umask", "Chdir"}, name) {
			return path.Base(pkg) + "." + name + " changes the host's process"
		}
		if slices.Contains([]string{"Open", "Openat", "Unlink", "Rename", "Mkdir", "Mmap"}, name) && !within(dir, fileAccess) {
			return path.Base(pkg) + "." + name + ": files are reached through package vfs only"
		}
	case "time", "context":
		if slices.Contains([]string{"AfterFunc", "NewTicker", "Tick"}, name) {
			return pkg + "." + name + byItself
		}
	case "runtime/debug":
		if name == "SetPanicOnFault" && dir != "vfs" {
			return "debug.SetPanicOnFault belongs to the guard of mappings"
		}
	}
	return ""
}

const byItself = " acts when nobody calls"

func actsAlone(complaint string) bool { return strings.HasSuffix(complaint, byItself) }

func TestEachLintRuleSeesItsOffender(t *testing.T) {
	for _, c := range []struct {
		name, file, src string
		want            string // part of the complaint; "" for none
	}{
		{"file access in the library", "segment/a.go", `import "os"; func f() { os.Open("x") }`, "package vfs only"},
		{"file access under another name", "segment/a.go", `import o "os"; var _ = o.ReadFile`, "package vfs only"},
		{"file access of old", "segment/a.go", `import "io/ioutil"; var _ = ioutil.ReadFile`, "of old"},
		{"file access by dot import", "segment/a.go", `import . "os"; var _ = Open`, "dot import"},
		{"a walk of the disk", "log/a.go", `import "path/filepath"; var _ = filepath.WalkDir`, "package vfs only"},
		{"a bare system call", "log/a.go", `import "golang.org/x/sys/unix"; var _ = unix.Openat`, "package vfs only"},
		{"sendfile", "segment/a.go", `import "golang.org/x/sys/unix"; var _ = unix.Sendfile`, ""},
		{"file access below vfs", "vfs/vfstest/a.go", `import "os"; var _ = os.Open`, "package vfs only"},
		{"file access in vfs", "vfs/a.go", `import "os"; var _ = os.Open`, ""},
		{"flags and errors", "segment/a.go", `import "os"; var _, _ = os.O_RDWR, os.ErrNotExist`, ""},
		{"the standard logger", "record/a.go", `import "log"; var _ = log.Println`, "did not ask"},
		{"a goroutine", "log/a.go", `func f() { go f() }`, "outlives"},
		{"a goroutine of a pool", "replica/a.go", `func begin() { go begin() }`, ""},
		{"a goroutine under that name elsewhere", "log/a.go", `func begin() { go begin() }`, "outlives"},
		{"a timer that its owner stops", "replica/a.go", `import "time"; func answerOn() { time.NewTicker(1) }`, ""},
		{"a file in a function that may act", "replica/a.go", `import "os"; func begin() { os.Open("x") }`, "package vfs only"},
		{"a goroutine of a program", "cmd/partlog/a.go", `func f() { go f() }`, ""},
		{"a timer that acts by itself", "log/a.go", `import "time"; var _ = time.AfterFunc`, "nobody calls"},
		{"a timer that is waited for", "log/a.go", `import "time"; var _ = time.NewTimer`, ""},
		{"our own package log", "replica/a.go", `import "github.com/partlog/partlog/log"; var _ = log.Open`, ""},
		{"an exit", "vfs/a.go", `import "os"; func f() { os.Exit(1) }`, "end the host"},
		{"an exit of a program", "cmd/partlog/a.go", `import ("os"; "log"); func f() { os.Exit(1); log.Fatal() }`, ""},
		{"a panic", "record/a.go", `func f() { panic("x") }`, "end the host"},
		{"a panic in a variable", "record/a.go", `var f = func() { panic("x") }`, "end the host"},
		{"a panic in vfs", "vfs/a.go", `func f() { panic("x") }`, "end the host"},
		{"a panic in a function of the guard's name elsewhere", "vfs/vfstest/a.go", `func guarded() { panic("x") }`, "end the host"},
		{"a recover", "log/a.go", `func f() { defer func() { recover() }() }`, "hides a defect"},
		{"the guard", "vfs/mapping.go", `func guarded() { defer func() { panic(recover()) }() }`, ""},
		{"the caller of events", "log/events.go", `func event(f func()) { defer func() { recover() }(); f() }`, ""},
		{"limits of the host", "vfs/a.go", `import "golang.org/x/sys/unix"; var _ = unix.Setrlimit`, "host's process"},
		{"faults elsewhere", "log/a.go", `import "runtime/debug"; var _ = debug.SetPanicOnFault`, "guard"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := strings.Join(lint(c.file, []byte("package p; "+c.src)), "\n")
			if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("complaints %q, want %q", got, c.want)
			}
		})
	}
}
