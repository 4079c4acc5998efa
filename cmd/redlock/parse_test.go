package main

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// environ returns an environment of NAME=value pairs.
func environ(pairs ...string) func(string) string {
	return func(asked string) string {
		for _, p := range pairs {
			if name, value, _ := strings.Cut(p, "="); name == asked {
				return value
			}
		}
		return ""
	}
}

func TestParseRun(t *testing.T) {
	env := environ("REDLOCK_NODES= a:1, b:2,c:3")
	c, err := parseRun(strings.Fields("--ttl 3s jobs/42 -w 1s -vE7 -- sh -c exit"), env)
	if err != nil {
		t.Fatal(err)
	}
	if c.keys[0] != "jobs/42" || c.ttl != 3*time.Second || c.wait != time.Second || c.grace != time.Second || !c.verbose || c.conflict != 7 {
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
		"":                      10 * time.Second / 3,
		"--ttl 3s":              time.Second,
		"--ttl 1m":              5 * time.Second,
		"--ttl 1m --grace 20s":  20 * time.Second,
		"--ttl 1m --grace 0":    0,
		"--ttl 100ms --grace 0": 0,
	} {
		c, err := parseRun(strings.Fields(args+" k -- true"), environ("REDLOCK_NODES=a:1"))
		if err != nil || c.grace != want {
			t.Errorf("%q: got %v, %v; want %v", args, c.grace, err, want)
		}
	}
}

// Each flag has a variable. The command line wins over the one of the same flag, and over those that contradict it.
func TestVariables(t *testing.T) {
	settings := map[string]string{
		"try": "true", "wait": "3s", "conflict-exit-code": "3", "command": "exit 3", "key": "x", "quiet": "true",
		"verbose": "true", "json": "true", "ttl": "3s", "at-least": "3s", "max-hold": "3s", "grace": "1s", "slots": "3",
		"fair": "true", "no-fence": "true", "label": "x", "nodes": "c:3", "nodes-file": "/x", "pass-nodes": "true", "tls-ca": "/x",
		"tls-cert": "/x", "tls-key": "/x", "prefix": "x", "node-timeout": "3s", "guard": "3s",
	}
	newRunFlags().VisitAll(func(flag *pflag.Flag) {
		value, ok := settings[flag.Name]
		if !ok {
			if flag.Name != "help" {
				t.Errorf("--%s: not tested", flag.Name)
			}
			return
		}
		f := newRunFlags()
		if err := f.environment(environ(f.variable(flag.Name) + "=" + value)); err != nil || !f.isSet(flag.Name) {
			t.Errorf("%s=%s: got %v, %s; want it set", f.variable(flag.Name), value, err, f.Lookup(flag.Name).Value)
		}
	})
	for _, c := range []struct {
		args string
		env  []string
		ok   func(runConfig) bool
	}{
		{"--ttl 4s k -- x", []string{"REDLOCK_TTL=3s"}, func(c runConfig) bool { return c.ttl == 4*time.Second }},
		{"-n k -- x", []string{"REDLOCK_WAIT=3s"}, func(c runConfig) bool { return c.try && c.wait == 0 }},
		{"-w 3s k -- x", []string{"REDLOCK_TRY=1"}, func(c runConfig) bool { return !c.try && c.wait == 3*time.Second }},
		{"k -- x", []string{"REDLOCK_TRY=0", "REDLOCK_WAIT=3s"}, func(c runConfig) bool { return !c.try && c.wait == 3*time.Second }},
		{"--try=false k -- x", []string{"REDLOCK_TRY=1", "REDLOCK_WAIT=3s"}, func(c runConfig) bool { return !c.try && c.wait == 3*time.Second }},
		{"--nodes-file /f k -- x", nil, func(c runConfig) bool { return len(c.nodes) == 0 }},
		{"k -- x", []string{"REDLOCK_COMMAND=exit 3", "REDLOCK_KEYS=a,b"}, func(c runConfig) bool { return c.argv[0] == "x" && c.keys[0] == "k" }},
		{"k", []string{"REDLOCK_COMMAND=exit 3"}, func(c runConfig) bool { return slices.Equal(c.argv, []string{"sh", "-c", "exit 3"}) }},
		{"-- x", []string{"REDLOCK_KEYS=a, b"}, func(c runConfig) bool { return slices.Equal(c.keys, []string{"a", "b"}) }},
		{"-k a,b -- x", nil, func(c runConfig) bool { return slices.Equal(c.keys, []string{"a,b"}) }},
		{"k -- x", []string{"REDLOCK_KEY=outer", "REDLOCK_FENCE=7", "REDLOCK_SLOT=1"}, func(c runConfig) bool { return c.keys[0] == "k" && c.slots == 0 }},
	} {
		got, err := parseRun(strings.Fields(c.args), environ(append(c.env, "REDLOCK_NODES=a:1")...))
		if err != nil || !c.ok(got) {
			t.Errorf("%q with %q: got %+v, %v", c.args, c.env, got, err)
		}
	}
	_, err := parseRun(strings.Fields("k -- x"), environ("REDLOCK_NODES=a:1", "REDLOCK_TTL=5"))
	if err == nil || !strings.Contains(err.Error(), `REDLOCK_TTL "5"`) {
		t.Errorf("a bad variable: got %v, want its name and value", err)
	}
	_, err = parseRun(strings.Fields("k -- x"), environ("REDLOCK_NODES=a:1", "REDLOCK_TRY=1", "REDLOCK_WAIT=1s"))
	if err == nil || !strings.Contains(err.Error(), "REDLOCK_TRY and REDLOCK_WAIT contradict") {
		t.Errorf("variables that contradict each other: got %v, want their names", err)
	}
}

