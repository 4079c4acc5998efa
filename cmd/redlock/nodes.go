package main

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ce352c9b/redlock"
	"github.com/seed-ce352c9b/redlock/internal/address"
)

// tlsFiles are the names of the files that --tls-ca, --tls-cert and --tls-key name, or "".
type tlsFiles struct{ ca, cert, key string }

// hasPassword reports whether a node's URL contains a password. One that cannot be parsed may.
func hasPassword(node string) bool {
	u, err := url.Parse(node)
	if err != nil || u.User == nil {
		return strings.Contains(node, "@")
	}
	_, has := u.User.Password()
	return has
}

// readNodes reads --nodes-file.
func (c *runConfig) readNodes() error {
	if c.nodesFile == "" {
		return nil
	}
	text, err := os.ReadFile(c.nodesFile)
	if err != nil {
		return mistake("--nodes-file: %v", err)
	}
	if c.nodes = splitList(string(text)); len(c.nodes) == 0 {
		return mistake("--nodes-file %q contains no nodes", c.nodesFile).withHint("write each node in a line, or all with commas in between")
	}
	return nil
}

// open returns a Locker over the nodes, and what closes it.
func (c *runConfig) open(trace redlock.Trace) (*redlock.Locker, func(), error) {
	opt := redlock.Options{
		RestartGuard: c.guard,
		Grace:        max(c.grace, killLead(c.ttl)),
		NodeTimeout:  c.nodeTimeout,
		Fair:         c.fair,
		NoFence:      c.noFence,
		KeyPrefix:    c.prefix,
		Trace:        trace,
	}
	if c.tls == (tlsFiles{}) {
		l, err := redlock.Open(opt, c.nodes...)
		if err != nil {
			return nil, nil, err
		}
		return l, func() { l.Close() }, nil
	}
	clients, err := c.tlsClients()
	if err != nil {
		return nil, nil, err
	}
	nodes := make([]redlock.Node, len(clients))
	for i, client := range clients {
		nodes[i] = client
	}
	l, err := redlock.New(opt, nodes...)
	closeAll := func() {
		if l != nil {
			l.Close()
		}
		for _, client := range clients {
			client.Close()
		}
	}
	if err != nil {
		closeAll()
		return nil, nil, err
	}
	return l, closeAll, nil
}

// tlsClients returns the clients of the nodes, which all use TLS.
func (c *runConfig) tlsClients() ([]*redis.Client, error) {
	urls := slices.Clone(c.nodes)
	for i, u := range urls {
		switch scheme, _, ok := strings.Cut(u, "://"); {
		case !ok:
			urls[i] = "rediss://" + u
		case scheme != "rediss":
			return nil, mistake("node %s does not use TLS, which the --tls flags ask for", shown(u)).withHint("write rediss:// or just host:port")
		}
	}
	// The time that Open takes: the default of Options.NodeTimeout is at most a second.
	all, err := address.ParseAll(urls, cmp.Or(c.nodeTimeout, time.Second))
	if err != nil {
		return nil, fmt.Errorf("redlock: %w", err)
	}
	roots, err := c.tls.roots()
	if err != nil {
		return nil, err
	}
	var certificates []tls.Certificate
	if c.tls.cert != "" {
		pair, err := tls.LoadX509KeyPair(c.tls.cert, c.tls.key)
		if err != nil {
			return nil, mistake("--tls-cert %q and --tls-key %q: %v", c.tls.cert, c.tls.key, err)
		}
		certificates = append(certificates, pair)
	}
	var clients []*redis.Client
	for _, o := range all {
		o.TLSConfig.RootCAs = roots
		o.TLSConfig.Certificates = certificates
		clients = append(clients, redis.NewClient(o))
	}
	return clients, nil
}

// roots returns the authorities to trust, or nil for those of the system.
func (t tlsFiles) roots() (*x509.CertPool, error) {
	if t.ca == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(t.ca)
	pool := x509.NewCertPool()
	if err == nil && !pool.AppendCertsFromPEM(pem) {
		err = errors.New("no certificate in PEM form")
	}
	if err != nil {
		return nil, mistake("--tls-ca %q: %v", t.ca, err)
	}
	return pool, nil
}
