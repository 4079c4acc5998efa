package main

import (
	"slices"
	"strings"
	"time"
)

const runHead = `usage: redlock run [flags] KEY -- CMD [ARG...]
       redlock run [flags] KEY -c 'LINE'
       redlock run [flags] -k KEY -k KEY... -- CMD [ARG...]

Acquires the lock KEY, runs CMD, renews the lock while CMD runs, and releases it. If the
lock cannot be renewed, CMD is terminated while the lock still excludes others: CMD and
every process that it started get SIGTERM, and those that remain get SIGKILL just before
the lock expires.

flags, each with the environment variable that sets it as well; the command line wins:
`

const runTail = `
A node is a host:port or a redis://, rediss:// or unix:// URL. All clients of KEY must use
the same nodes. Keep passwords out of the command line, where every user of the machine can
read them.

A redlock run that CMD starts for the same KEY, directly or below another redlock run, is
refused: it would wait for CMD.

environment of CMD:
  REDLOCK_KEY     KEY; with --slots, the key of the slot, such as KEY#2
  REDLOCK_FENCE   the fencing token, greater than that of every earlier holder; the
                  store should refuse writes with a smaller token than it has seen;
                  not set with --no-fence
  REDLOCK_VALUE   the value that the nodes store for this holder; a secret, with
                  which anybody can take the lock over
  REDLOCK_SLOT    with --slots K: the number of the slot, from 0 to K-1
  REDLOCK_UNDER   hashes of this value and of those of the enclosing runs, by which
                  a run recognises the locks that it is under; pass it on
With several -k, the first three end in _1, _2, ... in the order of the keys, as in
REDLOCK_FENCE_2, and are not set without a number: each key has a fence of its own.
REDLOCK_NODES is taken away if it contains a password, unless --pass-nodes is set.

exit status: that of CMD, 128+n if signal n killed it, or
  64   the arguments are wrong
  69   lock not acquired: too few nodes gave a usable reply
  70   the lock was lost while CMD ran, whatever the exit status of CMD
  75   lock not acquired: another client holds it (with -n, or --wait expired); -E sets
       another status
  124  CMD was ended because of --max-hold, as by timeout(1)
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
terminated, without SIGTERM, --grace before the lock expires, and CMD keeps running if
redlock is killed.
`

// A runConfig is the parsed command line of run.
type runConfig struct {
	keys []string // one, or several that are acquired together
	argv []string

	try      bool
	wait     time.Duration // 0: until interrupted
	conflict int           // the exit status if another client holds the lock
	quiet    bool
	verbose  bool
	json     bool

	ttl     time.Duration
	atLeast time.Duration // how long the key stays from the acquisition on, even if the command ends earlier
	maxHold time.Duration // 0: no limit
	grace   time.Duration
	slots   int // 0: the key is one lock
	fair    bool
	noFence bool
	label   string

	nodes       []string
	nodesFile   string
	exposed     bool // a password is on the command line
	passNodes   bool
	tls         tlsFiles
	prefix      string
	nodeTimeout time.Duration
	guard       time.Duration

	under []string // the hashes of the values of the locks under which redlock itself was started, the innermost first
}

const (
	// defaultGrace is the default of --grace if the ttl is at least three times as long. Most
	// programs terminate within it. (systemd allows 90 s and docker 10 s, which is more than
	// a usual ttl leaves.)
	defaultGrace = 5 * time.Second

	// maxSlots and maxKeys are the bounds of AcquireSlot and AcquireAll.
	maxSlots = 64
	maxKeys  = 64

	// maxAtLeast is the longest ttl, beyond which LeaveUntil would keep the lock.
	maxAtLeast = 24 * 24 * time.Hour
)

// runFlags are the flags of run with the variables that they set.
type runFlags struct {
	*flagSet
	c     runConfig
	nodes string
	line  string
}

