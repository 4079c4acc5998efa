// Package tree_test checks the repository: the imports of the layers, and that README and docs/ name what exists.
package tree_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	root       = "../.." // of the repository
	modulePath = "github.com/seed-ce352c9b/redlock"
	goRedis    = "github.com/redis/go-redis/v9"
)

// The layers of the library, by folder: which packages of this module each may import.
// Imports point one way: wire <- lane <- quorum <- queue <- root,
// wire <- pubsub <- queue, wire <- wait <- queue; clock stands below quorum.
var layers = map[string][]string{
	".":                nil, // not checked: the root stands on top
	"internal/wire":    {},
	"internal/lane":    {"internal/wire"},
	"internal/pubsub":  {"internal/wire"},
	"internal/wait":    {"internal/wire"},
	"internal/clock":   {},
	"internal/random":  {},
	"internal/held":    {"internal/clock"},
	"internal/address": {"internal/wire"},
	"internal/fence":   {"internal/wire"},
	"internal/quorum":  {"internal/wire", "internal/lane", "internal/clock"},
	"internal/queue":   {"internal/wire", "internal/lane", "internal/clock", "internal/quorum", "internal/pubsub", "internal/wait"},
}

// commandWords are the names of the Redis commands that the library sends. Outside of
// package wire no string of the production code is one of them.
var commandWords = []string{
	"set", "get", "mget", "del", "exists", "eval", "evalsha", "script", "info", "ping", "time",
	"pttl", "ttl", "pexpire", "pexpireat", "pexpiretime", "expire", "persist",
	"zadd", "zrange", "zrangebyscore", "zrem", "zscore", "zcard", "zrank", "zremrangebyscore",
	"publish", "subscribe", "unsubscribe", "ssubscribe", "pubsub",
}

// Package wire imports nothing of this module, lane and pubsub import wire alone, wire
// names no client type of go-redis, and wire alone names Redis commands.
func TestLayers(t *testing.T) {
	for folder, allowed := range layers {
		files, err := filepath.Glob(filepath.Join(root, folder, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		checked := 0
		for _, path := range files {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			fset := token.NewFileSet()
			file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			checked++
			for _, broken := range brokenLayers(folder, allowed, file) {
				t.Errorf("%s: %s", fset.Position(broken.at), broken.what)
			}
		}
		if checked == 0 {
			t.Errorf("files of %s: got %d, want at least one", folder, checked)
		}
	}
}

// The check above finds each kind of fault.
func TestLayersFindsFaults(t *testing.T) {
	for _, c := range []struct{ name, folder, source, want string }{
		{"wire imports lane", "internal/wire", `import "` + modulePath + `/internal/lane"`, "imports internal/lane"},
		{"lane imports the root", "internal/lane", `import "` + modulePath + `"`, "imports the root"},
		{"lane imports pubsub", "internal/lane", `import "` + modulePath + `/internal/pubsub"`, "imports internal/pubsub"},
		{"pubsub imports lane", "internal/pubsub", `import "` + modulePath + `/internal/lane"`, "imports internal/lane"},
		{"wire names a client", "internal/wire", "import \"" + goRedis + "\"\nvar c *redis.Client", "redis.Client"},
		{"wire names a pipeline", "internal/wire", "import \"" + goRedis + "\"\nvar p redis.Pipeliner", "redis.Pipeliner"},
		{"wire hides the name of go-redis", "internal/wire", "import . \"" + goRedis + "\"", "under another name"},
		{"lane names a command", "internal/lane", `var c = []any{"PING"}`, `"PING"`},
		{"the root names a command", ".", "var c = []any{`evalsha`}", "evalsha"},
		{"wire names a command", "internal/wire", `var c = []any{"set"}`, ""},
		{"lane uses wire", "internal/lane", "import (\n\"" + modulePath + "/internal/wire\"\n\"time\"\n)", ""},
		{"wire reads errors", "internal/wire", "import \"" + goRedis + "\"\nvar e redis.Error = redis.Nil", ""},
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\n"+c.source, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		got := brokenLayers(c.folder, layers[c.folder], file)
		switch {
		case c.want == "" && len(got) > 0:
			t.Errorf("%s: got %q, want no fault", c.name, got[0].what)
		case c.want != "" && (len(got) != 1 || !strings.Contains(got[0].what, c.want)):
			t.Errorf("%s: got %v, want one fault with %q", c.name, got, c.want)
		}
	}
}

type brokenLayer struct {
	at   token.Pos
	what string
}

// brokenLayers returns what a file in a folder does that its layer forbids. allowed are the
// packages of the module that it may import; nil: all.
func brokenLayers(folder string, allowed []string, file *ast.File) (broken []brokenLayer) {
	add := func(at token.Pos, what string) { broken = append(broken, brokenLayer{at, what}) }
	imports := make(map[*ast.BasicLit]bool)
	for _, spec := range file.Imports {
		imports[spec.Path] = true
		path, _ := strconv.Unquote(spec.Path.Value)
		if path == goRedis && spec.Name != nil {
			add(spec.Pos(), "imports go-redis under another name")
		}
		rest, ours := strings.CutPrefix(path, modulePath)
		if rest = strings.TrimPrefix(rest, "/"); ours && allowed != nil && !slices.Contains(allowed, rest) {
			if rest == "" {
				rest = "the root"
			}
			add(spec.Pos(), folder+" imports "+rest)
		}
	}
	// Values and errors of go-redis that wire may name; all else would be a client.
	values := []string{"Cmd", "NewCmd", "Nil", "Error", "Cmder", "ErrPoolTimeout", "ErrPoolExhausted", "ErrClosed"}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if pkg, ok := n.X.(*ast.Ident); ok && folder == "internal/wire" && pkg.Name == "redis" && !slices.Contains(values, n.Sel.Name) {
				add(n.Pos(), "internal/wire names redis."+n.Sel.Name)
			}
		case *ast.BasicLit:
			if n.Kind != token.STRING || folder == "internal/wire" || imports[n] {
				break
			}
			if text, err := strconv.Unquote(n.Value); err == nil && slices.Contains(commandWords, strings.ToLower(text)) {
				add(n.Pos(), folder+" names the command "+n.Value)
			}
		}
		return true
	})
	return broken
}
