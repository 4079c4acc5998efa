package tree_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The README and docs/ show no code that does not compile: each of their Go blocks
// is part of one of these files, but for white space.
func TestReadmeIsExamples(t *testing.T) {
	words := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	var examples []string
	for _, file := range []string{"example_test.go", "redlocktest/example_test.go", "test/tree/before_test.go"} {
		examples = append(examples, words(readText(t, file)))
	}
	for _, file := range []string{"README.md", "docs/guide.md", "docs/operations.md"} {
		blocks := 0
		for i, part := range strings.Split(readText(t, file), "```") {
			code, ok := strings.CutPrefix(part, "go\n")
			if i%2 == 0 || !ok {
				continue // prose, or another language
			}
			blocks++
			if !slices.ContainsFunc(examples, func(text string) bool { return strings.Contains(text, words(code)) }) {
				t.Errorf("this block of %s is in no example:\n%s", file, code)
			}
		}
		if blocks == 0 {
			t.Errorf("%s has no Go block: either it lost them or this test looks for the wrong thing", file)
		}
	}
}

// An attack has a number in docs/design/invariants.md, in brackets behind the rule that stands against it, and one only. Tests
// that play it say so ("Attack 22."); if none does, the rule names the simulation, which does. That the tests of the rules exist
// is checked below.
func TestAttacks(t *testing.T) {
	const last = 98
	number := regexp.MustCompile(`\d+`)
	played := make(map[string]bool)
	said := regexp.MustCompile(`(?m)^\s*// Attacks? \d+(?:, \d+)*\.`)
	err := fs.WalkDir(os.DirFS(root), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		for _, attacks := range said.FindAllString(readText(t, path), -1) {
			for _, n := range number.FindAllString(attacks, -1) {
				played[n] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	rules := make(map[string]int)
	row := regexp.MustCompile(`(?m)^\| [^|]* \[(\d+(?:, \d+)*)\] \|.*`)
	for _, rule := range row.FindAllStringSubmatch(readText(t, "docs/design/invariants.md"), -1) {
		for _, n := range number.FindAllString(rule[1], -1) {
			rules[n]++
			if !played[n] && !strings.Contains(rule[0], "`internal/sim`") {
				t.Errorf("attack %s: no test says that it plays it, and its rule names no simulation", n)
			}
		}
	}
	for n := 1; n <= last; n++ {
		if got := rules[strconv.Itoa(n)]; got != 1 {
			t.Errorf("rules against attack %d: got %d, want 1", n, got)
		}
		delete(played, strconv.Itoa(n))
	}
	if len(rules) != last || len(played) != 0 {
		t.Errorf("attacks: got %d numbers, want 1 to %d; and tests say that they play %v", len(rules), last, played)
	}
}

// Every Go file, test and mutant that a page names in backticks exists, and what it names right behind a file is in there.
func TestDocsNameWhatExists(t *testing.T) {
	pages := []string{"README.md", "SECURITY.md", "CONTRIBUTING.md"}
	files := make(map[string]string) // the text, by path and by each end of it; files of one name are taken together
	tests := make(map[string]bool)
	test := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark|Example)\w*)\(`)
	err := fs.WalkDir(os.DirFS(root), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || d.IsDir():
			return err
		case strings.HasPrefix(path, "docs/") && strings.HasSuffix(path, ".md"):
			pages = append(pages, path)
		case strings.HasSuffix(path, ".go"), strings.HasSuffix(path, ".lua"):
			code := readText(t, path)
			for end := path; ; {
				files[end] += code
				_, rest, found := strings.Cut(end, "/")
				if !found {
					break
				}
				end = rest
			}
			for _, name := range test.FindAllStringSubmatch(code, -1) {
				tests[name[1]] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	sequence := regexp.MustCompile(`\x60[\w/.-]+\.go\x60(?:[,;]? \x60[\w/.-]+\x60)*`) // files, each with what is in it
	word := regexp.MustCompile(`\x60[\w./-]+\x60`)
	mutant := regexp.MustCompile(`mutants? ((?:(?:, )?\x60[\w-]+\x60)+)`)
	mutants := files["internal/mutants/list_test.go"]
	name := regexp.MustCompile(`\x60((?:Test|Fuzz)[A-Z]\w*)(?:/[^\x60]*)?\x60`)
	named := 0
	for _, page := range pages {
		text := readText(t, page)
		for _, together := range sequence.FindAllString(text, -1) {
			file := ""
			for _, m := range word.FindAllString(together, -1) {
				named++
				this := strings.Trim(m, "`")
				switch ident := this[strings.LastIndexByte(this, '.')+1:]; {
				case strings.HasSuffix(this, "/"):
				case ident == "go" || ident == "lua":
					if file = this; files[file] == "" {
						t.Errorf("%s names the file %s, which does not exist", page, file)
					}
				case !regexp.MustCompile(`\b`+ident+`\b`).MatchString(files[file]) && !tests[this]:
					t.Errorf("%s: there is no %s in %s", page, this, file)
				}
			}
		}
		for _, m := range name.FindAllStringSubmatch(text, -1) {
			if named++; !tests[m[1]] {
				t.Errorf("%s names the test %s, which does not exist", page, m[1])
			}
		}
		for _, m := range mutant.FindAllStringSubmatch(text, -1) {
			for _, name := range strings.FieldsFunc(m[1], func(c rune) bool { return strings.ContainsRune(", `", c) }) {
				if !strings.Contains(mutants, `name: "`+name+`"`) {
					t.Errorf("%s names the mutant %s, which does not exist", page, name)
				}
			}
		}
	}
	if named < 100 {
		t.Errorf("names found in the pages: got %d, want hundreds", named)
	}
}

func readText(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
