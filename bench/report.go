package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
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

func (s *series) add(v float64) { s.Reps = append(s.Reps, v) }

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
	r := &series{Section: s.Section, Subject: s.Subject + " / " + t.Subject, Case: s.Case, Metric: s.Metric + " ratio"}
	for i := range min(len(s.Reps), len(t.Reps)) {
		if t.Reps[i] > 0 {
			r.add(s.Reps[i] / t.Reps[i])
		}
	}
	return r
}

// spread reads like "1.23 (1.10–1.31)": median, least and most.
func (s *series) spread(format string) string {
	if len(s.Reps) == 0 {
		return "–"
	}
	text := fmt.Sprintf(format, s.median())
	if len(s.Reps) == 1 {
		return text
	}
	return text + " (" + fmt.Sprintf(format, slices.Min(s.Reps)) + "–" + fmt.Sprintf(format, slices.Max(s.Reps)) + ")"
}

// A report collects series and prints tables as they are done.
type report struct {
	out    io.Writer
	Time   time.Time `json:"time"`
	Go     string    `json:"go"`
	Redis  string    `json:"redis"`
	CPUs   int       `json:"cpus"`
	Series []*series `json:"series"`
}

func newReport(out io.Writer, redisVersion string) *report {
	r := &report{out: out, Time: time.Now(), Go: runtime.Version(), Redis: redisVersion, CPUs: runtime.NumCPU()}
	fmt.Fprintf(out, "%s, %s/%s, redis-server %s, %d CPUs, shared by client and servers.\n",
		r.Go, runtime.GOOS, runtime.GOARCH, r.Redis, r.CPUs)
	fmt.Fprintln(out, "Cells are the median of the repetitions (least–most). Judge by ratios: absolute figures are this machine's.")
	return r
}

// series finds or begins the one of that name.
func (r *report) series(section, subject, kase, metric string) *series {
	for _, s := range r.Series {
		if s.Section == section && s.Subject == subject && s.Case == kase && s.Metric == metric {
			return s
		}
	}
	s := &series{Section: section, Subject: subject, Case: kase, Metric: metric}
	r.Series = append(r.Series, s)
	return s
}

// ratio is a series computed from two others; it is kept with them.
func (r *report) ratio(s, t *series) *series {
	q := s.over(t)
	r.Series = append(r.Series, q)
	return q
}

func (r *report) table(title string, rows [][]string) {
	fmt.Fprintf(r.out, "\n%s\n", title)
	w := tabwriter.NewWriter(r.out, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, "  "+strings.Join(row, "\t"))
	}
	w.Flush()
}

func (r *report) writeJSON(name string) error {
	b, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(name, append(b, '\n'), 0o666)
}

// progress goes to stderr, so that stdout can be kept.
func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}
