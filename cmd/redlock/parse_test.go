package main

import (
	"errors"
	"flag"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestParseRun(t *testing.T) {
	env := func(string) string { return " a:1, b:2,c:3" }
	c, err := parseRun(strings.Fields("-ttl 3s jobs/42 -wait 1s -- sh -c exit"), env)
	if err != nil {
		t.Fatal(err)
	}
	if c.key != "jobs/42" || c.ttl != 3*time.Second || c.wait != time.Second || c.grace != 5*time.Second {
		t.Errorf("got %+v", c)
	}
	if want := []string{"sh", "-c", "exit"}; !slices.Equal(c.argv, want) {
		t.Errorf("command: got %q, want %q", c.argv, want)
	}
	if want := []string{"a:1", "b:2", "c:3"}; !slices.Equal(c.nodes, want) {
		t.Errorf("nodes: got %q, want %q", c.nodes, want)
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
		"-ttl 5 k -- true":        "-ttl",
		"-nodes , k -- true":      "REDLOCK_NODES",
		"-what k -- true":         "-what",
	} {
		_, err := parseRun(strings.Fields(args), func(string) string { return "a:1" })
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
	for _, args := range []string{"-workers 0", "-workers 10", "-for 0s", "-for -1s", "now"} {
		if _, err := parseDemo(strings.Fields(args)); err == nil {
			t.Errorf("%q: got no error", args)
		}
	}
}
