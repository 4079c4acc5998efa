// Package setup provides the Redis masters, the Lockers and the database that the examples run against.
package setup

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/alicebob/miniredis/v2"
	_ "modernc.org/sqlite"

	"github.com/seed-ce352c9b/redlock"
)

// An Env is the environment of an example.
type Env struct {
	DB   *sql.DB // SQLite in memory
	urls []string
	ends []func()
	fail func(...any) // ends the program or the test
}

// open returns an environment whose database has the schema. The masters are those of $REDLOCK_NODES, separated by commas;
// if it is empty, open starts three in this process.
func open(schema string, fail func(...any)) *Env {
	e := &Env{fail: fail}
	if list := os.Getenv("REDLOCK_NODES"); list != "" {
		e.urls = strings.Split(list, ",")
	} else {
		for range 3 {
			m := miniredis.NewMiniRedis()
			m.ClockTTL(true) // keys expire as time passes
			e.check(m.Start())
			e.ends = append(e.ends, m.Close)
			e.urls = append(e.urls, m.Addr())
		}
	}
	var err error
	e.DB, err = sql.Open("sqlite", ":memory:")
	e.check(err)
	e.ends = append(e.ends, func() { e.DB.Close() })
	e.DB.SetMaxOpenConns(1) // each connection would have a database of its own
	_, err = e.DB.Exec(schema)
	e.check(err)
	return e
}

func (e *Env) check(err error) {
	if err != nil {
		e.close()
		e.fail(err)
	}
}

func (e *Env) close() {
	for _, end := range slices.Backward(e.ends) {
		end()
	}
	e.ends = nil
}

// Locker returns a Locker over the masters. It stands for a process of its own and lives as long as the environment.
func (e *Env) Locker(name string) *redlock.Locker {
	l, err := redlock.Open(redlock.Options{Name: name}, e.urls...)
	e.check(err)
	e.ends = append(e.ends, func() { l.Close() })
	return l
}

// Lockers returns n Lockers whose names are numbered from 1.
func (e *Env) Lockers(name string, n int) (lockers []*redlock.Locker) {
	for i := range n {
		lockers = append(lockers, e.Locker(fmt.Sprint(name, "-", i+1)))
	}
	return lockers
}

// AtOnce calls f for 0 to n-1, each in a goroutine of its own, and returns their errors.
func AtOnce(n int, f func(i int) error) []error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = f(i) })
	}
	wg.Wait()
	return errs
}

// Main runs an example and exits the program if it fails.
func Main(schema string, run func(context.Context, *Env) error) {
	e := open(schema, log.Fatal)
	e.check(run(context.Background(), e))
	e.close()
}

// Test returns an environment that is closed at the end of the test.
func Test(t interface {
	Helper()
	Fatal(...any)
	Cleanup(func())
}, schema string) *Env {
	t.Helper()
	e := open(schema, t.Fatal)
	t.Cleanup(e.close)
	return e
}
