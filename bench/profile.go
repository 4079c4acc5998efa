package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"

	"github.com/google/pprof/profile"
)

var profileGoroutines = []int{1, 64}

// profiles is where the time and the allocations of our cycle go. Each is of a process of its own that does nothing else.
func profiles(ctx context.Context, b *bench) error {
	for _, kind := range []string{kindCPU, kindAllocs} {
		for _, g := range profileGoroutines {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			b.progress("%s, %d goroutines", kind, g)
			if err := profileOne(b, kind, g); err != nil {
				return err
			}
		}
	}
	return nil
}

func profileOne(b *bench, kind string, g int) error {
	cmd, err := worker(job{Kind: kind, Addrs: addrs(b.servers), Goroutines: g, For: b.profile})
	if err != nil {
		return err
	}
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return err
	}
	p, err := profile.ParseData(out)
	if err != nil {
		return err
	}
	if kind == kindCPU {
		b.report.blamed(p, sectionCPU, g, 1) // nanoseconds
	} else {
		b.report.blamed(p, sectionObjects, g, 0)
		b.report.blamed(p, sectionBytes, g, 1)
	}
	return nil
}

const (
	sectionCPU     = "profile cpu"
	sectionObjects = "profile allocs"
	sectionBytes   = "profile bytes"
)

// blamed enters whose the samples of a profile are, in per cent of all.
func (r *report) blamed(p *profile.Profile, section string, g, value int) {
	parts, functions := make(map[string]float64), make(map[string]float64)
	all := 0.0
	for _, s := range p.Sample {
		v := float64(s.Value[value])
		part, function := blame(names(s), section == sectionCPU)
		if part == partBench {
			continue
		}
		parts[part] += v
		functions[function] += v
		all += v
	}
	enter := func(metric string, values map[string]float64, most int) {
		for _, name := range slices.SortedFunc(maps.Keys(values), func(a, b string) int { return cmp.Compare(values[b], values[a]) }) {
			if most--; most < 0 {
				break
			}
			r.series(section, name, fmt.Sprint(g), metric).add(100 * values[name] / all)
		}
	}
	enter("part", parts, 10)
	enter("function", functions, 12)
}

// names are the functions of a sample, the innermost first.
func names(s *profile.Sample) (frames []string) {
	for _, l := range s.Location {
		for _, line := range l.Line {
			if line.Function != nil {
				frames = append(frames, line.Function.Name)
			}
		}
	}
	return frames
}

// The parts that a cycle is made of.
const (
	partOurs      = "redlock"
	partGoRedis   = "go-redis"
	partKernel    = "the kernel: system calls"
	partScheduler = "Go's scheduler"
	partMemory    = "Go's allocator and collector"
	partBench     = "the benchmark"
	partStd       = "the rest of Go"
)

// blame says whose a sample is. CPU: of whom it was executing; the runtime's work is told apart, for it is everybody's.
// Allocations: of the innermost function that is redlock's or go-redis's, for whom it was allocated.
func blame(frames []string, executing bool) (part, function string) {
	if len(frames) == 0 {
		return partStd, "?"
	}
	function = frames[0]
	if !executing {
		for _, f := range frames {
			if p := partOf(f); p == partOurs || p == partGoRedis || p == partBench {
				return p, short(f)
			}
		}
		return partStd, short(function)
	}
	// The runtime's frames before the first of anybody else tell what it was doing, and so does who entered the kernel.
	inner := len(frames)
	if i := slices.IndexFunc(frames, func(f string) bool { return !inRuntime(f) }); i >= 0 {
		inner = i
	}
	switch {
	case inner < len(frames) && strings.HasPrefix(frames[inner], "syscall."), anyHas(frames[:inner], kernelWords):
		return partKernel, short(caller(frames))
	case anyHas(frames[:inner], memoryWords):
		return partMemory, short(function)
	case anyHas(frames[:inner], schedulerWords):
		return partScheduler, short(function)
	}
	return partOf(function), short(function)
}

