package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// The metrics that several sections share.
const (
	mRate       = "cycles/s"
	mAcquire50  = "acquire p50 ms"
	mAcquire99  = "acquire p99 ms"
	mRelease50  = "release p50 ms"
	mRelease99  = "release p99 ms"
	mClientCPU  = "client CPU µs/cycle"
	mServersCPU = "servers' CPU µs/cycle"
	mFailed     = "failed"
)

var halves = []string{mAcquire50, mAcquire99, mRelease50, mRelease99}

// A series is one quantity, measured once in each repetition. Its absolute values depend on the machine at that minute;
// ratios of series whose repetitions ran next to each other do not.
type series struct {
	Section string    `json:"section"`
	Subject string    `json:"subject"`
	Case    string    `json:"case"`
	Metric  string    `json:"metric"`
	Reps    []float64 `json:"reps"`
}

// add rounds to five digits, which is more than the measurements are worth. NaN and infinity, which come from a division by
// no successes, become 0.
func (s *series) add(v float64) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		v = 0
	}
	v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', 5, 64), 64)
	s.Reps = append(s.Reps, v)
}

func (s *series) median() float64 { return quantile(s.Reps, 0.5) }

// quantile returns the q-quantile of unsorted values, or 0 if there are none.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	v := slices.Sorted(slices.Values(values))
	return v[min(len(v)-1, int(q*float64(len(v))))]
}

// over returns the ratio of two series, repetition by repetition, so that noise that lasts longer than one cancels out.
func (s *series) over(t *series) *series {
	r := new(series)
	for i := range min(len(s.Reps), len(t.Reps)) {
		if t.Reps[i] > 0 {
			r.add(s.Reps[i] / t.Reps[i])
		}
	}
	return r
}

// each returns the series with f applied to every repetition.
func (s *series) each(f func(v float64) float64) *series {
	r := new(series)
	for _, v := range s.Reps {
		r.add(f(v))
	}
	return r
}

// cell formats the median.
func (s *series) cell(format string) string {
	if len(s.Reps) == 0 {
		return "–"
	}
	return fmt.Sprintf(format, s.median())
}

// spread formats the median, the minimum and the maximum, as in "1.23 (1.10–1.31)".
func (s *series) spread(format string) string {
	text := s.cell(format)
	if len(s.Reps) == 0 {
		return text
	}
	least, most := fmt.Sprintf(format, slices.Min(s.Reps)), fmt.Sprintf(format, slices.Max(s.Reps))
	if least == most {
		return text
	}
	return text + " (" + least + "–" + most + ")"
}

// A report holds what was measured, and on which machine.
type report struct {
	Time     time.Time `json:"time"`
	Took     string    `json:"took"`
	Command  string    `json:"command"`
	Go       string    `json:"go"`
	Platform string    `json:"platform"`
	CPU      string    `json:"cpu"`
	CPUs     int       `json:"cpus"`
	Redis    string    `json:"redis"`
	Load     string    `json:"load"` // average of the machine before the run
	Notes    []string  `json:"notes"`
	Series   []*series `json:"series"`

	others []*report // on other servers
}

func newReport(redisVersion string) *report {
	return &report{
		Time: time.Now().UTC().Truncate(time.Second), Command: strings.TrimSpace("go run . " + strings.Join(os.Args[1:], " ")),
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, CPU: field("/proc/cpuinfo", "model name"), CPUs: runtime.NumCPU(),
		Redis: redisVersion, Load: strings.SplitN(field("/proc/loadavg", ""), " ", 2)[0],
	}
}

// field returns the first value after a name in a file of /proc, and nothing on systems other than Linux.
func field(file, name string) string {
	text, _ := os.ReadFile(file)
	_, rest, _ := strings.Cut(string(text), name)
	value, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(strings.TrimLeft(value, "\t :"))
}

// note records a failure that does not end the run.
func (r *report) note(format string, args ...any) {
	if len(r.Notes) < 100 {
		r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
	}
}

// values are measurements of one subject in one case.
type values []struct {
	metric string
	v      float64
}

// enter adds a repetition to each of the series.
func (r *report) enter(section, subject, kase string, vs values) {
	for _, v := range vs {
		s := r.find(section, subject, kase, v.metric)
		if s.Section == "" {
			*s = series{Section: section, Subject: subject, Case: kase, Metric: v.metric}
			r.Series = append(r.Series, s)
		}
		s.add(v.v)
	}
}

