package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"strings"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/wire"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// A Node is the client of one independent Redis master. *redis.Client, *redis.Ring,
// *redis.ClusterClient, failover clients and go-redis auto-pipeliners implement it. A Node
// must be safe for concurrent use. Close does not close the Nodes that were given to New.
// If a Node panics, its vote is Unknown.
//
// A wrapper of such a client is recognised by its Options method or by the client that it
// embeds. Any other wrapper may hide a Ring: it is refused with Options.RestartGuard, and
// for keys that have a brace but no {tag}.
type Node interface {
	Process(ctx context.Context, cmd redis.Cmder) error
	Pipeline() redis.Pipeliner
}

const (
	// dialTimeout bounds a dial, which goes on in the background after callers have
	// given up. Bounded by the node timeout instead, connections to a distant node
	// would never get past their first three round trips.
	dialTimeout = 2 * time.Second

	// openPool is the size of the connection pool of each client that Open makes. A
	// lane uses at most maxBatches connections and a few for probing. The others
	// are there because go-redis, after as many failed dials as the pool has places,
	// dials only once a second, and a node that is back must be used within a second.
	openPool = 1024
)

// Open is like New, but makes the clients itself, one for each URL; Close closes them.
// A URL is redis://[user:password@]host:port[/db], rediss:// for TLS, unix://path,
// or just host:port. Each is an argument of its own: a list in one string is refused. Open
// does not dial. Its errors are those of New, or say which URL is invalid, without its
// password.
//
// The clients never retry a command or a dial. A connection takes two round trips to set
// up. A read may take two node timeouts, and at least two seconds.
func Open(opt Options, urls ...string) (*Locker, error) {
	return open(opt, urls, realClock, newSource())
}

func open(opt Options, urls []string, now clock, rand *source) (*Locker, error) {
	var nodes []Node
	var clients []*redis.Client
	closeAll := func() {
		for _, c := range clients {
			c.Close()
		}
	}
	seen := make(map[string]int)
	for i, u := range urls {
		o, err := clientOptions(u, opt.NodeTimeout)
		if err != nil {
			closeAll()
			return nil, fmt.Errorf("redlock: node %d of %d: %w", i+1, len(urls), err)
		}
		at := cmp.Or(o.Network, "tcp") + " " + o.Addr
		if j, ok := seen[at]; ok {
			closeAll()
			return nil, fmt.Errorf("redlock: nodes %d and %d are both at %s: list every master once", j+1, i+1, o.Addr)
		}
		seen[at] = i
		c := redis.NewClient(o)
		clients = append(clients, c)
		nodes = append(nodes, c)
	}
	l, err := newLocker(opt, nodes, now, rand)
	if err != nil {
		closeAll()
		return nil, err
	}
	for _, c := range clients {
		l.owned = append(l.owned, c)
	}
	return l, nil
}

// clientOptions parses a URL. Its error never shows the password.
func clientOptions(url string, nodeTimeout time.Duration) (*redis.Options, error) {
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
	}
	if nodeTimeout <= 0 {
		nodeTimeout = maxNodeTimeout
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
	o.PoolSize = openPool
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

// sameNode reports whether two Nodes are the same client.
func sameNode(a, b Node) bool {
	va, vb := reflect.ValueOf(a), reflect.ValueOf(b)
	return va.Comparable() && vb.Comparable() && a == b
}

// isNil reports whether a Node is nil or holds a nil pointer.
func isNil(n Node) bool {
	if n == nil {
		return true
	}
	v := reflect.ValueOf(n)
	switch v.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Func, reflect.Chan, reflect.Interface, reflect.Slice:
		return v.IsNil()
	}
	return false
}