func newRunFlags() *runFlags {
	f := &runFlags{flagSet: newFlags("run", "REDLOCK_")}
	c := &f.c
	// A run tells its command REDLOCK_KEY, which must not be a flag of a run below it.
	f.variables["key"] = "REDLOCK_KEYS"

	f.BoolVarP(&c.try, "try", "n", false, "do not wait for the lock, and say nothing if another client holds it, except with -v")
	f.durationVar(&c.wait, "wait", "w", 0, "`DUR` how long to wait for the lock (default: until interrupted)")
	f.intVar(&c.conflict, "conflict-exit-code", "E", exitHeld, 0, 255, "`N` exit status if another client holds the lock; with 0, a job may lose and has not failed")
	f.StringVarP(&f.line, "command", "c", "", "`LINE` run sh -c LINE in place of CMD")
	f.StringArrayVarP(&c.keys, "key", "k", nil, "`KEY` name a key in place of the first argument; with several, all are acquired, or none; the variable has them with commas in between")
	f.BoolVarP(&c.quiet, "quiet", "q", false, "no warnings, and no message if another client holds the lock")
	f.BoolVarP(&c.verbose, "verbose", "v", false, "say when the lock is acquired, and which nodes do not take part and why")
	f.BoolVar(&c.json, "json", false, "write each message of the run, and each event of the lock and of the nodes, as a JSON object in a line of stderr")

	f.durationVar(&c.ttl, "ttl", "", 10*time.Second, "`DUR` how long the lock remains if redlock dies")
	f.durationVar(&c.atLeast, "at-least", "", 0, "`DUR` keep others out for this long from the acquisition on, even if CMD ends earlier, so that a short job that several hosts start runs once; never for less than the rest of the ttl")
	f.durationVar(&c.maxHold, "max-hold", "", 0, "`DUR` end CMD when the lock has been held for this long: SIGTERM, and SIGKILL after --grace")
	f.durationVar(&c.grace, "grace", "", 0, "`DUR` if the lock cannot be renewed, send SIGTERM this long before it expires; SIGKILL follows half a second before it expires, or a twentieth of the ttl if that is less; 0 sends SIGKILL only (default: a third of the ttl, at most 5s)")
	f.intVar(&c.slots, "slots", "", 0, 1, maxSlots, "`K` acquire any one of K slots of KEY: up to K commands run at once; the same K for every client of KEY")
	f.BoolVar(&c.fair, "fair", false, "serve those who wait with --fair in order of arrival")
	f.BoolVar(&c.noFence, "no-fence", false, "acquire the lock without a fencing token, which costs a third less; only where no store checks fences, for any client of KEY")
	f.StringVar(&c.label, "label", "", "`TEXT` the holder's name that others see (default: host:pid)")

	f.StringVar(&f.nodes, "nodes", "", "`LIST` the Redis masters, with commas in between")
	f.StringVar(&c.nodesFile, "nodes-file", "", "`FILE` read the list of nodes from a file, such as a mounted secret; lines may take the place of commas")
	f.BoolVar(&c.passNodes, "pass-nodes", false, "leave REDLOCK_NODES in the environment of CMD even if it contains a password")
	f.StringVar(&c.tls.ca, "tls-ca", "", "`FILE` trust the certificate authorities in this PEM file; with any --tls flag, host:port means TLS")
	f.StringVar(&c.tls.cert, "tls-cert", "", "`FILE` the client's certificate")
	f.StringVar(&c.tls.key, "tls-key", "", "`FILE` the key of the client's certificate")
	f.StringVar(&c.prefix, "prefix", "", "`TEXT` put this before every key")
	f.durationVar(&c.nodeTimeout, "node-timeout", "", 0, "`DUR` how long a node may take to reply (default: a tenth of the ttl, at most 1s)")
	f.durationVar(&c.guard, "guard", "", 0, "`DUR` after a restart or a flush, a master grants no lock for this long: at least the longest ttl, and the same for every client of KEY (default: it grants locks at once)")

	f.exclude("try", "wait")
	f.exclude("quiet", "verbose")
	f.exclude("quiet", "json")
	f.exclude("nodes", "nodes-file")
	return f
}

func runUsage() string { return runHead + newRunFlags().help() + runTail }