// A long flag is mistaken for a value only where it cannot be one.
func TestSingleDashes(t *testing.T) {
	newRunFlags().VisitAll(func(flag *pflag.Flag) {
		_, err := parseRun([]string{"-" + flag.Name, "1", "k", "--", "x"}, environ("REDLOCK_NODES=a:1"))
		var e *usageError
		if !errors.As(err, &e) || !strings.Contains(e.hint, "--"+flag.Name) {
			t.Errorf("-%s: got %v, want a hint at --%[1]s", flag.Name, err)
		}
	})
	c, err := parseRun(strings.Fields("--label=-try k -- x"), environ("REDLOCK_NODES=a:1"))
	if err != nil || c.label != "-try" {
		t.Errorf("got %q, %v; want the label -try", c.label, err)
	}
}

func TestHasPassword(t *testing.T) {
	for node, want := range map[string]bool{
		"a:6379": false, "redis://a:6379/1": false, "redis://user@a:6379": false, "unix:///run/redis.sock": false,
		"redis://:pw@a:6379": true, "rediss://user:pw@a:6379": true, "unix://u:pw@/run/redis.sock": true, "redis://:p%w@a:6379": true, "u:pw@a:1": true,
	} {
		if got := hasPassword(node); got != want {
			t.Errorf("%s: got %v, want %v", node, got, want)
		}
	}
}

// Any arguments and any environment are either refused or parsed to something sensible.
func FuzzParseRun(f *testing.F) {
	for _, args := range []string{"", "k\x00--\x00true", "--ttl\x003s\x00k\x00-w\x001s\x00--\x00sh\x00-c\x00exit", "--\x00--", "--nodes\x00,\x00k\x00--\x00x", "-n\x00k\x00--\x00", "-h", "--ttl=9999999h\x00k\x00--\x00x", "k\x00-\x00--\x00x", "\xff\x00--\x00\xff", "-k\x00a\x00-kb\x00-c\x00x", "--slots\x003\x00k\x00-cx"} {
		f.Add(args, "a:1, b:2,")
		f.Add(args, "")
	}
	f.Fuzz(func(t *testing.T, args, nodes string) {
		c, err := parseRun(strings.Split(args, "\x00"), environ("REDLOCK_NODES="+nodes))
		if err != nil {
			return
		}
		if len(c.keys) == 0 || slices.Contains(c.keys, "") || len(c.argv) == 0 || len(c.nodes) == 0 && c.nodesFile == "" || c.wait < 0 || c.grace < 0 || c.try && c.wait > 0 || c.conflict < 0 || c.conflict > 255 || len(c.keys) > 1 && c.slots > 0 {
			t.Errorf("%q is accepted as %+v", args, c)
		}
		for _, n := range c.nodes {
			if n == "" || strings.TrimSpace(n) != n || strings.Contains(n, ",") {
				t.Errorf("%q and %q: a node is %q", args, nodes, n)
			}
		}
	})
}

// FuzzParseDemo is the same for the command line of demo.
func FuzzParseDemo(f *testing.F) {
	for _, args := range []string{"", "--workers\x009", "--for\x001s", "--forever", "--forever\x00--for\x000s", "now"} {
		f.Add(args)
	}
	f.Fuzz(func(t *testing.T, args string) {
		d, err := parseDemo(strings.Split(args, "\x00"), environ())
		if err == nil && (d.workers < 1 || d.workers > 9 || d.length < 0) {
			t.Errorf("%q is accepted as %d workers for %v", args, d.workers, d.length)
		}
	})
}
