// Command redlock runs a command while holding a distributed lock, and demonstrates
// such a lock under faults.
//
//	redlock demo                              watch a lock survive killed and hung nodes
//	redlock run backup -- pg_dump -f out db   run one backup at a time, on any machine
//
// The nodes are a comma-separated list in --nodes or $REDLOCK_NODES; each is a host:port
// or a redis://, rediss:// or unix:// URL. See `redlock help` for details.
package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/redis/go-redis/v9/logging"
)

// Exit statuses of redlock itself. Those that have a name in sysexits.h have the meaning
// given there; 126 and above follow the convention of the shell.
const (
	exitFailed        = 1
	exitUsage         = 64  // EX_USAGE
	exitNoQuorum      = 69  // EX_UNAVAILABLE: too few nodes gave a usable reply
	exitLost          = 70  // EX_SOFTWARE: the lock was lost while the command ran
	exitHeld          = 75  // EX_TEMPFAIL: another client holds the lock; --conflict-exit-code changes it
	exitOverdue       = 124 // --max-hold has passed, as timeout(1) has it
	exitNotExecutable = 126
	exitNotFound      = 127
	exitSignal        = 128 // plus the number of the signal
)

const usage = `redlock holds a lock on a majority of independent Redis masters

usage:
  redlock run [flags] KEY -- CMD [ARG...]   run CMD while holding the lock KEY
  redlock demo [flags]                      watch a lock survive killed nodes
  redlock help [run|demo]                   show detailed help
  redlock --version                         show the version

nodes for run:
  export REDLOCK_NODES=a:6379,b:6379,c:6379

to try it, start the demo in one shell and use its nodes in another:
  redlock demo --forever
  redlock run --nodes ... jobs/42 -c 'echo locked, fence $REDLOCK_FENCE'
`

// watchdogCommand is the subcommand that run uses to start its own watchdog process.
// It is not meant for users.
const watchdogCommand = "run-watchdog"

func main() { os.Exit(command(os.Args[1:])) }

// command executes the subcommand that args name and returns the exit status.
func command(args []string) int {
	// go-redis logs every failed dial to stderr. Failing nodes are expected here, and
	// our own errors say which nodes failed and why.
	logging.Disable()
	name := ""
	if len(args) > 0 {
		name, args = args[0], args[1:]
	}
	switch name {
	case "run":
		return run(args)
	case "demo":
		return demoCommand(args)
	case watchdogCommand:
		return runWatchdog()
	case "help", "-h", "--help":
		return help(args)
	case "--version":
		fmt.Println(version())
		return 0
	case "":
		fmt.Fprint(os.Stderr, usage)
		return exitUsage
	}
	if long, ok := strings.CutPrefix(name, "-"); ok && (long == "help" || long == "version") {
		return badUsage(mistake("unknown flag %s", name).withHint("long flags have two dashes: -%s", name), "", "")
	}
	return badUsage(mistake("unknown command %s", shown(name)).withHint("the commands are run, demo and help"), "", "")
}

func help(args []string) int {
	f := newFlags("help", "REDLOCK_HELP_")
	if err := f.parse(args); err != nil {
		return badUsage(err, "help", usage)
	}
	switch about := f.Arg(0); {
	case f.NArg() > 1:
		return badUsage(mistake("%s after %s", shown(f.Arg(1)), shown(about)).withHint("help takes one command"), "help", "")
	case about == "run":
		fmt.Print(runUsage())
	case about == "demo":
		fmt.Print(demoUsage())
	case about == "" || about == "help":
		fmt.Print(usage)
	default:
		return badUsage(mistake("no help for %s", shown(about)).withHint("there is help for run and demo"), "help", "")
	}
	return 0
}

// version returns what the Go tool has recorded of this build.
func version() string {
	text := "redlock"
	if info, ok := debug.ReadBuildInfo(); ok {
		text += " " + info.Main.Version
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				text += " " + s.Value[:min(len(s.Value), 12)]
			case s.Key == "vcs.modified" && s.Value == "true":
				text += " modified"
			}
		}
	}
	return fmt.Sprintf("%s (%s, %s/%s)", text, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// complain prints an error to stderr with the prefix "redlock: ". Errors of package
// redlock already have that prefix and are printed without complain.
func complain(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "redlock: "+format+"\n", args...)
}
