package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// A series is one quantity, measured once in each repetition. Absolute numbers say something about the machine of that
// minute only; what holds are ratios of series whose repetitions ran next to each other.
type series struct {
	Section string    `json:"section"`
	Subject string    `json:"subject"`
	Case    string    `json:"case"`
	Metric  string    `json:"metric"`
	Reps    []float64 `json:"reps"`
}

// add rounds to five digits, which is more than any of them is worth. What is no number, because nothing succeeded, is 0.
func (s *series) add(v float64) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		v = 0
	}
	v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', 5, 64), 64)
	s.Reps = append(s.Reps, v)
}

func (s *series) median() float64 { return quantile(s.Reps, 0.5) }

// quantile of values in any order; 0 without any.
func quantile[T cmp.Ordered](values []T, q float64) T {
	if len(values) == 0 {
		var zero T
		return zero
	}
	v := slices.Sorted(slices.Values(values))
	return v[min(len(v)-1, int(q*float64(len(v))))]
}

// over is the ratio of two series, repetition by repetition: noise that lasted longer than one strikes both.
func (s *series) over(t *series) *series {
	r := new(series)
	for i := range min(len(s.Reps), len(t.Reps)) {
		if t.Reps[i] > 0 {
			r.add(s.Reps[i] / t.Reps[i])
		}
	}
	return r
}

// each is the series with f applied to every repetition.
func (s *series) each(f func(v float64) float64) *series {
	r := new(series)
	for _, v := range s.Reps {
		r.add(f(v))
	}
	return r
}

// cell is the median.
func (s *series) cell(format string) string {
	if len(s.Reps) == 0 {
		return "–"
	}
	return fmt.Sprintf(format, s.median())
}

// spread reads like "1.23 (1.10–1.31)": median, least and most.
func (s *series) spread(format string) string {
	text := s.cell(format)
	if len(s.Reps) < 2 {
		return text
	}
	least, most := fmt.Sprintf(format, slices.Min(s.Reps)), fmt.Sprintf(format, slices.Max(s.Reps))
	if least == most {
		return text
	}
	return text + " (" + least + "–" + most + ")"
}

// A report is what was measured, and where.
type report struct {
	Time     time.Time `json:"time"`
	Took     string    `json:"took"`
	Command  string    `json:"command"`
	Go       string    `json:"go"`
	Platform string    `json:"platform"`
	CPU      string    `json:"cpu"`
	CPUs     int       `json:"cpus"`
	Redis    string    `json:"redis"`
	Load     string    `json:"load"` // of the machine before we began
	Notes    []string  `json:"notes"`
	Series   []*series `json:"series"`
}

func newReport(redisVersion string) *report {
	return &report{
		Time: time.Now().UTC().Truncate(time.Second), Command: strings.TrimSpace("go run . " + strings.Join(os.Args[1:], " ")),
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, CPU: cpuModel(), CPUs: runtime.NumCPU(),
		Redis: redisVersion, Load: loadAverage(),
	}
}

// cpuModel and loadAverage are what Linux tells; nothing elsewhere.
func cpuModel() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func loadAverage() string {
	text, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(text), " ")
	return first
}

// note keeps what went wrong without ending the run.
func (r *report) note(format string, args ...any) {
	const enough = 100
	if len(r.Notes) < enough {
		r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
	}
}

// series finds or begins the one of that name.
func (r *report) series(section, subject, kase, metric string) *series {
	s := r.find(section, subject, kase, metric)
	if s.Section == "" {
		*s = series{Section: section, Subject: subject, Case: kase, Metric: metric}
		r.Series = append(r.Series, s)
	}
	return s
}

// find is an empty series where there is none of that name.
func (r *report) find(section, subject, kase, metric string) *series {
	for _, s := range r.Series {
		if s.Section == section && s.Subject == subject && s.Case == kase && s.Metric == metric {
			return s
		}
	}
	return new(series)
}

// subjects are those that have a metric, in the order in which they were first measured.
func (r *report) subjects(section, metric string) []string {
	return r.names(section, metric, func(s *series) string { return s.Subject })
}

func (r *report) cases(section, metric string) []string {
	return r.names(section, metric, func(s *series) string { return s.Case })
}

func (r *report) names(section, metric string, name func(*series) string) (names []string) {
	for _, s := range r.Series {
		if s.Section == section && s.Metric == metric && !slices.Contains(names, name(s)) {
			names = append(names, name(s))
		}
	}
	return names
}

// A table is what of the report is shown. The documents refer to it by name. Its first row is the header.
type table struct {
	name, title string
	rows        [][]string
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

// where is the table of the machine and the run.
func (r *report) where() table {
	return table{"machine", "The run", [][]string{
		{"", ""},
		{"when", r.Time.Format("2006-01-02 15:04 MST") + ", for " + r.Took},
		{"command", "`" + r.Command + "`"},
		{"machine", fmt.Sprintf("%d CPUs (%s), %s, shared by client and servers", r.CPUs, r.CPU, r.Platform)},
		{"load before", r.Load},
		{"software", r.Go + ", redis-server " + r.Redis},
	}}
}

func (r *report) writeJSON(name string) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	b = bytes.ReplaceAll(b, []byte("},{"), []byte("},\n{")) // one series a line
	return os.WriteFile(name, append(b, '\n'), 0o666)
}

func readReport(name string) (*report, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	r := new(report)
	return r, json.Unmarshal(b, r)
}
