// Package setup provides the Redis masters, the Lockers and the database that the examples run against.
package setup

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/alicebob/miniredis/v2"
	_ "modernc.org/sqlite"

	"github.com/seed-ce352c9b/redlock"
)

// An Env is the environment of an example.
type Env struct {
	DB   *sql.DB // SQLite in memory
	urls []string
	ends []func()
}

// New returns an environment whose database has the schema. The masters are those of $REDLOCK_NODES, separated by commas;
// if it is empty, New starts three in this process.
func New(schema string) (*Env, error) {
	e := new(Env)
	if err := e.start(schema); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

func (e *Env) start(schema string) (err error) {
	if list := os.Getenv("REDLOCK_NODES"); list != "" {
		e.urls = strings.Split(list, ",")
	} else {
		for range 3 {
			m := miniredis.NewMiniRedis()
			m.ClockTTL(true) // keys expire as time passes
			if err := m.Start(); err != nil {
				return err
			}
			e.ends = append(e.ends, m.Close)
			e.urls = append(e.urls, m.Addr())
		}
	}
	if e.DB, err = sql.Open("sqlite", ":memory:"); err != nil {
		return err
	}
	e.ends = append(e.ends, func() { e.DB.Close() })
	e.DB.SetMaxOpenConns(1) // each connection would have a database of its own
	_, err = e.DB.Exec(schema)
	return err
}

// Locker returns a Locker over the masters. It stands for a process of its own and lives until Close.
func (e *Env) Locker(name string) (*redlock.Locker, error) {
	l, err := redlock.Open(redlock.Options{Name: name}, e.urls...)
	if err == nil {
		e.ends = append(e.ends, func() { l.Close() })
	}
	return l, err
}

// Lockers returns n Lockers whose names are numbered from 1.
func (e *Env) Lockers(name string, n int) ([]*redlock.Locker, error) {
	lockers := make([]*redlock.Locker, n)
	for i := range lockers {
		var err error
		if lockers[i], err = e.Locker(fmt.Sprint(name, "-", i+1)); err != nil {
			return nil, err
		}
	}
	return lockers, nil
}

// Close ends all parts of the environment.
func (e *Env) Close() {
	for i := len(e.ends) - 1; i >= 0; i-- {
		e.ends[i]()
	}
}

// Main runs an example and exits the program if it fails.
func Main(schema string, run func(context.Context, *Env) error) {
	e, err := New(schema)
	if err != nil {
		log.Fatal(err)
	}
	err = run(context.Background(), e)
	e.Close()
	if err != nil {
		log.Fatal(err)
	}
}

// Test returns an environment that is closed at the end of the test.
func Test(t interface {
	Helper()
	Fatal(...any)
	Cleanup(func())
}, schema string) *Env {
	t.Helper()
	e, err := New(schema)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}
