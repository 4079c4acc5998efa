package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// allTables are those of all sections that the report has, the verdict first.
func (r *report) allTables() []table {
	tables := []table{r.where(), r.targets(), r.summary()}
	for _, s := range sections {
		tables = append(tables, s.tables(r)...)
	}
	return tables
}

func printTables(results string) error {
	r, err := readReport(results)
	if err != nil {
		return err
	}
	for _, t := range r.allTables() {
		if len(t.rows) > 1 {
			fmt.Printf("%s\n%s\n", marker(t.name), t.markdown())
		}
	}
	return nil
}

// A document holds tables between two lines: <!-- table NAME --> and <!-- end -->. What stands between is the program's,
// everything else the author's.
const endMarker = "<!-- end -->"

func marker(name string) string { return "<!-- table " + name + " -->" }

// documents are those that hold tables.
var documents = []string{"../README.md", "../docs/benchmarks.md", "../docs/scale.md"}

func fillDocuments(results string) error {
	r, err := readReport(results)
	if err != nil {
		return err
	}
	if err := r.plot(filepath.Dir(results)); err != nil {
		return err
	}
	for _, d := range documents {
		text, err := r.fillFile(d)
		if err != nil {
			return err
		}
		if text.old == text.new {
			continue
		}
		if err := os.WriteFile(d, []byte(text.new), 0o666); err != nil {
			return err
		}
		fmt.Fprintln(os.Stderr, "brought up to date:", d)
	}
	return nil
}

type filled struct{ old, new string }

func (r *report) fillFile(name string) (filled, error) {
	old, err := os.ReadFile(name)
	if err != nil {
		return filled{}, err
	}
	text, err := r.fill(string(old))
	if err != nil {
		return filled{}, fmt.Errorf("%s: %w", name, err)
	}
	return filled{string(old), text}, nil
}

// fill returns the document with the report's tables in their places.
func (r *report) fill(document string) (string, error) {
	tables := make(map[string]table)
	for _, t := range r.allTables() {
		tables[t.name] = t
	}
	var b strings.Builder
	rest := document
	for {
		before, after, found := strings.Cut(rest, "<!-- table ")
		b.WriteString(before)
		if !found {
			return b.String(), nil
		}
		name, after, ok := strings.Cut(after, " -->\n")
		if !ok {
			return "", fmt.Errorf("a table without a name: %.40q", after)
		}
		t, ok := tables[name]
		if !ok {
			return "", fmt.Errorf("no table %q", name)
		}
		_, after, ok = strings.Cut(after, endMarker)
		if !ok {
			return "", fmt.Errorf("table %q has no %s", name, endMarker)
		}
		fmt.Fprintf(&b, "%s\n%s%s", marker(name), t.markdown(), endMarker)
		rest = after
	}
}
