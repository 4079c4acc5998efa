package main

import (
	"os"
	"testing"
)

// asCommand makes this test binary the command: what is tested is then a process, with
// the signals, groups and statuses of one.
const asCommand = "REDLOCK_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	os.Exit(m.Run())
}
