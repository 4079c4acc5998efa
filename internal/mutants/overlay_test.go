package mutants

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// All mutants are built into one binary, which is told by REDLOCK_MUTANT which one it is: a build takes much longer than a
// hunt. Each function that a mutant's patches change is there twice, and the original begins with
//
//	if underTest == "name" { return itsMutant(…) }
//
// A changed script is put in place of the original when the process starts. Production code knows nothing of it: this is
// a -overlay of its source.

// A composition is the library with all its mutants.
type composition struct {
	files   map[string]*composed // by path relative to the module's directory
	scripts string               // the folder of script.go, if a script changes
	inits   bytes.Buffer         // puts changed scripts in place
}

// A composed is a file of it.
type composed struct {
	fset     *token.FileSet
	file     *ast.File
	switches map[*ast.FuncDecl]string // what the original begins with
	variants strings.Builder
}

// An overlay replaces files of the library for a build, and adds some.
type overlay struct {
	dir     string            // where they are
	replace map[string]string // by path in the library
}

func (o *overlay) put(t *testing.T, file, text string) {
	t.Helper()
	to := filepath.Join(o.dir, file)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	o.replace[filepath.Join(root(t), file)] = to
}

// write returns the file for -overlay.
func (o *overlay) write(t *testing.T) (file string) {
	t.Helper()
	b, err := json.Marshal(map[string]any{"Replace": o.replace})
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(o.dir, "overlay.json")
	if err := os.WriteFile(file, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// compose returns the -overlay that puts all of these mutants into the library.
func compose(t *testing.T, dir string, list []mutant) (file string) {
	t.Helper()
	all := composition{files: map[string]*composed{}}
	for i := range list {
		m := &list[i]
		texts := m.sources(t)
		for _, file := range slices.Sorted(maps.Keys(texts)) {
			if script, ok := strings.CutSuffix(filepath.Base(file), ".lua"); ok {
				all.scripts = path.Dir(path.Dir(file))
				made := source(t, path.Join(all.scripts, "script.go"))
				if before := map[string]string{"guard": `newGrant\("\w+", [\w+]+\)`, "queue": `new\w+\("\w+", queueLua\+\w+\)`}[script]; before != "" { // it goes before others
					fmt.Fprintf(&all.inits, "\tif underTest == %q {\n\t\t%sLua = %s\n", m.name, script, strconv.Quote(texts[file]))
					for _, call := range regexp.MustCompile(`(\w+)\s+= (`+before+`)`).FindAllStringSubmatch(made, -1) {
						fmt.Fprintf(&all.inits, "\t\t*%s = *hashed(%s)\n", call[1], call[2])
					}
					fmt.Fprint(&all.inits, "\t}\n")
					continue
				}
				call := regexp.MustCompile(`(\w+)\s+= (new\w+\("\w+", (?:queueLua\+)?)` + script + `Lua\)`).FindStringSubmatch(made)
				if call == nil {
					t.Fatalf("mutant %s: script.go does not say how %s is made", m.name, file)
				}
				fmt.Fprintf(&all.inits, "\tif underTest == %q {\n\t\t*%s = *hashed(%s%s))\n\t}\n", m.name, call[1], call[2], strconv.Quote(texts[file]))
				continue
			}
			all.add(t, m, file, texts[file])
		}
	}
	o := overlay{dir: dir, replace: map[string]string{}}
	packages := map[string]string{} // names by folder
	for file, c := range all.files {
		o.put(t, file, c.text(t))
		packages[path.Dir(file)] = c.file.Name.Name
	}
	if all.scripts != "" {
		name := regexp.MustCompile(`(?m)^package (\w+)`).FindStringSubmatch(source(t, path.Join(all.scripts, "script.go")))
		packages[all.scripts] = name[1]
	}
	for folder, name := range packages {
		o.put(t, path.Join(folder, "mutants_overlay.go"), fmt.Sprintf(overlayFile, name))
		if folder == all.scripts {
			o.put(t, path.Join(folder, "mutants_scripts_overlay.go"), fmt.Sprintf(overlayScripts, name, all.inits.String()))
		}
	}
	return o.write(t)
}

// overlayFile is the file that each changed package has with the mutants and not without.
const overlayFile = `package %s

import "os"

var underTest = os.Getenv("REDLOCK_MUTANT")
`

// overlayScripts is another one in the package of the scripts.
const overlayScripts = `package %s

import (
	"crypto/sha1"
	"fmt"
)

// hashed gives a changed script, and what it is under a guard, the hash of its own text.
func hashed(s *script) *script {
	s.sha = fmt.Sprintf("%%x", sha1.Sum([]byte(s.body)))
	s.shaArg = s.sha
	if s.guarded != nil {
		hashed(s.guarded)
	}
	return s
}

func init() {
%s}
`

// add takes in what a mutant changes in a file.
func (all *composition) add(t *testing.T, m *mutant, file, text string) {
	t.Helper()
	c := all.files[file]
	if c == nil {
		c = &composed{fset: token.NewFileSet(), switches: map[*ast.FuncDecl]string{}}
		var err error
		if c.file, err = parser.ParseFile(c.fset, file, source(t, file), parser.SkipObjectResolution); err != nil {
			t.Fatal(err)
		}
		for _, d := range c.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				name(f)
			}
		}
		all.files[file] = c
	}
	fset := token.NewFileSet()
	changed, err := parser.ParseFile(fset, file, text, parser.SkipObjectResolution)
	if err != nil {
		t.Errorf("mutant %s: %v", m.name, err)
		return
	}
	if len(changed.Decls) != len(c.file.Decls) {
		t.Errorf("mutant %s: its patch of %s may change functions only", m.name, file)
		return
	}
	for i, d := range changed.Decls {
		f, ok := d.(*ast.FuncDecl)
		if ok {
			name(f)
		}
		if show(t, fset, d) == show(t, c.fset, c.file.Decls[i]) {
			continue
		}
		if !ok {
			t.Errorf("mutant %s: its patch of %s changes what is no function", m.name, file)
			return
		}
		was := c.file.Decls[i].(*ast.FuncDecl)
		own := f.Name.Name + "_" + strings.ReplaceAll(m.name, "-", "_")
		c.switches[was] += fmt.Sprintf("if underTest == %q { %s }\n", m.name, call(was, own))
		f.Name.Name = own
		fmt.Fprintf(&c.variants, "\n%s\n", show(t, fset, f))
	}
}

