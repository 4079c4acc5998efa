package tree_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// The README and docs/ show no code that does not compile: each of their Go blocks
// is part of example_test.go, but for white space.
func TestReadmeIsExamples(t *testing.T) {
	words := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	examples := words(readText(t, "example_test.go"))
	for _, file := range []string{"README.md", "docs/guide.md", "docs/operations.md"} {
		blocks := 0
		for i, part := range strings.Split(readText(t, file), "```") {
			code, ok := strings.CutPrefix(part, "go\n")
			if i%2 == 0 || !ok {
				continue // prose, or another language
			}
			blocks++
			if !strings.Contains(examples, words(code)) {
				t.Errorf("this block of %s is not in example_test.go:\n%s", file, code)
			}
		}
		if blocks == 0 {
			t.Errorf("%s has no Go block: either it lost them or this test looks for the wrong thing", file)
		}
	}
}

// Every number of docs/design/invariants.md is there once. That the tests of its rows exist is checked below.
func TestAttacks(t *testing.T) {
	const last = 98
	seen := make(map[int]int)
	for _, row := range regexp.MustCompile(`(?m)^\| (\d+) \|.*\x60`).FindAllStringSubmatch(readText(t, "docs/design/invariants.md"), -1) {
		n, _ := strconv.Atoi(row[1])
		seen[n]++
	}
	for n := 1; n <= last; n++ {
		if seen[n] != 1 {
			t.Errorf("rows for attack %d: got %d, want 1", n, seen[n])
		}
	}
	if len(seen) != last {
		t.Errorf("attacks: got %d numbers, want 1 to %d", len(seen), last)
	}
}

// Every Go file and every test that a page names in backticks exists.
func TestDocsNameWhatExists(t *testing.T) {
	pages := []string{"README.md", "SECURITY.md"}
	files := make(map[string]bool) // by path and by name
	tests := make(map[string]bool)
	test := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark|Example)\w*)\(`)
	err := fs.WalkDir(os.DirFS(root), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || d.IsDir():
			return err
		case strings.HasPrefix(path, "docs/") && strings.HasSuffix(path, ".md"):
			pages = append(pages, path)
		case strings.HasSuffix(path, ".go"):
			for end := path; ; {
				files[end] = true
				_, rest, found := strings.Cut(end, "/")
				if !found {
					break
				}
				end = rest
			}
			for _, name := range test.FindAllStringSubmatch(readText(t, path), -1) {
				tests[name[1]] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	file := regexp.MustCompile(`\x60([\w/.-]+\.go)(?::\d+)?\x60`)
	name := regexp.MustCompile(`\x60((?:Test|Fuzz)[A-Z]\w*)(?:/[^\x60]*)?\x60`)
	named := 0
	for _, page := range pages {
		text := readText(t, page)
		for _, m := range file.FindAllStringSubmatch(text, -1) {
			if named++; !files[m[1]] {
				t.Errorf("%s names the file %s, which does not exist", page, m[1])
			}
		}
		for _, m := range name.FindAllStringSubmatch(text, -1) {
			if named++; !tests[m[1]] {
				t.Errorf("%s names the test %s, which does not exist", page, m[1])
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
