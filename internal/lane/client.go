package lane

import (
	"context"
	"fmt"
	"iter"
	"reflect"
	"slices"

	"github.com/seed-ce352c9b/redlock/internal/wire"

	"github.com/redis/go-redis/v9"
)

// This file finds out what a Node is, beyond the two methods that it must have.

// A Node is recognised by these methods and not by its type, because it may be a wrapper.
type (
	singleClient  interface{ Options() *redis.Options }
	clusterClient interface{ Options() *redis.ClusterOptions }
	ringClient    interface{ Options() *redis.RingOptions }
	withShards    interface { // a Ring and a cluster
		ForEachShard(ctx context.Context, f func(ctx context.Context, shard *redis.Client) error) error
	}
	withMasters interface { // a cluster
		ForEachMaster(ctx context.Context, f func(ctx context.Context, master *redis.Client) error) error
	}
)

// KindOf returns what a Node stands for, which it recognises by the methods of the Node and
// of what it embeds. If several kinds fit, it returns the one that needs the most care. A
// wrapper that keeps its client in an ordinary field and has no Options method is of
// unknown kind.
func KindOf(node Client) (kind wire.NodeKind) {
	for v := range embedded(node) {
		t := v.Type()
		shards, masters := t.Implements(reflect.TypeFor[withShards]()), t.Implements(reflect.TypeFor[withMasters]())
		switch {
		case t.Implements(reflect.TypeFor[ringClient]()), shards && !masters:
			return wire.KindRing
		case t.Implements(reflect.TypeFor[clusterClient]()), masters:
			kind = wire.KindCluster
		case kind != wire.KindUnknown:
		case t.Implements(reflect.TypeFor[singleClient]()):
			kind = wire.KindSingle
		case t == reflect.TypeFor[*redis.AutoPipeliner]():
			kind = wire.KindPipeliner
		}
	}
	return kind
}

// embedded yields a Node and everything that it embeds. The methods of the Node are not
// enough: an embedded interface hides other methods of the client in it.
func embedded(node Client) iter.Seq[reflect.Value] {
	return func(yield func(reflect.Value) bool) { embeddedIn(reflect.ValueOf(node), maxWrappers, yield) }
}

// maxWrappers bounds how many levels embedded descends: a wrapper may embed itself.
const maxWrappers = 8

func embeddedIn(v reflect.Value, depth int, yield func(reflect.Value) bool) (more bool) {
	if v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	if !v.IsValid() || depth == 0 {
		return true
	}
	if !yield(v) {
		return false
	}
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return true
	}
	for i := range v.NumField() {
		if v.Type().Field(i).Anonymous && !embeddedIn(v.Field(i), depth-1, yield) {
			return false
		}
	}
	return true
}

// NodeName returns the name of a node in error texts: its address, or else its number
// counted from 1.
func NodeName(i int, node Client) string {
	if addr := clientAddr(node); addr != "" {
		return addr
	}
	for v := range embedded(node) {
		if v.Kind() != reflect.Pointer || !v.CanInterface() {
			continue // a copy of a struct would copy its locks
		}
		if addr := clientAddr(v.Interface()); addr != "" {
			return addr
		}
	}
	return fmt.Sprintf("node%d", i+1)
}

// clientAddr returns the address in a client's options, or "" if there is none. Of several
// addresses it is the first; of a Ring's named ones, that whose name sorts first.
func clientAddr(client any) (addr string) {
	var failed error
	defer wire.RecoverTo(&failed)
	switch c := client.(type) {
	case singleClient:
		if o := c.Options(); o != nil {
			return o.Addr
		}
	case clusterClient:
		if o := c.Options(); o != nil && len(o.Addrs) > 0 {
			return o.Addrs[0]
		}
	case ringClient:
		if o := c.Options(); o != nil && len(o.Addrs) > 0 {
			var names []string
			for name := range o.Addrs {
				names = append(names, name)
			}
			return slices.Min(names)
		}
	}
	return ""
}

// usesTLS reports whether a node is a client, or embeds one, whose connections use TLS.
func usesTLS(node Client) (yes bool) {
	var failed error
	defer wire.RecoverTo(&failed)
	for v := range embedded(node) {
		if !v.CanInterface() || v.Kind() != reflect.Pointer {
			continue
		}
		if c, ok := v.Interface().(singleClient); ok && c.Options() != nil && c.Options().TLSConfig != nil {
			return true
		}
	}
	return false
}

// Same reports whether two nodes are the same client.
func Same(a, b Client) bool {
	va, vb := reflect.ValueOf(a), reflect.ValueOf(b)
	return va.Comparable() && vb.Comparable() && a == b
}

// IsNil reports whether a node is nil or holds a nil pointer.
func IsNil(node Client) bool {
	if node == nil {
		return true
	}
	v := reflect.ValueOf(node)
	switch v.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Func, reflect.Chan, reflect.Interface, reflect.Slice:
		return v.IsNil()
	}
	return false
}