// name gives names to receiver and parameters that have none, so that they can be passed on.
func name(f *ast.FuncDecl) {
	lists := []*ast.FieldList{f.Type.Params}
	if f.Recv != nil {
		lists = append(lists, f.Recv)
	}
	n := 0
	for _, l := range lists {
		for _, field := range l.List {
			if len(field.Names) == 0 {
				field.Names = []*ast.Ident{ast.NewIdent("_")}
			}
			for _, id := range field.Names {
				if id.Name == "_" {
					n++
					id.Name = fmt.Sprint("unnamed", n)
				}
			}
		}
	}
}

// call is the statement by which f does what its mutant of another name does.
func call(f *ast.FuncDecl, own string) string {
	if f.Recv != nil {
		own = f.Recv.List[0].Names[0].Name + "." + own
	}
	var args []string
	for _, field := range f.Type.Params.List {
		for _, id := range field.Names {
			arg := id.Name
			if _, variadic := field.Type.(*ast.Ellipsis); variadic {
				arg += "..."
			}
			args = append(args, arg)
		}
	}
	s := own + "(" + strings.Join(args, ", ") + ")"
	if f.Type.Results == nil {
		return s + "; return"
	}
	return "return " + s
}

func (c *composed) text(t *testing.T) string {
	var b strings.Builder
	fmt.Fprintf(&b, "package %s\n", c.file.Name.Name)
	for _, d := range c.file.Decls {
		text := show(t, c.fset, d)
		if f, ok := d.(*ast.FuncDecl); ok && c.switches[f] != "" {
			body := f.Body
			f.Body = nil
			head := show(t, c.fset, f)
			f.Body = body
			text = head + " {\n" + c.switches[f] + strings.TrimPrefix(strings.TrimSpace(show(t, c.fset, body)), "{")
		}
		fmt.Fprintf(&b, "\n%s\n", text)
	}
	return b.String() + c.variants.String()
}

func show(t *testing.T, fset *token.FileSet, node any) string {
	t.Helper()
	var b strings.Builder
	if err := printer.Fprint(&b, fset, node); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