// find returns a series, which is empty if nothing was measured.
func (r *report) find(section, subject, kase, metric string) *series {
	for _, s := range r.Series {
		if s.Section == section && s.Subject == subject && s.Case == kase && s.Metric == metric {
			return s
		}
	}
	return new(series)
}

// subjects returns those that have a metric, in the order in which they were first measured.
func (r *report) subjects(section, metric string) []string {
	return r.names(section, metric, func(s *series) string { return s.Subject })
}

func (r *report) cases(section, metric string) []string {
	return r.names(section, metric, func(s *series) string { return s.Case })
}

// names returns what the series of a section and metric, or of all metrics if it is empty, are named.
func (r *report) names(section, metric string, name func(*series) string) (names []string) {
	for _, s := range r.Series {
		if n := name(s); s.Section == section && (metric == "" || s.Metric == metric) && !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	return names
}

// A table shows a part of the report. Pages refer to it by name. Its first row is the header.
type table struct {
	name, title string
	rows        [][]string
}

// grid returns a table with a row for each of rows and a cell for each of cols. corner is the first cell of the header.
func grid(name, title, corner string, rows, cols []string, cell func(row, col string) string) table {
	t := table{name, title, [][]string{append([]string{corner}, cols...)}}
	for _, row := range rows {
		cells := []string{row}
		for _, col := range cols {
			cells = append(cells, cell(row, col))
		}
		t.rows = append(t.rows, cells)
	}
	return t
}

// raw returns a table of each metric of a section.
func (r *report) raw(section string) (tables []table) {
	for _, m := range r.names(section, "", func(s *series) string { return s.Metric }) {
		name := section + ": " + m
		tables = append(tables, grid(name, name, "", r.cases(section, m), r.subjects(section, m), func(c, subject string) string {
			return r.find(section, subject, c, m).spread("%.5g")
		}))
	}
	return tables
}

// without returns names without the one given.
func without(names []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == name })
}

func (t table) text(w io.Writer) {
	fmt.Fprintf(w, "\n%s\n", t.title)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range t.rows {
		fmt.Fprintln(tw, "  "+strings.Join(row, "\t"))
	}
	tw.Flush()
}

func (t table) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:\n\n", t.title)
	for i, row := range t.rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			fmt.Fprintf(&b, "|%s\n", strings.Repeat(" --- |", len(row)))
		}
	}
	return b.String()
}

// where returns the table of the machine and the run.
func (r *report) where() table {
	return table{"machine", "The run", [][]string{
		{"", ""},
		{"when", r.Time.Format("2006-01-02 15:04 MST") + ", for " + r.Took},
		{"command", "`" + r.Command + "`"},
		{"machine", fmt.Sprintf("%d CPUs (%s), %s, shared by client and servers", r.CPUs, r.CPU, r.Platform)},
		{"load before", r.Load},
		{"software", r.Go + ", " + r.Redis},
	}}
}

// write writes results.json and the plot.
func (r *report) write(folder string) {
	check(os.MkdirAll(folder, 0o777))
	b := bytes.ReplaceAll(must(json.Marshal(r)), []byte("},{"), []byte("},\n{")) // one series a line
	check(os.WriteFile(filepath.Join(folder, "results.json"), append(b, '\n'), 0o666))
	r.plot(folder)
}

// servers returns the table that compares the report with those of other servers in the same folder, one below the other.
func (r *report) servers() table {
	t := table{"servers", "64 goroutines on other servers: CPU time of a cycle, client and servers", [][]string{{"servers", "redlock, µs", "redlock, three nodes, µs", "redislock on one node, as a multiple of redlock", "redsync, as a multiple of redlock"}}}
	for _, r := range append([]*report{r}, r.others...) {
		ours := r.cpu(nameOurs, "64")
		t.rows = append(t.rows, []string{r.Redis, ours.spread("%.0f"), r.cpu(nameThree, "64").spread("%.0f"), r.cpu(nameLock, "64").over(ours).spread("%.2f"), r.cpu(nameRedsync, "64").over(ours).spread("%.2f")})
	}
	return t
}

// readReport reads a report. For results.json it reads those of other servers, too: the files beside it in folders of their own.
func readReport(name string) *report {
	r := new(report)
	if err := json.Unmarshal(must(os.ReadFile(name)), r); err != nil {
		check(fmt.Errorf("%s: %w", name, err))
	}
	for _, other := range must(filepath.Glob(filepath.Join(filepath.Dir(name), "*", filepath.Base(name)))) {
		r.others = append(r.others, readReport(other))
	}
	return r
}
