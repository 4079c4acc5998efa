package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// allTables returns the tables of all sections, the overviews first.
func (r *report) allTables() []table {
	tables := []table{r.where(), r.targets(), r.summary(), r.servers()}
	for _, s := range sections {
		tables = append(tables, s.allTables(r)...)
	}
	return tables
}

func printTables(results string) {
	for _, t := range readReport(results).allTables() {
		if len(t.rows) > 1 {
			fmt.Printf("%s%s -->\n%s\n", marker, t.name, t.markdown())
		}
	}
}

// The README and the pages below docs may have tables between two markers: <!-- table NAME --> and <!-- end -->. The text
// between the markers is generated.
const marker = "<!-- table "

var marked = regexp.MustCompile(`(?s)<!-- table ([^\n]+?) -->\n.*?<!-- end -->`)

// fillPages draws the plot and brings the tables of all pages up to date.
func fillPages(results string) {
	r := readReport(results)
	r.plot(filepath.Dir(results))
	r.eachPage(func(page, old, text string) {
		if old != text {
			fmt.Fprintln(os.Stderr, "updated", page)
			check(os.WriteFile(page, []byte(text), 0o666))
		}
	})
}

// eachPage calls f with each page as it is and as it should be.
func (r *report) eachPage(f func(page, old, text string)) {
	var errs []error
	for _, pattern := range []string{"../*.md", "../docs/*.md", "../docs/*/*.md"} {
		for _, page := range must(filepath.Glob(pattern)) {
			old := string(must(os.ReadFile(page)))
			text, err := r.fill(old)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", page, err))
				continue
			}
			f(page, old, text)
		}
	}
	check(errors.Join(errs...))
}

// fill returns the page with the tables of the report between its markers.
func (r *report) fill(page string) (string, error) {
	tables := make(map[string]table)
	for _, t := range r.allTables() {
		tables[t.name] = t
	}
	var errs []error
	n := 0
	text := marked.ReplaceAllStringFunc(page, func(old string) string {
		n++
		name := marked.FindStringSubmatch(old)[1]
		t, ok := tables[name]
		if !ok {
			errs = append(errs, fmt.Errorf("no table %q", name))
		}
		return fmt.Sprintf("%s%s -->\n%s<!-- end -->", marker, name, t.markdown())
	})
	if want := strings.Count(page, marker); n != want {
		errs = append(errs, fmt.Errorf("%d of %d tables have no name or no <!-- end -->", want-n, want))
	}
	return text, errors.Join(errs...)
}
