package mutants

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestYields runs the tests with a library whose goroutines are held up now and then, as on a busy machine: between two calls,
// with a probability of one in REDLOCK_YIELDS, other goroutines run first. If something fails, either the test or the code
// depends on which of two goroutines is faster.
func TestYields(t *testing.T) {
	if os.Getenv("REDLOCK_YIELDS") == "" {
		t.Skip("REDLOCK_YIELDS=100 runs it, some minutes")
	}
	o := overlay{dir: t.TempDir(), replace: map[string]string{}}
	for _, pkg := range []string{".", "internal/lane", "internal/quorum", "internal/queue", "internal/pubsub", "internal/held", "internal/harness", "redlocktest", "cmd/redlock"} {
		files, _ := filepath.Glob(filepath.Join(root(t), pkg, "*.go"))
		for _, file := range files {
			file = filepath.Join(pkg, filepath.Base(file))
			if text := source(t, file); !strings.HasSuffix(file, "_test.go") && !strings.Contains(text, "//go:") {
				o.put(t, file, withYields(t, file, text))
			}
		}
	}
	o.put(t, "internal/yields/yields.go", yieldFile)
	cmd := goCommand(t, "test", "-count=1", "-vet=off", "-timeout=20m", "-overlay", o.write(t),
		"./test/directed/...", "./test/real", ".", "./cmd/redlock", "./redlocktest", "./internal/lane", "./internal/quorum", "./internal/queue", "./internal/wait")
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Errorf("%v (again: REDLOCK_YIELDS=%s go test -v ./internal/mutants -run 'TestYields$')", err, os.Getenv("REDLOCK_YIELDS"))
	}
}

// withYields returns a file with a yield before and after each statement that calls something.
func withYields(t *testing.T, file, text string) string {
	t.Helper()
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	yield := func() ast.Stmt {
		n++
		return &ast.ExprStmt{X: &ast.CallExpr{Fun: &ast.SelectorExpr{X: ast.NewIdent("yields"), Sel: ast.NewIdent("Sometimes")}}}
	}
	between := func(list []ast.Stmt) (with []ast.Stmt) {
		for i, s := range list {
			if i > 0 && (calls(list[i-1]) || calls(s)) {
				with = append(with, yield())
			}
			with = append(with, s)
		}
		return with
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BlockStmt:
			n.List = between(n.List)
		case *ast.CaseClause:
			n.Body = between(n.Body)
		case *ast.CommClause:
			n.Body = append([]ast.Stmt{yield()}, between(n.Body)...)
		}
		return true
	})
	if n == 0 {
		return text
	}
	path := &ast.BasicLit{Kind: token.STRING, Value: `"github.com/seed-ce352c9b/redlock/internal/yields"`}
	f.Decls = append([]ast.Decl{&ast.GenDecl{Tok: token.IMPORT, Specs: []ast.Spec{&ast.ImportSpec{Path: path}}}}, f.Decls...)
	return show(t, fset, f)
}

func calls(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.ExprStmt, *ast.GoStmt, *ast.SendStmt:
		return true
	case *ast.AssignStmt:
		_, ok := s.Rhs[0].(*ast.CallExpr)
		return ok
	}
	return false
}

// yieldFile is a package that exists in the overlay only.
const yieldFile = `package yields

import (
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
)

var (
	oneIn, _ = strconv.ParseUint(os.Getenv("REDLOCK_YIELDS"), 10, 32)
	busy     atomic.Int64
)

// Sometimes lets other goroutines run, for one turn of theirs or for many. It takes no time of a bubble's clock.
func Sometimes() {
	if oneIn == 0 || rand.Uint64N(oneIn) != 0 {
		return
	}
	for range 1 << rand.Uint32N(7) {
		for range 1000 {
			busy.Load()
		}
		runtime.Gosched()
	}
}
`
