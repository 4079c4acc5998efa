// Package address turns the addresses that Open takes into the options of
// clients that send nothing twice.
package address

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/wire"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	// dialTimeout bounds a dial, which goes on in the background after callers have
	// given up. Bounded by the node timeout instead, connections to a distant node
	// would never get past their first three round trips.
	dialTimeout = 2 * time.Second

	// poolSize is the size of the connection pool of each client. A
	// lane uses as many connections as it has send loops, and a few for probing. The others
	// are there because go-redis, after as many failed dials as the pool has places,
	// dials only once a second, and a node that is back must be used within a second.
	poolSize = 1024
)

// ParseAll returns the options of Parse for each node. Two nodes at one address are an error.
func ParseAll(urls []string, nodeTimeout time.Duration) (all []*redis.Options, err error) {
	seen := make(map[string]int)
	for i, u := range urls {
		o, err := Parse(u, nodeTimeout)
		if err != nil {
			return nil, fmt.Errorf("node %d of %d: %w", i+1, len(urls), err)
		}
		at := cmp.Or(o.Network, "tcp") + " " + o.Addr
		if j, ok := seen[at]; ok {
			return nil, fmt.Errorf("nodes %d and %d are both at %s: list every master once", j+1, i+1, o.Addr)
		}
		seen[at] = i
		all = append(all, o)
	}
	return all, nil
}

// Parse returns the options of a client for the node at url: redis://[user:password@]host:port[/db],
// rediss:// for TLS, unix://path, or just host:port. A read times out after two node timeouts,
// but not before two seconds. The error says what is wrong with the url, and never shows the password.
func Parse(url string, nodeTimeout time.Duration) (*redis.Options, error) {
	var o *redis.Options
	const list = "pass each node as a separate argument"
	switch {
	case url == "":
		return nil, errors.New("empty URL: want redis://host:port, rediss://host:port, unix:///path or host:port")
	case !strings.Contains(url, "://"):
		if strings.ContainsAny(url, "@?") {
			return nil, errors.New("a URL with a user, a password or options needs a scheme, as in redis://user:password@host:port")
		}
		if strings.Contains(url, ",") {
			return nil, fmt.Errorf("%q is a list: %s", safeURL(url), list)
		}
		host, port, err := net.SplitHostPort(url)
		if err != nil || port == "" {
			return nil, fmt.Errorf("%q is not a host:port address: want redis://host:port, rediss://host:port, unix:///path or host:port", safeURL(url))
		}
		if number, db, ok := strings.Cut(port, "/"); ok {
			return nil, fmt.Errorf("%q names a database, which needs a scheme: redis://%s/%s", safeURL(url), wire.Clip(net.JoinHostPort(host, number)), wire.Clip(db))
		}
		if host == "" {
			url = "localhost:" + port
		}
		o = &redis.Options{Addr: url}
	default:
		var err error
		if o, err = redis.ParseURL(url); err != nil {
			// The error of net/url may quote the password.
			if strings.ContainsAny(url, "@?%") {
				err = errors.New("malformed (in a user name, password or option, write anything but letters and digits as %XX)")
			}
			if strings.Contains(url, ",") {
				err = fmt.Errorf("%w (if it is a list, %s)", err, list)
			}
			return nil, fmt.Errorf("%q: %w", safeURL(url), err)
		}
		if o.Network != "unix" && strings.Contains(o.Addr, ",") {
			return nil, fmt.Errorf("%q is a list: %s", safeURL(url), list)
		}
		if host, _, err := net.SplitHostPort(o.Addr); o.Network != "unix" && (err != nil || strings.Contains(host, ":") && net.ParseIP(host) == nil) {
			return nil, fmt.Errorf("%q: want one host and one port, as in redis://host:port, with an IPv6 address in brackets", safeURL(url))
		}
	}
	o.MaxRetries = -1
	o.DialerRetries = 1
	o.DialTimeout = dialTimeout
	o.ReadTimeout = max(2*nodeTimeout, dialTimeout)
	o.WriteTimeout = o.ReadTimeout
	o.PoolTimeout = o.ReadTimeout
	o.ContextTimeoutEnabled = true
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.PoolSize = poolSize
	return o, nil
}

// safeURL returns the part of a URL that may be shown: only the scheme if there may be a
// password.
func safeURL(url string) string {
	scheme, _, ok := strings.Cut(url, "://")
	if ok && strings.ContainsAny(url, "@?%") {
		return wire.Clip(scheme) + "://***"
	}
	return wire.Clip(url)
}
