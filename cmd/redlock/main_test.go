package main

import (
	"os"
	"os/signal"
	"testing"
)

// asCommand makes this test binary the command: what is tested is then a process, with
// the signals, groups and statuses of one.
const asCommand = "REDLOCK_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	// What is ignored, as under nohup or in the background of a script, the commands that
	// are tested would inherit. What is caught they do not.
	for _, s := range forwarded {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	os.Exit(m.Run())
}
