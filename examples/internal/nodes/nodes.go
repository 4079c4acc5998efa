// Package nodes gives the examples their Redis masters and their database.
package nodes

import (
	"database/sql"
	"os"
	"strings"

	"github.com/alicebob/miniredis/v2"
	_ "modernc.org/sqlite"
)

// URLs are those of $REDLOCK_NODES, separated by commas. Where it is empty three
// masters are started in this process, which stop ends.
func URLs() (urls []string, stop func(), err error) {
	if list := os.Getenv("REDLOCK_NODES"); list != "" {
		return strings.Split(list, ","), func() {}, nil
	}
	var running []*miniredis.Miniredis
	stop = func() {
		for _, m := range running {
			m.Close()
		}
	}
	for range 3 {
		m := miniredis.NewMiniRedis()
		m.ClockTTL(true) // keys expire as time passes
		if err := m.Start(); err != nil {
			stop()
			return nil, nil, err
		}
		running = append(running, m)
		urls = append(urls, m.Addr())
	}
	return urls, stop, nil
}

// Database is an SQLite in memory with this schema.
func Database(schema string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1) // each connection would be a database of its own
	if _, err := db.Exec(schema); err != nil {
		db.Close()
		return nil, err
	}
	return db, nil
}
