// Command redlock runs a command under a distributed lock, and shows such a lock at
// work.
//
//	redlock demo                              see it survive killed and hung nodes
//	redlock run backup -- pg_dump -f out db   one at a time, wherever it is started
//
// The nodes are given by -nodes or by $REDLOCK_NODES, comma separated: host:port,
// redis://, rediss:// or unix:// each. `redlock help` tells the rest.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/redis/go-redis/v9/logging"
)

// Exit statuses of our own. Those that have a name in sysexits.h mean what they mean
// there; 126 and above are what a shell says.
const (
	exitFailed        = 1
	exitUsage         = 64 // EX_USAGE
	exitNoQuorum      = 69 // EX_UNAVAILABLE: too few nodes gave a usable answer
	exitLost          = 70 // EX_SOFTWARE: the lock was lost while the command ran
	exitHeld          = 75 // EX_TEMPFAIL: another has the lock
	exitNotExecutable = 126
	exitNotFound      = 127
	exitSignal        = 128 // plus the number of the signal
)

const usage = `redlock locks names with a majority of independent Redis masters

usage:
  redlock run [flags] KEY -- CMD [ARG...]   run CMD while holding the lock KEY
  redlock demo [flags]                      watch a lock survive killed nodes
  redlock help [run|demo]                   tell more

the nodes, for run:
  export REDLOCK_NODES=a:6379,b:6379,c:6379

to begin with, in one shell and in another:
  redlock demo -forever
  redlock run -nodes ... jobs/42 -- sh -c 'echo mine, fence $REDLOCK_FENCE'
`

// watchdogCommand is what run starts itself as; nobody else should.
const watchdogCommand = "run-watchdog"

func main() { os.Exit(command(os.Args[1:])) }

// command does what the arguments say and returns the exit status.
func command(args []string) int {
	// go-redis would write every failed dial to stderr. That nodes fail is what this
	// is about, and the errors we print say which and why.
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
		return watchdog()
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
		default:
			complain("no help on %q: try run or demo", args[0])
			return exitUsage
		}
	}
	fmt.Print(text)
	return 0
}

// complain tells the user what is wrong. The errors of package redlock begin with
// its name, others get it here.
func complain(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "redlock: "+format+"\n", args...)
}

// newFlags are flags that print nothing by themselves: parse does.
func newFlags(name string) *flag.FlagSet {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	return fs
}

// badFlags is the exit status after what flags did not understand; help was asked
// for and not an error.
func badFlags(err error, command, usage string) int {
	if errors.Is(err, flag.ErrHelp) {
		fmt.Print(usage)
		return 0
	}
	complain("%s: %v: see redlock help %s", command, err, command)
	return exitUsage
}