// What the runtime's functions are called.
var (
	kernelWords    = []string{"Syscall6", "futex", "epoll", "usleep", "madvise"}
	memoryWords    = []string{"mallocgc", "gcBgMark", "gcDrain", "gcAssist", "gcStart", "bgsweep", "newobject", "growslice", "makeslice", "wbBuf"}
	schedulerWords = []string{"schedule", "findRunnable", "park_m", "ready", "mcall", "wakep", "netpoll", "chansend", "chanrecv", "selectgo", "mstart", "newproc", "closechan"}
)

func inRuntime(f string) bool {
	return strings.HasPrefix(f, "runtime.") || strings.HasPrefix(f, "internal/runtime/")
}

func anyHas(frames, words []string) bool {
	return slices.ContainsFunc(frames, func(f string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(f, w) })
	})
}

func partOf(function string) string {
	switch {
	case strings.HasPrefix(function, "github.com/seed-ce352c9b/redlock."):
		return partOurs
	case strings.HasPrefix(function, "github.com/redis/go-redis/"):
		return partGoRedis
	case strings.HasPrefix(function, "main."):
		return partBench
	}
	return partStd
}

// caller is the function that led to a system call: "net.(*conn).Write" says more than "Syscall6".
func caller(frames []string) string {
	for _, f := range frames {
		if strings.HasPrefix(f, "net.(*conn)") || strings.HasPrefix(f, "runtime.netpoll") || strings.HasPrefix(f, "runtime.futex") {
			return f
		}
	}
	return frames[0]
}

// short is a function without the path of its package and without type parameters.
func short(function string) string {
	if i := strings.IndexByte(function, '['); i >= 0 {
		if j := strings.LastIndexByte(function, ']'); j > i {
			function = function[:i] + function[j+1:]
		}
	}
	if i := strings.LastIndexByte(function, '/'); i >= 0 {
		function = function[i+1:]
	}
	return strings.Replace(function, "v9.", "redis.", 1)
}

// profileJob is the process that is profiled: cycles of ours for some time, then the profile on stdout.
func profileJob(j job) error {
	runtime.MemProfileRate = 0
	if j.Kind == kindAllocs {
		runtime.MemProfileRate = 1 // every one
	}
	c, err := newOurs(j.Addrs)
	if err != nil {
		return err
	}
	defer c.close()
	ctx := context.Background()
	tally(ctx, c, j.Goroutines, 10)
	if j.Kind == kindAllocs {
		// So many more than the first cycles that these hardly count.
		tally(ctx, c, j.Goroutines, 4000/j.Goroutines)
		runtime.GC()
		runtime.GC()
		return pprof.Lookup("allocs").WriteTo(os.Stdout, 0)
	}
	var out bytes.Buffer
	if err := pprof.StartCPUProfile(&out); err != nil {
		return err
	}
	runFor(ctx, c, "profile", j.Goroutines, j.For)
	pprof.StopCPUProfile()
	_, err = os.Stdout.Write(out.Bytes())
	return err
}

func profileTables(r *report) []table {
	var tables []table
	for _, what := range []struct{ section, name, title, whose string }{
		{sectionCPU, "cpu", "CPU time", "by whose code was executing"},
		{sectionObjects, "allocs", "Allocations", "by for whom"},
		{sectionBytes, "bytes", "Bytes allocated", "by for whom"},
	} {
		for _, g := range profileGoroutines {
			of := func(metric string) [][]string {
				share := func(s string) float64 { return r.find(what.section, s, fmt.Sprint(g), metric).median() }
				names := r.subjects(what.section, metric)
				slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(share(b), share(a)) })
				rows := [][]string{{"", "%"}}
				for _, s := range names {
					if v := share(s); v >= 0.5 {
						rows = append(rows, []string{s, fmt.Sprintf("%.0f", v)})
					}
				}
				return rows
			}
			tables = append(tables,
				table{fmt.Sprintf("profile-%s-%d", what.name, g), fmt.Sprintf("%s of redlock's cycle, %s, %s", what.title, goroutines(g), what.whose), of("part")},
				table{fmt.Sprintf("profile-%s-%d-functions", what.name, g), fmt.Sprintf("%s, %s, the first functions", what.title, goroutines(g)), of("function")})
		}
	}
	return tables
}

func goroutines(g int) string {
	if g == 1 {
		return "one goroutine"
	}
	return fmt.Sprint(g, " goroutines")
}
