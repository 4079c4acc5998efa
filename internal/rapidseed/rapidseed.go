// Package rapidseed gives the property tests of a package that imports it the same cases in each run, or those of REDLOCK_SEED. The
// flag -rapid.seed goes before both.
package rapidseed

import (
	"cmp"
	"flag"
	"os"

	"pgregory.net/rapid"
)

var _ = rapid.Check // whose package defines the flag before this one is initialized

func init() {
	if err := flag.Set("rapid.seed", cmp.Or(os.Getenv("REDLOCK_SEED"), "1")); err != nil {
		panic("REDLOCK_SEED: " + err.Error())
	}
}
