// Command redlock runs a command while holding a distributed lock, and demonstrates
// such a lock under faults.
//
//	redlock demo                              watch a lock survive killed and hung nodes
//	redlock run backup -- pg_dump -f out db   run one backup at a time, on any machine
//
// The nodes are a comma-separated list in -nodes or $REDLOCK_NODES; each is a host:port
// or a redis://, rediss:// or unix:// URL. See `redlock help` for details.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9/logging"
)

// Exit statuses of redlock itself. Those that have a name in sysexits.h have the meaning
// given there; 126 and above follow the convention of the shell.
const (
	exitFailed        = 1
	exitUsage         = 64 // EX_USAGE
	exitNoQuorum      = 69 // EX_UNAVAILABLE: too few nodes gave a usable reply
	exitLost          = 70 // EX_SOFTWARE: the lock was lost while the command ran
	exitHeld          = 75 // EX_TEMPFAIL: another client holds the lock
	exitNotExecutable = 126
	exitNotFound      = 127
	exitSignal        = 128 // plus the number of the signal
)

const usage = `redlock holds a lock on a majority of independent Redis masters

usage:
  redlock run [flags] KEY -- CMD [ARG...]   run CMD while holding the lock KEY
  redlock demo [flags]                      watch a lock survive killed nodes
  redlock help [run|demo]                   show detailed help

nodes for run:
  export REDLOCK_NODES=a:6379,b:6379,c:6379

to try it, start the demo in one shell and use its nodes in another:
  redlock demo -forever
  redlock run -nodes ... jobs/42 -- sh -c 'echo locked, fence $REDLOCK_FENCE'
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
	case "help", "-h", "-help", "--help":
		return help(args)
	case "":
		fmt.Fprint(os.Stderr, usage)
		return exitUsage
	}
	complain("unknown command %q: try run, demo or help", name)
	return exitUsage
}

func help(args []string) int {
	text := usage
	if len(args) > 0 {
		switch args[0] {
		case "run":
			text = runUsage
		case "demo":
			text = demoUsage
		case "-h", "-help", "--help":
		default:
			complain("no help for %q: try run or demo", args[0])
			return exitUsage
		}
	}
	fmt.Print(text)
	return 0
}

// complain prints an error to stderr with the prefix "redlock: ". Errors of package
// redlock already have that prefix and are printed without complain.
func complain(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "redlock: "+format+"\n", args...)
}

// flagNames are the flags that set the options which errors of package redlock name.
var flagNames = strings.NewReplacer(
	"Options.Grace", "-grace",
	"usable Grace", "usable -grace",
	"Options.RestartGuard", "-guard",
	"take a shorter ttl and KeepAlive, or a longer guard for all clients", "take a shorter -ttl, or a longer -guard for all clients",
)

// complainOf prints an error of package redlock.
func complainOf(err error) { fmt.Fprintln(os.Stderr, flagNames.Replace(err.Error())) }

// newFlags returns a flag set that prints nothing itself: badFlags reports its errors.
func newFlags(name string) *flag.FlagSet {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	return fs
}

// durationVar is fs.DurationVar with an error that says what a duration looks like.
func durationVar(fs *flag.FlagSet, d *time.Duration, name string, value time.Duration) {
	*d = value
	fs.Func(name, "", func(text string) (err error) {
		if *d, err = time.ParseDuration(text); err != nil {
			return errors.New("not a duration, such as 10s or 500ms")
		}
		return nil
	})
}

// badFlags reports an error of parsing a command line and returns the exit status. A
// request for help is not an error: it prints usage and returns 0.
func badFlags(err error, command, usage string) int {
	if errors.Is(err, flag.ErrHelp) {
		fmt.Print(usage)
		return 0
	}
	complain("%s: %v (see redlock help %s)", command, err, command)
	return exitUsage
}
