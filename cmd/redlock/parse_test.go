package main

import (
	"errors"
	"flag"
	"slices"
	"strings"
	"testing"
	"time"
)

// only returns an environment with one variable.
func only(name, value string) func(string) string {
	return func(asked string) string {
		if asked == name {
			return value
		}
		return ""
	}
}

func TestParseRun(t *testing.T) {
	env := only("REDLOCK_NODES", " a:1, b:2,c:3")
	c, err := parseRun(strings.Fields("-ttl 3s jobs/42 -wait 1s -- sh -c exit"), env)
	if err != nil {
		t.Fatal(err)
	}
	if c.key != "jobs/42" || c.ttl != 3*time.Second || c.wait != time.Second || c.grace != time.Second {
		t.Errorf("got %+v", c)
	}
	if want := []string{"sh", "-c", "exit"}; !slices.Equal(c.argv, want) {
		t.Errorf("command: got %q, want %q", c.argv, want)
	}
	if want := []string{"a:1", "b:2", "c:3"}; !slices.Equal(c.nodes, want) {
		t.Errorf("nodes: got %q, want %q", c.nodes, want)
	}
}

func TestTheGraceOfARun(t *testing.T) {
	for args, want := range map[string]time.Duration{
		"":                    10 * time.Second / 3,
		"-ttl 3s":             time.Second,
		"-ttl 1m":             5 * time.Second,
		"-ttl 1m -grace 20s":  20 * time.Second,
		"-ttl 1m -grace 0":    0,
		"-ttl 100ms -grace 0": 0,
	} {
		c, err := parseRun(strings.Fields(args+" k -- true"), only("REDLOCK_NODES", "a:1"))
		if err != nil || c.grace != want {
			t.Errorf("%q: got %v, %v; want %v", args, c.grace, err, want)
		}
	}
}

func TestTheGuardOfRun(t *testing.T) {
	for _, c := range []struct {
		flag, env string
		want      time.Duration
		wrong     string
	}{
		{"", "", 0, ""},
		{"-guard 30s", "", 30 * time.Second, ""},
		{"", "1m", time.Minute, ""},
		{"-guard 30s", "1m", 30 * time.Second, ""},
		{"-guard 0", "1m", 0, ""},
		{"-guard -1s", "", 0, `"-1s"`},
		{"-guard soon", "", 0, `"soon"`},
		{"", "soon", 0, "REDLOCK_GUARD"},
	} {
		got, err := parseRun(strings.Fields(c.flag+" -nodes a:1 k -- true"), only("REDLOCK_GUARD", c.env))
		switch {
		case c.wrong == "" && (err != nil || got.guard != c.want):
			t.Errorf("%q, $%q: got %v, %v, want %v", c.flag, c.env, got.guard, err, c.want)
		case c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)):
			t.Errorf("%q, $%q: got %v, want an error that names %s", c.flag, c.env, err, c.wrong)
		}
	}
	if status := run(strings.Fields("-nodes 127.0.0.1:1 -guard 1s -ttl 10s k -- true")); status != exitUsage {
		t.Errorf("a ttl beyond the guard: got status %d, want %d", status, exitUsage)
	}
}

func TestParseRunRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"":                        "KEY",
		"-- true":                 "KEY",
		"k true":                  "--",
		"k --":                    "no command",
		"k l -- true":             `"l" after KEY`,
		"-try -wait 1s k -- true": "contradict",
		"-wait -1s k -- true":     "negative",
		"-grace -1s k -- true":    "negative",
		"-ttl 5 k -- true":        `"5" for flag -ttl: not a duration, such as 10s`,
		"-nodes , k -- true":      "REDLOCK_NODES",
		"-what k -- true":         "-what",
	} {
		_, err := parseRun(strings.Fields(args), only("REDLOCK_NODES", "a:1"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want an error with %q", args, err, want)
		}
	}
	_, err := parseRun([]string{"k", "--", "true"}, func(string) string { return "" })
	if err == nil || !strings.Contains(err.Error(), "-nodes") || !strings.Contains(err.Error(), "REDLOCK_NODES") {
		t.Errorf("no nodes: got %v, want both ways to give them", err)
	}
	if _, err := parseRun([]string{"-h"}, func(string) string { return "" }); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("-h: got %v", err)
	}
}

func TestParseDemoRefuses(t *testing.T) {
	for _, args := range []string{"-workers 0", "-workers 10", "-for 0s", "-for -1s", "-forever -svg x.svg", "-forever -for 8s", "now"} {
		if _, err := parseDemo(strings.Fields(args)); err == nil {
			t.Errorf("%q: got no error", args)
		}
	}
}

// Any arguments and any environment are either refused or parsed to something sensible.
func FuzzParseRun(f *testing.F) {
	for _, args := range []string{"", "k\x00--\x00true", "-ttl\x003s\x00k\x00-wait\x001s\x00--\x00sh\x00-c\x00exit", "--\x00--", "-nodes\x00,\x00k\x00--\x00x", "-try\x00k\x00--\x00", "-h", "-ttl=9999999h\x00k\x00--\x00x", "k\x00-\x00--\x00x", "\xff\x00--\x00\xff"} {
		f.Add(args, "a:1, b:2,")
		f.Add(args, "")
	}
	f.Fuzz(func(t *testing.T, args, nodes string) {
		c, err := parseRun(strings.Split(args, "\x00"), func(string) string { return nodes })
		if err != nil {
			return
		}
		if c.key == "" || len(c.argv) == 0 || len(c.nodes) == 0 || c.wait < 0 || c.grace < 0 || c.try && c.wait > 0 {
			t.Errorf("%q is accepted as %+v", args, c)
		}
		for _, n := range c.nodes {
			if n == "" || strings.TrimSpace(n) != n || strings.Contains(n, ",") {
				t.Errorf("%q and %q: a node is %q", args, nodes, n)
			}
		}
		if !slices.Contains(strings.Split(args, "\x00"), c.key) {
			t.Errorf("%q: the key is %q", args, c.key)
		}
	})
}

// FuzzParseDemo is the same for the command line of demo.
func FuzzParseDemo(f *testing.F) {
	for _, args := range []string{"", "-workers\x009", "-for\x001s", "-forever", "-forever\x00-for\x000s", "now"} {
		f.Add(args)
	}
	f.Fuzz(func(t *testing.T, args string) {
		d, err := parseDemo(strings.Split(args, "\x00"))
		if err == nil && (d.workers < 1 || d.workers > 9 || d.length < 0) {
			t.Errorf("%q is accepted as %d workers for %v", args, d.workers, d.length)
		}
	})
}
