// Model visits all states of the protocol in small worlds and reports what breaks.
//
//	go run ./internal/model/cmd/model -list
//	go run ./internal/model/cmd/model -world timing,raise-anywhere -trace
//
// It exits with status 1 if the result of a world is not the expected one.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/model"
)

func main() {
	names := flag.String("world", "short", "comma-separated `worlds`; or short, long (those not in short), or all")
	list := flag.Bool("list", false, "list the worlds")
	trace := flag.Bool("trace", false, "print the counterexamples")
	most := flag.Int("max", 60e6, "give up a search after `n` states, at about 60 bytes each")
	flag.Parse()

	worlds, err := choose(*names)
	if err != nil {
		fmt.Fprintln(os.Stderr, "model:", err)
		os.Exit(2)
	}
	if *list {
		for _, w := range worlds {
			fmt.Printf("%-22s %-15s %-26s %s\n", w.Title(), w.Checks, expected(w), w.Doc)
		}
		return
	}
	wrong := false
	fmt.Printf("%-22s %-15s %12s %12s %6s %8s  %s\n", "world", "checks", "states", "steps", "depth", "seconds", "result")
	for _, w := range worlds {
		r := w.Search(model.Options{MaxStates: *most, Progress: func(states, open, depth int) {
			fmt.Fprintf(os.Stderr, "%s: %d states, %d open, depth %d\n", w.Title(), states, open, depth)
		}})
		fmt.Printf("%-22s %-15s %12d %12d %6d %8.1f  %s\n", w.Title(), w.Checks, r.States, r.Steps, r.Depth, r.Time.Round(100*time.Millisecond).Seconds(), result(r))
		if *trace && r.Broken != "" {
			fmt.Println(r.Explain())
		}
		wrong = wrong || !r.AsExpected()
	}
	if wrong {
		os.Exit(1)
	}
}

// choose returns the worlds with the given comma-separated names.
func choose(names string) (chosen []model.World, err error) {
	for name := range strings.SplitSeq(names, ",") {
		some := false
		for _, w := range model.Worlds() {
			if name == "all" || name == "short" && !w.Long || name == "long" && w.Long || name == w.Title() {
				chosen, some = append(chosen, w), true
			}
		}
		if !some {
			return nil, fmt.Errorf("no world %q: see -world all -list", name)
		}
	}
	return chosen, nil
}

func expected(w model.World) string {
	if w.Finds == 0 {
		return "must hold"
	}
	return "must break " + w.Finds.String()
}

func result(r model.Result) string {
	s := r.Broken
	switch {
	case s == "" && r.Complete:
		s = "holds, all states visited"
	case s == "":
		s = "gave up, nothing found"
	}
	if !r.AsExpected() {
		s += " (not as expected)"
	}
	return s
}
