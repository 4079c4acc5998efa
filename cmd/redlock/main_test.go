package main

import (
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
	os.Exit(m.Run())
}
