package main

import (
	"strings"
	"testing"
	"time"
)

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