// parseRun parses the command line of run; env looks up environment variables.
func parseRun(args []string, env func(string) string) (runConfig, error) {
	f := newRunFlags()
	c := &f.c
	before := args
	dashes := slices.Index(args, "--")
	if dashes >= 0 {
		before, c.argv = args[:dashes], args[dashes+1:]
	}
	if err := f.parse(before); err != nil {
		return *c, err
	}
	switch {
	case f.NArg() > 0 && f.given["key"]:
		return *c, mistake("KEY %s and --key contradict each other", shown(f.Arg(0))).withHint("name every key with -k")
	case f.NArg() > 1:
		return *c, mistake("%s after KEY", shown(f.Arg(1))).withHint("the command comes after --, as in: redlock run KEY -- CMD")
	case len(c.argv) > 0 && f.given["command"]:
		return *c, mistake("--command and a command after -- contradict each other").withHint("use only one of them")
	case f.NArg() == 1 && f.Arg(0) == "":
		return *c, mistake("empty KEY").withHint(`name what to lock, for example "jobs/42"`)
	}
	// The arguments take the place of these flags, so that their variables do not count.
	f.given["key"] = f.given["key"] || f.NArg() > 0
	f.given["command"] = f.given["command"] || dashes >= 0
	if err := f.environment(env); err != nil {
		return *c, err
	}
	if f.NArg() > 0 {
		c.keys = f.Args()
	}
	if err := f.contradiction(); err != nil {
		return *c, err
	}
	return *c, f.finish(dashes >= 0, env)
}

// finish checks what the flags together say, and derives the rest.
func (f *runFlags) finish(dashes bool, env func(string) string) error {
	c := &f.c
	if f.line != "" && len(c.argv) == 0 {
		c.argv = []string{"sh", "-c", f.line}
	}
	c.nodes = splitList(f.nodes)
	c.exposed = f.given["nodes"] && slices.ContainsFunc(c.nodes, hasPassword)
	switch {
	case len(c.keys) == 0:
		return mistake("no KEY").withHint(`name what to lock, as in: redlock run jobs/42 -- CMD`)
	case slices.Contains(c.keys, ""):
		return mistake("empty key").withHint(`name what to lock, for example "jobs/42"`)
	case len(c.keys) > maxKeys:
		return mistake("%d keys: want at most %d", len(c.keys), maxKeys)
	case len(c.argv) == 0 && dashes:
		return mistake("no command after --")
	case len(c.argv) == 0:
		return mistake("no command").withHint("write -- and the command after KEY, or -c 'LINE'")
	case len(c.nodes) == 0 && c.nodesFile == "":
		return mistake("no nodes").withHint("use --nodes a:6379,b:6379,c:6379 or --nodes-file, or set REDLOCK_NODES")
	}
	for i, key := range c.keys {
		if slices.Contains(c.keys[:i], key) {
			return mistake("the key %s is named twice", shown(key)).withHint("name each key once")
		}
	}
	if !f.isSet("grace") {
		c.grace = min(defaultGrace, c.ttl/3)
	}
	c.under = strings.Fields(env("REDLOCK_UNDER"))
	if value := env("REDLOCK_VALUE"); value != "" { // of a redlock that did not set the other
		c.under = addUnder(c.under, value)
	}
	return f.combinations()
}

// combinations refuses flags that do not go together.
func (f *runFlags) combinations() error {
	c := &f.c
	switch {
	case len(c.keys) > 1 && c.slots > 0:
		return mistake("several keys and %s contradict each other", f.nameOf("slots")).withHint("use one key with --slots, or several without")
	case f.given["conflict-exit-code"] && !c.try && c.wait == 0:
		return mistake("--conflict-exit-code without --try or --wait has no effect").withHint("without them, redlock waits until it has the lock")
	case (c.tls.cert == "") != (c.tls.key == ""):
		have, lacks := "tls-cert", "tls-key"
		if c.tls.cert == "" {
			have, lacks = lacks, have
		}
		return mistake("%s without --%s", f.nameOf(have), lacks).withHint("a client's certificate needs both")
	case c.guard > 0 && c.atLeast > c.guard:
		return mistake("%s %v is longer than %s %v", f.nameOf("at-least"), c.atLeast, f.nameOf("guard"), c.guard).withHint("after a restart, a master would forget the lock: use a longer guard for all clients")
	case c.atLeast > maxAtLeast:
		return mistake("%s %v: want at most %v", f.nameOf("at-least"), c.atLeast, maxAtLeast)
	}
	return nil
}
