package main

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"time"
)

const runUsage = `usage: redlock run [flags] KEY -- CMD [ARG...]

Acquires the lock KEY, runs CMD, renews the lock while CMD runs, and releases it. If the
lock cannot be renewed, CMD is terminated while the lock still excludes others: CMD and
every process that it started get SIGTERM, and those that remain get SIGKILL just before
the lock expires.

flags:
  -nodes LIST     comma-separated Redis masters, each host:port or a redis://,
                  rediss:// or unix:// URL; all clients of KEY must use the same
                  list (default $REDLOCK_NODES)
  -ttl DURATION   how long the lock remains if redlock dies (default 10s)
  -wait DURATION  how long to wait for the lock (default 0: until interrupted)
  -try            do not wait for the lock
  -label TEXT     the holder's name that others see (default host:pid)
  -grace DURATION if the lock cannot be renewed, send SIGTERM this long before it
                  expires; SIGKILL follows half a second before it expires, or a
                  twentieth of the ttl if that is less; 0 sends SIGKILL only
                  (default: a third of the ttl, at most 5s)
  -guard DURATION after a restart or a flush, a master grants no lock for this long:
                  at least the longest ttl, and the same for every client of KEY
                  (default $REDLOCK_GUARD, or 0: it grants locks at once)

A redlock run that CMD starts for the same KEY, directly or below another redlock run, is
refused: it would wait for CMD.

environment of CMD:
  REDLOCK_KEY     KEY
  REDLOCK_FENCE   the fencing token, greater than that of every earlier holder; the
                  store should refuse writes with a smaller token than it has seen
  REDLOCK_VALUE   the value that the nodes store for this holder; a secret, with
                  which anybody can take the lock over
  REDLOCK_UNDER   hashes of this value and of those of the enclosing runs, by which
                  a run recognises the locks that it is under; pass it on

exit status: that of CMD, 128+n if signal n killed it, or
  64   the arguments are wrong
  69   lock not acquired: too few nodes gave a usable reply
  70   the lock was lost while CMD ran, whatever the exit status of CMD
  75   lock not acquired: another client holds it (with -try, or -wait expired)
  126  CMD cannot be executed
  127  CMD was not found
  128+n  signal n arrived before CMD was started

SIGINT, SIGTERM, SIGHUP and SIGQUIT are forwarded to CMD and every process that it
started. If redlock is suspended (ctrl-Z) for longer than the ttl, the lock is lost.

If redlock itself is killed (kill -9, the OOM killer), CMD and every process that it
started get SIGKILL at once, from a second redlock process that watches the first; on
Linux and FreeBSD, the kernel kills CMD as well. Nothing detects that redlock has been
stopped (SIGSTOP) or that the whole machine is suspended: for these cases, the store
should refuse writes with a smaller REDLOCK_FENCE than it has seen.

"Every process that it started" means CMD's process group. Processes that leave the
group (setsid, daemons, jobs of an interactive shell) and processes of other users
(sudo) get no signals. On systems without process groups (Windows), only CMD itself is
terminated, without SIGTERM, -grace before the lock expires, and CMD keeps running if
redlock is killed.
`

// A runConfig is the parsed command line of run.
type runConfig struct {
	nodes []string
	ttl   time.Duration
	wait  time.Duration // 0: until interrupted
	try   bool
	label string
	grace time.Duration
	guard time.Duration
	under []string // the hashes of the values of the locks under which redlock itself was started, the innermost first
	key   string
	argv  []string
}

// defaultGrace is the default of -grace if the ttl is at least three times as long. Most
// programs terminate within it. (systemd allows 90 s and docker 10 s, which is more than
// a usual ttl leaves.)
const defaultGrace = 5 * time.Second

// parseRun parses the command line of run; env looks up environment variables.
func parseRun(args []string, env func(string) string) (runConfig, error) {
	var c runConfig
	var nodes string
	guard := env("REDLOCK_GUARD")
	c.under = strings.Fields(env("REDLOCK_UNDER"))
	if value := env("REDLOCK_VALUE"); value != "" { // of a redlock that did not set the other
		c.under = addUnder(c.under, value)
	}
	fs := newFlags("run")
	fs.StringVar(&nodes, "nodes", env("REDLOCK_NODES"), "")
	durationVar(fs, &c.ttl, "ttl", 10*time.Second)
	durationVar(fs, &c.wait, "wait", 0)
	fs.BoolVar(&c.try, "try", false, "")
	fs.StringVar(&c.label, "label", "", "")
	durationVar(fs, &c.grace, "grace", defaultGrace)
	fs.StringVar(&guard, "guard", guard, "")

	before := args
	dashes := slices.Index(args, "--")
	if dashes >= 0 {
		before, c.argv = args[:dashes], args[dashes+1:]
	}
	// Flags may precede or follow KEY.
	if err := fs.Parse(before); err != nil {
		return c, err
	}
	if fs.NArg() > 0 {
		c.key = fs.Arg(0)
		if err := fs.Parse(fs.Args()[1:]); err != nil {
			return c, err
		}
	}
	graceGiven := false
	fs.Visit(func(f *flag.Flag) { graceGiven = graceGiven || f.Name == "grace" })
	if !graceGiven {
		c.grace = max(min(defaultGrace, c.ttl/3), 0)
	}
	switch {
	case c.key == "":
		return c, errors.New("no KEY: name what to lock")
	case dashes < 0:
		return c, errors.New("no command: write -- and the command after KEY")
	case fs.NArg() > 0:
		return c, fmt.Errorf("%q after KEY: the command comes after --", fs.Arg(0))
	case len(c.argv) == 0:
		return c, errors.New("no command after --")
	}
	if err := c.checkTimes(); err != nil {
		return c, err
	}
	err := c.parseShared(nodes, guard)
	return c, err
}

// checkTimes checks the flags that say how long to wait.
func (c runConfig) checkTimes() error {
	switch {
	case c.wait < 0:
		return fmt.Errorf("-wait %v is negative: use 0 to wait until interrupted, or -try not to wait", c.wait)
	case c.try && c.wait > 0:
		return errors.New("-try and -wait contradict each other: use only one of them")
	case c.grace < 0:
		return fmt.Errorf("-grace %v is negative: use 0 to send SIGKILL without SIGTERM", c.grace)
	}
	return nil
}

// parseShared parses the values that come from a flag or the environment.
func (c *runConfig) parseShared(nodes, guard string) error {
	if guard != "" {
		var err error
		if c.guard, err = time.ParseDuration(guard); err != nil || c.guard < 0 {
			return fmt.Errorf("-guard (or REDLOCK_GUARD) %q is not a duration of 0 or more, such as 30s", guard)
		}
	}
	for n := range strings.SplitSeq(nodes, ",") {
		if n = strings.TrimSpace(n); n != "" {
			c.nodes = append(c.nodes, n)
		}
	}
	if len(c.nodes) == 0 {
		return errors.New("no nodes: use -nodes a:6379,b:6379,c:6379 or set REDLOCK_NODES")
	}
	return nil
}
