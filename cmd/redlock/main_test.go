package main

import (
	"flag"
	"os"
	"os/signal"
	"testing"
)

// asCommand makes this test binary run as the command, so that tests exercise a real process
// with its signals, process groups and exit status.
const asCommand = "REDLOCK_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	// The commands under test would inherit ignored signals, as under nohup or in the
	// background of a script. They do not inherit caught ones.
	for _, s := range forwardedSignals {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	// The race detector has a process sleep for a second before it exits.
	if os.Getenv("GORACE") == "" {
		os.Setenv("GORACE", "atexit_sleep_ms=0")
	}
	// These tests mostly wait for processes, and for time to pass.
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		flag.Set("test.parallel", "8")
	}
	os.Exit(m.Run())
}
